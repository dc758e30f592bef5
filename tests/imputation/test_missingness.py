"""Why cells are missing: against known mechanisms, quadrature and Bayes' rule by enumeration."""

import numpy as np
import pandas as pd
import pytest
import torch
from imputation.mixed_tables import light, linear, numbers
from scipy.special import expit
from sklearn.base import clone

import vfg
from vfg import plots
from vfg.data import mar, mcar, mnar_self
from vfg.gaussian.conditional_means import ExactMeans
from vfg.imputation import missingness
from vfg.imputation.missing_cells import MissingCells
from vfg.imputation.missingness import (
    FURTHEST,
    WIDENING,
    _chances,
    describe_mechanism,
    find_mechanism,
    tilt_by_rows,
)
from vfg.imputation.mixtures import fit_linear, star
from vfg.sklearn import VFGImputer


def correlated(rows=600, columns=5, seed=0):
    generator = np.random.default_rng(seed)
    factor = generator.normal(size=(rows, 2))
    loadings = generator.normal(size=(2, columns))
    table = factor @ loadings + 0.6 * generator.normal(size=(rows, columns))
    return table / table.std(0)


def blocks(table, seed):
    """The first columns of some rows, all at once."""
    mask = np.zeros(table.shape, dtype=bool)
    mask[np.random.default_rng(seed).random(len(table)) < 0.3, :3] = True
    return mask


def other_tail(table, seed):
    return mnar_self(-table, 0.3, seed)


MECHANISMS = {
    "completely at random": lambda table, seed: mcar(table.shape, 0.3, seed),
    "at random": lambda table, seed: mar(table, 0.3, seed),
    "blocks": blocks,
    "large values": lambda table, seed: mnar_self(table, 0.3, seed),
    "small values": other_tail,
}


def find(table, missing, **options):
    values = torch.from_numpy(np.where(missing, 0.0, table))
    observed = torch.from_numpy(~missing)
    model = fit_linear(star([1] * table.shape[1], 8), values, observed, 0)
    no_order = torch.zeros(table.shape[1], dtype=torch.bool)
    return find_mechanism(model, values, observed, no_order, **options)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["completely at random", "at random", "blocks"])
def test_cells_that_hide_nothing_are_filled_as_before(name, seed):
    table = correlated(seed=seed)
    missing = MECHANISMS[name](table, seed)
    assert find(table, missing).slopes is None


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("name", "slope"), [("large values", 1.0), ("small values", -1.0)])
def test_the_slope_of_cells_missing_by_their_value_is_found(name, slope, seed):
    table = correlated(rows=2000, seed=seed)
    slopes = find(table, MECHANISMS[name](table, seed)).slopes
    assert slopes is not None
    # What is missing is a little less than what the table's own deviations would show.
    assert slopes.median() == pytest.approx(slope, abs=0.3)


def test_columns_that_are_never_missing_have_no_slope():
    table = correlated(rows=1000)
    missing = mnar_self(table, 0.3, 0)
    missing[:, 2] = False
    slopes = find(table, missing, assumed="self").slopes
    assert slopes[2] == 0.0
    assert (slopes[[0, 1, 3, 4]] != 0.0).all()


def test_nothing_is_found_in_a_table_without_missing_cells():
    table = correlated(rows=100)
    assert find(table, np.zeros(table.shape, dtype=bool), assumed="self").slopes is None


def exact_model():
    table = correlated(rows=300, columns=3)
    every = torch.ones(table.shape, dtype=torch.bool)
    values = torch.from_numpy(table)
    return fit_linear(star([1] * 3, 8), values, every, 0), values


