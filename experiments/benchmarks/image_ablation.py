"""Effects of the parts of the encoding edge on static MNIST, in short runs of equal steps.

Every variant changes one thing of the model that `experiments.paper.likelihood` calls "VFG,
encoding edge". Bounds and likelihoods are of validation rows, so that choices by this table leave
the test rows alone; NLL is importance-weighted on 2,000 of them.

    python -m experiments.benchmarks.image_ablation                on a GPU, 40 s per variant
    python -m experiments.benchmarks.image_ablation --variants ... some, beside those of the last
    python -m experiments.benchmarks.image_ablation --merge A B    those of folders as one file
    python -m experiments.benchmarks.image_ablation --quick        small digits on a CPU
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import vfg

from ..cells import Cells
from ..paper.image_models import encoding
from ..paper.image_training import Budget, count, train
from ..paper.images import Images, binary
from ..paper.likelihood import SHAPES
from ..results import TRIALS, arguments, positive

CHOSEN = "as chosen"
VARIANTS: dict[str, dict[str, Any]] = {
    CHOSEN: {},
    "q without coupling layers": {"blocks": 0},
    "Normal prior": {"prior": vfg.distributions.priors.Normal()},
    "mixture of 500 Normals as prior": {"prior": vfg.Mixture(500)},
    "500 mixed posteriors as prior, no coupling layers": {
        "prior": vfg.VampPrior(500),
        "blocks": 0,
    },
    "flow prior of half the width": {"prior_width": 256},
    "root of 32 numbers": {"root": 32},
    "96 channels": {"channels": 96},
    "no dropout": {"dropout": 0.0},
    "no hidden inputs": {"input_dropout": 0.0},
    "four times the weight decay": {"weight_decay": 0.2},
    "no average of weights": {"average": 0.0},
    "twice the rate": {"rate": 2e-3},
}


def measure(changed: dict[str, Any], images: Images, budget: Budget, draws: int) -> dict[str, Any]:
    """One variant: trained, and bounds and likelihood of the validation rows."""
    shape = SHAPES["mnist" if images.side == 28 else "digits"]
    model = encoding(images.side, **{**shape, "seed": 0, **changed})
    run = train([model], images.train, images.valid, budget)
    few = images.valid[:: max(1, len(images.valid) // 2000)]
    gap = model.log_likelihood(few, draws).mean() - model.bound(few, 8).mean()
    elbo = -model.bound(images.valid, 8).mean().item()
    known = images.train[: len(images.valid)].bernoulli()
    return {
        "elbo": elbo,
        "nll": elbo - gap.item(),
        "train": -model.bound(known).mean().item(),
        "parameters": count(model),
        "steps": run.steps,
        "train_seconds": round(run.seconds, 1),
    }


def main() -> None:
    given = arguments(
        __doc__,
        variants={"nargs": "*", "choices": list(VARIANTS), "default": list(VARIANTS)},
        steps={"type": positive, "default": 5000, "help": "of training per variant"},
        draws={"type": positive, "default": 500, "help": "per row, for NLL"},
        merge={"nargs": "*", "type": Path, "help": "folders of runs, put together into one file"},
    )
    if given.merge:
        runs = [json.loads((folder / "image_ablation.json").read_text()) for folder in given.merge]
        rows = {name: row for run in runs for name, row in run["variants"].items()}
        rows = {name: rows[name] for name in VARIANTS if name in rows}
        seconds = round(sum(row["train_seconds"] for row in rows.values()), 1)
        command = runs[0]["command"].partition(" --variants")[0]
        joined = {"variants": rows, "seconds": seconds, "command": command}
        print(given.write("image_ablation", runs[0] | joined))
        return
    folder = (given.output or TRIALS) / "image_ablation_parts"
    folder.mkdir(parents=True, exist_ok=True)
    cells = Cells(folder / "cells.jsonl")
    images = binary("digits" if given.quick else "mnist")
    budget = Budget(0.0, 60 if given.quick else given.steps, 64 if given.quick else 256)
    for name in given.variants:
        row = measure(VARIANTS[name], images, budget, 20 if given.quick else given.draws)
        cells.add({"variant": name}, row)
        print(name, row, flush=True)
    cells = Cells(cells.file)  # with what processes beside this one found
    found = {name: cells.get({"variant": name}) for name in VARIANTS}
    rows = {
        name: {k: v for k, v in row.items() if k != "key"} for name, row in found.items() if row
    }
    about = {"seeds": [0], "draws": given.draws, "data": "static binarized MNIST"}
    print(given.write("image_ablation", about | {"variants": rows}))


if __name__ == "__main__":
    main()
