"""A tree over the columns of a table: columns with high rank correlation become siblings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vfg.graph.builders import Parts, check_arity, group_nodes
from vfg.graph.nodes import Node, first_repeated

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Matrix = NDArray[numpy.float64]


def cluster(table: Any, arity: int, width: int | None) -> Parts:
    """Build a tree over the columns of a table by hierarchical clustering.

    Example:
        >>> nodes, edges = cluster([[1.0, 2.0, 5.0], [2.0, 4.0, 5.0], [3.0, 6.0, 4.0]], 2, None)
        >>> [edge.name for edge in edges]
        ['x0->node1_1', 'x1->node1_1', 'node1_1->root', 'x2->root']
    """
    check_arity(arity)
    values, leaves = _read(table)
    groups = collapse(average_linkage(rank_correlations(values)), len(leaves), arity)
    return group_nodes(leaves, groups, 2 * arity if width is None else width)


def rank_correlations(values: Matrix) -> Matrix:
    """Spearman correlations of all pairs of columns, over the rows where both are observed.

    Each column is ranked once, among its own observed rows. Without missing values this is exact;
    with them it approximates ranking anew for every pair, at the price of a few matrix products.
    Pairs with a column that is constant or empty, or with fewer than three common rows, count as
    uncorrelated.

    Example:
        >>> import numpy
        >>> table = numpy.array([[1.0, 9.0], [2.0, 4.0], [3.0, 1.0], [4.0, numpy.nan]])
        >>> float(rank_correlations(table)[0, 1].round(6))
        -1.0
    """
    import numpy

    observed = (~numpy.isnan(values)).astype(numpy.float64)
    ranks = _centred_ranks(values)
    common = observed.T @ observed
    sums = ranks.T @ observed
    count = numpy.maximum(common, 1.0)
    spread = numpy.maximum((ranks**2).T @ observed - sums**2 / count, 0.0)
    scale = numpy.sqrt(spread * spread.T)
    # Two common rows always correlate perfectly.
    defined = (common >= 3) & (scale > 1e-12)
    covariance = ranks.T @ ranks - sums * sums.T / count
    return numpy.where(defined, covariance / numpy.where(defined, scale, 1.0), 0.0).clip(-1.0, 1.0)


def collapse(merges: Sequence[tuple[int, int]], count: int, arity: int) -> list[list[int]]:
    """Collapse a binary dendrogram to at most `arity` members per group, highest merges first.

    Merges are pairs, lowest first. Leaves have the numbers 0, ..., `count - 1`, merge k and, in the
    result, group k the number `count + k`.

    Example:
        >>> collapse([(0, 1), (2, 3), (4, 5)], count=4, arity=3)
        [[0, 1], [4, 2, 3]]
    """
    if not merges:
        return [list(range(count))]
    first = list(range(count))
    for left, right in merges:
        first.append(min(first[left], first[right]))
    opened: dict[int, list[int]] = {}
    queue = [count + len(merges) - 1]
    for merge in queue:  # grows while it is read
        members = _open(merge, merges, count, arity)
        opened[merge] = sorted(members, key=first.__getitem__)
        queue += [member for member in members if member >= count]
    numbers = {merge: count + index for index, merge in enumerate(sorted(opened))}
    return [[numbers.get(member, member) for member in opened[merge]] for merge in numbers]


def _open(merge: int, merges: Sequence[tuple[int, int]], count: int, arity: int) -> list[int]:
    """Replace the highest merge among the members by its own pair while there is room."""
    members = list(merges[merge - count])
    while len(members) < arity and max(members) >= count:
        highest = max(members)
        members.remove(highest)
        members += merges[highest - count]
    return members


def _centred_ranks(values: Matrix) -> Matrix:
    """Ranks within each column's observed rows, scaled to [-1/2, 1/2], 0 where missing."""
    import numpy
    from scipy.stats import rankdata

    ranks = numpy.zeros(values.shape)
    for column in range(values.shape[1]):
        rows = numpy.flatnonzero(~numpy.isnan(values[:, column]))
        if len(rows):
            ranked = rankdata(values[rows, column])
            ranks[rows, column] = (ranked - (len(rows) + 1) / 2) / len(rows)
    return ranks


def average_linkage(correlations: Matrix) -> list[tuple[int, int]]:
    """Pairs to merge, lowest first, by average linkage on the distances 1 - |correlation|."""
    import numpy
    from scipy.cluster.hierarchy import linkage

    count = len(correlations)
    if count == 1:
        return []
    # Rounded, so that the last bits of a matrix product never decide between equal distances.
    distances = numpy.round(1.0 - numpy.abs(correlations), 9)
    joined = linkage(distances[numpy.triu_indices(count, k=1)], method="average")
    return [(int(left), int(right)) for left, right in joined[:, :2]]


def _read(table: Any) -> tuple[Matrix, list[Node]]:
    """Read a table as numbers, with one leaf per column."""
    is_frame = hasattr(table, "columns") and hasattr(table, "to_numpy")
    labels = list(table.columns) if is_frame else []
    values = _read_frame(table, labels) if labels else _read_array(table)
    if values.ndim != 2 or not values.shape[1]:
        raise ValueError(
            f"a table of shape (rows, columns) with at least one column is needed, "
            f"got shape {values.shape}; reshape it."
        )
    if labels and all(isinstance(label, str) for label in labels):
        return values, [Node(label, 1, columns=(label,)) for label in labels]
    leaves = [Node(f"x{index}", 1, columns=(index,)) for index in range(values.shape[1])]
    return values, leaves


def _read_array(table: Any) -> Matrix:
    """Read an array, a tensor on any device, or nested lists."""
    import numpy

    plain = table.detach().cpu() if hasattr(table, "detach") else table
    try:
        return numpy.asarray(plain, dtype=numpy.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "the table has entries that are not numbers; encode them as numbers first."
        ) from error


def _read_frame(frame: Any, labels: list[Any]) -> Matrix:
    """Read a frame column by column, naming the one that is not numeric."""
    import numpy

    repeated = first_repeated(labels)
    if repeated is not None:
        raise ValueError(f"the table has two columns named {repeated!r}; rename one of them.")
    columns = []
    for label in labels:
        column = frame[label]
        # The missing value of pandas does not convert by itself.
        options = {"dtype": "float64", "na_value": numpy.nan} if hasattr(column, "iloc") else {}
        try:
            columns.append(numpy.asarray(column.to_numpy(**options), dtype=numpy.float64))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"column {label!r} is not numeric; encode it as numbers first, or leave it out."
            ) from error
    return numpy.stack(columns, axis=1)
