"""Flows made of flows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from vfg.flows.base import Flow
from vfg.flows.checks import without_autocast
from vfg.flows.fast.chains import apply_flows


class Composition(Flow):
    r"""One flow after the other, $f = f_n \circ \dots \circ f_1$.

    Args:
        flows: the flows in the order in which data pass them, all with the same edges and width.

    Raises:
        ValueError: if there is no flow, or if their edges or widths differ.

    Example:
        >>> from vfg.flows import LULinear, Permutation
        >>> flow = Composition([Permutation(1, 2), LULinear(1, 2)])
        >>> flow(torch.tensor([[[1.0, 2.0]]]))[0].detach()
        tensor([[[2., 1.]]])
    """

    def __init__(self, flows: Iterable[Flow]) -> None:
        members = list(flows)
        if not members:
            raise ValueError("Composition expects at least one flow, but got none")
        super().__init__(members[0].edges, members[0].width)
        for position, flow in enumerate(members):
            if (flow.edges, flow.width) != (self.edges, self.width):
                raise ValueError(
                    f"Composition expects all flows to have edges={self.edges} and "
                    f"width={self.width} like the first, but flow {position} has "
                    f"edges={flow.edges} and width={flow.width}"
                )
        self.flows = nn.ModuleList(members)

    def linear_part(self) -> Tensor:
        """The product of the members' linear parts, in the widest of their dtypes."""
        result, *others = (flow.linear_part() for flow in self._members())
        for part in others:
            dtype = torch.promote_types(result.dtype, part.dtype)
            with without_autocast(result):
                result = part.to(dtype) @ result.to(dtype)
        return result

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return apply_flows(self._members(), x, inverse=False, memory=self.memory)

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return apply_flows(self._members(), y, inverse=True, memory=self.memory)

    def _initialise(self, x: Tensor) -> Tensor:
        for flow in self._members():
            x = flow.initialise(x)
        return x

    def _members(self) -> list[Flow]:
        return [cast(Flow, flow) for flow in self.flows]


class Inverse(Flow):
    """The inverse of a flow, which is shared, not copied.

    `initialise` leaves the wrapped flow unchanged: its output does not determine the distribution
    of its input.

    Example:
        >>> from vfg.flows import Permutation
        >>> flow = Inverse(Permutation(1, 3, order=[2, 0, 1]))
        >>> flow(torch.tensor([[[12.0, 10.0, 11.0]]]))[0]
        tensor([[[10., 11., 12.]]])
    """

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow.edges, flow.width)
        self.flow = flow

    def linear_part(self) -> Tensor:
        """The inverse of the wrapped flow's linear part."""
        inverse: Tensor = torch.linalg.inv(self.flow.linear_part())
        return inverse

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.flow.inverse(x)

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.flow.forward(y)
