"""Mixtures with a component at every row: against sums over all rows by hand."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import norm

from vfg.imputation import row_mixture as neighbours
from vfg.imputation.mixtures import fit_linear, star
from vfg.imputation.plan import (
    CELLS,
    MOST_ROW_MIXTURES,
    ROW_MIXTURE_KINDS,
    NeighbourPlan,
    RowMixtureKind,
    plan_row_mixtures,
)
from vfg.imputation.row_mixture import (
    NOISE,
    RowMixture,
    _fit_noise,
    fit_metrics,
    fit_row_mixture,
)

PLAIN = RowMixtureKind(ranks=False, uses_all_columns=True)


def matrix(rows=60, columns=4, seed=0, share=0.75):
    """Skewed correlated columns, standardised, and which of their cells are known."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(rows, 1)) + generator.normal(size=(rows, columns))
    values[:, 0] = np.exp(values[:, 0])
    values = torch.from_numpy((values - values.mean(0)) / values.std(0))
    observed = torch.from_numpy(generator.random(values.shape) < share)
    observed[:, -1] |= ~observed.any(1)
    return torch.where(observed, values, 0.0), observed


def fitted(values, observed, kind=PLAIN, unordered=(), **options):
    lumps = torch.zeros(values.shape[1], dtype=torch.bool)
    lumps[list(unordered)] = True
    settings = {"unordered": lumps, "width": 3, "seed": 0} | options
    return fit_row_mixture(values, observed, kind, **settings)


def random_model(components=30, columns=4, seed=0):
    """A mixture with centres, doubts and noise from anywhere."""
    generator = torch.Generator().manual_seed(seed)
    residual = fit_linear(star([1] * columns, 2), *matrix(columns=columns), seed=0)
    made = RowMixture(components, residual)
    made.centres.normal_(generator=generator)
    made.doubts.uniform_(0.0, 0.5, generator=generator)
    made.noise.uniform_(0.05, 0.5, generator=generator)
    return made


def logs_by_hand(near, scores, observed):
    """log p(x | component) of every row, `(rows, components)`."""
    centres, spread = near.centres.double(), (near.doubts + near.noise).double().sqrt()
    heard = (observed & near.heard).numpy()[:, None]
    found = norm.logpdf(scores.numpy()[:, None], centres.numpy(), spread.numpy())
    return np.where(heard, found, 0.0).sum(2)


def normal_of(model):
    """Mean and covariance of the linear model of residuals, from its parameters."""
    values, scaling = model.linear.values(), model.scaling
    loadings, noise = values.loadings[0].numpy(force=True), values.scales[0].numpy(force=True)
    spread = scaling.scale.numpy()
    mean = values.offsets[0].numpy(force=True) * spread + scaling.location.numpy()
    return mean, np.outer(spread, spread) * (loadings @ loadings.T + np.diag(noise**2))


def correction_by_hand(near, left, observed):
    """What is expected of residuals given others, one row after the other."""
    mean, covariance = normal_of(near.residual)
    scale = near.scale.numpy()
    found = np.zeros(left.shape)
    for row, (residual, seen) in enumerate(
        zip(left.numpy() / scale, observed.numpy(), strict=True)
    ):
        gap = ~seen
        weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, gap)])
        found[row, gap] = mean[gap] + (residual[seen] - mean[seen]) @ weights
    return torch.from_numpy(found * scale)


@pytest.mark.parametrize("kind", ROW_MIXTURE_KINDS)
def test_answers_are_sums_over_all_rows(kind):
    near = fitted(*matrix(), kind)
    values, observed = matrix(rows=25, seed=1, share=0.5)
    means = near.means(values, observed, torch.arange(25))
    scores = near.ranks(values)
    shares = softmax(logs_by_hand(near, scores, observed), axis=1)
    centres = near.centres.double()
    np.testing.assert_allclose(means.plain, shares @ near.ranks.inverse(centres).numpy(), atol=2e-4)
    expected = torch.from_numpy(shares @ centres.numpy())
    moved = expected + correction_by_hand(near, scores - expected, observed)
    gap = ~observed
    np.testing.assert_allclose(means.corrected[gap], near.ranks.inverse(moved)[gap], atol=5e-4)