@pytest.mark.parametrize("missing", [[0], [0, 2], [0, 1, 2]])
def test_the_tilt_of_a_normal_is_that_of_bayes_rule(missing):
    model, values = exact_model()
    observed = torch.ones(1, 3, dtype=torch.bool)
    observed[:, missing] = False
    slopes = torch.tensor([0.5, 0.3, -0.4], dtype=torch.float64)
    row = values[:1]
    names = [list(model.variables)[k] for k in missing]
    covariance = model.infer(row, names, observed=observed).covariance(names)[0].numpy()
    drawn = np.random.default_rng(0).multivariate_normal(0.0 * covariance[0], covariance, 200_000)
    weights = np.exp(drawn @ slopes.numpy()[missing])
    tilt = tilt_by_rows(ExactMeans(model), row, observed, slopes, None)
    expected = weights @ drawn / weights.sum()
    assert tilt.shift[0, missing].numpy() == pytest.approx(expected, abs=0.02)
    assert (tilt.shift[observed] == 0.0).all()


def test_covariances_times_vectors_are_those_of_the_answer():
    generator = np.random.default_rng(0)
    model, values = exact_model()
    observed = torch.from_numpy(generator.random((40, 3)) < 0.5)
    vectors = torch.from_numpy(generator.normal(size=(40, 3)))
    names = list(model.variables)
    for row in range(40):
        absent = (~observed[row]).nonzero()[:, 0].tolist()
        if not absent:
            continue
        chosen = [names[k] for k in absent]
        answer = model.infer(values[row : row + 1], chosen, observed=observed[row : row + 1])
        covariance = answer.covariance(chosen)[0]
        result = ExactMeans(model).times_covariance(observed, vectors)[row, absent]
        assert result.numpy() == pytest.approx((covariance @ vectors[row, absent]).numpy())


def test_draws_are_tilted_by_their_weights_and_keep_their_ranks():
    model, values = exact_model()
    observed = torch.tensor([[True, False, True]])
    slopes = torch.tensor([0.0, 0.3, 0.0], dtype=torch.float64)
    draws = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=(400, 1, 3)))
    tilt = tilt_by_rows(ExactMeans(model), values[:1], observed, slopes, draws)
    own = draws[:, 0, 1].numpy()
    weights = np.exp(0.3 * own) / np.exp(0.3 * own).sum()
    assert tilt.shift[0, 1] == pytest.approx((weights * own).sum() - own.mean(), rel=1e-6)
    moved = tilt(draws)
    assert torch.equal(moved[..., [0, 2]], draws[..., [0, 2]])
    assert (np.diff(moved[:, 0, 1].numpy()[np.argsort(own)]) >= 0.0).all()
    centre = (weights * own).sum()
    variance = (weights * (own - centre) ** 2).sum()
    assert moved[:, 0, 1].std() == pytest.approx(WIDENING * np.sqrt(variance), rel=0.05)


def test_rows_with_many_missing_cells_do_not_move_without_bound():
    model, values = exact_model()
    observed = torch.zeros(1, 3, dtype=torch.bool)
    slopes = torch.full((3,), 3.0, dtype=torch.float64)
    tilt = tilt_by_rows(ExactMeans(model), values[:1], observed, slopes, None)
    names = list(model.variables)
    covariance = model.infer(values[:1], names, observed=observed).covariance(names)[0].numpy()
    distance = np.sqrt(tilt.shift[0].numpy() @ np.linalg.solve(covariance, tilt.shift[0].numpy()))
    assert distance == pytest.approx(FURTHEST, rel=0.05)


@pytest.fixture(scope="module")
def hidden_by_value():
    table = correlated(rows=500, seed=3)
    return table, np.where(mnar_self(table, 0.3, 3), np.nan, table)


@pytest.fixture(scope="module", params=[light, linear])
def tilted(request, hidden_by_value):
    """An imputer of a table whose large values hide themselves."""
    return request.param().fit(hidden_by_value[1])


def test_errors_fall_and_intervals_hold_more_where_values_hide_themselves(tilted, hidden_by_value):
    truth, table = hidden_by_value
    missing = np.isnan(table)
    plain = clone(tilted).set_params(missingness="ignorable").fit(table)
    errors, held = {}, {}
    for name, imputer in (("ignorable", plain), ("auto", tilted)):
        errors[name] = np.mean((imputer.transform(table) - truth)[missing] ** 2)
        low, high = imputer.predict_interval(table)
        held[name] = np.mean(((low <= truth) & (truth <= high))[missing])
    assert errors["auto"] < 0.8 * errors["ignorable"]
    assert held["auto"] > max(0.85, held["ignorable"])


