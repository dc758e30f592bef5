"""Run the code of pages and write what it prints below it: python docs/outputs.py [page ...]."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent.resolve()
PAGES = (
    "graphs", "imputation", "method", "networks", "reproduce", "sections", "structure",
    "uncertainty",
)  # fmt: skip
"""Those that show what they print."""
CODE = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
"""A block of Python, and right below it what it prints."""


def run_page(text: str, name: str) -> Iterator[tuple[re.Match[str], str]]:
    """Every block of a page with what it prints now; all blocks share their names."""
    import matplotlib.pyplot as plt

    names: dict[str, object] = {}
    for block in CODE.finditer(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], name, "exec"), names)
        plt.close("all")
        yield block, printed.getvalue()


def write_outputs(page: Path) -> None:
    """Write what the blocks of a page print into it."""
    text = page.read_text()
    parts, end = [], 0
    for block, printed in run_page(text, page.name):
        shown = "\n".join(line.rstrip() for line in printed.rstrip().splitlines())
        below = f"\n```text\n{shown}\n```\n" if shown else ""
        parts += [text[end : block.start()], f"```python\n{block['code']}```\n", below]
        end = block.end()
    page.write_text("".join(parts) + text[end:])


def main() -> None:
    """Write the outputs of the pages that are named, or of all."""
    import matplotlib

    matplotlib.use("Agg")
    warnings.simplefilter("ignore")
    os.environ.pop("VFG_DATA", None)  # the tables that every reader has
    chosen = sys.argv[1:] or PAGES
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in chosen:
            write_outputs(FOLDER / f"{name}.md")
            print(name)


if __name__ == "__main__":
    main()
