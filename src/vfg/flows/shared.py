"""Layers of one network that serves all edges of a stack, told apart by an embedding."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vfg.flows.checks import private_generator, uniform
from vfg.flows.fast.precision import product


class SharedLinear(nn.Module):
    r"""One matrix for all edges, and what tells the edges apart as a shift.

    $y_k = x_k W + e_k V + b_k$ with an embedding $e_k$ per edge, so the number of parameters hardly
    grows with the number of edges. `weight` is `(1, inputs, outputs)`, `embedding`
    `(edges, 1, size)`, `mixing` $V$ is `(1, size, outputs)`, and the shifts `bias` are
    `(edges, 1, outputs)`.

    Args:
        edges: number of maps in the stack.
        inputs: width of the input, 0 allowed.
        outputs: width of the output.
        embedding: width of the embedding; with 0 only the shifts differ.
        generator: source of the random start; None means a fresh one with seed 0.

    Example:
        >>> SharedLinear(300, 2, 5, embedding=4)(torch.zeros(300, 7, 2)).shape
        torch.Size([300, 7, 5])
    """

    def __init__(
        self,
        edges: int,
        inputs: int,
        outputs: int,
        *,
        embedding: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        generator = private_generator(generator)
        bound = 1 / math.sqrt(max(inputs, 1))
        self.weight = nn.Parameter(uniform((1, inputs, outputs), bound, generator))
        self.bias = nn.Parameter(torch.zeros(edges, 1, outputs))
        self.embedding = nn.Parameter(uniform((edges, 1, embedding), 1.0, generator))
        spread = 1 / math.sqrt(max(embedding, 1))
        self.mixing = nn.Parameter(uniform((1, embedding, outputs), spread, generator))

    def forward(self, x: Tensor, factor: float = 1.0, precision: str = "float32") -> Tensor:
        """Map `(edges, batch, inputs)`, times a factor, to `(edges, batch, outputs)`."""
        edges, batch, inputs = x.shape
        mapped = product(x.reshape(1, edges * batch, inputs), factor * self.weight, precision)
        shift = self.bias + self.embedding @ self.mixing
        return mapped.view(edges, batch, shift.shape[-1]) + shift.to(mapped.dtype)

    def extra_repr(self) -> str:
        edges, _, outputs = self.bias.shape
        return f"edges={edges}, inputs={self.weight.shape[1]}, outputs={outputs}"
