"""Latent representations of MNIST (7.3): a VFG tree next to a coupling flow, both with labels.

The VFG has four blocks of 14 x 14 pixels, two nodes and a root of width 196, four coupling layers
per edge, and one prior mean per digit at the root. The flow has the same coupling layers on all 784
pixels at once, as many parameters, and a prior mean per digit too; it is trained on its exact
likelihood. The means start at random and are learned. Labels are used in training alone. The
embedding of an image is the root's state, for sampled states the centre of q; for the flow it is
all of its latent variables.

Measured on the test images: accuracy of the 5 nearest training images in the embedding, accuracy of
a linear classifier on it, its silhouette by digit (of 200 images of each), and how often the
nearest prior mean is that of the right digit.

    python -m experiments.paper.representation            on a GPU
    python -m experiments.paper.representation --quick    scikit-learn's digits, 2 minutes on a CPU
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfg import data

from ..results import arguments, positive
from .image_training import DEVICE, Budget
from .labelled_models import Labelled, Plain, drawn_tree, papers_tree
from .probes import linear_accuracy, nearest_accuracy, prior_accuracy, silhouette
from .representation_figures import draw

OURS, PAPERS, FLOW = "VFG", "VFG, deterministic states (the paper's)", "coupling flow"


@dataclass(frozen=True)
class Digits:
    """Grey images as rows from 0 to 1 with their labels, on the device."""

    train: Tensor
    train_labels: Tensor
    valid: Tensor
    valid_labels: Tensor
    test: Tensor
    test_labels: Tensor
    levels: int
    """How many shades of grey there are."""

    @property
    def side(self) -> int:
        """Of the square images."""
        return round(self.train.shape[1] ** 0.5)

    def some(self, each: int) -> Tensor:
        """Positions of so many test images of every digit."""
        places = [(self.test_labels == digit).nonzero()[:each, 0] for digit in range(10)]
        return torch.cat(places)


def digits(quick: bool) -> Digits:
    found = data.digits() if quick else data.mnist()
    assert found.labels is not None
    parts: list[Tensor] = []
    for name, pixels in zip(
        ("train", "validation", "test"), (found.train, found.validation, found.test), strict=True
    ):
        parts.append(torch.from_numpy(pixels.astype(np.float32) / found.peak).to(DEVICE))
        parts.append(torch.from_numpy(found.labels[name]).to(DEVICE))
    return Digits(*parts, levels=found.peak + 1)


def models(images: Digits, quick: bool, seed: int) -> dict[str, Labelled]:
    """By name; the flow is as large as the paper's VFG."""
    hidden = 48 if quick else 256
    ours = drawn_tree(images.side, hidden, seed)
    papers = papers_tree(images.side, hidden, seed)
    flow = Plain.sized(images.train.shape[1], images.levels, ours.size, seed)
    return {OURS: ours, PAPERS: papers, FLOW: flow}


def trained(
    images: Digits, seeds: list[int], budget: Budget, quick: bool
) -> list[dict[str, Labelled]]:
    """All models of all seeds; all take equally many steps."""
    found = []
    rows, valid = (images.train, images.train_labels), (images.valid, images.valid_labels)
    for seed in seeds:
        found.append(models(images, quick, seed))
        for model in found[-1].values():
            model.to(DEVICE).fit(rows, valid, seed, budget.options(len(images.train)))
    return found


def measured(model: Labelled, images: Digits) -> dict[str, float]:
    known, new = model.embed(images.train), model.embed(images.test)
    prior = prior_accuracy(new, images.test_labels, model.means)
    return {**probed(known, new, images), "prior": prior, "parameters": model.size}


def probed(known: Tensor, new: Tensor, images: Digits) -> dict[str, float]:
    """What rows that stand for the images tell about their labels."""
    rows, few = (known, images.train_labels, new, images.test_labels), images.some(200)
    return {
        "nearest": nearest_accuracy(*rows),
        "linear": linear_accuracy(*rows),
        "silhouette": silhouette(new[few], images.test_labels[few]),
    }


def main() -> None:
    given = arguments(__doc__, steps={"type": positive, "help": "of training"})
    seeds = given.chosen(full=3, quick=1)
    steps = given.steps or (300 if given.quick else 3000)
    budget = Budget(0.0, steps, batch=64 if given.quick else 512)
    images = digits(given.quick)
    found = trained(images, seeds, budget, given.quick)
    pixels = probed(images.train, images.test, images)
    table: dict[str, Any] = {"pixels": {name: [value] for name, value in pixels.items()}}
    described = {
        "seeds": seeds,
        "rows": [len(part) for part in (images.train, images.valid, images.test)],
        "budget": f"{steps} steps",
        "models": table,
    }
    for name in found[0]:
        rows = [measured(by_name[name], images) for by_name in found]
        table[name] = {what: [row[what] for row in rows] for what in rows[0]}
        print(name, table[name], flush=True)
        path = given.write("representation", described)
    print(path)
    draw(found[0], images, given)


if __name__ == "__main__":
    main()
