"""Bounds and likelihoods on static binarized MNIST: the sampled models next to a VAE.

Every model has the same rows, optimiser, schedule and minutes; the state with the best bound on
the validation rows is the one that is tested. -ELBO is the negative mean of `model.bound`, NLL that
of `model.log_likelihood`, both in nats per image on all test rows. The paper's deterministic model
is trained on its surrogate, whose parts are shown apart: it is not a bound.

    python benchmarks/likelihood.py             the main models, 8 minutes on one H200
    python benchmarks/likelihood.py --quick     every option on scikit-learn's digits, on a CPU

MNIST is read from mnist_static_binarized.npz in the folder named by VFG_DATA.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from likelihoods.images import Images, digits, mnist
from likelihoods.models import OURS, SHORT, candidates, numbers, paper
from likelihoods.training import Budget, Trainer

sys.path.insert(0, str(Path(__file__).parent.parent / "experiments"))
from results import write


def measured(
    make: Callable[[], Any], images: Images, *, batch: int, rate: float, budget: Budget, draws: int
) -> dict[str, float]:
    """Train one model and test it."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = make()
    found = Trainer(model, images, batch, rate).run(budget)
    torch.backends.cuda.matmul.allow_tf32 = False  # densities are worth full precision
    found["parameters"] = numbers(model)
    found["train"] = -model.bound(images.train[:10_000]).mean().item()
    found["elbo"] = -model.bound(images.test).mean().item()
    found["nll"] = -model.log_likelihood(images.test, draws).mean().item()
    return found


def surrogate_parts(
    images: Images, hidden: int, batch: int, rate: float, budget: Budget
) -> dict[str, float]:
    """The parts of the paper's objective on the test rows, β included."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = paper(images.side, hidden)
    Trainer(model, images, batch, rate).run(budget)
    torch.backends.cuda.matmul.allow_tf32 = False
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
    """Train, test, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small digits, few seconds per model")
    parser.add_argument("--minutes", type=float, help="of training per model")
    parser.add_argument("--steps", type=int, help="of training per model, in place of minutes")
    parser.add_argument("--draws", type=int, default=500, help="per row, for the likelihood")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--models", nargs="*", help="names of models; all by default")
    given = parser.parse_args()
    images = digits() if given.quick else mnist()
    steps = given.steps or (1000 if given.quick and not given.minutes else None)
    budget = Budget(given.minutes or 1.2, steps)
    batch = min(given.batch, 128) if given.quick else given.batch
    models = candidates(images.side, 48 if given.quick else 288)
    chosen = given.models or (list(models) if given.quick else SHORT)
    table: dict[str, dict[str, float]] = {}
    for name in chosen:
        print(name, flush=True)
        same = int(table[OURS]["steps"]) if "as many steps" in name and OURS in table else steps
        table[name] = measured(
            models[name],
            images,
            batch=batch,
            rate=given.rate,
            budget=Budget(budget.minutes, same),
            draws=given.draws,
        )
        print("  " + ", ".join(f"{k} {v:.4g}" for k, v in table[name].items()), flush=True)
    parts = surrogate_parts(images, 64 if images.side == 28 else 32, batch, given.rate, budget)
    described = {
        "seeds": [0],
        "data": "Binarized 8 x 8 digits" if given.quick else "Static binarized MNIST",
        "draws": given.draws,
        "budget": str(budget),
        "models": table,
        "surrogate": parts,
    }
    print(write("likelihood_benchmark", described, quick=given.quick))
    for name, value in parts.items():
        print(f"surrogate, not a bound: {name:20} {value:8.2f}")


if __name__ == "__main__":
    main()
