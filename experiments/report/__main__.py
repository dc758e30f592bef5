"""Write docs/results.md from the JSON files under docs/results, whichever of them exist.

A section is a function from the content of a file to markdown. Sections of one topic are in a
module `TOPIC_report.py`, in a function called like the file.

    python -m experiments.report
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from statistics import mean, stdev
from typing import Any

from ..results import FOLDER, PROJECT
from .opening import opening
from .pages import provenance, rows

Found = dict[str, Any]

FITTING = """## Fitting the exact model

Seconds for `GaussianVFG` on tables from a factor model with cells missing at random, {threads} threads.

{table}
"""

UNIVERSALITY = """## Universal approximation (Theorem 1)

Immersions of R^2 into R^4 and of R^3 into R^7 through `Graph.cover`, read from the root to the leaves. Root mean square
error relative to the best constant, mean over 3 seeds, with 64 hidden units:

{table}

![error against depth and width](images/universality.png)

If every section of the immersion is invertible, as the proof assumes, the error falls towards zero with depth and
width. If sections fold the cube it does not, although the immersion as a whole is injective: networks of
this size find no bijection close to a fold. Lifted into a root of width 8, the same targets are reached again. Couplings scale
by positive numbers, so a section that mirrors its root is out of reach as well; the targets here do not.
"""

LAYERWISE = """## Layer by layer, or all at once

A binary tree over eight sections of two columns, three layers of edges, 5 seeds. One layer of edges per step against all
of them, with equally many steps and with three times as many, so that every edge is updated as often.

{table}

On this tree training all layers at once is better in every respect, also against three times the steps. The paper
recommends layer-wise training for models with more than two layers; we could not confirm it here.
"""


def universality(found: Found) -> str:
    """Errors by depth."""
    depths = [1, 2, 4, 8]
    body = []
    for m in (2, 3):
        for kind in ("invertible blocks", "generic", "generic, lifted"):
            cells = [
                f"{mean(case['errors']):.4f}"
                for depth in depths
                for case in found["cases"]
                if (case["dimension"], case["kind"], case["blocks"], case["hidden"])
                == (m, kind, depth, 64)
            ]
            body.append([f"R^{m}", kind, *cells])
    header = ["root", "target", *[f"depth {depth}" for depth in depths]]
    return UNIVERSALITY.format(table=rows(header, body)) + "\n" + provenance(found)


def gaussian_fit(found: Found) -> str:
    """Times by table."""
    body = [[case, *[f"{value:.2f}" for value in v.values()]] for case, v in found["times"].items()]
    table = rows(["table", "fit", "log_prob", "means of all cells"], body)
    return FITTING.format(threads=found["threads"], table=table) + "\n" + provenance(found)


def layerwise(found: Found) -> str:
    """Measures by mode."""
    modes = list(found["runs"])
    body = []
    for name in found["runs"][modes[0]][0]:
        values = [[run[name] for run in found["runs"][mode]] for mode in modes]
        body.append([name, *[f"{mean(v):.4f} ± {stdev(v):.4f}" for v in values]])
    return LAYERWISE.format(table=rows(["", *modes], body)) + "\n" + provenance(found)


MODULES = {
    "synthetic": "paper_report",
    "california": "paper_report",
    "gaussian": "paper_report",
    "likelihood": "likelihood_report",
    "representation": "representation_report",
    "likelihood_benchmark": "likelihood_benchmark_report",
    "imputation": "imputation_report",
    "density": "density_report",
    "speed": "speed_report",
    "gaussian_fit": None,
    "universality": None,
    "layerwise": None,
}
"""The files in the order of the page, and the modules with their sections; None means this one."""


def section(name: str, module: str | None) -> Callable[[Found], str] | None:
    """The function that writes a section, None if nobody has written it."""
    if module is None:
        found: Callable[[Found], str] = globals()[name]
        return found
    return getattr(import_module(f".{module}", __package__), name, None)


def page() -> str:
    """The whole page."""
    files = {name: FOLDER / f"{name}.json" for name in MODULES}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}
    parts = [opening(found)]
    for name, content in found.items():
        write = section(name, MODULES[name])
        if write is not None:
            parts.append(write(content))
    return "\n".join(parts)


def main() -> None:
    """Write the page."""
    (PROJECT / "docs" / "results.md").write_text(page())


if __name__ == "__main__":
    main()
