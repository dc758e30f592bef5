"""Tables, evidence and labels as users give them, checked and converted to tensors."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from vfg.distributions.likelihoods import LikelihoodSpec
from vfg.distributions.priors import PerLabel
from vfg.graph import Graph
from vfg.graph.checks import suggestion
from vfg.passing.schedule import Schedule
from vfg.passing.sections import Scaling, Sections
from vfg.tables.cells import Array
from vfg.tables.frames import Table, is_frame, open_table, quote

if TYPE_CHECKING:
    from vfg.model import VFG

ArrayLike: TypeAlias = Any
"""A tensor, an array, nested lists, a frame, or a mapping from leaves to those."""
Name: TypeAlias = str | int
"""The name of a node or column; a column without a name has its position."""


CELLS_AT_ONCE = 2**18
"""Cells of a large table that are processed together: they fit into a cache."""

EXACT = 2**53
"""Up to here float64 holds every whole number."""

WARNED_OF_ORDER: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models whose users know the order in which unnamed columns are taken."""


class Scheduled(Protocol):
    """Anything with a schedule."""

    @property
    def schedule(self) -> Schedule:
        """The nodes in blocks."""


class Tabular(Protocol):
    """What reading tables and evidence needs of a model; `VFG` and `GaussianVFG` have it."""

    graph: Graph
    sections: Sections
    scaling: Scaling
    likelihood_specs: dict[str, LikelihoodSpec]

    @property
    def passing(self) -> Scheduled:
        """Where the nodes are."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Parameters, the first of which has the model's dtype and device."""


def as_table(
    model: Tabular, table: ArrayLike, observed: ArrayLike | None
) -> tuple[Tensor, Tensor, Tensor]:
    """A table, whose unobserved cells are NaN or not in `observed`, as the passes want it.

    Returns the cells in the model's units, dtype and device, 0 where unobserved; the mask; and a
    scalar with the dtype and device that results should have.
    """
    cells, seen = as_cells(model, table, observed)
    return *scale_cells(model, cells, seen), cells.new_zeros(())


def as_cells(model: Tabular, table: ArrayLike, observed: ArrayLike | None) -> tuple[Tensor, Tensor]:
    """A checked table in its own units, dtype and device, 0 where unobserved; and its mask."""
    if isinstance(table, Mapping):
        given, states = values_by_name(model, table, "the table")
        if states or not table:
            named = f"names the latent node {next(iter(states))!r}" if states else "is empty"
            raise ValueError(f"a table has values of leaves and columns, but the mapping {named}")
    else:
        given = read_table(model, table)
    seen = ~given.isnan()
    if observed is not None:
        seen = seen & as_mask(model, observed, given)
    cells = torch.where(seen, given, 0.0)
    check_values(model, cells, seen)
    return cells, seen


def read_table(model: Tabular, table: ArrayLike, *, partial: bool = False) -> Tensor:
    """A tensor, array, frame or nested lists as floating-point numbers `(rows, columns)`.

    If `partial`, a frame may lack columns, which are then NaN.
    """
    if is_frame(table):
        return torch.from_numpy(_frame_values(model, open_table(table), partial))
    given = as_tensor(table, "the table")
    if given.ndim != 2 or given.shape[1] != model.sections.columns:
        widths = [f"{leaf}: {len(places)}" for leaf, places in model.sections.positions.items()]
        shown = ", ".join([*widths[:8], *["..."] * (len(widths) > 8)])
        raise ValueError(
            f"the table must have shape (rows, {model.sections.columns}) for the leaves "
            f"{{{shown}}}, but has {tuple(given.shape)}"
        )
    _warn_of_order(model)
    return given if given.is_floating_point() else given.double()


def _warn_of_order(model: Tabular) -> None:
    """Say once per model which order of columns an unnamed array is taken to have."""
    graph = model.graph
    if graph.order_is_inferred and model not in WARNED_OF_ORDER:
        WARNED_OF_ORDER.add(model)
        warnings.warn(
            f"the columns of an array without names are taken in the order in which the edges of "
            f"the network name them: {', '.join(map(str, graph.columns or ()))}; give a frame, "
            "fit(..., columns=[...]), or Graph.from_bayesian_network(edges, variables=[...])",
            stacklevel=4,
        )


