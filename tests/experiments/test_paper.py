"""Examples and experiments from end to end at their smallest size, and the parts they share."""

import doctest
import json
import math
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from experiments import results
from experiments.baselines import graphical, imputers
from experiments.benchmarks import mechanisms
from experiments.report import __main__ as report
from experiments.report import images, missing, summary

PROJECT = Path(__file__).parents[2]
CIRCUMSTANCES = {"command", "seconds", "machine", "seeds"}


def run(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def quick(name, folder, *options):
    """The results of a quick run, with what all of them have checked."""
    run(f"experiments.paper.{name}", "--quick", *options, "--output", str(folder))
    found = json.loads((folder / f"{name}.json").read_text())
    assert set(found) >= CIRCUMSTANCES
    assert found["command"].startswith(f"python -m experiments.paper.{name} --quick")
    assert str(folder) not in json.dumps(found)
    assert all(math.isfinite(number) for number in numbers(found))
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / f"{name}.png").stat().st_size > 10_000
    return found


def numbers(value):
    """All numbers of a nested result."""
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.slow
def test_the_quick_synthetic_run_beats_the_mean(tmp_path):
    found = quick("synthetic", tmp_path, "--seeds", "1")
    errors = found["mse"]
    assert set(errors) >= {"mean", "iterative", "MICE", "kNN (k = 5)", "iterative, ExtraTrees"}
    assert all(len(values) == len(found["seeds"]) == 1 for values in errors.values())
    assert errors["VFG, width 8, gaussian"][0] < 0.2 * errors["mean"][0]
    assert errors["VFG, width 2 (the paper's)"][0] < 0.8 * errors["mean"][0]


@pytest.mark.slow
def test_the_quick_california_run_beats_the_mean(tmp_path):
    methods = quick("california", tmp_path)["methods"]
    measures = {f"{m}, {scale}" for m in ("mse", "mae") for scale in ("raw", "standardised")}
    for measured in methods.values():
        assert set(measured) == measures
        assert all(len(value["draws"]) == 50 for value in measured.values())
        for value in measured.values():
            assert min(value["draws"]) <= value["all"] <= max(value["draws"])
    assert (
        methods["GaussianVFG, median"]["mae, raw"]["all"] < 0.8 * methods["mean"]["mae, raw"]["all"]
    )


@pytest.mark.slow
def test_the_quick_network_run_finds_the_noise_of_the_network(tmp_path):
    found = quick("gaussian", tmp_path)
    assert set(found["methods"]) >= {"mean", "least squares", "VFG (the paper's)", "GaussianVFG"}
    assert len(found["methods"]) + len(found["not run"]) == 6
    for answers in found["methods"].values():
        assert list(answers) == [*(f"{name} missing" for name in "ABCDEFG"), "30 % at random"]
    ours, mean = (found["methods"][name]["F missing"] for name in ("GaussianVFG", "mean"))
    # 60 squared errors of a Normal with variance 1 have a mean within 1 ± 4 sqrt(2 / 60).
    assert ours["mse, raw"] == pytest.approx(found["noise of F"]["raw"], abs=0.73)
    assert ours["mse, raw"] < 0.1 * mean["mse, raw"]
    assert found["methods"]["VFG (the paper's)"]["F missing"]["mse, raw"] < mean["mse, raw"]


MODELS = {
    *("VFG", "VFG, the paper's tree", "VFG, encoding edge"),
    *("VAE", "planar flow", "IAF", "orthogonal Sylvester"),
}


@pytest.mark.slow
def test_the_quick_likelihood_run_beats_pixels_without_a_model(tmp_path):
    options = ("--quick", "--steps", "60", "--draws", "20", "--seeds", "2")
    run("experiments.paper.likelihood", *options, "--output", str(tmp_path))
    found = json.loads((tmp_path / "likelihood.json").read_text())
    assert set(found) == CIRCUMSTANCES | {"draws", "note", "data"}
    assert found["note"] == ""
    (digits,) = found["data"].values()
    assert set(digits) == {"source", "rows", "seeds", "models", "surrogate", "skipped"}
    assert digits["skipped"] == []
    assert set(digits["models"]) >= MODELS
    assert set(digits["surrogate"]) == {"0.1", "1.0"}
    assert all(math.isfinite(number) for number in numbers(found))
    for name, row in digits["models"].items():
        assert len(row["elbo"]) == len(row["nll"]) == len(row["train"]) == 2, name
        assert all(nll < elbo for nll, elbo in zip(row["nll"], row["elbo"], strict=True)), name
        # A fair coin per pixel.
        assert max(row["elbo"]) < 64 * math.log(2), name
    for row in digits["surrogate"].values():
        assert set(row) >= {"reconstruction", "distances", "constants", "sum"}
    parts = tmp_path / "likelihood_quick" / "cells.jsonl"
    before = parts.read_text()
    again = run("experiments.paper.likelihood", *options, "--resume", "--output", str(tmp_path))
    assert "digits: VFG" not in again
    data, *models = before.splitlines()
    assert parts.read_text().splitlines() == [data, *models, data]
    assert json.loads((tmp_path / "likelihood.json").read_text())["data"] == found["data"]


