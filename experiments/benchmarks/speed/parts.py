"""Measured parts as files of their own, and all of them as one.

Every part says by itself where, when and how it was measured, so parts of several machines can lie
side by side, and none has to be measured again because another one was.
"""

from __future__ import annotations

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
    """Where a part of a device is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{part}.{slug(name)}.{ending}"


def merged(older: Iterable[Part], newer: Iterable[Part], order: list[str]) -> list[Part]:
    """One of each part and device, the last one measured, in the order of the parts."""
    kept: dict[tuple[str, str], Part] = {}
    for part in (*older, *newer):
        key = part["part"], part["name"]
        if key not in kept or part["measured"] >= kept[key]["measured"]:
            kept[key] = part
    return sorted(kept.values(), key=lambda part: (order.index(part["part"]), part["name"]))
