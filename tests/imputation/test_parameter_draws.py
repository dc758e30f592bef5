"""Proper multiple imputation: against closed forms, brute force and simulated coverage."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from imputation.mixed_tables import light, linear, mixed
from scipy import special, stats

import vfg
from vfg.imputation import parameter_draws
from vfg.imputation.parameter_draws import (
    CategoryDraw,
    Chains,
    Departures,
    FittedRows,
    Gaps,
    NormalModel,
    ParameterNoise,
    Posterior,
    _degrees_of_freedom,
    chain_length,
    draw_categories,
    draw_parameters,
    fit_by_em,
    fit_normal,
    known_share,
    log_probabilities,
)
from vfg.sklearn import VFGImputer


def regression(rows, seed, share=0.4):
    """Four correlated columns and a fifth that depends on them; cells missing at random."""
    generator = np.random.default_rng(seed)
    inputs = generator.multivariate_normal(np.zeros(4), 0.5 + 0.5 * np.eye(4), rows)
    target = inputs @ [1.0, 0.5, -0.5, 0.0] + generator.normal(size=rows)
    table = np.column_stack([inputs, target])
    return table, np.where(generator.random(table.shape) < share, np.nan, table)


def least_squares(table):
    """Coefficients of the last column on the others, and their covariance."""
    design = np.column_stack([np.ones(len(table)), table[:, :-1]])
    inverse = np.linalg.inv(design.T @ design)
    weights = inverse @ design.T @ table[:, -1]
    left = table[:, -1] - design @ weights
    return weights, inverse * (left @ left) / (len(table) - len(weights))


def as_matrix(table):
    observed = torch.from_numpy(~np.isnan(table))
    return torch.where(observed, torch.from_numpy(np.nan_to_num(table)), 0.0), observed


def test_conditionals_are_those_of_a_normal():
    generator = np.random.default_rng(0)
    root = generator.normal(size=(4, 4))
    model = NormalModel(
        torch.from_numpy(generator.normal(size=4)), torch.from_numpy(root @ root.T + np.eye(4))
    )
    values, observed = as_matrix(np.where(generator.random((20, 4)) < 0.5, np.nan, 1.5))
    means = model.conditional_means(values, observed).numpy()
    noise, gaps = torch.from_numpy(generator.normal(size=(4000, 20, 4))), Gaps.of(observed)
    drawn = torch.stack([model.draw(values, gaps, one) for one in noise]).numpy()
    mean, covariance = model.mean.numpy(), model.covariance.numpy()
    for row in range(20):
        o, m = observed[row].numpy(), ~observed[row].numpy()
        if not m.any():
            continue
        gain = np.linalg.solve(covariance[np.ix_(o, o)], covariance[np.ix_(o, m)]).T
        expected = mean[m] + gain @ (values[row].numpy()[o] - mean[o])
        assert means[row, m] == pytest.approx(expected)
        left = covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)]
        sampled = np.atleast_2d(np.cov(drawn[:, row, m].T))
        assert np.abs(sampled - left).max() < 0.12 * np.abs(left).max()
    assert np.array_equal(means[observed.numpy()], values[observed].numpy())


def test_deviations_and_covariances_are_those_of_a_normal():
    """Rows with 0 to 9 of 11 missing entries, which have systems of 4, 8 and 11 equations."""
    generator = np.random.default_rng(1)
    root = generator.normal(size=(11, 11))
    covariance = root @ root.T + np.eye(11)
    model = NormalModel(torch.zeros(11, dtype=torch.float64), torch.from_numpy(covariance))
    table = generator.normal(size=(10, 11))
    for row in range(10):
        table[row, generator.permutation(11)[:row]] = np.nan
    table[9, [0, 1]] = np.nan
    values, observed = as_matrix(table)
    given = model.given(values, Gaps.of(observed))
    often = torch.arange(1.0, 11.0, dtype=torch.float64)
    total, wanted = np.zeros((11, 11)), np.zeros((10, 11, 11))
    for row in range(10):
        o, m = observed[row].numpy(), ~observed[row].numpy()
        gain = np.linalg.solve(covariance[np.ix_(o, o)], covariance[np.ix_(o, m)]).T
        wanted[row][np.ix_(m, m)] = covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)]
        total += (row + 1.0) * wanted[row]
        assert given.means[row, m].numpy() == pytest.approx(gain @ values[row].numpy()[o])
    diagonals = wanted.diagonal(axis1=1, axis2=2)
    assert given.deviations().numpy() == pytest.approx(np.sqrt(diagonals))
    assert given.sum_covariances(often).numpy() == pytest.approx(total)
    assert given.covariances([2, 7]).numpy() == pytest.approx(wanted[:, [2, 7]][:, :, [2, 7]])


def test_several_models_draw_as_each_by_itself():
    """Rows with 1 to 5 of 9 missing entries, and noise of every model's own."""
    generator = np.random.default_rng(2)
    roots = torch.from_numpy(generator.normal(size=(3, 9, 9)))
    covariances = roots @ roots.mT + torch.eye(9)
    means = torch.from_numpy(generator.normal(size=(3, 9)))
    table = generator.normal(size=(20, 9))
    for row in range(20):
        table[row, generator.permutation(9)[: 1 + row % 5]] = np.nan
    values, observed = as_matrix(table)
    noise = torch.from_numpy(generator.normal(size=(3, 20, 9)))
    several, gaps = NormalModel(means, covariances), Gaps.of(observed)
    together = several.draw(values, gaps, noise)
    for one, drawn, levels in zip(several.split(), together, noise, strict=True):
        torch.testing.assert_close(drawn, one.draw(values, gaps, levels), rtol=1e-10, atol=1e-10)


