"""Derivatives from what is computed again or inverted: the same, in less memory."""

import gc

import pytest
import torch

from vfg.flows import Coupling, Flow, Linear, LinearStart, Spline, of_kind, temporarily_set
from vfg.flows.fast.memory import MEMORIES

TENSORS = (torch.Tensor, torch.nn.Parameter)
MANY = 400
"""Rows whose states are larger than the parameters."""

SPECS = {
    "affine": Coupling(blocks=5, hidden=6, layers=2),
    "deeper networks": Coupling(blocks=3, hidden=6, activation="silu"),
    "additive": Coupling(blocks=3, hidden=6, kind="additive"),
    "spline": Coupling(blocks=3, hidden=6, kind="spline"),
    "shared": Coupling(blocks=3, hidden=6, shared=3),
    "image": Coupling(blocks=3, hidden=6, image=(2, 3)),
    "monotone": Spline(),
    "rotation": Linear("householder"),
    "matrix": Linear(),
    "framed": LinearStart(Coupling(blocks=4, hidden=6, layers=2), columns=1, bins=4),
}


def keeping(flow, memory):
    return temporarily_set(of_kind(flow, Flow), "memory", memory)


def flow_of(spec, width=6):
    flow = spec.build(edges=3, width=width).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in flow.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(noise, alpha=0.2)
    return flow


def data(rows=20):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, rows, 6, generator=generator, dtype=torch.float64)


def outcome(flow, x, memory, direction="forward", loss=None):
    x = x.clone().requires_grad_()
    torch.manual_seed(5)
    with keeping(flow, memory):
        y, log_det = getattr(flow, direction)(x)
        value = y.sin().sum() + log_det.square().sum() if loss is None else loss(y, log_det)
        gradients = torch.autograd.grad(value, [x, *flow.parameters()], allow_unused=True)
    return y, log_det, *[g for g in gradients if g is not None], torch.rand(1)


@pytest.mark.parametrize("memory", ["recompute", "invert"])
@pytest.mark.parametrize("direction", ["forward", "inverse"])
@pytest.mark.parametrize("name", SPECS)
def test_results_and_derivatives_are_those_of_stored_activations(name, direction, memory):
    flow, x = flow_of(SPECS[name]), data()
    expected, found = (outcome(flow, x, way, direction) for way in ("store", memory))
    for one, two in zip(expected, found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("memory", ["recompute", "invert"])
@pytest.mark.parametrize("kind", ["affine", "additive", "spline"])
def test_dropout_is_the_same_on_the_way_back(kind, memory, monkeypatch):
    # With tiles as without draws come in the same order only if both go the same way.
    monkeypatch.setattr("vfg.flows.fast.chains.LEAST", 0)
    flow, x = flow_of(Coupling(blocks=3, hidden=6, kind=kind, dropout=0.3)).train(), data()
    expected, found = (outcome(flow, x, way) for way in ("store", memory))
    for one, two in zip(expected, found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("memory", ["recompute", "invert"])
@pytest.mark.parametrize("name", ["affine", "spline", "additive"])
@pytest.mark.parametrize(
    "loss", [lambda y, log_det: y.sum(), lambda y, log_det: log_det.sum()], ids=["y", "log_det"]
)
def test_a_loss_may_look_at_one_of_both_results(name, memory, loss):
    flow, x = flow_of(SPECS[name]), data()
    if name == "additive" and loss(torch.ones(1), torch.zeros(1)) == 0:
        flow = flow_of(SPECS["affine"])
    expected, found = (outcome(flow, x, way, loss=loss) for way in ("store", memory))
    for one, two in zip(expected, found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("memory", ["recompute", "invert"])
@pytest.mark.parametrize("name", ["affine", "spline"])
def test_derivatives_of_derivatives_are_there(name, memory):
    flow, x = flow_of(SPECS[name]), data().requires_grad_()
    found = []
    for way in ("store", memory):
        with keeping(flow, way):
            y, log_det = flow(x)
            (first,) = torch.autograd.grad((y.sin().sum() + log_det.sum()), x, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["affine", "spline"])
def test_jacobians_by_functorch_go_round_it(name):
    flow, x = flow_of(SPECS[name]), data()[:, :1]
    with keeping(flow, "invert"):
        found = torch.func.jacrev(lambda x: flow(x)[0])(x)
    torch.testing.assert_close(found, torch.func.jacrev(lambda x: flow(x)[0])(x))


def kept_bytes(spec, memory):
    """What is there for the derivative once a flow has been computed, parameters aside."""
    flow, x = flow_of(spec), data(MANY)
    before, kept = live_storages(), {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with keeping(flow, memory), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        results = flow(x)
    found = {**kept, **live_storages()}
    assert results[0].requires_grad
    return sum(size for place, size in found.items() if place not in before)


def live_storages():
    """Sizes of the memory of all tensors that Python knows, by place."""
    gc.collect()
    storages = [o.untyped_storage() for o in gc.get_objects() if type(o) in TENSORS]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["affine", "spline"])
def test_what_inverted_flows_keep_does_not_grow_with_depth(kind, monkeypatch):
    monkeypatch.setattr("vfg.flows.fast.chains.LEAST", 0)
    shallow, deep = (Coupling(blocks=blocks, hidden=16, layers=2, kind=kind) for blocks in (2, 16))
    sizes = {memory: (kept_bytes(shallow, memory), kept_bytes(deep, memory)) for memory in MEMORIES}
    state = data(MANY).nbytes
    assert sizes["store"][1] > 4 * sizes["store"][0]
    assert sizes["recompute"][1] - sizes["recompute"][0] < 14 * 3.5 * state
    assert sizes["invert"][1] < sizes["invert"][0] + 3 * state
    assert sizes["invert"][1] < sizes["recompute"][1] <= sizes["store"][1]


def test_ways_of_keeping_end_with_their_block():
    flow = flow_of(SPECS["affine"])
    found = []

    def fails():
        with keeping(flow, "invert"):
            found.append(flow.memory)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fails()
    assert found == ["invert"]
    assert flow.memory == "store"
