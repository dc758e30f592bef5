"""Binary images: static binarized MNIST, and small digits for quick runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Images:
    """Binary images as rows, in three parts on the device."""

    train: Tensor
    valid: Tensor
    test: Tensor
    side: int


def mnist() -> Images:
    """The fixed binarization in its published split: 50,000, 10,000 and 10,000 rows."""
    if "VFG_DATA" not in os.environ:
        raise SystemExit("set VFG_DATA to the folder that holds mnist_static_binarized.npz")
    with np.load(Path(os.environ["VFG_DATA"]) / "mnist_static_binarized.npz") as found:
        parts = [np.unpackbits(found[name], axis=1)[:, :784] for name in ("train", "valid", "test")]
    return Images(*(torch.from_numpy(part).float().to(DEVICE) for part in parts), side=28)


def digits() -> Images:
    """scikit-learn's 8 x 8 digits, binarized at half their range."""
    from sklearn.datasets import load_digits

    rows = torch.from_numpy((load_digits().data > 7.5).astype(np.float32))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    train, valid, test = rows[order].to(DEVICE).split([1197, 300, 300])
    return Images(train, valid, test, side=8)
