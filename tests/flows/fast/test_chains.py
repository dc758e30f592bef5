"""Couplings in a row as one function: the same numbers and derivatives as one by one."""

import copy

import pytest
import torch

from vfg.flows import Coupling, LULinear
from vfg.flows.fast.chains import apply_flows
from vfg.flows.fast.primitives import drop, dropout_factor, random_bytes
from vfg.flows.fast.tiles import TILE, tiles


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch):
    monkeypatch.setattr("vfg.flows.fast.chains.LEAST", 0)


def couplings(
    edges=3, width=5, layers=2, blocks=4, dropout=0.0, dtype=torch.float64, activation="relu"
):
    spec = Coupling(blocks=blocks, hidden=6, layers=layers, dropout=dropout, activation=activation)
    flow = spec.build(edges, width).to(dtype)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in flow.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=dtype)
            parameter.add_(noise, alpha=0.3)
    return list(flow.flows)[:-1]


def data(edges=3, rows=7, width=5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(edges, rows, width, generator=generator, dtype=torch.float64)


def apply_in_order(flows, x, inverse):
    total = x.new_zeros(x.shape[:2])
    for flow in reversed(flows) if inverse else flows:
        x, term = flow.inverse(x) if inverse else flow.forward(x)
        total = total + term
    return x, total


@pytest.mark.parametrize("least", [0, 1 << 30], ids=["tiles", "autograd"])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(
    ("width", "layers", "blocks"), [(2, 2, 1), (3, 2, 3), (5, 3, 4), (6, 4, 5)]
)
def test_results_and_derivatives_are_those_of_the_couplings_one_by_one(
    width, layers, blocks, inverse, least, monkeypatch
):
    monkeypatch.setattr("vfg.flows.fast.chains.LEAST", least)
    flows = couplings(width=width, layers=layers, blocks=blocks)
    x = data(width=width).requires_grad_()
    weight = data(width=width, seed=2), data(width=1, seed=3)[..., 0]
    parameters = [p for flow in flows for p in flow.parameters()]
    found = []
    for function in (apply_in_order, apply_flows):
        y, log_det = function(flows, x, inverse=inverse)
        loss = (y * weight[0]).sum() + (log_det * weight[1]).sum()
        found.append((y, log_det, *torch.autograd.grad(loss, [x, *parameters])))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("inverse", [False, True])
def test_tiles_of_edges_and_rows_change_nothing(inverse, monkeypatch):
    flows, x = couplings(edges=5), data(edges=5, rows=29).requires_grad_()
    parameters = [p for flow in flows for p in flow.parameters()]
    found = []
    for most in (512, 8):
        monkeypatch.setattr("vfg.flows.fast.tiles.ROWS", most)
        monkeypatch.setattr("vfg.flows.fast.tiles.TILE", most * 6 * 2 // torch.get_num_threads())
        y, log_det = apply_flows(flows, x, inverse=inverse)
        loss = y.sin().sum() + log_det.square().sum()
        found.append((y, log_det, *torch.autograd.grad(loss, [x, *parameters])))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_hidden_layers_may_be_kept_or_computed_again(activation, dropout, monkeypatch):
    flows, x = couplings(layers=3, dropout=dropout, activation=activation), data().requires_grad_()
    parameters = [p for flow in flows for p in flow.parameters()]
    found = []
    for keeps in (False, True):
        monkeypatch.setattr("vfg.flows.fast.chains.has_room", lambda *_, keeps=keeps: keeps)
        torch.manual_seed(0)
        y, log_det = apply_flows(flows, x, inverse=False)
        found.append(torch.autograd.grad(y.sin().sum() + log_det.sum(), [x, *parameters]))
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_tiles_cover_everything_once():
    count = torch.zeros(7, 1300)
    for edges, rows in tiles(7, 1300, 64, is_cpu=True):
        count[edges, rows] += 1
    assert torch.equal(count, torch.ones(7, 1300))
    assert [rows for _, rows in tiles(7, 0, 64, is_cpu=True)] == [slice(0, 0)]


@pytest.mark.parametrize("edges", [1, 2, 4, 7, 16, 64])
def test_tiles_of_few_edges_are_taller_and_stay_in_the_cache(edges, monkeypatch):
    heights = []
    for threads in (1, 2, 8):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found = tiles(edges, 100_000, 64, is_cpu=True)
        heights.append(found[0][1].stop)
        numbers = max((e.stop - e.start) * (r.stop - r.start) * 64 for e, r in found)
        assert numbers <= threads * TILE
    # Sums over rows, and so gradients, are the same for any number of threads.
    assert len(set(heights)) == 1
    assert heights[0] == {1: 4096, 2: 4096, 4: 2048, 7: 1170}.get(edges, 512)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "tanh"])
