"""Fitting exact models with discrete leaves, their files, and what they refuse."""

import math
import time

import numpy as np
import pytest
import torch
from gaussian.discrete_models import DAG, STAR, bits, example_rows, random_model

import vfg
from vfg.distributions.likelihoods import Categorical
from vfg.gaussian import GaussianVFG, select


def driven_table(rows, seed=0):
    """A latent that drives three real columns, five categories and a bit."""
    generator = torch.Generator().manual_seed(seed)
    latent = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    angles = 2 * math.pi * torch.arange(5, dtype=torch.float64) / 5
    directions = torch.stack([angles.cos(), angles.sin()])
    noise = torch.rand(rows, 5, generator=generator, dtype=torch.float64)
    category = (4.0 * latent @ directions - (-noise.log()).log()).argmax(1)
    level = torch.rand(rows, generator=generator, dtype=torch.float64)
    bit = level < (3.0 * latent[:, 0]).sigmoid()
    maps = torch.tensor([[1.0, 0.5, -1.0], [-1.0, 1.0, 0.5]], dtype=torch.float64)
    error = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    return torch.cat([latent @ maps + 0.3 * error, category[:, None], bit[:, None]], dim=1)


GRAPH = vfg.Graph.star({"x": 1, "y": 1, "z": 1, "c": 1, "b": 1}, width=2)
DRIVEN = {"c": Categorical(5), "b": "bernoulli", "*": "gaussian"}


@pytest.fixture(scope="module")
def fitted():
    table = driven_table(1500)
    model = GaussianVFG(GRAPH, likelihood=DRIVEN)
    hidden = torch.rand(table.shape, generator=torch.Generator().manual_seed(9)) < 0.1
    history = model.fit(torch.where(hidden, torch.nan, table), steps=200)
    return model, history


def test_predictions_beat_the_frequencies(fitted):
    model, _ = fitted
    test = driven_table(1000, seed=1)
    for column, name, categories in ((3, "c", 5), (4, "b", 2)):
        given = [leaf for leaf in "xyzcb" if leaf != name]
        found = model.conditional_log_prob(test, given).mean().item()
        counts = np.bincount(test[:, column].long(), minlength=categories) / len(test)
        entropy = (counts * np.log(counts)).sum()
        assert found > 0.65 * entropy
        hidden = test.clone()
        hidden[:, column] = torch.nan
        answer = model.infer(hidden, targets=name)
        guess = answer.mean[name][:, 0].round()
        assert (guess == test[:, column]).double().mean() > counts.max() + 0.2


def test_gradient_steps_raise_the_likelihood_of_the_chain(fitted):
    _, history = fitted
    assert max(history.steps) > history.steps[0] + 0.01


def test_fitted_probabilities_are_calibrated(fitted):
    model, _ = fitted
    test = driven_table(4000, seed=2)
    truth = test[:, 3].clone()
    test[:, 3] = torch.nan
    chances = model.infer(test, targets="c").probabilities["c"]
    hits = torch.nn.functional.one_hot(truth.long(), 5).double()
    for low in (0.0, 0.25, 0.5, 0.75):
        inside = (chances >= low) & (chances < low + 0.25)
        assert hits[inside].mean().item() == pytest.approx(chances[inside].mean().item(), abs=0.06)


def test_sampled_rows_look_like_the_table(fitted):
    model, _ = fitted
    drawn, table = model.sample(4000, seed=7), driven_table(4000, seed=3)
    shares = [np.bincount(part[:, 3].long(), minlength=5) / 4000 for part in (drawn, table)]
    np.testing.assert_allclose(*shares, atol=0.05)
    assert drawn[:, 4].mean().item() == pytest.approx(table[:, 4].mean().item(), abs=0.05)
    for category in range(5):
        means = [part[part[:, 3] == category, :3].mean(0) for part in (drawn, table)]
        np.testing.assert_allclose(*means, atol=0.3)


def test_held_out_cells_and_mixtures_work_with_categories():
    model = GaussianVFG(GRAPH, 2, likelihood=DRIVEN, leaf="spline")
    history = model.fit(driven_table(300), steps=20, validation=0.2, restarts=1, iterations=20)
    assert math.isfinite(history.held_out)


def test_points_that_are_not_learned_stay():
    likelihood = {"c": Categorical(5, learn=False), "b": "bernoulli", "*": "gaussian"}
    table = driven_table(200)
    models = [GaussianVFG(GRAPH, likelihood=likelihood) for _ in range(2)]
    models[0].fit(table, finish="none", iterations=20)
    models[1].fit(table, steps=10, iterations=20)
    assert torch.equal(models[0].codes.points_at(0), models[1].codes.points_at(0))
    assert not torch.equal(models[0].codes.points_at(1), models[1].codes.points_at(1))


@pytest.mark.slow
def test_widths_are_selected_with_categories():
    graphs = [vfg.Graph.star(dict.fromkeys("xyzcb", 1), width=width) for width in (1, 2)]
    found = select(driven_table(400), graphs, likelihood=DRIVEN)
    assert found.best.graph.node("root").width == 2


def test_categories_that_never_occurred_keep_their_frequency_and_say_nothing():
    table = driven_table(400)
    graph = vfg.Graph.star({"x": 1, "y": 1, "z": 1, "c": 1, "b": 1}, width=2)
    model = GaussianVFG(graph, likelihood=DRIVEN | {"c": Categorical(6)})
    model.fit(table, finish="none")
    assert model.codes.points_at(0)[5].eq(0.0).all()
    hidden = table[:20].clone()
    hidden[:, 3] = torch.nan
    found = model.infer(hidden).probabilities["c"]
    assert (found[:, 5] > 1e-4).all()
    assert (found[:, 5] < 1e-2).all()


