"""The measures behind the imputation benchmark, against brute force and known answers."""

import json
import os
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer

from experiments import results
from experiments.benchmarks.imputation import cells as cells_of
from experiments.benchmarks.imputation import effort
from experiments.benchmarks.imputation.__main__ import seeds_of
from experiments.benchmarks.imputation.cells import (
    SHAPES,
    Cell,
    counts,
    hide,
    load,
    measure,
    split,
    write,
)
from experiments.benchmarks.imputation.methods import LIMITS, METHODS, Filled, Task, allowed
from experiments.benchmarks.imputation.metrics import (
    coverage,
    crps,
    energy,
    intervals,
    point_errors,
)
from experiments.benchmarks.imputation.summary import (
    IDENTITY,
    circumstances,
    contest,
    is_of_protocol,
    measures,
    merged,
    on_single_lines,
    outcome,
    packed,
    roots,
    unpacked,
)
from experiments.report import imputation as report
from experiments.report import summary
from experiments.report.imputation import codes, goals, protocol, standings
from experiments.results import commit, machine
from vfg.imputation.baselines import (
    AveragedImputers,
    BoostedColumns,
    MissForest,
    SoftImpute,
    chained_ridge,
)


@pytest.fixture
def case():
    """Draws (7, 6, 3), truth and a mask with a complete row and an empty one."""
    generator = np.random.default_rng(0)
    draws, truth = generator.normal(size=(7, 6, 3)), generator.normal(size=(6, 3))
    missing = generator.random((6, 3)) < 0.5
    missing[0], missing[1] = False, True
    return draws, truth, missing


def test_point_errors_count_missing_cells_only(case):
    _, truth, missing = case
    point = np.where(missing, truth + 2.0, truth + 100.0)
    assert point_errors(point, truth, missing) == pytest.approx({"mse": 4.0, "mae": 2.0})


def test_crps_is_the_distance_less_half_that_of_distinct_draws(case):
    draws, truth, missing = case
    expected = [
        np.abs(cell - value).mean() - np.mean([abs(a - b) for a, b in combinations(cell, 2)]) / 2
        for cell, value in zip(draws[:, missing].T, truth[missing], strict=True)
    ]
    assert crps(draws, truth, missing) == pytest.approx(np.mean(expected))


def test_crps_of_normal_draws_is_the_closed_form():
    draws = np.random.default_rng(0).normal(size=(4000, 1, 5))
    truth = np.array([[-2.0, -0.5, 0.0, 0.7, 1.5]])
    closed = truth * (2 * norm.cdf(truth) - 1) + 2 * norm.pdf(truth) - 1 / np.sqrt(np.pi)
    assert crps(draws, truth, truth < 9) == pytest.approx(closed.mean(), abs=0.01)


def test_energy_score_takes_the_missing_cells_of_a_row_together(case):
    draws, truth, missing = case
    expected = []
    for row in range(1, 6):
        hidden = missing[row]
        values, target = draws[:, row, hidden], truth[row, hidden]
        if hidden.any():
            pairs = [np.linalg.norm(a - b) for a, b in combinations(values, 2)]
            distances = np.linalg.norm(values - target, axis=1)
            expected.append(distances.mean() - np.mean(pairs) / 2)
    assert energy(draws, truth, missing) == pytest.approx(np.mean(expected))


def test_intervals_from_draws_hold_a_new_draw_as_often_as_they_say():
    draws = np.random.default_rng(0).normal(size=(21, 1, 40_000))
    low, high = intervals(draws[:20], 0.9)
    inside = (low <= draws[20]) & (draws[20] <= high)
    assert inside.mean() == pytest.approx(0.9, abs=0.006)


def test_coverage_is_split_by_width():
    truth = np.zeros((1, 9))
    high = np.array([[1, 2, 3, 4, 5, 6, 7, 8, 9.0]])
    low = np.array([[0.5, 0.5, 0, 0, 0, 0, 0, 0, 8.9]])
    found = coverage(low, high, truth, np.ones((1, 9), dtype=bool))
    assert found["coverage"] == pytest.approx(6 / 9)
    assert found["width"] == pytest.approx((high - low).mean())
    # By width: the last cell, then the first two, and so on.
    assert found["coverage_by_width"] == pytest.approx([0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([-0.10, -0.11, -0.09], "win"),
        ([0.10, 0.11, 0.09], "loss"),
        ([-0.015, -0.015, -0.015], "draw"),
        ([-0.3, 0.2, -0.05], "draw"),
        ([-0.5], "draw"),
    ],
)
def test_a_difference_counts_beyond_two_per_cent_and_two_standard_errors(differences, expected):
    assert outcome(differences, 1.0) == expected