@pytest.mark.parametrize("make", [light, linear])
def test_answers_without_evidence_of_a_mechanism_have_the_same_bits(make):
    table = correlated(rows=200)
    table[mcar(table.shape, 0.3, 0)] = np.nan
    first, second = (make().set_params(missingness=m).fit(table) for m in ("ignorable", "auto"))
    assert np.array_equal(first.transform(table), second.transform(table))
    assert np.array_equal(first.sample(table, 2), second.sample(table, 2))


def test_model_files_keep_the_mechanism(tilted, hidden_by_value, tmp_path):
    _, table = hidden_by_value
    imputer = tilted
    assert imputer.model_.slopes is not None
    vfg.save(imputer, tmp_path / "m.vfg")
    loaded = vfg.load(tmp_path / "m.vfg")
    assert np.array_equal(loaded.fill(table), imputer.transform(table))
    assert loaded.describe_missingness() == imputer.describe_missingness()
    assert "large values are missing more often" in loaded.describe_missingness()


def test_rows_do_not_influence_each_other(tilted, hidden_by_value):
    _, table = hidden_by_value
    whole = tilted.transform(table)
    assert np.array_equal(tilted.transform(table[:37]), whole[:37])
    few = tilted.sample(table, 2)
    assert np.array_equal(tilted.sample(table, 3)[:2], few)


def test_questions_are_not_tilted(hidden_by_value):
    _, table = hidden_by_value
    imputer = linear().fit(table)
    plain = linear().set_params(missingness="ignorable").fit(table)
    plain.model_.following = None  # a model of missingness leaves ranges by its tilt alone
    answers = [one.model_.infer(table).mean for one in (imputer, plain)]
    for name in answers[0]:
        assert np.array_equal(answers[0][name], answers[1][name])
    assert not np.array_equal(imputer.transform(table), plain.transform(table))


def test_only_ordered_columns_are_tilted():
    generator = np.random.default_rng(0)
    table = correlated(rows=500, columns=4)
    frame = {f"x{k}": np.where(generator.random(500) < expit(table[:, k] - 1.0), np.nan,
             table[:, k]) for k in range(4)}  # fmt: skip
    frame["kind"] = np.where(table[:, 0] > 0, "high", "low").astype(object)
    frame["kind"][generator.random(500) < 0.2] = None
    imputer = linear().set_params(missingness="self").fit(frame)
    cells = MissingCells(imputer.model_, imputer._table(frame, reset=False))
    assert (imputer.model_.slopes[imputer.model_.unordered] == 0.0).all()
    assert set(imputer.transform(frame)["kind"]) == {"high", "low"}
    assert cells.tilt is not None


def test_the_settings_refuse_other_mechanisms():
    with pytest.raises(ValueError, match="missingness must be one of 'auto', 'ignorable', 'self'"):
        VFGImputer(missingness="mnar").fit([[1.0, 2.0], [2.0, 3.0]])


def test_sensitivity_moves_missing_cells_and_what_follows_from_them(straight):
    table = numbers()[1]
    missing = np.isnan(table)

    def mean_of_first(filled):
        return filled[:, 0].mean(), filled[:, 0].var(ddof=1) / len(filled)

    result = straight.sensitivity(table, [-0.2, 0.0, 0.2], statistic=mean_of_first, n=5)
    absent = np.flatnonzero(missing.any(0))
    assert result.columns == tuple(absent.tolist())
    filled = straight.transform(table)
    low, high = straight.predict_interval(table, 0.9)
    for place, column in enumerate(absent):
        rows = missing[:, column]
        assert result.filled[1, place] == pytest.approx(filled[rows, column].mean())
        assert result.means[1, place] == pytest.approx(filled[:, column].mean())
        assert result.low[1, place] == pytest.approx(low[rows, column].mean())
        assert result.high[1, place] == pytest.approx(high[rows, column].mean())
        change = result.means[2, place] - result.means[0, place]
        step = 0.4 * np.nanstd(table[:, column]) * rows.mean()
        assert 0.5 * step < change < 1.05 * step  # less where bounds are reached
    estimates = [float(one.estimate[0]) for one in result.pooled]
    assert estimates == sorted(estimates)
    assert estimates[0] < estimates[2]
    axes = plots.sensitivity(result)
    assert len(axes.lines) == len(absent) + 1


