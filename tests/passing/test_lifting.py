"""Lifting, and messages that cover some coordinates of their parent."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vfg.flows import Coupling
from vfg.passing.lifting import Coordinates, Lifting


@pytest.mark.parametrize(("narrow", "wide"), [(1, 1), (1, 4), (3, 8)])
def test_a_section_comes_back_through_any_flow(narrow, wide):
    generator = torch.Generator().manual_seed(0)
    lifting = Lifting(2, narrow, wide, generator=generator)
    flow = Coupling(blocks=2, hidden=8).build(2, wide, generator=generator)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    x = torch.randn(2, 5, narrow, generator=generator)
    back = lifting.drop(flow.inverse(flow(lifting.lift(x))[0])[0])
    torch.testing.assert_close(back, x, rtol=1e-4, atol=1e-5)


def test_a_section_cannot_be_lifted_into_a_narrower_space():
    with pytest.raises(ValueError, match="width 3 into the width 2"):
        Lifting(1, 3, 2)


def test_a_line_can_be_folded_when_it_is_lifted():
    """x -> x² is no bijection of the line; on a lifted line a shear reaches it."""
    lifting = Lifting(1, 1, 2)
    x = torch.linspace(-2, 2, 9).view(1, -1, 1)
    sheared = lifting.lift(x) + torch.cat([torch.zeros_like(x), x**2], dim=-1)
    assert torch.equal(lifting.drop(sheared), x)
    assert torch.allclose(sheared[..., 1:], x**2)


@given(data=st.data(), width=st.integers(1, 5), edges=st.integers(1, 3))
def test_places_equal_a_loop(data, width, edges):
    size = data.draw(st.integers(1, width))
    chosen = tuple(tuple(data.draw(st.permutations(range(width)))[:size]) for _ in range(edges))
    where = Coordinates(chosen, width)
    generator = torch.Generator().manual_seed(0)
    message = torch.randn(edges, 4, size, generator=generator)
    matrix = torch.randn(edges, 4, size, size, generator=generator)
    expected = torch.zeros(edges, 4, width)
    expected_matrix = torch.zeros(edges, 4, width, width)
    for k in range(edges):
        for a, c in enumerate(chosen[k]):
            expected[k, :, c] = message[k, :, a]
            for b, d in enumerate(chosen[k]):
                expected_matrix[k, :, c, d] = matrix[k, :, a, b]
    assert torch.equal(where.place(message), expected)
    assert torch.equal(where.place_matrix(matrix), expected_matrix)
    assert torch.equal(where.place_matrix(matrix[:, 0]), expected_matrix[:, 0])
    assert torch.equal(where.select(expected), message)
    assert torch.equal(where.covered[:, 0], expected[:, 0] != 0)
