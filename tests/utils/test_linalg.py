"""Small positive systems: against LU solutions and numerical derivatives."""

import pytest
import torch

from vfg.utils.linalg import positive_solve


def systems(*shape, width=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(*shape, width, width, generator=generator, dtype=torch.float64)
    right = torch.randn(*shape, width, generator=generator, dtype=torch.float64)
    return root @ root.mT + torch.eye(width), right


@pytest.mark.parametrize("shape", [(3,), (2, 7), (1, 1)])
@pytest.mark.parametrize("width", [1, 2, 16])
def test_solutions_solve(shape, width):
    matrix, right = systems(*shape, width=width)
    expected = torch.linalg.solve(matrix, right)
    torch.testing.assert_close(positive_solve(matrix, right), expected)


def test_derivatives_are_those_of_the_inverse():
    root, right = systems(2, 3, width=3)
    root, right = root.requires_grad_(), right.requires_grad_()

    def solved(root, right):
        return positive_solve(root @ root.mT + torch.eye(3), right)

    assert torch.autograd.gradcheck(solved, (root, right))
    assert torch.autograd.gradgradcheck(solved, (root, right))


def test_a_matrix_that_is_not_positive_gives_no_numbers_that_pass_for_a_solution():
    matrix = torch.tensor([[[-1.0, 0.0], [0.0, 1.0]]])
    found = positive_solve(matrix, torch.ones(1, 2))
    assert not torch.allclose(matrix @ found[..., None], torch.ones(1, 2, 1))
