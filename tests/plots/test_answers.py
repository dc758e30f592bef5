"""Pictures of single answers."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

import vfg
from vfg import plots

MODEL = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 2}, width=2))


DEEP = vfg.VFG(vfg.Graph.star({"a": 1, "b": 2}, width=2), aggregation="gaussian")


def test_the_histogram_interval_and_mean_are_those_of_the_answer():
    answer = DEEP.infer({"a": [[1.0], [2.0]]}, targets=["b"])
    ax = plots.answer(answer, "b", row=1, coordinate=1, level=0.8)
    draws = answer.samples(1000)["b"][:, 1, 1].numpy()
    heights, edges, _ = ax.patches[0].get_data()
    np.testing.assert_allclose(heights, np.histogram(draws, edges, density=True)[0])
    band = ax.patches[1].get_extents().transformed(ax.transData.inverted())
    wanted = answer.quantile([0.1, 0.9])["b"][:, 1, 1]
    np.testing.assert_allclose([band.x0, band.x1], wanted, rtol=1e-6)
    assert ax.lines[0].get_xdata()[0] == pytest.approx(float(answer.mean["b"][1, 1]))


@pytest.fixture(scope="module")
def table_model():
    generator = np.random.default_rng(0)
    size = generator.normal(size=80)
    kind = np.where(size > 0, "large", "small")
    table = {"size": size, "weight": size + generator.normal(size=80), "kind": kind}
    model = vfg.TableModel()
    vfg.fit(model, table, bend=False)
    return model


def test_answers_of_tables_are_drawn(table_model):
    answer = table_model.infer({"size": [1.0, -1.0]}, ["weight", "kind"])
    ax = plots.answer(answer, "weight", row=1)
    low, high = (end["weight"][1] for end in answer.interval(0.9))
    band = ax.patches[-1].get_extents().transformed(ax.transData.inverted())
    np.testing.assert_allclose([band.x0, band.x1], [low, high], rtol=1e-6)


def test_categories_are_bars_of_their_probabilities(table_model):
    answer = table_model.infer({"size": [1.0, -1.0]}, ["kind"])
    marginal = ["large"] * 3 + ["small"]
    bars = plots.answer(answer, "kind", row=1, marginal=marginal).patches
    assert [bar.get_width() for bar in bars[:2]] == [0.75, 0.25]
    np.testing.assert_allclose(
        [bar.get_width() for bar in bars[2:]], answer.probabilities["kind"][1]
    )
    with pytest.raises(ValueError, match="2 rows, but row 5"):
        plots.answer(answer, "kind", row=5)


def test_an_exact_answer_is_a_curve():
    answer = MODEL.infer({"a": [[1.0], [2.0]]}, targets=["b"])
    ax = plots.answer(answer, "b", row=1, coordinate=1, level=0.8)
    x, heights = ax.lines[0].get_data()
    mean, std = float(answer.mean["b"][1, 1]), float(answer.std["b"][1, 1])
    np.testing.assert_allclose(heights, norm.pdf(x, mean, std), rtol=0.02, atol=1e-3)
    assert x[0] < mean - 3 * std
    band = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    np.testing.assert_allclose(
        [band.x0, band.x1], norm.ppf([0.1, 0.9], mean, std), rtol=1e-6, atol=1e-6
    )
    assert ax.lines[1].get_xdata()[0] == pytest.approx(mean)


def test_the_marginal_is_drawn_in_the_same_bins():
    answer = DEEP.infer({"a": 1.0}, targets=["b"])
    column = torch.cat([torch.randn(500), torch.tensor([torch.nan])])
    marginal, draws = plots.answer(answer, "b", marginal=column).patches[:2]
    heights, edges, _ = marginal.get_data()
    assert np.array_equal(edges, draws.get_data().edges)
    np.testing.assert_allclose((heights * np.diff(edges)).sum(), 1.0)


def test_a_row_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="has 1 rows and 2 coordinates"):
        plots.answer(MODEL.infer({"a": 1.0}, targets=["b"]), "b", row=1)


def test_a_target_without_known_spread_is_refused():
    model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1), aggregation="mean")
    with pytest.raises(ValueError, match="spread of 'root' is unknown"):
        plots.answer(model.infer({"a": 1.0}, targets=["root"]), "root")
