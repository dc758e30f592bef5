"""Pictures of filled tables."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from vfg import plots

GENERATOR = np.random.default_rng(0)
TRUTH = pd.DataFrame(
    {
        "n": GENERATOR.normal(5.0, 2.0, size=60),
        "k": np.arange(60),
        "c": pd.Categorical(["low", "mid", "high"] * 20, ["low", "mid", "high"], ordered=True),
        "t": pd.date_range("2020-01-01", periods=60),
    }
)
HIDDEN = GENERATOR.random(TRUTH.shape) < 0.3
GAPS = TRUTH.mask(HIDDEN)


def heights(part):
    return np.asarray(part.get_data().values)


def test_histograms_hold_the_shares_of_observed_and_filled_cells_over_the_same_bins():
    seen, put = plots.distribution(GAPS, TRUTH, "n").patches
    edges = seen.get_data().edges
    assert np.array_equal(edges, put.get_data().edges)
    for part, cells in ((seen, ~HIDDEN[:, 0]), (put, HIDDEN[:, 0])):
        values = TRUTH["n"][cells]
        counts = [((values >= low) & (values < high)).sum() for low, high in pairwise(edges)]
        counts[-1] += (values == edges[-1]).sum()
        np.testing.assert_allclose(heights(part), np.array(counts) / cells.sum())


def test_bars_hold_the_shares_of_categories_in_their_order():
    ax = plots.distribution(GAPS, TRUTH, "c")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["low", "mid", "high"]
    found = [[bar.get_height() for bar in bars] for bars in ax.containers]
    for bars, cells in zip(found, (~HIDDEN[:, 2], HIDDEN[:, 2]), strict=True):
        shares = TRUTH["c"][cells].value_counts(normalize=True)
        np.testing.assert_allclose(bars, [shares[name] for name in ("low", "mid", "high")])


def test_dates_are_drawn_as_dates():
    ax = plots.distribution(GAPS, TRUTH, "t")
    first = pd.Timestamp("1970-01-01") + pd.Timedelta(days=ax.patches[0].get_data().edges[0])
    assert first == TRUTH["t"].min()


def overlaps(ax):
    """Pairs of neighbouring labels of the x axis that touch."""
    ax.figure.canvas.draw()
    boxes = [tick.get_window_extent() for tick in ax.get_xticklabels() if tick.get_text()]
    return [pair for pair in pairwise(boxes) if pair[0].overlaps(pair[1])]


def test_labels_of_small_pictures_do_not_overlap():
    towns = [f"a town by the river, number {k}" for k in range(12)] * 5
    truth = TRUTH.assign(town=towns, short=list("abcdef") * 10)
    gaps = truth.mask(np.column_stack([HIDDEN, HIDDEN[:, :2]]))
    figure = plots.distributions(gaps, truth, ["town", "t", "short", "c"])
    assert not any(map(overlaps, figure.axes))
    town, _, short, _ = figure.axes
    texts = [tick.get_text() for tick in town.get_xticklabels()]
    assert len(set(texts)) == 12
    assert all(0 < len(text) <= 20 for text in texts)
    assert short.get_xticklabels()[0].get_rotation() == 0


def test_a_grid_shows_the_columns_that_have_gaps():
    filled = TRUTH.assign(whole=1.0)
    figure = plots.distributions(GAPS.assign(whole=1.0), filled)
    assert [ax.get_xlabel() for ax in figure.axes] == ["n", "k", "c", "t"]
    figure = plots.distributions(GAPS, TRUTH, ["k", "n"])
    assert [ax.get_xlabel() for ax in figure.axes] == ["k", "n"]


def test_one_column_of_hidden_cells_is_drawn_in_its_own_units_with_intervals():
    filled = TRUTH.assign(n=TRUTH["n"] + 1.0)
    low, high = TRUTH.assign(n=TRUTH["n"] - 2.0), TRUTH.assign(n=TRUTH["n"] + 3.0)
    ax = plots.hidden_cells(TRUTH, filled, HIDDEN, column="n", intervals=(low, high))
    points, bars = ax.collections
    truth = TRUTH["n"][HIDDEN[:, 0]].to_numpy()
    np.testing.assert_allclose(points.get_offsets(), np.column_stack([truth, truth + 1.0]))
    ends = np.array([line[:, 1] for line in bars.get_segments()])
    np.testing.assert_allclose(ends, np.column_stack([truth - 2.0, truth + 3.0]))


def test_all_columns_of_numbers_are_drawn_in_standard_deviations():
    points = plots.hidden_cells(TRUTH, TRUTH, HIDDEN).collections[0].get_offsets()
    numbers = TRUTH.assign(t=(TRUTH["t"] - TRUTH["t"][0]) / pd.Timedelta(days=1)).drop(columns="c")
    scaled = (numbers - numbers.mean()) / numbers.std(ddof=0)
    wanted = [scaled[name][HIDDEN[:, TRUTH.columns.get_loc(name)]] for name in numbers]
    np.testing.assert_allclose(points[:, 0], np.concatenate(wanted), atol=1e-9)
    np.testing.assert_allclose(points[:, 0], points[:, 1])


def test_coverage_of_true_draws_is_the_level():
    rows, n = 4000, 39
    generator = np.random.default_rng(1)
    truth = generator.normal(size=(rows, 1))
    draws = generator.normal(size=(n, rows, 1))
    ax = plots.coverage(truth, draws, np.ones((rows, 1), dtype=bool))
    levels, shares = ax.lines[0].get_data()
    assert levels[-1] == 0.9
    np.testing.assert_allclose(shares, levels, atol=0.03)


def test_coverage_counts_cells_inside_the_middle_draws():
    truth = np.array([[2.0], [0.5], [9.0]])
    draws = [np.full((3, 1), k) for k in (1.0, 2.0, 3.0)]  # at level 0.5 from 1 to 3
    ax = plots.coverage(truth, draws, np.ones((3, 1), dtype=bool), levels=[0.5, 0.9])
    levels, shares = ax.lines[0].get_data()
    assert levels.tolist() == [0.5]  # three draws say nothing about 0.9
    np.testing.assert_allclose(shares, [1 / 3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.distribution(GAPS, TRUTH.head(3), "n"), "must have the shape"),
        (lambda: plots.distribution(GAPS, TRUTH, "q"), "no column 'q'"),
        (lambda: plots.distribution([[None]], [[1.0]], 0), "nothing of column 0"),
        (lambda: plots.distributions(TRUTH, TRUTH), "no column has both"),
        (lambda: plots.hidden_cells(TRUTH, TRUTH, HIDDEN[:3]), "must have the shape"),
        (lambda: plots.hidden_cells(TRUTH, TRUTH, np.zeros_like(HIDDEN)), "no number was hidden"),
        (lambda: plots.coverage(TRUTH, [TRUTH], HIDDEN), "at least 2 draws"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_missing_truth_keeps_the_diagonal():
    truth = np.array([[1.0], [np.nan], [3.0]])
    ax = plots.hidden_cells(truth, np.array([[1.5], [2.0], [2.5]]), np.ones((3, 1)), column=0)
    assert list(ax.lines[0].get_xdata()) == [1.0, 3.0]


def test_names_are_no_formulas():
    frame = pd.DataFrame({"$a_{$": [1.0, None, 2.0], "b": ["$x^$", "y", None]})
    filled = frame.fillna({"$a_{$": 1.5, "b": "y"})
    for figure in (
        plots.missingness(frame).figure,
        plots.distributions(frame, filled),
        plots.distribution(frame, filled, "b").figure,
    ):
        figure.canvas.draw()
