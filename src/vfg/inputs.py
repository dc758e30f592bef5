"""Tables, evidence and labels as users give them, checked and turned into tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vfg.priors import PerLabel

if TYPE_CHECKING:
    from vfg.model import VFG

ArrayLike: TypeAlias = Any
"""A tensor, a numpy array, nested lists, or a mapping from leaves to those."""


def as_table(
    model: VFG, table: ArrayLike, observed: ArrayLike | None
) -> tuple[Tensor, Tensor, Tensor]:
    """A table as the passes want it.

    Args:
        model: whose leaves the table has.
        table: the data; NaN is unobserved.
        observed: which cells may be used.

    Returns:
        The cells in the model's units, dtype and device, 0 where unobserved; the mask; and a
        scalar with the dtype and device that results should have.

    Raises:
        ValueError: for a wrong shape, infinite values or values that a leaf cannot explain.
        TypeError: for what is not a table of numbers.
    """
    given = _by_leaf(model, table) if isinstance(table, Mapping) else as_tensor(table, "the table")
    _check_shape(model, given)
    given = given if given.is_floating_point() else given.to(torch.get_default_dtype())
    seen = ~given.isnan()
    if observed is not None:
        seen = seen & _as_mask(model, observed, given)
    some = next(model.parameters())
    cells = torch.where(seen, given, 0.0)
    _check_values(model, cells, seen)
    seen = seen.to(some.device)
    scaled = torch.where(seen, model.scaling.apply_to(cells.to(some.device)), 0.0)
    return scaled.to(some), seen, given.new_zeros(())


def as_tensor(given: ArrayLike, what: str) -> Tensor:
    """Numbers as a tensor; text, ragged lists and complex numbers are refused."""
    if isinstance(given, Tensor):
        found = given
    else:
        array = np.asarray(given)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{what} must hold real numbers, but its dtype is {array.dtype}")
        found = torch.from_numpy(np.ascontiguousarray(array))
    if found.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(
            f"{what} is {found.dtype}, which is too coarse to tell observed values apart; "
            "convert it to float32 or float64"
        )
    return found


def as_evidence(
    model: VFG, given: Mapping[str, ArrayLike], rows: int | None = None
) -> tuple[dict[int, Tensor], int, Tensor]:
    """Values of latent nodes as blocks with NaN where nothing is given.

    Returns:
        Evidence by block, the number of rows, and a scalar with the dtype and device of the first.

    Raises:
        ValueError: for a node that does not exist or is a leaf, or a wrong shape.
    """
    some = next(model.parameters())
    schedule = model.passing.schedule
    found: dict[int, Tensor] = {}
    like: Tensor | None = None
    for name, value in given.items():
        if name not in schedule.place or schedule.blocks[schedule.place[name][0]].is_leaf:
            latent = [
                node for block in schedule.blocks if not block.is_leaf for node in block.nodes
            ]
            raise ValueError(f"{name!r} is not a latent node; those are {', '.join(latent)}")
        index, row = schedule.place[name]
        block = schedule.blocks[index]
        tensor = as_tensor(value, f"the state of {name!r}")
        rows = len(tensor) if rows is None and tensor.ndim == 2 else rows
        if tuple(tensor.shape) != (rows, block.width):
            raise ValueError(
                f"the state of {name!r} must have shape ({rows}, {block.width}), but has "
                f"{tuple(tensor.shape)}"
            )
        if index not in found:
            shape = (len(block.nodes), tensor.shape[0], block.width)
            found[index] = some.new_full(shape, torch.nan)
        found[index][row] = tensor.to(some)
        if like is None and tensor.is_floating_point():
            like = tensor.new_zeros(())
    return found, 1 if rows is None else rows, some.new_zeros(()) if like is None else like


def as_labels(model: VFG, labels: int | ArrayLike | None, rows: int) -> Tensor | None:
    """Labels as integers on the model's device, −1 for rows without one.

    Raises:
        ValueError: if the prior has no labels, a label is out of its range or one is missing.
    """
    if labels is None:
        return None
    if not isinstance(model.prior_spec, PerLabel):
        raise ValueError(
            f"labels need a prior with one mean per label, but the prior is "
            f"{model.prior_spec.name!r}; build the model with prior=vfg.PerLabel(labels)"
        )
    found = torch.as_tensor(labels).to(next(model.parameters()).device)
    if found.is_floating_point() or found.dtype == torch.bool:
        raise TypeError(f"labels must be integers, but they are {found.dtype}")
    found = found.long().expand(rows) if found.ndim == 0 else found.long()
    if tuple(found.shape) != (rows,):
        raise ValueError(f"there must be one label per row ({rows}), but got {tuple(found.shape)}")
    count = model.prior_spec.labels
    if rows and (int(found.min()) < -1 or int(found.max()) >= count):
        raise ValueError(
            f"labels must run from 0 to {count - 1}, or be -1 for none, but they run from "
            f"{int(found.min())} to {int(found.max())}"
        )
    return found


def _by_leaf(model: VFG, table: Mapping[str, ArrayLike]) -> Tensor:
    positions = model.sections.positions
    unknown = [name for name in table if name not in positions]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a leaf; the leaves are {', '.join(positions)}")
    if not table:
        raise ValueError(f"an empty mapping has no rows; give at least one of {list(positions)}")
    parts = {name: as_tensor(value, f"leaf {name!r}") for name, value in table.items()}
    first = next(iter(parts.values()))
    kind = first.dtype if first.is_floating_point() else torch.get_default_dtype()
    whole = torch.full(
        (len(first), model.sections.columns), torch.nan, dtype=kind, device=first.device
    )
    for name, part in parts.items():
        expected = (len(first), len(positions[name]))
        if tuple(part.shape) != expected:
            raise ValueError(
                f"leaf {name!r} must have shape {expected}, but has {tuple(part.shape)}"
            )
        whole[:, list(positions[name])] = part.to(whole)
    return whole


def _check_shape(model: VFG, table: Tensor) -> None:
    if table.ndim != 2 or table.shape[1] != model.sections.columns:
        widths = {leaf: len(found) for leaf, found in model.sections.positions.items()}
        shown = ", ".join(f"{leaf}: {width}" for leaf, width in list(widths.items())[:8])
        more = ", ..." if len(widths) > 8 else ""
        raise ValueError(
            f"the table must have shape (rows, {model.sections.columns}) for the leaves "
            f"{{{shown}{more}}}, but has {tuple(table.shape)}"
        )


def _as_mask(model: VFG, observed: ArrayLike, table: Tensor) -> Tensor:
    if isinstance(observed, Mapping):
        chosen: Sequence[str] = list(observed)
        positions = model.sections.positions
        mask = torch.zeros(table.shape, dtype=torch.bool, device=table.device)
        for leaf in chosen:
            if leaf not in positions:
                raise ValueError(
                    f"the mask names {leaf!r}, which is not a leaf; the leaves are "
                    f"{', '.join(positions)}"
                )
            part = torch.as_tensor(observed[leaf]).to(mask)
            mask[:, list(positions[leaf])] = part if part.ndim != 1 else part[:, None]
        return mask
    mask = torch.as_tensor(observed)
    if mask.shape != table.shape or mask.dtype != torch.bool:
        raise ValueError(
            f"observed must be a boolean mask of shape {tuple(table.shape)}, but is "
            f"{mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask.to(table.device)


def _check_values(model: VFG, cells: Tensor, seen: Tensor) -> None:
    infinite = cells.isinf().any(0)
    if bool(infinite.any()):
        column = int(infinite.nonzero()[0])
        leaf = next(leaf for leaf, found in model.sections.positions.items() if column in found)
        raise ValueError(
            f"leaf {leaf!r} has infinite values (column {column} of the table); replace them by "
            "NaN (unobserved) or by numbers"
        )
    for leaf, spec in model.likelihood_specs.items():
        if spec.is_bounded:
            chosen = list(model.sections.positions[leaf])
            spec.check(leaf, cells[:, chosen][seen[:, chosen]])
