"""TableModel: exact scores, joint draws, and files."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from imputation.mixed_tables import light, linear, mixed, numbers
from scipy import stats

import vfg
from vfg.imputation.table_model import TableModel
from vfg.modelfile import dumps, loads, registry
from vfg.tables.encoding import Arrays


@pytest.fixture(scope="module")
def table():
    return numbers()[1]


@pytest.fixture(scope="module")
def straight(table):
    return linear().fit(table).model_


@pytest.fixture(scope="module")
def curved(table):
    return light(trees=0).fit(table).model_


@pytest.fixture(scope="module")
def every_kind():
    return light().fit(mixed()).model_


def normal_of(model):
    """Mean and covariance of the table's columns under the linear model, from its parameters."""
    order = np.argsort(model.columns)
    values, scaling = model.linear.linear.values(), model.linear.scaling
    loadings, noise = values.loadings[0].numpy(force=True), values.scales[0].numpy(force=True)
    centre = values.offsets[0].numpy(force=True) * scaling.scale.numpy() + scaling.location.numpy()
    spread = scaling.scale.numpy()
    covariance = np.outer(spread, spread) * (loadings @ loadings.T + np.diag(noise**2))
    centre, covariance = centre[order], covariance[np.ix_(order, order)]
    parts = list(model.encoding.parts.values())
    units = np.array([part.deviation for part in parts])
    middle = np.array([part.centre for part in parts])
    return middle + units * centre, np.outer(units, units) * covariance


def test_scores_are_multivariate_normal_densities_in_the_units_of_the_table(straight, table):
    mean, covariance = normal_of(straight)
    result = straight.log_prob(table)
    for row, score in zip(table, result, strict=True):
        seen = np.flatnonzero(~np.isnan(row))
        expected = stats.multivariate_normal.logpdf(
            row[seen], mean[seen], covariance[np.ix_(seen, seen)]
        )
        assert score == pytest.approx(expected, rel=1e-9)


def test_means_and_draws_are_those_of_the_conditional_normal(straight):
    mean, covariance = normal_of(straight)
    row = np.array([[np.nan, 25.0, np.nan, 1500.0]])
    values, observed = straight.encode(row)
    gap, seen = [0, 2], [1, 3]
    weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, gap)])
    expected = mean[gap] + (row[0, seen] - mean[seen]) @ weights
    rest = covariance[np.ix_(gap, gap)] - covariance[np.ix_(gap, seen)] @ weights
    units = np.array([part.deviation for part in straight.encoding.parts.values()])[gap]
    middle = np.array([part.centre for part in straight.encoding.parts.values()])[gap]
    result = straight.spread_out(straight.means(values, observed))[0, gap] * units + middle
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    drawn = straight.draws(values, observed, 4000, seed=0)
    drawn = straight.spread_out(drawn)[:, 0, gap] * units
    np.testing.assert_allclose(np.cov(drawn.T), rest, rtol=0.1)


def test_a_row_without_evidence_scores_0_and_has_the_mean(straight):
    values, observed = straight.encode(np.full((1, 4), np.nan))
    assert straight.log_prob(np.full((1, 4), np.nan)).item() == 0.0
    mean, _ = normal_of(straight)
    units = [part.deviation for part in straight.encoding.parts.values()]
    middle = [part.centre for part in straight.encoding.parts.values()]
    result = straight.spread_out(straight.means(values, observed))[0] * units + middle
    np.testing.assert_allclose(result, mean, rtol=1e-9)


@pytest.mark.parametrize("which", ["straight", "curved", "every_kind"])
def test_chunks_of_rows_change_no_bit(which, table, request, monkeypatch):
    model = request.getfixturevalue(which)
    values, observed = model.encode(mixed() if which == "every_kind" else table)
    before = (
        model.means(values, observed),
        model.draws(values, observed, 3, seed=1),
        model.quantiles(values, observed, [0.1, 0.9], seed=1),
    )
    monkeypatch.setattr("vfg.imputation.encoded_ensemble.ROWS_AT_ONCE", 7)
    monkeypatch.setattr("vfg.imputation.encoded_ensemble.ROWS_OF_DRAWS", 5)
    assert torch.equal(model.means(values, observed), before[0])
    assert torch.equal(model.draws(values, observed, 3, seed=1), before[1])
    quantiles = model.quantiles(values, observed, [0.1, 0.9], seed=1)
    assert torch.equal(quantiles, before[2])