def name_columns(table: ArrayLike, columns: Sequence[Name]) -> dict[Name, Tensor]:
    """The columns of an array by name."""
    given = as_tensor(table, "the table")
    if given.ndim != 2 or len(dict.fromkeys(columns)) != given.shape[1]:
        raise ValueError(
            f"columns names every column of the table once, but there are {len(columns)} names "
            f"({len(dict.fromkeys(columns))} different ones) for a table of shape "
            f"{tuple(given.shape)}"
        )
    return {name: given[:, place] for place, name in enumerate(columns)}


def _frame_values(model: Tabular, frame: Table, partial: bool) -> Array:
    """The numbers of a frame, NaN where missing."""
    names = frame_names(model, frame.labels)
    count = model.sections.columns
    if names is None and len(frame.labels) != count:
        raise ValueError(
            f"the frame must have {count} columns in the order of the leaves, but has "
            f"{len(frame.labels)}; select them, or name the columns of the leaves in the graph"
        )
    places = dict(enumerate(range(count)) if names is None else _by_name(frame, names, partial))
    return frame_numbers(frame, places, count)


def frame_numbers(frame: Table, places: Mapping[int, int], count: int) -> Array:
    """A table of `count` columns that lie at some places of a frame; NaN where there is none.

    In float32 if every column is, else in float64.
    """
    dtypes = [_dtype_of(frame, place) for place in places.values()]
    is_single = all(dtype == np.float32 for dtype in dtypes)
    values = np.full((frame.rows, count), np.nan, dtype=np.float32 if is_single else np.float64)
    for position, place in places.items():
        column = frame.column(place)
        warn_of_lost_digits(column.observed, f"column {column.label!r}")
        if column.values.dtype.kind not in "fiub" and not column.missing.all():
            cells = column.observed.tolist()
            wrong = next((cell for cell in cells if not isinstance(cell, Real)), column.storage)
            raise TypeError(
                f"column {column.label!r} must hold numbers, but has {wrong!r}; encode it as "
                "numbers, or mark missing values by NaN"
            )
        values[~column.missing, position] = column.observed
    return values


def _by_name(frame: Table, names: Sequence[str], partial: bool) -> Iterator[tuple[int, int]]:
    """Positions of the named columns in the model and in the frame; a missing one has none."""
    labels = frame.labels
    repeated = [label for k, label in enumerate(labels) if label in labels[:k]]
    missing = [] if partial else [name for name in names if name not in labels]
    extra = [label for label in labels if label not in names]
    wrong = [
        f"{words} {quote(columns)}"
        for words, columns in (("lacks", missing), ("has unknown", extra), ("repeats", repeated))
        if columns
    ]
    if wrong:
        raise ValueError(
            f"the frame must have the columns of the model, in any order, but it "
            f"{' and '.join(wrong)}; select or rename its columns"
        )
    return ((k, labels.index(name)) for k, name in enumerate(names) if name in labels)


def _dtype_of(frame: Table, place: int) -> type[np.floating[Any]]:
    name = frame.dtype_name(place).lower()
    if name in ("float16", "halffloat", "halffloat[pyarrow]"):
        raise TypeError(
            f"column {frame.labels[place]!r} is float16, which is too coarse to tell observed "
            "values apart; convert it to float32 or float64"
        )
    return np.float32 if name in ("float32", "float[pyarrow]") else np.float64


def frame_names(model: Tabular, labels: Sequence[Any]) -> list[str] | None:
    """The columns that a frame must have, in the order of the table; None takes them as they come.

    Columns without names in the graph are called like their leaves, if the frame has any such name.
    """
    columns = model.graph.columns
    if columns is not None and isinstance(columns[0], str):
        return [str(name) for name in columns]
    named: dict[int, str] = {}
    for leaf, places in model.sections.positions.items():
        named.update(zip(places, leaf_labels(model, leaf), strict=True))
    known = [named[column] for column in sorted(named)]
    return known if any(label in known for label in labels) else None


