"""Bounds and likelihoods on static binarized MNIST: what each option of sampled states brings.

All models, and a VAE as large as the largest tree, have the same rows, optimiser, schedule, batches
and steps; -ELBO and NLL are measured as in `experiments.paper.likelihood`. The paper's
deterministic model is trained on its surrogate, whose parts are shown apart: it is not a bound.

    python -m experiments.benchmarks.likelihood            the main models, on a GPU
    python -m experiments.benchmarks.likelihood --quick    every option, on small digits on a CPU

MNIST is read from the folder that VFG_DATA names.
"""

from __future__ import annotations

from typing import Any

import torch

from ...paper.image_models import papers
from ...paper.image_training import Budget, count, train
from ...paper.images import binary
from ...paper.likelihood import tested
from ...results import arguments
from .models import ASIDE, candidates

BETA = 0.1


def main() -> None:
    given = arguments(
        __doc__,
        steps={"type": int, "help": "of training; 4,500, or 1,000 if quick"},
        draws={"type": int, "default": 500, "help": "per row, for the likelihood"},
        batch={"type": int, "help": "rows per step; 512, or 128 if quick"},
        rate={"type": float, "default": 1e-3},
        models={"nargs": "*", "help": "names of models; the main ones by default"},
    )
    images = binary("digits" if given.quick else "mnist")
    steps = given.steps or (1000 if given.quick else 4500)
    batch = given.batch or (128 if given.quick else 512)
    budget = Budget(0.0, steps, batch, given.rate)
    makers = candidates(images.side, 48 if given.quick else 288)
    plain = papers(images.side, BETA, 32 if given.quick else 64, seed=0)
    seconds = train([plain], images.train, images.valid, budget).seconds
    described: dict[str, Any] = {
        "seeds": [0],
        "data": images.source,
        "draws": given.draws,
        "budget": "",
        "models": {},
        "surrogate": plain.parts(images.test, BETA),
    }
    main = [name for name in makers if given.quick or not any(part in name for part in ASIDE)]
    for name in given.models or main:
        torch.manual_seed(0)
        model = makers[name]()
        run = train([model], images.train, images.valid, budget)
        seconds += run.seconds
        row = {"steps": run.steps, "setbacks": run.setbacks, "parameters": count(model)}
        row |= tested(model, images, given.draws, False)
        described["models"][name] = row
        described["budget"] = f"{steps:,} steps of {batch} rows, all models in {seconds:.0f} s"
        print(name + ": " + ", ".join(f"{k} {v:.6g}" for k, v in row.items()), flush=True)
        path = given.write("likelihood_benchmark", described)
    print(path)


if __name__ == "__main__":
    main()
