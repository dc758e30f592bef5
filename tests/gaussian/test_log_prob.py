"""Probabilities of discrete leaves by the chain rule: they sum to one, and equal brute force."""

import itertools
import math

import numpy as np
import pytest
import torch
from gaussian.brute import all_masks, joint_normal
from gaussian.discrete_models import (
    ALL_DISCRETE,
    DAG,
    DISCRETE,
    STAR,
    bits,
    every_row,
    example_rows,
    random_model,
)
from scipy.stats import multivariate_normal

import vfg
from vfg.distributions.likelihoods import Categorical
from vfg.gaussian.parameters import factors_of


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
