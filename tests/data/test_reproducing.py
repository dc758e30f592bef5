"""Experiments are found by name, in a checkout and in an installed package."""

import json
import sys
from pathlib import Path

import pytest

from vfg.data import reproducing
from vfg.data.reproducing import names, reproduce

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
    """A package that carries one script, run from an empty folder."""
    carried = tmp_path / "carried"
    carried.mkdir()
    (carried / "synthetic.py").write_text(SCRIPT)
    monkeypatch.setattr(reproducing, "CARRIED", carried)
    monkeypatch.setattr(reproducing, "CHECKOUT", tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", names())
def test_every_experiment_is_found_in_a_checkout_and_takes_the_options_of_all(name):
    script = reproducing._script(name)
    assert script == reproducing.CHECKOUT / f"{name}.py"
    source = script.read_text()
    assert "def main() -> None:" in source
    shared = (script.parent / "results.py").read_text() if "arguments(" in source else source
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
    with pytest.raises(FileNotFoundError, match=r"'gaussian' is neither in .*carried nor in"):
        reproduce("gaussian")


@pytest.mark.parametrize(("package", "extra"), [("matplotlib", "plot"), ("pandas", "table")])
def test_a_missing_extra_is_named_before_the_work(installed, monkeypatch, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"this needs {package}; .*vfg\[{extra}\]"):
        reproduce("synthetic")
    assert not (installed / "outputs").exists()


def test_the_wheel_carries_the_experiments():
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert '"experiments" = "vfg/_experiments"' in project.read_text()
