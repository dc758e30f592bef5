"""Small symmetric systems entry by entry: every operation works on many systems at once.

LAPACK takes longer to be called for a matrix of eight rows than to factorise it. Here a stack of
systems is an array `(entries, systems)` of their lower triangles, row by row, and each has a
border: a last row with its right side, and a number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


def triangle(size: int) -> int:
    """How many entries the lower triangle of a matrix has.

    Example:
        >>> triangle(3)
        6
    """
    return size * (size + 1) // 2


def packed(matrices: Array) -> Array:
    """The lower triangles of matrices `(..., n, n)`, row by row, `(..., entries)`.

    Example:
        >>> packed(np.array([[1.0, 2.0], [2.0, 3.0]]))
        array([1., 2., 3.])
    """
    found: Array = matrices[(..., *np.tril_indices(matrices.shape[-1]))]
    return found


def unpacked(triangles: Array, size: int) -> Array:
    """Symmetric matrices `(..., n, n)` from their lower triangles `(..., entries)`.

    Example:
        >>> unpacked(np.array([1.0, 2.0, 3.0]), 2)
        array([[1., 2.],
               [2., 3.]])
    """
    rows, columns = np.tril_indices(size)
    places = np.empty((size, size), dtype=np.intp)
    places[rows, columns] = places[columns, rows] = np.arange(triangle(size))
    return np.asarray(triangles[..., places])


def eliminate(systems: Array, size: int) -> Array:
    r"""Eliminate all unknowns of positive systems A with borders (b', s), in place.

    Args:
        systems: `(triangle(size + 1), systems)`; afterwards the last entries are
            $s - b^\top A^{-1} b$.
        size: how many unknowns a system has.

    Returns:
        The logarithms of their determinants.

    Example:
        >>> systems = np.array([[2.0], [6.0], [0.0]])
        >>> eliminate(systems, 1).round(4), systems[-1]
        (array([0.6931]), array([-18.]))
    """
    pivots = np.empty((size, systems.shape[1]))
    scratch = np.empty((size + 1, systems.shape[1]))
    for step in range(size):
        pivots[step] = systems[triangle(step) + step]
        column = systems[[triangle(row) + step for row in range(step + 1, size + 1)]]
        for place, factor in enumerate(column / pivots[step]):
            first = triangle(step + 1 + place) + step + 1
            part = np.multiply(column[: place + 1], factor, out=scratch[: place + 1])
            systems[first : first + place + 1] -= part
    return np.asarray(np.log(pivots, out=pivots).sum(0))


def invert(systems: Array, size: int) -> Array:
    r"""Invert positive matrices A with borders (b', s), in place.

    Args:
        systems: `(triangle(size + 1), systems)`; afterwards they hold $-A^{-1}$, and in the border
            $A^{-1} b$ and $s - b^\top A^{-1} b$.
        size: how many rows a matrix has.

    Returns:
        The logarithms of their determinants.

    Example:
        >>> systems = np.array([[2.0], [6.0], [0.0]])
        >>> invert(systems, 1).round(4), systems[:, 0]
        (array([0.6931]), array([ -0.5,   3. , -18. ]))
    """
    pivots = np.empty((size, systems.shape[1]))
    scratch = np.empty((size + 1, systems.shape[1]))
    for step in range(size):
        pivot = pivots[step]
        pivot[:] = systems[triangle(step) + step]
        # The pivot's row up to the diagonal, and its column below.
        places = [triangle(max(row, step)) + min(row, step) for row in range(size + 1)]
        column = systems[places]
        factors = column / pivot
        for row, factor in enumerate(factors):
            if row != step:
                part = np.multiply(column[: row + 1], factor, out=scratch[: row + 1])
                systems[triangle(row) : triangle(row) + row + 1] -= part
        systems[places] = factors
        systems[triangle(step) + step] = -1.0 / pivot
    return np.asarray(np.log(pivots, out=pivots).sum(0))
