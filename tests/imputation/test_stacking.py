"""How parts join: against least squares by hand, and on tables of known kind."""

import numpy as np
import pytest
import torch

import vfg
from vfg.gaussian.conditional_means import exact_means
from vfg.imputation import held_out
from vfg.imputation import stacking as combining
from vfg.imputation.ensemble import Ensemble
from vfg.imputation.fitting import _hold_out_sections
from vfg.imputation.held_out import FEWEST_ROWS
from vfg.imputation.mixtures import Mixture, fit_linear, fit_mixture, star
from vfg.imputation.parts import (
    CLIP,
    KINDS,
    HeldOutCells,
    Parts,
    Stacking,
    corrected_share,
    drawing_shares,
    member_means,
)
from vfg.imputation.plan import RowMixtureKind
from vfg.imputation.resources import Turn, now
from vfg.imputation.row_mixture import RowMixture, fit_row_mixture
from vfg.imputation.stacking import (
    AVERAGING_PRIOR,
    DEPARTURE,
    ODDS_OF_LINEAR,
    START,
    START_LINEAR,
    START_PRIOR,
    Sums,
    _errors,
    _sums,
    _weights,
    averaging_matrix,
    averaging_of_kinds,
    fit_stacking,
)
from vfg.sklearn import VFGImputer
from vfg.tables.numeric import NormalScores

ALL = torch.ones(len(KINDS), dtype=torch.bool)


def sums(x, *guesses):
    """Of guesses that are their own means; kinds that are not given say nothing."""
    p = torch.stack([*guesses, *[torch.zeros_like(x)] * (len(KINDS) - len(guesses))])
    return Sums(*(part.sum(-2) for part in (x * x, x * p, p[:, None] * p)))


