"""Latent representations of MNIST (7.3): a VFG tree next to a coupling flow, both with labels.

The flow has the same coupling layers on all 784 pixels, as many parameters, and a prior mean per
digit too. Labels are used in training alone. The embedding of an image is the root's state, for
sampled states the centre of q; for the flow it is all of its latent variables.

    python -m experiments.paper.representation            on a GPU
    python -m experiments.paper.representation --quick    scikit-learn's digits, 2 minutes on a CPU
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..results import arguments, positive
from .image_training import DEVICE, Budget, count
from .images import Images, load
from .labelled_models import Labelled, Plain, drawn_tree, papers_tree
from .probes import linear_accuracy, nearest_accuracy, prior_accuracy, silhouette
from .representation_figures import draw

OURS, PAPERS, FLOW = "VFG", "VFG, deterministic states (the paper's)", "coupling flow"


def models(images: Images, hidden: int, seed: int) -> dict[str, Labelled]:
    """By name; the flow is as large as our VFG."""
    ours = drawn_tree(images.side, hidden, seed)
    papers = papers_tree(images.side, hidden, seed)
    flow = Plain.sized(images.train.shape[1], images.levels, count(ours), seed)
    return {OURS: ours, PAPERS: papers, FLOW: flow}


def trained(
    images: Images, seeds: list[int], budget: Budget, hidden: int
) -> list[dict[str, Labelled]]:
    """All models of all seeds; all take equally many steps."""
    found = []
    rows, valid = (
        (images.train, images.labels["train"]),
        (images.valid, images.labels["validation"]),
    )
    for seed in seeds:
        found.append(models(images, hidden, seed))
        for model in found[-1].values():
            model.to(DEVICE).fit(rows, valid, seed, budget.options(len(images.train)))
    return found


def measured(model: Labelled, images: Images) -> dict[str, float]:
    known, new = model.embed(images.train), model.embed(images.test)
    prior = prior_accuracy(new, images.labels["test"], model.means)
    return {**probed(known, new, images), "prior": prior, "parameters": count(model)}


def probed(known: Tensor, new: Tensor, images: Images) -> dict[str, float]:
    """What rows that stand for the images tell about their labels."""
    rows, few = (known, images.labels["train"], new, images.labels["test"]), images.some(200)
    return {
        "nearest": nearest_accuracy(*rows),
        "linear": linear_accuracy(*rows),
        "silhouette": silhouette(new[few], images.labels["test"][few]),
    }


def main() -> None:
    given = arguments(
        __doc__,
        steps={"type": positive, "help": "of training"},
        batch={"type": positive, "help": "rows of a step"},
        hidden={"type": positive, "help": "units of a conditioner"},
    )
    seeds = given.chosen(full=3, quick=1)
    steps = given.steps or (300 if given.quick else 3000)
    batch = given.batch or (64 if given.quick else 512)
    hidden = given.hidden or (48 if given.quick else 256)
    images = load("digits" if given.quick else "mnist")
    found = trained(images, seeds, Budget(0.0, steps, batch=batch), hidden)
    pixels = probed(images.train, images.test, images)
    table: dict[str, Any] = {"pixels": {name: [value] for name, value in pixels.items()}}
    described = {
        "seeds": seeds,
        "rows": [len(part) for part in (images.train, images.valid, images.test)],
        "budget": f"{steps} steps of {batch} rows",
        "hidden": hidden,
        "models": table,
    }
    for name in found[0]:
        rows = [measured(by_name[name], images) for by_name in found]
        table[name] = {what: [row[what] for row in rows] for what in rows[0]}
        print(name, table[name], flush=True)
        path = given.write("representation", described)
    print(path)
    draw(found[0], images, given)


if __name__ == "__main__":
    main()
