"""Rows far outside the data: fills follow what holds there, and lie in their intervals."""

import numpy as np
import pandas as pd
import pytest
import torch

import vfg
from vfg.imputation.extrapolation import fit_following, predict_from_others
from vfg.imputation.parts import KINDS
from vfg.sklearn import VFGImputer

pytestmark = pytest.mark.filterwarnings("ignore:the evidence has")
FAR = (120.0, 90.0, -60.0)


def make_table(kind: str) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a = rng.uniform(0.0, 60.0, 300)
    shapes = {
        "line": 1.2 * a - 30.0 + rng.normal(0.0, 4.0, 300),
        "saturation": 60.0 * (1.0 - np.exp(-a / 15.0)) + rng.normal(0.0, 1.0, 300),
    }
    table = pd.DataFrame({"a": a, "b": shapes[kind]})
    return table.mask(rng.random(table.shape) < 0.15)


def rows_far_outside(where=FAR) -> pd.DataFrame:
    return pd.DataFrame({"a": list(where), "b": np.nan})


def sorted_rows(kind: str, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the order of their first column: the first 70 %, and the others."""
    rng = np.random.default_rng(1)
    x, noise = np.sort(rng.standard_normal(rows)), rng.standard_normal(rows)
    y = {
        "line": 2.0 * x + 0.3 * noise,
        "share": 1.0 / (1.0 + np.exp(-4.0 * x - 0.3 * noise)),
        "heavy": 0.5 * x + 0.5 * rng.standard_t(2.0, rows),
    }
    table = np.column_stack([x, y[kind]])
    cut = round(0.7 * rows)
    return table[:cut], table[cut:]


@pytest.fixture(scope="module", params=["line", "saturation"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def table(kind):
    return make_table(kind)


@pytest.fixture(scope="module", params=[{"bend": False}, {"effort": "fast"}], ids=["linear", "all"])
def options(request):
    return request.param


@pytest.fixture(scope="module")
def imputer(options, table):
    return VFGImputer(random_state=0, **options).fit(table)


@pytest.mark.parametrize("estimate", ["mean", "median"])
def test_intervals_contain_what_is_filled_in(imputer, estimate):
    asked = imputer.set_params(estimate=estimate)
    filled = asked.transform(rows_far_outside())["b"]
    low, high = (ends["b"] for ends in asked.predict_interval(rows_far_outside()))
    imputer.set_params(estimate="mean")
    assert (low <= filled).all()
    assert (filled <= high).all()


def test_fills_leave_the_range_along_a_line_and_by_one_width_at_most(imputer, table, kind):
    low, high = table["b"].min(), table["b"].max()
    line = np.clip(1.2 * np.array(FAR) - 30.0, 2.0 * low - high, 2.0 * high - low)
    for estimate in ("mean", "median"):
        filled = imputer.set_params(estimate=estimate).transform(rows_far_outside())["b"]
        assert filled.between(2.0 * low - high, 2.0 * high - low).all()
        if kind == "line":
            np.testing.assert_allclose(filled, line, atol=15.0)
        else:
            assert filled[:2].max() <= high + 1e-9  # where it is flat; at -60 it is steep
    imputer.set_params(estimate="mean")


def test_rows_within_the_data_draw_as_before(imputer):
    """The same rows, alone and beside rows far outside, have the same bits."""
    inside = rows_far_outside([10.0, 30.0, 50.0])
    alone = imputer.predict_interval(inside)
    together = imputer.predict_interval(pd.concat([inside, rows_far_outside()]))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one["b"], other["b"][:3])


def test_the_last_rows_of_a_sorted_line_are_filled_along_it(options):
    fitted, others = sorted_rows("line")
    imputer = VFGImputer(random_state=0, **options).fit(fitted)
    gaps = np.column_stack([others[:, 0], np.full(len(others), np.nan)])
    filled, drawn = imputer.transform(gaps)[:, 1], imputer.sample(gaps, 20, proper=False)[..., 1]
    # The noise alone has 0.09; fills within the observed range had 2 and more.
    assert np.square(filled - others[:, 1]).mean() < 0.2
    assert np.square(drawn.mean(0) - filled).mean() < 0.05
    low, high = (ends[:, 1] for ends in imputer.predict_interval(gaps))
    assert ((low <= others[:, 1]) & (others[:, 1] <= high)).mean() > 0.8


def test_a_bounded_column_stays_bounded(options):
    table = np.random.default_rng(0).permutation(np.concatenate(sorted_rows("share")))
    imputer = VFGImputer(random_state=0, **options).fit(table)
    gaps = np.array([[-9.0, np.nan], [9.0, np.nan]])
    filled, (low, high) = imputer.transform(gaps)[:, 1], imputer.predict_interval(gaps)
    ends = table[:, 1].min(), table[:, 1].max()
    assert ends[0] - 1e-9 <= filled[0] < 0.1
    assert 0.9 < filled[1] <= ends[1] + 1e-9
    assert low[:, 1].min() >= 0.0
    assert high[:, 1].max() <= 1.05


def test_bounds_that_are_given_are_kept_on_a_line(options):
    fitted, _ = sorted_rows("line")
    imputer = VFGImputer(random_state=0, bounds={1: (None, 2.0)}, **options).fit(fitted)
    assert imputer.transform(np.array([[3.0, np.nan]]))[0, 1] <= 2.0


def test_heavy_tails_are_filled_no_worse_than_with_means(options):
    fitted, others = sorted_rows("heavy")
    gaps = np.column_stack([others[:, 0], np.full(len(others), np.nan)])
    filled = VFGImputer(random_state=0, **options).fit(fitted).transform(gaps)[:, 1]
    errors = np.square(filled - others[:, 1]).mean()
    assert errors < np.square(fitted[:, 1].mean() - others[:, 1]).mean()


def test_models_that_are_saved_fill_far_rows_alike(imputer, tmp_path):
    file = tmp_path / "model.vfg"
    vfg.save(imputer.model_, file)
    again = vfg.load(file).fill(rows_far_outside())
    pd.testing.assert_frame_equal(again, imputer.transform(rows_far_outside()))


def test_predictions_from_others_are_those_of_hidden_cells():
    generator = torch.Generator().manual_seed(0)
    model = vfg.GaussianVFG(vfg.Graph.star({f"x{k}": 1 for k in range(4)}, width=2))
    loadings = torch.randn(2, 4, generator=generator)
    table = (torch.randn(200, 2, generator=generator) @ loadings).double()
    table = 3.0 + table + 0.1 * torch.randn(200, 4, generator=generator).double()
    vfg.fit(model, table)
    observed = torch.rand(200, 4, generator=generator) > 0.2
    predicted = predict_from_others(model, table, observed)
    for column in range(4):
        shown = observed.clone()
        shown[:, column] = False
        hidden = torch.cat(list(model.infer(table, observed=shown).mean.values()), dim=1)
        rows = observed[:, column]
        torch.testing.assert_close(predicted[rows, column], hidden[rows, column].double())
    follows, _ = fit_following(model, table, observed, torch.zeros(4, dtype=torch.bool))
    assert float(follows.min()) > 0.8


def positive_line(noise: float, sign: float, rows: int = 500) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    x = generator.uniform(0.0, 10.0, rows)
    y = 2.0 * x + 1.0 + 2.0 * (noise > 0.0) + noise * generator.standard_normal(rows)
    return pd.DataFrame({"x": x, "y": sign * y, "z": generator.standard_normal(rows)})


LINES = pytest.mark.parametrize(
    ("effort", "sign"),
    [
        ("fast", 1.0),
        ("fast", -1.0),
        pytest.param("balanced", 1.0, marks=pytest.mark.slow),
        ("balanced", -1.0),
    ],
)
"""Both directions at both efforts; of the longer fits, one is fast enough for every run."""


@LINES
def test_exact_lines_are_followed_beyond_zero_and_any_distance(effort, sign):
    imputer = VFGImputer(random_state=0, effort=effort).fit(positive_line(0.0, sign))
    where = np.array([-1000.0, -5.0, 5.0, 100.0, 1e4])
    rows = pd.DataFrame({"x": where, "y": np.nan, "z": 0.0})
    truth = sign * (2.0 * where + 1.0)
    np.testing.assert_allclose(imputer.transform(rows)["y"], truth, rtol=1e-6)
    for ends in imputer.predict_interval(rows):
        np.testing.assert_allclose(ends["y"], truth, rtol=1e-6)
    answer = imputer.model_.infer({"x": -5.0, "z": 0.0}, targets=["y"])
    np.testing.assert_allclose(answer.mean["y"], sign * -9.0, rtol=1e-6)


@LINES
def test_noisy_lines_are_followed_beyond_zero_with_intervals_that_hold_them(effort, sign):
    imputer = VFGImputer(random_state=0, effort=effort).fit(positive_line(0.3, sign))
    where = np.array([-100.0, -5.0, -3.0, 12.0, 20.0, 100.0])
    rows, truth = pd.DataFrame({"x": where, "y": np.nan, "z": 0.0}), sign * (2.0 * where + 3.0)
    filled = imputer.transform(rows)["y"].to_numpy()
    low, high = (ends["y"].to_numpy() for ends in imputer.predict_interval(rows))
    np.testing.assert_allclose(filled[1:5], truth[1:5], atol=1.5)
    assert (low <= truth).all()
    assert (truth <= high).all()
    widths = (high - low)[[3, 4, 5]]
    assert (np.diff(widths) > 0.0).all()
    # Draws of rows within the data keep the sign that all cells have.
    near = pd.DataFrame({"x": [0.05] * 40, "y": np.nan, "z": 0.0})
    drawn = imputer.sample(near, 20, proper=False)
    assert min(float((sign * one["y"]).min()) for one in drawn) >= 0.0
    for x in where.tolist():
        answer = imputer.model_.infer({"x": x, "z": 0.0}, targets=["y"])
        least, greatest = (ends[0] for ends in answer.quantile([0.05, 0.95])["y"])
        assert least <= answer.mean["y"][0] <= greatest


def test_proper_draws_of_far_rows_lie_about_the_line():
    imputer = VFGImputer(random_state=0, effort="fast").fit(positive_line(0.3, 1.0))
    rows = pd.DataFrame({"x": [-5.0] * 20, "y": np.nan, "z": 0.0})
    drawn = np.concatenate([one["y"] for one in imputer.sample(rows, 5)])
    assert abs(drawn.mean() + 7.0) < 1.0


def test_positive_columns_that_bend_at_zero_stay_positive():
    generator = np.random.default_rng(0)
    x = generator.standard_normal(500)
    y = np.exp(0.8 * x + 0.3 * generator.standard_normal(500))
    table = pd.DataFrame({"x": x, "y": y, "z": generator.standard_normal(500)})
    imputer = VFGImputer(random_state=0, effort="fast").fit(table)
    rows = pd.DataFrame({"x": [-3.0, -6.0, -20.0], "y": np.nan, "z": 0.0})
    low, _ = imputer.predict_interval(rows)
    assert (imputer.transform(rows)["y"] >= 0.0).all()
    assert (low["y"] >= 0.0).all()


def test_bounds_hold_on_exact_lines():
    imputer = VFGImputer(random_state=0, effort="fast", bounds={"y": (0.0, None)})
    imputer.fit(positive_line(0.0, 1.0))
    rows = pd.DataFrame({"x": [-5.0], "y": np.nan, "z": 0.0})
    assert imputer.transform(rows)["y"][0] == 0.0


def test_columns_with_far_outliers_see_no_further():
    table = positive_line(0.3, 1.0)
    table.loc[:4, "x"] = -9999.0
    imputer = VFGImputer(random_state=0, effort="fast").fit(table)
    part = imputer.model_.encoding.parts["x"]
    assert part.furthest <= 20.0
    assert positive_line_sees_further()


def positive_line_sees_further() -> bool:
    imputer = VFGImputer(random_state=0, effort="fast").fit(positive_line(0.3, 1.0))
    return imputer.model_.encoding.parts["x"].furthest == 100.0


def test_curves_do_not_turn_back_beyond_the_last_row():
    """Nor does a parabola, whose linear model is level."""
    random, t = np.random.default_rng(0), np.arange(300.0)
    ends = np.array([290.0, 299.0, 305.0, 320.0, 400.0, 600.0])
    curves = {
        "growth": (t, np.exp(t / 75.0), ends),
        "parabola": ((t - 150.0) / 50.0, np.square((t - 150.0) / 50.0), (ends - 150.0) / 50.0),
    }
    for x, y, where in curves.values():
        table = np.column_stack([x, np.where(random.random(300) < 0.1, np.nan, y)])
        imputer = VFGImputer(effort="fast", random_state=0).fit(table)
        rows = np.column_stack([where, np.full(len(where), np.nan)])
        filled = imputer.transform(rows)[:, 1]
        assert bool((np.diff(filled) > -0.02 * y.max()).all()), filled
        assert bool((filled[2:] > 0.95 * y.max()).all()), filled


def test_curves_that_level_off_stay_level():
    """The line goes on below all values, but no further than it is followed."""
    random, t = np.random.default_rng(1), np.linspace(0.0, 1.0, 400)
    y = 10.0 * np.exp(-5.0 * t + 0.05 * random.normal(size=400))
    table = np.column_stack([t, y, random.normal(size=400)])
    known, later = table[:320], table[320:].copy()
    later[:, 1] = np.nan
    filled = VFGImputer(random_state=0).fit(known).transform(later)[:, 1]
    assert bool((np.abs(filled - known[-20:, 1].mean()) < 0.3).all()), filled


def test_the_linear_part_is_not_cut_off_in_rows_a_little_outside():
    """Their distance is still usual, so that they are filled by the ensemble."""
    imputer = VFGImputer(effort="fast", random_state=0).fit(sorted_rows("line")[0])
    model = imputer.model_
    means, nothing = torch.zeros(1, 2, dtype=torch.float64), torch.zeros(1, 1)
    expected = {"linear": means, "beyond": means + 0.5, "distances": nothing}
    share = float(model.weights[KINDS.index("linear")] * model.factors[0])
    moved = model.towards_linear(means, expected)
    assert share > 0.1
    assert float(moved[0, 0]) == pytest.approx(0.5 * share)
    model.held_levels = None  # as in files of earlier versions
    assert float(model.towards_linear(means, expected)[0, 0]) == 0.0


@pytest.mark.parametrize(("near", "expected"), [(0.5, 2.3 + 0.4), (9.0, 0.4)])
def test_levels_are_held_by_rows_that_are_usual_but_for_their_ranges(near, expected):
    """By hand: the linear mean is 0.4; the level is 2.4, where the line was at 0.1."""
    model = VFGImputer(effort="fast", random_state=0).fit(sorted_rows("line")[0]).model_
    one = torch.ones(1, 2, dtype=torch.float64)
    model.held_levels, model.trust = one[0], 1e-9 * one[0]
    model.weights.data[:] = 0.0
    model.usual_distance = torch.tensor(1.0, dtype=torch.float64)
    expectations = {
        "linear": 0.4 * one,
        "beyond": 0.0 * one,
        "distances": 9.0 * one[:, :1],
        "inside": 0.1 * one,
        "near": near * one[:, :1],
    }
    moved = model.towards_linear(2.4 * one, expectations)
    inner = model.within_widest_range(torch.full((1, 2), expected, dtype=torch.float64))
    torch.testing.assert_close(moved, inner)


def test_rows_within_all_ranges_are_filled_as_without_levels(tmp_path):
    a = np.random.default_rng(0).uniform(-3.0, 3.0, 300)
    imputer = VFGImputer(effort="fast", random_state=0).fit(np.column_stack([a, np.square(a)]))
    rows = np.column_stack([[-2.0, 0.0, 2.9, 4.0], np.full(4, np.nan)])
    before = imputer.transform(rows)[:, 1]
    vfg.save(imputer.model_, tmp_path / "table.vfg")
    again = vfg.load(tmp_path / "table.vfg")
    assert torch.equal(again.held_levels, imputer.model_.held_levels)
    imputer.model_.held_levels = None  # as in files of earlier versions
    after = imputer.transform(rows)[:, 1]
    assert bool((before[:3] == after[:3]).all())
    assert before[3] > 8.5 > 5.0 > after[3]