def test_unused_columns_do_not_change_which_rows_are_similar():
    near = fitted(*matrix(columns=6), RowMixtureKind(ranks=True, uses_all_columns=False))
    assert int(near.heard.sum()) == 4
    values, observed = matrix(rows=20, columns=6, seed=1, share=1.0)
    other = torch.where(near.heard, values, values + 1.0)
    ids = torch.arange(20)
    found, again = (near.means(cells, observed, ids).plain for cells in (values, other))
    assert torch.equal(found, again)


def test_a_row_left_out_for_itself_uses_all_other_components():
    near = random_model(components=12)
    values, observed = matrix(rows=12)
    found = near.means(values, observed, torch.arange(12), torch.arange(12)).plain
    for row in range(12):
        fewer = RowMixture(11, near.residual)
        kept = [k for k in range(12) if k != row]
        state = near.state_dict()
        fewer.load_state_dict(state | {name: state[name][kept] for name in ("centres", "doubts")})
        alone = fewer.means(values[[row]], observed[[row]], torch.tensor([row])).plain
        torch.testing.assert_close(found[[row]], alone, rtol=1e-5, atol=1e-5)


def test_rows_that_are_no_component_use_all_components():
    near = random_model()
    values, observed = matrix(rows=10)
    ids = torch.arange(10)
    none = near.means(values, observed, ids, torch.full((10,), -1))
    assert torch.equal(none.plain, near.means(values, observed, ids).plain)


def test_a_row_without_evidence_has_the_mean_of_all():
    near = random_model()
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    found = near.means(torch.zeros(1, 4, dtype=torch.float64), nothing, torch.tensor([3]))
    torch.testing.assert_close(found.plain[0], near.centres.double().mean(0), atol=1e-6, rtol=0)


# The fit.


def left_out(near, scores, observed):
    """log p of every row, explained by all others."""
    logs = logs_by_hand(near, scores, observed)
    np.fill_diagonal(logs, -np.inf)
    return logsumexp(logs, axis=1).sum()


def test_every_step_makes_rows_likelier_given_the_others(monkeypatch):
    monkeypatch.setattr(neighbours, "ITERATIONS", 1)
    values = matrix(rows=80, share=1.0)[0]
    observed = torch.ones_like(values, dtype=torch.bool)
    near = fitted(values, observed)
    near.noise.fill_(0.8)
    near.forget()
    found = [left_out(near, values, observed)]
    for _ in range(12):
        _fit_noise(near, values, observed, torch.arange(80))
        found.append(left_out(near, values, observed))
    assert min(np.diff(found)) > -1e-3
    assert found[-1] > found[0] + 10.0


def test_the_noise_of_pairs_of_rows_is_their_difference():
    generator = torch.Generator().manual_seed(0)
    size = torch.tensor([0.05, 0.1, 0.2, 0.3], dtype=torch.float64)
    centres = 4.0 * torch.randn(200, 4, generator=generator, dtype=torch.float64)
    errors = torch.randn(2, 200, 4, generator=generator, dtype=torch.float64)
    values = (centres + size * errors).flatten(0, 1)
    near = fitted(values, torch.ones_like(values, dtype=torch.bool))
    np.testing.assert_allclose(near.noise.sqrt(), 2**0.5 * size, rtol=0.15)


def test_rows_are_components_and_their_missing_cells_are_filled():
    values, observed = matrix()
    near = fitted(values, observed, RowMixtureKind(ranks=True, uses_all_columns=True))
    back = near.ranks.inverse(near.centres.double())
    torch.testing.assert_close(back[observed], values[observed], rtol=1e-5, atol=1e-5)
    assert bool((near.doubts[observed] == 0).all())
    assert bool((near.doubts[~observed] > 0).all())


