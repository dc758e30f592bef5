"""Descriptions of flows: small, frozen, JSON-friendly, and able to build a stack of any size."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import torch

from vfg.flows.base import Flow
from vfg.flows.checks import (
    check_choice,
    check_count,
    check_flag,
    check_positive,
    private_generator,
)
from vfg.flows.composition import Composition
from vfg.flows.conditioners import Network, check_network
from vfg.flows.couplings import AdditiveCoupling, AffineCoupling, SplineCoupling
from vfg.flows.linear import ActivationNormalisation, ElementwiseAffine, Householder, LULinear
from vfg.flows.splines import MonotoneSpline
from vfg.utils.specs import Spec


@dataclass(frozen=True)
class FlowSpec(Spec):
    """How to build a flow, whatever the number of edges and their width.

    How to write a new one: make a frozen dataclass that sets `name` and whose fields are plain JSON
    values, check them in `__post_init__`, implement `build`, and add one line to the registry of
    `tests/flows/test_contract.py`.
    """

    carries_precision: ClassVar[bool] = True
    """Whether messages through the flow can have a precision."""

    def build(self, edges: int, width: int, *, generator: torch.Generator | None = None) -> Flow:
        """Build a stack of flows, which start as the identity (or its negative).

        Args:
            edges: number of flows in the stack.
            width: dimension that each flow acts on.
            generator: source of the random start; None means a fresh one with seed 0.
        """
        raise NotImplementedError(f"{type(self).__name__} has to implement build")

    def space(self, child: int, parent: int) -> int:
        """The width of the space in which the flow of an edge between such nodes acts.

        It is the parent's, into which a narrower child is lifted. A flow with a wider space leaves
        the coordinates that the parent does not read to learned constants on the way back.
        """
        return parent


@dataclass(frozen=True)
class Coupling(FlowSpec):
    """Coupling layers, then a scale and a shift per coordinate: the paper's flow.

    At width 1 a coupling has nothing to condition on and would be affine. A monotone spline then
    replaces the layers.

    Args:
        blocks: number of coupling layers (default 4). More represent stronger nonlinearity.
        hidden: width of the conditioners' hidden layers (default 64). Lower it for small tables.
        kind: `"affine"` (default), `"additive"` or `"spline"`, which suits relations with sharp
            bends and takes longer.
        layers: number of fully connected layers of the conditioners (default 3).
        activation: `"relu"` (default), `"silu"`, `"gelu"` or `"tanh"`.
        dropout: rate at which hidden units are dropped in training (default 0). Try 0.2 if the
            held-out loss rises early.
        gain, shared, channels: of the conditioners; see `Network`.
        bins: number of pieces of the splines, at least 2 (default 8), for `kind="spline"` and at
            width 1.
        normalise: whether scale and shift are set from the first batch by `initialise` (default
            False).
        image: rows and columns, if the nodes are blocks of an image, read row by row: convolutions
            then add to the output of the fully connected conditioners. None (default) for none.
        residual: number of gated residual layers of convolutions at each of two scales, in place of
            the fully connected conditioners; the image has even sides. 0 (default) for none. See
            `Network`.

    Raises:
        TypeError, ValueError: if an argument has the wrong type or is out of its range.

    Example:
        >>> flow = Coupling(blocks=4, hidden=64).build(edges=3, width=8)
        >>> flow(torch.zeros(3, 10, 8))[0].shape
        torch.Size([3, 10, 8])
    """

    name: ClassVar[str] = "coupling"
    blocks: int = 4
    hidden: int = 64
    kind: str = "affine"
    layers: int = 3
    activation: str = "relu"
    dropout: float = 0.0
    bins: int = 8
    normalise: bool = False
    gain: float = 1.0
    shared: int = 0
    image: tuple[int, int] | None = None
    channels: int = 16
    residual: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.image, list):  # as JSON stores it
            object.__setattr__(self, "image", tuple(self.image))
        check_network("Coupling", vars(self))
        check_count("Coupling", "blocks", self.blocks, 1)
        check_count("Coupling", "bins", self.bins, 2)
        check_choice("Coupling", "kind", self.kind, ("affine", "additive", "spline"))
        check_flag("Coupling", "normalise", self.normalise)

    def build(self, edges: int, width: int, *, generator: torch.Generator | None = None) -> Flow:
        last = ActivationNormalisation if self.normalise else ElementwiseAffine
        layers = self.layers_of(edges, width, private_generator(generator))
        return Composition([*layers, last(edges, width)])

    def layers_of(self, edges: int, width: int, generator: torch.Generator) -> list[Flow]:
        """The coupling layers alone, or the spline in their place; identities at the start."""
        if width == 1:
            return [MonotoneSpline(edges, width, bins=self.bins)]
        network = Network(**{field.name: getattr(self, field.name) for field in fields(Network)})
        layer = {"affine": AffineCoupling, "additive": AdditiveCoupling, "spline": SplineCoupling}
        options: dict[str, Any] = {"bins": self.bins} if self.kind == "spline" else {}
        options |= {"network": network, "generator": generator}
        make = partial(layer[self.kind], edges, width, **options)
        return [make(block=block) for block in range(self.blocks)]


@dataclass(frozen=True)
class Spline(FlowSpec):
    """A monotone spline per coordinate, then a scale and a shift; coordinates are independent.

    Args:
        bins: number of pieces, at least 2 (default 8). More follow sharper bends.
        tail: distance from 0 at which the linear tails begin (default 4), in standard deviations
            of scaled columns.
        decreasing: whether the functions fall (default False).

    Raises:
        TypeError, ValueError: if an argument has the wrong type or is out of its range.

    Example:
        >>> flow = Spline(bins=4, decreasing=True).build(edges=1, width=1)
        >>> flow(torch.tensor([[[1.5]]]))[0].item()
        -1.5
    """

    name: ClassVar[str] = "spline"
    bins: int = 8
    tail: float = 4.0
    decreasing: bool = False

    def __post_init__(self) -> None:
        check_count("Spline", "bins", self.bins, 2)
        check_positive("Spline", "tail", self.tail)
        check_flag("Spline", "decreasing", self.decreasing)

    def build(self, edges: int, width: int, *, generator: torch.Generator | None = None) -> Flow:
        spline = MonotoneSpline(
            edges, width, bins=self.bins, tail=self.tail, decreasing=self.decreasing
        )
        return Composition([spline, ElementwiseAffine(edges, width)])


@dataclass(frozen=True)
class Linear(FlowSpec):
    """A linear map with a shift.

    Args:
        kind: `"lu"` (default) for any matrix, `"householder"` for a rotation with a scale per
            coordinate after it, `"affine"` for a scale per coordinate alone.

    Raises:
        ValueError: if the kind is unknown.

    Example:
        >>> Linear().build(edges=2, width=3).linear_part().shape
        torch.Size([2, 3, 3])
    """

    name: ClassVar[str] = "linear"
    kind: str = "lu"

    def __post_init__(self) -> None:
        check_choice("Linear", "kind", self.kind, ("lu", "householder", "affine"))

    def build(self, edges: int, width: int, *, generator: torch.Generator | None = None) -> Flow:
        if self.kind == "lu":
            return LULinear(edges, width)
        scale = ElementwiseAffine(edges, width)
        # The line has no rotation but the identity.
        if self.kind == "affine" or width == 1:
            return scale
        return Composition([Householder(edges, width, generator=generator), scale])
