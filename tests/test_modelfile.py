"""Model files: the same bits come back, and whatever is not a sound file is refused in words."""

import hashlib
import io
import json
import os
import pickle
import random
import struct
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models, perturbed

import vfg
from vfg import modelfile
from vfg.modelfile import container, dumps, kinds, load, loads, rehearsal, save, storing

GOLDEN = Path(__file__).parent / "golden" / "schema1.vfg"
GOLDEN_TABLE = [[0.5, -1.0, 1.0, 2.0], [float("nan"), 3.0, 0.0, float("nan")]]
GOLDEN_RECONSTRUCTION = [
    [-1.025023929722, 0.609406829305, 1.453912842324, 0.518938302751],
    [0.797166453692, 1.423872272947, 1.041682614471, 1.672217952741],
]


def small(**options):
    graph = vfg.Graph.tree({"a": 2, "b": 1, "c": 2}, arity=2, width=3)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=4), **options)
    return with_scaling(perturbed(model, 1))


def tiny():
    graph = vfg.Graph.star({"a": 1, "b": 1})
    return with_scaling(perturbed(vfg.VFG(graph, flow=vfg.Linear()), 2))


def with_scaling(model):
    columns = torch.arange(1, 1 + model.sections.columns, dtype=torch.float64)
    model.scaling.location.copy_(columns / 3)
    model.scaling.scale.copy_(columns.sqrt())
    return model


def golden_model():
    """The model in the golden file, which `save(golden_model(), GOLDEN)` wrote.

    Once released the file stays as it is, and a new schema gets a file of its own. To see what
    this version reconstructs from it, run `python tests/test_modelfile.py`.
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
    model = vfg.VFG(graph, flow=flow, likelihood=likelihood, prior=vfg.PerLabel(2), latent="normal")
    return with_scaling(perturbed(model.double(), 3))


def assert_same_bits(model, other):
    assert type(model) is type(other)
    assert model.to_dict() == other.to_dict()
    state, found = model.state_dict(), other.state_dict()
    assert list(state) == list(found)
    for name, tensor in state.items():
        assert tensor.dtype == found[name].dtype, name
        assert raw(tensor) == raw(found[name]), name
    for parameter, same in zip(model.parameters(), other.parameters(), strict=True):
        assert parameter.requires_grad == same.requires_grad
    buffers = dict(other.named_buffers(remove_duplicate=False))
    for name, buffer in model.named_buffers(remove_duplicate=False):
        assert buffer.dtype == buffers[name].dtype, name
        assert raw(buffer) == raw(buffers[name]), name


def raw(tensor):
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def unpacked(data):
    """Header, fields and data part of a file, by nothing but the definition of the format."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["vfg"]), data[8 + length :]


