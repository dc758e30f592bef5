"""Write docs/results.md, its pages and the README's results from the files under docs/results.

A section is a function from the content of a file to markdown, called like the file.

    python -m experiments.report
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from ..results import FOLDER, PROJECT
from . import goals, images, imputation, missing, mixed, paper, speed, structure, summary, tables
from .render import Found, fill

Section = Callable[[Found], str]
PAGES: dict[str, tuple[str, dict[str, Section]]] = {
    "imputation": (
        "Results on missing cells",
        {
            "imputation": imputation.imputation,
            "effort": imputation.effort,
            "shifts": imputation.shifts,
            "intervals": imputation.intervals,
        },
    ),
    "mixed": ("Results on mixed tables", {"mixed": mixed.mixed}),
    "missing": (
        "Results on why cells are missing",
        {
            "mnar_linear": missing.mnar,
            "mechanisms": missing.mechanisms,
            "not_miwae_linear": missing.protocol,
            "multiple_imputation": missing.multiple_imputation,
        },
    ),
    "densities": ("Results on densities", {"density": tables.density}),
    "images": (
        "Results on images",
        {
            "likelihood": images.likelihood,
            "image_finishing": images.image_finishing,
            "image_ablation": images.image_ablation,
            "conditional_images": images.conditional_images,
            "likelihood_benchmark": images.likelihood_benchmark,
            "representation": images.representation,
        },
    ),
    "paper": (
        "Results of the paper's experiments",
        {
            "synthetic": paper.synthetic,
            "california": paper.california,
            "gaussian": paper.gaussian,
            "universality": tables.universality,
            "layerwise": tables.layerwise,
        },
    ),
    "structure": (
        "Results on graphs and interventions",
        {
            "structure": structure.structure,
            "graph_models": structure.graph_models,
            "interventions": structure.interventions,
        },
    ),
    "speed": (
        "Results on speed",
        {
            "speed": speed.speed,
            "bigtable": speed.bigtable,
            "engines": speed.engines,
            "gaussian_fit": tables.gaussian_fit,
        },
    ),
}
"""The files of every page, in their order."""
LINES: dict[str, Section] = {
    "synthetic": paper.synthetic_line,
    "california": paper.california_line,
    "gaussian": paper.gaussian_line,
    "likelihood": images.likelihood_lines,
    "representation": images.representation_line,
}
"""Lines of the table that the page on the paper opens with."""
GOALS: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
    "imputation": (goals.imputation, ("imputation", "effort")),
    "mixed": (goals.mixed, ("mixed",)),
    "images": (goals.images, ("likelihood", "image_finishing", "conditional_images")),
}
"""The goals that pages open with, and the files behind them."""


def pages() -> dict[str, str]:
    """The text of every page by its name."""
    found = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
    shown = {"table": summary.table(found), "aside": summary.table(found, aside=True)}
    told = {
        "remarks": summary.remarks(found),
        "versions": summary.versions(found),
        "notes": summary.notes(found),
    }
    told["mixed"] = mixed.counted(found["mixed"]) if "mixed" in found else ""
    texts = {"results": fill("results", **shown, **told)}
    for name, (title, sections) in PAGES.items():
        parts = [make(found[file]) for file, make in sections.items() if file in found]
        if name == "paper":
            lines = "\n".join(LINES[file](found[file]).strip() for file in LINES if file in found)
            parts.insert(0, fill("opening", lines=lines))
        told, files = GOALS.get(name, (None, ()))
        if told is not None and found.keys() >= set(files):
            parts.insert(0, told(*(found[file] for file in files)))
        texts[f"results-{name}"] = fill("results.page", title=title, text="\n".join(parts))
    return {name: re.sub(r"\n{3,}", "\n\n", text).strip() + "\n" for name, text in texts.items()}


README = PROJECT / "README.md"
PLACE = re.compile(r"(?<=<!-- experiments.report -->\n).*(?=<!-- end -->)", re.DOTALL)
"""Where the results of the README stand."""


def readme() -> str:
    """The README with the results of today's files."""
    found = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
    return PLACE.sub(lambda _: f"\n{summary.readme(found).strip()}\n\n", README.read_text())


def main() -> None:
    for name, text in pages().items():
        (PROJECT / "docs" / f"{name}.md").write_text(text)
    README.write_text(readme())


if __name__ == "__main__":
    main()
