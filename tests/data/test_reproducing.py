"""Experiments are found by name, in a checkout and in an installed package."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from vfg.data import reproducing
from vfg.data.reproducing import names, reproduce

PROJECT = Path(__file__).parents[2]
SCRIPT = """
import argparse, json, pathlib, sys
parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--seeds", type=int)
parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("outputs"))
given = parser.parse_args()
if given.seeds == 13:
    sys.exit("no luck")
given.output.mkdir(exist_ok=True)
found = {"quick": given.quick, "seeds": given.seeds}
(given.output / "synthetic.json").write_text(json.dumps(found))
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that carries one experiment, run from an empty folder."""
    carried = tmp_path / "site" / "carried" / "paper"
    carried.mkdir(parents=True)
    (carried / "synthetic.py").write_text(SCRIPT)
    nowhere = tmp_path / "nowhere"
    monkeypatch.setattr(
        reproducing, "PACKAGES", {"carried": tmp_path / "site", "experiments": nowhere}
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", names())
def test_every_experiment_is_found_in_a_checkout_and_takes_the_options_of_all(name):
    folder = PROJECT / "experiments"
    source = (folder / "paper" / f"{name}.py").read_text()
    assert "def main() -> None:" in source
    shared = (folder / "results.py").read_text() if "arguments(" in source else source
    assert all(f'"{option}"' in shared for option in ("--quick", "--seeds", "--output"))


def test_options_reach_the_script_of_an_installed_package(installed):
    found = reproduce("synthetic", quick=True, seeds=3, output="elsewhere")
    assert found == {"quick": True, "seeds": 3}
    assert json.loads((installed / "elsewhere" / "synthetic.json").read_text()) == found


def test_without_options_an_installed_package_writes_beside_the_user(installed):
    assert reproduce("synthetic") == {"quick": False, "seeds": None}
    assert (installed / "outputs" / "synthetic.json").is_file()


@pytest.mark.parametrize("seeds", [0, -1])
def test_a_number_of_seeds_that_cannot_be_is_refused(installed, seeds):
    with pytest.raises(ValueError, match=f"at least 1 seed, but got {seeds}"):
        reproduce("synthetic", seeds=seeds)


def test_a_script_that_fails_is_reported(installed):
    with pytest.raises(RuntimeError, match="'synthetic' ended with status 1"):
        reproduce("synthetic", seeds=13)


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(ValueError, match="no experiment 'mnist'; choose among synthetic, "):
        reproduce("mnist")


def test_a_package_without_scripts_says_where_it_looked(installed):
    with pytest.raises(
        FileNotFoundError, match=r"'gaussian' is found neither as carried in .* nor as"
    ):
        reproduce("gaussian")


@pytest.mark.parametrize(("package", "extra"), [("matplotlib", "plot"), ("pandas", "table")])
def test_a_missing_extra_is_named_before_the_work(installed, monkeypatch, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"this needs {package}; .*vfg\[{extra}\]"):
        reproduce("synthetic")
    assert not (installed / "outputs").exists()


def imported_files(file):
    """The files of the package of experiments that a file imports, directly or not."""
    found, waiting = set(), [file]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                names = [folder, *(folder / alias.name for alias in node.names)]
                modules = [name.with_suffix(".py") for name in names]
                packages = [name / "__init__.py" for name in (*names, *folder.parents)]
                waiting += [
                    each
                    for each in (*modules, *packages)
                    if each.is_file() and each.is_relative_to(PROJECT / "experiments")
                ]
    return found


def test_the_wheel_carries_what_the_experiments_import_and_nothing_else():
    build = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    carried = set()
    for source, target in build["targets"]["wheel"]["force-include"].items():
        assert target == f"vfg/_{source}"
        place = PROJECT / source
        carried |= set(place.rglob("*.py")) if place.is_dir() else {place}
    needed = {
        file
        for name in names()
        for file in imported_files(PROJECT / "experiments" / "paper" / f"{name}.py")
    }
    assert carried == needed


@pytest.mark.slow
def test_a_wheel_lists_and_runs_experiments_outside_the_checkout(tmp_path):
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", tmp_path, PROJECT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", site, wheel], check=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def vfg(*arguments):
        command = [sys.executable, "-P", "-m", "vfg", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert all(name in vfg("reproduce") for name in names())
    vfg("reproduce", "gaussian", "--quick", "--seeds", "1")
    found = json.loads((tmp_path / "outputs" / "gaussian.json").read_text())
    assert found["command"] == "vfg reproduce gaussian --quick --seeds 1"
    assert (tmp_path / "outputs" / "gaussian.png").stat().st_size > 10_000
