"""Products of many rows in parts: the same products and the same sums."""

import pytest
import torch

from vfg.flows.fast.matmul import over_rows, parts_of, times_in_parts


class OnDevice(torch.Tensor):
    """Says that it is on a GPU."""

    is_cuda = True


def data(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_products_in_parts_are_products_with_the_same_derivatives(parts):
    x, matrices = data(3, 8, 2).requires_grad_(), data(3, 2, 5, seed=1).requires_grad_()
    found, expected = times_in_parts(x, matrices, "float32", parts), x @ matrices
    torch.testing.assert_close(found, expected)
    weights = data(3, 8, 5, seed=2)
    for one, two in zip(
        torch.autograd.grad((found * weights).sum(), [x, matrices]),
        torch.autograd.grad((expected * weights).sum(), [x, matrices]),
        strict=True,
    ):
        torch.testing.assert_close(one, two)


def test_stacks_that_are_views_are_cut_alike():
    x, matrices = data(1, 8, 2).expand(3, -1, -1), data(3, 5, 2).mT
    torch.testing.assert_close(times_in_parts(x, matrices, "float32", 4), x @ matrices)


def test_sums_over_rows_in_parts_are_the_same_sums():
    left, right = data(2, 3, 4096), data(2, 4096, 5)
    assert (parts_of(2, 4096), parts_of(2, 1000)) == (8, 1)
    found = over_rows(left.as_subclass(OnDevice), right)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), left @ right)
