"""Scales and shifts, coordinate by coordinate."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vfg.flows.base import Flow


class ElementwiseAffine(Flow):
    r"""A positive scale and a shift per edge and coordinate.

    $y = x \, e^{\text{log\_scale}} + \text{shift}$, the identity at the start.

    Args:
        edges: number of flows in the stack.
        width: dimension that each flow acts on.

    Example:
        >>> flow = ElementwiseAffine(1, 2)
        >>> _ = torch.nn.init.constant_(flow.shift, 3.0)
        >>> flow(torch.zeros(1, 1, 2))
        (tensor([[[3., 3.]]], grad_fn=<AddBackward0>), tensor([[0.]], grad_fn=<ExpandBackward0>))
    """

    def __init__(self, edges: int, width: int) -> None:
        super().__init__(edges, width)
        self.log_scale = nn.Parameter(torch.zeros(edges, width))
        self.shift = nn.Parameter(torch.zeros(edges, width))

    def linear_part(self) -> Tensor:
        """The scales on the diagonal."""
        return self.log_scale.exp().diag_embed()

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_scale, shift = self._parameters_like(x)
        return x * log_scale.exp() + shift, log_scale.sum(-1).expand(-1, x.shape[1])

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        log_scale, shift = self._parameters_like(y)
        return (y - shift) * (-log_scale).exp(), -log_scale.sum(-1).expand(-1, y.shape[1])

    def _parameters_like(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.log_scale.to(x.dtype).unsqueeze(1), self.shift.to(x.dtype).unsqueeze(1)


class ActivationNormalisation(ElementwiseAffine):
    """An elementwise affine flow whose first batch comes out with mean 0 and variance 1.

    Until `initialise` is called it is the identity; afterwards scale and shift are learned like any
    other parameters. A coordinate that is constant over the batch is centred and keeps its scale.

    Args:
        edges: number of flows in the stack.
        width: dimension that each flow acts on.

    Example:
        >>> flow = ActivationNormalisation(1, 1)
        >>> flow.initialise(torch.tensor([[[1.0], [3.0], [5.0], [7.0]]])).var(correction=0).round()
        tensor(1.)
    """

    def _initialise(self, x: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(x, dim=1, correction=0)
        # Rounding alone gives a constant coordinate a deviation of a few units in the last place.
        noise = 16 * torch.finfo(x.dtype).eps * mean.abs() + torch.finfo(x.dtype).tiny
        log_scale = torch.where(deviation > noise, -deviation.clamp_min(noise).log(), 0.0)
        self.log_scale.copy_(log_scale)
        self.shift.copy_(-mean * log_scale.exp())
        return self._forward(x)[0]
