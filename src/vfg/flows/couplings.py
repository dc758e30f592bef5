"""Coupling layers: some coordinates are kept, and the others move as a function of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vfg.flows.base import Flow
from vfg.flows.checks import check_count, check_positive
from vfg.flows.conditioners import (
    ACTIVATIONS,
    PAPER,
    Conditioner,
    LocalConditioner,
    Network,
)
from vfg.flows.fast.primitives import join, split
from vfg.flows.image_networks import ImageNetwork
from vfg.flows.splines import (
    bounded_bins,
    bounded_derivatives,
    inverse_rational_quadratic,
    rational_quadratic,
)


class CouplingLayer(Flow):
    """The common part of all couplings: split, run the conditioner, move, put back in place.

    The split is fixed by the block's index and the width, the same for every edge. Blocks `2b`
    and `2b + 1` share one permutation with the roles of its halves swapped, so the pair moves
    every coordinate. At width 1 nothing is kept and the conditioner is a learned constant.

    A subclass implements `_couple` and `_uncouple`. Both get the moved coordinates
    `(edges, batch, moved)` and the conditioner's numbers `(edges, batch, moved, numbers)` in the
    dtype of the data, and return the result with the logarithm of its derivative, elementwise.
    Zero numbers have to give the identity.

    Args:
        edges, width: of the stack, as in `Flow`.
        block: index of the layer among the layers of its flow; it fixes the split.
        network: architecture of the conditioner.
        context: how many numbers beside the kept coordinates the conditioner reads; a layer with
            some is called by `transform_given` alone.
        generator: source of the random start; None means a fresh one with seed 0.
    """

    numbers: int
    """How many numbers the conditioner returns for each moved coordinate."""

    kept: Tensor
    moved: Tensor
    places: Tensor
    kept_one: Tensor
    moved_one: Tensor
    places_one: Tensor

    def __init__(
        self,
        edges: int,
        width: int,
        *,
        block: int = 0,
        network: Network = PAPER,
        context: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(edges, width)
        check_count(type(self).__name__, "block", block, 0)
        self.block = block
        image = network.image
        kept, moved = _split(block, width, network)
        places = sorted(range(width), key=[*kept, *moved].__getitem__)
        # The indices follow from block and width, so saved states need not carry them.
        for name, chosen in (("kept", kept), ("moved", moved), ("places", places)):
            indices = torch.tensor(chosen, dtype=torch.long)
            self.register_buffer(name, indices, persistent=False)
            # The same with one more at the end, for states that carry a constant 1 there.
            extended = torch.tensor([*chosen, width])
            self.register_buffer(f"{name}_one", extended, persistent=False)
        self.conditioner: Any  # one of two kinds of networks
        self.local = None
        if image and network.residual:
            self.conditioner = ImageNetwork(
                edges,
                (image[0] // 2, image[1] // 2),
                2,
                2 * self.numbers,
                channels=network.channels,
                residual=network.residual,
                dropout=network.dropout,
                generator=generator,
            )
            return
        inputs, outputs = len(kept) + context, len(moved) * self.numbers
        self.conditioner = Conditioner(edges, inputs, outputs, network=network, generator=generator)
        if image:
            self.local = LocalConditioner(
                edges,
                image,
                kept,
                moved,
                numbers=self.numbers,
                channels=network.channels,
                activation=ACTIVATIONS[network.activation],
                generator=generator,
            )

    @abstractmethod
    def _couple(self, x: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]: ...

    @abstractmethod
    def _uncouple(self, y: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]: ...

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._transform(x, inverse=False)

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self._transform(y, inverse=True)

    def _transform(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        kept, moved = split(x, self.kept, self.moved, self.places)
        moved, log_derivative = self.move(kept, moved, inverse=inverse)
        return join(kept, moved, self.kept, self.moved, self.places), log_derivative.sum(-1)

    def move(self, kept: Tensor, moved: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        """The moved coordinates after the layer, and the logarithms of their derivatives."""
        change = self._uncouple if inverse else self._couple
        return change(moved, self._numbers(kept))

    def transform_given(
        self, x: Tensor, context: Tensor, *, inverse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Transform `(edges, batch, width)` given a context `(edges, batch, numbers)`.

        Returns the result and the logarithms of the derivatives by coordinate.
        """
        kept, moved = split(x, self.kept, self.moved, self.places)
        change = self._uncouple if inverse else self._couple
        moved, slopes = change(moved, self._numbers(kept, context))
        parts = (kept, moved), (torch.zeros_like(kept), slopes)
        places = self.kept, self.moved, self.places
        return join(*parts[0], *places), join(*parts[1], *places)

    def _numbers(self, kept: Tensor, context: Tensor | None = None) -> Tensor:
        inputs = kept if context is None else torch.cat([kept, context], dim=-1)
        # Under autocast the network may run in half precision; the data never do.
        numbers: Tensor = self.conditioner(inputs).to(kept.dtype)
        if self.local is not None:
            numbers = numbers + self.local(kept).to(kept.dtype)
        return numbers.reshape(*kept.shape[:-1], len(self.moved), self.numbers)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, block={self.block}"


