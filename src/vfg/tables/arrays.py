"""Arrays of an encoding as part of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from vfg.tables.cells import Array


class Arrays(nn.Module):
    """Arrays of an encoding as buffers, so that model files keep them.

    Args:
        shapes: shape and dtype of every array, by name.
    """

    def __init__(self, shapes: Mapping[str, tuple[list[int], str]]) -> None:
        super().__init__()
        self.shapes = {name: (list(shape), dtype) for name, (shape, dtype) in shapes.items()}
        for name, (shape, dtype) in self.shapes.items():
            self.register_buffer(self._key(name), torch.zeros(shape, dtype=getattr(torch, dtype)))

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Arrays:
        """Buffers that hold given arrays."""
        made = cls({name: (list(a.shape), str(a.dtype)) for name, a in arrays.items()})
        for name, array in arrays.items():
            made.get_buffer(made._key(name)).copy_(torch.from_numpy(np.ascontiguousarray(array)))
        return made

    def read(self) -> dict[str, Array]:
        """The arrays."""
        return {name: self.get_buffer(self._key(name)).cpu().numpy() for name in self.shapes}

    def _apply(self, fn: Any, recurse: bool = True) -> Arrays:
        """Stay as they are when a model changes its dtype: code points are not parameters."""
        return self

    @staticmethod
    def _key(name: str) -> str:
        return "array_" + name.replace(".", "_")
