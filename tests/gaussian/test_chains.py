"""GaussianVFG with discrete leaves, against enumeration, quadrature and scipy's Normals."""

import itertools
import math
import time

import numpy as np
import pytest
import torch
from gaussian.brute import all_masks, joint_normal
from scipy.stats import multivariate_normal

import vfg
from vfg.gaussian import GaussianVFG, select
from vfg.gaussian.parameters import factors_of
from vfg.likelihoods import Bernoulli, Categorical

MIXED = {"c": Categorical(3), "b": Bernoulli(), "*": "gaussian"}
STAR = vfg.Graph.star({"x": 1, "c": 1, "y": 1, "b": 1}, width=2)
DAG = vfg.Graph.from_edges(
    [("x", "h"), ("c", "h"), ("c", "k"), ("y", "k"), ("b", "k"), ("h", "r"), ("k", "r")],
    widths={"x": 1, "c": 1, "y": 1, "b": 1, "h": 2, "k": 1, "r": 2},
)
DISCRETE = vfg.Graph.star({"c": 2, "b": 2, "d": 1}, width=2)
ALL_DISCRETE = {"c": Categorical(3), "b": Bernoulli(), "d": Categorical(11)}


def random_model(graph=STAR, likelihood=MIXED, **options):
    """A model whose parameters are all away from their start, with a scaling of its own."""
    model = GaussianVFG(graph, likelihood=likelihood, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.4 * noise)
    for index, unit in enumerate(model.codes.units):
        doubts = torch.linspace(0.0, 0.3, unit.categories, dtype=torch.float64)
        model.codes.get_buffer(f"doubts{index}").copy_(doubts)
    for leaf, columns in model.sections.positions.items():
        if model.likelihood_specs[leaf].is_real:
            model.scaling.location[list(columns)] = 0.7
            model.scaling.scale[list(columns)] = 1.6
    return model


def every_row(model):
    """All combinations of the discrete columns of a model, for tables without real ones."""
    counts = [range(unit.categories) for unit in model.codes.units]
    return torch.tensor(list(itertools.product(*counts)), dtype=torch.float64)


def example_rows(rows):
    """Columns x, c, y and b."""
    generator = torch.Generator().manual_seed(4)
    real = 1.5 * torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    category = torch.randint(3, (rows,), generator=generator)
    bit = torch.randint(2, (rows,), generator=generator)
    return torch.stack([real[:, 0], category, real[:, 1], bit], dim=1)


# Normalisation.


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("mixture", ["root", "loadings"])
def test_probabilities_of_all_combinations_sum_to_one(mixture, components):
    model = random_model(DISCRETE, ALL_DISCRETE, components=components, mixture=mixture)
    table = every_row(model)
    assert len(table) == 3 * 2 * 2 * 11
    assert model.log_prob(table).exp().sum().item() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("observed", [(0,), (1, 3), (2, 0), (3,)])
def test_probabilities_of_any_observed_columns_sum_to_one(observed):
    model = random_model(DISCRETE, ALL_DISCRETE)
    counts = [range(model.codes.units[column].categories) for column in observed]
    combinations = np.array(list(itertools.product(*counts)), dtype=float)
    table = np.full((len(combinations), 4), np.nan)
    table[:, observed] = combinations
    assert model.log_prob(table).exp().sum().item() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("leaf", ["affine", "spline"])
@pytest.mark.parametrize("components", [1, 2])
def test_densities_integrate_to_one(leaf, components):
    graph = vfg.Graph.star({"c": 1, "x": 1, "b": 1}, width=2)
    likelihood = {"c": Categorical(3), "x": "gaussian", "b": "bernoulli"}
    model = random_model(graph, likelihood, leaf=leaf, components=components)
    grid = torch.linspace(-60.0, 60.0, 24001, dtype=torch.float64)
    total = 0.0
    for category, bit in itertools.product(range(3), range(2)):
        ones = torch.ones_like(grid)
        density = model.log_prob(torch.stack([category * ones, grid, bit * ones], 1)).exp()
        total += torch.trapezoid(density, grid).item()
    assert total == pytest.approx(1.0, abs=1e-4)


def test_the_last_discrete_cell_sums_out_exactly():
    model = random_model()
    table = example_rows(6)
    both = torch.stack([model.log_prob(torch.cat([table[:, :3], bit], 1)) for bit in bits(6)])
    without = torch.cat([table[:, :3], torch.full((6, 1), torch.nan)], dim=1)
    np.testing.assert_allclose(both.logsumexp(0), model.log_prob(without), atol=1e-10)