def test_noise_of_parameters_has_the_factors_of_wishart_matrices():
    """By the decomposition of Bartlett; 30 rows of three columns have 29 degrees of freedom."""
    generators = [np.random.default_rng(seed) for seed in range(4000)]
    factors = ParameterNoise.draw(30.0, 3, generators).factors
    squares = (factors @ factors.mT).numpy()
    wanted = stats.wishart(29, np.eye(3))
    assert squares.mean(0) == pytest.approx(wanted.mean(), abs=0.5)
    assert squares.var(0) == pytest.approx(wanted.var(), rel=0.15)
    for place in range(3):
        assert stats.kstest(squares[:, place, place], stats.chi2(29).cdf).pvalue > 1e-3


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_draws_of_short_chains_are_those_of_long_ones(share, monkeypatch):
    """Means and variances of parameters of 120 rows, from 800 draws."""
    values, observed = as_matrix(regression(120, 3, share)[1])
    estimate, rate = fit_by_em(values, observed)
    chains = Chains(
        estimate, known_share(observed, rate), values, observed, values.new_ones(len(values))
    )

    def draw(seed):
        """Means, entries of covariances, logarithms of precisions, and slopes."""
        models = chains.draw(seed, range(800))
        precisions = torch.linalg.inv(models.covariance)
        diagonal = precisions.diagonal(dim1=1, dim2=2)
        slopes = precisions[:, 4, :4] / diagonal[:, 4:]
        covariances = models.covariance.flatten(1)
        return torch.cat([models.mean, covariances, diagonal.log(), slopes], dim=1)

    short = draw(0)
    monkeypatch.setattr(parameter_draws, "STEPS", (60, 60))
    long = draw(1)
    ratios = short.var(0) / long.var(0)
    assert float(ratios.mean()) == pytest.approx(1.0, abs=0.06)
    assert 0.75 < float(ratios.min()) < float(ratios.max()) < 1.3
    shifts = (short.mean(0) - long.mean(0)) / long.std(0)
    assert float(shifts.square().mean().sqrt()) < 0.1


def test_chains_are_longer_where_less_is_known():
    assert [chain_length(share) for share in (1.0, 0.5, 0.3, 0.1, 0.01)] == [2, 2, 4, 10, 24]
    complete, few = as_matrix(regression(100, 0)[0]), as_matrix(regression(100, 0, 0.1)[1])
    many = as_matrix(regression(100, 0, 0.5)[1])
    shares = [known_share(seen, fit_by_em(x, seen)[1]) for x, seen in (complete, few, many)]
    assert shares[0] == 1.0 > shares[1] > 0.5 > shares[2]


