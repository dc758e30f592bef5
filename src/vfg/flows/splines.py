"""Monotone rational-quadratic splines: pure functions, and a flow made of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from vfg.flows.base import Flow
from vfg.flows.checks import check_count, check_positive

# Every bin has at least this share of an equal bin, and a derivative lies within this factor of the
# slopes beside it. Together they bound the slope of the spline from both sides, so that round
# trips in single precision are accurate.
LEAST_SHARE = 0.3
LOG_DERIVATIVE_BOUND = math.log(4.0)


class _Bin(NamedTuple):
    """The bin that each input falls in: its corner, its size and the derivatives at its ends."""

    x: Tensor
    y: Tensor
    width: Tensor
    height: Tensor
    first: Tensor
    last: Tensor
    slope: Tensor
    curve: Tensor
    """c of `rational_quadratic`."""


def rational_quadratic(
    x: Tensor,
    widths: Tensor,
    heights: Tensor,
    derivatives: Tensor,
    *,
    left: float = 0.0,
    bottom: float = 0.0,
) -> tuple[Tensor, Tensor]:
    r"""Evaluate a monotone rational-quadratic spline that continues linearly beyond its ends.

    In a bin of slope $s$ with end derivatives $d_0, d_1$, at the relative position $t$, the
    relative height is $t + t(1-t)(d_0 - s - ct) / (s + ct(1-t))$ with $c = d_0 + d_1 - 2s$. Adding
    a correction to the straight line makes a spline with equal widths and heights and derivatives 1
    the identity to the last bit.

    Args:
        x: inputs of any shape.
        widths: positive bin widths, shape of `x` (or one that broadcasts) plus an axis `bins`.
        heights: positive bin heights, shaped like `widths`.
        derivatives: positive derivatives at the knots, last axis `bins + 1`.
        left: position of the first knot.
        bottom: value at the first knot.

    Returns:
        The values, and the logarithms of the derivatives, both shaped like `x`.

    Example:
        >>> one = torch.ones(4)
        >>> x = torch.tensor([-1.0, 0.5, 9.0])
        >>> rational_quadratic(x, one, one, torch.ones(5))
        (tensor([-1.0000,  0.5000,  9.0000]), tensor([0., 0., 0.]))
    """
    x_knots, y_knots = _knots(widths, left), _knots(heights, bottom)
    inside = x.clamp(x_knots[..., 0], x_knots[..., -1])
    here = _bin(_index(inside, x_knots), x_knots, y_knots, derivatives)
    position = (inside - here.x) / here.width
    line = (here.y - here.x) + (here.height - here.width) * position
    excess = x - inside
    tail = torch.where(excess < 0, here.first, here.last)
    # How far the relative height lies above the relative position.
    hump = position * (1 - position)
    bend = hump * (here.first - here.slope - here.curve * position)
    bend = bend / (here.slope + here.curve * hump)
    y = x + (line + here.height * bend) + (tail - 1) * excess
    return y, _log_derivative(position, here)


def inverse_rational_quadratic(
    y: Tensor,
    widths: Tensor,
    heights: Tensor,
    derivatives: Tensor,
    *,
    left: float = 0.0,
    bottom: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Invert `rational_quadratic`, which has the same arguments.

    Returns:
        The inputs of the spline, and the logarithms of the derivatives of the inverse.

    Example:
        >>> widths, heights = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
        >>> derivatives = torch.tensor([1.0, 0.5, 3.0])
        >>> y, _ = rational_quadratic(torch.tensor([0.25]), widths, heights, derivatives)
        >>> inverse_rational_quadratic(y, widths, heights, derivatives)[0]
        tensor([0.2500])
    """
    x_knots, y_knots = _knots(widths, left), _knots(heights, bottom)
    inside = y.clamp(y_knots[..., 0], y_knots[..., -1])
    here = _bin(_index(inside, y_knots), x_knots, y_knots, derivatives)
    height = (inside - here.y) / here.height
    position = _position(height, here)
    line = (here.x - here.y) + (here.width - here.height) * height
    excess = y - inside
    tail = torch.where(excess < 0, here.first, here.last)
    x = y + (line + here.width * (position - height)) + (1 / tail - 1) * excess
    return x, -_log_derivative(position, here)