@pytest.mark.parametrize("loss", ["mse", "mae"])
def test_the_best_baseline_is_found_on_shared_seeds(loss):
    errors = {
        "good": {0: 1.0, 1: 2.0, 2: 3.0},
        "lucky": {0: 0.1},
        "poor": {0: 9.0, 1: 9.0, 2: 9.0, 3: 0.1},
    }
    baselines = {name: {s: {loss: e} for s, e in by.items()} for name, by in errors.items()}
    ours = {seed: {loss: error} for seed, error in enumerate([0.5, 1.0, 1.5])}
    found = contest(ours, baselines, loss)
    assert (found["rival"], found["ratio"], found["seeds"]) == ("good", 0.5, 3)


def test_the_file_keeps_its_content_with_innermost_objects_on_one_line():
    assert (
        on_single_lines('{\n "a": {\n  "b": 1,\n  "c": 2\n }\n}') == '{\n "a": {"b": 1, "c": 2}\n}'
    )


def test_the_log_keeps_cells_and_takes_new_ones_in_place_of_old(tmp_path):
    cells = [
        {"table": "glass", "mechanism": "mcar30", "setting": "unseen", "seed": 0, "method": "knn"}
        | {"mse": 0.123456789, "coverage_by_width": [0.9, 1 / 3, 1.0], "draws": 20, "cores": 2}
        | {"fit_seconds": 7.0},
        {"table": "glass", "mechanism": "mcar30", "setting": "unseen", "seed": 1, "method": "gain"}
        | {"error": "no", "cores": 16, "fit_seconds": None},
    ]
    log, folder = tmp_path / "log.json", tmp_path / "cells"
    folder.mkdir()
    assert merged(folder, log) == []
    for place, cell in enumerate(cells):
        (folder / f"{place}.json").write_text(json.dumps(cell))
    log.write_text(packed(merged(folder, log)))
    (folder / "1.json").unlink()
    (folder / "0.json").write_text(json.dumps(cells[0] | {"mse": 0.5}))
    knn, gain = merged(folder, log)
    assert gain == {name: value for name, value in cells[1].items() if value is not None}
    assert knn["mse"] == 0.5
    again = cells[0] | {"mse": 0.5, "fit_seconds": 1.0, "cores": 16}
    (folder / "0.json").write_text(json.dumps(again))
    kept, _ = merged(folder, log, keep_seconds=True)
    assert (kept["mse"], kept["fit_seconds"], kept["cores"]) == (0.5, 7.0, 2)
    assert merged(folder, log)[0]["fit_seconds"] == 1.0
    old = unpacked(log.read_text())[0]
    assert old["mse"] == 0.12346
    assert old["coverage_by_width"] == [0.9, 0.33333, 1.0]
    assert "draws" not in old
    table = json.loads(log.read_text())
    assert table["ways"] == [{"cores": 16}, {"cores": 2}]
    assert "cores" not in table["fields"]
    before = {"fields": [*IDENTITY, "cores"], "cells": [["glass", "mcar30", "unseen", 0, "knn", 2]]}
    [cell] = unpacked(json.dumps(before))
    assert cell["cores"] == 2


def test_missforest_beats_the_mean_and_leaves_observed_cells_alone():
    generator = np.random.default_rng(0)
    hidden = generator.uniform(-2, 2, size=(300, 1))
    values = np.hstack([hidden, hidden**2, np.sin(2 * hidden)])
    missing = generator.random(values.shape) < 0.3
    masked = np.where(missing, np.nan, values)
    forest = MissForest(trees=20, rounds=3)
    filled = forest.fit_transform(masked)
    assert (filled[~missing] == values[~missing]).all()
    assert np.square(filled - values)[missing].mean() < 0.6 * values[missing].var()
    again = forest.fit(masked[:200]).transform(masked[200:])
    assert np.square(again - values[200:])[missing[200:]].mean() < 0.6 * values[missing].var()


