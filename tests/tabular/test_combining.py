"""How members and linear model join: against least squares by hand, and on tables of known kind."""

import numpy as np
import pytest
import torch

import vfg
from vfg.tabular.combining import PRIOR, Combination, Sums, _weights, combine
from vfg.tabular.ensemble import _held_out, fit_linear, star
from vfg.tabular.forest import stacked


def sums(x, y, line):
    parts = (x * x, x * y, x * line, y * y, y * line, line * line, (x - y) ** 2)
    return Sums(*(part.sum(0) for part in parts))


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
    y, line = normals(400, 3), normals(400, 3, seed=1)
    x = 0.6 * y + 0.3 * line + 0.1 * normals(400, 3, seed=2)
    rows = np.stack([y.flatten(), line.flatten()], axis=1)
    left = rows.T @ rows + PRIOR * np.eye(2)
    right = rows.T @ x.flatten().numpy() + PRIOR * np.array([1.0, 0.0])
    np.testing.assert_allclose(_weights(sums(x, y, line)), np.linalg.solve(left, right), rtol=1e-9)


@pytest.mark.parametrize("wanted", [(0.8, -0.5), (-0.9, 0.7)])
def test_weights_are_never_negative(wanted):
    y, line = normals(4000, 2), normals(4000, 2, seed=1)
    found = _weights(sums(wanted[0] * y + wanted[1] * line, y, line))
    assert bool((found >= 0).all())
    chosen = 0 if wanted[0] > 0 else 1
    assert found[chosen].item() == pytest.approx(wanted[chosen], abs=0.03)
    assert found[1 - chosen] == 0


def test_columns_that_say_nothing_about_each_other_are_drawn_to_their_means():
    values = normals(300, 6)
    observed = torch.rand(300, 6, generator=torch.Generator().manual_seed(1)) < 0.7
    found = combine(
        *models(values * observed, observed)[:2],
        values,
        observed,
        models(values * observed, observed)[2],
    )
    assert float((found.weights.sum() * found.factors).mean()) < 0.5


def test_columns_that_tell_all_about_each_other_are_left_alone():
    values = normals(300, 1).repeat(1, 4) + 0.1 * normals(300, 4, seed=1)
    observed = torch.rand(300, 4, generator=torch.Generator().manual_seed(1)) < 0.7
    stack, linears, held = models(values * observed, observed)
    found = combine(stack, linears, values, observed, held)
    np.testing.assert_allclose(found.weights.sum() * found.factors, 1.0, atol=0.05)
    np.testing.assert_allclose(found.shrinkage, 1.0, atol=0.1)


def test_without_linear_models_they_weigh_nothing():
    values = normals(200, 1).repeat(1, 3) + 0.3 * normals(200, 3, seed=1)
    observed = torch.rand(200, 3, generator=torch.Generator().manual_seed(1)) < 0.8
    stack, _, held = models(values * observed, observed)
    assert combine(stack, None, values, observed, held).weights[1] == 0


def test_the_plain_combination_is_the_members_mean():
    plain = Combination.of_members(3)
    assert plain.weights.tolist() == [1.0, 0.0]
    assert plain.factors.tolist() == plain.shrinkage.tolist() == [1.0, 1.0, 1.0]