def normals(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def gappy(values, share=0.7, seed=1):
    """Which cells are known, and the matrix with 0 in its gaps."""
    observed = torch.rand(values.shape, generator=torch.Generator().manual_seed(seed)) < share
    return values * observed, observed


def parts_of(values, observed, *, members=2, neighbours=0):
    """Members without training, what they start from, neighbours, and the cells kept aside."""
    columns = values.shape[1]
    graph = star([1] * columns, 3)
    held = [_hold_out_sections(graph, observed, 0.3, seed) for seed in range(members)]
    linears = [fit_linear(graph, values, observed & ~own, 0) for own in held]
    flow = vfg.Coupling(blocks=2, hidden=8, layers=2)
    bent = [vfg.VFG.from_gaussian(linear, flow=flow).float() for linear in linears]
    near = [
        fit_row_mixture(
            values,
            observed,
            RowMixtureKind(ranks=bool(place % 2), uses_all_columns=True),
            unordered=torch.zeros(columns, dtype=torch.bool),
            width=3,
            seed=place,
        )
        for place in range(neighbours)
    ]
    return Parts(bent, linears, [], near), held


def in_clusters(rows=400, columns=5):
    """Four clusters, far from each other, as standardised columns."""
    centres = 3.0 * normals(4, columns)
    generator = torch.Generator().manual_seed(2)
    chosen = torch.randint(4, (rows,), generator=generator)
    values = centres[chosen] + 0.2 * normals(rows, columns, seed=1)
    return (values - values.mean(0)) / values.std(0)


def test_weights_are_least_squares_with_two_priors():
    guesses = [normals(400, 3, seed=seed) for seed in range(5)]
    wanted = (0.6, 0.3, 0.2, 0.1, 0.4)
    x = sum(weight * guess for weight, guess in zip(wanted, guesses, strict=True))
    x = x + 0.1 * normals(400, 3, seed=5)
    rows = np.stack([guess.flatten() for guess in guesses], axis=1)
    left, truth = rows.T @ rows + START_PRIOR * np.eye(5), x.flatten().numpy()
    both, likelihoods = [], []
    variance = np.inf
    for prior in (START, START_LINEAR):
        right = rows.T @ truth + START_PRIOR * np.array(prior) / sum(prior)
        both.append(np.linalg.solve(left, right))
        variance = min(variance, np.square(truth - rows @ both[-1]).mean())
    for weights, odds in zip(both, (1.0, ODDS_OF_LINEAR), strict=True):
        squares = np.square(truth - rows @ weights) - variance
        likelihoods.append(odds * np.exp(-0.5 * squares.sum() / variance))
    expected = np.average(both, axis=0, weights=likelihoods)
    found = _weights(sums(x, *guesses), ALL, len(truth))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.abs(both[0] - both[1]).max() > 0.01


def test_few_cells_move_the_weights_to_a_linear_model_that_is_nearly_true():
    """With the usual prior alone its weight would be 0.2: 90 cells against a prior of 100."""
    x = normals(30, 3)
    guesses = [x + 0.6 * normals(30, 3, seed=seed) for seed in range(1, 6)]
    guesses[2] = x + 0.1 * normals(30, 3, seed=7)
    found = _weights(sums(x, *guesses), ALL, x.numel())
    assert found[2] > 0.8
    without = torch.tensor([True, True, False, True, True])
    assert _weights(sums(x, *guesses), without, x.numel())[2] == 0.0


def test_averaging_never_changes_the_linear_model():
    truth = normals(4000)
    linear = truth + 0.5 * normals(4000, seed=1)
    many = truth + 1.5 * normals(10, 4000, seed=2)
    kinds = [torch.stack([x, x, linear, x, x]) for x in (many[0], many.mean(0))]
    kinds = [k + 0.01 * normals(5, 4000, seed=3) * (torch.arange(5) != 2)[:, None] for k in kinds]
    single, mean = (k @ k.T for k in kinds)
    averaging, change = averaging_of_kinds(single, mean)
    place = KINDS.index("linear")
    assert torch.equal(averaging[place], torch.eye(5, dtype=torch.float64)[place])
    result = averaging @ single @ averaging.T
    assert float(result[place, place]) == pytest.approx(float(single[place, place]))
    torch.testing.assert_close(result[0], mean[0], rtol=0.05, atol=0.0)
    assert float(change.abs().max()) < 0.05  # parts are alike, so slopes are the same


def test_one_outlier_does_not_decide_the_weights():
    """Members are right about it alone, neighbours about all others."""
    x = normals(300, 2)
    x[7, 0] = 500.0
    single = torch.zeros(len(KINDS), 300, 2, dtype=torch.float64)
    single[0, 7, 0], single[4] = 500.0, x
    single[4, 7, 0] = 0.0
    every = torch.arange(300)
    nothing = torch.zeros(2, len(KINDS), len(KINDS), dtype=torch.float64)
    kept = HeldOutCells(
        0, every, x, torch.ones_like(x).bool(), torch.ones_like(x), single, nothing, None
    )
    total = _sums(kept)
    assert float(total.xx.max()) < 300 * 1.3 + CLIP**2
    found = _weights(total, ALL, x.numel())
    assert found[4] > 0.7
    assert found[0] < 0.6


def said_by_parts(rows, seed):
    """Two kinds: twenty parts that err a lot each for itself, and two that err little together."""
    truth = normals(rows, seed=seed)
    many = truth + 1.5 * normals(20, rows, seed=seed + 1)
    few = truth + 0.5 * normals(rows, seed=seed + 2) + 0.1 * normals(2, rows, seed=seed + 3)
    single, mean = (torch.stack(each) for each in ((many[0], few[0]), (many.mean(0), few.mean(0))))
    return truth, single, mean


def test_averaging_is_estimated_at_missing_cells():
    """What single parts say elsewhere tells how well means would do there."""
    _, single, mean = said_by_parts(20_000, seed=0)
    averaging = averaging_matrix(single @ single.T, mean @ mean.T)
    truth, single, mean = said_by_parts(20_000, seed=10)
    found = averaging @ (single @ single.T) @ averaging.T
    np.testing.assert_allclose(found, mean @ mean.T, rtol=0.05)
    # Least squares by it are those of the means, in which the many outweigh the few.
    weights = torch.linalg.solve(found, single @ truth)
    np.testing.assert_allclose(weights, torch.linalg.solve(mean @ mean.T, mean @ truth), atol=0.05)
    assert weights[0] > weights[1]


@pytest.mark.parametrize("seed", range(5))
def test_averaging_makes_nothing_larger(seed):
    single, mean = (normals(5, 6, seed=20 * k + seed) for k in (1, 2))
    single, mean = (1e3 * each @ each.T for each in (single, mean))
    averaging = averaging_matrix(single, mean)
    left = single - averaging @ single @ averaging.T
    assert torch.linalg.eigvalsh(left).min() > -1.001 * AVERAGING_PRIOR


def test_without_missing_cells_averaging_changes_nothing():
    nothing = torch.zeros(5, 5, dtype=torch.float64)
    torch.testing.assert_close(
        averaging_matrix(nothing, nothing), torch.eye(5, dtype=torch.float64)
    )


@pytest.mark.parametrize(
    "wanted",
    [(0.8, -0.5, 0.0, 0.3, 0.0), (-0.9, 0.7, 0.2, -0.2, 0.5), (0.3, 0.0, -0.4, 0.0, -0.1)],
)
def test_weights_are_never_negative(wanted):
    guesses = [normals(4000, 2, seed=seed) for seed in range(5)]
    x = sum(weight * guess for weight, guess in zip(wanted, guesses, strict=True))
    found = _weights(sums(x, *guesses), ALL, x.numel())
    assert bool((found >= 0).all())
    np.testing.assert_allclose(found, np.maximum(wanted, 0.0), atol=0.04)


@pytest.mark.parametrize("place", range(5))
def test_noise_gets_no_weight(place):
    truth = normals(4000, 2)
    guesses = [truth + 0.5 * normals(4000, 2, seed=seed) for seed in range(1, 6)]
    guesses[place] = 3.0 * normals(4000, 2, seed=9)
    found = _weights(sums(truth, *guesses), ALL, truth.numel())
    assert found[place] < 0.01
    others = [k for k in range(5) if k != place]
    np.testing.assert_allclose(found[others], 1.0 / (4.0 + 0.5**2), atol=0.03)


def test_absent_kinds_get_no_weight():
    guesses = [normals(400, 3), torch.zeros(400, 3, dtype=torch.float64), normals(400, 3, seed=1)]
    present = torch.tensor([True, False, True, False, False])
    found = _weights(sums(guesses[0], *guesses), present, 1200)
    assert (found[~present] == 0).all()
    assert found[0].item() == pytest.approx(1.0, abs=0.02)


def test_independent_columns_are_shrunk_to_their_means():
    values, observed = gappy(normals(300, 6))
    parts, held = parts_of(values, observed, neighbours=1)
    found = fit_stacking(parts, values, observed, held)
    assert float((found.means.weights.sum() * found.means.factors).mean()) < 0.5


def test_dependent_columns_are_not_shrunk():
    values, observed = gappy(normals(300, 1).repeat(1, 4) + 0.1 * normals(300, 4, seed=1))
    parts, held = parts_of(values, observed)
    found = fit_stacking(parts, values, observed, held)
    np.testing.assert_allclose(found.means.weights.sum() * found.means.factors, 1.0, atol=0.05)


def test_absent_linear_models_get_no_weight():
    values, observed = gappy(normals(200, 1).repeat(1, 3) + 0.3 * normals(200, 3, seed=1))
    parts, held = parts_of(values, observed)
    parts.linears = None
    assert fit_stacking(parts, values, observed, held).means.weights[1:].tolist() == [0.0] * 4


def test_mixtures_get_weight_where_members_miss_the_clusters():
    values, observed = gappy(in_clusters(), share=0.6)
    parts, held = parts_of(values, observed)
    graph = parts.linears[0].graph
    parts.mixtures = [
        Mixture(
            fit_mixture(graph, values, observed & ~own, 6, seed, seed),
            NormalScores(values.shape[1]),
        )
        for seed, own in enumerate(held)
    ]
    found = fit_stacking(parts, values, observed, held)
    assert found.means.weights[1] > 0.5


def test_row_mixtures_get_weight_where_members_miss_the_clusters():
    values, observed = gappy(in_clusters(), share=0.6)
    parts, held = parts_of(values, observed, neighbours=2)
    found = fit_stacking(parts, values, observed, held)
    assert found.means.weights[3:].sum() > 0.5
    assert found.means.weights[1] == 0


def test_draws_are_as_wide_as_errors_where_columns_are_normal():
    values = normals(600, 4) @ normals(4, 6, seed=1)
    values = (values + 0.5 * normals(600, 6, seed=2)) / (values.std(0) ** 2 + 0.25).sqrt()
    values, observed = gappy(values)
    parts, held = parts_of(values, observed)
    found = fit_stacking(parts, values, observed, held)
    np.testing.assert_allclose(found.draws.spread, 1.0, atol=0.15)


def test_the_spread_is_half_way_between_variance_and_tail(monkeypatch):
    values, observed = gappy(normals(300, 4))
    parts, held = parts_of(values, observed)
    spreads = []
    for tail in (1.0, 1.21, 0.81):
        monkeypatch.setattr(combining, "tail_factor", lambda *given, tail=tail: tail)
        spreads.append(fit_stacking(parts, values, observed, held).draws.spread)
    wide = (spreads[0] > 1.0) & (spreads[1] < combining.SPREADS[1])
    assert bool(wide.any())
    np.testing.assert_allclose(spreads[1][wide], 1.1 * spreads[0][wide])
    np.testing.assert_allclose(spreads[2], spreads[0])  # never narrower than the variance


def test_errors_are_those_of_parts_that_did_not_see_the_held_out_cells():
    values, single = 4.0 * normals(20, 3), 4.0 * normals(len(KINDS), 20, 3, seed=1)
    counted = (normals(20, 3, seed=2) > 0).double()
    weights, factors = normals(len(KINDS), seed=3).abs(), torch.tensor([0.5, 1.0, 0.9]).double()
    kept = HeldOutCells(
        0, torch.arange(20), values, counted == 0, counted, single, 0.0 * single, None
    )
    by_hand = [
        np.clip(float(values[row, column]), -CLIP, CLIP)
        - float(factors[column])
        * np.clip(float((weights * single[:, row, column]).sum()), -CLIP, CLIP)
        for row, column in counted.nonzero().tolist()
    ]
    assert values.abs().max() > CLIP
    np.testing.assert_allclose(_errors(kept, weights, factors), by_hand)


def test_the_observed_range_is_that_of_the_known_cells():
    values, observed = gappy(normals(100, 4))
    parts, held = parts_of(values, observed)
    found = fit_stacking(parts, values, observed, held)
    table = np.where(observed, values, np.nan)
    np.testing.assert_array_equal(found.reach, [np.nanmin(table, 0), np.nanmax(table, 0)])


@pytest.mark.parametrize("weights", [(0.2, 0.3, 0.0, 0.1, 0.2), (0.0, 0.0, 0.0, 0.0, 1.3)])
def test_neighbours_draw_as_often_as_plain_and_corrected_ones_weigh(weights):
    weights = torch.tensor(weights, dtype=torch.float64)
    shares = drawing_shares(weights)
    assert shares.sum().item() == pytest.approx(1.0)
    np.testing.assert_allclose(shares[:3] * weights.sum(), weights[:3])
    np.testing.assert_allclose(corrected_share(weights) * shares[3] * weights.sum(), weights[4])


def test_the_plain_combination_is_the_members_mean():
    plain = Stacking.of_members(3)
    assert plain.means.weights.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert plain.means.factors.tolist() == [1.0, 1.0, 1.0]
    assert plain.draws.spread.tolist() == [1.0, 1.0, 1.0]
    assert plain.reach.tolist() == [[-np.inf] * 3, [np.inf] * 3]


def test_under_a_budget_the_cells_of_few_members_are_used(monkeypatch):
    looked = []
    values = normals(700, 3)
    observed = torch.ones_like(values, dtype=torch.bool)
    parts, held = parts_of(values, observed, members=3)
    kept = held_out._held_out_cells

    def noted(*given):
        found = kept(*given)
        looked.append((found.place, len(found.ids)))
        return found

    monkeypatch.setattr(held_out, "_held_out_cells", noted)
    fit_stacking(parts, values, observed, held)
    fit_stacking(parts, values, observed, held, turn=Turn(now() + 1e6))
    usual, under_budget = looked[:3], looked[3:]
    assert [place for place, _ in usual] == [0, 1, 2]
    assert under_budget == [(0, FEWEST_ROWS), (1, FEWEST_ROWS)]
    assert min(rows for _, rows in usual) > FEWEST_ROWS


class Confident:
    """A mixture that knows what it saw, and errs a lot elsewhere, each in its own way."""

    def __init__(self, truth, seen, seed):
        self.truth, self.seen = truth, seen
        self.errors = 1.5 * normals(*truth.shape, seed=seed)

    def means(self, values, observed, ids):
        rows = (values[:, :1] == self.truth[:, 0]).long().argmax(1)
        return self.truth[rows] + torch.where(self.seen[rows], 0.0, self.errors[rows])

    def samples(self, values, observed, number, *, seed, ids):
        return self.means(values, observed, ids) + normals(number, *values.shape, seed=seed)


def test_parts_with_independent_errors_get_the_weight_of_their_mean():
    """With x of variance 1 and the mean of eight erring by 1.5² / 8, that is 1 / (1 + 1.5² / 8)."""
    truth = normals(800, 6)
    observed = torch.rand(truth.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    observed[:, 0] = True  # tells rows apart
    parts, held = parts_of(truth * observed, observed)
    for own in held:
        own[:, 0] = False
    others = [
        _hold_out_sections(parts.members[0].graph, observed, 0.1, seed) for seed in range(10, 16)
    ]
    parts.mixtures = [
        Confident(truth, observed & ~own, seed) for seed, own in enumerate([*held, *others], 50)
    ]
    found = fit_stacking(parts, truth * observed, observed, held)
    joint = found.means.weights[1] * found.means.factors[1:].mean()
    assert float(joint) == pytest.approx(1.0 / (1.0 + 1.5**2 / 8), abs=0.06)


def test_row_mixtures_of_different_kinds_predict_the_cells_of_different_members(monkeypatch):
    values, observed = gappy(in_clusters(rows=120))
    parts, held = parts_of(values, observed, neighbours=4)
    without, asked = RowMixture.without, []

    def noted(near, *given):
        asked.append(next(k for k, one in enumerate(parts.neighbours) if one is near))
        return without(near, *given)

    monkeypatch.setattr(RowMixture, "without", noted)
    fit_stacking(parts, values, observed, held)
    assert asked == [0, 2]


def test_the_order_of_rows_does_not_decide_the_spread(monkeypatch):
    """A table sorted by how noisy its rows are has the intervals of the same table shuffled."""
    monkeypatch.setattr(held_out, "FEWEST_ROWS", 64)
    monkeypatch.setattr(held_out, "ROWS", 128)
    noise = torch.where(torch.arange(600) < 150, 0.1, 1.0).double()[:, None]
    factor = normals(600, 1)
    values = factor + noise * normals(600, 3, seed=1)
    values = (values - values.mean(0)) / values.std(0)
    observed = torch.ones(600, 3, dtype=torch.bool)
    parts, held = parts_of(values, observed)
    spreads = []
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))
    for rows in (torch.arange(600), order):
        own = [mask[rows] for mask in held]
        found = combining.fit_stacking(parts, values[rows], observed[rows], own)
        spreads.append(found.draws.spread.mean().item())
    assert spreads[0] == pytest.approx(spreads[1], rel=0.15)


