"""Medians of cells as likely values of their columns."""

from itertools import product

import numpy as np
import pytest
import torch
from imputation.mixed_tables import light, numbers

from vfg.imputation.medians import (
    CENTRES,
    POWERS,
    PRIOR,
    SHAPES,
    SIZE_PRIOR,
    WIDTHS,
    likely_medians,
    weigh_candidates,
    weighted_medians,
)
from vfg.imputation.plan import ROW_MIXTURE_KINDS
from vfg.imputation.row_mixture import fit_row_mixture
from vfg.modelfile import dumps, loads
from vfg.sklearn import VFGImputer


def row_mixture(rows=80, weights=None, copies=None):
    """A row mixture of three columns, its table and mask."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    table[:, 2] += table[:, 0]
    known = torch.rand(rows, 3, generator=generator) > 0.2
    options = {"unordered": torch.zeros(3, dtype=torch.bool), "width": 3, "seed": 0}
    model = fit_row_mixture(
        table, known, ROW_MIXTURE_KINDS[0], weights=weights, copies=copies, **options
    )
    return model, table, known


def median(values, weights):
    """The least value with at least half of the weight at or below it."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return values[order][np.searchsorted(below, 0.5 * below[-1])]


def test_weighted_medians_are_those_of_repeated_values():
    generator = np.random.default_rng(0)
    values, often = np.sort(generator.normal(size=9)), generator.integers(0, 6, size=(50, 9))
    often[:, 4] += 1 - often.sum(1) % 2  # an odd number, whose median is a single value
    weights = torch.from_numpy(often).double()
    found = weighted_medians(torch.from_numpy(values), weights.log())
    wanted = [np.median(np.repeat(values, own)) for own in often]
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("weighted", [False, True])
def test_candidates_are_medians_of_likely_values(weighted):
    often = torch.arange(1.0, 81.0, dtype=torch.float64) if weighted else None
    model, table, known = row_mixture(weights=often)
    rows, shown = table[:6], known[:6].clone()
    shown[:, 2] = False
    sizes, ids = torch.tensor([0.5, 0.6, 0.7]), torch.arange(6)
    centres = torch.stack([rows * 0.5, rows * 0.5 - 0.3])
    found = likely_medians(model, (rows, shown, ids), ~shown, centres, sizes)
    shares = model.shares_of_rows(rows, shown).double().numpy()
    values, there = table[:, 2].numpy(), known[:, 2].numpy()
    base = np.ones(80) if often is None else often.numpy()
    for row, which in product(range(6), range(CENTRES)):
        centre = float(centres[which, row, 2])
        assert found[which * SHAPES, row, 2] == centre
        for place, (power, width) in enumerate(product(POWERS, WIDTHS), start=1):
            near = np.exp(-0.5 * ((values - centre) / (width * 0.7)) ** 2)
            weights = shares[row] ** power * base ** (1.0 - power) * near
            wanted = median(values[there], weights[there])
            assert float(found[which * SHAPES + place, row, 2]) == pytest.approx(wanted, abs=1e-5)
    torch.testing.assert_close(found[:, shown], centres.repeat_interleave(SHAPES, 0)[:, shown])


def test_rows_and_their_copies_are_left_out():
    copies = torch.arange(80)
    copies[7] = 3
    model, table, known = row_mixture(copies=copies)
    out = model.left_out(torch.tensor([3, -1, 5]))
    assert out.nonzero().tolist() == [[0, 3], [0, 7], [2, 5]]
    rows, shown = table[[3]], torch.zeros(1, 3, dtype=torch.bool)
    near = (rows, shown, torch.tensor([0])), ~shown, rows.repeat(2, 1, 1), torch.full((3,), 1e-4)
    assert known[3].any()
    with_own = likely_medians(model, *near)[1:, 0, known[3]]
    without = likely_medians(model, *near, torch.tensor([3]))[1:SHAPES, 0, known[3]]
    torch.testing.assert_close(with_own, table[3, known[3]].expand(with_own.shape))
    assert bool((without - table[3, known[3]]).abs().gt(1e-4).all())


def test_beyond_all_values_medians_follow_the_centres():
    """At the highest value the others pull downwards, far beyond it they do not."""
    model, table, known = row_mixture()
    shown = torch.zeros(1, 3, dtype=torch.bool)
    highest, steps = table[known[:, 0], 0].max(), []
    for beyond in (0.0, 1.0, 8.0):
        centres = torch.full((2, 1, 3), float(highest + beyond), dtype=torch.float64)
        rows = table[:1], shown, torch.arange(1)
        found = likely_medians(model, rows, ~shown, centres, torch.full((3,), 2.0))
        steps.append((found[:, 0, 0] - centres[0, 0, 0])[1:SHAPES])
    assert bool((steps[0] < -0.1).all())
    fading = torch.exp(-0.5 / (2.0 * torch.tensor(WIDTHS * len(POWERS), dtype=torch.float64)) ** 2)
    torch.testing.assert_close(steps[1], fading * steps[0])
    assert bool((steps[2].abs() < 1e-6).all())


