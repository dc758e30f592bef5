"""A small table with columns of every kind, a model of it, and a way to run commands."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from vfg.cli import app


def invoke(*arguments, stdin=None):
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(part) for part in arguments], input=stdin)


def succeed(*arguments, stdin=None):
    """The standard output of a command that must succeed."""
    found = invoke(*arguments, stdin=stdin)
    assert found.exit_code == 0, found.output
    return found.stdout


def fail(*arguments, code=1, stdin=None):
    """What a command says that must fail, which is one line on standard error and nothing else."""
    found = invoke(*arguments, stdin=stdin)
    assert found.exit_code == code, (found.exit_code, found.output)
    assert found.stdout == ""
    assert found.stderr.count("\n") == 1, found.stderr
    assert found.stderr.startswith("vfg: ")
    assert "Traceback" not in found.stderr
    return found.stderr


@pytest.fixture(scope="session")
def commands():
    """The three ways to run a command."""
    return SimpleNamespace(invoke=invoke, succeed=succeed, fail=fail)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def people(rows=120, seed=0):
    """A table in which everything depends on one hidden number."""
    generator = np.random.default_rng(seed)
    size = generator.normal(size=rows)
    return pd.DataFrame(
        {
            "id": [f"p{k:03d}" for k in range(rows)],
            "height": 170 + 9 * size + generator.normal(size=rows),
            "visits": pd.array(generator.poisson(np.exp(1 + 0.4 * size)), dtype="Int64"),
            "shirt": np.where(size < -0.5, "S", np.where(size < 0.5, "M", "L")),
            "member": size + generator.normal(size=rows) > 0,
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta((400 + 100 * size).round().astype(int), "D"),
        }
    )


def with_gaps(table, share=0.15, seed=1):
    """The same table with gaps in all columns but the first."""
    gaps = np.random.default_rng(seed).random(table.shape) < share
    gaps[:, 0] = False
    return table.astype({"member": "boolean"}).mask(gaps)


@pytest.fixture(scope="session")
def whole():
    """The table without gaps."""
    return people()


@pytest.fixture(scope="session")
def store(tmp_path_factory, whole):
    """A folder with the table with gaps and a linear model of it."""
    folder = tmp_path_factory.mktemp("store")
    with_gaps(whole).to_csv(folder / "gaps.csv", index=False)
    found = invoke(
        "fit", folder / "gaps.csv", "-o", folder / "model.vfg", "--linear", "--exclude", "id"
    )
    assert found.exit_code == 0, found.output
    return SimpleNamespace(gaps=folder / "gaps.csv", model=folder / "model.vfg", said=found.stdout)


@pytest.fixture
def parsed():
    """JSON from text."""
    return json.loads


@pytest.fixture(autouse=True)
def _unwatched(monkeypatch):
    """No variable of the shell changes what is printed."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert Path(os.getcwd())
