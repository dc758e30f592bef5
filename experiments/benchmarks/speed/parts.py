"""Measured parts as files of their own, and all of them as one.

Every part says by itself where, when and how it was measured, so parts of several machines can lie
side by side, and none has to be measured again because another one was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ...results import slug

Part = dict[str, Any]


def device_name(device: torch.device, threads: int) -> str:
    """What a part was measured on, in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    text = information.read_text() if information.is_file() else ""
    found = re.search(r"model name\s*:\s*(.+)", text)
    return re.sub(r"\((R|TM)\)", "", found.group(1)).strip() if found else "CPU"


def file_of(folder: Path, part: str, name: str, ending: str) -> Path:
    """Where a part of a device is kept.

    Example:
        >>> file_of(Path("speed"), "edges", "NVIDIA H200", "json").name
        'edges.nvidia-h200.json'
    """
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{part}.{slug(name)}.{ending}"


def save(folder: Path, part: Part) -> Path:
    """Write one part."""
    path = file_of(folder, part["part"], part["name"], "json")
    path.write_text(json.dumps(part, indent=1) + "\n")
    return path


def load(folder: Path) -> list[Part]:
    """All parts in a folder and the folders in it, in the order of their paths."""
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))]


def merged(older: Iterable[Part], newer: Iterable[Part], order: list[str]) -> list[Part]:
    """One of each part and device, the last one measured, in the order of the parts.

    Example:
        >>> old = {"part": "b", "name": "x", "measured": "2026-01-01", "found": 1}
        >>> new = [{**old, "measured": "2026-01-02", "found": 2}, {**old, "part": "a"}]
        >>> [part["found"] for part in merged([old], new, ["a", "b"])]
        [1, 2]
    """
    kept: dict[tuple[str, str], Part] = {}
    for part in (*older, *newer):
        key = part["part"], part["name"]
        if key not in kept or part["measured"] >= kept[key]["measured"]:
            kept[key] = part
    return sorted(kept.values(), key=lambda part: (order.index(part["part"]), part["name"]))