@pytest.mark.parametrize("delta", [[], ["a"], [np.nan], None, [True], [0.5, True]])
def test_sensitivity_refuses_shifts_that_are_no_numbers(delta, straight):
    with pytest.raises(ValueError, match="delta must be finite numbers"):
        straight.sensitivity(numbers()[1], delta)


def test_sensitivity_needs_a_function_and_its_picture_a_result(straight):
    with pytest.raises(TypeError, match=r"^statistic must be a function .*, or None, but is 3$"):
        straight.sensitivity(numbers()[1], statistic=3)
    expected = r"^result must be what VFGImputer.sensitivity returns, but is None$"
    with pytest.raises(TypeError, match=expected):
        plots.sensitivity(None)


def test_sensitivity_needs_missing_numbers(straight):
    with pytest.raises(ValueError, match="has no missing numbers"):
        straight.sensitivity(np.nan_to_num(numbers()[1]), [0.0])


@pytest.mark.parametrize("seed", range(4))
def test_one_column_that_drives_all_others_is_no_mechanism_of_their_own(seed):
    generator = np.random.default_rng(seed)
    table = generator.multivariate_normal(np.zeros(5), 0.5 + 0.5 * np.eye(5), 300)
    missing = generator.random(table.shape) < expit(table[:, :1] - 0.4)
    missing[:, 0] = False
    found = find(table, missing)
    assert found.slopes is None


def test_columns_that_do_not_hide_themselves_keep_nearly_no_slope():
    table = correlated(rows=2000, columns=6, seed=1)
    missing = mcar(table.shape, 0.3, 0)
    missing[:, :4] = mnar_self(table[:, :4], 0.3, 0)
    slopes = find(table, missing).slopes
    assert (slopes[:4] > 0.5).all()
    assert (slopes[4:].abs() < 0.1).all()


def exchangeable(rows, seed, columns=5, correlation=0.6):
    covariance = correlation + (1.0 - correlation) * np.eye(columns)
    return np.random.default_rng(seed).multivariate_normal(np.zeros(columns), covariance, rows)


def by_logits(logits, seed):
    """Missing cells of the first column."""
    missing = np.zeros((len(logits), 5), dtype=bool)
    missing[:, 0] = np.random.default_rng([seed, 1]).random(len(logits)) < expit(logits - 1.0)
    return missing


@pytest.mark.parametrize("seed", range(3))
def test_one_column_that_hides_itself_is_told_from_one_that_others_hide(seed):
    table = exchangeable(1500, seed)
    found = find(table, by_logits(1.5 * table[:, 0], seed)).slopes
    assert found is not None
    assert 0.7 < found[0] < 2.3
    assert (found[1:] == 0.0).all()
    for logits in (1.5 * table[:, 1], table[:, 1] - table[:, 2]):
        assert find(table, by_logits(logits, seed)).slopes is None


def test_own_values_must_explain_more_than_one_column_that_drives_the_others():
    """In small tables of the two kinds, a margin that is too small or too large is noticed."""
    for seed in (76, 87):  # where slopes that are alike explain a little more than the driver
        table = exchangeable(100, seed)
        missing = np.random.default_rng([seed, 3]).random(table.shape) < expit(
            1.5 * table[:, :1] - 1.0
        )
        missing[:, 0] = False
        assert find(table, missing).slopes is None
    for seed in range(5):
        table = exchangeable(300, seed)
        missing = np.random.default_rng([seed, 3]).random(table.shape) < expit(1.2 * table - 1.0)
        slopes = find(table, missing).slopes
        assert slopes is not None
        assert bool((slopes > 0.5).all())


