"""The binary images of the likelihood experiment, on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vfg import data

from .image_training import DEVICE


@dataclass(frozen=True)
class Binary:
    """Rows of pixels in three parts.

    Training pixels are probabilities, drawn black or white afresh at every step, which leaves
    images that are binary as they are; validation and test pixels are drawn once.
    """

    source: str
    train: Tensor
    valid: Tensor
    test: Tensor

    @property
    def side(self) -> int:
        """Of the square images."""
        return round(self.train.shape[1] ** 0.5)


LOADERS: dict[str, Callable[[], data.Images]] = {
    "mnist": data.binarized_mnist,
    "caltech": data.caltech,
    "omniglot": data.omniglot,
    "digits": data.digits,
}
"""Data sets by name."""


def binary(name: str) -> Binary:
    found = LOADERS[name]()
    train, valid, test = (
        torch.from_numpy(part.astype(np.float32)) / found.peak
        for part in (found.train, found.validation, found.test)
    )
    if name == "digits":  # what is drawn from so few shades of so few pixels is mostly noise
        train, valid, test = ((part > 0.5).float() for part in (train, valid, test))
    generator = torch.Generator().manual_seed(0)
    fixed = (part.bernoulli(generator=generator).to(DEVICE) for part in (valid, test))
    return Binary(found.source, train.to(DEVICE), *fixed)
