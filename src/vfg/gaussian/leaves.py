"""The invertible maps g between table columns and the leaves of the factor model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vfg.flows import Coupling, Flow, FlowSpec, MonotoneSpline, Spline, bounded_bins
from vfg.utils.specs import check_choice


def leaf_spec(leaf: str | FlowSpec) -> FlowSpec | None:
    """What users call a map as its spec; None for the identity.

    Raises:
        ValueError: for a word or a flow that is not among those known.

    Example:
        >>> leaf_spec("affine") is None, leaf_spec("spline") == Spline()
        (True, True)
    """
    if isinstance(leaf, str):
        check_choice("leaf", leaf, ("affine", "spline"))
        return None if leaf == "affine" else Spline()
    if not isinstance(leaf, Coupling | Spline) or getattr(leaf, "decreasing", False):
        raise ValueError(
            f"leaf must be 'affine', 'spline', an increasing vfg.Spline or a vfg.Coupling, but "
            f"got {leaf!r}"
        )
    return leaf


class Leaves(nn.Module):
    """u = g(x), by column or by section, in the units of the scaled table.

    Columns that belong to no leaf here, discrete ones, stay as they are.

    Args:
        positions: the table columns of every leaf that holds real numbers.
        spec: how g is built; None for the identity, where location and scale do the rest.
        generator: source of the random start.

    Example:
        >>> leaves = Leaves({"a": (0,), "b": (1,)}, Spline(), torch.Generator())
        >>> values, log_slopes = leaves(torch.zeros(3, 2), torch.ones(3, 2).bool())
        >>> values.shape, log_slopes.shape
        (torch.Size([3, 2]), torch.Size([3, 2]))
    """

    def __init__(
        self,
        positions: Mapping[str, tuple[int, ...]],
        spec: FlowSpec | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.positions = dict(positions)
        self.is_identity = spec is None or not self.positions
        self.is_elementwise = self.is_identity or isinstance(spec, Spline)
        self.stacks: dict[str, list[tuple[int, ...]]] = {}
        self.flows = nn.ModuleDict()
        if spec is not None and not self.is_identity:
            for columns in self._units():
                self.stacks.setdefault(f"width{len(columns)}", []).append(columns)
            for name, units in self.stacks.items():
                self.flows[name] = spec.build(len(units), len(units[0]), generator=generator)

    def forward(self, cells: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Scaled cells to leaves, with the log-determinants of what is observed.

        Args:
            cells: `(rows, columns)`, finite everywhere.
            seen: which of them are observed.

        Returns:
            u, and log |dg/dx| by column, `(rows, columns)` each; of a section that is mapped as a
            whole it stands at the first column.

        Raises:
            ValueError: if g maps sections and one is observed in part.
        """
        if self.is_identity:
            return cells, torch.zeros_like(cells)
        self.check(seen)
        values, log_slopes = cells.clone(), torch.zeros_like(cells)
        for name, units in self.stacks.items():
            flat = [column for unit in units for column in unit]
            mapped, log_det = self._flow(name)(self._stacked(cells, units))
            values[:, flat] = mapped.movedim(0, 1).flatten(1)
            log_slopes[:, [unit[0] for unit in units]] = log_det.mT
        return values, log_slopes * seen

    def inverse(self, values: Tensor) -> Tensor:
        """Leaves to scaled cells, `(..., columns)`."""
        if self.is_identity:
            return values
        flat_values = values.reshape(-1, values.shape[-1])
        cells = flat_values.clone()
        for name, units in self.stacks.items():
            flat = [column for unit in units for column in unit]
            found, _ = self._flow(name).inverse(self._stacked(flat_values, units))
            cells[:, flat] = found.movedim(0, 1).flatten(1)
        return cells.reshape(values.shape)

    def breaks(self) -> Tensor:
        """Where the elementwise maps bend, as values of the leaves, `(columns, breaks)`."""
        flow = self._flow("width1")
        spline = next(layer for layer in flow.modules() if isinstance(layer, MonotoneSpline))
        sizes = bounded_bins(spline.raw_widths.double(), 2.0 * spline.tail)
        ends = F.pad(sizes.cumsum(-1), (1, 0)) - spline.tail
        return cast(Tensor, flow(ends.mT)[0][..., 0])

    def _flow(self, name: str) -> Flow:
        flow = self.flows[name]
        assert isinstance(flow, Flow)
        return flow

    def _units(self) -> list[tuple[int, ...]]:
        """What g maps at a time: single columns or whole sections."""
        if self.is_elementwise:
            return [(column,) for column in sorted(sum(self.positions.values(), ()))]
        return list(self.positions.values())

    def _stacked(self, table: Tensor, units: list[tuple[int, ...]]) -> Tensor:
        flat = [column for unit in units for column in unit]
        cut: Tensor = table[:, flat].unflatten(1, (len(units), len(units[0])))
        return cut.movedim(1, 0)

    def check(self, seen: Tensor) -> None:
        """Refuse masks that g cannot work with."""
        if self.is_elementwise:
            return
        for leaf, columns in self.positions.items():
            part = seen[:, list(columns)]
            split = part.any(1) & ~part.all(1)
            if bool(split.any()):
                row = int(split.nonzero()[0])
                raise ValueError(
                    f"leaf {leaf!r} is observed in part (row {row}), but its map joins all its "
                    "columns; observe it as a whole or not at all, or use leaf='affine' or "
                    "'spline'"
                )