def scale_cells(model: Tabular, cells: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Checked cells in the model's units, dtype and device, 0 where unobserved; and their mask."""
    some = next(model.parameters())
    seen, cells = seen.to(some.device), cells.to(some.device)
    parts = [
        torch.where(mask, model.scaling.apply_to(part), 0.0).to(some)
        for part, mask in by_rows(cells, seen)
    ]
    result = parts[0] if len(parts) == 1 else torch.cat(parts)
    _refuse_columns(model, result.isinf(), f"values too large for a model in {some.dtype}")
    return result, seen


def by_rows(*tables: Tensor) -> list[tuple[Tensor, ...]]:
    """Tables of one shape cut into parts of some rows each.

    Intermediate results stay in a cache, and large tables need no memory for them.

    Example:
        >>> [len(part) for (part,) in by_rows(torch.zeros(CELLS_AT_ONCE // 2 + 1, 2))]
        [131072, 1]
    """
    size = max(1, CELLS_AT_ONCE // max(1, tables[0].shape[1]))
    return list(zip(*(table.split(size) for table in tables), strict=True))


def as_weights(sample_weight: ArrayLike | None, rows: int) -> Tensor | None:
    """How often every row counts, `(rows,)`; refuses other shapes, negative numbers and all 0.

    Example:
        >>> as_weights([1, 2], rows=2)
        tensor([1., 2.], dtype=torch.float64)
        >>> as_weights([1, -2], rows=2)
        Traceback (most recent call last):
        ValueError: sample_weight must have finite numbers from 0 on, but row 1 has -2.0
    """
    if sample_weight is None:
        return None
    weights = as_tensor(sample_weight, "sample_weight").double()
    if weights.shape != (rows,):
        raise ValueError(
            f"sample_weight must have one number for each of the {rows} rows, but has the shape "
            f"{tuple(weights.shape)}"
        )
    wrong = ~(weights.isfinite() & (weights >= 0.0))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"sample_weight must have finite numbers from 0 on, but row {row} has "
            f"{float(weights[row])}"
        )
    if not bool((weights > 0.0).any()):
        raise ValueError("sample_weight is zero for all rows, so there is nothing to fit")
    return weights


def pairwise_covariance(
    table: Tensor, seen: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Means, and covariances from the rows in which both columns are observed.

    Example:
        >>> table, seen = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[1, 1], [1, 0]])
        >>> pairwise_covariance(table, seen.bool())[0]
        tensor([2., 2.])
    """
    if weights is not None:
        return _weighted_covariance(table, seen, weights)
    parts = by_rows(table, seen)
    sums = torch.stack([(part * mask).sum(0) for part, mask in parts]).sum(0)
    mean = sums / seen.sum(0).clamp(min=1)
    pairs = [((part - mean) * mask, mask.to(table)) for part, mask in parts]
    together = torch.stack([left.mT @ left for left, _ in pairs]).sum(0)
    counts = torch.stack([weights.mT @ weights for _, weights in pairs]).sum(0)
    return mean, together / counts.clamp(min=1.0)


def _weighted_covariance(table: Tensor, seen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    often = seen * weights[:, None]
    mean = (table * often).sum(0) / often.sum(0).clamp(min=1e-300)
    left = (table - mean) * seen
    together = left.mT @ (left * weights[:, None])
    return mean, together / (seen.to(table).mT @ often).clamp(min=1e-300)


def as_tensor(given: ArrayLike, what: str) -> Tensor:
    """Numbers as a tensor; text, ragged lists and complex numbers are refused."""
    if isinstance(given, Tensor):
        tensor = given
        warn_of_lost_digits(tensor, what)
    else:
        try:
            array = np.asarray(given)
        except ValueError as error:
            raise TypeError(f"{what} must be rectangular, but is ragged; pad it by NaN") from error
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{what} must hold real numbers, but its dtype is {array.dtype}")
        warn_of_lost_digits(array, what)
        # Arrays of frames may be read-only, which tensors cannot be.
        plain = np.require(array, requirements=["C", "W"]).reshape(array.shape)
        tensor = torch.from_numpy(plain)
    if tensor.is_complex():
        raise TypeError(f"{what} must hold real numbers, but its dtype is {tensor.dtype}")
    if tensor.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(
            f"{what} is {tensor.dtype}, which is too coarse to tell observed values apart; "
            "convert it to float32 or float64"
        )
    return tensor


def warn_of_lost_digits(numbers: Array | Tensor, what: str) -> None:
    """Warn of whole numbers that float64 cannot hold."""
    kind = numbers.dtype
    is_whole = kind == torch.int64 if isinstance(kind, torch.dtype) else kind.kind in "iu"
    ends = (int(numbers.min()), int(numbers.max())) if is_whole and 0 not in numbers.shape else ()
    if any(abs(end) > EXACT for end in ends):
        warnings.warn(
            f"{what} has whole numbers beyond 2^53, whose last digits are lost in float64; "
            "subtract a constant first, or treat them as categories",
            stacklevel=3,
        )


def as_evidence(
    model: Tabular, given: Mapping[str, ArrayLike], rows: int | None = None
) -> tuple[dict[int, Tensor], int, Tensor]:
    """Values of latent nodes as blocks with NaN where nothing is given.

    Returns evidence by block, the number of rows, and a scalar with the first's dtype and device.
    """
    some = next(model.parameters())
    schedule = model.passing.schedule
    states: dict[int, Tensor] = {}
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
        if index not in states:
            shape = (len(block.nodes), tensor.shape[0], block.width)
            states[index] = some.new_full(shape, torch.nan)
        states[index][row] = tensor.to(some)
        if like is None and tensor.is_floating_point():
            like = tensor.new_zeros(())
    return states, 1 if rows is None else rows, some.new_zeros(()) if like is None else like


def check_labelled(model: VFG) -> None:
    """Refuse a model whose prior has no labels."""
    if not isinstance(model.prior_spec, PerLabel):
        raise ValueError(
            f"labels need a prior with one mean per label, but the prior is "
            f"{model.prior_spec.name!r}; build the model with prior=vfg.PerLabel(labels)"
        )


def as_labels(model: VFG, labels: int | ArrayLike | None, rows: int) -> Tensor | None:
    """Labels as integers on the model's device, −1 for rows without one."""
    if labels is None:
        return None
    check_labelled(model)
    result = torch.as_tensor(labels).to(next(model.parameters()).device)
    if result.is_floating_point() or result.dtype == torch.bool:
        raise TypeError(f"labels must be integers, but they are {result.dtype}")
    result = result.long().expand(rows) if result.ndim == 0 else result.long()
    if tuple(result.shape) != (rows,):
        raise ValueError(f"there must be one label per row ({rows}), but got {tuple(result.shape)}")
    assert isinstance(model.prior_spec, PerLabel)
    count = model.prior_spec.labels
    if rows and (int(result.min()) < -1 or int(result.max()) >= count):
        raise ValueError(
            f"labels must run from 0 to {count - 1}, or be -1 for none, but they run from "
            f"{int(result.min())} to {int(result.max())}"
        )
    return result


