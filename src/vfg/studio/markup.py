"""HTML and SVG from plain functions, where every text is escaped; pixels as pictures."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from vfg.graph import Graph
from vfg.inference.variables import Array


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: Any, **attributes: Any) -> Markup:
    """An element of HTML or SVG.

    Children are escaped unless they are markup. Attributes have `_` for `-` and after Python's own
    words. None and False are left out; True has no value.

    Example:
        >>> element("p", "1 < 2", class_="note", aria_hidden="true", hidden=False)
        '<p class="note" aria-hidden="true">1 &lt; 2</p>'
    """
    words = [
        f" {_attribute(key, value)}"
        for key, value in attributes.items()
        if value is not None and value is not False
    ]
    opening = f"<{tag}{''.join(words)}"
    if tag in ("path", "line", "rect", "circle", "input", "img", "br"):
        return Markup(f"{opening}/>")
    return Markup(f"{opening}>{concat(*children)}</{tag}>")


def concat(*children: Any) -> Markup:
    """Pieces of markup and texts, one after the other."""
    parts = (child for child in children if child is not None)
    return Markup("".join(c if isinstance(c, Markup) else escape(str(c)) for c in parts))


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    return name if value is True else f'{name}="{escape(str(value))}"'


ROOM = 0.3
"""How far expected grey values may lie beyond black and white and still be taken for such."""


def picture_shape(graph: Graph) -> tuple[int, int] | None:
    """Height and width of the image whose pixels are the columns, or None if they are none.

    Example:
        >>> (
        ...     picture_shape(Graph.blocks(4, 6, rows=2, columns=2)),
        ...     picture_shape(Graph.star({"a": 9})),
        ... )
        ((4, 6), None)
    """
    leaves = [graph.node(leaf) for leaf in graph.leaves]
    if not all(leaf.columns and leaf.name.startswith("block") for leaf in leaves):
        return None
    pixels = [int(k) for k in leaves[0].columns or ()]
    total = sum(leaf.width for leaf in leaves)
    jump = next(((k, b - a) for k, (a, b) in enumerate(pairwise(pixels)) if b - a > 1), None)
    # A block as wide as the image does not show where a row of pixels ends.
    width = jump[0] + jump[1] if jump else math.isqrt(total)
    return (total // width, width) if width and total % width == 0 else None


def png(pixels: Array, known: Array | None = None) -> str:
    """Grey values between 0 and 1, `(height, width)`, as the address of a PNG picture.

    Pixels that are not known are transparent.

    Example:
        >>> png(np.zeros((1, 1)))[:30]
        'data:image/png;base64,iVBORw0K'
    """
    grey = np.rint(np.clip(np.nan_to_num(pixels), 0.0, 1.0) * 255.0).astype(np.uint8)
    height, width = grey.shape
    if known is not None:
        opaque = np.where(known, 255, 0).astype(np.uint8)
        grey = np.stack([grey, opaque], axis=2).reshape(height, 2 * width)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), grey], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if known is None else 4, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)
    return "data:image/png;base64," + base64.b64encode(whole).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def stretch(pixels: Array) -> Array:
    """Pixels moved to lie between 0 and 1, but for a few, if most do not do so already."""
    low, high = (float(end) for end in np.nanquantile(pixels, [0.02, 0.98]))
    if low >= -ROOM and high <= 1.0 + ROOM:
        return pixels
    return (pixels - low) / ((high - low) or 1.0)
