"""What `infer` is asked for: names as targets, and the ids of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vfg.graph.checks import suggestion
from vfg.inference.answers import Target
from vfg.inputs import (
    ArrayLike,
    Name,
    Tabular,
    as_tensor,
    column_of,
    coordinate_labels,
    leaf_labels,
)


def as_targets(model: Tabular, names: Name | Sequence[Name] | None) -> list[Target]:
    """Targets by name, each once; None means all leaves.

    Raises:
        ValueError: for a name that is no leaf, column or latent node, or for no name at all.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 2}, width=3))
        >>> [target.shape for target in as_targets(model, ["b", "root"])]
        [(2,), (3,)]
    """
    if names is None:
        names = model.graph.leaves
    chosen = [names] if isinstance(names, str | int) else list(dict.fromkeys(names))
    if not chosen:
        raise ValueError("targets is empty; name leaves, columns or latent nodes, or leave it out")
    return [_target(model, name) for name in chosen]


def as_row_ids(model: nn.Module, row_ids: ArrayLike | None, rows: int) -> Tensor:
    """Distinct integers from 0 on, on the model's device; None means the position.

    Raises:
        TypeError: for what is not integers.
        ValueError: for a wrong number of them, negative ones, or one that appears twice.

    Example:
        >>> import vfg
        >>> as_row_ids(vfg.VFG(vfg.Graph.star({"a": 1, "b": 1})), [7, 3], rows=2)
        tensor([7, 3])
    """
    device = next(model.parameters()).device
    if row_ids is None:
        return torch.arange(rows, device=device)
    found = as_tensor(row_ids, "row_ids")
    if found.is_floating_point() or found.dtype == torch.bool:
        raise TypeError(f"row_ids must be integers, but they are {found.dtype}")
    if tuple(found.shape) != (rows,):
        raise ValueError(f"there must be one row id per row ({rows}), but got {tuple(found.shape)}")
    found = found.long().to(device)
    if rows and int(found.min()) < 0:
        raise ValueError(f"row_ids must be 0 or more, but one is {int(found.min())}")
    values, counts = found.unique(return_counts=True)
    if len(values) < rows:
        raise ValueError(f"row_ids must differ, but {int(values[counts > 1][0])} appears twice")
    return found


def _target(model: Tabular, name: Name) -> Target:
    graph, positions = model.graph, model.sections.positions
    columns: tuple[Name, ...] = graph.columns or ()
    if isinstance(name, str) and name in positions:
        found = positions[name]
        return Target(name, name, found, leaf_labels(model, name), (len(found),))
    if isinstance(name, str) and name in model.passing.schedule.place:
        width = graph.node(name).width
        return Target(name, name, (), coordinate_labels(name, width), (width,))
    column = column_of(model, name)
    if column is not None:
        leaf = next(leaf for leaf, found in positions.items() if column in found)
        return Target(name, leaf, (column,), (str(name),), ())
    known = [*(node.name for node in graph.nodes), *map(str, columns)]
    raise ValueError(
        f"the target {name!r} is not a leaf, column or latent node; "
        f"{suggestion(str(name), dict.fromkeys(known))}"
    )
