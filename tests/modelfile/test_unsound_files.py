"""Whatever is not a sound file is refused in words."""

import io
import json
import pickle
import struct
import zipfile

import pytest
import safetensors
import safetensors.torch
import torch
from modelfile.examples import changed, repacked, signed, tiny

import vfg
from vfg.modelfile import container, dumps, load, loads
from vfg.modelfile import io as model_io


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
    with pytest.raises(ValueError, match="it is truncated"), container.error_context("it"):
        model_io._read(io.BytesIO(data[:-4]), len(data), None)


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
        (
            lambda t: t.update(more=torch.ones(1)),
            "has the tensor 'more', which its model does not have",
        ),
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


OPERATIONS = {
    "product": lambda x: 0.5 * x,
    "product of two": lambda x: x * x[:, :1],
    "product of truths": lambda x: (x > 0) * (x > 1),
    "quotient": lambda x: x / 3,
    "quotient of integers": lambda x: torch.arange(4) / torch.tensor([2]),
    "difference": lambda x: 1 - x.float(),
    "less": lambda x: x < 0,
    "integers": lambda x: 3 * torch.arange(2, 9, 3),
    "repeated": lambda x: torch.eye(3).repeat(2, 1, 1),
    "repeated by a tuple": lambda x: torch.arange(3).repeat((2, 2)),
    "stacked": lambda x: torch.stack([x, -x]),
    "stacked aside": lambda x: torch.stack([x, x], 1),
    "drawn": lambda x: torch.rand(2, 3, dtype=torch.float64) - torch.randn((2, 1)),
    "line": lambda x: torch.linspace(-1.0, 1.0, 5, dtype=torch.float64),
    "identity": lambda x: torch.eye(2, 3, dtype=torch.float64),
    "order": lambda x: x.argsort(),
    "unit length": lambda x: torch.nn.functional.normalize(x, dim=-1),
    "in place": lambda x: x.clone().normal_(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_models_without_memory_have_the_shapes_and_types_of_real_ones(name):
    real = OPERATIONS[name](torch.zeros(2, 3, dtype=torch.float64))
    with torch.device("meta"), model_io._MetaMode(most_numbers=1000, most_calls=100):
        built = OPERATIONS[name](torch.zeros(2, 3, dtype=torch.float64))
    assert (built.shape, built.dtype, built.device.type) == (real.shape, real.dtype, "meta")