def values_by_name(
    model: Tabular, given: Mapping[Name, ArrayLike], what: str
) -> tuple[Tensor, dict[str, Tensor]]:
    """Values by the names of leaves, columns and latent nodes as a table and latent states."""
    values = {
        name: as_value(model, name, value, what)
        for name, value in given.items()
        if value is not None or not value_width(model, name, what)  # None: not given
    }
    rows, first = 1, None
    for name, value in values.items():
        if len(value) not in (1, rows) and rows != 1:
            raise ValueError(
                f"all values of {what} must have the same number of rows, but {first!r} has "
                f"{rows} and {name!r} has {len(value)}"
            )
        if len(value) != 1:
            rows, first = len(value), name
    # Whole numbers keep every digit in float64.
    kinds = [x.dtype if x.is_floating_point() else torch.float64 for x in values.values()]
    kind = functools.reduce(torch.promote_types, kinds) if kinds else torch.float64
    device = next(iter(values.values())).device if values else None
    table = torch.full((rows, model.sections.columns), torch.nan, dtype=kind, device=device)
    states, taken = dict[str, Tensor](), dict[int, Name]()
    for name, value in values.items():
        value = value.to(table).expand(rows, -1)
        if is_latent(model, name):
            states[str(name)] = refuse_infinite(name, value)
        else:
            for place, column in enumerate(table_columns(model, name, what)):
                claim_column(model, taken, name, column)
                table[:, column] = value[:, place]
    return table, states


