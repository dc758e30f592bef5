"""Commands that hand over to other parts: tables in parts, experiments, the studio."""

import json

import pandas as pd
import pytest

import vfg.data.reproducing


def test_patterns_and_several_files_are_one_table(store, here, commands):
    table = pd.read_csv(store.gaps, dtype=str)
    table[:70].to_csv("part-1.csv", index=False)
    table[70:].to_csv("part-2.csv", index=False)
    whole = commands.succeed("impute", store.gaps, "-m", store.model)
    assert commands.succeed("impute", "part-*.csv", "-m", store.model) == whole
    assert commands.succeed("impute", "part-1.csv", "part-2.csv", "-m", store.model) == whole


def test_parts_with_other_columns_are_refused(store, here, commands):
    (here / "other.csv").write_text("a,b\n1,2\n")
    words = commands.fail("impute", store.gaps, "other.csv", "-m", store.model)
    assert "all parts of a table need the same columns" in words


def test_experiments_are_listed_and_run(here, commands, monkeypatch):
    asked = {}

    def reproduce(name, **settings):
        asked.update(settings, name=name)
        return {"seeds": [0], "error": float("nan")}

    monkeypatch.setattr(vfg.data.reproducing, "reproduce", reproduce)
    names = commands.succeed("reproduce").split()
    assert names == list(vfg.data.reproducing.names())
    assert json.loads(commands.succeed("reproduce", "--json")) == names
    commands.succeed("reproduce", names[0], "--quick", "--seeds", 2, "-o", here)
    assert asked == {"name": names[0], "quick": True, "seeds": 2, "output": here}


def test_the_studio_gets_model_table_and_port(store, commands, monkeypatch):
    studio = pytest.importorskip("vfg.studio")
    asked = []
    monkeypatch.setattr(
        studio, "serve", lambda model, table, **settings: asked.append((model, table, settings))
    )
    commands.succeed("studio", store.model, store.gaps, "--port", 0, "--no-browser")
    assert asked == [(store.model, store.gaps, {"port": 0, "open_browser": False})]


def test_threads_are_set_for_this_process_too(store, commands, monkeypatch):
    import torch

    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "7")
    before = torch.get_num_threads()
    try:
        commands.succeed("sample", store.model, "-n", 1, "--threads", 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_unknown_words_after_a_command_are_refused(store, commands):
    assert "extra argument" in commands.fail("show", store.model, "more", code=2)


def test_serve_needs_a_token_for_other_machines(store, commands, monkeypatch):
    monkeypatch.delenv("VFG_TOKEN", raising=False)
    assert "needs a token" in commands.fail("serve", "-m", store.model, "--host", "0.0.0.0", code=2)


def test_export_writes_a_program(store, commands, tmp_path):
    target = tmp_path / "model.pt2"
    commands.succeed("export", store.model, "-o", target, "--without", "intervals")
    assert target.stat().st_size > 1000
    assert ".onnx or .pt2" in commands.fail("export", store.model, "-o", "model.txt", code=2)
    said = commands.fail("export", store.model, "-o", target, "--without", "tree", code=2)
    assert "no part 'tree'" in said
