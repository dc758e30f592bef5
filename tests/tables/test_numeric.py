"""Numbers and dates as standardised numbers."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import ndtri
from scipy.stats import rankdata

from vfg.tables import Continuous, Date, Integer
from vfg.tables.cells import Column
from vfg.tables.numeric import KNOTS, NormalScores, NumericEncoding, TimeUnit, _knots


def column(values, storage="float"):
    values = np.asarray(values)
    missing = np.isnat(values) if values.dtype.kind in "Mm" else np.isnan(values)
    return Column("x", storage, values, missing)


@given(
    st.lists(st.floats(-1e308, 1e308, allow_nan=False), min_size=2, max_size=30),
    st.sampled_from([1.0, 1e-300, 1e-20]),
)
@example([0.0, 5e-324], 1.0)
@example([-1.0, -2000000001.0], 1.0)
def test_any_finite_column_is_standardised_and_comes_back(numbers, factor):
    cells = np.array(numbers) * factor
    scale = NumericEncoding.fit(Continuous(), column(cells))
    values, observed = scale.encode(column(cells))
    assert values.shape == observed.shape == (1, len(cells))
    assert observed.all()
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= 10.0
    assert scale.deviation > 0
    back = scale.decode(values.T)
    near = np.abs(values[0]) < 10.0
    reach = np.abs(cells).max()
    np.testing.assert_allclose(back[near] / (reach or 1), cells[near] / (reach or 1), atol=1e-12)


def test_evidence_is_seen_as_far_as_fitted_cells_lie_and_no_further():
    cells = np.concatenate([np.random.default_rng(0).normal(size=2000), [40.0]])
    scale = NumericEncoding.fit(Continuous(), column(cells))
    seen = scale.encode(column([40.0, 400.0]))[0][0]
    assert seen[0] == pytest.approx((40.0 - scale.centre) / scale.deviation)
    assert seen[0] > 20.0
    assert seen[1] == pytest.approx(seen[0])


def test_mean_and_deviation_are_those_of_the_observed_cells():
    cells = np.array([3.0, np.nan, 5.0, 10.0])
    scale = NumericEncoding.fit(Continuous(), column(cells))
    assert scale.centre == pytest.approx(6.0)
    assert scale.deviation == pytest.approx(np.std([3.0, 5.0, 10.0]))
    assert (scale.lowest, scale.highest) == (3.0, 10.0)
    values, observed = scale.encode(column(cells))
    assert values[0, 1] == 0.0
    assert observed[0].tolist() == [True, False, True, True]


@pytest.mark.parametrize("rows", [60, 10_000])
def test_a_far_outlier_does_not_flatten_the_column(rows):
    cells = np.random.default_rng(0).normal(size=rows)
    cells[0] = 1e12
    scale = NumericEncoding.fit(Continuous(), column(cells))
    values, _ = scale.encode(column(cells))
    assert 0.9 < values[0, 1:].std() < 1.1
    assert values[0, 0] == 10.0
    assert scale.highest == 1e12


def test_heavy_tails_keep_their_own_mean_and_deviation():
    cells = np.exp(np.random.default_rng(0).normal(size=2000))
    scale = NumericEncoding.fit(Continuous(), column(cells))
    assert (scale.centre, scale.deviation) == pytest.approx((cells.mean(), cells.std()))


def test_a_constant_column_is_zero_whatever_comes_and_decodes_to_its_value():
    scale = NumericEncoding.fit(Continuous(), column([7.5, np.nan, 7.5]))
    assert scale.constant
    values, observed = scale.encode(column([7.5, 100.0, np.nan]))
    assert values.tolist() == [[0.0, 0.0, 0.0]]
    assert observed.tolist() == [[True, True, False]]
    assert scale.decode(np.array([[3.0], [np.nan]])).tolist() == [7.5, 7.5]


def test_a_column_without_cells_is_no_evidence_and_has_no_fill():
    scale = NumericEncoding.fit(Continuous(), column([np.nan, np.nan]))
    assert scale.empty
    assert not scale.constant
    values, observed = scale.encode(column([1.0, 2.0]))
    assert not values.any()
    assert not observed.any()
    assert np.isnan(scale.decode(np.zeros((2, 1)))).all()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (Continuous(), (0.0, 20.0)),
        (Continuous((-1, 25)), (-1.0, 25.0)),
        (Continuous((-1, None)), (-1.0, 20.0)),
        (Integer(), (0, 20)),
        (Integer((5, 15)), (5, 15)),
    ],
)
def test_fills_keep_to_bounds_or_the_observed_range(spec, expected):
    scale = NumericEncoding.fit(spec, column([0.0, 20.0]))
    assert (scale.floor, scale.ceiling) == expected
    found = scale.decode(np.array([[-10.0], [10.0]]))
    for end, bound, answer in zip(expected, spec.bounds, found.tolist(), strict=True):
        assert answer == end or bound is None


def test_draws_end_at_bounds_or_where_cells_crowd():
    generator = np.random.default_rng(0)
    tails = generator.normal(size=300)

    def ends(cells, spec=None):
        scale = NumericEncoding.fit(spec or Continuous(), column(cells))
        return scale.least, scale.greatest

    assert ends(tails) == (None, None)
    assert ends(np.exp(tails))[0] == pytest.approx(0.0, abs=0.1)
    assert ends(np.exp(tails))[1] is None
    assert ends(10.0 + tails)[0] == 0.0, "no cell is negative"
    assert ends(-10.0 - tails)[1] == 0.0
    assert ends(tails.clip(-1.0, 1.0)) == (-1.0, 1.0), "censored"
    low, high = ends(generator.uniform(-1.0, 1.0, size=300))
    assert -1.1 < low < -1.0 + 0.02
    assert 1.0 - 0.02 < high < 1.1
    assert ends(tails, Continuous((-9, None))) == (-9, None)
    scale = NumericEncoding.fit(Continuous(), column(tails))
    assert scale.decode(np.array([[9.0]]))[0] > 8.0
    old = {k: v for k, v in scale.to_dict().items() if k not in ("least", "greatest")}
    assert NumericEncoding.from_dict(old, {}).decode(np.array([[9.0]]))[0] == tails.max()


def test_integers_are_rounded_and_do_not_overflow():
    cells = np.array([0, 2**63 - 1])
    scale = NumericEncoding.fit(Integer(), Column("x", "integer", cells, np.zeros(2, dtype=bool)))
    found = scale.decode(np.array([[-1.0], [1.0], [9.0]]))
    assert found.dtype.kind in "iu"
    assert found[0] == 0
    assert found[2] >= 2**63 - 2048
    small = NumericEncoding.fit(Integer(), column([1.0, 2.0, 4.0]))
    assert small.decode(np.array([[0.0]])).tolist() == [2]


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_dates_come_back_to_the_tick(unit, kind):
    ticks = np.random.default_rng(0).integers(10**4, 2 * 10**4, 50)
    cells = ticks.astype(f"{kind}[{unit}]")
    scale = NumericEncoding.fit(Date(), column(cells, "date"))
    found = scale.decode(scale.encode(column(cells, "date"))[0].T)
    assert found.dtype == cells.dtype
    np.testing.assert_array_equal(found, cells)


def test_nanoseconds_far_from_the_epoch_come_back_to_the_tick():
    start = np.datetime64("2200-01-01", "ns")
    cells = start + np.random.default_rng(0).integers(0, 10**15, 50).astype("m8[ns]")
    scale = NumericEncoding.fit(Date(), column(cells, "date"))
    found = scale.decode(scale.encode(column(cells, "date"))[0].T)
    np.testing.assert_array_equal(found, cells)


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        (["2020-01-01", "2020-03-01", "NaT"], 86400),
        (["2020-01-01T03:00", "2020-03-01", "NaT"], 3600),
        (["2020-01-01T03:05", "2020-03-01", "NaT"], 60),
        (["2020-01-01T03:05:01", "2020-03-01", "NaT"], 1),
    ],
)
def test_fills_have_the_resolution_of_the_observed_dates(cells, seconds):
    moments = np.array(cells, dtype="M8[ms]")
    scale = NumericEncoding.fit(Date(), column(moments, "date"))
    found = scale.decode(np.linspace(-1, 1, 101)[:, None])
    steps = found.astype(np.int64)
    assert np.all(steps % (seconds * 1000) == 0)
    assert np.gcd.reduce(np.diff(np.unique(steps))) == seconds * 1000


def test_dates_of_another_unit_are_understood():
    scale = NumericEncoding.fit(
        Date(), column(np.array(["2020-01-01", "2020-01-03"], "M8[D]"), "date")
    )
    values, _ = scale.encode(column(np.array(["2020-01-03"], "M8[ns]"), "date"))
    np.testing.assert_allclose(values, 1.0)


def test_dates_keep_bounds():
    cells = np.array(["2020-01-10", "2020-01-20"], "M8[us]")
    spec = Date(("2020-01-05", "2020-02-01T00:00"))
    found = NumericEncoding.fit(spec, column(cells, "date")).decode(np.array([[-9.0], [9.0]]))
    assert found.astype(str).tolist() == [
        "2020-01-05T00:00:00.000000",
        "2020-02-01T00:00:00.000000",
    ]


def test_a_clock_stays_within_64_bits():
    clock = TimeUnit.read(np.array(["2020-01-01T00:00:00.000000001"], "M8[ns]"))
    found = clock.moments(np.array([1e30, -1e30]))
    assert found[0] > np.datetime64("2260-01-01")
    assert found[1] < np.datetime64("1730-01-01")


@pytest.mark.parametrize(("fitted", "used"), [("float", "text"), ("date", "float")])
def test_cells_of_another_sort_are_refused(fitted, used):
    cells = {
        "float": column([1.0, 2.0]),
        "date": column(np.array(["2020-01-01", "2020-01-02"], "M8[D]"), "date"),
        "text": Column("x", "text", np.array(["a", "b"], dtype=object), np.zeros(2, dtype=bool)),
    }
    scale = NumericEncoding.fit(Date() if fitted == "date" else Continuous(), cells[fitted])
    with pytest.raises(ValueError, match=f"'x' must hold .* holds {used} cells"):
        scale.encode(cells[used])


def one_column(cells):
    return torch.as_tensor(np.asarray(cells, dtype=np.float64))[:, None]


def fitted(cells, share):
    values = one_column(cells)
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
    found = fitted(cells, share)(one_column(cells))[:, 0]
    np.testing.assert_allclose(found, by_numpy(cells, share), atol=1e-9)


def test_between_the_knots_maps_are_linear():
    cells = np.random.default_rng(0).gamma(2.0, size=5000)
    ranks = fitted(cells, 0.5)
    asked = np.random.default_rng(1).uniform(cells.min(), cells.max(), size=300)
    knots, scores = ranks.knots[0].numpy(), ranks.scores[0].numpy()
    np.testing.assert_allclose(
        ranks(one_column(asked))[:, 0], np.interp(asked, knots, scores), atol=1e-12
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
    skews = [abs(skew(fitted(cells, share)(one_column(cells))[:, 0])) for share in (1.0, 0.5, 0.0)]
    assert skews == sorted(skews)
    assert skews[0] < 0.1
    assert skews[1] < 0.75 * skews[2]


@given(lists, arrays(np.float64, 20, elements=st.floats(-20, 20)), st.sampled_from([0.5, 1.0]))
def test_maps_are_monotone_and_lead_back(cells, asked, share):
    ranks = fitted(cells, share)
    asked = np.sort(np.concatenate([asked, cells]))
    scores = ranks(one_column(asked))
    assert bool((scores.diff(dim=0) >= 0).all())
    assert bool((ranks.scores.diff(dim=1) > 0).all())
    np.testing.assert_allclose(ranks.inverse(scores)[:, 0], asked, atol=1e-9)
    np.testing.assert_allclose(ranks(ranks.inverse(scores)), scores, atol=1e-9)


def test_beyond_the_knots_maps_go_on_as_values_do():
    # Were the outer piece to go on, a step of 1 would be one of some hundred thousands.
    ranks = fitted([-1.0, 0.0, 2.0, 2.000001], 0.5)
    ends = ranks(one_column([-1.0, 2.000001]))[:, 0]
    far = ranks(one_column([-4.0, 2.000001 + 3.0]))[:, 0]
    np.testing.assert_allclose(far, ends + torch.tensor([-3.0, 3.0]), atol=1e-9)


@pytest.mark.parametrize("cells", [[2.0] * 5, []])
def test_a_column_without_two_values_stays_as_it_is(cells):
    values = torch.tensor(cells, dtype=torch.float64)
    assert _knots(values, 0.5) is None
    asked = one_column([-3.0, 0.1, 7.5])
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