def bits(rows):
    return [torch.full((rows, 1), float(bit), dtype=torch.float64) for bit in (0, 1)]


# Brute force.


def brute_force(model):
    """Mean and covariance of the leaves' coordinates in their own order, from the equations."""
    mean, covariance, places = joint_normal(model)
    order = np.empty(model.structure.columns, dtype=int)
    for leaf, coordinates in model.structure.positions.items():
        order[list(coordinates)] = places[leaf]
    return mean[order], covariance[np.ix_(order, order)]


def encoded(model, row):
    """One row as coordinates, and the coordinates of every column."""
    scaled = model.scaling.apply_to(torch.as_tensor(row)[None]).nan_to_num(0.0)
    seen = torch.ones_like(scaled).bool()
    values = model.encode(scaled, seen).values[0].detach().numpy()
    owner = model.codes.owner.numpy()
    return values, [np.flatnonzero(owner == column) for column in range(len(row))]


def chances(model, normal, row, seen, column):
    """P(c | what is seen) from scipy's log-densities."""
    mean, covariance = normal
    index = next(k for k, unit in enumerate(model.codes.units) if unit.column == column)
    points = model.codes.points_at(index).detach().numpy()
    values, columns = encoded(model, row)
    evidence = [place for other in np.flatnonzero(seen) for place in columns[other]]
    own = list(columns[column])
    ratios = []
    for point in points:
        both = log_density(mean, covariance, [*evidence, *own], [*values[evidence], *point])
        parts = log_density(mean, covariance, evidence, values[evidence])
        ratios.append(both - parts - log_density(mean, covariance, own, point))
    return posterior(model, index, np.exp(ratios))


def log_density(mean, covariance, chosen, values):
    """log p of some coordinates."""
    if not len(chosen):
        return 0.0
    return multivariate_normal(mean[chosen], covariance[np.ix_(chosen, chosen)]).logpdf(values)


def posterior(model, index, ratios):
    """Probabilities of a unit's categories from p(point | seen) / p(point)."""
    frequencies = model.codes.log_frequencies_at(index).exp().detach().numpy()
    doubts = np.linspace(0.0, 0.3, len(ratios))
    weights = frequencies * ((1 - doubts) * ratios + doubts)
    return weights / weights.sum()


@pytest.mark.parametrize("graph", [STAR, DAG], ids=["star", "dag"])
def test_probabilities_are_a_softmax_of_normal_densities_for_every_mask(graph):
    model = random_model(graph)
    masks = all_masks(4)
    table = example_rows(len(masks))
    answer = model.infer(torch.where(torch.from_numpy(masks), table, torch.nan))
    normal = brute_force(model)
    for row, mask in enumerate(masks):
        for leaf, column in (("c", 1), ("b", 3)):
            if mask[column]:
                expected = np.eye(3)[int(table[row, column])]
            else:
                expected = chances(model, normal, table[row], mask, column)
            if leaf == "c":
                np.testing.assert_allclose(answer.probabilities["c"][row], expected, atol=1e-9)
                assert answer.mean["c"][row].item() == expected.argmax()
            else:
                assert answer.mean["b"][row].item() == pytest.approx(expected[1], abs=1e-9)


@pytest.mark.parametrize("graph", [STAR, DAG], ids=["star", "dag"])
def test_log_prob_is_the_chain_rule_for_every_mask(graph):
    model = random_model(graph)
    masks = all_masks(4)
    table = example_rows(len(masks))
    found = model.log_prob(torch.where(torch.from_numpy(masks), table, torch.nan))
    mean, covariance = normal = brute_force(model)
    for row, mask in enumerate(masks):
        values, columns = encoded(model, table[row])
        real = [columns[column][0] for column in (0, 2) if mask[column]]
        expected = log_density(mean, covariance, real, values[real]) - len(real) * math.log(1.6)
        given = mask & [True, False, True, False]
        for column in (1, 3):
            if mask[column]:
                category = int(table[row, column])
                shares = chances(model, normal, table[row], given, column)
                expected += math.log(shares[category])
                given = given | (np.arange(4) == column)
        assert found[row].item() == pytest.approx(expected, abs=1e-9)