@pytest.mark.parametrize("beside", [0.0, 0.1])
def test_cells_missing_at_random_beside_a_column_do_not_change_why_it_is(beside):
    """Other columns with cells missing completely at random say nothing about the first one."""
    found = {"own": 0, "others": 0}
    for seed in range(6):
        generator = np.random.default_rng(seed)
        table = generator.normal(size=(600, 2)) @ generator.normal(size=(2, 5))
        table = table / table.std(0) + 0.3 * generator.normal(size=table.shape)
        random = np.random.default_rng([seed, 2]).random(table.shape) < beside
        random[:, 0] = False
        for name, logits in (("own", 1.5 * table[:, 0]), ("others", 1.5 * table[:, 1])):
            slopes = find(table, by_logits(logits, seed) | random).slopes
            found[name] += slopes is not None
            assert slopes is None or bool((slopes[1:] == 0.0).all())
    assert found["own"] >= 3, found
    assert found["others"] == 0, found


@pytest.mark.parametrize("seed", range(3))
def test_slopes_of_opposite_signs_are_found(seed):
    table = exchangeable(1500, seed)
    slopes = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    chance = np.random.default_rng([seed, 1]).random(table.shape)
    found = find(table, chance < expit(slopes * table - 1.0)).slopes
    assert found is not None
    assert (found.numpy() * slopes > 0.3).sum() >= 4
    assert (found.numpy() * slopes >= 0.0).all()


@pytest.mark.parametrize("seed", range(3))
def test_two_columns_do_not_show_which_of_them_hides_cells(seed):
    table = exchangeable(1000, seed, columns=2)
    chance = np.random.default_rng([seed, 1]).random(1000)
    for driver in (0, 1):
        missing = np.zeros(table.shape, dtype=bool)
        missing[:, 0] = chance < expit(1.5 * table[:, driver] - 1.0)
        found = find(table, missing)
        assert found.slopes is None
        assert "does not distinguish" in describe_mechanism(found.slopes, found.to_dict())


def test_the_sentence_tells_both_signs():
    said = describe_mechanism(torch.tensor([0.5, 0.0, -1.0, 0.25]), {"evidence": 50.0})
    assert said.startswith("large values of 2 columns and small values of 1 column are missing")
    assert "-1.00 to +0.50" in said


def test_the_sentence_tells_where_nothing_could_be_seen():
    generator = np.random.default_rng(0)
    table = exchangeable(800, 0)
    alone = np.where(table[:, :1] > 0.5, np.nan, generator.normal(size=(800, 1)))
    unrelated = np.column_stack([alone, generator.normal(size=(800, 2))])
    said = VFGImputer(bend=False).fit(unrelated).describe_missingness()
    assert said.startswith("whether cells are missing because of their value cannot be detected")
    table[generator.random(table.shape) < 0.2] = np.nan
    said = VFGImputer(bend=False).fit(table).describe_missingness()
    assert said == "there is no evidence that cells are missing because of their value"
    said = VFGImputer(bend=False).fit(np.hstack([table, alone])).describe_missingness()
    assert "in 1 of 6 columns it could not be detected" in said


def test_the_sentence_tells_that_categories_are_taken_as_missing_at_random():
    generator = np.random.default_rng(0)
    number = generator.normal(size=300)
    answer = pd.Series(np.where(number > 0.0, "yes", "no"), dtype=object)
    answer[generator.random(300) < 0.3] = None
    frame = pd.DataFrame({"number": number, "answer": answer})
    said = VFGImputer(bend=False).fit(frame).describe_missingness()
    assert said == (
        "why categories are missing is not modelled: they are filled as missing at random"
    )
    assert "categories" not in VFGImputer(bend=False).fit(frame.dropna()).describe_missingness()


