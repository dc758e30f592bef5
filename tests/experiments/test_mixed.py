"""The benchmark of mixed tables: masks, baselines and measures on a table made here."""

import numpy as np
import pandas as pd
import pytest

from experiments.baselines.external import BaselineError
from experiments.benchmarks.mixed import (
    BASELINES,
    HELD_BACK,
    OUTSIDE,
    PATTERNS,
    TUNING,
    average,
    drawn,
    hide,
    neighbours,
    run,
    score,
    summarise,
)
from experiments.cells import Cells
from experiments.report import mixed


@pytest.fixture
def table():
    generator = np.random.default_rng(0)
    group = generator.integers(0, 3, 120)
    return pd.DataFrame(
        {
            "number": group + 0.1 * generator.normal(size=120),
            "count": generator.poisson(3.0, 120).astype(float),
            "group": np.array(["a", "b", "c"], dtype=object)[group],
        }
    ).astype({"group": object})


def test_no_table_is_in_both_halves_or_kept_for_others():
    assert not {*TUNING} & {*HELD_BACK}
    assert len(TUNING) + len(HELD_BACK) >= 12
    files = [file for file, _, _ in (TUNING | HELD_BACK).values()]
    kept = ("Ecdat", "plm", "ggplot2", "psych", "car/", "Boston", "nsw", "cps", "penguins")
    assert not [file for file in files if any(word in file for word in kept)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_hide_observed_cells_as_they_say(table, pattern):
    table.loc[3, "count"] = np.nan
    hidden, fitted = hide(table, pattern, 0)
    assert not hidden[3, 1]
    if pattern in ("unseen", "columns"):
        assert not hidden[fitted].any()
        assert hidden[~fitted].any()
        assert 0.5 < fitted.mean() < 0.9
    else:
        assert fitted.all()
    if pattern == "columns":
        shares = hidden[~fitted].mean(0)
        assert sorted(shares.round(1).tolist()) == [0.0, 0.0, 1.0]
    if pattern == "mar25":
        assert not hidden[:, 0].any(), "the column that decides stays"
        high = (table["number"] > table["number"].median()).to_numpy()
        assert hidden[high, 2].mean() > 2.0 * hidden[~high, 2].mean()
    assert (hide(table, pattern, 0)[0] == hidden).all()


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in OUTSIDE])
def test_baselines_fill_everything_and_keep_what_is_known(table, name):
    hidden, _ = hide(table, "mcar25", 0)
    shown = table.mask(hidden)
    filled, shares = BASELINES[name](shown, 0)
    assert not filled.isna().any().any()
    for column in shown:
        known = shown[column].notna()
        assert (filled[column][known] == shown[column][known]).all()
    own = shares["group"].to_numpy()[hidden[:, 2]]
    assert own.sum(1) == pytest.approx(np.ones(len(own)))
    if name != "average":
        both = hidden[:, 2] & ~hidden[:, 0]
        assert (filled["group"] == table["group"])[both].mean() > 0.9


def test_imputers_of_other_environments_see_numbers_of_categories(table, monkeypatch):
    shown = table.copy()
    shown.loc[:1, ["group", "number"]] = None

    def answer(name, values, unseen, seed, threads, categories):
        assert (name, categories) == ("gcimpute", [2])
        assert sorted({*values[2:, 2]}) == [0.0, 1.0, 2.0]
        draws = np.repeat(np.where(np.isnan(values), 2.0, values)[None], 4, axis=0)
        draws[0, 0, 2] = 1.0
        return {"draws": draws, "point": draws[1] + 0.5}

    monkeypatch.setattr("experiments.benchmarks.mixed.run_external", answer)
    filled, shares = drawn("gcimpute", shown, 0)
    assert filled.loc[:1, "group"].tolist() == ["c", "c"]
    assert filled.loc[:1, "number"].tolist() == [2.5, 2.5]
    assert shares["group"].iloc[0].tolist() == [0.0, 0.25, 0.75]
    pd.testing.assert_frame_equal(filled[2:], table[2:])


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_end_in_time_and_keep_the_keys_of_results(jobs):
    keys = [{"x": k} for k in range(4)]
    found = list(run(keys, double, jobs=jobs, end=np.inf))
    assert sorted(found, key=str) == [({"x": k}, {"twice": 2 * k}) for k in range(4)]
    assert list(run(keys, double, jobs=jobs, end=0.0)) == []
    assert list(run(keys, fail, jobs=jobs, end=np.inf)) == []


def fail(x):
    raise BaselineError("gcimpute ended with status 1: ValueError")


def double(x):
    return {"twice": 2 * x}


def test_gower_takes_the_rows_that_are_nearest():
    table = pd.DataFrame({"a": [0.0, 0.1, 1.0, 0.05], "b": ["x", "x", "y", None]}).astype(
        {"b": object}
    )
    filled, shares = neighbours(table, 0, count=2)
    assert filled["b"][3] == "x"
    assert shares["b"].iloc[3].tolist() == [1.0, 0.0]