def test_candidates_have_their_posterior_probabilities():
    """Shares that do not change any more are those of Bayes' rule."""
    generator = np.random.default_rng(0)
    number = np.array([30.0, 200.0, 5.0, 0.0])
    losses = generator.uniform(0.8, 1.2, size=(CENTRES * SHAPES, 4)) * number
    found = weigh_candidates(torch.from_numpy(losses), torch.from_numpy(number)).numpy()
    shares = (found[:, :3].sum(1) + PRIOR / len(losses)) / (3.0 + PRIOR)
    np.testing.assert_allclose(found[:, 3], shares, rtol=0.05)  # a column without cells
    sizes = (losses[0] + SIZE_PRIOR * losses[0].sum() / number.sum()) / (number + SIZE_PRIOR)
    likelihoods = np.exp(-losses / sizes) * found[:, 3:]
    np.testing.assert_allclose(found, likelihoods / likelihoods.sum(0))


def test_what_is_best_for_most_columns_is_likelier_for_others():
    losses = torch.full((CENTRES * SHAPES, 8), 100.0, dtype=torch.float64)
    losses[1:, :7] = 103.0  # small losses, but in seven columns
    losses[4, 7] = 98.0
    number = torch.full((8,), 100.0, dtype=torch.float64)
    together, alone = weigh_candidates(losses, number), weigh_candidates(losses[:, 7:], number[7:])
    assert float(together[0, :7].min()) > 0.95
    assert float(together[4, 7]) < 0.5 * float(alone[4, 0])
    losses[4, 7] = 80.0
    assert float(weigh_candidates(losses, number)[4, 7]) > 0.99


def piled_up(rows, seed):
    """Columns that pile up at both ends, given two others."""
    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(rows, 2))
    outputs = inputs @ np.array([[1.0, 1.0], [0.7, -0.7]]) + generator.normal(size=(rows, 2))
    return np.column_stack([inputs, np.clip(1.5 * outputs, -1.0, 1.0)])


def by_draws(imputer, table):
    """Medians by draws alone, as models of earlier versions have them."""
    kept, imputer.model_.median_weights = imputer.model_.median_weights, None
    medians = imputer.transform(table)
    imputer.model_.median_weights = kept
    return medians


def test_medians_of_cells_that_pile_up_are_there():
    train, truth = piled_up(400, 0), piled_up(1000, 1)
    imputer = VFGImputer(estimate="median", random_state=0).fit(train)
    asked = truth.copy()
    asked[:, 2] = np.nan
    medians, earlier = imputer.transform(asked)[:, 2], by_draws(imputer, asked)[:, 2]
    errors, before = (np.abs(filled - truth[:, 2]).mean() for filled in (medians, earlier))
    assert errors < 0.97 * before
    # A median is at an end where most of the cells like it are, which 70 % of the cells are.
    at_ends, were = (np.mean(np.abs(filled) > 0.995) for filled in (medians, earlier))
    assert at_ends > 0.5 > 2.0 * were


def test_medians_of_independent_columns_are_nearly_means():
    """Their differences from means are chance, so they must not cost."""
    table = np.random.default_rng(0).uniform(size=(400, 10))
    train, truth = table[:250], table[250:]
    missing = np.random.default_rng(1).random(truth.shape) < 0.4
    asked = np.where(missing, np.nan, truth)
    imputer = VFGImputer(random_state=0).fit(train)
    means = imputer.transform(asked)
    medians = imputer.set_params(estimate="median").transform(asked)
    errors, best = (np.abs(filled - truth)[missing].mean() for filled in (medians, means))
    assert errors < 1.008 * best


def test_models_without_weights_of_medians_answer_by_draws():
    table = numbers(rows=80)[1]
    imputer = light(neighbours=1, mixtures=1, estimate="median").fit(table)
    loaded, earlier = loads(dumps(imputer.model_)), by_draws(imputer, table)
    torch.testing.assert_close(loaded.median_weights, imputer.model_.median_weights)
    assert not np.array_equal(imputer.transform(table), earlier)
    values, observed = imputer.model_.encode(table)
    imputer.model_.median_weights = None
    older = loads(dumps(imputer.model_))
    assert older.median_weights is None
    same = [medians(model, values, observed) for model in (older, imputer.model_)]
    torch.testing.assert_close(*same, rtol=0.0, atol=0.0)
    without = light(neighbours=0, mixtures=2, estimate="median").fit(table)
    assert without.model_.median_weights is None


def medians(model, values, observed, ids=None):
    """Those of encoded rows."""
    ids = torch.arange(len(values)) if ids is None else ids
    prediction = model.predictions(values, observed, ids)
    return model.medians(values, observed, prediction, seed=0, ids=ids)


def test_medians_of_rows_do_not_depend_on_other_rows():
    train, truth = piled_up(200, 0), piled_up(40, 1)
    model = VFGImputer(random_state=0).fit(train).model_
    truth[:, 2] = np.nan
    values, observed = model.encode(truth)
    whole, some = medians(model, values, observed), torch.tensor([7, 30, 31])
    part = medians(model, values[some], observed[some], some)
    torch.testing.assert_close(part, whole[some], rtol=0.0, atol=0.0)
