"""Exact linear relations between columns, such as totals, and rows that are copies of others."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from vfg.tables.cells import Array, Mask

FEWEST_ROWS = 10
"""Rows more than unknowns that a relation must hold in, so that it is none by chance."""
EXACT = 1e-8
"""Largest error of a relation, in deviations: well above rounding, well below any noise."""
MOST_COLUMNS = 300
"""Tables with more columns are not searched, which bounds the time."""
VARIED = 20.0
"""Values of a column, weighted by their frequency, from which on equal cells hint at a copied row:
in columns of few values cells are equal by chance."""
SORTED_COLUMNS = 8
"""Columns by which copies are searched, those with the most values, which bounds the time."""


def find_relations(values: Tensor, observed: Tensor) -> Tensor:
    """Linear relations that hold in all rows: rows `(coefficients, constant)` whose sum is 0.

    They are searched for among all columns in complete rows, and between pairs of columns in the
    rows that have both.

    Args:
        values: a matrix of standardised columns, `(rows, columns)`.
        observed: which of its entries are known.

    Returns:
        `(relations, columns + 1)`, orthonormal.

    Example:
        >>> x = torch.arange(20.0, dtype=torch.float64)
        >>> table = torch.stack([x, 2.0 * x, x.sin()], dim=1)
        >>> find_relations(table, torch.ones(20, 3, dtype=torch.bool))[0].round(decimals=2).abs()
        tensor([0.8900, 0.4500, 0.0000, 0.0000], dtype=torch.float64)
    """
    columns = values.shape[1]
    found = [values.new_zeros(0, columns + 1, dtype=torch.float64)]
    varied = _varied_columns(values, observed) if columns <= MOST_COLUMNS else []
    sets = [varied, *_candidate_pairs(values, observed)] if varied else []
    for chosen in sets:
        rows = observed[:, chosen].all(1)
        if set(chosen) <= set(varied) and int(rows.sum()) >= len(chosen) + FEWEST_ROWS:
            own = _null_space(values[rows][:, chosen])
            padded = own.new_zeros(len(own), columns + 1)
            padded[:, [*chosen, columns]] = own
            found.append(padded)
    return _orthonormal(torch.cat(found))


def fill_determined(relations: Tensor, values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Entries that follow from known ones by exact relations.

    Args:
        relations: as `find_relations` returns them.
        values: a matrix.
        observed: which of its entries are known.

    Returns:
        The matrix with these entries, anything where they do not follow; and which of them do.
    """
    filled, determined = values.double().clone(), torch.zeros_like(observed)
    involved = (relations[:, :-1].abs() > EXACT).any(0)
    masks, groups = observed[:, involved].unique(dim=0, return_inverse=True)
    places = involved.nonzero()[:, 0]
    for group, mask in enumerate(masks):
        missing, known = places[~mask], places[mask]
        if not len(missing) or not len(known):
            continue
        inverse = torch.linalg.pinv(relations[:, missing], rtol=1e-9)
        follows = missing[(inverse @ relations[:, missing]).diagonal() > 1.0 - 1e-9]
        if not len(follows):
            continue
        rows = (groups == group).nonzero()[:, 0]
        right = -(filled[rows][:, known] @ relations[:, known].T + relations[:, -1])
        solved = right @ inverse.T
        chosen = torch.isin(missing, follows)
        filled[rows[:, None], follows] = solved[:, chosen]
        determined[rows[:, None], follows] = True
    return filled, determined


def find_copies(values: Array, observed: Mask) -> Array:
    """For every row the first row that it is a copy of; itself if there is none.

    Copies agree in all cells that both have, at least two of them in columns of many values.

    Args:
        values: a matrix of numbers or codes, `(rows, columns)`.
        observed: which of its entries are known.

    Example:
        >>> table = np.random.default_rng(0).normal(size=(40, 3))
        >>> table = np.concatenate([table, table[:2]])
        >>> find_copies(table, np.ones(table.shape, dtype=bool))[[0, 1, 2, 40, 41]].tolist()
        [0, 1, 2, 0, 1]
    """
    numbers = np.array([_number_of_values(x[o]) for x, o in zip(values.T, observed.T, strict=True)])
    varied = np.flatnonzero(numbers >= VARIED)
    searched = varied[np.argsort(-numbers[varied], kind="stable")][:SORTED_COLUMNS]
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for column in searched:
        seen = np.flatnonzero(observed[:, column])
        order = seen[np.argsort(values[seen, column], kind="stable")]
        near = np.stack([order[:-1], order[1:]], axis=1)
        # First by a few columns, which leaves few pairs to compare in all.
        for columns, least in ((searched, 1), (varied, 2), (slice(None), 0)):
            near = near[_agree(values[:, columns], observed[:, columns], near, least)]
        pairs.append(near)
    first, second = np.concatenate(pairs).T
    links = coo_array((np.ones(len(first)), (first, second)), shape=(len(values),) * 2)
    groups = connected_components(links, directed=False)[1]
    return np.asarray(np.unique(groups, return_index=True)[1][groups])


def _agree(values: Array, observed: Mask, pairs: Array, least: int) -> Mask:
    """Which pairs of rows agree where both are known, in at least so many cells."""
    first, second = pairs.T
    both = observed[first] & observed[second]
    equal = values[first] == values[second]
    return np.asarray((equal | ~both).all(1) & ((equal & both).sum(1) >= least))


def _number_of_values(cells: Array) -> float:
    """The number of different values, of which frequent ones count more."""
    counts = np.unique(cells, return_counts=True)[1]
    return float(counts.sum() ** 2 / np.square(counts).sum()) if len(counts) else 0.0


def _null_space(values: Tensor) -> Tensor:
    """Relations of complete rows, `(relations, columns + 1)`."""
    table = values.double()
    middle = table.mean(0)
    _, sizes, directions = torch.linalg.svd(table - middle, full_matrices=False)
    exact = directions[sizes < EXACT * len(table) ** 0.5]
    held = ((table - middle) @ exact.T).abs().amax(0) < EXACT
    return torch.cat([exact, -(exact @ middle)[:, None]], dim=1)[held]


def _varied_columns(values: Tensor, observed: Tensor) -> list[int]:
    """Columns with enough cells besides their most frequent one: two rare marks agree by chance."""
    varied = []
    for column in range(values.shape[1]):
        counts = values[observed[:, column], column].unique(return_counts=True)[1]
        if len(counts) > 1 and int(counts.sum() - counts.max()) >= FEWEST_ROWS:
            varied.append(column)
    return varied


def _candidate_pairs(values: Tensor, observed: Tensor) -> list[list[int]]:
    """Pairs of columns with a correlation of nearly 1 or -1 in the rows that have both."""
    known = observed.double()
    cells = torch.where(observed, values.double(), 0.0)
    count = (known.T @ known).clamp(min=1.0)
    mean = cells.T @ known / count
    square = cells.square().T @ known / count - mean.square()
    product = cells.T @ cells / count - mean * mean.T
    close = product.square() > (1.0 - 1e-9) * square * square.T
    enough = (count >= 2 + FEWEST_ROWS) & (square > 1e-12) & (square.T > 1e-12)
    pairs: list[list[int]] = (close & enough).triu(1).nonzero().tolist()
    return pairs


def _orthonormal(relations: Tensor) -> Tensor:
    """The same relations without those that follow from others."""
    if not len(relations):
        return relations
    _, sizes, directions = torch.linalg.svd(relations, full_matrices=False)
    kept: Tensor = directions[sizes > 1e-6 * sizes[0]]
    return kept
