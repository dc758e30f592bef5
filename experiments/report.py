"""Write docs/results.md from the JSON files under docs/results.

python experiments/report.py
"""

from __future__ import annotations

import json
from statistics import mean, stdev
from typing import Any

from density_report import density
from imputation_report import imputation
from likelihood_report import likelihood
from pages import provenance, rows
from results import FOLDER, PROJECT

INTRODUCTION = """# Results

Every number here was written by the script that is named with it, as JSON under `docs/results/`, and put into this
page by `python experiments/report.py`. Spreads are standard deviations over seeds.
"""

SYNTHETIC = """## The paper's synthetic data

Eight columns made from two hidden numbers; 1000 rows to train, 300 to test with x3, x4, x7 and x8 missing. Mean squared
error of the missing cells over 10 seeds. The paper's model is a mean node of width 2; which two variables share a
section is not said there, and here the equal ones do, so that whole sections are missing.

{table}

![box plots of the errors](images/synthetic.png)

A bijection of the plane cannot fold, so at width 2 the sine and the square are out of reach. Lifted into a root of
width 8 the same couplings fold them. The best model is below kNN on {wins} of {seeds} seeds, and {least:.0f} to
{most:.0f} times below the paper's (on average {average:.0f} times). Iterative imputation and MICE stay at the mean because
the missing columns come in equal pairs: each is predicted from its twin, which is missing too.
"""

NETWORK = """## A known Bayesian network

bnlearn's Gaussian network of seven variables with its true graph, `GaussianVFG` on `Graph.from_bayesian_network`, 4500
rows to train and 500 to test; every variable missing in turn, and 30 % of all cells at random. Mean squared errors next
to the least-squares optimum of the training rows, raw and divided by the variable's variance.

{table}

The noise of F alone has variance 1, which is 0.026 of its variance: no method can be much below that, and
the paper's 0.104 for F is not on the raw scale.
"""

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


def read(name: str) -> dict[str, Any]:
    """One result file."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def synthetic() -> str:
    """Errors by method."""
    found = read("synthetic")
    errors = found["mse"]
    body = [
        [name, f"{mean(v):.3f} ± {stdev(v):.3f}", f"{min(v):.3f}", f"{max(v):.3f}"]
        for name, v in errors.items()
    ]
    ours, paper = errors["VFG, width 8, gaussian"], errors["VFG, width 2 (the paper's)"]
    ratios = [p / o for p, o in zip(paper, ours, strict=True)]
    text = SYNTHETIC.format(
        table=rows(["method", "mean", "least", "most"], body),
        wins=sum(o < k for o, k in zip(ours, errors["kNN"], strict=True)),
        seeds=len(ours),
        least=min(ratios),
        most=max(ratios),
        average=mean(paper) / mean(ours),
    )
    return text + "\n" + provenance(found)


def universality() -> str:
    """Errors by depth."""
    found = read("universality")
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


def network() -> str:
    """Errors by missing variable."""
    found = read("gaussian_network")
    names = ["ours, raw", "least squares, raw", "ours, standardised", "least squares, standardised"]
    body = [
        [case, *[f"{measured[name]:.4f}" for name in names], f"{measured['ratio']:.4f}"]
        for case, measured in found["cases"].items()
    ]
    return NETWORK.format(table=rows(["", *names, "ratio"], body)) + "\n" + provenance(found)


def fitting() -> str:
    """Times by table."""
    found = read("gaussian_fit")
    body = [[case, *[f"{value:.2f}" for value in v.values()]] for case, v in found["times"].items()]
    table = rows(["table", "fit", "log_prob", "means of all cells"], body)
    return FITTING.format(threads=found["threads"], table=table) + "\n" + provenance(found)


def layerwise() -> str:
    """Measures by mode."""
    found = read("layerwise")
    modes = list(found["runs"])
    body = []
    for name in found["runs"][modes[0]][0]:
        values = [[run[name] for run in found["runs"][mode]] for mode in modes]
        body.append([name, *[f"{mean(v):.4f} ± {stdev(v):.4f}" for v in values]])
    return LAYERWISE.format(table=rows(["", *modes], body)) + "\n" + provenance(found)


def main() -> None:
    """Write the page."""
    sections = [INTRODUCTION, synthetic(), network(), fitting(), universality(), layerwise()]
    if (FOLDER / "imputation.json").is_file():
        sections.append(imputation(read("imputation")))
    if (FOLDER / "density.json").is_file():
        sections.append(density(read("density")))
    if (FOLDER / "likelihood.json").is_file():
        sections.append(likelihood(read("likelihood")))
    page = "\n".join(sections)
    (PROJECT / "docs" / "results.md").write_text(page)


if __name__ == "__main__":
    main()
