"""EM and draws of missing cells against closed forms."""

import numpy as np
import pytest

from vfg.structure.completing import AdditiveSampler, draw_gaussian, fit_covariance
from vfg.structure.scores import Features, MomentScore


def test_covariance_of_monotone_missing_cells_is_the_factored_likelihood():
    generator = np.random.default_rng(0)
    rows = 4000
    first = generator.normal(size=rows)
    second = 0.7 * first + 0.5 * generator.normal(size=rows)
    values = np.column_stack([first, second])
    observed = np.ones(values.shape, dtype=bool)
    observed[first > 0.5, 1] = False  # depends on what is observed: missing at random
    mean, covariance = fit_covariance(np.where(observed, values, 0.0), observed)
    kept = observed[:, 1]
    slope, intercept = np.polyfit(first[kept], second[kept], 1)
    residual = (second[kept] - intercept - slope * first[kept]).var()
    assert mean[1] == pytest.approx(intercept + slope * first.mean(), abs=3e-3)
    assert covariance[0, 1] == pytest.approx(slope * first.var(), abs=3e-3)
    assert covariance[1, 1] == pytest.approx(slope**2 * first.var() + residual, abs=3e-3)
    assert abs(second[kept].mean() - mean[1]) > 0.1  # which complete rows get wrong


def test_gaussian_draws_have_the_conditional_moments():
    generator = np.random.default_rng(1)
    covariance = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]])
    values = generator.multivariate_normal(np.zeros(3), covariance, size=3000)
    observed = np.ones(values.shape, dtype=bool)
    observed[:500, 1] = False
    drawn = draw_gaussian(np.where(observed, values, 0.0), observed, 40, generator)
    assert (drawn.reshape(40, 3000, 3)[:, observed] == values[observed]).all()
    weights = np.linalg.solve(covariance[np.ix_([0, 2], [0, 2])], covariance[[0, 2], 1])
    expected = values[:500][:, [0, 2]] @ weights
    own = drawn.reshape(40, 3000, 3)[:, :500, 1]
    assert np.abs(own.mean(0) - expected).mean() < 0.12
    spread = np.sqrt(1.0 - covariance[[0, 2], 1] @ weights)
    assert own.std(0).mean() == pytest.approx(spread, rel=0.05)


def test_sampler_draws_from_parents_and_children():
    """In a chain a -> b -> c the missing b has a Normal density with a known mean and variance."""
    generator = np.random.default_rng(2)
    rows = 4000
    first = generator.normal(size=rows)
    second = 0.8 * first + 0.6 * generator.normal(size=rows)
    third = 0.8 * second + 0.6 * generator.normal(size=rows)
    values = np.column_stack([first, second, third])
    observed = np.ones(values.shape, dtype=bool)
    observed[:1000, 1] = False
    features = Features.fit(values, observed, [[0], [1], [2]])
    matrix = features.of(values)
    moments = np.cov(matrix.T)
    score = MomentScore(moments, rows, features.blocks, features.widths, np.full((3, 3), 5.0))
    dag = np.zeros((3, 3), dtype=bool)
    dag[0, 1] = dag[1, 2] = True
    sampler = AdditiveSampler(dag, score, features, matrix.mean(0), values, observed, [True] * 3)
    cells, total, squares = values.copy(), np.zeros(1000), np.zeros(1000)
    for sweep in range(60):
        sampler.sweep(cells, ~observed, generator)
        if sweep >= 10:
            total += cells[:1000, 1]
            squares += cells[:1000, 1] ** 2
    precision = 1 / 0.36 + 0.64 / 0.36
    expected = (0.8 * first[:1000] + 0.8 * third[:1000]) / 0.36 / precision
    mean = total / 50
    assert np.abs(mean - expected).mean() < 0.1
    assert np.sqrt((squares / 50 - mean**2).mean()) == pytest.approx(precision**-0.5, rel=0.05)
    assert (cells[observed] == values[observed]).all()