@pytest.mark.parametrize("which", ["straight", "curved"])
def test_the_first_draws_are_the_same_however_many_there_are(which, table, request):
    model = request.getfixturevalue(which)
    values, observed = model.encode(table)
    many = model.draws(values, observed, 7, seed=4)
    for number in (1, 2, 5):
        assert torch.equal(model.draws(values, observed, number, seed=4), many[:number])
    assert not torch.equal(model.draws(values, observed, 7, seed=5), many)
    assert torch.equal(many[:, observed], values[observed].expand(7, -1))


def test_the_draws_of_members_lie_around_the_mean_of_all(curved, table):
    values, observed = curved.encode(table)
    drawn = curved.draws(values, observed, 2000, seed=0)
    centre = curved.means(values, observed)
    errors = (drawn.mean(0) - centre) / drawn.std(0).clamp(min=1e-9)
    assert errors[~observed].abs().max() < 0.3


def with_weights(model, *weights):
    """A copy whose parts weigh as given, and draw by their weights as in earlier versions."""
    copy = loads(dumps(model))
    copy.processes = None  # they move the weighted means
    copy.following.zero_()  # and so do linear means beyond the observed range
    copy.drawing = None
    copy.weights.copy_(torch.tensor(weights, dtype=torch.float64))
    return copy


@pytest.mark.parametrize(
    "weights", [(0.3, 0.2, 0.1, 0.1, 0.3), (0.0, 0.9, 0.0, 0.0, 0.0), (0.1, 0.0, 0.0, 0.5, 0.0)]
)
def test_draws_are_allocated_by_the_weights_of_parts(curved, weights):
    model = with_weights(curved, *weights)
    turns = model.draws_by_part(200)
    assert sorted(turn for result in turns.values() for turn in result) == list(range(200))
    kinds = [(2, weights[0]), (1, weights[1]), (1, weights[2]), (2, weights[3] + weights[4])]
    parts = [weight / count for count, weight in kinds for _ in range(count)]
    expected = 200 * np.array(parts) / sum(weights)
    np.testing.assert_allclose([len(turns.get(k, [])) for k in range(6)], expected, atol=3)


def test_members_do_not_draw_beside_exact_parts(curved):
    turns, weights = curved.draws_by_part(200), curved.weights.tolist()
    by_mixture, by_rows = weights[0] + weights[1], weights[3] + weights[4]
    expected = np.array([0.0, 0.0, by_mixture, weights[2], by_rows / 2, by_rows / 2])
    found = [len(turns.get(k, [])) for k in range(6)]
    np.testing.assert_allclose(found, 200 * expected / sum(weights), atol=3)
    assert loads(dumps(curved)).draws_by_part(200) == turns


def test_the_first_allocated_draws_are_the_same_for_every_number(curved):
    many = curved.draws_by_part(200)
    for number in (1, 3, 17, 60):
        few = {part: [k for k in turns if k < number] for part, turns in many.items()}
        assert curved.draws_by_part(number) == {part: turns for part, turns in few.items() if turns}


def test_without_weights_means_are_filled_and_the_linear_model_draws(curved, table):
    model = with_weights(curved, 0.0, 0.0, 0.0, 0.0, 0.0)
    values, observed = model.encode(table)
    assert not model.means(values, observed)[~observed].any()
    assert list(model.draws_by_part(20)) == [3]
    drawn = model.draws(values, observed, 400, seed=0)
    assert drawn.mean(0)[~observed].abs().max() < 0.2
    assert bool((drawn.std(0)[~observed] > 0).all())


