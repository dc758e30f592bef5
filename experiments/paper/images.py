"""Sets of images as rows of pixels on the device, grey or binary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vfg import data

from .image_training import DEVICE

LOADERS: dict[str, Callable[[], data.Images]] = {
    "mnist": data.mnist,
    "binarized mnist": data.binarized_mnist,
    "caltech": data.caltech,
    "omniglot": data.omniglot,
    "digits": data.digits,
}


@dataclass(frozen=True)
class Images:
    """Rows of pixels from 0 to 1 in three parts, with their labels where they are known."""

    source: str
    train: Tensor
    valid: Tensor
    test: Tensor
    labels: dict[str, Tensor]
    levels: int
    """How many shades of grey there are."""

    @property
    def side(self) -> int:
        """Of the square images."""
        return round(self.train.shape[1] ** 0.5)

    def some(self, each: int) -> Tensor:
        """Positions of so many test images of every digit."""
        places = [(self.labels["test"] == digit).nonzero()[:each, 0] for digit in range(10)]
        return torch.cat(places)


def load(name: str) -> Images:
    """A set of images with its shades of grey."""
    found = LOADERS[name]()
    parts = (
        torch.from_numpy(part.astype(np.float32) / found.peak).to(DEVICE)
        for part in (found.train, found.validation, found.test)
    )
    labels = {part: torch.from_numpy(of).to(DEVICE) for part, of in (found.labels or {}).items()}
    return Images(found.source, *parts, labels=labels, levels=found.peak + 1)


def binary(name: str) -> Images:
    """A set of images whose validation and test pixels are drawn black or white once.

    Training pixels are probabilities, to be drawn at every step.
    """
    images = load("binarized mnist" if name == "mnist" else name)
    if name == "digits":  # what is drawn from so few shades of so few pixels is mostly noise
        parts = {part: (getattr(images, part) > 0.5).float() for part in ("train", "valid", "test")}
        return replace(images, **parts)
    generator = torch.Generator().manual_seed(0)
    drawn = [part.cpu().bernoulli(generator=generator) for part in (images.valid, images.test)]
    return replace(images, valid=drawn[0].to(DEVICE), test=drawn[1].to(DEVICE))
