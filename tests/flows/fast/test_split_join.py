"""Halves of states: against plain indexing, derivatives included."""

import pytest
import torch

from vfg.flows.fast.split_join import join, split

ONE, TWO = torch.tensor([3, 0]), torch.tensor([4, 1, 2])
PLACES = torch.tensor([1, 3, 4, 0, 2])


def states():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, 5, dtype=torch.float64, generator=generator).requires_grad_()


def test_halves_are_the_chosen_coordinates_and_join_to_the_whole():
    x = states()
    one, two = split(x, ONE, TWO, PLACES)
    assert torch.equal(one, x[..., ONE])
    assert torch.equal(two, x[..., TWO])
    assert torch.equal(join(one, two, ONE, TWO, PLACES), x)


def test_derivatives_are_those_of_indexing():
    x = states()
    assert torch.autograd.gradcheck(lambda x: split(x, ONE, TWO, PLACES), x)
    assert torch.autograd.gradgradcheck(lambda x: split(x, ONE, TWO, PLACES)[0].square(), x)
    halves = [half.detach().requires_grad_() for half in split(x, ONE, TWO, PLACES)]
    assert torch.autograd.gradcheck(lambda a, b: join(a, b, ONE, TWO, PLACES), halves)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_goes_through():
    x = states().detach()
    _, tangents = torch.func.jvp(lambda x: split(x, ONE, TWO, PLACES), (x,), (2.0 * x,))
    assert torch.equal(tangents[1], 2.0 * x[..., TWO])
