"""Code points: categories as points of a space of at most eight dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse, special

from vfg.tables.cells import Array, Mask

WIDEST = 8
"""The most dimensions that code points have."""
RAREST = 0.01
"""Rarer categories count as this frequent in a simplex, so that no point lies beyond ten."""
FURTHEST = 10.0
"""Distance from the origin beyond which code points are drawn in."""
CAUTION = 10.0
"""Cells besides the first at which a category's own mean counts as much as the overall one."""
SPREAD = 0.01
"""Size of the fixed spread of code points, next to the largest differences between categories."""
MOST_OTHERS = 256
"""The most columns of other sections that code points are drawn from."""


def simplex_codes(frequencies: Array) -> Array:
    """The corners of a simplex, whitened: Σ p_c m_c = 0 and Σ p_c m_c m_cᵀ = I.

    With equal frequencies the simplex is regular. A corner lies at the distance √(1/p_c − 1), so
    rare categories count as one in a hundred.

    Args:
        frequencies: how frequent every category is, `(categories,)`.

    Returns:
        The code points `(categories, categories - 1)`.

    Example:
        >>> simplex_codes(np.array([0.5, 0.5]))
        array([[-1.],
               [ 1.]])
    """
    roots = np.sqrt(simplex_weights(frequencies))
    direction = roots.copy()
    direction[0] += 1.0
    # A reflection that takes the first axis to −√p: its other columns are orthogonal to √p.
    mirror = np.eye(len(roots)) - np.outer(direction, direction) / (1.0 + roots[0])
    return np.asarray(mirror[:, 1:] / roots[:, None])


def simplex_weights(frequencies: Array) -> Array:
    """The frequencies by which a simplex is whitened: none below one in a hundred."""
    shares = frequencies / frequencies.sum()
    raised = np.maximum(shares, RAREST)
    return np.asarray(raised / raised.sum())


