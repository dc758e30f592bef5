"""A training run on disk: one file, replaced as a whole, so that a killed run can go on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vfg.utils.files import write_atomically

FILE = "training.safetensors"


class Checkpoint:
    """The folder of a run.

    Args:
        folder: where it is, or will be.
        fingerprint: what identifies the run; a folder that belongs to another is refused.

    Raises:
        ValueError: if the folder holds another run or a file that cannot be read.
    """

    def __init__(self, folder: str | Path, fingerprint: str) -> None:
        self.path = Path(folder) / FILE
        self.fingerprint = fingerprint

    def write(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Replace what is there by a new state."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        described = json.dumps({"fingerprint": self.fingerprint, **progress})
        write_atomically(self.path, save(plain, metadata={"vfg-training": described}))

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last state, or None if the run has not begun."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                progress = json.loads(file.metadata()["vfg-training"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"the checkpoint {self.path} cannot be read ({error}); remove it to start again"
            ) from error
        if progress["fingerprint"] != self.fingerprint:
            raise ValueError(
                f"the checkpoint {self.path} belongs to a run with another model, table or "
                "settings; name another folder, or remove it to start again"
            )
        return tensors, progress


def fingerprint(described: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """A digest of settings and tensors."""
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
    for name, tensor in tensors.items():
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
