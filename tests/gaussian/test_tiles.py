import math
from itertools import pairwise

import pytest
import torch
from scipy import integrate
from scipy.stats import norm

import vfg
from vfg.gaussian import tiles
from vfg.gaussian.factors import Factors
from vfg.gaussian.tiles import normal_moments, rows_of_a_tile


def kinked(values):
    """A map of two columns that bends at 0.5 and at -1 and 2."""
    first = torch.where(values < 0.5, values, 0.5 + 3.0 * (values - 0.5))
    second = torch.where(
        values < -1, 2 * values, torch.where(values < 2, values - 1, 0.2 + 0.4 * values)
    )
    return torch.stack([first[..., 0], second[..., 1]], dim=-1)


BREAKS = torch.tensor([[0.5, 0.5], [-1.0, 2.0]], dtype=torch.float64)


@pytest.mark.parametrize("deviation", [1e-3, 0.3, 1.0, 4.0])
def test_quadrature_is_exact_beside_bends(deviation):
    mean = torch.tensor([[-2.0, -1.2], [0.5, 0.0], [0.7, 2.0], [5.0, 9.0]], dtype=torch.float64)
    found = normal_moments(mean, torch.full_like(mean, deviation), BREAKS, kinked)
    for row in range(4):
        for column in range(2):
            centre = mean[row, column].item()

            def value(z, column=column, centre=centre):
                point = torch.full((2,), centre + deviation * z, dtype=torch.float64)
                return kinked(point)[column].item()

            cuts = [(b - centre) / deviation for b in BREAKS[column].tolist()]
            cuts = sorted({-8.0, 8.0, *(c for c in cuts if abs(c) < 8.0)})

            def integral(function, cuts=cuts):
                return sum(integrate.quad(function, *piece)[0] for piece in pairwise(cuts))

            first = integral(lambda z: value(z) * norm.pdf(z))
            second = integral(lambda z, first=first: (value(z) - first) ** 2 * norm.pdf(z))
            assert found[0][row, column].item() == pytest.approx(first, rel=1e-6, abs=1e-9)
            assert found[1][row, column].item() == pytest.approx(second, rel=1e-5)


def test_pieces_one_by_one_give_the_same_moments(monkeypatch):
    mean = torch.linspace(-3, 3, 20, dtype=torch.float64).reshape(5, 2, 2)
    together = normal_moments(mean, 0.5 + mean.abs(), BREAKS, kinked)
    monkeypatch.setattr(tiles, "POINTS_AT_ONCE", 1)
    alone = normal_moments(mean, 0.5 + mean.abs(), BREAKS, kinked)
    torch.testing.assert_close(together, alone, rtol=1e-13, atol=1e-13)


def test_a_certain_value_is_mapped_as_it_is():
    mean = torch.tensor([[0.1, math.pi]], dtype=torch.float64)
    found, variance = normal_moments(mean, torch.zeros_like(mean), BREAKS, kinked)
    torch.testing.assert_close(found, kinked(mean))
    torch.testing.assert_close(variance, torch.zeros_like(mean))


@pytest.mark.parametrize(
    ("components", "columns", "innovations", "expected"),
    [(1, 11, 3, 512), (1, 42, 12, 512), (48, 24, 8, 64), (8, 20, 8, 256), (1, 3000, 40, 64)],
)
def test_tiles_of_large_models_have_fewer_rows(components, columns, innovations, expected):
    loadings = torch.zeros(components, columns, innovations)
    readout = Factors(torch.zeros(components), loadings, loadings[..., 0], loadings[..., 0])
    assert rows_of_a_tile(readout) == expected


def test_tiles_of_other_devices_have_more_rows():
    loadings = torch.zeros(48, 24, 8, device="meta")
    readout = Factors(loadings[:, 0, 0], loadings, loadings[..., 0], loadings[..., 0])
    assert rows_of_a_tile(readout) == 4096


def test_roots_of_many_covariances_are_those_of_each(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    loadings = torch.randn(7, 3, 2, generator=generator, dtype=torch.float64)
    singular = loadings @ loadings.mT
    monkeypatch.setattr(tiles, "ROOTS_AT_ONCE", 3)
    roots = tiles._square_roots(singular)
    torch.testing.assert_close(roots @ roots, singular)
    torch.testing.assert_close(roots, roots.mT)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 9, 10, 11, 15])
def test_a_root_does_not_depend_on_its_place_among_others(size):
    generator = torch.Generator().manual_seed(size)
    loadings = torch.randn(200, size, size, generator=generator, dtype=torch.float64)
    covariance = loadings @ loadings.mT
    chosen = torch.randperm(200, generator=generator)[:57]
    some, every = tiles._square_roots(covariance[chosen]), tiles._square_roots(covariance)
    assert torch.equal(some, every[chosen])
    torch.testing.assert_close(some @ some, covariance[chosen])


def test_draws_of_some_rows_are_those_of_the_whole_table():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(150, 6, generator=generator, dtype=torch.float64)
    seen = torch.rand(table.shape, generator=generator) < 0.6
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(6)}, width=9)
    model = vfg.GaussianVFG(graph, components=8)
    model.fit(table, iterations=5, finish="none")
    ids = torch.arange(150)
    whole = model.infer(table, observed=seen).samples(3)
    for part in (ids[:40], ids[40:41], ids[41:]):
        some = model.infer(table[part], observed=seen[part], row_ids=part).samples(3)
        assert all(torch.equal(some[leaf], whole[leaf][:, part]) for leaf in whole)
