"""Products, rounded or in parts, and halves of states: the values and derivatives of torch."""

import pytest
import torch

from vfg.flows import Coupling
from vfg.flows.conditioners import Conditioner, Network
from vfg.flows.fast.primitives import (
    conditioners_in,
    count_parts,
    is_tf32,
    join,
    multiply_over_rows,
    product,
    split,
    tensor_cores,
    times,
)

SPECS = {
    "affine": Coupling(blocks=4, hidden=16, layers=3, activation="silu"),
    "spline": Coupling(blocks=3, hidden=16, kind="spline"),
    "shared": Coupling(blocks=4, hidden=16, shared=4),
}


def flow_of(name, dtype=torch.float32):
    flow = SPECS[name].build(edges=3, width=5)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return flow.to(dtype).eval()


def data(dtype=torch.float32):
    return torch.randn(3, 50, 5, generator=torch.Generator().manual_seed(1), dtype=dtype)


def outcome(flow, x):
    y, log_det = flow(x)
    loss = y.square().mean() + log_det.mean()
    return y, log_det, torch.autograd.grad(loss, list(flow.parameters()))


@pytest.fixture(params=[0, 1 << 15], ids=["tiles", "layers"])
def least(request, monkeypatch):
    monkeypatch.setattr("vfg.flows.fast.chains.LEAST", request.param)


@pytest.mark.usefixtures("least")
@pytest.mark.parametrize("name", SPECS)
def test_rounded_conditioners_are_near_the_exact_ones_but_not_equal(name):
    flow, x = flow_of(name), data()
    y, log_det, gradients = outcome(flow, x)
    with conditioners_in(flow, "bf16"):
        near, near_log_det, near_gradients = outcome(flow, x)
    assert near.dtype == near_log_det.dtype == torch.float32
    assert all(g.dtype == torch.float32 for g in near_gradients)
    assert 1e-5 < (near - y).abs().max() < 0.1
    assert (near_log_det - log_det).abs().max() < 0.1
    size = torch.cat([g.flatten() for g in gradients]).norm()
    off = torch.cat([(a - b).flatten() for a, b in zip(near_gradients, gradients, strict=True)])
    assert off.norm() < 0.05 * size


@pytest.mark.usefixtures("least")
@pytest.mark.parametrize("name", SPECS)
def test_the_round_trip_is_as_exact_as_without_rounding(name):
    flow, x = flow_of(name, torch.float64), data(torch.float64)
    with conditioners_in(flow, "bf16"), torch.no_grad():
        y, log_det = flow(x)
        back, log_det_back = flow.inverse(y)
    torch.testing.assert_close(back, x, rtol=0.0, atol=1e-9)
    torch.testing.assert_close(log_det_back, -log_det, rtol=0.0, atol=1e-9)


def test_tiles_and_layers_round_alike(monkeypatch):
    flow, x = flow_of("affine"), data()
    found = []
    for least in (0, 1 << 15):
        monkeypatch.setattr("vfg.flows.fast.chains.LEAST", least)
        with conditioners_in(flow, "bf16"):
            found.append(outcome(flow, x))
    torch.testing.assert_close(found[0][:2], found[1][:2], rtol=0.05, atol=0.05)


def test_on_a_cpu_tf32_is_the_precision_of_the_parameters():
    flow, x = flow_of("affine"), data()
    y, log_det, gradients = outcome(flow, x)
    with conditioners_in(flow, "tf32"):
        found = outcome(flow, x)
    torch.testing.assert_close(found, (y, log_det, gradients))


def test_precisions_end_with_their_block_and_are_not_saved():
    conditioner = Conditioner(1, 2, 3, network=Network(hidden=4))
    state = set(conditioner.state_dict())
    with conditioners_in(conditioner, "bf16"):
        assert conditioner(torch.ones(1, 2, 2)).dtype == torch.bfloat16
    assert conditioner(torch.ones(1, 2, 2)).dtype == torch.float32
    assert set(conditioner.state_dict()) == state


