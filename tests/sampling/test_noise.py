"""Normal distributions by precision against dense linear algebra, for shared and own factors."""

import pytest
import torch

from vfg.sampling import noise


def precisions(draws, rows=3, width=2):
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(1, draws, rows, width, width, generator=generator, dtype=torch.float64)
    return root @ root.mT + torch.eye(width).double()


def vectors(draws=4, rows=3, width=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(1, draws, rows, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shared", [True, False])
def test_solving_and_spreading_invert_the_precision(shared):
    matrix, vector = precisions(1 if shared else 4), vectors()
    factor = noise.factorise(matrix, vector)
    dense = matrix.expand(1, 4, 3, 2, 2)
    expected = torch.linalg.solve(dense, vector[..., None])[..., 0]
    torch.testing.assert_close(noise.solve_factored(factor, vector), expected)
    basis = torch.eye(2).double()
    columns = [noise.scale_noise(factor, basis[k].expand_as(vector)) for k in range(2)]
    spread = torch.stack(columns, dim=-1)
    torch.testing.assert_close(spread @ spread.mT, torch.linalg.inv(dense))


def test_a_diagonal_is_a_matrix_without_the_rest():
    diagonal, vector = vectors(1).square() + 0.1, vectors()
    matrix = torch.diag_embed(diagonal)
    for function in (noise.solve_factored, noise.scale_noise):
        short = function(noise.factorise(diagonal, vector), vector)
        long = function(noise.factorise(matrix, vector), vector)
        torch.testing.assert_close(short, long)


@pytest.mark.parametrize("shared", [True, False])
def test_the_density_is_that_of_the_draw(shared):
    matrix, numbers = precisions(1 if shared else 4), vectors()
    factor = noise.factorise(matrix, numbers)
    law = torch.distributions.MultivariateNormal(torch.zeros(2).double(), precision_matrix=matrix)
    expected = law.log_prob(noise.scale_noise(factor, numbers))
    torch.testing.assert_close(noise.log_density(factor, numbers).sum(-1), expected)


@pytest.mark.parametrize("diagonal", [True, False])
def test_evidence_through_noise_is_the_marginal_evidence(diagonal):
    """N(h; Λ⁻¹η, Λ⁻¹) seen through noise of variance S⁻¹ has the covariance Λ⁻¹ + S⁻¹."""
    precision = vectors(1)[:, 0].square() + 0.2 if diagonal else precisions(1)[:, 0]
    dense = torch.diag_embed(precision) if diagonal else precision
    eta, above = vectors(1)[:, 0], vectors(2)[:, 1].square() + 0.3
    found_eta, found = noise.pass_through_noise(eta, precision, above)
    wide = torch.linalg.inv(torch.linalg.inv(dense) + torch.diag_embed(1.0 / above))
    mean = torch.linalg.solve(dense, eta[..., None])
    torch.testing.assert_close(torch.diag_embed(found) if diagonal else found, wide)
    torch.testing.assert_close(found_eta, (wide @ mean)[..., 0])


def test_no_evidence_stays_none():
    nothing = torch.zeros(1, 3, 2, 2).double()
    eta, precision = noise.pass_through_noise(torch.zeros(1, 3, 2).double(), nothing, torch.ones(2))
    assert eta.abs().max() == 0.0
    assert precision.abs().max() == 0.0