def spread_codes(count: int, width: int) -> Array:
    """Different points `(count, width)`, spread like a standard Normal and always the same.

    Example:
        >>> bool(np.abs(spread_codes(1000, 8).mean(0)).max() < 0.1)
        True
    """
    # The additive recurrence of the generalised golden ratio fills a cube evenly.
    ratio = 2.0
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (width + 1))
    steps = ratio ** -np.arange(1.0, width + 1)
    cube = (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0
    return np.asarray(special.ndtri(np.clip(cube, 1e-9, 1 - 1e-9)))


def whitened(points: Array, frequencies: Array) -> Array:
    """Points moved and turned so that Σ p_c m_c = 0 and Σ p_c m_c m_cᵀ = I.

    Raises:
        numpy.linalg.LinAlgError: if the points do not span their space.
    """
    shares = frequencies / frequencies.sum()
    centred = points - shares @ points
    covariance = (centred * shares[:, None]).T @ centred
    values, vectors = np.linalg.eigh(covariance)
    if values[0] <= 1e-14 * values[-1]:
        raise np.linalg.LinAlgError("code points must span their space")
    # The symmetric root moves the axes least, so that the order of the directions stays.
    return np.asarray(centred @ (vectors / np.sqrt(values)) @ vectors.T)


def category_means(members: Array, count: int, values: Array, observed: Mask) -> Array:
    """The mean of every column in every category, drawn towards 0 where it rests on few cells.

    A mean of n cells counts (n − 1) / (n − 1 + 10): a category that is seen once would otherwise
    repeat its row, and a model would learn to read hidden cells off it.

    Args:
        members: the category of every row, -1 for none.
        count: how many categories there are.
        values: standardised columns `(width, rows)`, anything where they are not observed.
        observed: which of them are observed.

    Returns:
        The means `(count, width)`.
    """
    rows = np.flatnonzero(members >= 0)
    ones = np.ones(len(rows))
    membership = sparse.csr_matrix((ones, (members[rows], rows)), shape=(count, len(members)))
    sums = membership @ np.where(observed, values, 0.0).T
    cells = membership @ observed.T.astype(np.float64)
    means = sums / np.maximum(cells, 1.0)
    trust = np.maximum(cells - 1.0, 0.0)
    return np.asarray(means * trust / (trust + CAUTION))


def optimal_codes(means: Array, frequencies: Array) -> Array:
    """Code points that keep most of how categories differ in the other columns.

    The leading eight principal directions of the categories' means, weighted by frequency, with a
    fixed small spread that keeps the points apart (and stands in for directions that are missing),
    whitened. Points further out than ten are drawn in, so that none of them is an outlier.

    Args:
        means: the means of the other columns in every category, `(categories, columns)`.
        frequencies: how frequent every category is.

    Returns:
        The code points `(categories, 8)`.
    """
    shares = frequencies / frequencies.sum()
    centred = means - shares @ means
    spreads = shares @ centred**2
    if centred.shape[1] > MOST_OTHERS:
        chosen = np.sort(np.argsort(-spreads, kind="stable")[:MOST_OTHERS])
        centred = centred[:, chosen]
    points = np.zeros((len(means), WIDEST))
    directions = _leading(centred, shares)
    points[:, : directions.shape[1]] = centred @ directions
    size = float(np.sqrt((shares @ points**2).max()))
    points += SPREAD * (size or 1.0) * whitened(spread_codes(len(means), WIDEST), frequencies)
    return drawn_in(whitened(points, frequencies))


def drawn_in(points: Array) -> Array:
    """Points whose distance r from the origin, beyond ten, becomes 10 + log(1 + r − 10).

    Example:
        >>> drawn_in(np.array([[3.0, 4.0], [30.0, 40.0]])).round(3)
        array([[ 3.   ,  4.   ],
               [ 8.228, 10.971]])
    """
    distance = np.linalg.norm(points, axis=1, keepdims=True)
    shorter = FURTHEST + np.log1p(np.maximum(distance - FURTHEST, 0.0))
    return np.asarray(
        np.where(distance > FURTHEST, points * (shorter / (distance + 1e-300)), points)
    )


def _leading(centred: Array, shares: Array) -> Array:
    """The principal directions `(columns, at most 8)`, each with its largest entry positive."""
    gram = (centred * shares[:, None]).T @ centred
    values, vectors = np.linalg.eigh(gram)
    useful = min(WIDEST, int((values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)).sum()))
    found = vectors[:, ::-1][:, :useful]
    if not useful:
        return found
    largest = found[np.abs(found).argmax(axis=0), np.arange(useful)]
    return np.asarray(found * np.sign(largest))


def joint_codes(
    members: Sequence[Array], counts: Sequence[Array], others: Sequence[tuple[Array, Mask]]
) -> list[Array]:
    """Code points of several columns with many categories, each drawn from all other columns.

    They begin as fixed spread points and are drawn twice, so that columns with many categories see
    each other too.

    Args:
        members: for each of these columns, the category of every row, -1 for none.
        counts: how often each category was seen.
        others: values and mask of all other columns' sections, each `(width, rows)`.

    Returns:
        The code points of each column, `(categories, 8)`.
    """
    codes = [whitened(spread_codes(len(count), WIDEST), count) for count in counts]
    for _ in range(2 if len(codes) > 1 else 1):
        sections = [placed(*pair) for pair in zip(codes, members, strict=True)]
        for place, (member, count) in enumerate(zip(members, counts, strict=True)):
            rest = [*others, *sections[:place], *sections[place + 1 :]]
            means = [category_means(member, len(count), *section) for section in rest]
            codes[place] = optimal_codes(
                np.column_stack([np.zeros((len(count), 0)), *means]), count
            )
    return codes


def placed(codes: Array, members: Array) -> tuple[Array, Mask]:
    """The code points of rows, 0 where there is none, and which are there; both `(width, rows)`."""
    seen = members >= 0
    if not len(codes):
        return np.zeros((codes.shape[1], len(members))), np.zeros(
            (codes.shape[1], len(members)), bool
        )
    section = np.where(seen, codes.T[:, members], 0.0)
    return section, np.broadcast_to(seen, section.shape)