def test_missing_cells_of_components_are_predicted_by_the_others():
    values, observed = matrix(rows=40)
    near = fitted(values, observed)
    before = near.centres.clone(), near.doubts.clone()
    near.refill(values, observed)
    old = RowMixture(40, near.residual)
    old.load_state_dict(near.state_dict())
    old.fill(values, observed, before[0].double(), before[1].double())
    logs = logs_by_hand(old, values, observed)
    np.fill_diagonal(logs, -np.inf)
    shares = softmax(logs, axis=1)
    mean = shares @ before[0].double().numpy()
    square = shares @ (before[0].square() + before[1]).double().numpy()
    gap = ~observed
    left = torch.where(observed, values - torch.from_numpy(mean), 0.0)
    filled = torch.from_numpy(mean) + correction_by_hand(near, left, observed)
    np.testing.assert_allclose(near.centres[gap], filled[gap], atol=1e-3)
    doubts = square - mean**2 + near.noise.numpy()
    np.testing.assert_allclose(near.doubts[gap], doubts[gap.numpy()], atol=1e-3)


def test_columns_without_order_keep_their_values():
    values, observed = matrix()
    near = fitted(
        values, observed, RowMixtureKind(ranks=True, uses_all_columns=True), unordered=[0]
    )
    scores = near.ranks(values)
    torch.testing.assert_close(scores[:, 0], values[:, 0])
    assert float((scores - values)[:, 1:].abs().max()) > 0.05


def test_of_very_many_rows_some_are_components():
    values, observed = matrix(rows=90)
    near = fitted(values, observed, most=50)
    assert len(near.centres) == len(near.origin.rows.unique()) == 50
    places = near.components_of(torch.arange(90), 90)
    assert int((places < 0).sum()) == 40
    assert torch.equal(near.origin.rows[places[places >= 0]], (places >= 0).nonzero()[:, 0])


def test_rows_that_occur_twice_do_no_harm():
    values, observed = matrix(rows=30)
    near = fitted(values.repeat(2, 1), observed.repeat(2, 1))
    least = NOISE[0] ** 2
    assert bool((near.noise >= 0.999 * least).all())
    means = near.means(values, observed, torch.arange(30))
    assert bool(torch.stack(means[:2]).isfinite().all())


@pytest.mark.parametrize("kind", ROW_MIXTURE_KINDS)
def test_held_out_cells_are_in_no_filled_cell_and_no_residual(kind):
    values, observed = matrix(rows=80, columns=5)
    near = fitted(values, observed, kind)
    kept = observed & (torch.rand(observed.shape, generator=torch.Generator().manual_seed(0)) < 0.2)
    other = torch.where(kept, values + 0.5, values)
    one, two = (near.without(cells, observed, kept) for cells in (values, other))
    same = one.centres == two.centres
    assert bool(same[~kept].all())
    assert not bool(same[kept].any()), "as components rows know their own cells"
    assert torch.equal(one.scale, two.scale)
    assert torch.equal(one.residual.linear.loadings, two.residual.linear.loadings)
    assert not torch.equal(one.scale, near.scale)


def test_held_out_cells_are_not_in_the_linear_model_that_fills_first():
    """Two mixtures whose tables differ in kept cells alone say the same without them."""
    values, observed = matrix(rows=80, columns=5)
    kept = observed & (torch.rand(observed.shape, generator=torch.Generator().manual_seed(0)) < 0.2)
    tables = values, torch.where(kept, values + 0.5, values)
    near = [fitted(table, observed) for table in tables]
    for one in near:
        one.noise.fill_(0.1)
    one, two = (n.without(table, observed, kept) for n, table in zip(near, tables, strict=True))
    assert bool((one.centres == two.centres)[~kept].all())
    assert not torch.equal(near[0].origin.linear.linear.loadings, one.origin.linear.linear.loadings)


def test_the_linear_model_of_residuals_improves_row_mixtures():
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=(300, 3)) @ generator.normal(size=(3, 9))
    values = hidden + 0.2 * generator.normal(size=hidden.shape)
    values = torch.from_numpy((values - values.mean(0)) / values.std(0))
    observed = torch.from_numpy(generator.random(values.shape) < 0.8)
    near = fitted(torch.where(observed, values, 0.0)[:200], observed[:200], width=5)
    means = near.means(values[200:], observed[200:], torch.arange(100))
    gap = ~observed[200:]
    plain, corrected = (float((s - values[200:])[gap].square().mean()) for s in means[:2])
    assert corrected < 0.75 * plain