def test_derivatives_with_dropout_are_those_of_the_function_with_the_same_noise(
    activation, inverse
):
    flows = couplings(edges=2, width=3, blocks=2, dropout=0.4, layers=3, activation=activation)
    x = data(2, 4, 3).requires_grad_()
    parameters = [p for flow in flows for p in flow.parameters()]

    def function(x, *parameters):
        torch.manual_seed(3)
        return apply_flows(flows, x, inverse=inverse)

    assert torch.autograd.gradcheck(function, (x, *parameters), fast_mode=True)


def test_dropout_is_for_training_and_keeps_the_mean():
    flows = couplings(edges=2, blocks=1, dropout=0.5, layers=2)
    flows[0].bound = 1e-6  # only the shifts are left, which are linear in the hidden layer
    x = data(edges=2, rows=1).expand(-1, 40_000, -1).contiguous()
    torch.manual_seed(0)
    with torch.no_grad():
        dropped = apply_flows(flows, x, inverse=False)[0].mean(1)
        flows[0].eval()
        kept = apply_flows(flows, x, inverse=False)[0].mean(1)
    torch.testing.assert_close(dropped, kept, rtol=0.02, atol=0.02)


def test_second_derivatives_go_layer_by_layer():
    flows, x = couplings(edges=1, width=3, blocks=2), data(1, 2, 3).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: apply_flows(flows, x, inverse=False), (x,))
    dropping = couplings(edges=1, width=3, blocks=2, dropout=0.5)
    y, _ = apply_flows(dropping, x, inverse=False)
    with pytest.raises(RuntimeError, match="only once"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_frozen_parameters_and_unused_outputs_are_fine():
    flows, x = couplings(), data().requires_grad_()
    for flow in flows[:2]:
        flow.requires_grad_(False)
    _, log_det = apply_flows(flows, x, inverse=False)
    log_det.sum().backward()
    assert x.grad is not None
    assert all(p.grad is None for flow in flows[:2] for p in flow.parameters())
    expected = torch.autograd.grad(apply_in_order(flows, x, inverse=False)[1].sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)


def test_bits_are_the_same_with_and_without_gradients_and_for_expanded_states():
    flows, x = couplings(dtype=torch.float32), data(edges=1).float()
    wide = x.expand(3, -1, -1)
    with torch.no_grad():
        without = apply_flows(flows, wide, inverse=False)[0]
    assert torch.equal(without, apply_flows(flows, wide, inverse=False)[0].detach())
    assert torch.equal(without, apply_flows(flows, wide.contiguous(), inverse=False)[0].detach())


def test_other_flows_in_between_are_passed_one_by_one():
    flows, x = couplings(), data()
    mixed = [*flows[:2], LULinear(3, 5).double(), *flows[2:]]
    for inverse in (False, True):
        for expected, got in zip(
            apply_in_order(mixed, x, inverse), apply_flows(mixed, x, inverse=inverse), strict=True
        ):
            torch.testing.assert_close(got, expected)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
def test_forward_mode_and_function_transforms_still_work():
    flows, x = couplings(edges=1, width=3), data(1, 2, 3)
    _, tangent = torch.func.jvp(lambda x: apply_flows(flows, x, inverse=False)[0], (x,), (x,))
    jacobian = torch.func.jacrev(lambda x: apply_flows(flows, x, inverse=False)[0])(x)
    torch.testing.assert_close(tangent, torch.einsum("abcdef,def->abc", jacobian, x))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_bytes_drop_their_share(rate):
    torch.manual_seed(0)
    noise = random_bytes((50, 40, 64), torch.device("cpu"))
    kept = drop(torch.ones(noise.shape), noise, rate)
    assert kept.mean().item() == pytest.approx(1.0 / dropout_factor(rate), abs=0.005)
    assert kept.mean().item() == pytest.approx(1.0 - rate, abs=0.01)
    torch.manual_seed(0)
    again = random_bytes((50, 40, 64), torch.device("cpu"))
    assert torch.equal(noise, again)
    assert copy.copy(noise).float().mean().item() == pytest.approx(127.5, abs=0.5)
