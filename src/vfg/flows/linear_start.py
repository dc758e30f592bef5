"""Flows that start as a given linear map and can become nonlinear."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from vfg.flows.base import Flow
from vfg.flows.checks import check_count, private_generator
from vfg.flows.composition import Composition
from vfg.flows.linear import ElementwiseAffine, Householder, LULinear
from vfg.flows.specs import Coupling, FlowSpec
from vfg.flows.splines import MonotoneSpline

SMALLEST = 1e-8
"""Least length of a loading, so that the edge of a column without loadings is invertible."""


class LinearStartFlow(Composition):
    r"""Couplings, then a linear map of the leading coordinates, then a rotation.

    Started from loadings $W$ (columns x width) and offsets $b$ with $W = L Q^\top$, $L$ lower
    triangular and $Q$ orthonormal, it encodes $f([x, 0]) = H [L^{-1}(x - b), 0]$ and decodes
    $W h + b$, where the first columns of the rotation $H$ are $Q$.

    Args:
        nonlinear: flows on the data's side, identities at the start.
        edges, width: of the stack, as in `Flow`.
        columns: how many leading coordinates are data.
    """

    def __init__(self, nonlinear: list[Flow], edges: int, width: int, columns: int) -> None:
        scale = ElementwiseAffine(edges, width) if columns == 1 else LULinear(edges, width)
        frame = Householder(edges, width, reflections=2 * columns)
        super().__init__([*nonlinear, scale, frame])
        self.columns = columns

    @property
    def frame(self) -> Householder:
        """The rotation."""
        last = self.flows[-1]
        assert isinstance(last, Householder)
        return last

    @torch.no_grad()
    def start_at(self, loadings: Tensor, offsets: Tensor) -> None:
        """Become the linear map of `loadings (edges, columns, width)` and `offsets`."""
        triangle, directions = triangular_frame(loadings)
        self.frame.vectors.copy_(reflections_to(directions))
        scale = self.flows[-2]
        if isinstance(scale, ElementwiseAffine):
            length = triangle[:, 0, 0]
            scale.log_scale.zero_()
            scale.shift.zero_()
            scale.log_scale[:, 0] = -length.log()
            scale.shift[:, 0] = -offsets[:, 0] / length
        elif isinstance(scale, LULinear):
            inverse = torch.linalg.inv(triangle)
            matrix = torch.eye(self.width, dtype=loadings.dtype).repeat(self.edges, 1, 1)
            matrix[:, : self.columns, : self.columns] = inverse
            shift = torch.zeros(self.edges, self.width, dtype=loadings.dtype)
            shift[:, : self.columns] = -(inverse @ offsets[..., None])[..., 0]
            scale.set_matrix(matrix, shift)


def triangular_frame(loadings: Tensor) -> tuple[Tensor, Tensor]:
    r"""$W = L Q^\top$ with a positive diagonal of L, kept above 1e-8.

    W is `(edges, columns, width)` with no more columns than width, L `(edges, columns, columns)`,
    and the directions Q are `(edges, width, columns)`.

    Example:
        >>> triangle, directions = triangular_frame(torch.tensor([[[3.0, 4.0]]]))
        >>> triangle.tolist(), [round(x, 4) for x in directions.flatten().tolist()]
        ([[[5.0]]], [0.6, 0.8])
    """
    directions, upper = torch.linalg.qr(loadings.mT)
    diagonal = upper.diagonal(dim1=-2, dim2=-1)
    signs = torch.where(diagonal < 0, -1.0, 1.0).to(loadings.dtype)
    triangle = (signs[..., None] * upper).mT
    short = (SMALLEST - diagonal.abs()).clamp(min=0.0)
    return triangle + torch.diag_embed(short), directions * signs[:, None]


def reflections_to(directions: Tensor) -> Tensor:
    """Vectors of reflections whose product takes the k-th axis to the k-th direction.

    Two per direction: the first takes the axis to the direction or its negative, whichever is
    further away, so that it is never a difference of equal vectors; the second flips the sign.
    From orthonormal columns `(edges, width, columns)` to `(edges, 2 * columns, width)`.
    """
    rest = directions.clone()
    vectors = []
    for k in range(directions.shape[-1]):
        axis = torch.zeros_like(rest[..., 0])
        axis[:, k] = 1.0
        direction = rest[..., k]
        sign = torch.where(direction[:, k : k + 1] > 0, 1.0, -1.0).to(rest.dtype)
        mirror = axis + sign * direction
        vectors += [mirror, axis * (sign > 0)]
        length = mirror.square().sum(-1)[:, None, None]
        product = (mirror[:, None] @ rest) / length
        rest = rest - 2.0 * mirror[..., None] * product
        # The second reflection acts on this axis alone, and so does its inverse.
        rest[:, k] = torch.where(sign > 0, -rest[:, k], rest[:, k])
    return torch.stack(vectors, dim=1)


@dataclass(frozen=True)
class LinearStart(FlowSpec):
    """Couplings around a linear map, the default flow of a `vfg.VFG`.

    `vfg.fit` starts it at a factor analysis of the table, `VFG.from_gaussian` at a linear model.

    Args:
        coupling: the couplings before the linear map; by default those of `vfg.Coupling()`.
        columns: number of leading coordinates that are data; 0 for an edge between latent nodes,
            which is a coupling flow and a matrix. A `vfg.VFG` replaces None (default) by the width
            of the leaf.
        bins: number of pieces of a monotone spline of every data coordinate before the linear map;
            0 (default) for none. Splines help with skewed columns.

    Example:
        >>> flow = LinearStart(Coupling(blocks=2, hidden=8), columns=1).build(edges=3, width=4)
        >>> flow.start_at(torch.ones(3, 1, 4), torch.zeros(3, 1))
        >>> flow.inverse(torch.ones(3, 1, 4))[0][..., 0].flatten().tolist()
        [4.0, 4.0, 4.0]
    """

    name: ClassVar[str] = "linear_start"
    coupling: Coupling = field(default_factory=Coupling)
    columns: int | None = None
    bins: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.coupling, dict):  # as JSON stores it
            object.__setattr__(self, "coupling", Coupling(**self.coupling))
        check_count("LinearStart", "columns", self.columns or 0, 0)
        check_count("LinearStart", "bins", self.bins, 0)

    def build(self, edges: int, width: int, *, generator: torch.Generator | None = None) -> Flow:
        """Build the couplings and the linear map, which starts as the identity."""
        if self.columns is None:
            raise ValueError("LinearStart needs columns, the number of coordinates that are data")
        generator = private_generator(generator)
        nonlinear = self.coupling.layers_of(edges, width, generator)
        if self.bins:
            nonlinear += [
                MonotoneSpline(edges, width, bins=self.bins),
                ElementwiseAffine(edges, width),
            ]
        if self.columns:
            return LinearStartFlow(nonlinear, edges, width, self.columns)
        return Composition([*nonlinear, LULinear(edges, width)])
