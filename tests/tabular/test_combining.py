"""How members and linear model join: against least squares by hand, and on tables of known kind."""

import numpy as np
import pytest
import torch

import vfg
from vfg.tabular.combining import PRIOR, Combination, Sums, _weights, combine
from vfg.tabular.ensemble import _held_out
from vfg.tabular.forest import stacked
from vfg.tabular.linear import fit_linear, star
from vfg.tabular.mixtures import fit_mixture


def sums(x, *guesses):
    """Of guesses that are their own means."""
    p = torch.stack(guesses)
    parts = (x * x, x * p, p[:, None] * p, (x - p[0]) ** 2, torch.zeros_like(x))
    return Sums(*(part.sum(-2) for part in parts))


def normals(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def models(values, observed, *, members=2):
    graph = star([1] * values.shape[1], 3)
    held = [_held_out(graph, observed, 0.3, seed) for seed in range(members)]
    linears = [fit_linear(graph, values, observed & ~own, 0) for own in held]
    flow = vfg.Coupling(blocks=2, hidden=8, layers=2)
    stack = stacked([vfg.VFG.from_gaussian(linear, flow=flow).float() for linear in linears])
    return stack, linears, held


def test_weights_are_least_squares_with_a_prior():
    guesses = [normals(400, 3, seed=seed) for seed in range(3)]
    x = 0.6 * guesses[0] + 0.3 * guesses[1] + 0.2 * guesses[2] + 0.1 * normals(400, 3, seed=3)
    rows = np.stack([guess.flatten() for guess in guesses], axis=1)
    left = rows.T @ rows + PRIOR * np.eye(3)
    right = rows.T @ x.flatten().numpy() + PRIOR * np.array([0.5, 0.5, 0.0])
    found = _weights(sums(x, *guesses), torch.ones(3, dtype=torch.bool))
    np.testing.assert_allclose(found, np.linalg.solve(left, right), rtol=1e-9)


@pytest.mark.parametrize("wanted", [(0.8, -0.5, 0.0), (-0.9, 0.7, 0.2), (0.3, 0.0, -0.4)])
def test_weights_are_never_negative(wanted):
    guesses = [normals(4000, 2, seed=seed) for seed in range(3)]
    x = sum(weight * guess for weight, guess in zip(wanted, guesses, strict=True))
    found = _weights(sums(x, *guesses), torch.ones(3, dtype=torch.bool))
    assert bool((found >= 0).all())
    np.testing.assert_allclose(found, np.maximum(wanted, 0.0), atol=0.04)


def test_what_is_absent_weighs_nothing():
    guesses = [normals(400, 3), torch.zeros(400, 3, dtype=torch.float64), normals(400, 3, seed=1)]
    found = _weights(sums(guesses[0], *guesses), torch.tensor([True, False, True]))
    assert found[1] == 0
    assert found[0].item() == pytest.approx(1.0, abs=0.02)


def test_columns_that_say_nothing_about_each_other_are_drawn_to_their_means():
    values = normals(300, 6)
    observed = torch.rand(300, 6, generator=torch.Generator().manual_seed(1)) < 0.7
    stack, linears, held = models(values * observed, observed)
    found = combine(stack, [], linears, values, observed, held)
    assert float((found.weights.sum() * found.factors).mean()) < 0.5


def test_columns_that_tell_all_about_each_other_are_left_alone():
    values = normals(300, 1).repeat(1, 4) + 0.1 * normals(300, 4, seed=1)
    observed = torch.rand(300, 4, generator=torch.Generator().manual_seed(1)) < 0.7
    stack, linears, held = models(values * observed, observed)
    found = combine(stack, [], linears, values, observed, held)
    np.testing.assert_allclose(found.weights.sum() * found.factors, 1.0, atol=0.05)
    np.testing.assert_allclose(found.shrinkage, 1.0, atol=0.1)


def test_without_linear_models_they_weigh_nothing():
    values = normals(200, 1).repeat(1, 3) + 0.3 * normals(200, 3, seed=1)
    observed = torch.rand(200, 3, generator=torch.Generator().manual_seed(1)) < 0.8
    stack, _, held = models(values * observed, observed)
    assert combine(stack, [], None, values, observed, held).weights[1:].tolist() == [0.0, 0.0]


def test_mixtures_get_weight_where_members_miss_the_clusters():
    centres = 3.0 * normals(4, 5)
    generator = torch.Generator().manual_seed(2)
    values = centres[torch.randint(4, (400,), generator=generator)] + 0.2 * normals(400, 5, seed=1)
    values = (values - values.mean(0)) / values.std(0)
    observed = torch.rand(400, 5, generator=generator) < 0.6
    stack, linears, held = models(values * observed, observed)
    graph = linears[0].graph
    mixtures = [
        fit_mixture(graph, values, observed & ~own, 6, seed, seed) for seed, own in enumerate(held)
    ]
    found = combine(stack, mixtures, linears, values, observed, held)
    assert found.weights[1] > 0.5
    # What a mixture expects of its errors is about what they are.
    assert bool(((found.shrinkage[1] > 0.5) & (found.shrinkage[1] < 2.0)).all())


def test_the_plain_combination_is_the_members_mean():
    plain = Combination.of_members(3)
    assert plain.weights.tolist() == [1.0, 0.0, 0.0]
    assert plain.factors.tolist() == [1.0, 1.0, 1.0]
    assert plain.shrinkage.tolist() == [[1.0, 1.0, 1.0]] * 2
