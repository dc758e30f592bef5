"""What commands print: tables and bars for people, JSON for scripts."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vfg.cli.errors import show_controls

if TYPE_CHECKING:
    from rich.console import Console

BLOCKS = " ▁▂▃▄▅▆▇█"
"""Eighths of a line's height."""
BARS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
"""Eighths of a character's width."""


def console() -> Console:
    """Where people read results: standard output."""
    from rich.console import Console

    class PipedConsole(Console):
        """Leaves it to the command what happens when the reader of the output is gone."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipedConsole(highlight=False, soft_wrap=True)


def print_text(text: str = "", *, bold: str = "") -> None:
    """Print text for people, its beginning in bold; names in it cannot control the terminal."""
    from rich.text import Text

    shown = Text(show_controls(text))
    shown.stylize("bold", 0, len(show_controls(bold)))
    console().print(shown)


def print_json(value: Any) -> None:
    """Print JSON; numbers that are not finite, which JSON lacks, become null."""
    print(json.dumps(replace_nonfinite(value), indent=2, ensure_ascii=False))


def replace_nonfinite(value: Any) -> Any:
    """A nested value with None in place of numbers that are not finite.

    Example:
        >>> replace_nonfinite({"a": [1.0, float("nan")]})
        {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): replace_nonfinite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_names(names: Sequence[str], *, as_json: bool) -> None:
    """Names to choose from, one a line, or as a list for scripts."""
    if as_json:
        print_json(list(names))
    else:
        print_text("\n".join(names))


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None
) -> None:
    """Print a table; numbers to the right, anything else to the left."""
    from rich.markup import escape
    from rich.table import Table

    numeric = [all(isinstance(row[k], int | float) for row in rows) for k in range(len(heads))]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head, is_number in zip(heads, numeric, strict=True):
        table.add_column(head, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # Names of columns may look like markup.
        table.add_row(*(escape(show_controls(format_value(cell))) for cell in row))
    console().print(table)


def format_value(value: Any) -> str:
    """A value as people read it: four digits of a number, nothing for one that is not known.

    Example:
        >>> (
        ...     format_value(3.14159),
        ...     format_value(1234567.0),
        ...     format_value(float("nan")),
        ...     format_value("text"),
        ...     format_value(12),
        ... )
        ('3.142', '1.235e+06', '', 'text', '12')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def histogram(
    values: Any, width: int = 48, height: int = 4, ends: tuple[str, str] | None = None
) -> list[str]:
    """A picture of numbers in lines of text, with the ends of the axis, or their names, below.

    Whole numbers have a bar each if there is room.

    Example:
        >>> for line in histogram([0, 1, 1, 2, 2, 2, 3, 3, 4], width=5, height=1):
        ...     print(line)
        ▃▅█▅▃
        0   4
    """
    import numpy as np

    numbers = np.asarray(values, dtype=float)
    low, high = float(numbers.min()), float(numbers.max())
    left, right = (format_value(low), format_value(high)) if ends is None else ends
    if not low < high:
        return [f"always {left}"]
    kinds = int(high - low) + 1
    broad = width // kinds if kinds <= width and (numbers % 1 == 0).all() else 0
    margin = 0.5 if broad else 0.0
    bins = kinds if broad else width
    counts, _ = np.histogram(numbers, bins=bins, range=(low - margin, high + margin))
    counts = np.repeat(counts, max(broad, 1))
    heights = np.rint(counts / counts.max() * 8 * height).astype(int)
    lines = [
        "".join(_mark(int(tall) - 8 * line) for tall in heights) for line in reversed(range(height))
    ]
    return [*map(to_drawable, lines), left + right.rjust(len(heights) - len(left))]


def bars(values: Sequence[float]) -> str:
    """Numbers as bars side by side, the least one the lowest.

    Example:
        >>> bars([1.0, 2.0, 3.0])
        '▁▅█'
    """
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    span = (high - low) or 1.0
    marks = [
        _mark(1 + round(7 * (value - low) / span)) if math.isfinite(value) else " "
        for value in values
    ]
    return to_drawable("".join(marks))


def bar(share: float, width: int = 24) -> str:
    """A share between 0 and 1 as a bar.

    Example:
        >>> bar(0.5, width=4), bar(0.3, width=4)
        ('██', '█▎')
    """
    eighths = max(0, min(8 * width, round(8 * width * share)))
    return to_drawable("█" * (eighths // 8) + BARS[eighths % 8])


def to_drawable(text: str) -> str:
    """Blocks as the terminal can show them: as they are, or in ASCII."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return "".join("#" if mark in BLOCKS[4:] + BARS[4] else " " for mark in text)
    return text


def _mark(eighths: int) -> str:
    return BLOCKS[max(0, min(8, eighths))]
