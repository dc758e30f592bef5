"""Run four guides as notebooks and write them with their outputs: tools/notebooks.py [NAME ...].

A notebook has the prose and the code of a page under docs/, what the code prints, and its pictures
at a small size.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GUIDES = {
    "fill-a-table": "start",
    "ask-a-network": "networks",
    "structure-and-interventions": "structure",
    "reproduce-the-paper": "reproduce",
}
"""Notebooks, and the pages that they come from."""
DOTS = 55
"""Dots per inch of a picture: legible, and some kilobytes."""


def load_conf() -> Any:
    """The module that turns a page into cells."""
    spec = importlib.util.spec_from_file_location("conf", ROOT / "docs" / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    return conf


def cells_of(page: str) -> list[dict[str, Any]]:
    """The cells of a page; pictures of the page are left out, since the code draws them."""
    text = re.sub(r"^!\[[^\]]*\]\([^)]+\)\n\n?", "", page_text(page), flags=re.MULTILINE)
    text = re.sub(r"\]\(([\w-]+)\.md", r"](../docs/\1.md", text)
    cells: list[dict[str, Any]] = load_conf().notebook_cells(text)
    return cells


def page_text(page: str) -> str:
    """The text of a page."""
    return (ROOT / "docs" / f"{page}.md").read_text()


def run_cells(
    cells: list[dict[str, Any]], name: str
) -> Iterator[tuple[dict[str, Any], str, list[str]]]:
    """Every cell of code with what it prints and the pictures that it draws, as base64."""
    import matplotlib.pyplot as plt

    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), name, "exec"), names)
        pictures = []
        for number in plt.get_fignums():
            data = io.BytesIO()
            plt.figure(number).savefig(data, dpi=DOTS, metadata={"Software": None})
            pictures.append(base64.b64encode(data.getvalue()).decode())
        plt.close("all")
        yield cell, printed.getvalue(), pictures


def write_notebook(name: str) -> None:
    """Run a guide and write its notebook."""
    cells = cells_of(GUIDES[name])
    for count, (cell, printed, pictures) in enumerate(run_cells(cells, name), start=1):
        text = {
            "output_type": "stream",
            "name": "stdout",
            "text": printed.splitlines(keepends=True),
        }
        shown = [
            {"output_type": "display_data", "metadata": {}, "data": {"image/png": picture}}
            for picture in pictures
        ]
        cell |= {"execution_count": count, "outputs": [*([text] if printed else []), *shown]}
    notebook = {"cells": cells, "metadata": load_conf().KERNEL, "nbformat": 4, "nbformat_minor": 5}
    path = ROOT / "notebooks" / f"{name}.ipynb"
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    """Write the notebooks that are named, or all."""
    import matplotlib

    matplotlib.use("Agg")
    warnings.simplefilter("ignore")
    os.environ.pop("VFG_DATA", None)  # the tables that every reader has
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in sys.argv[1:] or GUIDES:
            write_notebook(name)


if __name__ == "__main__":
    main()