def packed(header, fields, rest):
    header = {**header, "__metadata__": {"vfg": json.dumps(fields)}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


def changed(data, change):
    """A file with `change(header, fields)` done to it."""
    header, fields, rest = unpacked(data)
    change(header, fields)
    return packed(header, fields, rest)


def repacked(data, change):
    """A file with `change(tensors, fields)` done to it, whatever its digest says."""
    fields = unpacked(data)[1]
    tensors = safetensors.torch.load(data)
    change(tensors, fields)
    return safetensors.torch.save(tensors, {"vfg": json.dumps(fields)})


def signed(data):
    """The same file with the digest that its contents have; also the digest's definition."""
    _, fields, _ = unpacked(data)
    tensors = safetensors.torch.load(data)
    fields.pop("digest")
    listed = [[name, str(t.dtype).split(".")[1], list(t.shape)] for name, t in tensors.items()]
    text = json.dumps([fields, sorted(listed)], sort_keys=True, separators=(",", ":"))
    content = text.encode() + b"".join(raw(tensors[name]) for name in sorted(tensors))
    fields["digest"] = hashlib.sha256(content).hexdigest()
    return safetensors.torch.save(tensors, {"vfg": json.dumps(fields)})


# Round trips.


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
    assert list(fields) == ["schema", "kind", "model", "dtype", "versions", "digest"]
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


# Writing.


def test_overwriting_replaces_the_file_and_leaves_nothing_else(tmp_path):
    save(small(), tmp_path / "m.vfg")
    save(tiny(), str(tmp_path / "m.vfg"))
    assert_same_bits(tiny(), load(str(tmp_path / "m.vfg")))
    assert os.listdir(tmp_path) == ["m.vfg"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, error):
    def fail(*arguments):
        raise error

    save(tiny(), tmp_path / "m.vfg")
    before = (tmp_path / "m.vfg").read_bytes()
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        save(small(), tmp_path / "m.vfg")
    with pytest.raises(type(error)):
        save(small(), tmp_path / "new.vfg")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["m.vfg"]
    assert (tmp_path / "m.vfg").read_bytes() == before


def test_everything_is_on_the_disk_before_the_name_appears(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor):
        is_folder = os.path.isdir(f"/proc/self/fd/{descriptor}")
        events.append(("sync", is_folder, os.fstat(descriptor).st_size))
        fsync(descriptor)

    def watched_replace(source, target):
        events.append(("replace", Path(source).parent == Path(target).parent))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    save(tiny(), tmp_path / "m.vfg")
    size = (tmp_path / "m.vfg").stat().st_size
    assert events[:2] == [("sync", False, size), ("replace", True)]
    assert [event[0] for event in events[2:]] == ["sync"]
    if os.path.isdir("/proc/self/fd"):
        assert events[2][1]


def test_a_missing_folder_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere.* does not exist; create it"):
        save(tiny(), tmp_path / "nowhere" / "m.vfg")
    with pytest.raises(FileNotFoundError, match=r"there is no model file '.*m\.vfg'"):
        load(tmp_path / "m.vfg")


def test_only_registered_classes_are_saved():
    with pytest.raises(
        TypeError, match="only VFG, GaussianVFG, TableModel models can be saved, but got Lin"
    ):
        dumps(torch.nn.Linear(1, 1))

    class Mine(vfg.VFG):
        pass

    mine = Mine(tiny().graph, flow=vfg.Linear())
    with pytest.raises(TypeError, match="got Mine; unwrap the model, or register its class"):
        dumps(mine)


def test_other_kinds_can_be_registered(monkeypatch):
    monkeypatch.setattr(kinds, "_KINDS", dict(kinds._KINDS))

    @modelfile.register("mine")
    class Mine(vfg.VFG):
        pass

    model = perturbed(Mine(tiny().graph, flow=vfg.Linear()), 0)
    assert_same_bits(model, loads(dumps(model)))
    assert unpacked(dumps(model))[1]["kind"] == "mine"
    assert modelfile.register("mine")(Mine) is Mine
    with pytest.raises(ValueError, match=r"the kind 'VFG' belongs to VFG already; choose another"):
        modelfile.register("VFG")(Mine)


def test_what_could_not_be_loaded_is_not_saved(monkeypatch):
    model = tiny()
    model.register_buffer("added", torch.zeros(3))
    with pytest.raises(ValueError, match=r"cannot be saved: its file has the tensor 'added'"):
        dumps(model)
    monkeypatch.setattr(container, "LONGEST_HEADER", 100)
    with pytest.raises(ValueError, match="this model cannot be saved"):
        dumps(tiny())


# Files that are not sound.


def as_zip(content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("data.pkl", content)
    return stream.getvalue()


def as_torch(value):
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


FOREIGN = {
    "one byte": b"x",
    "eight bytes": bytes(8),
    "text": b"a,b,c\n1,2,3\n" * 10,
    "json": b'{"schema": 1, "kind": "VFG"}',
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(100),
    "zip": as_zip(b"content"),
    "torch": as_torch({"a": torch.zeros(3)}),
    "pickle": pickle.dumps({"a": list(range(100))}),
    "zeros": bytes(1000),
    "ones": b"\xff" * 1000,
    "long header": struct.pack("<Q", container.LONGEST_HEADER + 1) + b"{" + bytes(100),
    "no object": struct.pack("<Q", 4) + b"[{}]" + bytes(10),
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files_are_refused(tmp_path, data):
    (tmp_path / "m.vfg").write_bytes(data)
    with pytest.raises(ValueError, match=r"m\.vfg' is not a model file; one written by vfg\.save"):
        load(tmp_path / "m.vfg")


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "m.vfg").touch()
    with pytest.raises(ValueError, match=r"^'.*m\.vfg' is empty; a model written by vfg\.save"):
        load(tmp_path / "m.vfg")


def test_a_safetensors_file_without_a_model_is_refused():
    for metadata in (None, {"format": "pt"}):
        data = safetensors.torch.save({"a": torch.zeros(3)}, metadata)
        with pytest.raises(ValueError, match="is a safetensors file without a vfg model"):
            loads(data)


def test_every_truncation_is_refused_as_one():
    data = dumps(tiny())
    for length in range(9, len(data)):
        with pytest.raises(ValueError, match=r"the data is truncated: [0-9]+ bytes or more are"):
            loads(data[:length])
    for length in range(1, 9):
        with pytest.raises(ValueError, match="the data is not a model file"):
            loads(data[:length])


def test_a_file_that_shrinks_while_it_is_read_is_truncated():
    data = dumps(tiny())
    with pytest.raises(ValueError, match="it is truncated"), container.blaming("it"):
        storing._read(io.BytesIO(data[:-4]), len(data), None)


def test_bytes_after_the_end_are_refused():
    with pytest.raises(ValueError, match="is damaged: 3 bytes follow its last tensor"):
        loads(dumps(tiny()) + b"abc")


def test_a_newer_schema_asks_for_an_upgrade():
    def change(header, fields):
        fields.clear()
        fields.update(schema=2, versions={"vfg": "9.1"}, anything=[])

    with pytest.raises(ValueError, match=r"newer vfg \(9\.1, file schema 2\).*; upgrade vfg$"):
        loads(changed(dumps(tiny()), change))


@pytest.mark.parametrize("schema", [None, 0, -1, "1", 1.0, True, []])
def test_a_schema_that_is_none_is_refused(schema):
    with pytest.raises(ValueError, match="malformed configuration: its schema is"):
        loads(changed(dumps(tiny()), lambda header, fields: fields.update(schema=schema)))


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="of the unknown kind 'Forest'; known are VFG"):
        loads(changed(dumps(tiny()), lambda header, fields: fields.update(kind="Forest")))


NAME = "scaling.scale"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({NAME: torch.ones(3)}), r"'scaling.scale' of shape \(3,\), but .* \(2"),
        (lambda t: t.update({NAME: torch.ones(2, 1)}), r"'scaling.scale' of shape \(2, 1\)"),
        (lambda t: t.update({NAME: torch.ones(2).int()}), "'scaling.scale' of dtype torch.int32"),
        (lambda t: t.pop(NAME), "lacks the tensor 'scaling.scale', which its model has"),
        (lambda t: t.update(more=torch.ones(1)), "has the tensor 'more', which its model has not"),
        (lambda t: t.update(more=torch.ones(1).to(torch.complex64)), "unknown dtype 'C64'"),
    ],
)
def test_tensors_that_do_not_fit_the_model_are_named(change, message):
    data = repacked(dumps(tiny()), lambda tensors, fields: change(tensors))
    with pytest.raises(ValueError, match=message):
        loads(data)
    if "C64" not in message:
        with pytest.raises(ValueError, match=message):
            loads(signed(data))


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, fields: tensors[NAME].add_(1),
        lambda tensors, fields: tensors.update({NAME: tensors[NAME].float()}),
        lambda tensors, fields: tensors.update({NAME: tensors["scaling.location"] + 0}),
        lambda tensors, fields: fields["model"].update(latent="normal"),
        lambda tensors, fields: fields["model"]["graph"]["nodes"][0].update(name="z"),
        lambda tensors, fields: fields.update(dtype="float64"),
        lambda tensors, fields: fields["versions"].update(vfg="9"),
        lambda tensors, fields: fields.update(digest="0" * 64),
        lambda tensors, fields: fields.update(more=1),
    ],
)
def test_altered_contents_do_not_match_the_digest(change):
    data = repacked(dumps(vfg.VFG(tiny().graph, flow={"*": vfg.Linear("affine")})), change)
    with pytest.raises(ValueError, match=r"(altered or damaged: its digest|malformed config)"):
        loads(data)