def test_boosted_columns_are_separate_regressions_that_see_missing_values():
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, size=400)
    table = np.column_stack([x, np.sign(x) * (np.abs(x) > 1), generator.normal(size=400)])
    masked = np.where(generator.random(table.shape) < 0.3, np.nan, table)
    filled = BoostedColumns(seed=1).fit_transform(masked)
    missing = np.isnan(masked)
    assert (filled[~missing] == table[~missing]).all()
    rows = missing[:, 1]
    direct = HistGradientBoostingRegressor(random_state=1)
    direct.fit(masked[~rows][:, [0, 2]], masked[~rows, 1])
    np.testing.assert_array_equal(filled[rows, 1], direct.predict(masked[rows][:, [0, 2]]))
    seen = rows & ~missing[:, 0]  # a jump that no line follows
    assert np.square(filled - table)[seen, 1].mean() < 0.1 * table[:, 1].var()


def test_soft_impute_is_a_fixed_point_and_fills_other_rows_by_ridge_regression():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(80, 2)) @ generator.normal(size=(2, 6))
    table += 0.1 * generator.normal(size=table.shape)
    missing = generator.random(table.shape) < 0.3
    masked = np.where(missing, np.nan, table)
    imputer = SoftImpute(rounds=3000).fit(masked)
    filled = imputer.transform(masked)
    scaled = (filled - imputer.centre) / imputer.scale
    left, sizes, right = np.linalg.svd(scaled, full_matrices=False)
    shrunk = (left * np.maximum(sizes - imputer.penalty, 0.0)) @ right
    np.testing.assert_allclose(shrunk[missing], scaled[missing], atol=2e-3)
    assert np.square(filled - table)[missing].mean() < 0.2 * table.var()
    alone = imputer.transform(masked[:5])
    np.testing.assert_allclose(alone, filled[:5])


def test_soft_impute_holds_out_observed_cells_whatever_seed_made_the_mask():
    table = load("iris")
    masked = np.where(hide(table, "mcar30", 0), np.nan, table)
    assert np.isfinite(SoftImpute(seed=0).fit_transform(masked)).all()


def test_an_average_weighs_imputers_equally():
    table = np.array([[1.0, np.nan], [3.0, 4.0], [np.nan, 8.0]])
    mean, median = SimpleImputer(), SimpleImputer(strategy="constant", fill_value=0.0)
    filled = AveragedImputers([mean, median]).fit_transform(table)
    np.testing.assert_allclose(filled, [[1.0, 3.0], [3.0, 4.0], [1.0, 8.0]])
    assert (AveragedImputers([mean, median]).fit(table).transform(table) == filled).all()


@pytest.mark.parametrize(
    "name", ["mean", "knn", "ridge", "extratrees", "boosting", "softimpute", "boosting+linear"]
)
@pytest.mark.parametrize("seen", [True, False])
def test_baselines_fill_everything_and_leave_observed_cells_alone(name, seen):
    table = load("iris")
    masked = np.where(hide(table, "mar30", 0), np.nan, table)
    fitted, others = split(len(table), 0)
    task = Task(masked, None, 0, 1) if seen else Task(masked[fitted], masked[others], 0, 1)
    found = METHODS[name](task)
    observed = ~np.isnan(task.target)
    for values in [found.point, *([] if found.draws is None else found.draws)]:
        assert np.isfinite(values).all()
        np.testing.assert_allclose(values[observed], task.target[observed], rtol=1e-12)
    assert (found.transform_seconds is None) == seen


def test_a_column_with_a_single_observed_value_is_filled_with_it_by_ridge():
    table = np.array([[1.0, 2.0], [2.0, 2.0], [3.0, np.nan], [np.nan, 2.0]])
    for draw in (False, True):
        filled = chained_ridge(table, 0, sample_posterior=draw).fit_transform(table)
        assert filled[2, 1] == pytest.approx(2.0, rel=1e-12)
        assert 1.0 <= filled[3, 0] <= 3.0


def test_rows_are_split_without_overlap():
    fitted, others = split(100, 3)
    assert len(fitted) == 70
    assert sorted([*fitted, *others]) == list(range(100))


def test_the_protocol_fills_the_fitted_rows_or_the_others(monkeypatch):
    seen = []

    def method(task):
        seen.append(task)
        return Filled(np.zeros(task.target.shape), 0.0)

    monkeypatch.setitem(METHODS, "mean", method)
    fitted, others = split(150, 1)
    errors = {
        setting: measure(Cell("iris", "mar43", setting, 1, "mean"), 1)["mse"]
        for setting in ("fitted", "unseen", "in_sample")
    }
    table, missing = load("iris"), hide(load("iris"), "mar43", 1)
    assert missing[:, missing.any(axis=0)].mean() == pytest.approx(0.3 / 0.7, abs=0.05)
    for setting, rows in (("fitted", fitted), ("unseen", others), ("in_sample", range(150))):
        assert errors[setting] == pytest.approx(np.square(table[rows][missing[rows]]).mean())
    assert [len(task.shown) for task in seen] == [105, 105, 150]
    assert [task.unseen is None for task in seen] == [True, False, True]