def test_draws_are_the_same_for_any_number_of_them():
    values, observed = as_matrix(regression(60, 0)[1])
    few, many = (draw_parameters(values, observed, number, 3)[1] for number in (3, 25))
    for one, other in zip(few, many, strict=False):
        assert torch.equal(one.covariance, other.covariance)
    assert len({float(one.mean[0]) for one in many}) == 25


def test_parameters_of_a_complete_table_are_drawn_from_their_posterior():
    table = regression(200, 0)[0]
    values, observed = as_matrix(table)
    estimate, draws = draw_parameters(values, observed, 400, 0)
    means = torch.stack([one.mean for one in draws]).numpy()
    covariances = torch.stack([one.covariance for one in draws]).numpy()
    scatter = np.cov(table.T) * 199
    assert estimate.mean.numpy() == pytest.approx(table.mean(0))
    assert means.mean(0) == pytest.approx(table.mean(0), abs=4 * np.sqrt(2.5 / 200 / 400))
    assert np.cov(means.T) == pytest.approx(scatter / 199 / 200, abs=0.003)
    # The mean of an inverse Wishart variable, and the variance of an entry of its diagonal.
    freedom = 195 - 5
    assert covariances.mean(0) == pytest.approx(scatter / (freedom - 1), rel=0.05, abs=0.03)
    variance = 2 * np.diag(scatter) ** 2 / ((freedom - 1) ** 2 * (freedom - 3))
    sampled = covariances[:, range(5), range(5)].var(0)
    assert sampled == pytest.approx(variance, rel=0.35)


def test_regressions_of_every_column_have_the_posterior_of_least_squares():
    """With the prior of Jeffreys, precisions have 79 instead of 75 degrees of freedom here."""
    table = regression(80, 0)[0]
    values, observed = as_matrix((table - table.mean(0)) / table.std(0))
    draws = draw_parameters(values, observed, 1500, 0)[1]
    covariances = torch.stack([one.covariance for one in draws])
    precisions = torch.linalg.inv(covariances).numpy()
    whole = values.numpy()
    for column in range(5):
        others = np.delete(whole, column, 1)
        weights = np.linalg.lstsq(others, whole[:, column], rcond=None)[0]
        squares = ((whole[:, column] - others @ weights) ** 2).sum()
        # Squares over the drawn variance are chi-squared with rows - columns degrees of freedom.
        drawn = squares * precisions[:, column, column]
        assert drawn.mean() == pytest.approx(75.0, rel=0.03)
        slopes = -precisions[:, column] / precisions[:, column, column, None]
        assert np.delete(slopes.mean(0), column) == pytest.approx(weights, abs=0.02)


def test_short_tables_have_degrees_of_freedom_of_proper_covariances():
    for columns in (1, 2, 5, 40):
        found = [_degrees_of_freedom(float(rows), columns) for rows in range(1, 700)]
        assert min(found) > columns
        assert (np.diff(found) >= 0.0).all()
        assert (np.diff(found) <= 1.0).all()
        assert found[-1] == 699 - columns


def test_em_reaches_the_greatest_likelihood():
    _, table = regression(300, 1)
    values, observed = as_matrix(table)
    model = fit_normal(values, observed)

    def log_likelihood(mean, covariance):
        total = 0.0
        for row, seen in zip(values.numpy(), observed.numpy(), strict=True):
            if seen.any():
                normal = stats.multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)])
                total += normal.logpdf(row[seen])
        return total

    best = log_likelihood(model.mean.numpy(), model.covariance.numpy())
    generator = np.random.default_rng(0)
    for _ in range(5):
        change = 0.03 * generator.normal(size=(5, 5))
        moved = model.covariance.numpy() + 0.5 * (change + change.T)
        assert log_likelihood(model.mean.numpy(), moved) < best + 0.02


def test_draws_for_more_rows_than_are_kept_are_nearer_to_the_estimate():
    values, observed = as_matrix(regression(200, 0)[1])
    estimate, few = draw_parameters(values, observed, 20, 0)
    _, many = draw_parameters(values, observed, 20, 0, rows=800)
    for one, other in zip(few, many, strict=True):
        assert (other.mean - estimate.mean).numpy() == pytest.approx(
            0.5 * (one.mean - estimate.mean).numpy()
        )


