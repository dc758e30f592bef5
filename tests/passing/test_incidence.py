"""Spreading and collecting against a loop, for every way in which edges can meet nodes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vfg.passing.incidence import Incidence


@given(data=st.data(), nodes=st.integers(1, 5))
def test_spread_and_collect_equal_a_loop(data, nodes):
    rows = tuple(data.draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=8)))
    ends = Incidence(rows, nodes)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(nodes, 3, 2, generator=generator)
    messages = torch.randn(len(rows), 3, 2, generator=generator)
    assert torch.equal(ends.spread(states), torch.stack([states[row] for row in rows]))
    expected = torch.zeros(nodes, 3, 2)
    for message, row in zip(messages, rows, strict=True):
        expected[row] += message
    torch.testing.assert_close(ends.collect(messages), expected)
    weights, constants = torch.rand(len(rows), 3), torch.rand(len(rows), 4)
    expected = torch.zeros(nodes, 3, 4)
    for k, row in enumerate(rows):
        expected[row] += weights[k][:, None] * constants[k]
    torch.testing.assert_close(ends.collect_weighted(weights, constants), expected)


@pytest.mark.parametrize(
    ("rows", "nodes", "aligned", "regular"),
    [
        ((0, 1, 2), 3, True, True),
        ((0, 0, 0), 1, False, True),
        ((0, 0, 1, 1), 2, False, True),
        ((0, 1, 1), 2, False, False),
        ((1, 0), 2, False, False),
    ],
)
def test_the_common_cases_need_no_index(rows, nodes, aligned, regular):
    ends = Incidence(rows, nodes)
    assert (ends.is_aligned, ends.is_regular) == (aligned, regular)


def test_a_broken_message_stays_at_its_own_node():
    ends = Incidence((0, 2, 2), nodes=3)
    collected = ends.collect(torch.tensor([[torch.inf], [1.0], [2.0]]))
    assert collected[1:].flatten().tolist() == [0.0, 3.0]
