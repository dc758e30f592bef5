"""What files tell about their models without torch is what the models tell."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from modelfile.examples import changed, signed, tiny

import vfg
from vfg.modelfile import dumps, summary
from vfg.modelfile.summary import describe_model, read_summary

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "v1").glob("*.vfg"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_file_keeps_what_its_model_tells(path, tmp_path):
    model = vfg.load(path)
    described = json.loads(json.dumps(describe_model(model)))
    vfg.save(model, tmp_path / "m.vfg")
    assert read_summary(tmp_path / "m.vfg") == described
    assert described["parameters"] == sum(p.numel() for p in model.parameters())
    assert [column["name"] for column in described["columns"]] == list(model.variables)
    assert vfg.Graph.from_dict(described["graph"]) == model.graph
    assert dumps(vfg.load(tmp_path / "m.vfg")) == (tmp_path / "m.vfg").read_bytes()


def test_files_of_earlier_versions_have_none(tmp_path):
    data = changed(dumps(tiny()), lambda header, fields: fields.pop("summary"))
    (tmp_path / "m.vfg").write_bytes(signed(data))
    assert read_summary(tmp_path / "m.vfg") is None
    assert vfg.load(tmp_path / "m.vfg").graph == tiny().graph


def rename(header, fields):
    fields["summary"]["columns"][0]["name"] = "other"


@pytest.mark.parametrize(
    "damage",
    {
        "a bit of a tensor": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        "the summary itself": lambda data: changed(data, rename),
        "truncated": lambda data: data[:-8],
        "more behind it": lambda data: data + bytes(8),
        "no header": lambda data: data[:8] + b"[]",
        "empty": lambda data: b"",
        "text": lambda data: b"column\n1\n",
    }.items(),
    ids=lambda item: item[0],
)
def test_a_damaged_file_has_none(damage, tmp_path):
    (tmp_path / "m.vfg").write_bytes(damage[1](dumps(tiny())))
    assert read_summary(tmp_path / "m.vfg") is None
    with pytest.raises(ValueError, match=r"m\.vfg"):
        vfg.load(tmp_path / "m.vfg")


def test_no_file_has_none(tmp_path):
    assert read_summary(tmp_path / "no.vfg") is None
    assert read_summary(tmp_path) is None


def test_a_long_summary_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "LONGEST_SUMMARY", 10)
    vfg.save(tiny(), tmp_path / "m.vfg")
    assert read_summary(tmp_path / "m.vfg") is None


def test_show_does_without_torch(tmp_path):
    vfg.save(vfg.load(GOLDEN[0]), tmp_path / "m.vfg")
    history = {"epochs": [], "best": None, "stopped": "epochs", "restarts": 0}
    (tmp_path / "m.history.json").write_text(json.dumps(history))
    code = (
        "import sys; from vfg.cli import app\n"
        f"try: app(['show', {str(tmp_path / 'm.vfg')!r}])\n"
        "finally: print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert lines[-1] == "False"
    assert lines[0].startswith("GaussianVFG: ")
    assert lines[-2] == "training had no epochs"
