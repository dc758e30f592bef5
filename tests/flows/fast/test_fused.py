"""Kernels against the same layers one by one; on a GPU, or anywhere with TRITON_INTERPRET=1."""

import copy
import os

import pytest
import torch

from vfg.flows import Coupling
from vfg.flows.fast import fused
from vfg.flows.fast.primitives import conditioners_in, dropped_levels, random_bytes

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
needs_kernels = pytest.mark.skipif(
    not fused.TRITON or (DEVICE.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1"),
    reason="needs triton and a GPU, or its interpreter",
)
needs_gpu = pytest.mark.skipif(
    not (fused.TRITON and DEVICE.type == "cuda"), reason="needs triton and a GPU"
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


def one_by_one(x, layers):
    """The numbers, and per row the smallest distance of a hidden unit from the kink of ReLU."""
    near = []

    def activated(z, number):
        near.append(z.detach().abs().amin(-1))
        z = z.relu()
        return z * (layers.noise[number] >= dropped_levels(layers.rate)) if layers.noise else z

    z = activated(x.mT @ layers.first, 0)
    if layers.inner is not None:
        z = activated(z @ layers.inner + layers.shift, 1)
    return layers.last @ z.mT + layers.bias, torch.stack(near).amin(0)


EPSILON = {"float32": 2.0**-24, "bf16": 2.0**-9}
"""Relative error of one rounding."""


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
    names = ["first", "last", *(["inner", "shift"] if has_inner else [])]
    exact = layers._replace(
        bias=layers.bias.double(), **{name: getattr(layers, name).double() for name in names}
    )
    wanted = [x.double(), *(getattr(exact, name) for name in names)]
    for tensor in wanted:
        tensor.requires_grad_()
    expected, distance = one_by_one(wanted[0], exact)
    # A unit that rounding takes to the other side of the kink has another derivative.
    gradient = torch.where(distance[:, None] < 1e-4, 0.0, gradient)
    assert (gradient == 0).float().mean() < 0.1
    derivatives = torch.autograd.grad(expected, wanted, gradient.double())
    with torch.no_grad():
        found = [fused.forward(x, layers), *fused.backward(x, gradient, layers)]
    # A sum of n products is off by at most n roundings of the sum of their sizes.
    longest = max(inputs, hidden, outputs, rows)
    for one, two in zip(found, [expected.detach(), *derivatives], strict=True):
        size = two.abs().amax().item()
        bound = 3 * longest * EPSILON["float32"] * max(size, 1.0)
        torch.testing.assert_close(one.double(), two, rtol=0, atol=bound)


def relative_errors(found, exact):
    """Of norms: of the result, its log-determinant, and all derivatives together."""
    parts = [(found[:1], exact[:1]), (found[1:2], exact[1:2]), (found[2:], exact[2:])]
    return [
        (torch.cat([(a.double() - b).flatten() for a, b in zip(*pair, strict=True)]).norm()
         / torch.cat([b.flatten() for b in pair[1]]).norm()).item()
        for pair in parts
    ]  # fmt: skip


@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("inverse", [False, True])
def test_flows_with_kernels_are_as_exact_as_those_without(layers, inverse, precision, monkeypatch):
    flow = Coupling(blocks=4, hidden=64, layers=layers, dropout=0.1).build(8, 11)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    x = torch.randn(8, 1000, 11, generator=generator).to(DEVICE)

    def outcome(flow, x):
        torch.manual_seed(0)  # the same units are dropped
        y, log_det = flow.inverse(x) if inverse else flow(x)
        loss = y.square().mean() + log_det.mean()
        return y, log_det, *torch.autograd.grad(loss, list(flow.parameters()))

    flow = flow.to(DEVICE)
    exact = outcome(copy.deepcopy(flow).double(), x.double())
    errors = []
    for used in (False, True):
        monkeypatch.setattr(fused, "USED", used)
        monkeypatch.setattr(fused, "FLOAT32", "ieee")
        with conditioners_in(flow, precision):
            errors.append(relative_errors(outcome(flow, x), exact))
    # Kernels round no more than layers do: errors are of the same size, but not the same. Units
    # that cross the kink of ReLU change single rows of a derivative, one in a thousand here.
    floors = (16 * EPSILON[precision], 16 * EPSILON[precision], 16 * EPSILON[precision] + 0.01)
    for without, with_kernels, floor in zip(*errors, floors, strict=True):
        assert with_kernels < 3.0 * without + floor
        assert with_kernels < 0.2


class OnGpu:
    """Stands for a tensor on a GPU."""

    is_cuda, dtype, device = True, torch.float32, torch.device("cpu")


def test_kernels_are_for_rounded_products_unless_they_are_told_how(monkeypatch):
    monkeypatch.setattr(fused, "TRITON", True)
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
    monkeypatch.setattr(fused, "TRITON", True)
    monkeypatch.setattr(fused, "FLOAT32", "ieee")
    _, layers, _ = made(2, 5, 16, 8, 10, False, 0.0)
    _, wide, _ = made(2, 5, 160, 8, 10, False, 0.0)
    _, deep, _ = made(2, 5, 96, 8, 10, True, 0.0)
    assert fused.fits(OnGpu(), layers, "relu")
    assert not fused.fits(OnGpu(), layers, "silu")
    assert not fused.fits(OnGpu(), wide, "relu")
    assert not fused.fits(OnGpu(), deep, "relu")
    assert not fused.fits(torch.ones(1), layers, "relu")
