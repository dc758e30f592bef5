"""Maps to normal scores: against numpy and scipy, and there and back."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import ndtri
from scipy.stats import rankdata

from vfg.tables.normal_scores import KNOTS, NormalScores, _knots


def column(cells):
    return torch.as_tensor(np.asarray(cells, dtype=np.float64))[:, None]


def fitted(cells, share):
    values = column(cells)
    return NormalScores.of(values, torch.ones_like(values, dtype=torch.bool), torch.tensor([share]))


def by_numpy(cells, share):
    """Scores of known cells: a cell that occurs twice has the middle of both ranks."""
    cells = np.asarray(cells, dtype=np.float64)
    return (1 - share) * cells + share * ndtri((rankdata(cells) - 0.5) / len(cells))


lists = arrays(
    np.float64,
    st.integers(2, 200),
    elements=st.floats(-8, 8, allow_nan=False).map(lambda x: round(x, 3)),
).filter(lambda cells: len(np.unique(cells)) > 1)


@given(lists, st.sampled_from([0.25, 0.5, 1.0]))
def test_few_values_have_the_scores_of_numpy(cells, share):
    cells = cells[np.isin(cells, np.unique(cells)[: KNOTS - 2])]
    if len(np.unique(cells)) < 2:
        return
    found = fitted(cells, share)(column(cells))[:, 0]
    np.testing.assert_allclose(found, by_numpy(cells, share), atol=1e-9)


def test_between_the_knots_maps_are_linear():
    cells = np.random.default_rng(0).gamma(2.0, size=5000)
    ranks = fitted(cells, 0.5)
    asked = np.random.default_rng(1).uniform(cells.min(), cells.max(), size=300)
    knots, scores = ranks.knots[0].numpy(), ranks.scores[0].numpy()
    np.testing.assert_allclose(
        ranks(column(asked))[:, 0], np.interp(asked, knots, scores), atol=1e-12
    )
    whole = by_numpy(cells, 0.5)
    inside = np.isin(knots, cells)
    assert inside.sum() == KNOTS - 2
    order = np.argsort(cells)
    np.testing.assert_allclose(
        scores[inside], np.interp(knots[inside], cells[order], whole[order]), atol=1e-12
    )


def test_a_skewed_column_is_halfway_to_a_normal_form():
    from scipy.stats import skew

    cells = np.random.default_rng(0).lognormal(size=4000)
    cells = (cells - cells.mean()) / cells.std()
    skews = [abs(skew(fitted(cells, share)(column(cells))[:, 0])) for share in (1.0, 0.5, 0.0)]
    assert skews == sorted(skews)
    assert skews[0] < 0.1
    assert skews[1] < 0.75 * skews[2]


@given(lists, arrays(np.float64, 20, elements=st.floats(-20, 20)), st.sampled_from([0.5, 1.0]))
def test_maps_are_monotone_and_lead_back(cells, asked, share):
    ranks = fitted(cells, share)
    asked = np.sort(np.concatenate([asked, cells]))
    scores = ranks(column(asked))
    assert bool((scores.diff(dim=0) >= 0).all())
    assert bool((ranks.scores.diff(dim=1) > 0).all())
    np.testing.assert_allclose(ranks.inverse(scores)[:, 0], asked, atol=1e-9)
    np.testing.assert_allclose(ranks(ranks.inverse(scores)), scores, atol=1e-9)


def test_beyond_the_knots_maps_go_on_as_values_do():
    # Were the outer piece to go on, a step of 1 would be one of some hundred thousands.
    ranks = fitted([-1.0, 0.0, 2.0, 2.000001], 0.5)
    ends = ranks(column([-1.0, 2.000001]))[:, 0]
    far = ranks(column([-4.0, 2.000001 + 3.0]))[:, 0]
    np.testing.assert_allclose(far, ends + torch.tensor([-3.0, 3.0]), atol=1e-9)


@pytest.mark.parametrize("cells", [[2.0] * 5, []])
def test_a_column_without_two_values_stays_as_it_is(cells):
    values = torch.tensor(cells, dtype=torch.float64)
    assert _knots(values, 0.5) is None
    asked = column([-3.0, 0.1, 7.5])
    np.testing.assert_allclose(fitted(cells, 0.5)(asked), asked, atol=1e-12)


def test_only_known_cells_count():
    values = torch.tensor([[1.0, 0.0], [2.0, 5.0], [4.0, 6.0], [900.0, 7.0]], dtype=torch.float64)
    observed = torch.tensor([[True, False], [True, True], [True, True], [False, True]])
    ranks = NormalScores.of(values, observed, torch.tensor([1.0, 0.0]))
    scores = ranks(values)
    np.testing.assert_allclose(scores[:3, 0], by_numpy([1.0, 2.0, 4.0], 1.0))
    np.testing.assert_allclose(scores[:, 1], values[:, 1], err_msg="a share of 0 changes nothing")


def test_scores_of_different_columns_go_back_at_once():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(300, 3, generator=generator, dtype=torch.float64).exp()
    ranks = NormalScores.of(
        values, torch.ones_like(values, dtype=torch.bool), torch.tensor([0.0, 0.5, 1.0])
    )
    scores = 4.0 * torch.randn(2, 500, generator=generator, dtype=torch.float64)
    columns = torch.randint(3, (2, 500), generator=generator)
    wide = torch.stack([ranks.inverse(scores[..., None].expand(-1, -1, 3))])[0]
    expected = wide.gather(-1, columns[..., None])[..., 0]
    torch.testing.assert_close(ranks.inverse_at(scores, columns), expected, rtol=1e-12, atol=1e-12)