@pytest.mark.slow
def test_the_quick_representation_run_beats_guessing(tmp_path):
    run(
        *("experiments.paper.representation", "--quick", "--steps", "150", "--seeds", "1"),
        *("--output", str(tmp_path)),
    )
    found = json.loads((tmp_path / "representation.json").read_text())
    assert set(found) == CIRCUMSTANCES | {"rows", "budget", "hidden", "models"}
    assert all(math.isfinite(number) for number in numbers(found))
    assert len(found["models"]) == 4
    for name, row in found["models"].items():
        assert row["nearest"][0] > 0.8, name
        assert row["linear"][0] > 0.7, name
    assert found["models"]["VFG"]["prior"][0] > 0.5  # of ten digits
    for name in ("reconstructions", "tsne", "traversals"):
        picture = tmp_path / f"representation_{name}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 5_000


@pytest.mark.slow
def test_the_quick_benchmark_of_likelihoods_says_what_options_bring(tmp_path):
    chosen = ["VFG, tree", "VFG, tree, ladder", "VAE"]
    run(
        *("experiments.benchmarks.likelihood", "--quick", "--steps", "120", "--draws", "50"),
        *("--models", *chosen, "--output", str(tmp_path)),
    )
    found = json.loads((tmp_path / "likelihood_benchmark.json").read_text())
    assert set(found) == CIRCUMSTANCES | {"data", "draws", "budget", "models", "surrogate"}
    assert list(found["models"]) == chosen
    assert all(math.isfinite(number) for number in numbers(found))
    for name, row in found["models"].items():
        assert row["nll"] < row["elbo"] < 64 * math.log(2), name