def test_means_are_the_weighted_sum_of_the_means_of_parts(curved, table):
    values, observed = curved.encode(table)
    alone = torch.stack(
        [with_weights(curved, *row).means(values, observed) for row in torch.eye(5).tolist()]
    )
    weights = (0.1, 0.2, 0.3, 0.15, 0.25)
    result = with_weights(curved, *weights).means(values, observed)
    expected = (torch.tensor(weights)[:, None, None] * alone).sum(0)
    torch.testing.assert_close(result[~observed], expected[~observed])
    differences = (alone[:, None] - alone).abs().amax(-1).amax(-1)
    assert bool((differences + torch.eye(5) > 1e-3).all()), "every kind says something else"


def test_the_spread_factor_scales_draws(curved, table):
    values, observed = curved.encode(table)
    usual, wide = loads(dumps(curved)), loads(dumps(curved))
    for model in (usual, wide):
        model.linear_errors = None  # rows unlike the fitted ones have further noise
        model.following, model.slope_errors = None, None  # nor do linear means beyond ranges count
    for factor in (wide.spread, wide.widths):
        if factor is not None:
            factor[..., :].view(-1, factor.shape[-1])[0].mul_(2.0)
    centre = usual.means(values, observed)
    near, far = (model.draws(values, observed, 6, seed=0) - centre for model in (usual, wide))
    torch.testing.assert_close(far, 2.0 * near)


def test_means_of_parts_are_clipped_to_the_observed_range(curved, table):
    values, observed = curved.encode(table)
    given = torch.where(observed, values, torch.nan).numpy()
    low, high = np.nanmin(given, 0), np.nanmax(given, 0)
    np.testing.assert_allclose(curved.reach, [low, high], rtol=1e-12)
    tables = [100.0 * torch.randn(len(values), 4, dtype=torch.float64) for _ in range(3)]
    expected = np.mean([table.numpy().clip(low, high) for table in tables], axis=0)
    np.testing.assert_allclose(curved.average(tables), expected)
    # One known column far beyond what was seen: the linear model alone goes on and on.
    far = torch.eye(4, dtype=torch.float64) * 100.0
    seen = torch.eye(4, dtype=torch.bool)
    beyond = curved.linear_means(far, seen, torch.arange(4))
    assert bool(((beyond < curved.reach[0]) | (beyond > curved.reach[1]))[~seen].any())
    for row in torch.eye(5).tolist():
        model = with_weights(curved, *row)
        result = model.stacked(far, seen, model._means_by_kind(far, seen, torch.arange(4)))
        least, most = curved.factors * curved.reach
        within = (result >= least - 1e-9) & (result <= most + 1e-9)
        assert bool(within[~seen].all())


def test_quantiles_are_those_of_the_draws(curved, table):
    values, observed = curved.encode(table[:10])
    drawn = curved.draws(values, observed, 60, seed=2).sort(0).values
    result = curved.quantiles(values, observed, [3 / 61, 31 / 61, 58 / 61], seed=2)
    # Sixty draws cut the line into sixty-one parts of equal probability.
    np.testing.assert_allclose(result, drawn[[2, 30, 57]], rtol=1e-9)


def test_code_points_have_the_most_probable_category_in_place_of_quantiles(every_kind):
    values, observed = every_kind.encode(mixed())
    low, high = every_kind.quantiles(values, observed, [0.1, 0.9], seed=0)
    unordered = every_kind.unordered
    assert sorted(np.array(every_kind.columns)[unordered]) == [2, 3, 4]
    filled = every_kind.point_estimates(values, observed, every_kind.predictions(values, observed))
    assert torch.equal(low[:, unordered], filled[:, unordered])
    assert bool((high >= low).all())


def test_uninformative_columns_are_no_evidence():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": 5.0})
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    model = linear(graph=graph).fit(frame).model_
    _, observed = model.encode(frame)
    assert observed.all(0).tolist() == [True, False]


# Files.