def test_scores_are_those_of_hand(table):
    hidden = np.zeros(table.shape, dtype=bool)
    hidden[:2] = True
    filled, shares = average(table, 0)
    filled = filled.copy()
    filled.loc[:1, "number"] = table.loc[:1, "number"] + table["number"].std(ddof=0)
    filled.loc[:1, "count"] = table.loc[:1, "count"] + 0.4
    filled.loc[0, "group"], filled.loc[1, "group"] = table["group"][0], "none"
    found = score(table, hidden, filled, shares)
    assert found["columns"]["number"] == pytest.approx({"mse": 1.0, "mae": 1.0})
    assert found["columns"]["count"]["hits"] == 1.0
    assert found["error"] == 0.5
    chances = [shares["group"][table["group"][k]][0] for k in range(2)]
    assert found["log"] == pytest.approx(-np.log(chances).mean())
    assert found["cells"] == 2, "of categories"
    assert found["sets"] == 1.0, "a set of 90 % needs all three categories"


def test_the_page_names_the_best_baseline_of_every_table():
    cells = Cells(None)
    for seed, method, error in (
        (0, "vfg", 0.2),
        (0, "average", 0.5),
        (0, "gower", 0.4),
        (1, "vfg", 9),
    ):
        key = {"table": "quine", "pattern": "mcar25", "seed": seed, "method": method}
        cells.add(key, {"mse": error, "error": error, "log": error, "seconds": 1.0})
    groups = summarise(cells)
    assert groups["quine mcar25"]["vfg"] == {
        "mse": 0.2, "error": 0.2, "log": 0.2, "seconds": 1.0, "seeds": 1
    }  # fmt: skip
    found = {"tuning": [], "held_back": ["quine"], "groups": groups}
    assert mixed.contests(found, "held_back", "mcar25")["quine"]["mse"] == (0.5, "gower")
    assert "0.500, worst 0.50, 1 of 1 below 1" in mixed.summary(found)
    assert mixed.sets_in_words(found) == ""


def test_methods_with_fewer_seeds_are_compared_there():
    cells = Cells(None)
    for seed, method, error in (
        (0, "vfg", 0.2), (1, "vfg", 0.6), (0, "average", 0.5), (1, "average", 0.5),
        (0, "gcimpute", 0.1),
    ):  # fmt: skip
        key = {"table": "quine", "pattern": "mcar25", "seed": seed, "method": method}
        cells.add(key, {"mse": error, "error": error, "log": error, "seconds": 1.0})
    found = {"held_back": ["quine"], "groups": summarise(cells)}
    assert found["groups"]["quine mcar25"]["vfg"]["mse"] == 0.4
    contest = mixed.contests(found, "held_back", "mcar25")["quine"]["mse"]
    assert contest == (pytest.approx(2.0), "gcimpute"), "0.2 next to 0.1 at the seed of both"


def test_the_page_says_how_often_sets_hold_the_truth():
    shares = {"pbc": 0.9, "quine": 0.8}
    groups = {f"{name} mcar25": {"vfg": {"sets": share}} for name, share in shares.items()}
    words = mixed.sets_in_words({"held_back": [*shares, "crabs"], "groups": groups})
    assert words.startswith("Sets of 90 % hold 0.80 to 0.90 of the cells on the 2 tables")
    assert "0.850 on average; on 1 of them 0.88 to 0.93" in words
    assert "By chance" not in words, "earlier cells do not say how many there are"
    groups["pbc mcar25"]["vfg"] |= {"cells": 150, "seeds": 3}
    words = mixed.sets_in_words({"held_back": [*shares], "groups": groups})
    assert words.endswith("standard deviations of 0.014 to 0.014.")


def test_lost_tables_are_named_with_the_measure_and_the_best_baseline():
    groups = {
        "a mcar25": {
            "vfg": {"seeds": 3, "mse": 1.1, "error": 0.2},
            "gower": {"seeds": 3, "mse": 1.0, "error": 0.3},
        },
        "b mcar25": {"vfg": {"seeds": 3, "mse": 1.01}, "average": {"seeds": 3, "mse": 1.0}},
    }
    found = {"held_back": ["a", "b"], "tuning": [], "groups": groups}
    assert mixed.lost(found) == "squared error: a (1.10, gower)"
    assert mixed.lost({**found, "held_back": ["b"]}) == "none"


def test_lines_count_the_baselines_of_every_table_and_the_seeds_of_the_best():
    ours = {"seeds": 3, "mse": 1.0, "seconds": 2.0}
    groups = {
        "a mcar25": {
            "vfg": ours,
            "gower": {"seeds": 3, "mse": 2.0, "seconds": 1.0},
            "average": {"seeds": 3, "mse": 4.0, "seconds": 1.0},
        },
        "b mcar25": {
            "vfg": ours,
            "gcimpute": {"seeds": 1, "mse": 2.0, "seconds": 1.0, "vfg": ours},
        },
    }
    found = {"held_back": ["a", "b"], "tuning": [], "groups": groups}
    (line,) = mixed.lines(found)
    assert line[4:] == ["2 / 0 / 0", "2x", "1 to 2, 3 in 1 of 2"]
    assert "| kept back | mcar25 | 2 | 1 to 2 | 3 | 0.500" in mixed.summary(found)


def test_tables_are_counted_that_were_measured():
    methods = {name: {"mse": 1.0, "seeds": 1} for name in ("vfg", "gower")}
    found = {"held_back": ["a", "b"], "tuning": ["c", "d"], "groups": {"a mcar25": methods}}
    assert mixed.counted(found) == " on 1 table kept back"
    found["groups"]["d mcar25"] = methods
    assert mixed.counted(found) == " on 1 table kept back and 1 for tuning"
    assert mixed.counted({**found, "groups": {}}) == ""
