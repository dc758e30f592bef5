"""How users say that states are sampled."""

import pytest

import vfg
from vfg.sampling import Deterministic, StatesSpec, states_spec
from vfg.utils.specs import spec_from_dict


def test_names_and_specs_mean_the_same():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    assert states_spec("sampled") == vfg.Sampled()
    assert vfg.VFG(graph).states_spec == Deterministic()
    assert vfg.VFG(graph).to_dict()["states"] == "deterministic"
    model = vfg.VFG(graph, states=vfg.Sampled(ladder=True))
    assert model.states == "sampled"
    assert spec_from_dict(StatesSpec, model.to_dict()["states"]) == vfg.Sampled(ladder=True)


def test_deterministic_models_have_no_more_parameters_than_before():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    assert not [name for name in vfg.VFG(graph).state_dict() if "sampling" in name]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"states must be one of deterministic, sampled or vfg"):
        states_spec("quantum")
    with pytest.raises(ValueError, match="width of a network"):
        vfg.Sampled(amortised=-1)