def test_a_posterior_goes_on_where_it_ended():
    values, observed = as_matrix(regression(60, 0)[1])
    rows = FittedRows.of(values, observed, 0)
    assert rows is not None
    _, wanted = draw_parameters(*rows.table, 4, 5, rows.rows)
    posterior = Posterior(rows)
    first, other, again = posterior.draw(2, 5), posterior.draw(1, 6), posterior.draw(4, 5)
    more = posterior.draw(3, 5)
    assert not torch.equal(other[0].mean, wanted[0].mean)
    for several in (first, again, more):
        for one, known in zip(several, wanted, strict=False):
            assert torch.equal(one.mean, known.mean)
            assert torch.equal(one.covariance, known.covariance)
    assert [len(several) for several in (first, again, more)] == [2, 4, 3]


def test_kept_parameters_are_those_of_the_last_fit():
    _, table = regression(120, 4)
    imputer = light().fit(table)
    drawn = imputer.sample(table[:20], 2)
    copied = pickle.loads(pickle.dumps(imputer))
    assert not [name for name in vars(copied) if "posterior" in name]
    assert np.array_equal(copied.sample(table[:20], 2), drawn)
    other = imputer.fit(table[:80]).sample(table[:20], 2)
    assert np.array_equal(light().fit(table[:80]).sample(table[:20], 2), other)
    assert not np.array_equal(other, drawn)


def test_wide_tables_and_empty_ones_have_no_rows_to_draw_from():
    assert FittedRows.of(torch.zeros(10, 65), torch.ones(10, 65, dtype=torch.bool), 0) is None
    assert FittedRows.of(torch.zeros(10, 3), torch.zeros(10, 3, dtype=torch.bool), 0) is None


@pytest.mark.parametrize("make", [light, linear])
def test_proper_draws_vary_more_and_keep_what_is_observed(make):
    _, table = regression(120, 2)
    imputer = make().fit(table)
    known = ~np.isnan(table)
    spreads = {}
    for proper in (True, False):
        tables = imputer.sample(table, 40, proper=proper)
        assert (tables[:, known] == table[known]).all()
        assert not np.isnan(tables).any()
        spreads[proper] = np.var([least_squares(one)[0] for one in tables], axis=0).mean()
    assert spreads[True] > 1.2 * spreads[False]
    assert np.array_equal(imputer.sample(table, 2), imputer.sample(table, 5)[:2])
    assert not np.array_equal(imputer.sample(table, 2), imputer.sample(table, 2, random_state=1))


def test_proper_draws_follow_a_curve_without_members():
    generator = np.random.default_rng(0)
    inputs = generator.uniform(-2.0, 2.0, 300)
    table = np.column_stack([inputs, inputs**2 + 0.1 * generator.normal(size=300)])
    table[::3, 1] = np.nan
    imputer = VFGImputer(effort="fast", missingness="ignorable", random_state=0).fit(table)
    errors = imputer.sample(table, 20)[:, ::3, 1].mean(0) - inputs[::3] ** 2
    # A straight line has 1.28; five seeds have .15 to .21.
    assert np.sqrt((errors**2).mean()) < 0.4


def test_tables_of_every_kind_have_proper_draws(every_kind):
    frame = mixed()
    for drawn in every_kind.sample(frame, 2):
        assert list(drawn.columns) == list(frame.columns)
        for name in frame.columns:
            assert (drawn[name].dtype == frame[name].dtype) or drawn[name].notna().all()


def test_one_row_is_drawn_like_among_others():
    _, table = regression(120, 3)
    imputer = linear().fit(table)
    one = imputer.sample(table[:1], 3)
    assert one == pytest.approx(imputer.sample(table, 3)[:, :1], abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "bias"), [(100, 0.1), (300, 0.05)])