@pytest.mark.slow
def test_the_quick_run_on_parts_of_images_asks_three_models_and_draws(tmp_path):
    module, where = "experiments.benchmarks.conditional_images", ("--output", str(tmp_path))
    chosen = ["VFG", "masked VAE", "regressor"]
    run(module, "--quick", "--models", *chosen, *where)
    found = json.loads((tmp_path / "conditional_images.json").read_text())
    assert list(found["models"]) == chosen
    assert all(math.isfinite(number) for number in numbers(found))
    for name, row in found["models"].items():
        assert max(row["half, nll"]) < 32 * math.log(2), name  # a fair coin per pixel
        assert max(row["block, nll"]) < 16 * math.log(2), name
    run(module, "--quick", "--draw", *where)
    assert (tmp_path / "conditional_images.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["universality", "layerwise"])
def test_other_quick_experiments_write_finite_numbers_and_their_circumstances(name):
    run(f"experiments.benchmarks.{name}", "--quick")
    found = json.loads((PROJECT / "outputs" / f"{name}.json").read_text())
    assert set(found) >= CIRCUMSTANCES
    assert all(math.isfinite(number) for number in numbers(found))


def test_the_results_pages_are_what_the_result_files_say():
    for name, text in report.pages().items():
        assert (PROJECT / "docs" / f"{name}.md").read_text() == text
    assert len(report.pages()["results"].splitlines()) <= 250


def test_the_results_of_the_readme_are_what_the_result_files_say():
    text = report.readme()
    assert (PROJECT / "README.md").read_text() == text
    lines = text.splitlines()
    first = lines.index("| task | ours / best other | won / drawn / lost |")
    told = [line for line in lines[first + 2 : first + 12] if line.startswith("|")]
    assert len(told) == len(summary.README_TASKS) <= 10
    page = (PROJECT / "docs" / "results.md").read_text()
    for line, task in zip(told, summary.README_TASKS, strict=True):
        ratio, outcome = line.strip("| ").split(" | ")[1:]
        assert re.search(rf"^\| {task} \|.* {re.escape(ratio)} \| {outcome} \|", page, re.MULTILINE)
    shown = lines[lines.index("## Results") : lines.index("<!-- end -->")]
    assert len([line for line in shown if line.startswith("- ")]) <= 5
    assert len(shown) <= 40


def test_the_readme_states_the_range_of_steps_of_image_models():
    found = json.loads((PROJECT / "docs" / "results" / "likelihood.json").read_text())
    shares = [float(line[5].partition("x")[0]) for line in summary.likelihood(found)]
    told = f"with {min(shares)} to {max(shares)} times the steps of the other"
    assert told in " ".join((PROJECT / "README.md").read_text().split())


def test_the_notes_of_the_results_name_test_images_and_engines():
    page = " ".join((PROJECT / "docs" / "results.md").read_text().split())
    data = json.loads((PROJECT / "docs" / "results" / "likelihood.json").read_text())["data"]
    rows = [images.weighted_rows(data[name]) for name in ("mnist", "caltech", "omniglot")]
    assert "NLL is estimated on {:,}, {:,} and {:,} test images".format(*rows) in page
    engines = json.loads((PROJECT / "docs" / "results" / "engines.json").read_text())["engines"]
    for told in engines.values():
        assert f"{told['rows_per_processor_second']:,}" in page
    assert "The linear model, not the defaults, filled" in page
    assert summary.notes({}) == ""


@pytest.mark.slow
def test_the_example_of_messages_fills_to_rounding():
    shown = run("examples.messages")
    assert "largest distance between forward and backward messages" in shown
    assert (PROJECT / "outputs" / "messages.png").stat().st_size > 10_000


def test_the_results_pages_need_no_result_file_in_particular(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "FOLDER", tmp_path)
    bare = report.pages()
    assert bare["results"].startswith("# Results\n")
    assert "0.1 · 9 · 196 · log 2 = 122 nats" in bare["results-paper"]
    file = PROJECT / "docs" / "results" / "synthetic.json"
    (tmp_path / "synthetic.json").write_text(file.read_text())
    assert "| synthetic, MSE |" in report.pages()["results-paper"]
    assert "| the paper's synthetic columns, squared error |" in report.pages()["results"]


def test_the_results_name_the_files_of_other_versions():
    found = {
        "a": {"machine": {"vfg": "1.0"}},
        "b": {"machine": {"vfg": "unknown"}},
        "c": {"machine": {"vfg": "1.0"}, "parts": [{"machine": {"vfg": "0.1"}}]},
        "d": {},
    }
    told = summary.versions(found)
    assert "of version 1.0 were measured by 0.1: `c`; without a note of their version: `b`." in told
    assert summary.versions({"a": found["a"]}) == ""


def test_differences_of_two_per_cent_are_draws_of_seeds():
    errors = {"VFG": [0.97, 0.99, 1.03], "kNN": [1.0, 1.0, 1.0]}
    assert summary._patterns(errors)[4] == "1 / 1 / 1"


def test_mechanisms_of_complete_columns_stand_above_those_of_own_values():
    assert missing.FOUND.keys() == mechanisms.MECHANISMS.keys()
    names = list(missing.FOUND)
    ignorable = names[: names.index("own_of_one")]
    assert {"mcar", "mar", "above_another", "by_sum_of_two", "dropout"} <= set(ignorable)


def test_the_page_on_missing_cells_counts_seeds():
    cell = {"table": "a", "mechanism": "mar", "rows": 100, "found": False, "ratio": 1.0}
    cells = [{**cell, "seed": seed} for seed in range(3)]
    given = {"command": "x", "seconds": 1.0, "machine": results.machine()}
    assert "(a), 3 seeds each" in missing.mechanisms({"cells": cells, **given})
    errors = [{"table": "yeast", "method": "auto", "mse": 1.0, "seed": 0}]
    assert "`VFGImputer(bend=False)`, 1 seed;" in missing.protocol({"cells": errors, **given})


def test_the_page_on_pooled_intervals_says_how_to_read_quartiles_and_separable_tables():
    one = {"rows": 100, "mechanism": "mcar", "repetitions": 9, "processor_seconds": 0.1}
    one |= {
        "coverage": [0.97] * 5,
        "estimate": [0, 1.7, 0.5, -0.5, 0],
        "complete": [0, 1.1, 0, 0, 0],
    }
    settings = [
        {**one, "analysis": "quantile", "method": "linear", "mean_coverage": 0.97},
        {**one, "analysis": "quantile", "method": "ridge", "mean_coverage": 0.9},
        {**one, "analysis": "logistic", "method": "linear", "mean_coverage": 0.99},
    ]
    told = missing._pooled_remarks(settings)
    assert "in 0.935 of the cases (median of the lines; 0.900 to 0.970; at least 0.970" in told
    assert "up to 1.70 for the slope of 1 (1.10 in complete tables)" in told
    assert missing._pooled_remarks([]) == ""


@pytest.mark.parametrize(
    "name",
    [
        "cells",
        "results",
        "report.render",
        "report.growth",
        "report.goals",
        "benchmarks.speed.clock",
    ],
)
def test_examples_in_docstrings_hold(name):
    found = doctest.testmod(import_module(f"experiments.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


def test_the_arithmetic_of_the_opening_holds():
    from vfg.data import gaussian_network

    table, names = gaussian_network()
    variance = float(table[:4500, names.index("F")].var(correction=0))
    assert 0.104 * variance == pytest.approx(4.0, abs=0.25)
    assert 1.059 / variance == pytest.approx(0.028, abs=0.002)
    assert round(0.1 * 9 * 196 * math.log(2)) == 122
    assert round((37.06 - 5.42) ** 2 / 200, 1) == 5.0


@pytest.mark.parametrize(
    ("options", "seeds"), [([], [0, 1]), (["--quick"], [0]), (["--seeds", "3"], [0, 1, 2])]
)
def test_experiments_share_their_options(monkeypatch, options, seeds):
    monkeypatch.setattr(
        sys,
        "argv",
        [str(PROJECT / "experiments" / "paper" / "any.py"), *options, "--output", "folder"],
    )
    given = results.arguments("What it does.")
    assert given.chosen(full=2, quick=1) == seeds
    assert given.output == Path("folder")
    assert results._command() == " ".join(["python -m experiments.paper.any", *options])


@pytest.mark.parametrize("text", ["0", "-1", "few", "1.5"])
def test_a_number_of_seeds_that_cannot_be_is_refused(monkeypatch, capsys, text):
    monkeypatch.setattr(sys, "argv", ["any.py", f"--seeds={text}"])
    with pytest.raises(SystemExit):
        results.arguments(None)
    assert f"expected a number of at least 1, but got '{text}'" in capsys.readouterr().err


def test_least_squares_is_the_regression_on_what_is_shown():
    generator = np.random.default_rng(0)
    train = generator.normal(size=(200, 4)) @ generator.normal(size=(4, 4)) + 3.0
    test = generator.normal(size=(5, 4))
    gaps = test.copy()
    gaps[:3, 1] = np.nan
    gaps[3:, [0, 2]] = np.nan
    filled = graphical.least_squares(train)(gaps)
    assert (filled[~np.isnan(gaps)] == test[~np.isnan(gaps)]).all()
    for rows, hidden in ((slice(0, 3), [1]), (slice(3, 5), [0, 2])):
        shown = [column for column in range(4) if column not in hidden]
        design = np.column_stack([np.ones(200), train[:, shown]])
        weights = np.linalg.lstsq(design, train[:, hidden], rcond=None)[0]
        expected = np.column_stack([np.ones(len(test[rows])), test[rows][:, shown]]) @ weights
        np.testing.assert_allclose(filled[rows][:, hidden], expected)


@pytest.mark.slow
def test_a_bayesian_network_of_pgmpy_with_all_edges_is_least_squares():
    pytest.importorskip("pgmpy", reason="a baseline that is not installed")
    train = np.random.default_rng(0).normal(size=(300, 3)) @ np.array(
        [[1, 2, 0], [0, 1, 1], [0, 0, 1]]
    )
    gaps = train[:4].copy()
    gaps[:2, 2] = np.nan
    gaps[2:, 0] = np.nan
    network = graphical.bayesian_network(train, "abc", [("a", "b"), ("a", "c"), ("b", "c")])
    expected = graphical.least_squares(train)(gaps)
    np.testing.assert_allclose(network(gaps), expected, atol=0.05)


def test_tuned_neighbours_choose_the_scale_that_predicts():
    generator = np.random.default_rng(0)
    known = generator.normal(size=(400, 2)) * [1.0, 1000.0]
    table = np.column_stack([known, known[:, 0]])
    train, test = table[:300], table[300:].copy()
    test[:, 2] = np.nan
    filled = imputers.tuned_neighbours([2])(train, test)
    assert np.square(filled[:, 2] - table[300:, 2]).mean() < 0.05
    plain = imputers.imputers([2], 0)["kNN (k = 5)"](train, test)
    assert np.square(plain[:, 2] - table[300:, 2]).mean() > 0.5