MALFORMED = [
    lambda fields: fields.pop("model"),
    lambda fields: fields.pop("dtype"),
    lambda fields: fields.pop("digest"),
    lambda fields: fields.update(model=[]),
    lambda fields: fields.update(dtype="int64"),
    lambda fields: fields.update(dtype="nn"),
    lambda fields: fields.update(kind=["VFG"]),
    lambda fields: fields["model"].clear(),
    lambda fields: fields["model"].pop("graph"),
    lambda fields: fields["model"].update(graph=None),
    lambda fields: fields["model"].update(flow=3),
    lambda fields: fields["model"].update(flow={}),
    lambda fields: fields["model"].update(prior="normal"),
    lambda fields: fields["model"].update(prior={"name": ["normal"]}),
    lambda fields: fields["model"].update(latent="cauchy"),
    lambda fields: fields["model"].update(latent=[]),
    lambda fields: fields["model"].update(seed="x"),
    lambda fields: fields["model"].update(seed=10**100),
    lambda fields: fields["model"]["graph"]["edges"].clear(),
    lambda fields: fields["model"]["graph"]["nodes"][0].update(width=0),
    lambda fields: fields["model"]["graph"]["nodes"][0].update(width=1.5),
    lambda fields: fields["model"]["graph"]["nodes"][0].update(columns={}),
    lambda fields: fields["model"]["graph"]["edges"][0].update(parent="a"),
]