def test_pooled_intervals_hold_the_coefficients(rows, bias):
    """With 100 rows estimates are smaller by up to 0.084 (standard error 0.025)."""
    truth = np.array([0.0, 1.0, 0.5, -0.5, 0.0])
    held, estimates, complete = [], [], []
    for seed in range(200):
        whole, table = regression(rows, seed)
        imputer = VFGImputer(bend=False, missingness="ignorable", random_state=seed).fit(table)
        results = [least_squares(one) for one in imputer.sample(table, 20)]
        pooled = vfg.pool(results, complete_df=rows - 5)
        low, high = pooled.interval(0.95)
        held.append((low <= truth) & (truth <= high))
        estimates.append(pooled.estimate)
        complete.append(least_squares(whole)[0])
    # 200 repetitions of five coefficients: the standard error is about 0.008.
    assert 0.91 < np.mean(held) < 0.97
    assert np.mean(estimates, axis=0) == pytest.approx(np.mean(complete, axis=0), abs=bias)


def test_categories_are_drawn_by_bayes_rule():
    """Shares of draws are those of classes with Normal densities of one covariance."""
    points = torch.tensor([[-1.0, 0.4], [1.2, 0.3], [0.1, -1.5]], dtype=torch.float64)
    shares = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)
    root = torch.randn(4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    mean = torch.tensor([0.1, 0.0, 0.0, 0.0], dtype=torch.float64)
    mean[1:3] = shares @ points
    model = NormalModel(mean, root @ root.mT + torch.eye(4))
    row = torch.tensor([0.7, 0.0, 0.0, -0.4], dtype=torch.float64)
    known = torch.tensor([True, False, False, True])
    number = 20_000
    numbers = torch.rand(number, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # Shares of observed cells do not matter, since cells may be missing at random.
    column = CategoryDraw([1, 2], points, shares.flip(0))
    values, observed = draw_categories(
        model, row.repeat(number, 1), known.repeat(number, 1), [column], [numbers]
    )
    assert bool(observed.all())
    drawn = torch.stack([(values[:, 1:3] == point).all(1).double().mean() for point in points])
    mean, covariance = model.mean.numpy(), model.covariance.numpy()
    o, u = [0, 3], [1, 2]
    gain = covariance[np.ix_(o, u)] @ np.linalg.inv(covariance[np.ix_(u, u)])
    within = covariance[np.ix_(o, o)] - gain @ covariance[np.ix_(u, o)]
    densities = [
        stats.multivariate_normal(mean[o] + gain @ (e - mean[u]), within).pdf(row[o].numpy())
        for e in points.numpy()
    ]
    wanted = shares.numpy() * densities
    np.testing.assert_allclose(drawn.numpy(), wanted / wanted.sum(), atol=0.01)


def test_effects_of_categories_are_not_weakened():
    """Pooled effects of a boolean and of a category were 2.7 for 3 and 1.8 for 2."""
    estimates = []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        x, group = generator.normal(size=200), generator.integers(0, 3, 200)
        flag = x + generator.normal(size=200) > 0.0
        y = 3.0 * flag + x + group + generator.normal(size=200)
        table = pd.DataFrame({"x": x, "flag": flag, "group": np.array(list("abc"))[group], "y": y})
        gaps = table.mask(generator.random(table.shape) < 0.3)
        for one in VFGImputer(bend=False, random_state=0).fit(gaps).sample(gaps, 4):
            columns = [one["flag"], one["x"], one["group"] == "b", one["group"] == "c"]
            design = np.column_stack([np.ones(200), *columns]).astype(float)
            estimates.append(np.linalg.lstsq(design, one["y"].astype(float), rcond=None)[0])
    _, of_flag, of_x, _, of_group = np.mean(estimates, axis=0)
    assert 2.85 < of_flag < 3.2
    assert 0.9 < of_x < 1.1
    assert 1.88 < of_group < 2.2


@pytest.mark.parametrize("width", [0.8, 1.25])
def test_draws_have_the_variance_of_the_normal_model(width):
    """Else missing inputs have errors that weaken the coefficients of a regression."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    observed = torch.rand(300, 3, generator=generator) < 0.6
    rows = FittedRows.of(torch.where(observed, values, 0.0), observed, 0)
    assert rows is not None
    estimate = Posterior(rows).estimate
    known, mask = rows.table
    means = estimate.conditional_means(known, mask)
    means = means + 0.2 * torch.randn(means.shape, generator=generator, dtype=torch.float64)
    spread = torch.full_like(means, width**2)
    fitted = Departures.fit(estimate, rows, means, spread)
    variances = fitted.noise.square() * width**2 + 0.04 * fitted.counted.square()
    np.testing.assert_allclose(variances, estimate.covariance.diagonal(), atol=0.07)


def test_curves_are_not_taken_for_lines():
    """Squares have slopes by chance where few rows lack them; a shrunken line has one indeed."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(120, generator=generator, dtype=torch.float64)
    values = torch.stack([inputs, 0.7 * (inputs.square() - 1.0)], 1)
    observed = torch.ones(120, 2, dtype=torch.bool)
    observed[::3, 1] = False
    rows = FittedRows.of(torch.where(observed, values, 0.0), observed, 0)
    assert rows is not None
    estimate, (known, mask) = Posterior(rows).estimate, rows.table
    lines = estimate.conditional_means(known, mask)
    for means, expected in ((values, values), (0.9 * lines, lines)):
        fitted = Departures.fit(estimate, rows, means, torch.ones_like(means))
        found = lines + fitted.nonlinear(lines, means)
        errors = (found - expected)[~mask].square().mean().sqrt()
        assert float(errors) < 0.12


@pytest.mark.parametrize(("size", "counted"), [(0.15, 0.0), (0.6, 1.0)])
def test_departures_that_chance_makes_are_left_out(size, counted):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    observed = torch.rand(300, 3, generator=generator) < 0.6
    rows = FittedRows.of(torch.where(observed, values, 0.0), observed, 0)
    assert rows is not None
    estimate, (known, mask) = Posterior(rows).estimate, rows.table
    means = estimate.conditional_means(known, mask)
    noise = torch.randn(means.shape, generator=generator, dtype=torch.float64)
    fitted = Departures.fit(estimate, rows, means + size * noise, torch.ones_like(means))
    assert fitted.counted.tolist() == [counted] * 3
    left = fitted.nonlinear(means, means + size * noise)[~mask]
    assert float(left.square().mean()) == pytest.approx((counted * size) ** 2, rel=0.15)


def test_shares_of_categories_are_those_of_the_whole_column():
    """Cells that are missing at random given x: half are "yes", of the observed ones fewer."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=2000)
    yes = generator.random(2000) < special.expit(1.5 * x)
    table = pd.DataFrame({"x": x, "y": np.where(yes, "yes", "no")})
    table.loc[generator.random(2000) < special.expit(2.0 * x), "y"] = None
    imputer = VFGImputer(bend=False, random_state=0).fit(table)
    share = np.mean([(one["y"] == "yes").mean() for one in imputer.sample(table, 10)])
    assert share == pytest.approx(yes.mean(), abs=0.02)
    assert (table["y"].dropna() == "yes").mean() < yes.mean() - 0.1


def test_departures_of_categories_leave_out_what_only_shrinks():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(400, 2, generator=generator, dtype=torch.float64)
    values[:, 1] = torch.where(values[:, 0] + torch.randn(400, generator=generator) > 0, 1.0, -1.0)
    observed = torch.ones(400, 2, dtype=torch.bool)
    observed[::3, 1] = False
    rows = FittedRows.of(torch.where(observed, values, 0.0), observed, 0)
    assert rows is not None
    estimate, (known, mask) = Posterior(rows).estimate, rows.table
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    column = CategoryDraw([1], torch.tensor([[-1.0], [1.0]], dtype=torch.float64), half)
    missing = column.missing_rows(mask)
    logs = log_probabilities(estimate, known[missing], Gaps.of(mask[missing]), column)
    means = estimate.conditional_means(known, mask)
    curved = torch.stack([torch.cos(3.0 * known[missing, 0]), torch.zeros(len(missing))], 1)
    for factor, more in ((1.0, 0.0), (0.6, 0.0), (1.0, curved)):
        shares = [(factor * logs + more).softmax(1)]
        given = estimate, rows, means, torch.ones_like(means), [column], shares
        (found,) = Departures.fit(*given).of_categories(known, mask, [column], shares)
        apart = (found[:, 0] - found[:, 1]).numpy()
        if isinstance(more, float):
            assert np.abs(apart).max() < 0.05
        else:
            assert np.corrcoef(apart, curved[:, 0].numpy())[0, 1] > 0.9