def test_errors_are_relative_to_ours_on_the_same_seeds():
    ours = {s: {"mse": m, "mae": 9.0, "mae_median": 1.0} for s, m in enumerate([1.0, 2.0, 6.0])}
    other = {1: {"mse": 4.0, "mae": 2.0, "mae_median": 3.0, "crps": 1.0}}
    shared = {"cores": 2, "jobs": 1, "threads": 1}
    groups = {
        name: {s: {**shared, **cell, "seed": s, "method": name} for s, cell in cells.items()}
        for name, cells in (("vfg", ours), ("knn", other))
    }
    for cell in groups["vfg"].values():
        cell["crps"] = 0.5
    found = measures(groups, dict.fromkeys(groups, (2, 1, 1, False)))
    assert found["knn"]["relative"] == {"mse": 2.0, "mae": 2.0, "crps": 2.0}
    assert "code" not in found["vfg"]
    assert found["vfg"]["mse"] == 3.0
    assert "relative" not in found["vfg"]


def test_cells_name_the_code_that_they_were_measured_with(tmp_path, monkeypatch):
    cell = Cell("glass", "mcar30", "unseen", 0, "mean")
    known = {"mse": 1.0, "mae": 1.0}
    monkeypatch.setattr(cells_of, "commit", lambda: "abc1234")
    write(cell, known, tmp_path, 1, 1, gpu=False)
    monkeypatch.setattr(cells_of, "commit", lambda: None)
    write(replace(cell, seed=1), known, tmp_path, 1, 1, gpu=False)
    older = json.loads(cell.path(tmp_path).read_text()) | {"seed": 2}
    del older["code"]
    (tmp_path / "older.json").write_text(json.dumps(older))
    log = tmp_path / "log"
    log.write_text(packed(merged(tmp_path, None)))
    table = json.loads(log.read_text())
    place = table["fields"].index("code")
    assert [row[place] for row in table["cells"]] == ["abc1234", None, None]
    by_seed = {one["seed"]: one for one in unpacked(log.read_text())}
    found = measures({"mean": by_seed}, {"mean": circumstances(older)})
    assert found["mean"]["seeds"] == 3
    assert found["mean"]["code"] == {"abc1234": 1}


def test_the_page_says_which_contests_are_of_earlier_code():
    measured = {
        "a mcar50 unseen": {"vfg": {"seeds": 3, "code": {"abc1234": 2}}},
        "a mcar30 unseen": {"vfg": {"seeds": 1, "code": {"abc1234": 1}}},
        "b mcar30 unseen": {"vfg": {"seeds": 3}},
        "c mcar30 unseen": {"vfg": {"seeds": 3}},
    }
    found = {"measures": measured, "contests": {g: {"vfg": {}} for g in list(measured)[:3]}}
    told = codes(found, "vfg")
    assert "Code of the 7 cells of `VFGImputer` in these 3 contests (defaults): " in told
    assert ": 3 of commit `abc1234` (a 2); 4 older than the note of the commit (a 1, b 1)." in told
    found["contests"] = {"b mcar30 unseen": {"vfg": {}}}
    assert codes(found, "vfg").endswith(": all older than the note of the commit.")
    assert codes(found, "vfg-best") == ""


def test_a_checkout_has_a_commit_and_other_folders_have_none(tmp_path, monkeypatch):
    commit.cache_clear()
    monkeypatch.setattr(results, "PROJECT", tmp_path)
    assert commit() is None
    commit.cache_clear()
    monkeypatch.undo()
    known = commit()
    assert known is None or int(known, 16) >= 0