def claim_column(model: Tabular, taken: dict[int, Name], name: Name, column: int) -> None:
    """Note that a name gives a column, and refuse a second one."""
    if column in taken:
        raise ValueError(
            f"the evidence gives column {column_label(model, column)!r} twice, as "
            f"{taken[column]!r} and as {name!r}; give it once"
        )
    taken[column] = name


def as_value(model: Tabular, name: Name, given: ArrayLike, what: str = "the evidence") -> Tensor:
    """The value of one leaf, column or latent node as `(rows, width)`, with 1 row for a number."""
    width = value_width(model, name, what)
    value = as_tensor(given, f"{what} for {name!r}")
    if width == 1 and value.ndim < 2:
        return value.reshape(-1, 1)
    if value.ndim != 2 or value.shape[1] != width:
        shapes = f"(rows, {width})" if width > 1 else "(rows,), (rows, 1) or a single number"
        raise ValueError(
            f"{what} for {name!r} must have shape {shapes}, but has {tuple(value.shape)}"
        )
    return value


def value_width(model: Tabular, name: Name, what: str = "the evidence") -> int:
    """How many numbers a row has of a leaf, column or latent node."""
    if is_latent(model, name):
        return model.graph.node(str(name)).width
    if name not in model.sections.positions and column_of(model, name) is None:
        names = [*(node.name for node in model.graph.nodes), *map(str, model.graph.columns or ())]
        raise ValueError(
            f"{what} names {name!r}, which is not a leaf, column or latent node; "
            f"{suggestion(str(name), dict.fromkeys(names))}"
        )
    return len(table_columns(model, name, what))


def is_latent(model: Tabular, name: Name) -> bool:
    """Whether a name is that of a latent node."""
    return name in model.passing.schedule.place and name not in model.sections.positions


def column_label(model: Tabular, column: int) -> str | int:
    """The name of a table column, or its position."""
    return (model.graph.columns or range(model.sections.columns))[column]


def refuse_infinite(name: Name, value: Tensor) -> Tensor:
    """The value of a latent node, which must not be infinite."""
    if bool(value.isinf().any()):
        raise ValueError(
            f"the evidence for {name!r} has infinite values; replace them by NaN (free) or numbers"
        )
    return value