def test_files_keep_rows_of_the_table_unless_there_are_no_neighbours(table):
    """A cell is in the file of its model as it was encoded, or as its score.

    Without neighbours those of a column may be there in the order of their size, but no row is.
    """
    some, none = (light(neighbours=number).fit(table).model_ for number in (2, 0))
    assert not none.row_mixture_models
    cells = some.encode(table)[0][~np.isnan(table)[:, some.columns]].float()
    kept = {
        name: torch.isin(cells, tensor.float()).double().mean().item()
        for name, tensor in some.state_dict().items()
    }
    assert max(kept.values()) == 1.0
    for name, tensor in none.state_dict().items():
        if name.endswith(("ranks.knots", "ranks.scores")):
            assert bool((tensor.diff(dim=1) > 0).all())
        elif name != "reach":
            assert torch.isin(cells, tensor.float()).double().mean() < 0.05


@pytest.mark.parametrize("which", ["straight", "curved", "every_kind"])
def test_files_keep_every_bit(which, table, request, tmp_path):
    model = request.getfixturevalue(which)
    data = mixed() if which == "every_kind" else table
    vfg.save(model, tmp_path / "model.vfg")
    again = vfg.load(tmp_path / "model.vfg")
    assert isinstance(again, TableModel)
    assert dumps(again) == dumps(model)
    values, observed = model.encode(data)
    values_again, observed_again = again.encode(data)
    assert torch.equal(values, values_again)
    assert torch.equal(observed, observed_again)
    assert torch.equal(model.means(values, observed), again.means(values, observed))
    drawn = model.draws(values, observed, 3, seed=0)
    assert torch.equal(drawn, again.draws(values, observed, 3, seed=0))
    np.testing.assert_array_equal(model.log_prob(data), again.log_prob(data))


def test_files_hold_tables_of_large_numbers_and_dates():
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2020-01-01", periods=40, freq="7D").astype("datetime64[ns]"),
            "count": np.arange(40) * 10**12,
            "size": np.linspace(1e30, 2e30, 40),
            "code": pd.Categorical([10**10, 2 * 10**10] * 20),
        }
    )
    model = linear(bounds={"count": (0, 10**15)}).fit(frame).model_
    assert dumps(loads(dumps(model))) == dumps(model)


def test_a_model_without_informative_columns_can_be_saved():
    model = linear().fit([[1.0, np.nan], [1.0, np.nan]]).model_
    again = loads(dumps(model))
    assert again.linear is None
    values, observed = again.encode([[np.nan, 2.0]])
    assert again.means(values, observed).shape == (1, 0)
    assert again.embed([[np.nan, 2.0]]).shape == (1, 0)
    assert again.log_prob([[np.nan, 2.0]]).tolist() == [0.0]
    assert again.draws(values, observed, 2, seed=0).shape == (2, 1, 0)


def test_files_know_where_table_models_come_from():
    assert "TableModel" in registry.known_kinds()
    assert registry._ELSEWHERE["TableModel"] == TableModel.__module__


@pytest.mark.slow
def test_a_new_process_loads_the_model_of_an_imputer(straight, tmp_path):
    vfg.save(straight, tmp_path / "model.vfg")
    code = f"import vfg; print(type(vfg.load({str(tmp_path / 'model.vfg')!r})).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "TableModel"


def test_a_model_is_ready_for_use(curved):
    assert not any(module.training for module in curved.modules())


def test_arrays_keep_their_dtypes_when_models_change_theirs():
    given = {"0.points": np.array([[0.1, 0.2]]), "0.counts": np.array([3, 4])}
    arrays = Arrays.of(given)
    arrays.half()
    for name, array in arrays.read().items():
        assert array.dtype == given[name].dtype
        np.testing.assert_array_equal(array, given[name])


def test_new_categories_are_named_once_and_stay():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": generator.normal(size=40), "c": ["a", "b"] * 20, "d": ["u", "v"] * 20}
    )
    model = linear().fit(frame).model_
    new = frame.iloc[:4].assign(c=["a", "z", "y", "b"], x=[0.0, np.nan, 1.0, np.nan])
    with pytest.warns(UserWarning, match="'c' holds categories that did not occur .* as 'y'"):
        filled = model.fill(new)
    assert filled["c"].tolist() == ["a", "z", "y", "b"]
    lacking = model.fill(new.assign(c=["a", None, "y", "b"]))  # no second warning
    assert filled["x"].tolist() == lacking["x"].tolist()
