"""Kernels, and the operators of compiled steps, against the same layers one by one.

Kernels need a GPU, or anywhere TRITON_INTERPRET=1.
"""

import os

import pytest
import torch

from vfg.flows import Coupling
from vfg.flows.conditioners import Conditioner, Network
from vfg.flows.fast import fused
from vfg.flows.fast.primitives import conditioners_in, dropped_levels, product_tf32, random_bytes

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
needs_kernels = pytest.mark.skipif(
    not fused.is_there() or (DEVICE.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1"),
    reason="needs triton and a GPU, or its interpreter",
)
needs_gpu = pytest.mark.skipif(
    not (fused.is_there() and DEVICE.type == "cuda"), reason="needs triton and a GPU"
)


def made(edges, inputs, hidden, outputs, rows, has_inner, rate):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(DEVICE)

    torch.manual_seed(0)
    layers = 2 if has_inner else 1
    noise = [random_bytes((edges, rows, hidden), DEVICE) for _ in range(layers if rate else 0)]
    inner = normal(edges, hidden, hidden) * hidden**-0.5 if has_inner else None
    shift = normal(edges, 1, hidden) if has_inner else None
    found = fused.Layers(
        normal(edges, inputs, hidden) * inputs**-0.5,
        inner,
        shift,
        normal(edges, outputs, hidden) * hidden**-0.5,
        normal(edges, outputs, 1),
        rate,
        noise,
    )
    return normal(edges, inputs, rows), found, normal(edges, outputs, rows)


def hidden(inputs, layers):
    """The hidden layers, by torch."""

    def activated(z, number):
        z = z.relu()
        return z * (layers.noise[number] >= dropped_levels(layers.rate)) if layers.noise else z

    found = [activated(inputs.mT.to(layers.first.dtype) @ layers.first, 0)]
    if layers.inner is not None:
        found.append(activated(found[0] @ layers.inner + layers.shift, 1))
    return found


def by_layers(inputs, layers):
    """What the kernel computes."""
    return (layers.last @ hidden(inputs, layers)[-1].mT).to(inputs.dtype) + layers.bias


@needs_kernels
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("has_inner", [False, True])
@pytest.mark.parametrize(
    ("edges", "inputs", "hidden", "outputs", "rows"),
    [(2, 5, 16, 8, 40), (3, 9, 64, 16, 200), (1, 3, 20, 6, 64)],
)
def test_kernels_compute_the_layers_and_their_derivatives(
    edges, inputs, hidden, outputs, rows, has_inner, rate
):
    x, layers, gradient = made(edges, inputs, hidden, outputs, rows, has_inner, rate)
    wanted = [x, layers.first, layers.last]
    wanted += [layers.inner, layers.shift] if has_inner else []
    for tensor in wanted:
        tensor.requires_grad_()
    expected = by_layers(x, layers)
    derivatives = torch.autograd.grad(expected, wanted, gradient)
    with torch.no_grad():
        torch.testing.assert_close(fused.forward(x, layers), expected, rtol=1e-4, atol=1e-4)
        found = fused.backward(x, gradient, layers)
    for one, two in zip(found, derivatives, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("inverse", [False, True])
def test_flows_with_kernels_are_those_without(layers, inverse, precision, monkeypatch):
    flow = Coupling(blocks=4, hidden=64, layers=layers, dropout=0.1).build(8, 11).to(DEVICE)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x = torch.randn(8, 1000, 11, device=DEVICE)
    found = []
    for used in (False, True):
        monkeypatch.setattr(fused, "USED", used)
        monkeypatch.setattr(fused, "FLOAT32", "ieee")
        torch.manual_seed(0)
        with conditioners_in(flow, precision):
            y, log_det = flow.inverse(x) if inverse else flow(x)
        loss = y.square().mean() + log_det.mean()
        found.append((y, log_det, *torch.autograd.grad(loss, list(flow.parameters()))))
    close = {"rtol": 1e-3, "atol": 1e-4} if precision == "float32" else {"rtol": 0.1, "atol": 0.05}
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one, **close)


class OnGpu:
    """Stands for a tensor on a GPU."""

    is_cuda, dtype, device = True, torch.float32, torch.device("cpu")


def test_kernels_are_for_rounded_products_unless_they_are_told_how(monkeypatch):
    monkeypatch.setattr(fused, "is_there", lambda: True)
    monkeypatch.setattr(fused, "USED", True)
    _, layers, _ = made(2, 5, 16, 8, 10, True, 0.0)
    low = layers._replace(first=layers.first.bfloat16())
    assert fused.FLOAT32 is None
    assert fused.fits(OnGpu(), low, "relu")
    assert not fused.fits(OnGpu(), layers, "relu")
    monkeypatch.setattr(fused, "USED", False)
    assert not fused.fits(OnGpu(), low, "relu")


def test_there_is_no_kernel_for_other_activations_or_wide_layers(monkeypatch):
    monkeypatch.setattr(fused, "USED", True)
    monkeypatch.setattr(fused, "is_there", lambda: True)
    monkeypatch.setattr(fused, "FLOAT32", "ieee")
    _, layers, _ = made(2, 5, 16, 8, 10, False, 0.0)
    _, wide, _ = made(2, 5, 160, 8, 10, False, 0.0)
    _, deep, _ = made(2, 5, 96, 8, 10, True, 0.0)
    assert fused.fits(OnGpu(), layers, "relu")
    assert not fused.fits(OnGpu(), layers, "silu")
    assert not fused.fits(OnGpu(), wide, "relu")
    assert not fused.fits(OnGpu(), deep, "relu")
    assert not fused.fits(torch.ones(1), layers, "relu")


def derived(inputs, gradient, layers):
    """What its derivative computes; operators have no autograd inside."""
    *first, last = found = hidden(inputs, layers)
    numbers = gradient.to(last.dtype)
    back = (numbers.mT @ layers.last) * (last > 0)
    by_last, rest = numbers @ last, []
    if first:
        rest = [first[0].mT @ back, back.sum(1, keepdim=True)]
        back = (back @ layers.inner.mT) * (found[0] > 0)
    by_first = inputs.to(back.dtype) @ back
    by_inputs = layers.first @ back.mT
    return tuple(part.to(inputs.dtype) for part in (by_inputs, by_first, by_last, *rest))


@pytest.fixture
def _kernels(monkeypatch):
    """Layers in torch in the place of kernels, on any device."""
    monkeypatch.setattr(fused, "suits", lambda *_: True)
    monkeypatch.setattr(fused, "forward", by_layers)
    monkeypatch.setattr(fused, "backward", derived)
    torch.compiler.reset()


def network(layers, dropout=0.0):
    made = Conditioner(3, 4, 6, network=Network(hidden=8, layers=layers, dropout=dropout))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return made, torch.randn(3, 20, 4, generator=generator)


def value_and_gradients(function, made, x):
    x = x.clone().requires_grad_()
    y = function(x)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    return [y, *torch.autograd.grad((y * weights).sum(), [x, *made.parameters()])]


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_compiled_conditioners_are_the_layers(layers, precision):
    made, x = network(layers)
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    with conditioners_in(made, precision):
        found = value_and_gradients(compiled, made, x)
        expected = value_and_gradients(made, made, x)
    close = {"rtol": 1e-5, "atol": 1e-5} if precision == "float32" else {"rtol": 0.1, "atol": 0.3}
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two.to(one.dtype), **close)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("layers", [2, 3])
def test_compiled_dropout_draws_for_every_layer_and_derives_what_it_drew(layers, monkeypatch):
    made, x = network(layers, dropout=0.5)
    seen = []
    monkeypatch.setattr(fused, "forward", lambda x, of: seen.append(of) or by_layers(x, of))
    compiled = torch.compile(made.train(), fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    found = value_and_gradients(compiled, made, x)
    (drawn,) = seen
    assert len(drawn.noise) == layers - 1
    assert all(not torch.equal(drawn.noise[0], other) for other in drawn.noise[1:])

    def expected(x):
        z = x
        for layer, noise in zip(made.hidden_layers, drawn.noise, strict=True):
            z = (z @ layer.weight + layer.bias).relu() * (noise >= 128) * 2.0
        return z @ made.last.weight + made.last.bias

    for one, two in zip(found, value_and_gradients(expected, made, x), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_products_on_tensor_cores_have_the_derivatives_of_products():
    x, weight = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    tensors = x.requires_grad_(), weight.requires_grad_()
    assert torch.autograd.gradcheck(product_tf32, tensors)
    torch.testing.assert_close(product_tf32(x, weight), x @ weight)
