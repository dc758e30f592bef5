"""Markdown from results: templates with fields, tables, means with their spread.

A template is a text file under `templates/` whose fields are written as for `str.format`: the field
`{rows[0]:,}` is the first entry of the results' `rows`. A line `=== NAME` begins another block.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

Found = dict[str, Any]
"""The content of a result file, or a part of it."""
Cell = str | Callable[[Any], str]
"""A cell of a table as a format of its record's fields, or as a function of the record."""
TEMPLATES = Path(__file__).parent / "templates"
NONE = "–"


@cache
def _blocks(file: str) -> dict[str, str]:
    text = (TEMPLATES / f"{file}.md").read_text()
    first, *others = re.split(r"^=== (\w+)\n", text, flags=re.MULTILINE)
    return {"": first, **dict(zip(others[::2], others[1::2], strict=True))}


def fill(template: str, /, **fields: Any) -> str:
    """A template with its fields, `FILE` or `FILE.BLOCK`.

    The field `provenance` says how results were made if their command is among the fields.
    """
    file, _, block = template.partition(".")
    if "command" in fields:
        fields["provenance"] = provenance(fields)
    return _blocks(file)[block].format(**fields)


def provenance(found: Found) -> str:
    """Command, machine and time; several runs of the command if results are merged."""
    machine = found["machine"]
    where = machine["gpu"] or f"{machine['cores']} CPU cores"
    # What is only collected took longer than collecting.
    took = "" if "--collect" in found["command"] else f", {found['seconds']:.0f} s"
    runs, command = "", found["command"]
    if found.get("merged"):
        runs, command = "Merged from runs of ", command.partition(" --")[0]
    return f"{runs}`{command}`: {where}, torch {machine['torch']}{took}."


def rows(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table from its cells.

    Example:
        >>> print(rows(["a", "b"], [["1", "2"]]))
        | a | b |
        | --- | --- |
        | 1 | 2 |
    """
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def often(names: Iterable[str]) -> str:
    """The two most frequent names, with their number.

    Example:
        >>> often(["a", "b", "a"])
        'a 2, b 1'
    """
    return ", ".join(f"{name} {number}" for name, number in Counter(names).most_common(2))


def folded(title: str, text: str) -> str:
    """Text that a page shows when its title is clicked on.

    Example:
        >>> print(folded("more", "| a |"))
        <details>
        <summary>more</summary>
        <BLANKLINE>
        | a |
        <BLANKLINE>
        </details>
    """
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def table(columns: dict[str, Cell], records: Iterable[Any]) -> str:
    """A table with a line per record and a column per cell.

    Example:
        >>> print(table({"n": "{n:,}", "2 n": lambda r: str(2 * r["n"])}, [{"n": 1000}]))
        | n | 2 n |
        | --- | --- |
        | 1,000 | 2000 |
    """
    return rows(
        list(columns),
        [[filled(cell, record) for cell in columns.values()] for record in records],
    )


def filled(cell: Cell, record: Any) -> str:
    """The text of a cell for a record.

    Example:
        >>> filled("{n:,}", {"n": 1000}), filled(lambda r: str(2 * r["n"]), {"n": 1000})
        ('1,000', '2000')
    """
    return cell.format(**record) if isinstance(cell, str) else cell(record)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean and standard deviation, which a single value does not have.

    Example:
        >>> spread([1.0, 3.0]), spread([1.0], 1)
        ('2.00 ± 1.41', '1.0')
    """
    text = f"{mean(values):.{digits}f}"
    return f"{text} ± {stdev(values):.{digits}f}" if len(values) > 1 else text


def bold(
    texts: Sequence[str], values: Sequence[float | None], best: Callable[..., Any] = min
) -> list[str]:
    """The texts, with those of the best value in bold; None is no value."""
    target = best((value for value in values if value is not None), default=None)
    return [
        f"**{text}**" if value is not None and value == target else text
        for text, value in zip(texts, values, strict=True)
    ]


def apart(ahead: float) -> str:
    """How far two numbers of nats are apart, as `1.25 nats ahead of`."""
    return f"{abs(ahead):.2f} nats {'ahead of' if ahead > 0 else 'behind'}"


def least(values: dict[str, float]) -> str:
    return min(values, key=values.__getitem__)


def plural(number: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> plural(1, "thread"), plural(2, "thread")
        ('1 thread', '2 threads')
    """
    return f"{number} {noun}{'s' if number != 1 else ''}"