def test_a_value_that_no_fitted_row_has_does_not_move_answers_far():
    generator = np.random.default_rng(0)
    values, observed = matrix(rows=400)
    # Every fitted row has copies of its value, so that none has a residual.
    values[:, 1], observed[:, 1] = torch.from_numpy(np.sign(generator.normal(size=400))), True
    near = fitted(values, observed)
    assert near.scale[1] < NOISE[0]
    new = torch.zeros(1, 4)
    new[0, 1] = 4.0
    seen = torch.tensor([[False, True, True, False]])
    rows = new, seen, torch.arange(1)
    means = near.means(*rows)
    torch.testing.assert_close(means.corrected, means.plain, rtol=0, atol=1.0)
    assert near.samples(*rows[:2], 50, seed=0, ids=rows[2])[..., ~seen[0]].abs().max() < 8.0


def test_residuals_are_predicted_no_further_than_some_deviations():
    near = fitted(*matrix(rows=200))
    far, seen = torch.full((1, 4), 5e4, dtype=torch.float64), torch.tensor([[True] * 3 + [False]])
    unbounded = correction_by_hand(near, far, seen)[0, 3]
    assert unbounded.abs() > 7.0 * near.scale[3]
    moved = near._correction(far, seen, torch.arange(1))[0, 3]
    torch.testing.assert_close(moved, unbounded.sign() * 6.0 * near.scale[3])


# Draws.


def test_draws_have_the_moments_of_the_mixture():
    near = random_model()
    values, observed = matrix(rows=3, share=0.5)
    shares = softmax(logs_by_hand(near, values, observed), axis=1)
    centres = near.centres.double().numpy()
    variances = (near.doubts + near.noise).double().numpy()
    drawn = near.samples(
        values, observed, 40_000, seed=1, ids=torch.arange(3), corrected=0.0
    ).numpy()
    for row in range(3):
        mean = shares[row] @ centres
        around = centres - mean
        covariance = (shares[row][:, None] * around).T @ around + np.diag(shares[row] @ variances)
        np.testing.assert_allclose(drawn[:, row].mean(0), mean, atol=0.03)
        np.testing.assert_allclose(np.cov(drawn[:, row].T), covariance, atol=0.05)


def test_draws_are_moved_by_the_share_of_the_correction():
    near = fitted(*matrix())
    values, observed = matrix(rows=6, seed=1, share=0.5)
    options = {"seed": 0, "ids": torch.arange(6)}
    plain, half, whole = (
        near.samples(values, observed, 5, corrected=share, **options) for share in (0.0, 0.5, 1.0)
    )
    means = near.means(values, observed, torch.arange(6))
    shift = torch.where(observed, 0.0, means.corrected - means.plain)
    torch.testing.assert_close(whole - plain, shift.expand(5, -1, -1), rtol=0, atol=1e-5)
    torch.testing.assert_close(half - plain, 0.5 * shift.expand(5, -1, -1), rtol=0, atol=1e-5)


def test_no_row_draws_its_own_component():
    near = random_model(components=5)
    near.noise.fill_(1e-8)
    near.doubts.fill_(0.0)
    near.forget()
    values = near.centres.double()
    seen = torch.zeros(5, 4, dtype=torch.bool)
    every = torch.arange(5)
    drawn = near.samples(values, seen, 400, seed=0, ids=every, corrected=0.0, own=every)
    distance = (drawn[:, :, None] - values).abs().amax(-1)
    nearest = distance.argmin(-1)
    assert not bool((nearest == every).any())
    assert all(len(nearest[:, row].unique()) == 4 for row in range(5))


def test_first_draws_are_the_same_for_every_number():
    near = fitted(*matrix())
    values, observed = matrix(rows=9, seed=1, share=0.5)
    many = near.samples(values, observed, 20, seed=2, ids=torch.arange(9))
    assert torch.equal(near.samples(values, observed, 7, seed=2, ids=torch.arange(9)), many[:7])
    assert not torch.equal(near.samples(values, observed, 7, seed=3, ids=torch.arange(9)), many[:7])