class AffineCoupling(CouplingLayer):
    r"""A coupling that scales and shifts: $y = x e^{s} + t$ on the moved coordinates.

    The logarithm of the scale is bounded, $s = b \tanh(r / b)$ for the conditioner's number $r$.

    Args:
        edges, width: of the stack, as in `Flow`.
        bound: bound $b$ of the logarithm of the scale.
        options: `block`, `network` and `generator` of `CouplingLayer`.

    Example:
        >>> x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
        >>> torch.equal(AffineCoupling(3, 4)(x)[0], x)
        True
    """

    numbers = 2

    def __init__(self, edges: int, width: int, *, bound: float = 2.0, **options: Any) -> None:
        check_positive("AffineCoupling", "bound", bound)
        super().__init__(edges, width, **options)
        self.bound = bound

    def _couple(self, x: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        log_scale, shift = self._scale_and_shift(numbers)
        return torch.addcmul(shift, x, log_scale.exp()), log_scale

    def _uncouple(self, y: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        log_scale, shift = self._scale_and_shift(numbers)
        return (y - shift) * (-log_scale).exp(), -log_scale

    def _scale_and_shift(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        raw, shift = numbers.unbind(-1)
        return self.bound * torch.tanh(raw / self.bound), shift


class AdditiveCoupling(CouplingLayer):
    """A coupling that shifts the moved coordinates; its log-determinant is exactly zero.

    Example:
        >>> AdditiveCoupling(1, 2)(torch.ones(1, 3, 2))[1]
        tensor([[0., 0., 0.]])
    """

    numbers = 1

    def _couple(self, x: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        return x + numbers.squeeze(-1), torch.zeros_like(x)

    def _uncouple(self, y: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        return y - numbers.squeeze(-1), torch.zeros_like(y)


class SplineCoupling(CouplingLayer):
    """A coupling that transforms the moved coordinates by monotone rational-quadratic splines.

    Args:
        edges, width: of the stack, as in `Flow`.
        bins: number of pieces of each spline, at least 2.
        tail: outside `[-tail, tail]` the splines are the identity.
        options: `block`, `network` and `generator` of `CouplingLayer`.

    Example:
        >>> x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
        >>> torch.equal(SplineCoupling(3, 4, bins=4)(x)[0], x)
        True
    """

    def __init__(
        self, edges: int, width: int, *, bins: int = 8, tail: float = 4.0, **options: Any
    ) -> None:
        check_count("SplineCoupling", "bins", bins, 2)
        check_positive("SplineCoupling", "tail", tail)
        self.bins, self.tail, self.numbers = bins, tail, 3 * bins - 1
        super().__init__(edges, width, **options)

    def _couple(self, x: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        spline = self._spline(numbers)
        return rational_quadratic(x, *spline, left=-self.tail, bottom=-self.tail)

    def _uncouple(self, y: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        spline = self._spline(numbers)
        return inverse_rational_quadratic(y, *spline, left=-self.tail, bottom=-self.tail)

    def _spline(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raw_widths, raw_heights, raw = numbers.split([self.bins, self.bins, self.bins - 1], dim=-1)
        widths = bounded_bins(raw_widths, 2 * self.tail)
        heights = bounded_bins(raw_heights, 2 * self.tail)
        derivatives = bounded_derivatives(functional.pad(raw, (1, 1)), widths, heights)
        return widths, heights, functional.pad(derivatives[..., 1:-1], (1, 1), value=1.0)


def coupling_split(block: int, width: int) -> tuple[list[int], list[int]]:
    """The coordinates that a coupling keeps and those that it moves; at width 1 the only one.

    Args:
        block: index of the layer among the layers of its flow.
        width: dimension of the space.

    Example:
        >>> coupling_split(0, 4), coupling_split(1, 4)
        (([0, 2], [1, 3]), ([1, 3], [0, 2]))
    """
    if width == 1:
        return [], [0]
    order = sorted(range(width), key=lambda coordinate: _scramble(block // 2, coordinate))
    kept, moved = sorted(order[: width // 2]), sorted(order[width // 2 :])
    # Even blocks keep coordinate 0, odd ones move it: no two layers in a row do the same.
    return (kept, moved) if (0 in kept) == (block % 2 == 0) else (moved, kept)


def chequered_split(block: int, width: int, image: tuple[int, int]) -> tuple[list[int], list[int]]:
    """The places of an image that layer `block` keeps and those that it moves: a chequerboard.

    Example:
        >>> chequered_split(0, 6, (2, 3)), chequered_split(1, 6, (2, 3))
        (([0, 2, 4], [1, 3, 5]), ([1, 3, 5], [0, 2, 4]))
    """
    rows, columns = image
    _check_places(width, image)
    fields: tuple[list[int], list[int]] = ([], [])
    for row in range(rows):
        for column in range(columns):
            fields[(row + column + block) % 2].append(row * columns + column)
    return fields


def squeezed_split(block: int, width: int, image: tuple[int, int]) -> tuple[list[int], list[int]]:
    """The places of an image that a coupling keeps and those that it moves: two of every 2 x 2.

    They lie on a diagonal, in a row or in a column, by the block. Both lists go through the squares
    row by row, so that they are images of half the sides with two numbers per place.

    Example:
        >>> squeezed_split(0, 8, (2, 4)), squeezed_split(3, 8, (2, 4))
        (([0, 5, 2, 7], [1, 4, 3, 6]), ([4, 5, 6, 7], [0, 1, 2, 3]))
    """
    rows, columns = image
    _check_places(width, image)
    pairs = ((0, 3), (1, 2)), ((0, 1), (2, 3)), ((0, 2), (1, 3))
    first, second = (
        [
            (row + place // 2) * columns + column + place % 2
            for row in range(0, rows, 2)
            for column in range(0, columns, 2)
            for place in pair
        ]
        for pair in pairs[block // 2 % 3]
    )
    return (first, second) if block % 2 == 0 else (second, first)


def _split(block: int, width: int, network: Network) -> tuple[list[int], list[int]]:
    if network.image is None:
        return coupling_split(block, width)
    choose = squeezed_split if network.residual else chequered_split
    return choose(block, width, network.image)


def _check_places(width: int, image: tuple[int, int]) -> None:
    rows, columns = image
    if rows * columns != width:
        raise ValueError(
            f"an image of {rows} x {columns} has {rows * columns} places, but the flow has width "
            f"{width}; give the rows and columns of the nodes that it joins"
        )


def _scramble(pair: int, coordinate: int) -> tuple[int, int]:
    # Integer arithmetic of our own: a library's shuffle may change, and saved flows with it.
    key = (pair + 1) * 0x9E3779B97F4A7C15 + (coordinate + 1) * 0xD1B54A32D192ED03
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = ((key ^ (key % 2**64 >> shift)) * factor) % 2**64
    return key ^ (key >> 31), coordinate