def bounded_bins(raw: Tensor, total: float) -> Tensor:
    """Turn unbounded numbers into positive bin sizes that add up to `total`, none too small.

    Args:
        raw: any numbers, last axis `bins`; equal ones give equal bins.
        total: length that the bins share.

    Example:
        >>> bounded_bins(torch.zeros(4), total=2.0)
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    equal = 1 / raw.shape[-1]
    return total * (LEAST_SHARE * equal + (1 - LEAST_SHARE) * raw.softmax(-1))


def bounded_derivatives(raw: Tensor, widths: Tensor, heights: Tensor) -> Tensor:
    """Turn unbounded numbers into positive derivatives at the knots, near the slopes of the bins.

    A derivative is the harmonic mean of the two slopes times a factor between 1/4 and 4: a steep
    bin beside a flat one would otherwise press the flat one's slope towards zero.

    Args:
        raw: any numbers, last axis `bins + 1`; zeros give the harmonic means.
        widths: of the bins, last axis `bins`.
        heights: of the bins, last axis `bins`.

    Example:
        >>> bounded_derivatives(torch.zeros(3), torch.ones(2), torch.tensor([1.0, 3.0]))
        tensor([1.0000, 1.5000, 3.0000])
    """
    slopes = heights / widths
    slopes = torch.cat([slopes[..., :1], slopes, slopes[..., -1:]], dim=-1)
    before, after = slopes[..., :-1], slopes[..., 1:]
    factor = LOG_DERIVATIVE_BOUND * torch.tanh(raw / LOG_DERIVATIVE_BOUND)
    return 2 * before * after / (before + after) * factor.exp()


def _knots(sizes: Tensor, start: float) -> Tensor:
    return functional.pad(sizes.cumsum(-1), (1, 0)) + start


def _index(x: Tensor, knots: Tensor) -> Tensor:
    """Count the inner knots at or below `x`."""
    if _is_shared(knots, x):
        inner = knots[..., 0, 1:-1].detach().contiguous()
        return torch.searchsorted(inner, x.detach().contiguous(), right=True)
    return (x.unsqueeze(-1) >= knots[..., 1:-1]).sum(-1)


def _is_shared(table: Tensor, x: Tensor) -> bool:
    """Whether `table`, with its one further axis, is the same all along the last axis of `x`."""
    return table.ndim > 1 and table.shape[-2] == 1 and table.shape[:-2] == x.shape[:-1]


def _bin(index: Tensor, x_knots: Tensor, y_knots: Tensor, derivatives: Tensor) -> _Bin:
    # Sizes come from the knots, so that the end of a bin is at position 1 to the last bit.
    width, height = x_knots.diff(dim=-1), y_knots.diff(dim=-1)
    first, last, slope = derivatives[..., :-1], derivatives[..., 1:], height / width
    corner = (x_knots[..., :-1], y_knots[..., :-1])
    curve = first + last - 2 * slope
    table = torch.broadcast_tensors(*corner, width, height, first, last, slope, curve)
    if _is_shared(table[0], index):  # one table for many inputs
        chosen = index.unsqueeze(-2).expand(*index.shape[:-1], len(table), -1)
        return _Bin(*torch.cat(table, dim=-2).gather(-1, chosen).unbind(-2))
    stacked = torch.stack(table, dim=-1)
    stacked = stacked.expand(*index.shape, *stacked.shape[-2:])
    chosen = index[..., None, None].expand(*index.shape, 1, len(table))
    return _Bin(*stacked.gather(-2, chosen).squeeze(-2).unbind(-1))


def _position(height: Tensor, here: _Bin) -> Tensor:
    """Solve the quadratic equation of a bin for the relative position, without cancellation."""
    bent = height * here.curve
    a, b = here.slope - here.first + bent, here.first - bent
    discriminant = b * b + 4 * a * here.slope * height
    # The square root's derivative at zero would be infinite.
    root = discriminant.clamp_min(torch.finfo(height.dtype).tiny).sqrt()
    return 2 * here.slope * height / (b + root)


def _log_derivative(position: Tensor, here: _Bin) -> Tensor:
    # Nested interpolation keeps all digits where the derivatives differ by orders of magnitude.
    weighed = torch.lerp(
        torch.lerp(here.first, here.slope, position),
        torch.lerp(here.slope, here.last, position),
        position,
    )
    ratio = here.slope / (here.slope + here.curve * position * (1 - position))
    return 2 * ratio.log() + weighed.log()


class MonotoneSpline(Flow):
    r"""A monotone rational-quadratic spline per edge and coordinate, with learned linear tails.

    $y = \pm g(x)$ where $g$ maps $[-\text{tail}, \text{tail}]$ onto itself and continues beyond
    with the learned slopes of its ends. It starts as the identity, or as $x \mapsto -x$.

    Args:
        edges, width: of the stack, as in `Flow`.
        bins: number of pieces, at least 2.
        tail: where the linear tails begin.
        decreasing: whether the function falls; one flag, or a boolean tensor that broadcasts to
            `(edges, width)`.

    Example:
        >>> y, log_det = MonotoneSpline(1, 1, decreasing=True)(torch.tensor([[[0.5], [7.0]]]))
        >>> y.flatten().tolist(), log_det.flatten().tolist()
        ([-0.5, -7.0], [0.0, 0.0])
    """

    sign: Tensor

    def __init__(
        self,
        edges: int,
        width: int,
        *,
        bins: int = 8,
        tail: float = 4.0,
        decreasing: bool | Tensor = False,
    ) -> None:
        super().__init__(edges, width)
        check_count("MonotoneSpline", "bins", bins, 2)
        check_positive("MonotoneSpline", "tail", tail)
        self.bins = bins
        self.tail = tail
        self.raw_widths = nn.Parameter(torch.zeros(edges, width, bins))
        self.raw_heights = nn.Parameter(torch.zeros(edges, width, bins))
        self.raw_derivatives = nn.Parameter(torch.zeros(edges, width, bins + 1))
        self.register_buffer("sign", _signs(decreasing, edges, width))

    def linear_part(self) -> Tensor:
        """The signs on the diagonal: a spline counts as the identity, or as its negative."""
        return self.sign.to(self.raw_widths.dtype).diag_embed()

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, log_derivative = rational_quadratic(
            x.mT, *self._spline(x.dtype), left=-self.tail, bottom=-self.tail
        )
        return y.mT * self._sign(x.dtype), log_derivative.sum(-2)

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        signed = (y * self._sign(y.dtype)).mT
        x, log_derivative = inverse_rational_quadratic(
            signed, *self._spline(y.dtype), left=-self.tail, bottom=-self.tail
        )
        return x.mT, log_derivative.sum(-2)

    def _sign(self, dtype: torch.dtype) -> Tensor:
        return self.sign.to(dtype).unsqueeze(1)

    def _spline(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Widths, heights and derivatives, `(edges, width, 1, ...)`: the same for a batch."""
        widths = bounded_bins(self.raw_widths.to(dtype), 2 * self.tail)
        heights = bounded_bins(self.raw_heights.to(dtype), 2 * self.tail)
        derivatives = bounded_derivatives(self.raw_derivatives.to(dtype), widths, heights)
        return widths.unsqueeze(2), heights.unsqueeze(2), derivatives.unsqueeze(2)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bins={self.bins}, tail={self.tail}"


def _signs(decreasing: bool | Tensor, edges: int, width: int) -> Tensor:
    flags = torch.as_tensor(decreasing)
    if flags.dtype != torch.bool:
        raise TypeError(
            f"MonotoneSpline expects True, False or a boolean tensor for decreasing, "
            f"but got {flags.dtype}"
        )
    try:
        flags = flags.expand(edges, width)
    except RuntimeError as error:
        raise ValueError(
            f"MonotoneSpline expects decreasing to broadcast to (edges={edges}, width={width}), "
            f"but got the shape {tuple(flags.shape)}"
        ) from error
    return 1.0 - 2.0 * flags.to(torch.get_default_dtype())