def test_points_of_rare_categories_hardly_move():
    generator = torch.Generator().manual_seed(0)
    table = driven_table(300)
    table[:, 3] = torch.randint(100, (300,), generator=generator).double()
    model = GaussianVFG(GRAPH, likelihood=DRIVEN | {"c": Categorical(100)})
    model.fit(table, steps=100, iterations=20)
    moved = (model.codes.points_at(0) - model.codes.anchors[0]).square().mean().sqrt().item()
    assert 0.0 < moved < 0.1
    assert model.codes.penalty().item() == pytest.approx(
        sum(
            50 * (points - anchor).square().sum().item()
            for points, anchor in zip(model.codes.points, model.codes.anchors, strict=True)
        )
    )


def test_a_thousand_categories_are_fitted_in_reasonable_time():
    generator = torch.Generator().manual_seed(0)
    latent = torch.randn(5000, generator=generator, dtype=torch.float64)
    category = (500 + 150 * latent).round().clamp(0, 999)
    real = latent[:, None] + 0.2 * torch.randn(5000, 2, generator=generator, dtype=torch.float64)
    table = torch.cat([real, category[:, None]], dim=1)
    graph = vfg.Graph.star({"x": 1, "y": 1, "c": 1}, width=2)
    model = GaussianVFG(graph, likelihood={"c": Categorical(1000), "*": "gaussian"})
    began = time.process_time()
    model.fit(table[:4000], steps=60, iterations=50)
    assert time.process_time() - began < 60.0
    found = model.conditional_log_prob(table[4000:], ["x", "y"]).mean().item()
    counts = np.bincount(category[:4000].long(), minlength=1000) + 0.5
    alone = np.log(counts / counts.sum())[category[4000:].long()].mean()
    assert found > alone + 1.5


# Files and errors.


def test_models_come_back_from_files(tmp_path):
    model = random_model(DAG, components=2)
    vfg.save(model, tmp_path / "model.vfg")
    again = vfg.load(tmp_path / "model.vfg")
    table = example_rows(4)
    assert again.to_dict() == model.to_dict()
    assert torch.equal(again.log_prob(table), model.log_prob(table))
    assert torch.equal(again.sample(3), model.sample(3))


def test_descriptions_without_likelihoods_have_real_leaves():
    description = GaussianVFG(STAR).to_dict()
    del description["likelihood"]
    assert GaussianVFG.from_dict(description).to_dict() == GaussianVFG(STAR).to_dict()


def test_results_have_the_dtype_of_the_table():
    model = random_model()
    table = example_rows(2).float()
    assert model.log_prob(table).dtype == torch.float32
    assert model.infer(table).probabilities["c"].dtype == torch.float32
    assert model.float().log_prob(table.double()).dtype == torch.float64


def test_probabilities_between_0_and_1_lie_between_the_points():
    model = random_model()
    table = example_rows(3)
    rows = [torch.cat([table[:, :3], part], 1) for part in (*bits(3), 0.25 * bits(3)[1])]
    first, second, between = (model.log_prob(row) for row in rows)
    torch.testing.assert_close(between, 0.75 * first + 0.25 * second)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (1, 3.0, "leaf 'c' has 3 categories coded 0 to 2, but its data hold 3"),
        (1, 0.5, "leaf 'c' has 3 categories"),
        (1, -1.0, "leaf 'c' has 3 categories"),
        (3, 2.0, "leaf 'b' is Bernoulli"),
        (1, math.inf, "leaf 'c' has infinite values"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "log_prob", "infer", "posterior"])
def test_values_that_a_leaf_does_not_know_are_refused(method, column, value, words):
    model, table = random_model(), example_rows(3)
    table[1, column] = value
    with pytest.raises(ValueError, match=words):
        getattr(model, method)(table)


@pytest.mark.parametrize(
    ("likelihood", "words"),
    [
        ("poisson", "there is no likelihood 'poisson'"),
        ({"q": "gaussian", "*": "gaussian"}, "there is no leaf 'q'"),
        ({"c": Categorical(3)}, "nothing is chosen for leaf 'x'"),
    ],
)
def test_unknown_likelihoods_are_refused(likelihood, words):
    with pytest.raises(ValueError, match=words):
        GaussianVFG(STAR, likelihood=likelihood)


def test_a_deep_model_cannot_start_from_discrete_leaves():
    with pytest.raises(ValueError, match="leaf 'c' is discrete"):
        vfg.VFG.from_gaussian(random_model())


@pytest.mark.parametrize("categories", [2, 9, 10, 15, 40, 300])
def test_without_evidence_probabilities_are_the_frequencies_of_the_table(categories):
    """Whatever the numbers beside them tell: gradient steps must not move them."""
    random = np.random.default_rng(categories)
    shares = 1.0 / np.arange(1, categories + 1)
    codes = random.choice(categories, 1200, p=shares / shares.sum())
    centres = 3.0 * random.normal(size=(categories, 2))
    table = np.column_stack([centres[codes] + random.normal(size=(1200, 2)), codes])
    model = GaussianVFG(
        vfg.Graph.star({"x": 2, "c": 1}, width=2),
        likelihood={"x": "gaussian", "c": vfg.Categorical(categories)},
    )
    model.fit(table, iterations=10, steps=30)
    found = model.infer({}, ["c"]).probabilities["c"][0].numpy()
    counts = np.bincount(codes, minlength=categories) + 0.5
    np.testing.assert_allclose(found, counts / counts.sum(), atol=1e-6)