def test_chances_of_columns_are_those_of_an_integral_over_shares():
    own, others = np.array([3.0, -1.0, 2.0]), np.array([1.0, -2.0, 2.5])
    generator = np.random.default_rng(0)
    none, share = generator.random(400_000), generator.beta(0.5, 0.5, 400_000)
    weights = [none[:, None], ((1.0 - none) * share)[:, None] * np.exp(own)]
    weights.append(((1.0 - none) * (1.0 - share))[:, None] * np.exp(others))
    total = sum(weights)
    joint = total.prod(1)
    expected = (joint @ (weights[1] / total)) / joint.sum()
    np.testing.assert_allclose(_chances(own, others), expected, atol=0.01)


def cut_off(rows=1200, seed=0):
    """A table, and the same without the values above the mean of its first two columns."""
    table = exchangeable(rows, seed) + 3.0
    missing = table > 3.0
    missing[:, 2:] = False
    return table, missing


def test_fills_leave_a_range_beyond_which_every_cell_is_missing():
    table, missing = cut_off()
    masked = np.where(missing, np.nan, table)
    errors = {}
    for assumed in ("ignorable", "auto"):
        imputer = VFGImputer(bend=False, missingness=assumed, random_state=0).fit(masked)
        filled = imputer.transform(masked)
        errors[assumed] = np.square(filled - table)[missing].mean()
        above = filled[missing] > 3.0
        assert above.mean() > 0.6 if assumed == "auto" else above.mean() < 0.2
    assert errors["auto"] < 0.4 * errors["ignorable"]


def test_the_reach_is_kept_in_files_and_ends_at_bounds(tmp_path):
    table, missing = cut_off()
    masked = np.where(missing, np.nan, table)
    imputer = VFGImputer(bend=False, bounds={0: (None, 3.2)}, random_state=0).fit(masked)
    filled = imputer.transform(masked)
    assert filled[:, 0].max() <= 3.2
    assert filled[:, 1].max() > 3.2
    vfg.save(imputer, tmp_path / "model.vfg")
    np.testing.assert_array_equal(vfg.load(tmp_path / "model.vfg").fill(masked), filled)


def test_a_range_that_ends_at_a_pile_of_cells_is_kept():
    table = exchangeable(1200, 1)
    table = np.maximum(table, -0.3)  # four in ten cells are at the bound
    missing = mnar_self(-table, 0.3, 0)
    masked = np.where(missing, np.nan, table)
    imputer = VFGImputer(bend=False, missingness="self", random_state=0).fit(masked)
    assert imputer.transform(masked).min() >= -0.3
    assert (imputer.model_.slopes < -0.3).all()


def test_sensitivities_are_printed_as_a_table():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(60, 1)) * [[1.0, 2.0]] + 0.1 * generator.normal(size=(60, 2))
    table[::5, 1] = np.nan
    imputer = VFGImputer(bend=False, random_state=0).fit(table)
    result = imputer.sensitivity(
        table, [-1, 0, 1], statistic=lambda filled: (filled[:, 1].mean(), 0.1), n=3
    )
    lines = str(result).splitlines()
    assert lines[0].split() == ["column", "shift", "filled", "low", "high", "mean"]
    assert len(lines) == 1 + 3 + 3
    assert lines[1].split()[:2] == ["1", "-1"]
    numbers = [float(word) for word in lines[1].split()[2:]]
    expected = [x[0, 0] for x in (result.filled, result.low, result.high, result.means)]
    np.testing.assert_allclose(numbers, expected, rtol=1e-4)
    estimate = float(np.ravel(result.pooled[2].estimate)[0])
    assert lines[6].split()[:2] == ["statistic", "1"]
    assert float(lines[6].split()[2]) == pytest.approx(estimate, rel=1e-4)


@pytest.mark.parametrize("rows", [100, 600])
def test_blocks_that_another_column_hides_have_no_slopes(rows):
    """Three columns are missing where a fourth is large; slopes made errors 14 times as large."""
    generator = np.random.default_rng(rows)
    table = np.cumsum(generator.normal(size=(rows, 6)), axis=1)
    table = table / table.std(0)
    table[table[:, 3] > np.median(table[:, 3]), :3] = np.nan
    assert VFGImputer(bend=False, random_state=0).fit(table).model_.slopes is None