@pytest.mark.parametrize("kind", [ROW_MIXTURE_KINDS[0], ROW_MIXTURE_KINDS[3]])
def test_rows_have_the_same_bits_whatever_else_there_is(kind):
    near = fitted(*matrix(), kind)
    values, observed = matrix(rows=700, seed=1, share=0.5)
    ids = torch.arange(700)
    means = near.means(values, observed, ids)
    drawn = near.samples(values, observed, 2, seed=1, ids=ids)
    for rows in (torch.tensor([3]), torch.tensor([650, 4, 511]), torch.arange(500, 530)):
        asked = values[rows], observed[rows]
        for found, whole in zip(near.means(*asked, rows), means, strict=True):
            assert torch.equal(found, whole[rows])
        some = near.samples(*asked, 2, seed=1, ids=rows)
        assert torch.equal(some, drawn[:, rows])


# Plans and files.


def test_plans_under_a_budget_have_fewer_components():
    plan = plan_row_mixtures(50_000, 8, large=True)
    assert plan.components == MOST_ROW_MIXTURES
    under_budget = [plan.within(seconds).components for seconds in (0.01, 1.0, 10.0, 1e6)]
    assert under_budget == sorted(under_budget)
    assert (
        under_budget[0] < under_budget[1] < under_budget[2] <= under_budget[3] == MOST_ROW_MIXTURES
    )
    assert NeighbourPlan(0, 50, 4).within(1.0).number == 0


def test_wide_tables_have_fewer_components_and_given_numbers_are_kept():
    assert plan_row_mixtures(9_000, 1_000, large=True).components * 1_000 <= CELLS
    assert plan_row_mixtures(50, 4, large=False).components == 50
    assert plan_row_mixtures(50, 4, large=False, number=0).number == 0
    assert plan_row_mixtures(50, 40, large=False, number=3).number == 3


@pytest.mark.parametrize("kind", ROW_MIXTURE_KINDS)
def test_descriptions_and_states_make_equal_models(kind):
    near = fitted(*matrix(), kind)
    again = RowMixture.from_dict(near.to_dict())
    values, observed = matrix(rows=5, seed=1)
    again.means(values, observed, torch.arange(5))
    again.load_state_dict(near.state_dict())
    for one, other in zip(
        *(model.means(values, observed, torch.arange(5)) for model in (near, again)), strict=True
    ):
        assert torch.equal(one, other)


def test_rows_keep_their_dtype_when_models_change_theirs():
    near = fitted(*matrix())
    before = {name: tensor.dtype for name, tensor in near.state_dict().items()}
    near.half()
    assert {name: tensor.dtype for name, tensor in near.state_dict().items()} == before


