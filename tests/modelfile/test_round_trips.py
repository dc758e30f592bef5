"""The same bits come back from model files."""

import json
import pickle
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from modelfile.examples import assert_same_bits, signed, small, tiny, with_scaling
from strategies import models, perturbed

import vfg
from vfg.modelfile import dumps, load, loads, save

GOLDEN = Path(__file__).parent / "golden" / "schema1.vfg"
GOLDEN_TABLE = [[0.5, -1.0, 1.0, 2.0], [float("nan"), 3.0, 0.0, float("nan")]]
GOLDEN_RECONSTRUCTION = [
    [-1.025023929722, 0.609406829305, 1.453912842324, 0.518938302751],
    [0.797166453692, 1.423872272947, 1.041682614471, 1.672217952741],
]


def golden_model():
    """The model in the golden file, which `save(golden_model(), GOLDEN)` wrote.

    Once released the file stays as it is, and a new schema gets a file of its own. To see what
    this version reconstructs from it, run `python tests/modelfile/test_round_trips.py`.
    """
    graph = vfg.Graph(
        [
            vfg.Node("real", 2, columns=(0, 3)),
            vfg.Node("binary", 1, columns=(2,)),
            vfg.Node("other", 1, columns=(1,)),
            vfg.Node("inner", 3, aggregation="precision"),
            vfg.Node("root", 3, aggregation="gaussian"),
        ],
        [
            vfg.Edge("real", "inner"),
            vfg.Edge("binary", "inner", coordinates=(2, 0)),
            vfg.Edge("inner", "root"),
            vfg.Edge("other", "root"),
        ],
    )
    flow = {
        "real->inner": vfg.Coupling(blocks=2, hidden=3, activation="tanh"),
        "binary->inner": vfg.Linear(),
        "inner->root": vfg.Linear("householder"),
        "other->root": vfg.Spline(bins=3),
    }
    likelihood = {"binary": "bernoulli", "*": vfg.Gaussian(scale=0.5, learn=True)}
    kinds = {"aggregation": "mean", "latent": "normal", "prior": vfg.PerLabel(2)}
    model = vfg.VFG(graph, flow=flow, likelihood=likelihood, **kinds)
    return with_scaling(perturbed(model.double(), 3))


@settings(max_examples=25)
@given(model=models(), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_any_model_comes_back_bit_for_bit(model, dtype):
    model = with_scaling(model.to(dtype))
    data = dumps(model)
    found = loads(data)
    assert_same_bits(model, found)
    assert dumps(found) == data
    table = torch.zeros(3, model.sections.columns, dtype=dtype)
    table[1:, 0] = float("nan")
    assert torch.equal(model.reconstruct(table), found.reconstruct(table))
    assert torch.equal(model.sample(4), found.sample(4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_are_kept_and_scaling_stays_double(tmp_path, dtype):
    model = small().to(dtype)
    save(model, tmp_path / "m.vfg")
    found = load(tmp_path / "m.vfg")
    assert_same_bits(model, found)
    assert {parameter.dtype for parameter in found.parameters()} == {dtype}
    assert found.scaling.location.dtype == found.scaling.scale.dtype == torch.float64


def test_a_tensor_of_another_dtype_than_the_model_keeps_its_own():
    model = small()
    model.likelihoods.double()
    assert_same_bits(model, loads(dumps(model)))


def test_special_values_and_shared_or_strided_memory_come_back():
    model = small()
    with torch.no_grad():
        (prior,) = model.priors.values()
        prior.location.view(-1)[:2] = torch.tensor([float("nan"), -0.0])
    model.scaling.location = torch.tensor(0.25, dtype=torch.float64).expand(5)
    model.scaling.scale = model.scaling.location
    assert_same_bits(model, loads(dumps(model)))


def test_the_default_dtype_and_device_of_the_reader_do_not_matter():
    model = small()
    data = dumps(model)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            found = loads(data)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same_bits(model, found)


def test_a_device_may_be_given(tmp_path):
    model = small()
    save(model, tmp_path / "m.vfg")
    assert next(load(tmp_path / "m.vfg", "cpu").buffers()).device.type == "cpu"
    elsewhere = load(tmp_path / "m.vfg", device=torch.device("meta"))
    assert {tensor.device.type for tensor in elsewhere.state_dict().values()} == {"meta"}
    assert loads(dumps(model), "meta").scaling.scale.device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_weights_are_the_same_bits_on_a_gpu():
    model = small().cuda()
    found = loads(dumps(model), "cuda")
    assert_same_bits(model, found)
    table = torch.ones(3, 5, device="cuda")
    assert torch.equal(model.reconstruct(table), found.reconstruct(table))
    assert_same_bits(model.cpu(), loads(dumps(found)))


def test_loaded_models_are_in_evaluation_mode_and_can_be_trained():
    model = vfg.VFG(small().graph, flow=vfg.Coupling(blocks=2, hidden=4, dropout=0.5))
    perturbed(model, 0).eval()
    found = loads(dumps(model))
    table = torch.ones(2, 5)
    assert not found.training
    assert torch.equal(model.reconstruct(table), found.reconstruct(table))
    found.surrogate(table).total.sum().backward()
    assert any(parameter.grad is not None for parameter in found.parameters())


@pytest.mark.usefixtures("untouched_generators")
def test_saving_and_loading_draw_no_random_numbers(tmp_path):
    save(tiny(), tmp_path / "m.vfg")
    load(tmp_path / "m.vfg")


def test_the_file_is_a_plain_safetensors_file(tmp_path):
    model = small()
    save(model, tmp_path / "m.vfg")
    with safetensors.safe_open(tmp_path / "m.vfg", "pt") as file:
        assert list(file.metadata()) == ["vfg"]
        fields = json.loads(file.metadata()["vfg"])
        assert sorted(file.keys()) == sorted(model.state_dict())
        for name, tensor in model.state_dict().items():
            assert torch.equal(file.get_tensor(name), tensor)
    assert list(fields) == ["schema", "kind", "model", "summary", "dtype", "versions", "digest"]
    assert (fields["schema"], fields["kind"], fields["dtype"]) == (1, "VFG", "float32")
    assert fields["model"] == json.loads(json.dumps(model.to_dict()))
    assert fields["versions"]["vfg"] == vfg.__version__
    assert signed((tmp_path / "m.vfg").read_bytes()) == (tmp_path / "m.vfg").read_bytes()


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("something was unpickled")

    save(small(), tmp_path / "m.vfg")
    for owner, name in [
        (pickle, "loads"),
        (pickle, "load"),
        (pickle, "Unpickler"),
        (torch, "load"),
    ]:
        monkeypatch.setattr(owner, name, refuse)
    load(tmp_path / "m.vfg")


# Old files.


def test_the_golden_file_of_schema_1_loads_and_reconstructs_as_it_did():
    model = load(GOLDEN)
    assert model.to_dict() == golden_model().to_dict()
    found = model.reconstruct(torch.tensor(GOLDEN_TABLE, dtype=torch.float64))
    expected = torch.tensor(GOLDEN_RECONSTRUCTION, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


if __name__ == "__main__":
    print(load(GOLDEN).reconstruct(torch.tensor(GOLDEN_TABLE, dtype=torch.float64)).tolist())