@pytest.mark.parametrize("change", MALFORMED)
def test_malformed_configurations_are_refused(change):
    data = changed(dumps(tiny()), lambda header, fields: change(fields))
    with pytest.raises(ValueError, match=r"^the data has a malformed configuration"):
        loads(data)


@pytest.mark.parametrize(
    "text",
    [b"{" + b"x" * 50, b'{"a": ' + b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b"{\xff}"],
    ids=["no json", "deep", "long number", "no text"],
)
def test_headers_that_are_not_json_are_damaged(text):
    with pytest.raises(ValueError, match=r"^the data is damaged: its"):
        loads(struct.pack("<Q", len(text)) + text)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "[" * 100_000], ids=repr)
def test_a_vfg_entry_that_is_no_object_is_damaged(text):
    header = json.dumps({"__metadata__": {"vfg": text}}).encode()
    with pytest.raises(ValueError, match=r"^the data is damaged: its"):
        loads(struct.pack("<Q", len(header)) + header)


ENTRY = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {},
        ENTRY | {"dtype": "F65"},
        ENTRY | {"dtype": ["F64"]},
        ENTRY | {"shape": [-2]},
        ENTRY | {"shape": [2.0]},
        ENTRY | {"shape": ["2"]},
        ENTRY | {"shape": [True]},
        ENTRY | {"shape": [1] * 9},
        ENTRY | {"shape": [2**62, 2**62]},
        ENTRY | {"data_offsets": [0]},
        ENTRY | {"data_offsets": [0, 8]},
        ENTRY | {"data_offsets": [16, 0]},
        ENTRY | {"data_offsets": [8, 24]},
        ENTRY | {"data_offsets": [0, 10**30]},
        ENTRY | {"data_offsets": [0, 2**40], "shape": [2**37]},
    ],
    ids=str,
)
def test_impossible_tensors_are_refused(entry):
    with pytest.raises(ValueError, match=r"is (damaged|truncated)|unknown dtype"):
        loads(changed(dumps(tiny()), lambda header, fields: header.update({NAME: entry})))


# Files that promise more than they hold.

HUGE = 10**9


def widened(fields):
    for node in fields["model"]["graph"]["nodes"]:
        node["width"] = HUGE


def many_leaves(fields):
    """Edges without parameters whose tables of coordinates multiply with the width of the root."""
    names = [f"x{i}" for i in range(3000)]
    nodes = [{"name": name, "width": 1} for name in names] + [{"name": "h", "width": 2**18}]
    edge = {"parent": "h", "kind": "identity", "coordinates": [0]}
    edges = [{"child": name, **edge} for name in names]
    fields["model"].update(graph={"nodes": nodes, "edges": edges}, flow={})
    fields["model"]["likelihood"] = {name: {"name": "gaussian"} for name in names}


def flows(**options):
    return lambda fields: fields["model"].update(
        flow={"a->root": options, "b->root": options},
        graph=vfg.Graph.star({"a": 2, "b": 2}).to_dict(),
    )


def named(spec, **options):
    """The description of a spec with other numbers than it would accept to be made with."""
    return {**spec.to_dict(), **options}