def test_the_protocol_takes_the_seeds_of_ours_and_roots_before_means():
    found = roots(
        {
            "vfg": {0: {"mse": 1.0, "mae": 0.9, "mae_median": 0.8, "method": "vfg"}},
            "knn": {s: {"mse": m, "mae": 1.0, "method": "knn"} for s, m in ((0, 4.0), (1, 9.0))},
            "mean": {2: {"mse": 1.0, "mae": 1.0, "method": "mean"}},
        }
    )
    assert found == {
        "vfg": {"seeds": 1, "mae": 0.8, "rmse": 1.0},
        "knn": {"seeds": 1, "mae": 1.0, "rmse": 2.0},
    }
    assert is_of_protocol(("letter", "mcar30", "unseen"))
    assert not is_of_protocol(("letter", "mcar50", "unseen"))
    assert not is_of_protocol(("glass", "mcar30", "fitted"))
    page = protocol({"protocol": {"letter mar43 fitted": found}})
    assert "| `VFGImputer` | – | – | 0.800 / 1.000 (1) | – |" in page
    assert "| DiffPuter, published | – | – | 0.322 / 0.481 | – |" in page
    assert "California, totals" not in page
    assert protocol({}) == ""


def test_totals_of_california_are_whole_numbers():
    features = np.array([[8.3252, 41.0, 880 / 126, 129 / 126, 322.0, 322 / 126, 37.88, -122.23]])
    expected = [[8.3252, 41.0, 880.0, 129.0, 322.0, 126.0, 37.88, -122.23]]
    np.testing.assert_allclose(counts(features), expected)


def test_seeds_begin_where_they_are_asked_to():
    assert seeds_of("yacht", 2, 1) == [1, 2]
    assert seeds_of("yacht", None) == [0, 1, 2, 3, 4]


