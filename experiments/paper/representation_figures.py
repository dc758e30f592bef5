"""The pictures of the representation experiment."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfg.plots.style import CATEGORIES, MARKERS, blank, tidy

from ..results import Arguments, subplots

STEPS = 9
"""Of a traversal."""
CENTRED = {"weight": "bold", "ha": "center", "va": "center"}


def draw(models: dict[str, Any], images: Any, given: Arguments) -> None:
    """Reconstructions, t-SNE of the embeddings, traversals."""
    tree = next(iter(models.values()))
    for name, drawn in {
        "representation_reconstructions": lambda: reconstructions(models, images),
        "representation_traversals": lambda: traversals(tree, images),
        "representation_tsne": lambda: neighbourhoods(models, images, 20 if given.quick else 200),
    }.items():
        given.save(drawn(), name)


def reconstructions(models: dict[str, Any], images: Any) -> Any:
    """Test digits, and what the trees make of them."""
    shown = images.test[images.some(2)]
    rows = {"test images": shown}
    for name, model in models.items():
        if hasattr(model, "reconstruct"):
            rows[name] = model.reconstruct(shown)
    return _gallery([[_image(one) for one in row] for row in rows.values()], list(rows))


def neighbourhoods(models: dict[str, Any], images: Any, each: int) -> Any:
    """t-SNE of as many test images of every digit, one panel per model."""
    from matplotlib.patheffects import withStroke
    from sklearn.manifold import TSNE

    few = images.some(each)
    labels = images.labels["test"][few].cpu().numpy()
    figure, axes = subplots(1, len(models), figsize=(5 * len(models), 5))
    for axis, (name, model) in zip(axes, models.items(), strict=True):
        rows = model.embed(images.test[few]).cpu().numpy()
        flat = TSNE(init="pca", random_state=0).fit_transform(rows)
        for digit in range(10):
            chosen = flat[labels == digit]
            look = {"color": CATEGORIES[digit % 7], "marker": MARKERS[digit % 8]}
            axis.scatter(*chosen.T, s=6, lw=0, **look)
            digit_label = axis.text(*np.median(chosen, axis=0), str(digit), fontsize=14, **CENTRED)
            digit_label.set_path_effects([withStroke(linewidth=3, foreground="white")])
        tidy(blank(axis), title=name)
    return figure


def traversals(tree: Any, images: Any, coordinates: int = 6) -> Any:
    """Images decoded while one coordinate of the root grows: those with the largest effects."""
    rows = images.test[images.some(1)]
    state, spread = tree.embed(rows), tree.embed(images.test).std(0)
    effects = torch.stack([_effect(tree, state, k, spread[k]) for k in range(state.shape[1])])
    chosen = effects.argsort(descending=True)[:coordinates].tolist()
    lines, names = [], []
    for place, k in enumerate(chosen):
        start = state[(3 * place) % len(state)][None]
        moves = torch.linspace(-3.0, 3.0, STEPS, device=state.device)
        lines.append([_image(one) for one in tree.decode(_moved(start, k, moves * spread[k]))])
        names.append(f"h[{k}]")
    return _gallery(lines, names)


def _effect(tree: Any, state: Tensor, coordinate: int, spread: Tensor) -> Tensor:
    """How far images change between two deviations below and above."""
    low, high = (
        tree.decode(_moved(state, coordinate, sign * 2.0 * spread[None])) for sign in (-1, 1)
    )
    return (high - low).square().sum(1).mean()


def _moved(state: Tensor, coordinate: int, moves: Tensor) -> Tensor:
    """States with one coordinate moved: one state by several moves, or several by one."""
    moved = state.expand(max(len(state), len(moves)), -1).clone()
    moved[:, coordinate] += moves
    return moved


def _image(row: Tensor) -> Any:
    side = round(len(row) ** 0.5)
    return row.view(side, side).cpu().numpy()


def _gallery(lines: list[list[Any]], names: list[str]) -> Any:
    columns = len(lines[0])
    figure, axes = subplots(
        len(lines), columns, figsize=(0.62 * columns + 1.2, 0.68 * len(lines)), squeeze=False
    )
    for line, name, row in zip(lines, names, axes, strict=True):
        for picture, axis in zip(line, row, strict=True):
            axis.imshow(picture, cmap="gray_r", vmin=0.0, vmax=1.0)
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return figure