def test_a_row_is_explained_without_its_copies():
    """Noise columns that stand in the table twice: nothing predicts them but a copy."""
    values = torch.randn(120, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    twice, rows = torch.cat([values, values]), torch.arange(240)
    observed = torch.ones_like(twice, dtype=torch.bool)
    kind = RowMixtureKind(ranks=False, uses_all_columns=True)
    settings = {"unordered": torch.zeros(3, dtype=torch.bool), "width": 3, "seed": 0}
    model = fit_row_mixture(twice, observed, kind, copies=rows % 120, **settings)
    shown = observed.clone()
    shown[:, 2] = False
    own = model.components_of(rows, 240)
    errors = [
        (part - twice)[:, 2].square().mean() for part in model.means(twice, shown, rows, own)[:2]
    ]
    assert min(errors) > 0.9, "a copy would tell the cell"
    unaware = fit_row_mixture(twice, observed, kind, **settings)
    assert (unaware.means(twice, shown, rows, rows).plain - twice)[:, 2].square().mean() < 0.1
    some = fit_row_mixture(twice, observed, kind, copies=rows % 120, most=60, **settings)
    components = some.components_of(rows, 240)
    there = components >= 0
    assert torch.equal(some.origin.rows[components[there]] % 120, rows[there] % 120)
    assert set((some.origin.rows % 120).tolist()) == set((rows[there] % 120).tolist())


# Metrics of single columns.


def waves(rows=300, seed=0):
    """A column that is a wave of the second, and two that are alike and say nothing about it."""
    generator = np.random.default_rng(seed)
    values = generator.uniform(-1.7, 1.7, size=(rows, 4))
    values[:, 0] = 1.4 * np.sin(2.0 * values[:, 1]) + 0.1 * values[:, 0]
    values[:, 3] = values[:, 2] + 0.05 * values[:, 3]
    return torch.from_numpy(values)


def test_a_metric_forgets_columns_that_do_not_matter():
    values = waves()
    near = fitted(values, torch.ones(values.shape, dtype=torch.bool))
    fit_metrics(near, [0, 2], seed=0)
    assert near.metric[0, 0] == 0.0
    assert near.metric[0, 1] > 2.0 * near.metric[0, 2:].max()
    assert not near.metric[[1, 3]].any()
    other, ids = waves(200, seed=1), torch.arange(200)
    shown = torch.ones(other.shape, dtype=torch.bool)
    shown[:, 0] = False
    plain = near.means(other, shown, ids).plain[:, 0]
    means = near.targeted_means(other, shown, ids)
    errors = [(each - other[:, 0]).square().mean() for each in (means[:, 0], plain)]
    assert errors[0] < 0.5 * errors[1]
    assert not means[:, 1:].any()


def test_metrics_are_not_fitted_to_hidden_cells():
    near = fitted(waves(), torch.ones(300, 4, dtype=torch.bool))
    hidden = torch.zeros(300, 4, dtype=torch.bool)
    hidden[:, 0] = True
    fit_metrics(near, [0, 2], seed=0)
    whole = near.metric
    fit_metrics(near, [0, 2], seed=0, hidden=hidden)
    assert whole[0].any()
    assert not near.metric[0].any()
    assert torch.equal(near.metric[2], whole[2])


def test_targeted_means_are_sums_over_components_with_the_cell():
    values, observed = matrix(rows=80)
    near = fitted(values, observed)
    fit_metrics(near, range(4), seed=0)
    ids, every = torch.arange(len(values)), torch.ones(values.shape, dtype=torch.bool)
    found = near.targeted_means(values, observed, ids, wanted=every, own=ids)
    spread = (near.doubts + near.noise).double().sqrt().numpy()
    logs = norm.logpdf(values.numpy()[:, None], near.centres.double().numpy(), spread)
    logs = np.where(observed.numpy()[:, None], logs, 0.0)
    for target in range(4):
        weights = (logs * near.metric[target].double().numpy()).sum(2)
        weights[:, ~observed[:, target].numpy()] = -np.inf
        np.fill_diagonal(weights, -np.inf)
        expected = softmax(weights, axis=1) @ values[:, target].numpy()
        np.testing.assert_allclose(found[:, target], expected, atol=1e-4)


def test_a_metric_does_not_learn_from_copies_of_a_row():
    """Noise that is written down twice predicts nothing."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(150, 4, generator=generator, dtype=torch.float64).repeat(2, 1)
    copies = torch.arange(150).repeat(2)
    near = fitted(values, torch.ones(values.shape, dtype=torch.bool), copies=copies)
    fit_metrics(near, [0], seed=0)
    assert near.metric[0].max() < 2.0


def test_few_known_cells_have_no_metric():
    values = waves()
    observed = torch.ones(values.shape, dtype=torch.bool)
    observed[30:, 0] = False
    near = fitted(values, observed)
    fit_metrics(near, [0, 1], seed=0)
    assert not near.metric[0].any()
    assert near.metric[1].any()


def test_columns_of_categories_agree_roughly_and_tell_no_distances():
    """Exact agreement would leave a noise of nearly 0, with which other points are far away."""
    generator = torch.Generator().manual_seed(0)
    number = torch.randn(200, 1, generator=generator, dtype=torch.float64)
    point = torch.tensor([-1.0, 1.0]).double()[torch.randint(2, (200, 1), generator=generator)]
    values, observed = torch.cat([number, point], dim=1), torch.ones(200, 2, dtype=torch.bool)
    model = fitted(values, observed, unordered=[1])
    assert model.noise.sqrt()[1] >= neighbours.UNORDERED_NOISE
    asked = torch.tensor([[0.1, 1.0], [0.1, 1.3], [0.1, 9.0], [9.0, 1.0]]).double()
    found = model.means(asked, torch.ones(4, 2, dtype=torch.bool), torch.arange(4)).distances[:, 0]
    assert (found[:3] < 1.0).all()
    assert found[3] > 100.0
    old = fitted(values, observed)
    assert old.measured is None
    far = old.means(asked, torch.ones(4, 2, dtype=torch.bool), torch.arange(4)).distances[:, 0]
    assert far[2] > 100.0