def test_steps_of_own_values_are_found():
    """Every value above the mean of three columns is missing."""
    generator = np.random.default_rng(1)
    loadings = generator.normal(size=(2, 6))
    truth = generator.normal(size=(1500, 2)) @ loadings + 0.7 * generator.normal(size=(1500, 6))
    missing = truth > 0.0
    missing[:, 3:] = False
    imputer = VFGImputer(bend=False, random_state=0).fit(np.where(missing, np.nan, truth + 9.0))
    slopes = imputer.model_.slopes
    assert slopes is not None
    assert (slopes > 3.4).sum() == 3


@pytest.mark.parametrize("seed", [0, 1])
def test_a_curve_and_a_column_missing_at_random_are_no_reason_for_slopes(seed):
    """A single column that others predict is judged for itself, whatever else has missing cells."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=600)
    table = np.stack([x, x**2 + 0.3 * generator.normal(size=600), generator.normal(size=600)], 1)
    table[generator.random(600) < 1.0 / (1.0 + np.exp(1.0 - 2.0 * x)), 1] = np.nan
    table[generator.random(600) < 0.2, 2] = np.nan
    assert VFGImputer(bend=False, random_state=0).fit(table).model_.slopes is None


def fits_slopes(table, missing):
    model = VFGImputer(bend=False, random_state=0).fit(np.where(missing, np.nan, table)).model_
    return model.slopes


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_column_with_one_predictor_that_hides_it_has_no_slope(seed):
    """The own value and the only predictor of it explain missing cells equally well."""
    generator = np.random.default_rng([seed, 1])
    table = generator.normal(size=(400, 4))
    table[:, 1] = 0.8 * table[:, 0] + 0.6 * table[:, 1]
    missing = np.zeros(table.shape, dtype=bool)
    missing[:, 1] = by_logits(1.5 * table[:, 0], seed)[:, 0]
    missing[:, 2] = generator.random(400) < 0.3
    assert fits_slopes(table, missing) is None


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_cells_of_one_skewed_column_beyond_a_threshold_are_found(seed):
    table = np.exp(exchangeable(600, seed))
    missing = np.zeros(table.shape, dtype=bool)
    missing[:, 2] = table[:, 2] > np.quantile(table[:, 2], 0.7)
    slopes = fits_slopes(table, missing)
    assert slopes is not None
    assert float(slopes.max()) > 0.0


def missing_from_a_column_on(table, generator):
    """A row that is high in a column is likely to be missing in all later ones."""
    leaves = generator.random((len(table), table.shape[1] - 1))
    leaves = leaves < np.where(table[:, :-1] > 0.7, 0.6, 0.03)
    missing = np.zeros(table.shape, dtype=bool)
    missing[:, 1:] = np.logical_or.accumulate(leaves, axis=1)
    return missing


def missing_above_another(table, generator):
    missing = (generator.random(table.shape) < 0.8) & (table[:, [0]] > 0.25)
    missing[:, :2] = False
    return missing


def missing_by_a_sum(table, generator):
    total = table[:, :2].sum(1, keepdims=True) / np.sqrt(3.2)
    missing = generator.random(table.shape) < expit(2.0 * total - 1.0)
    missing[:, :2] = False
    return missing


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    "hide", [missing_from_a_column_on, missing_above_another, missing_by_a_sum]
)
def test_cells_missing_by_columns_that_are_observed_have_no_slopes(hide, seed):
    table = exchangeable(400, seed)
    assert fits_slopes(table, hide(table, np.random.default_rng(seed))) is None


def test_no_step_of_all_columns_is_tried_among_normal_scores(monkeypatch):
    """Columns of two or three values have scores that no Normal model describes."""
    tried = []
    monkeypatch.setattr(missingness, "_find_step", lambda *given: tried.append(given[2]))
    table = np.exp(correlated(rows=1000))
    missing = mar(table, 0.3, 0)
    find(table, missing)
    assert len(tried) == 1
    np.testing.assert_array_equal(tried[0][~missing], table[~missing])
