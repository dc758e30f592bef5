import math

import pytest
import torch

from vfg.flows import (
    MonotoneSpline,
    bounded_bins,
    bounded_derivatives,
    inverse_rational_quadratic,
    rational_quadratic,
)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_spline(size, splines=50, bins=8, tail=4.0, dtype=torch.float64):
    """Widths, heights and derivatives from raw numbers of a given size, `(splines, 1, bins)`."""
    widths = bounded_bins(size * draw(splines, 1, bins, seed=1, dtype=dtype), 2 * tail)
    heights = bounded_bins(size * draw(splines, 1, bins, seed=2, dtype=dtype), 2 * tail)
    raw = size * draw(splines, 1, bins + 1, seed=3, dtype=dtype)
    return widths, heights, bounded_derivatives(raw, widths, heights)


def set_random(spline, size=2.0):
    with torch.no_grad():
        for seed, parameter in enumerate(spline.parameters()):
            parameter.copy_(size * draw(*parameter.shape, seed=seed))
    return spline


def test_the_spline_goes_through_its_knots_with_the_derivatives_given():
    widths = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    heights = torch.tensor([0.3, 2.0, 1.0], dtype=torch.float64)
    derivatives = torch.tensor([0.2, 1.5, 3.0, 0.7], dtype=torch.float64)
    knots = torch.tensor([-1.0, 0.0, 0.5, 2.5], dtype=torch.float64)
    y, log_derivative = rational_quadratic(
        knots, widths, heights, derivatives, left=-1.0, bottom=5.0
    )
    expected = torch.tensor([5.0, 5.3, 7.3, 8.3], dtype=torch.float64)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(log_derivative.exp(), derivatives)


def test_a_piece_is_the_quotient_of_the_quadratics_in_the_literature():
    width, height, first, last = 0.7, 1.9, 0.4, 2.5
    position = torch.linspace(0, 1, 21, dtype=torch.float64)
    slope = height / width
    numerator = height * (slope * position**2 + first * position * (1 - position))
    denominator = slope + (first + last - 2 * slope) * position * (1 - position)
    y, _ = rational_quadratic(
        position * width,
        torch.tensor([width], dtype=torch.float64),
        torch.tensor([height], dtype=torch.float64),
        torch.tensor([first, last], dtype=torch.float64),
    )
    torch.testing.assert_close(y, numerator / denominator)


def test_the_tails_are_lines_with_the_slopes_of_the_ends():
    widths, heights, derivatives = random_spline(1.0, splines=1)
    beyond = torch.tensor([[-5.0, -6.0, 5.0, 6.0]], dtype=torch.float64)
    y, log_derivative = rational_quadratic(
        beyond, widths, heights, derivatives, left=-4.0, bottom=-4.0
    )
    first, last = derivatives[0, 0, 0], derivatives[0, 0, -1]
    expected = torch.stack([-4 - first, -4 - 2 * first, 4 + last, 4 + 2 * last])
    torch.testing.assert_close(y[0], expected)
    torch.testing.assert_close(log_derivative[0].exp(), torch.stack([first, first, last, last]))


