"""The counter-based generator: its distribution, and that nothing but counters matters."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vfg.utils.random import normal, uniform

ONE = torch.arange(1)
COUNT = 20_000
ARGUMENTS = ["seed", "row", "draw", "node", "coordinate"]


def along(argument, count=COUNT, start=0, make=uniform):
    """Numbers at neighbouring values of one argument, all others fixed."""
    line = torch.arange(start, start + count)
    if argument == "seed":
        return torch.stack([make(seed, ONE, ONE, 3, ONE)[0, 0, 0] for seed in line.tolist()])
    if argument == "row":
        return make(5, line, ONE, 3, ONE)[0, :, 0]
    if argument == "draw":
        return make(5, ONE, line, 3, ONE)[:, 0, 0]
    if argument == "node":
        return make(5, ONE, ONE, line, torch.zeros_like(line))[0, 0]
    return make(5, ONE, ONE, 3, line)[0, 0]


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_neighbours_are_uniform_and_uncorrelated(argument):
    count = 3000 if argument == "seed" else COUNT
    found = along(argument, count)
    assert stats.kstest(found.numpy(), "uniform").pvalue > 0.001
    for lag in (1, 2, 16, 256):
        correlation = torch.corrcoef(torch.stack([found[:-lag], found[lag:]]))[0, 1].item()
        assert abs(correlation) < 4.5 / math.sqrt(count)


@pytest.mark.parametrize("first", ARGUMENTS[1:])
@pytest.mark.parametrize("second", ARGUMENTS[1:])
def test_arguments_may_not_stand_in_for_each_other(first, second):
    if first != second:
        one, two = along(first)[1:], along(second)[1:]
        correlation = torch.corrcoef(torch.stack([one, two]))[0, 1].item()
        assert abs(correlation) < 4.5 / math.sqrt(COUNT)
        assert not bool((one == two).any())


@pytest.mark.parametrize("start", [0, 2**31 - 5000, 2**53 - 5000, 2**62])
def test_large_row_ids_are_as_good_as_small_ones(start):
    assert stats.kstest(along("row", start=start).numpy(), "uniform").pvalue > 0.001


@pytest.mark.parametrize("argument", ARGUMENTS[1:])
def test_normals_are_normal(argument):
    assert stats.kstest(along(argument, make=normal).numpy(), "norm").pvalue > 0.001


def test_every_bit_is_fair_and_pairs_of_bits_are_independent():
    bits = (along("row") * 2**52).long()
    table = torch.stack([(bits >> k) & 1 for k in range(52)]).double()
    assert (table.mean(1) - 0.5).abs().max() < 4.5 * 0.5 / math.sqrt(COUNT)
    correlation = torch.corrcoef(table) - torch.eye(52)
    assert correlation.abs().max() < 5.0 / math.sqrt(COUNT)


def test_one_bit_more_or_less_in_an_argument_changes_half_of_the_result():
    ids = torch.cat([torch.zeros(1, dtype=torch.long), 1 << torch.arange(62)])
    bits = (uniform(1, ids, ONE, 0, ONE)[0, :, 0] * 2**52).long()
    flipped = bits[1:] ^ bits[0]
    changed = torch.stack([(flipped >> k) & 1 for k in range(52)]).double().mean(0)
    assert changed.min() > 0.2
    assert changed.max() < 0.8


@given(
    seed=st.integers(-(2**70), 2**70),
    rows=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5),
    draws=st.integers(1, 4),
    node=st.integers(0, 1000),
    coordinates=st.integers(1, 4),
)
def test_a_number_depends_on_its_five_integers_alone(seed, rows, draws, node, coordinates):
    ids = torch.tensor(rows)
    whole = uniform(seed, ids, torch.arange(draws), node, torch.arange(coordinates))
    assert ((whole > 0) & (whole < 1)).all()
    last = uniform(seed, ids[-1:], torch.tensor([draws - 1]), node, torch.tensor([coordinates - 1]))
    assert torch.equal(whole[-1, -1, -1], last[0, 0, 0])
    prefix = uniform(seed, ids.flip(0), torch.arange(1), node, torch.arange(1))
    assert torch.equal(whole[:1, :, :1], prefix.flip(1))


def test_the_extremes_have_finite_normals():
    tiny, large = 2.0**-53, 1.0 - 2.0**-53
    assert torch.special.ndtri(torch.tensor([tiny, large], dtype=torch.float64)).isfinite().all()


def test_the_global_generator_is_left_alone(untouched_generators):
    normal(0, torch.arange(3), torch.arange(3), 0, torch.arange(3))


def test_the_numbers_are_the_same_for_ever():
    found = uniform(7, torch.tensor([1, 2]), torch.tensor([0]), 4, torch.tensor([0, 9]))
    by_hand = [[[_by_hand(7, row, 0, 4, column) for column in (0, 9)] for row in (1, 2)]]
    assert found.tolist() == by_hand


def _by_hand(*numbers):
    """The same hash in Python's unbounded integers."""
    golden, low = 0x9E3779B97F4A7C15, 2**64 - 1

    def mixed(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & low
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & low
        return z ^ (z >> 31)

    state = mixed((numbers[0] + golden) & low)
    for number in numbers[1:]:
        state = mixed(((state ^ mixed((number + golden) & low)) + golden) & low)
    return ((state >> 12) + 0.5) / 2**52
