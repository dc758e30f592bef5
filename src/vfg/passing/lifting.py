"""Embedding a narrow section into a wider latent space, and back."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Lifting(nn.Module):
    r"""Append learned constants to a narrow state before a flow; drop them on the way back.

    $$\mathrm{lift}(x) = [x, c], \qquad \mathrm{drop}([x, c']) = x$$

    An invertible function cannot map two points to one, so in the space of the section itself it
    cannot represent a relation that is not one-to-one. In the wider space it can, and the way back
    still returns the section: for every flow $f$,
    $\mathrm{drop}(f^{-1}(f(\mathrm{lift}(x)))) = x$.

    Args:
        edges: number of edges in the stack.
        narrow: width of the children.
        wide: width of the space in which the flow acts, at least `narrow`.
        generator: source of the constants' start; without one they start at zero.

    Example:
        >>> lifting = Lifting(edges=1, narrow=2, wide=4)
        >>> lifting.lift(torch.ones(1, 1, 2))
        tensor([[[1., 1., 0., 0.]]], grad_fn=<CatBackward0>)
        >>> lifting.drop(torch.ones(1, 1, 4)).shape
        torch.Size([1, 1, 2])
    """

    def __init__(
        self, edges: int, narrow: int, wide: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if wide < narrow:
            raise ValueError(f"cannot lift a section of width {narrow} into the width {wide}")
        self.narrow = narrow
        self.wide = wide
        start = torch.zeros(edges, 1, wide - narrow)
        if generator is not None:
            start.normal_(0.0, 0.3, generator=generator)
        self.constants = nn.Parameter(start)

    def lift(self, x: Tensor) -> Tensor:
        """`(edges, batch, narrow)` to `(edges, batch, wide)`."""
        return torch.cat([x, self.constants.expand(-1, x.shape[1], -1)], dim=-1)

    def drop(self, y: Tensor) -> Tensor:
        """`(edges, batch, wide)` to `(edges, batch, narrow)`."""
        return y[..., : self.narrow]

    def extra_repr(self) -> str:
        return f"narrow={self.narrow}, wide={self.wide}"


class Coordinates(nn.Module):
    """Where each edge's message lies among the coordinates of its parent.

    Args:
        chosen: for every edge the parent's coordinates that it covers, in the order of the
            message; all edges of a stack cover equally many.
        width: width of the parent.

    Example:
        >>> where = Coordinates(((0, 1), (2, 1)), width=3)
        >>> message = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])
        >>> where.place(message)
        tensor([[[1., 2., 0.]],
        <BLANKLINE>
                [[0., 4., 3.]]])
        >>> torch.equal(where.select(where.place(message)), message)
        True
    """

    position: Tensor
    chosen: Tensor
    covered: Tensor

    def __init__(self, chosen: tuple[tuple[int, ...], ...], width: int) -> None:
        super().__init__()
        self.width = width
        count = len(chosen[0])
        position = torch.full((len(chosen), width), count)
        position.scatter_(1, torch.tensor(chosen), torch.arange(count).expand(len(chosen), -1))
        self.register_buffer("chosen", torch.tensor(chosen), persistent=False)
        self.register_buffer("position", position, persistent=False)
        self.register_buffer("covered", (position < count)[:, None], persistent=False)

    def place(self, message: Tensor) -> Tensor:
        """`(edges, batch, covered)` to `(edges, batch, width)`, zero elsewhere."""
        padded = nn.functional.pad(message, (0, 1))
        index = self.position[:, None].expand(-1, message.shape[1], -1)
        return padded.gather(-1, index)

    def place_matrix(self, matrix: Tensor) -> Tensor:
        """The same for both axes of `(edges, ..., covered, covered)`."""
        padded = nn.functional.pad(matrix, (0, 1, 0, 1))
        shape = (len(self.position), *[1] * (matrix.ndim - 3))
        rows = self.position.view(*shape, self.width, 1)
        rows = rows.expand(*matrix.shape[:-2], self.width, padded.shape[-1])
        columns = self.position.view(*shape, 1, self.width)
        columns = columns.expand(*matrix.shape[:-2], self.width, self.width)
        return padded.gather(-2, rows).gather(-1, columns)

    def select(self, state: Tensor) -> Tensor:
        """`(edges, batch, width)` to `(edges, batch, covered)`."""
        return state.gather(-1, self.chosen[:, None].expand(-1, state.shape[1], -1))