@pytest.mark.parametrize("size", [0.5, 3.0, 100.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_round_trips_hold_however_extreme_the_parameters(size, dtype, tolerance):
    spline = random_spline(size, dtype=dtype)
    grid = torch.linspace(-6, 6, 2001, dtype=dtype).expand(50, -1)
    knots = torch.nn.functional.pad(spline[0].cumsum(-1), (1, 0)).squeeze(1) - 4
    corner = {"left": -4.0, "bottom": -4.0}
    pair = [rational_quadratic, inverse_rational_quadratic]
    for there, back in (pair, pair[::-1]):
        for x in (grid, knots, torch.full_like(knots, 1e3), torch.full_like(knots, -1e3)):
            again = back(there(x, *spline, **corner)[0], *spline, **corner)[0]
            assert ((again - x).abs() / x.abs().clamp_min(1)).max() < tolerance


@pytest.mark.parametrize("size", [0.5, 3.0, 100.0])
def test_derivatives_have_no_jump_at_the_knots(size):
    widths, heights, derivatives = random_spline(size)
    knots = torch.nn.functional.pad(widths.cumsum(-1), (1, 0)).squeeze(1)
    step = 1e-9
    before = rational_quadratic(knots - step, widths, heights, derivatives)[1]
    after = rational_quadratic(knots + step, widths, heights, derivatives)[1]
    torch.testing.assert_close(before, after, rtol=0, atol=1e-4)


@pytest.mark.parametrize("function", [rational_quadratic, inverse_rational_quadratic])
def test_one_spline_for_many_inputs_is_the_same_as_one_for_each(function):
    raw = [draw(5, 1, count, seed=seed) for seed, count in enumerate((8, 8, 9))]
    x, weight = 3.0 * draw(5, 40, seed=5), draw(5, 40, seed=6)
    found = []
    for copies in (1, 40):
        spread = [part.expand(5, copies, -1).clone().requires_grad_(True) for part in raw]
        widths, heights = bounded_bins(spread[0], 8.0), bounded_bins(spread[1], 8.0)
        derivatives = bounded_derivatives(spread[2], widths, heights)
        y, log_derivative = function(x, widths, heights, derivatives, left=-4.0, bottom=-4.0)
        with torch.no_grad():
            plain = function(x, widths, heights, derivatives, left=-4.0, bottom=-4.0)
        assert torch.equal(plain[0], y)
        assert torch.equal(plain[1], log_derivative)
        gradients = torch.autograd.grad((weight * (y + log_derivative)).sum(), spread)
        found.append([y, log_derivative, *(part.sum(1) for part in gradients)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_bins_share_the_total_and_none_vanishes():
    sizes = bounded_bins(torch.tensor([1e4, 0.0, -1e4, 3.0]), total=8.0)
    assert sizes.sum().item() == pytest.approx(8.0)
    assert sizes.min() >= 0.599


@pytest.mark.parametrize("decreasing", [False, True])
def test_sorted_inputs_give_sorted_outputs(decreasing):
    spline = set_random(MonotoneSpline(3, 2, decreasing=decreasing).double())
    x = torch.linspace(-9, 9, 999, dtype=torch.float64).reshape(1, -1, 1).expand(3, -1, 2)
    steps = spline(x)[0].diff(dim=1)
    assert (steps < 0).all() if decreasing else (steps > 0).all()


def test_each_edge_and_coordinate_has_its_own_direction():
    flags = torch.tensor([[True, False], [False, False]])
    spline = set_random(MonotoneSpline(2, 2, decreasing=flags).double())
    x = torch.linspace(-9, 9, 99, dtype=torch.float64).reshape(1, -1, 1).expand(2, -1, 2)
    falls = (spline(x)[0].diff(dim=1) < 0).all(1)
    assert torch.equal(falls, flags)
    assert torch.equal(spline.linear_part().diagonal(dim1=1, dim2=2) < 0, flags)


def test_the_direction_survives_saving():
    spline = MonotoneSpline(2, 2)
    spline.load_state_dict(MonotoneSpline(2, 2, decreasing=True).state_dict())
    assert (spline(torch.ones(2, 1, 2))[0] == -1).all()


def test_the_slopes_of_the_tails_are_parameters():
    spline = MonotoneSpline(1, 1).double()
    with torch.no_grad():
        spline.raw_derivatives[..., 0], spline.raw_derivatives[..., -1] = 1.0, -100.0
    x = torch.tensor([-50.0, -40.0, 40.0, 50.0], dtype=torch.float64).reshape(1, 4, 1)
    rises = spline(x)[0].flatten().diff()[[0, 2]] / 10
    bound = math.log(4)
    expected = torch.tensor([math.exp(bound * math.tanh(1 / bound)), 1 / 4], dtype=torch.float64)
    torch.testing.assert_close(rises, expected)


def test_missing_values_stay_missing_and_touch_no_other_row():
    spline = set_random(MonotoneSpline(1, 1).double())
    x = torch.tensor([0.3, float("nan"), 1.0], dtype=torch.float64).reshape(1, 3, 1)
    y = spline(x)[0].flatten()
    assert y.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"bins": 1}, ValueError, "bins to be at least 2, but got 1"),
        ({"bins": 2.5}, TypeError, "an integer for bins, but got 2.5"),
        ({"tail": 0.0}, ValueError, "tail to be positive"),
        ({"decreasing": torch.ones(2, 3)}, TypeError, "boolean tensor"),
        ({"decreasing": torch.ones(4, dtype=torch.bool)}, ValueError, r"edges=2, width=3"),
    ],
)
def test_bad_arguments_are_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        MonotoneSpline(2, 3, **arguments)
