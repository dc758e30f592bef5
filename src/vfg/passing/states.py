"""States: what encoding returns, by the names of the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from vfg.passing.aggregation import State
from vfg.passing.schedule import Schedule


class States(Mapping[str, Tensor]):
    """Forward states by node, each `(rows, width)`.

    Coordinates about which no evidence says anything are 0 and marked in `observed`.

    Args:
        values: states by node.
        observed: which coordinates have evidence, by node.
        precision: Λ of nodes that aggregate by `precision`, `(rows, width)`, or by `gaussian`,
            `(rows, width, width)`; at roots it includes the prior.
        top: the names of the roots.
    """

    def __init__(
        self,
        values: dict[str, Tensor],
        observed: dict[str, Tensor],
        precision: dict[str, Tensor],
        top: tuple[str, ...],
    ) -> None:
        self.values_by_node = values
        self.observed = observed
        self.precision = precision
        self.top = top

    @classmethod
    def of(cls, schedule: Schedule, states: list[State], like: Tensor) -> States:
        """The states of a pass, in the dtype and on the device of `like`."""
        values, observed, precision = {}, {}, {}
        for node in schedule.graph.nodes:
            block, row = schedule.place[node.name]
            state = states[block]
            values[node.name] = state.value[row].to(like)
            observed[node.name] = state.observed[row].to(like.device)
            if state.precision is not None:
                precision[node.name] = state.precision[row].to(like)
        return cls(values, observed, precision, schedule.graph.roots)

    def roots(self) -> dict[str, Tensor]:
        """The roots' states, NaN where there is no evidence."""
        return {root: torch.where(self.observed[root], self[root], torch.nan) for root in self.top}

    def __getitem__(self, node: str) -> Tensor:
        if node not in self.values_by_node:
            raise KeyError(f"there is no node {node!r}; there are {', '.join(self)}")
        return self.values_by_node[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_node)

    def __len__(self) -> int:
        return len(self.values_by_node)

    def __repr__(self) -> str:
        inside = ", ".join(f"{node}: {tuple(value.shape)}" for node, value in self.items())
        return f"States({inside})"
