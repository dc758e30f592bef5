"""Latent spaces: embeddings of rows, traversals and reconstructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from vfg.plots.style import (
    CATEGORIES,
    FILLED,
    GREYS,
    LINE,
    MARKERS,
    SHADES,
    SMALL,
    axes_or_new,
    blank,
    legend,
    new_figure,
    plain,
    tidy,
    to_array,
)
from vfg.utils.extras import needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]


def embedding(
    points: ArrayLike | Tensor,
    ax: Axes | None = None,
    *,
    colour: ArrayLike | Tensor | None = None,
    name: str = "",
) -> Axes:
    """Draw rows as points of a plane.

    Points of more than two coordinates are shown by their first two principal components, with the
    share of the variance that each has.

    Args:
        points: `(rows, coordinates)`, as from `VFG.embed`, or two columns made in another way.
        ax: where to draw; None makes a new figure.
        colour: one value per row: numbers become shades; texts, truth values and up to eight
            different integers become categories.
        name: what the colour means.

    Raises:
        ValueError: for points without two axes, or colours of another number.

    Example:
        >>> ax = embedding([[0.0, 1.0], [1.0, 0.0]], colour=["a", "b"])
        >>> ax.get_legend_handles_labels()[1]
        ['a', 'b']
    """
    values = to_array(points).astype(np.float64)
    if values.ndim != 2 or values.shape[1] < 1:
        raise ValueError(f"points must be (rows, coordinates), but have shape {values.shape}")
    plane, labels = _plane(values)
    ax = tidy(axes_or_new(ax, 4.4, 3.6), x=labels[0], y=labels[1])
    shades = None if colour is None else to_array(colour)
    if shades is not None and len(shades) != len(plane):
        raise ValueError(f"there are {len(plane)} points, but {len(shades)} colours")
    if shades is None:
        ax.scatter(plane[:, 0], plane[:, 1], s=10, color=CATEGORIES[0], alpha=0.8, linewidths=0)
    elif shades.dtype.kind in "UObS" or (
        shades.dtype.kind in "iu" and len(np.unique(shades)) <= len(CATEGORIES)
    ):
        _by_category(ax, plane, shades, name)
    else:
        drawn = ax.scatter(plane[:, 0], plane[:, 1], s=10, c=shades, cmap=SHADES, linewidths=0)
        bar = ax.figure.colorbar(drawn, ax=ax, label=plain(name))
        bar.ax.tick_params(labelsize=SMALL)
        bar.outline.set_visible(False)
    return ax


def _plane(points: Array) -> tuple[Array, tuple[str, str]]:
    """Two coordinates and what they are called."""
    if points.shape[1] == 1:
        return np.column_stack([points, np.zeros(len(points))]), ("coordinate 0", "")
    if points.shape[1] == 2:
        return points, ("coordinate 0", "coordinate 1")
    components, shares = principal_components(points)
    return components, (f"component 1, {shares[0]:.0%}", f"component 2, {shares[1]:.0%}")


def principal_components(points: Array) -> tuple[Array, Array]:
    """Rows by their two principal components, and the shares of the variance that these have.

    Example:
        >>> principal_components(np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0]]))[0].round(6)
        array([[-1.,  0.],
               [ 1.,  0.]])
    """
    centred = np.nan_to_num(points - points.mean(axis=0))
    room = [(0, max(0, 2 - size)) for size in centred.shape]
    left, sizes, right = np.linalg.svd(np.pad(centred, room), full_matrices=False)
    # The sign of a component is arbitrary: let its largest entry be positive.
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    shares = sizes**2 / max(float((sizes**2).sum()), np.finfo(float).tiny)
    return (left * sizes * signs)[: len(points), :2] + 0.0, shares


def _by_category(ax: Axes, plane: Array, values: Array, name: str) -> None:
    texts = np.array([str(value) for value in values])
    for place, kind in enumerate(dict.fromkeys(str(value) for value in np.unique(values))):
        chosen = texts == kind
        ax.scatter(
            plane[chosen, 0], plane[chosen, 1], s=14, alpha=0.8, linewidths=0, label=plain(kind),
            color=CATEGORIES[place % len(CATEGORIES)], marker=MARKERS[place % len(MARKERS)],
        )  # fmt: skip
    ax.legend(frameon=False, fontsize=SMALL, title=plain(name) or None, title_fontsize=SMALL,
              loc="upper left", bbox_to_anchor=(1.0, 1.0), handletextpad=0.2)  # fmt: skip


def traversal(
    moved: ArrayLike | Tensor,
    values: Sequence[float] | Tensor,
    shape: tuple[int, int],
    *,
    names: Sequence[str] | None = None,
) -> Figure:
    """Draw images while one coordinate moves: a row of pictures per row of the table.

    Args:
        moved: `(rows, values, pixels)`, as from `VFG.traverse`.
        values: what was added to the coordinate, one per column of pictures.
        shape: height and width of an image.
        names: labels of the rows.

    Raises:
        ValueError: if the numbers do not fit together.

    Example:
        >>> figure = traversal(np.zeros((2, 3, 4)), [-1.0, 0.0, 1.0], shape=(2, 2))
        >>> len(figure.axes), figure.axes[0].get_title()
        (6, '-1')
    """
    pictures = to_array(moved)
    if pictures.ndim != 3 or pictures.shape[1] != len(values):
        raise ValueError(
            f"moved must be (rows, {len(values)} values, pixels), but has shape {pictures.shape}"
        )
    figure = _grid(pictures, shape, names)
    for ax, value in zip(figure.axes, values, strict=False):
        ax.set_title(f"{float(value):.3g}", fontsize=SMALL)
    return figure


def reconstructions(
    table: ArrayLike | Tensor,
    rebuilt: ArrayLike | Tensor,
    shape: tuple[int, int],
    *,
    observed: ArrayLike | Tensor | None = None,
) -> Figure:
    """Draw images, their observed parts if these are given, and their reconstructions.

    Args:
        table: images `(rows, pixels)`; take a few rows.
        rebuilt: the same rows as from `VFG.reconstruct`.
        shape: height and width of an image.
        observed: which pixels were seen; adds a row of pictures where the others are coloured.

    Raises:
        ValueError: if the numbers do not fit together.

    Example:
        >>> figure = reconstructions(np.zeros((5, 4)), np.ones((5, 4)), shape=(2, 2))
        >>> len(figure.axes), figure.axes[0].get_ylabel()
        (10, 'data')
    """
    data, rebuilt_images = to_array(table).astype(np.float64), to_array(rebuilt).astype(np.float64)
    if data.ndim != 2 or data.shape != rebuilt_images.shape:
        raise ValueError(
            f"data and reconstructions must be (rows, pixels), but have the shapes {data.shape} "
            f"and {rebuilt_images.shape}"
        )
    if observed is None:
        return _grid(np.stack([data, rebuilt_images]), shape, ["data", "rebuilt"])
    seen = np.where(to_array(observed).astype(bool), data, np.nan)
    return _grid(np.stack([data, seen, rebuilt_images]), shape, ["data", "seen", "rebuilt"])


def _grid(pictures: Array, shape: tuple[int, int], names: Sequence[str] | None) -> Figure:
    """Pictures `(rows, columns, pixels)` side by side in common shades; NaN in a colour."""
    rows, columns, pixels = pictures.shape
    if pixels != shape[0] * shape[1]:
        raise ValueError(f"images of shape {shape} have {shape[0] * shape[1]} pixels, not {pixels}")
    if names is not None and len(names) != rows:
        raise ValueError(f"there are {rows} rows of pictures, but {len(names)} names")
    with needs("plot"):
        import matplotlib
    side = min(0.8, 10.0 / columns)
    figure = new_figure(
        side * columns + 0.4, side * shape[0] / shape[1] * rows + 0.3, rows, columns
    )
    shades = matplotlib.colormaps[GREYS].with_extremes(bad=FILLED)  # for pixels that are not seen
    # A few pixels that run away should not take the contrast from all others.
    low, high = np.nanquantile(pictures, [0.01, 0.99])
    flat = pictures.reshape(rows * columns, *shape)
    for ax, picture in zip(figure.axes, flat, strict=True):
        blank(ax).imshow(picture, cmap=shades, vmin=low, vmax=high, interpolation="nearest")
    for place, name in enumerate(names or ()):
        figure.axes[place * columns].set_ylabel(plain(name), fontsize=SMALL)
    return figure


def traversal_curves(
    moved: ArrayLike | Tensor,
    values: Sequence[float] | Tensor,
    ax: Axes | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> Axes:
    """Draw how columns of a table change while one latent coordinate moves, one line each.

    Args:
        moved: `(values, columns)`: one row of what `VFG.traverse` returned.
        values: what was added to the coordinate.
        ax: where to draw; None makes a new figure.
        columns: their names.

    Raises:
        ValueError: if the numbers do not fit together.

    Example:
        >>> ax = traversal_curves([[0.0, 1.0], [2.0, 1.0]], [-1.0, 1.0], columns=["a", "b"])
        >>> [line.get_ydata().tolist() for line in ax.lines]
        [[0.0, 2.0], [1.0, 1.0]]
    """
    curves = to_array(moved).astype(np.float64)
    if curves.ndim != 2 or len(curves) != len(values):
        raise ValueError(f"moved must be ({len(values)} values, columns), but is {curves.shape}")
    names = [str(k) for k in range(curves.shape[1])] if columns is None else list(columns)
    if len(names) != curves.shape[1]:
        raise ValueError(f"there are {curves.shape[1]} columns, but {len(names)} names")
    ax = tidy(axes_or_new(ax), x="added to the latent coordinate", y="expected value")
    steps = [float(value) for value in values]
    styles = ("-", "--", "-.", ":")
    for place, (name, curve) in enumerate(zip(names, curves.T, strict=True)):
        ax.plot(
            steps, curve, color=CATEGORIES[place % len(CATEGORIES)], linewidth=LINE,
            label=plain(name), linestyle=styles[place % len(styles)],
        )  # fmt: skip
    legend(ax)
    return ax