def test_a_mixture_weighs_its_components_by_their_densities():
    model = random_model(components=3, mixture="loadings")
    table = example_rows(5)
    table[:, 1] = torch.nan
    found = model.infer(table, targets="c").probabilities["c"]
    factors = factors_of(model.structure, model.linear.values())
    factors = [part.detach().numpy() for part in factors]
    points = model.codes.points_at(0).detach().numpy()
    for row in range(5):
        here, columns = encoded(model, table[row])
        seen, own = [0, 3, 4], [1, 2]
        assert [list(places) for places in columns] == [[0], [1, 2], [3], [4]]
        joint, alone, evidence = np.zeros(3), np.zeros(3), 0.0
        for weight, loadings, offsets, scales in zip(*factors, strict=True):
            covariance = loadings @ loadings.T + np.diag(scales**2)
            normal = offsets, covariance
            evidence += np.exp(weight + log_density(*normal, seen, here[seen]))
            for category, point in enumerate(points):
                both = log_density(*normal, [*seen, *own], [*here[seen], *point])
                joint[category] += np.exp(weight + both)
                alone[category] += np.exp(weight + log_density(*normal, own, point))
        expected = posterior(model, 0, joint / alone / evidence)
        np.testing.assert_allclose(found[row], expected, atol=1e-9)


@pytest.mark.parametrize("components", [1, 2])
def test_without_evidence_probabilities_are_the_frequencies(components):
    model = random_model(components=components)
    expected = model.codes.log_frequencies_at(0).softmax(0)
    answer = model.infer(torch.full((1, 4), torch.nan, dtype=torch.float64))
    torch.testing.assert_close(answer.probabilities["c"][0], expected.detach())


def test_a_single_missing_cell_has_the_conditional_probability_of_infer():
    model = random_model(DAG)
    table = example_rows(8)
    hidden = table.clone()
    hidden[:, 1] = torch.nan
    found = model.conditional_log_prob(table, ["x", "y", "b"]).exp()
    expected = model.infer(hidden).probabilities["c"]
    torch.testing.assert_close(found, expected.gather(1, table[:, 1:2].long())[:, 0])


def test_conditional_densities_given_a_category_are_those_of_its_point():
    model = random_model()
    table = example_rows(6)
    table[:, 3] = torch.nan
    found = model.conditional_log_prob(table, ["c"])
    mean, covariance = brute_force(model)
    for row in range(6):
        values, _ = encoded(model, table[row])
        joint = multivariate_normal(mean[:4], covariance[:4, :4]).logpdf(values[:4])
        own = multivariate_normal(mean[1:3], covariance[1:3, 1:3]).logpdf(values[1:3])
        assert found[row].item() == pytest.approx(joint - own - 2 * math.log(1.6), abs=1e-9)


def test_given_everything_there_is_nothing_to_score():
    model = random_model()
    table = example_rows(3)
    np.testing.assert_allclose(model.conditional_log_prob(table, list("xcyb")), 0.0, atol=1e-10)
    torch.testing.assert_close(model.conditional_log_prob(table, []), model.log_prob(table))


def test_posteriors_take_a_category_as_its_point():
    model = random_model(DAG)
    table = example_rows(4)
    table[:, 2] = torch.nan
    mean, covariance, places = joint_normal(model)
    found = model.posterior(table)
    for row in range(4):
        values, _ = encoded(model, table[row])
        leaves = ["x", "c", "b"]
        seen = np.concatenate([places[name] for name in leaves])
        known = np.concatenate([values[list(model.structure.positions[name])] for name in leaves])
        gain = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[seen]).T
        expected = mean + gain @ (known - mean[seen])
        for node in ("h", "k", "r"):
            np.testing.assert_allclose(found.mean[node][row], expected[places[node]], atol=1e-9)
    torch.testing.assert_close(model.embed(table), found.mean["r"])


# Draws.


def test_draws_of_one_missing_cell_follow_its_probabilities():
    model = random_model()
    table = example_rows(3).repeat(20, 1)
    table[:, 1] = torch.nan
    answer = model.infer(table, targets="c", seed=3)
    drawn = answer.samples(200)["c"][..., 0]
    for row in range(3):
        shares = np.bincount(drawn[:, row::3].long().flatten(), minlength=3) / 4000
        expected = answer.probabilities["c"][row].numpy()
        error = np.sqrt(expected * (1 - expected) / 4000)
        assert (np.abs(shares - expected) < 4 * error + 1e-3).all()


def test_joint_draws_follow_the_chain():
    model = random_model(
        vfg.Graph.star({"c": 1, "b": 1}, width=2), {"c": Categorical(3), "b": "bernoulli"}
    )
    table = every_row(model)
    expected = model.log_prob(table).exp().numpy()
    empty = torch.full((64, 2), torch.nan, dtype=torch.float64)
    drawn = torch.cat(list(model.infer(empty, seed=1).samples(160).values()), dim=-1)
    shares = np.array([(drawn == row).all(-1).double().mean().item() for row in table])
    assert np.abs(shares - expected).max() < 4 * math.sqrt(0.25 / 10240)
    assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("components", [1, 2])
