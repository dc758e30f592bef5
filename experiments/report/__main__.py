"""Write docs/results.md from the JSON files under docs/results, whichever of them exist.

A section is a function from the content of a file to markdown, called like the file.

    python -m experiments.report
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from ..results import FOLDER, PROJECT
from . import images, imputation, paper, speed, tables
from .render import Found, fill

SECTIONS: dict[str, Callable[[Found], str]] = {
    "synthetic": paper.synthetic,
    "california": paper.california,
    "gaussian": paper.gaussian,
    "likelihood": images.likelihood,
    "representation": images.representation,
    "likelihood_benchmark": images.likelihood_benchmark,
    "imputation": imputation.imputation,
    "density": tables.density,
    "speed": speed.speed,
    "gaussian_fit": tables.gaussian_fit,
    "universality": tables.universality,
    "layerwise": tables.layerwise,
}
"""The files in the order of the page."""
LINES: dict[str, Callable[[Found], str]] = {
    "synthetic": paper.synthetic_line,
    "california": paper.california_line,
    "gaussian": paper.gaussian_line,
    "likelihood": images.likelihood_lines,
    "representation": images.representation_line,
}
"""Lines of the table that the page opens with."""


def page() -> str:
    """The whole page."""
    files = {name: FOLDER / f"{name}.json" for name in SECTIONS}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}
    lines = "\n".join(LINES[name](found[name]).strip() for name in LINES if name in found)
    sections = [SECTIONS[name](content) for name, content in found.items()]
    text = "\n".join([fill("opening", lines=lines), *sections])
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def main() -> None:
    """Write the page."""
    (PROJECT / "docs" / "results.md").write_text(page())


if __name__ == "__main__":
    main()
