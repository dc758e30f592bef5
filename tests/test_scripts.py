"""Examples and experiments from end to end at their smallest size."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
EXPERIMENTS = ["synthetic", "gaussian_network", "universality", "layerwise"]


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, PROJECT / script, *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def numbers(value):
    """All numbers of a nested result."""
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_quick_experiments_write_finite_numbers_and_their_circumstances(name):
    run(f"experiments/{name}.py", "--quick")
    found = json.loads((PROJECT / "outputs" / f"{name}.json").read_text())
    assert {"command", "seconds", "machine", "seeds"} <= set(found)
    assert all(math.isfinite(number) for number in numbers(found))


@pytest.mark.slow
def test_even_the_quick_synthetic_run_beats_the_mean():
    run("experiments/synthetic.py", "--quick")
    found = json.loads((PROJECT / "outputs" / "synthetic.json").read_text())["mse"]
    for ours, mean in zip(found["VFG, width 8, gaussian"], found["mean"], strict=True):
        assert ours < 0.7 * mean


@pytest.mark.slow
def test_the_results_page_is_what_the_result_files_say():
    page = PROJECT / "docs" / "results.md"
    before = page.read_text()
    run("experiments/report.py")
    assert page.read_text() == before


@pytest.mark.slow
def test_the_example_of_messages_fills_to_rounding():
    shown = run("examples/messages.py")
    assert "largest distance between forward and backward messages" in shown
    assert (PROJECT / "outputs" / "messages.png").stat().st_size > 10_000