HOSTILE = {
    "widths": widened,
    "one width": lambda fields: fields["model"]["graph"]["nodes"][-1].update(width=HUGE),
    "blocks": flows(**named(vfg.Coupling(), blocks=HUGE)),
    "some blocks": flows(**named(vfg.Coupling(), blocks=2**23)),
    "layers": flows(**named(vfg.Coupling(), layers=HUGE)),
    "some layers": flows(**named(vfg.Coupling(), layers=2**23)),
    "hidden": flows(**named(vfg.Coupling(), hidden=HUGE)),
    "some hidden": flows(**named(vfg.Coupling(), hidden=2**23)),
    "bins": flows(**named(vfg.Spline(), bins=2**23)),
    "labels": lambda fields: fields["model"].update(prior=named(vfg.PerLabel(2), labels=2**24)),
    "categories": lambda fields: fields["model"]["likelihood"].update(
        a=named(vfg.Categorical(2), categories=HUGE)
    ),
    "coordinates": many_leaves,
}


def most_memory():
    """The largest number of bytes that this process ever held, where the system tells."""
    if sys.platform != "linux":
        return 0
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_absurd_sizes_are_refused_before_anything_is_made(change):
    data = dumps(tiny())
    if change is many_leaves:
        data = repacked(data, lambda tensors, fields: tensors.update(x=torch.zeros(2**18)))
    data = changed(data, lambda header, fields: change(fields))
    most = most_memory()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"cannot fill|far larger|lacks|of shape"):
            loads(data)
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()
    assert most_memory() - most < 2**28


def test_tables_that_are_not_in_the_file_are_bounded(monkeypatch):
    graph = vfg.Graph.star({f"x{i}": 1 for i in range(100)}, width=100)
    data = dumps(vfg.VFG(graph, flow=vfg.Linear("affine"), aggregation="concatenation"))
    loads(data)
    monkeypatch.setattr(rehearsal, "LARGEST_TABLES", -200_000)
    with pytest.raises(ValueError, match="the data describes a model far larger than its tensors"):
        loads(data)


def test_the_header_is_not_read_when_it_cannot_be_there():
    class Watched(io.BytesIO):
        def read(self, size=-1):
            assert 0 <= size <= 16
            return super().read(size)

    start = struct.pack("<Q", container.LONGEST_HEADER) + b"{}"
    with pytest.raises(ValueError, match="truncated"), container.blaming("it"):
        storing._read(Watched(start), len(start), None)


# Damage of all kinds.


def mutated(data, chance):
    """A copy with some bytes changed, cut out, doubled or cut off."""
    kind = chance.choice(["flip", "flip", "flips", "byte", "cut", "truncate", "insert", "swap"])
    content = bytearray(data)
    # Half of the damage is done to the header, which is where a reader decides.
    end = len(content) if chance.random() < 0.5 else 8 + int.from_bytes(content[:8], "little")
    place = chance.randrange(end)
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else chance.randrange(2, 9)):
            content[chance.randrange(end)] ^= 1 << chance.randrange(8)
    elif kind == "byte":
        content[place] = chance.choice(b'0123456789"[]{},:. \x00\xff')
    elif kind == "cut":
        del content[place : place + chance.randrange(1, 9)]
    elif kind == "truncate":
        del content[place:]
    elif kind == "insert":
        content[place:place] = chance.randbytes(chance.randrange(1, 5))
    else:
        other = chance.randrange(end)
        content[place], content[other] = content[other], content[place]
    return bytes(content)


def check_damage(model, seed, times):
    data, chance = dumps(model), random.Random(seed)
    refused = 0
    for _ in range(times):
        try:
            found = loads(mutated(data, chance))
        except ValueError:
            refused += 1
        else:
            assert_same_bits(model, found)
    assert refused > 0.9 * times


def test_damage_is_refused_or_harmless():
    check_damage(tiny(), 0, 400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_much_damage_is_refused_or_harmless(seed):
    check_damage(tiny(), seed, 5_000)
    check_damage(small(prior=vfg.PerLabel(2)), seed, 1_000)


@settings(max_examples=50)
@given(model=models(), seed=st.integers(0, 2**32))
def test_damage_to_any_model_is_refused_or_harmless(model, seed):
    damaged = mutated(dumps(model), random.Random(seed))
    try:
        found = loads(damaged)
    except ValueError:
        return
    assert_same_bits(model, found)


if __name__ == "__main__":
    print(load(GOLDEN).reconstruct(torch.tensor(GOLDEN_TABLE, dtype=torch.float64)).tolist())
