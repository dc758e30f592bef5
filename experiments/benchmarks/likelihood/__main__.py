"""Bounds and likelihoods on static binarized MNIST: what each option of sampled states brings.

All models, and a VAE as large as the largest tree, are trained alike: the same rows, optimiser,
schedule, batches and steps. The state with the best bound on the validation rows
is the one that is tested. -ELBO is the negative mean of `model.bound` on all test rows, of 8 draws
each, NLL is -ELBO less the gap to `model.log_likelihood` on 2,000 test rows spread over the file;
both in nats per image. The paper's deterministic model is trained on its surrogate, whose parts
are shown apart: it is not a bound.

    python -m experiments.benchmarks.likelihood            the main models, on a GPU
    python -m experiments.benchmarks.likelihood --quick    every option, on small digits on a CPU

MNIST is read from the folder that VFG_DATA names.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...paper.binary_images import Binary, binary
from ...paper.image_training import Budget, Trained, count, train
from ...results import write
from .models import MAIN, candidates, surrogate

BETA = 0.1


def made(models: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """The models, each with the same seed."""
    found = {}
    for name, make in models.items():
        torch.manual_seed(0)
        found[name] = make()
    return found


def tested(model: Any, trained: Trained, images: Binary, draws: int) -> dict[str, float]:
    """The numbers of one row of the table."""
    test = images.test
    few = test[:: max(1, len(test) // 2000)]
    gap = (model.log_likelihood(few, draws).mean() - model.bound(few, 8).mean()).item()
    elbo = -model.bound(test, 8).mean().item()
    return {
        "steps": trained.steps,
        "setbacks": trained.setbacks,
        "valid": -model.bound(images.valid).mean().item(),
        "parameters": count(model),
        "train": -model.bound(images.train[: len(test)]).mean().item(),
        "elbo": elbo,
        "nll": elbo - gap,
    }


def surrogate_parts(model: Any, images: Binary) -> dict[str, float]:
    """The parts of the paper's objective on the test rows, β included."""
    with torch.no_grad():
        found = model.model.surrogate(images.test, beta=model.beta)
    parts = {
        "reconstruction": -found.reconstruction.sum(),
        "distances of nodes": model.beta * found.kl.sum(),
        "distances of edges": model.beta * found.edge.sum(),
        "root": -model.beta * found.root,
        "constants": model.beta * found.constants,
        "sum": -found.total,
    }
    return {name: part.mean().item() for name, part in parts.items()}


def main() -> None:
    """Train, test, write after every model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small digits, few steps")
    parser.add_argument("--steps", type=int, help="of training; 4,500, or 1,000 if quick")
    parser.add_argument("--draws", type=int, default=500, help="per row, for the likelihood")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--models", nargs="*", help="names of models; the main ones by default")
    parser.add_argument("--output", type=Path, help="folder for the results")
    given = parser.parse_args()
    images = binary("digits" if given.quick else "mnist")
    steps = given.steps or (1000 if given.quick else 4500)
    batch = min(given.batch, 128) if given.quick else given.batch
    budget = Budget(0.0, steps, batch, given.rate)
    models = candidates(images.side, 48 if given.quick else 288)
    chosen = given.models or (list(models) if given.quick else MAIN)
    found = made({name: models[name] for name in chosen})
    plain = surrogate(images.side, BETA)
    runs = {
        name: train([model], images.train, images.valid, budget)
        for name, model in {**found, "surrogate": plain}.items()
    }
    taken = sum(run.seconds for run in runs.values())
    described: dict[str, Any] = {
        "seeds": [0],
        "data": images.source,
        "draws": given.draws,
        "budget": f"{steps:,} steps of {batch} rows, all models in {taken:.0f} s",
        "models": {},
        "surrogate": surrogate_parts(plain, images),
    }
    for name, model in found.items():
        described["models"][name] = row = tested(model, runs[name], images, given.draws)
        print(name + ": " + ", ".join(f"{k} {v:.6g}" for k, v in row.items()), flush=True)
        path = write("likelihood_benchmark", described, quick=given.quick, output=given.output)
    print(path)


if __name__ == "__main__":
    main()