def test_the_gain_of_a_step_to_the_linear_model_is_the_best_of_all_steps():
    rows, columns = 50, 3
    truth, counted = normals(rows, columns), (normals(rows, columns, seed=1) > 0).double()
    single = torch.stack([truth + normals(rows, columns, seed=k) for k in range(2, 7)])
    shown = counted == 0
    held = HeldOutCells(0, torch.arange(rows), truth, shown, counted, single, torch.empty(0), None)
    weights = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    stacking = Stacking.of_members(columns).with_buffers({"weights": weights})
    parts = Parts(linears=[], combination=stacking, held_out=[held])
    errors = [
        float(((truth - single[1] - a * (single[2] - single[1])).square() * counted).sum())
        for a in np.linspace(0.0, 1.0, 1001)
    ]
    gain = combining.gain_towards_linear(parts)
    assert gain == pytest.approx(1.0 - min(errors) / errors[0], abs=1e-5)
    held.single[2] = single[1] - (truth - single[1])  # away from the truth
    assert combining.gain_towards_linear(parts) == 0.0
    assert combining.gain_towards_linear(Parts(linears=[])) == 1.0


class TestDepartures:
    def test_limits_are_the_largest_departures_at_held_out_cells(self):
        values, observed = gappy(in_clusters(200))
        parts, held = parts_of(values, observed, neighbours=1)
        limits = fit_stacking(parts, values, observed, held).means.departures
        largest = torch.zeros_like(limits)
        every = torch.arange(len(values))
        for place, own in enumerate(held):
            shown = observed & ~own
            near = parts.neighbours[0].without(values, observed, own)
            linear = exact_means(parts.linears[place], values, shown)
            member = member_means(parts.members[place], 1, values, shown)[0]
            found = [member, linear, linear, *near.means(values, shown, every, every)[:2]]
            distances = (torch.stack(found) - linear).abs() * own
            largest = torch.maximum(largest, distances.amax(1))
        used = [0, 3, 4]
        assert (limits[used] >= DEPARTURE * largest[used] - 1e-6).all()
        assert (limits[used] < 12.0 * largest[used] + 1.0).all(), "and not far beyond"
        assert (limits[2] == 0.0).all()

    def test_a_part_that_departs_too_far_is_limited(self):
        """What a small component says of a row that is unlike all others."""
        model = Ensemble(2)
        model.weights.data.copy_(torch.tensor([0.0, 0.6, 0.4, 0.0, 0.0]))
        model.departures = torch.full((len(KINDS), 2), 1.5, dtype=torch.float64)
        expected = {
            "mixtures": torch.tensor([[9.0, 0.5]], dtype=torch.float64),
            "linear": torch.tensor([[1.0, -0.5]], dtype=torch.float64),
        }
        found = model.stacked_means(expected)
        assert found[0].tolist() == pytest.approx([0.6 * 2.5 + 0.4, 0.6 * 0.5 - 0.4 * 0.5])

    def test_rows_of_another_region_are_filled_near_the_linear_model(self, tmp_path):
        """Two equal columns with a heavy tail, both missing, of rows beyond the few large ones."""
        generator = np.random.default_rng(0)
        place = np.concatenate([generator.uniform(-1.0, 1.0, 300), generator.uniform(1.1, 1.2, 6)])
        size = np.where(place > 1.05, 40.0, 5.0) + place + generator.normal(size=306)
        table = np.stack([place, size, size + 0.1 * generator.normal(size=306)], axis=1)
        far = np.column_stack([np.linspace(1.3, 1.6, 5), np.full((5, 2), np.nan)])
        model = vfg.TableModel(seed=0, members=1, steps=5, mixtures=1, neighbours=1)
        model.fit(table)
        linear = vfg.TableModel(seed=0, bend=False)
        linear.fit(table)
        assert model.departures is not None
        limit = float(model.departures.max()) * table.std(0).max()
        assert np.abs(model.fill(far) - linear.fill(far))[:, 1:].max() < limit
        vfg.save(model, tmp_path / "model.vfg")
        loaded = vfg.load(tmp_path / "model.vfg")
        assert np.array_equal(loaded.fill(far), model.fill(far))


@pytest.mark.parametrize("uses", [False, True])
def test_metrics_are_used_where_they_reduce_errors(uses):
    """Not for independent columns, but for a wave of one of them."""
    generator = np.random.default_rng(2)
    cells = generator.uniform(-2.0, 2.0, size=(300, 4))
    cells[:, 0] = np.sin(3.0 * cells[:, 1]) if uses else cells[:, 0]
    hidden = np.where(generator.random(cells.shape) < 0.2, np.nan, cells)
    imputer = VFGImputer(random_state=0, n_jobs=1, mixtures=2, trees=0, steps=20).fit(hidden)
    model = imputer.model_
    assert (model.targeted is not None) == uses
    assert [one.metric is not None for one in model.row_mixture_models] == [uses, False]
    if uses:
        rows = np.isnan(hidden[:, 0]) & ~np.isnan(hidden[:, 1])
        error = np.square(imputer.transform(hidden) - cells)[rows, 0].mean()
        model.targeted = None
        assert error < np.square(imputer.transform(hidden) - cells)[rows, 0].mean()
