"""Exact linear relations between columns, such as totals and copies in other units."""

from __future__ import annotations

import torch
from torch import Tensor

FEWEST_ROWS = 10
"""Rows more than unknowns that a relation must hold in, so that it is none by chance."""
EXACT = 1e-8
"""Largest error of a relation, in deviations: well above rounding, well below any noise."""
MOST_COLUMNS = 300
"""Tables with more columns are not searched, which bounds the time."""


def find_relations(values: Tensor, observed: Tensor) -> Tensor:
    """Linear relations that hold in all rows: rows `(coefficients, constant)` whose sum is 0.

    They are searched for among all standardised columns in complete rows, and between pairs of
    columns in the rows that have both. They are orthonormal, `(relations, columns + 1)`.

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
    """Fill entries that follow from known ones by exact relations; and which of them do."""
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
