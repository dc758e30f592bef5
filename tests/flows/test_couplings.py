from itertools import pairwise

import pytest
import torch

from vfg.flows import AdditiveCoupling, AffineCoupling, Network, SplineCoupling, coupling_split
from vfg.flows.couplings import chequered_split, squeezed_split

KINDS = [AffineCoupling, AdditiveCoupling, SplineCoupling]


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def perturbed(flow, size=0.5):
    with torch.no_grad():
        for seed, parameter in enumerate(flow.parameters()):
            parameter.add_(size * draw(*parameter.shape, seed=seed))
    return flow


@pytest.mark.parametrize("width", [2, 3, 5, 8, 33])
@pytest.mark.parametrize("pair", range(5))
def test_a_pair_of_blocks_moves_every_coordinate_once(width, pair):
    kept, moved = coupling_split(2 * pair, width)
    assert sorted(kept + moved) == list(range(width))
    assert abs(len(kept) - len(moved)) <= 1
    assert coupling_split(2 * pair + 1, width) == (moved, kept)


def test_pairs_differ_from_each_other():
    splits = [tuple(coupling_split(2 * pair, 16)[0]) for pair in range(8)]
    assert len(set(splits)) == 8


@pytest.mark.parametrize("width", [2, 3, 4, 9])
def test_no_two_layers_in_a_row_move_the_same_coordinates(width):
    moved = [coupling_split(block, width)[1] for block in range(12)]
    assert all(a != b for a, b in pairwise(moved))


def test_the_splits_of_saved_models_never_change():
    assert coupling_split(0, 8) == ([0, 2, 6, 7], [1, 3, 4, 5])
    assert coupling_split(4, 8) == ([0, 1, 3, 4], [2, 5, 6, 7])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [0, 1, 2])
def test_kept_coordinates_stay_and_moved_ones_move(kind, block):
    flow, x = perturbed(kind(2, 5, block=block)), draw(2, 6, 5)
    y = flow(x)[0]
    kept, moved = coupling_split(block, 5)
    assert torch.equal(y[..., kept], x[..., kept])
    assert (y[..., moved] != x[..., moved]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_split_is_the_same_for_any_number_of_edges(kind):
    one, many = kind(1, 6, block=3), kind(7, 6, block=3)
    assert torch.equal(one.moved, many.moved)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [0, 1])
def test_on_the_line_every_block_moves_the_only_coordinate(kind, block):
    flow, x = perturbed(kind(2, 1, block=block)), draw(2, 6, 1)
    y, _ = flow(x)
    assert (y != x).any()
    torch.testing.assert_close(flow.inverse(y)[0], x, rtol=0, atol=1e-4)


def test_additive_couplings_have_log_determinant_zero():
    _, log_det = perturbed(AdditiveCoupling(2, 4))(draw(2, 6, 4))
    assert (log_det == 0).all()


def test_the_scale_of_affine_couplings_is_bounded():
    flow = perturbed(AffineCoupling(1, 2, bound=0.5), size=5.0)
    _, log_det = flow(1e3 * draw(1, 100, 2))
    assert 0.4 < log_det.abs().max() <= 0.5


def test_spline_couplings_are_the_identity_beyond_their_tails():
    flow = perturbed(SplineCoupling(1, 2, tail=3.0))
    x = torch.tensor([[[0.5, -3.5], [0.5, 40.0], [0.5, 1.0]]])
    y, log_det = flow(x)
    assert (y == x).all(-1).flatten().tolist() == [True, True, False]
    assert (log_det == 0).flatten().tolist() == [True, True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_conditioners_run_in_half_precision_under_autocast(kind):
    flow, seen = perturbed(kind(1, 4)), []
    flow.conditioner.register_forward_hook(lambda *call: seen.append(call[-1].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        flow(draw(1, 3, 4))
    assert seen == [torch.bfloat16]


@pytest.mark.parametrize("kind", KINDS)
def test_each_direction_runs_the_conditioner_once(kind):
    flow, calls = kind(1, 4), []
    flow.conditioner.register_forward_hook(lambda *call: calls.append(1))
    flow.inverse(flow(draw(1, 3, 4))[0])
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AffineCoupling(1, 2, block=-1), "block to be at least 0, but got -1"),
        (lambda: AffineCoupling(1, 2, bound=-1.0), "bound to be positive"),
        (lambda: SplineCoupling(1, 2, bins=1), "bins to be at least 2, but got 1"),
        (lambda: SplineCoupling(1, 2, tail=float("inf")), "tail to be positive and finite"),
        (
            lambda: AdditiveCoupling(1, 2, network=Network(activation="swish")),
            "'relu', 'silu', 'gelu', 'tanh'",
        ),
    ],
)
def test_bad_arguments_are_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_the_split_is_a_chequerboard_whose_halves_take_turns():
    kept, moved = chequered_split(0, 9, (3, 3))
    assert (kept, moved) == ([0, 2, 4, 6, 8], [1, 3, 5, 7])
    assert chequered_split(1, 9, (3, 3)) == (moved, kept)
    flow = AffineCoupling(1, 9, network=Network(image=(3, 3)))
    assert flow.kept.tolist() == kept


@pytest.mark.parametrize("block", range(6))
def test_a_squeezed_split_keeps_two_places_of_every_square(block):
    kept, moved = squeezed_split(block, 24, (4, 6))
    assert sorted(kept + moved) == list(range(24))
    assert squeezed_split(block ^ 1, 24, (4, 6)) == (moved, kept)
    for half in (kept, moved):
        squares = [(place // 6 // 2, place % 6 // 2) for place in half]
        # Pairs follow each other, and the squares are read row by row.
        assert squares == [(row, column) for row in range(2) for column in range(3) for _ in "ab"]


def test_squeezed_splits_take_turns_between_diagonals_rows_and_columns():
    assert [squeezed_split(block, 4, (2, 2))[0] for block in (0, 2, 4, 6)] == [
        [0, 3],
        [0, 1],
        [0, 2],
        [0, 3],
    ]
