"""Steps that keep less or round more: the same training, or nearly."""

import pytest
import torch

import vfg
from vfg.flows import Conditioner, Flow

OPTIONS = {"epochs": 2, "batch": 64, "progress": False, "device": "cpu"}


def circle(rows=128):
    angle = 6.28 * torch.rand(rows, generator=torch.Generator().manual_seed(0))
    return torch.stack([angle.cos(), angle.sin(), angle.cos() + 1, (2 * angle).sin(), angle], 1)


def fitted(kind="affine", dropout=0.0, dtype=torch.float64, **options):
    graph = vfg.Graph.star({"a": 2, "b": 2, "c": 1}, width=4)
    flow = vfg.Coupling(blocks=3, hidden=16, layers=2, kind=kind, dropout=dropout)
    model = vfg.VFG(graph, flow=flow).to(dtype)
    history = vfg.fit(model, circle().to(dtype), **OPTIONS | options)
    return model, history


@pytest.mark.parametrize("memory", ["recompute", "invert"])
@pytest.mark.parametrize("kind", ["affine", "spline"])
def test_training_is_the_same_whatever_is_kept(kind, memory):
    model, history = fitted(kind)
    other, other_history = fitted(kind, memory=memory)
    for one, two in zip(history, other_history, strict=True):
        assert one.objective == pytest.approx(two.objective, rel=1e-8)
        assert one.validation == pytest.approx(two.validation, rel=1e-8)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-8)


def test_dropout_is_the_same_whatever_is_kept():
    _, history = fitted("spline", dropout=0.2)
    _, other = fitted("spline", dropout=0.2, memory="invert")
    assert history[-1].objective == pytest.approx(other[-1].objective, rel=1e-7)


def test_rounded_conditioners_learn_nearly_the_same():
    _, exact = fitted(dtype=torch.float32)
    model, rounded = fitted(dtype=torch.float32, precision="bf16")
    assert exact[-1].validation != rounded[-1].validation
    assert exact[-1].validation == pytest.approx(rounded[-1].validation, abs=0.03)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_a_fitted_model_computes_as_before():
    model, _ = fitted(dtype=torch.float32, precision="bf16", memory="invert")
    networks = [module for module in model.modules() if isinstance(module, Conditioner)]
    flows = [module for module in model.modules() if isinstance(module, Flow)]
    assert networks
    assert {network.precision for network in networks} == {"float32"}
    assert {flow.memory for flow in flows} == {"store"}


@pytest.mark.parametrize(
    ("options", "message"),
    [({"precision": "half"}, "precision to be one"), ({"memory": "none"}, "memory to be one of")],
)
def test_unknown_words_are_refused_before_anything_happens(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(**options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("memory", ["store", "recompute", "invert"])
@pytest.mark.parametrize("kind", ["affine", "spline"])
def test_every_way_can_be_recorded_on_a_gpu(kind, memory, precision):
    # A step that cannot be recorded warns, and warnings are errors here.
    options = {"memory": memory, "precision": precision, "device": "cuda"}
    _, found = fitted(kind, dtype=torch.float32, epochs=6, **options)
    _, plain = fitted(kind, dtype=torch.float32, epochs=6, device="cuda")
    assert found[-1].objective == pytest.approx(plain[-1].objective, abs=0.1)