def as_mask(model: Tabular, observed: ArrayLike, table: Tensor) -> Tensor:
    """Which cells of a table may be used: a boolean array, a frame, or leaves or columns by name.

    Of a mapping, what is not named may not be used.
    """
    if isinstance(observed, Mapping):
        mask = torch.zeros(table.shape, dtype=torch.bool, device=table.device)
        for name, given in observed.items():
            part = torch.as_tensor(given)
            chosen = list(table_columns(model, name, "the mask"))
            part = part[:, None] if part.ndim == 1 else part
            if part.dtype != torch.bool or (part.ndim and part.shape != (len(table), len(chosen))):
                raise ValueError(
                    f"the mask of {name!r} must be boolean of shape {(len(table), len(chosen))}, "
                    f"but is {part.dtype} of shape {tuple(part.shape)}"
                )
            mask[:, chosen] = part.to(mask.device)
        return mask
    framed = is_frame(observed)
    mask = read_table(model, observed) == 1.0 if framed else torch.as_tensor(observed)
    if mask.shape != table.shape or mask.dtype != torch.bool:
        raise ValueError(
            f"observed must be a boolean mask of shape {tuple(table.shape)}, but is "
            f"{mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask.to(table.device)


def as_given_mask(
    model: Tabular, given: Name | Sequence[Name] | ArrayLike, table: Tensor
) -> Tensor:
    """Which cells are given: leaves or columns by name, or what `as_mask` takes."""
    if not isinstance(given, Sequence | str | int):
        return as_mask(model, given, table)
    mask = torch.zeros(table.shape, dtype=torch.bool, device=table.device)
    for name in [given] if isinstance(given, str | int) else given:
        mask[:, list(table_columns(model, name, "given"))] = True
    return mask


def leaf_labels(model: Tabular, leaf: str) -> tuple[str, ...]:
    """What the columns of a leaf are called: by their names, else `leaf`, or `leaf[0]`, `leaf[1]`.

    Example:
        >>> import vfg
        >>> leaf_labels(vfg.VFG(vfg.Graph.star({"a": 2, "b": 1}, width=2)), "a")
        ('a[0]', 'a[1]')
    """
    columns = model.graph.node(leaf).columns or ()
    if columns and isinstance(columns[0], str):
        return tuple(map(str, columns))
    return coordinate_labels(leaf, len(model.sections.positions[leaf]))


def coordinate_labels(node: str, width: int) -> tuple[str, ...]:
    """What the coordinates of a node are called.

    Example:
        >>> coordinate_labels("root", 1), coordinate_labels("root", 2)
        (('root',), ('root[0]', 'root[1]'))
    """
    return (node,) if width == 1 else tuple(f"{node}[{k}]" for k in range(width))


def column_of(model: Tabular, name: Name) -> int | None:
    """The position in the table of one column, by its name or as `leaf[0]`; None if there is none.

    Example:
        >>> import vfg
        >>> model = vfg.VFG(vfg.Graph.star({"a": 2, "b": 1}, width=2))
        >>> column_of(model, "a[1]"), column_of(model, "a")
        (1, None)
    """
    columns = list[Name](model.graph.columns or ())
    # Columns are all texts or all positions, and searching hundreds in vain takes time.
    is_text = bool(columns) and isinstance(columns[0], str)
    if isinstance(name, str) == is_text and name in columns:
        return columns.index(name)
    leaf, bracket, place = str(name).rpartition("[")
    places = model.sections.positions.get(leaf, ()) if bracket else ()
    is_place = place.endswith("]") and place[:-1].isdecimal() and int(place[:-1]) < len(places)
    return places[int(place[:-1])] if is_place else None


def table_columns(model: Tabular, name: Name, what: str) -> tuple[int, ...]:
    """The positions in the table of a leaf, or of a single column."""
    positions, columns = model.sections.positions, model.graph.columns or ()
    if name in positions:
        return positions[str(name)]
    column = column_of(model, name)
    if column is not None:
        return (column,)
    if any(node.name == name for node in model.graph.nodes):
        raise ValueError(
            f"{what} names {name!r}, which is not a leaf but a latent node; only leaves and "
            "columns are cells of the table"
        )
    names = [*positions, *(column for column in columns if isinstance(column, str))]
    raise ValueError(
        f"{what} names {name!r}, which is not a leaf or column; {suggestion(str(name), names)}"
    )


def check_values(model: Tabular, cells: Tensor, seen: Tensor) -> None:
    """Refuse infinite cells, and observed ones that their leaf cannot explain."""
    _refuse_columns(model, cells.isinf(), "infinite values")
    for leaf, spec in model.likelihood_specs.items():
        if spec.is_bounded:
            chosen = list(model.sections.positions[leaf])
            spec.check(leaf, cells[:, chosen][seen[:, chosen]])


def _refuse_columns(model: Tabular, bad: Tensor, what: str) -> None:
    """Name the first column of a table in which something is wrong."""
    if bool(bad.any()):
        column = int(bad.any(0).nonzero()[0])
        leaf = next(leaf for leaf, columns in model.sections.positions.items() if column in columns)
        raise ValueError(
            f"leaf {leaf!r} has {what} (column {column_label(model, column)!r} of the table); "
            "replace them by NaN (unobserved) or by other numbers"
        )