def test_real_draws_come_from_the_normal_given_the_evidence(components):
    model = random_model(components=components)
    answer = model.infer({"c": [2.0] * 60}, targets=["x", "y", "root"], seed=2)
    drawn = answer.samples(100)
    for name in ("x", "y"):
        deviation = answer.std[name][0].item()
        assert drawn[name].mean().item() == pytest.approx(
            answer.mean[name][0].item(), abs=0.06 * deviation
        )
        assert drawn[name].std().item() == pytest.approx(deviation, rel=0.06)


def test_drawn_latent_nodes_are_posteriors_given_the_drawn_row():
    model = random_model()
    evidence = torch.full((64, 4), torch.nan, dtype=torch.float64)
    evidence[:, 0] = 1.0
    drawn = model.infer(evidence, targets=["x", "c", "y", "b", "root"]).samples(64)
    rows = torch.cat([drawn[name].flatten(0, 1) for name in ("x", "c", "y", "b")], dim=1)
    found = model.posterior(rows)
    left = drawn["root"].flatten(0, 1) - found.mean["root"]
    factor = torch.linalg.cholesky(found.covariance["root"])
    white = torch.linalg.solve_triangular(factor, left[..., None], upper=False)[..., 0]
    np.testing.assert_allclose(white.mean(0), 0.0, atol=0.07)
    np.testing.assert_allclose(white.T.cov(), np.eye(2), atol=0.08)


def test_draws_do_not_depend_on_the_batch_or_their_number():
    model = random_model()
    table = torch.where(torch.rand(70, 4) < 0.5, torch.nan, example_rows(70))
    whole = model.infer(table, seed=5).samples(20)
    part = model.infer(table[65:], row_ids=torch.arange(65, 70), seed=5).samples(7)
    for leaf in "xcyb":
        assert torch.equal(whole[leaf][:7, 65:], part[leaf])


def test_latent_evidence_moves_probabilities():
    model = random_model()
    ends = [model.infer({"root": [[s, s]]}, targets="c").probabilities["c"] for s in (-2.0, 2.0)]
    assert not torch.allclose(*ends, atol=0.05)
    assert model.infer({"root": [[1.0, 1.0]]}).samples(3)["c"].shape == (3, 1, 1)


# Answers.


def test_answers_of_discrete_leaves_are_those_of_a_vfg():
    model = random_model()
    table = example_rows(6)
    table[:3, [1, 3]] = torch.nan
    answer = model.infer(table)
    chance = answer.mean["b"]
    torch.testing.assert_close(answer.std["b"][:3], (chance * (1 - chance)).sqrt()[:3])
    assert answer.std["c"][:3].isnan().all()
    assert answer.std["c"][3:].eq(0.0).all()
    assert torch.equal(answer.mean["c"][3:, 0], table[3:, 1])
    levels = [0.01, 0.99]
    expected = torch.stack([(chance > 1 - level).double() for level in levels])
    assert torch.equal(answer.quantile(levels)["b"][:, :3], expected[:, :3])
    assert answer.quantile(0.5)["c"][:3].isnan().all()
    assert list(answer.probabilities) == ["c"]
    torch.testing.assert_close(answer.probabilities["c"].sum(1), torch.ones(6).double())
    assert torch.equal(answer.probabilities["c"][3:].argmax(1).double(), table[3:, 1])
    assert answer.covariance("c")[:3].isnan().all()
    assert answer.covariance("x").shape == (6, 1, 1)


@pytest.mark.parametrize("leaf", ["affine", "spline", vfg.Coupling(blocks=1, hidden=4)])
def test_real_targets_beside_discrete_ones_have_the_moments_of_their_draws(leaf):
    graph = vfg.Graph.star({"c": 1, "s": 2, "x": 1}, width=2)
    model = random_model(graph, {"c": Categorical(4), "*": "gaussian"}, leaf=leaf)
    answer = model.infer({"c": [1.0] * 60}, seed=1)
    drawn = answer.samples(80)
    for name in ("s", "x"):
        deviation = answer.std[name].numpy()
        error = (drawn[name].mean((0, 1)) - answer.mean[name]).numpy() / deviation
        np.testing.assert_allclose(error, 0.0, atol=0.3 if isinstance(leaf, vfg.Coupling) else 0.06)
        spread = drawn[name].flatten(0, 1).std(0).numpy()
        np.testing.assert_allclose(spread / deviation, 1.0, atol=0.15)


# Fitting.


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