def test_tables_are_standardised():
    table = load("breast_wdbc")
    assert table.shape == SHAPES["breast_wdbc"]
    np.testing.assert_allclose(table.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(table.std(axis=0), 1)


def test_slow_methods_are_kept_from_large_tables_by_the_rule():
    assert set(LIMITS) <= set(METHODS)
    assert not allowed("missforest", *SHAPES["spambase"])
    assert allowed("missforest", *SHAPES["concrete"])
    assert all(allowed("vfg", *shape) for shape in SHAPES.values())


def test_the_intervals_of_the_readme_hold_what_was_measured():
    project = Path(__file__).parents[2]
    measured = json.loads((project / "docs" / "results" / "imputation.json").read_text())
    known = [
        (key, found["vfg"])
        for key, found in measured["measures"].items()
        if "vfg" in found and key.split()[0] in measured["held_back"]
    ]
    held = {
        of_itself: 100
        * np.mean([m["coverage"] for key, m in known if ("mnar" in key) == of_itself])
        for of_itself in (False, True)
    }
    text = " ".join((project / "README.md").read_text().split())
    assert f"intervals hold {held[False]:.0f} % of the cells, {held[True]:.0f} % of those" in text


def test_the_summary_counts_the_contests_of_both_losses_by_half():
    project = Path(__file__).parents[2]
    measured = json.loads((project / "docs" / "results" / "imputation.json").read_text())
    lines = [line for line in summary.imputation(measured) if "best" not in line[1]]
    cases = product(("held_back", "tuning"), (False, True), ("contests", "contests_mae"))
    for line, (half, own_values, key) in zip(lines, cases, strict=True):
        held = [
            contest["vfg"]
            for group, contest in measured[key].items()
            if "vfg" in contest
            and group.split()[0] in measured[half]
            and ("mnar" in group) == own_values
        ]
        ratio = np.exp(np.mean(np.log([contest["ratio"] for contest in held])))
        ended = [sum(c["outcome"] == kind for c in held) for kind in ("win", "draw", "loss")]
        assert line[3].startswith(f"{ratio:.3f} ± ")
        assert line[4] == " / ".join(map(str, ended))
    errors = measured["measures"]["glass mcar50 in_sample"]
    one = {**measured, "measures": {"glass mcar50 in_sample": errors}}
    table = standings(one, ["glass"])
    ratio = errors["knn"]["relative"]["mse"]
    assert ratio == pytest.approx(errors["knn"]["mse"] / errors["vfg"]["mse"], rel=1e-3)
    assert f"| kNN | 1 | 1 | {ratio:.3g} |" in table
    unseen = measured["measures"]["glass mcar50 unseen"]
    rates = [unseen[name]["transform_rows_per_second"] for name in ("vfg", "knn")]
    told = standings(measured, ["glass"], [("mcar50", "unseen")])
    (line,) = [line for line in told.splitlines() if line.startswith("| kNN |")]
    assert line.endswith(f"| {rates[0] / rates[1]:.3g} |")
    (line,) = [line for line in table.splitlines() if line.startswith("| kNN |")]
    assert line.endswith("| – |")
    errors["knn"]["seeds"] = 2
    assert f"| kNN | 1 | 0 | {ratio:.3g} |" in standings(one, ["glass"])


def test_cells_of_slow_methods_are_counted_and_tables_without_them_named():
    measured = {
        "a mcar50 unseen": {"vfg": {"seeds": 3}, "miwae": {"seeds": 3}},
        "a mcar30 unseen": {"vfg": {"seeds": 3}},
        "b mcar30 unseen": {"vfg": {"seeds": 2}, "miwae": {"seeds": 1}},
        "california mcar30 unseen": {"vfg": {"seeds": 1}},
        "d mcar30 unseen": {"miwae": {"seeds": 1}},
    }
    told = report.slow({"measures": measured})
    assert "| slow method | contests of 4 | with all seeds of ours | cells of 9 |" in told
    assert "| MIWAE | 2 | 1 | 4 | *california* | a 1 of 2 |" in told
    assert "| HyperImpute | 0 | 0 | 0 | a, b, *california* | – |" in told


def test_the_first_table_of_the_summary_leaves_out_what_flatters_ours():
    project = Path(__file__).parents[2]
    path = project / "docs" / "results" / "imputation.json"
    found = {"imputation": json.loads(path.read_text())}
    shown, aside = (summary.table(found, aside=aside) for aside in (False, True))
    assert "held-back tables, squared error |" in shown
    assert "tuning" not in shown
    assert "effort" not in shown
    assert "tables for tuning, squared error |" in aside
    assert len(shown.splitlines()) + len(aside.splitlines()) == 4 + len(
        list(summary.imputation(found["imputation"]))
    )


def test_the_page_says_whether_the_goal_is_met_and_what_is_lost():
    def held(ratio, outcome):
        return {"vfg": {"ratio": ratio, "outcome": outcome}}

    found = {"a mcar50 in_sample": held(0.8, "win"), "a mnar30 unseen": held(1.25, "loss")}
    told = goals({"contests": found})
    assert "Over all 2 contests of `VFGImputer` the ratio is 1.000" in told
    assert "the ratio is 1.000 (missed), without MNAR 0.800." in told
    assert "goal is missed. Lost are a: MNAR 30 %, unseen rows (1.25)." in told
    told = goals({"contests": found, "held_back": ["b"], "tuning": ["a"]})
    assert "Lost are a (tuning): MNAR 30 %, unseen rows (1.25)." in told
    found |= {"b mcar50 in_sample": held(0.9, "draw")}
    told = goals({"contests": found, "held_back": ["b"], "tuning": ["a"]})
    assert "without MNAR 0.849, and without MNAR on held-back tables alone 0.900." in told
    found |= {"c mar30 unseen": {"vfg": {"ratio": 1.04, "outcome": "draw", "seeds": 1}}}
    single = report.lost_contests({"contests": found}, "contests", single=True)
    assert single == "c: MAR 30 %, unseen rows (1.04)"
    won = goals({"contests": {"a mcar50 in_sample": held(0.8, "win")}})
    assert won.endswith("the ratio is 0.800 (met). None is lost.")
    assert goals({"contests": {}}) == ""


def test_files_of_efforts_are_put_together_and_the_newest_records_count(tmp_path):
    growth = {"rows": 100, "columns": 10, "effort": "fast", "single": 0.01, "per_row": 1e-4}
    growth |= {"fit": 2.0, "interval": 2.5, "draws": 4.0, "again": 3.0}
    old, new = ({"growth": [{**growth, "fit": fit}], "machine": {}} for fit in (9.0, 2.0))
    cost = {"cost": [{"table": "yacht", "seed": 0, "method": "vfg-fast", "seconds": 1.0}]}
    for time, (name, found) in enumerate({"b": old, "a": new, "c": cost}.items()):
        path = tmp_path / name / "effort.json"
        path.parent.mkdir()
        path.write_text(json.dumps(found))
        os.utime(path, (time, time))
    found = effort.collect(tmp_path)
    assert found["growth"] == new["growth"]
    assert found["cost"] == cost["cost"]
    shown = report.effort({**found, "cost": [], "command": "x", "machine": machine()})
    assert "| 100 x 10 | fast | 2 | 10,000 | 10 | 2.5 | 4.0 |" in shown