@pytest.mark.parametrize(
    "setting", [("allow_tf32", True, False), ("fp32_precision", "tf32", "ieee")]
)
def test_the_setting_of_tf32_comes_back_whichever_name_is_in_use(setting):
    name, _, slow = setting
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, name):
        pytest.skip("this version of torch has no such setting")
    gpu = torch.device("cuda")
    try:
        setattr(matmul, name, slow)
        with tensor_cores("tf32", gpu):
            assert is_tf32(gpu)
        assert getattr(matmul, name) == slow
        assert not is_tf32(gpu)
        with tensor_cores("float32", gpu):
            assert not is_tf32(gpu)
    finally:
        matmul.allow_tf32 = False
    assert not is_tf32(torch.device("cpu"))


def test_other_words_are_refused():
    with (
        pytest.raises(ValueError, match=r"precision to be one of .* but got 'half'"),
        conditioners_in(flow_of("affine"), "half"),
    ):
        pass


def test_products_of_rounded_factors_keep_the_dtype_of_the_rounding():
    x, weight = torch.ones(2, 3, 4, requires_grad=True), torch.ones(2, 4, 1, requires_grad=True)
    product(x, weight, "bf16").sum().backward()
    assert x.grad.dtype == weight.grad.dtype == torch.float32


class OnDevice(torch.Tensor):
    """Says that it is on a GPU."""

    is_cuda = True


def normals(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_products_in_parts_are_products_with_the_same_derivatives(parts):
    x, matrices = normals(3, 8, 2).requires_grad_(), normals(3, 2, 5, seed=1).requires_grad_()
    found, expected = times(x, matrices, parts=parts), x @ matrices
    torch.testing.assert_close(found, expected)
    weights = normals(3, 8, 5, seed=2)
    for one, two in zip(
        torch.autograd.grad((found * weights).sum(), [x, matrices]),
        torch.autograd.grad((expected * weights).sum(), [x, matrices]),
        strict=True,
    ):
        torch.testing.assert_close(one, two)


def test_stacks_that_are_views_are_cut_alike():
    x, matrices = normals(1, 8, 2).expand(3, -1, -1), normals(3, 5, 2).mT
    torch.testing.assert_close(times(x, matrices, parts=4), x @ matrices)


def test_sums_over_rows_in_parts_are_the_same_sums():
    left, right = normals(2, 3, 4096), normals(2, 4096, 5)
    assert (count_parts(2, 4096), count_parts(2, 1000)) == (8, 1)
    found = multiply_over_rows(left.as_subclass(OnDevice), right)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), left @ right)


ONE, TWO = torch.tensor([3, 0]), torch.tensor([4, 1, 2])
PLACES = torch.tensor([1, 3, 4, 0, 2])


def states():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, 5, dtype=torch.float64, generator=generator).requires_grad_()


def test_halves_are_the_chosen_coordinates_and_join_to_the_whole():
    x = states()
    one, two = split(x, ONE, TWO, PLACES)
    assert torch.equal(one, x[..., ONE])
    assert torch.equal(two, x[..., TWO])
    assert torch.equal(join(one, two, ONE, TWO, PLACES), x)


def test_derivatives_are_those_of_indexing():
    x = states()
    assert torch.autograd.gradcheck(lambda x: split(x, ONE, TWO, PLACES), x)
    assert torch.autograd.gradgradcheck(lambda x: split(x, ONE, TWO, PLACES)[0].square(), x)
    halves = [half.detach().requires_grad_() for half in split(x, ONE, TWO, PLACES)]
    assert torch.autograd.gradcheck(lambda a, b: join(a, b, ONE, TWO, PLACES), halves)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
def test_forward_mode_goes_through():
    x = states().detach()
    _, tangents = torch.func.jvp(lambda x: split(x, ONE, TWO, PLACES), (x,), (2.0 * x,))
    assert torch.equal(tangents[1], 2.0 * x[..., TWO])
