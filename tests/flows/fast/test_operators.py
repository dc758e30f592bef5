"""Operators of compiled steps: a conditioner is the same layers, with the same derivatives."""

import pytest
import torch

from vfg.flows.conditioners import Conditioner, Network
from vfg.flows.fast import fused, operators
from vfg.flows.fast.primitives import conditioners_in, dropped_levels


def hidden(inputs, layers):
    """The hidden layers, by torch."""

    def activated(z, number):
        z = z.relu()
        return z * (layers.noise[number] >= dropped_levels(layers.rate)) if layers.noise else z

    found = [activated(inputs.mT.to(layers.first.dtype) @ layers.first, 0)]
    if layers.inner is not None:
        found.append(activated(found[0] @ layers.inner + layers.shift, 1))
    return found


def one_by_one(inputs, layers):
    """What the kernel computes."""
    return (layers.last @ hidden(inputs, layers)[-1].mT).to(inputs.dtype) + layers.bias


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
    monkeypatch.setattr(fused, "forward", one_by_one)
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
    monkeypatch.setattr(fused, "forward", lambda x, of: seen.append(of) or one_by_one(x, of))
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
    assert torch.autograd.gradcheck(operators.product_tf32, tensors)
    torch.testing.assert_close(operators.product_tf32(x, weight), x @ weight)
