"""The section of docs/results.md about latent representations (7.3)."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

from ..results import FOLDER
from .pages import provenance, rows

MEASURES = {
    "nearest": "5 nearest neighbours, %",
    "linear": "linear classifier, %",
    "silhouette": "silhouette",
    "prior": "nearest prior mean, %",
}
VFG, FLOW = "VFG", "coupling flow"

TEXT = """## Representations of digits (7.3)

MNIST, {train:,} images to train with labels and {test:,} to test without; one prior mean per
digit. The embedding of an image is the state of the root, 196 numbers, next to the 784 latent
variables of a plain coupling flow with as many parameters, trained on its exact likelihood for as
many steps. Accuracies on the test images; the silhouette is of 200 images of every digit. {seeds}
seeds.

{table}

{verdict}

![test digits and their reconstructions](images/representation_reconstructions.png)

{neighbourhoods}

Each line moves one coordinate of the root from three standard deviations below to three above;
shown are those that change images most:

![traversals](images/representation_traversals.png)
"""


def representation(found: dict[str, Any]) -> str:
    """Numbers by model, and the pictures."""
    models = found["models"]
    body = [
        [name, *(_cell(row, what) for what in MEASURES), _million(row)]
        for name, row in models.items()
    ]
    text = TEXT.format(
        train=found["rows"][0],
        test=found["rows"][2],
        seeds=len(found["seeds"]),
        table=rows(["embedding", *MEASURES.values(), "million parameters"], body),
        verdict=_verdict(models),
        neighbourhoods=_picture("t-SNE of the embeddings", "representation_tsne.png"),
    )
    return text + "\n" + provenance(found)


def _picture(title: str, name: str) -> str:
    """A picture of the run, if it is there."""
    if (FOLDER.parent / "images" / name).is_file():
        return f"![{title}](images/{name})"
    return f"({title}: `{name}` of this run was not kept; the command below draws it again.)"


def _cell(row: dict[str, list[float]], what: str) -> str:
    if what not in row:
        return ""
    factor, digits = (1.0, 3) if what == "silhouette" else (100.0, 2)
    values = [factor * value for value in row[what]]
    return f"{mean(values):.{digits}f}" + (
        f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    )


def _million(row: dict[str, list[float]]) -> str:
    return f"{row['parameters'][0] / 1e6:.2f}" if "parameters" in row else ""


def _verdict(models: dict[str, dict[str, list[float]]]) -> str:
    """Where the VFG is ahead of the flow, and whether it reaches the goal."""
    ahead = [what for what in MEASURES if mean(models[VFG][what]) > mean(models[FLOW][what])]
    behind = [MEASURES[what].removesuffix(", %") for what in MEASURES if what not in ahead]
    share = 100.0 * mean(models[VFG]["nearest"])
    goal = "above" if share > 97.0 else "below"
    where = "on all four measures" if not behind else f"but on {', '.join(behind)}"
    return (
        f"The VFG is ahead of the flow {where}; its nearest neighbours are right in {share:.2f} % "
        f"of the cases, {goal} the goal of 97 %."
    )
