import dataclasses
import json

import pytest
import torch

from vfg import flows
from vfg.flows import Coupling, FlowSpec, Linear, Spline
from vfg.utils.specs import spec_from_dict

SPECS = [
    Coupling(),
    Coupling(blocks=2, hidden=16, kind="spline", layers=2, activation="gelu", bins=5),
    Coupling(kind="additive", dropout=0.2, normalise=True),
    Coupling(image=(3, 2), channels=4),
    Coupling(image=(4, 2), channels=4, residual=2),
    Spline(),
    Spline(bins=4, tail=2.5, decreasing=True),
    Linear(),
    Linear(kind="householder"),
    Linear(kind="affine"),
]


def kinds(flow):
    return [type(part).__name__ for part in flow.flows]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_specs_survive_json(spec):
    assert spec_from_dict(FlowSpec, json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_spec_is_described_by_its_name_and_fields():
    assert Coupling(blocks=3).to_dict() == {
        "name": "coupling",
        "blocks": 3,
        "hidden": 64,
        "kind": "affine",
        "layers": 3,
        "activation": "relu",
        "dropout": 0.0,
        "bins": 8,
        "normalise": False,
        "gain": 1.0,
        "shared": 0,
        "image": None,
        "channels": 16,
        "residual": 0,
    }


def test_fields_left_out_have_their_defaults():
    assert spec_from_dict(FlowSpec, {"name": "coupling", "blocks": 2}) == Coupling(blocks=2)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_specs_are_frozen_and_hashable(spec):
    field = dataclasses.fields(spec)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(spec, field, getattr(spec, field))
    assert hash(spec) == hash(dataclasses.replace(spec))


@pytest.mark.parametrize(
    ("kind", "layer"),
    [("affine", "AffineCoupling"), ("additive", "AdditiveCoupling"), ("spline", "SplineCoupling")],
)
def test_couplings_are_blocks_and_a_scale(kind, layer):
    flow = Coupling(blocks=3, kind=kind).build(2, 4)
    assert kinds(flow) == [layer] * 3 + ["ElementwiseAffine"]
    assert [part.block for part in flow.flows[:3]] == [0, 1, 2]
    assert (
        kinds(Coupling(1, kind=kind, normalise=True).build(2, 4))[-1] == "ActivationNormalisation"
    )


def test_options_reach_the_layers():
    flow = Coupling(1, hidden=7, layers=2, activation="tanh", dropout=0.3, kind="spline", bins=5)
    layer = flow.build(1, 4).flows[0]
    assert layer.bins == 5
    assert layer.conditioner.last.weight.shape[1] == 7
    assert len(layer.conditioner.hidden_layers) == 1
    assert (layer.conditioner.activation, layer.conditioner.dropout) == ("tanh", 0.3)


@pytest.mark.parametrize("kind", ["affine", "additive", "spline"])
def test_on_the_line_a_spline_takes_the_place_of_the_couplings(kind):
    flow = Coupling(kind=kind, bins=5).build(3, 1)
    assert kinds(flow) == ["MonotoneSpline", "ElementwiseAffine"]
    assert flow.flows[0].bins == 5


def test_linear_kinds_build_what_they_say():
    assert isinstance(Linear().build(1, 3), flows.LULinear)
    assert isinstance(Linear("affine").build(1, 3), flows.ElementwiseAffine)
    assert kinds(Linear("householder").build(1, 3)) == ["Householder", "ElementwiseAffine"]


def test_blocks_have_different_starts_and_the_generator_decides_them():
    def weights(seed):
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        flow = Coupling(blocks=3).build(1, 4, generator=generator)
        return [flow.flows[b].conditioner.hidden_layers[0].weight for b in (0, 2)]

    assert not torch.equal(*weights(None))
    assert torch.equal(weights(1)[0], weights(1)[0])
    assert not torch.equal(weights(1)[0], weights(2)[0])


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Coupling(blocks=0), ValueError, "Coupling expects blocks to be at least 1"),
        (lambda: Coupling(hidden=6.5), TypeError, "an integer for hidden, but got 6.5"),
        (lambda: Coupling(layers=0), ValueError, "layers to be at least 1, but got 0"),
        (lambda: Coupling(bins=1), ValueError, "bins to be at least 2, but got 1"),
        (
            lambda: Coupling(kind="cubic"),
            ValueError,
            "'affine', 'additive', 'spline', but got 'cub",
        ),
        (lambda: Coupling(activation="step"), ValueError, "activation to be one of 'relu'"),
        (lambda: Coupling(dropout=-0.1), ValueError, "dropout to be at least 0"),
        (lambda: Coupling(normalise=1), TypeError, "True or False for normalise, but got 1"),
        (lambda: Spline(bins=0), ValueError, "Spline expects bins to be at least 2"),
        (lambda: Spline(tail="wide"), TypeError, "a number for tail, but got 'wide'"),
        (lambda: Spline(tail=float("nan")), ValueError, "tail to be positive and finite"),
        (lambda: Spline(decreasing=None), TypeError, "True or False for decreasing"),
        (lambda: Linear("qr"), ValueError, "'lu', 'householder', 'affine', but got 'qr'"),
    ],
)
def test_bad_fields_are_errors(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize("values", [{"name": "glow"}, {}, {"name": None}, {"name": ["coupling"]}])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(values):
    with pytest.raises(ValueError, match="known: coupling, spline, linear"):
        spec_from_dict(FlowSpec, values)


def test_an_unknown_field_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no field 'knots'; known: \['bins', 'tail', 'decreas"):
        spec_from_dict(FlowSpec, {"name": "spline", "knots": 3})


def test_a_bad_value_in_a_description_is_an_error():
    with pytest.raises(ValueError, match="blocks to be at least 1"):
        spec_from_dict(FlowSpec, {"name": "coupling", "blocks": 0})
