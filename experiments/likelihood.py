"""Bounds and likelihoods of binary images (7.2): VFG trees against autoencoders with flows.

The paper's tree: four blocks of 14 x 14 pixels, two nodes, a root, all of width 196, four coupling
layers per edge. Its states are deterministic, so its objective is a surrogate; the parts are shown
apart. With sampled states the same graph has a bound that holds, and so have its rivals: a VAE and
three VAEs whose posterior is bent by 16 flows (planar, inverse autoregressive, orthogonal Sylvester
with a bottleneck of 32), with 64 latent variables and the gated convolutions of that protocol.

Every model has the same rows and optimiser, and the seconds on the GPU that `SECONDS` says; the
state with the best bound on the validation rows is tested. -ELBO is the mean of 8 draws over all
test rows. NLL is -ELBO less the gap to the importance-weighted likelihood on 2,000 test rows spread
over the file (on all of them if there are fewer than 4,000).

    python experiments/likelihood.py            9 minutes on one H200
    python experiments/likelihood.py --quick    scikit-learn's digits, 2 minutes on a CPU

Images are read from the folder that VFG_DATA names. Omniglot is not the file that others use, but
a reduction and split of our own: its numbers compare methods here, and nothing else.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from binary_images import Binary, binary
from image_models import Unbounded, ours, papers, papers_sampled
from results import write
from rivals.images import POSTERIORS, FlowAutoencoder
from side_by_side import Budget, Run, train

Make = Callable[[int], Any]
"""A seed to a model."""
BETAS = (0.1, 1.0)
SECONDS = {
    "mnist": {"VFG, the paper's tree": 20, "VFG": 42, "VFG, convolutions": 42, "VAE": 32}
    | {"planar flow": 32, "IAF": 36, "orthogonal Sylvester": 42, "surrogate": 6},
    "caltech": {"VFG": 6, "VFG, convolutions": 6, "VAE": 6}
    | {"planar flow": 6, "IAF": 6, "orthogonal Sylvester": 6, "surrogate": 2},
    "omniglot": {"VFG": 9, "VFG, convolutions": 9, "VAE": 9}
    | {"planar flow": 9, "IAF": 9, "orthogonal Sylvester": 9, "surrogate": 2},
}
"""Of training, for all seeds of a model together; what is not named is not trained."""
SEEDS = {"mnist": 3, "caltech": 3, "omniglot": 1, "digits": 1}


def sampled_models(side: int) -> dict[str, Make]:
    """Everything that has a bound, by name."""
    is_small = side < 28
    narrow, wide = (32, 48) if is_small else (64, 288)
    sizes = {"width": 16, "flows": 4, "channels": 8, "features": 64} if is_small else {}
    models: dict[str, Make] = {
        "VFG, the paper's tree": lambda seed: papers_sampled(side, narrow, seed),
        "VFG": lambda seed: ours(side, wide, seed),
        "VFG, convolutions": lambda seed: ours(side, wide, seed, convolutions=True),
    }
    for name in POSTERIORS:
        models[name] = partial(_rival, name, {"side": side, **sizes})
    return models


def _rival(name: str, sizes: dict[str, int], seed: int) -> FlowAutoencoder:
    torch.manual_seed(seed)
    return FlowAutoencoder(name, **sizes)


def trained(
    name: str, make: Make, images: Binary, seeds: int, budget: Budget
) -> tuple[list[Any], dict[str, Any]]:
    """Models with seeds 0, 1, ..., trained side by side, and how that went."""
    runs = []
    for seed in range(seeds):
        model = make(seed)
        torch.manual_seed(seed)
        runs.append(
            Run(
                model,
                (images.train,),
                lambda model=model: model.bound(images.valid).mean().item(),
                budget,
                unit=images.train.shape[1],
            )
        )
    taken = train(runs, budget, name)
    size = sum(parameter.numel() for parameter in runs[0].model.parameters())
    about = {
        "parameters": size,
        "steps": runs[0].steps,
        "train_seconds": round(taken, 1),
        "captured": all(run.is_captured for run in runs),
    }
    return [run.model for run in runs], about


def tested(model: Any, images: Binary, draws: int) -> dict[str, float]:
    """-ELBO and NLL of the test rows, and -ELBO of as many training rows."""
    test = images.test
    few = test[:: max(1, len(test) // 2000)]
    gap = model.log_likelihood(few, draws).mean() - model.bound(few, 8).mean()
    elbo = -model.bound(test, 8).mean().item()
    known = images.train[: len(test)].bernoulli()
    return {
        "elbo": elbo,
        "nll": elbo - gap.item(),
        "train": -model.bound(known).mean().item(),
    }


def measured(
    name: str, make: Make, images: Binary, seeds: int, budget: Budget, draws: int
) -> dict[str, Any]:
    """One row of the table, with a list over seeds for every number."""
    models, about = trained(name, make, images, seeds, budget)
    found = [tested(model, images, draws) for model in models]
    return about | {what: [one[what] for one in found] for what in found[0]}


def surrogate(images: Binary, beta: float, seeds: int, budget: Budget) -> dict[str, Any]:
    """The parts of the paper's objective, trained at a β."""

    def make(seed: int) -> Unbounded:
        return papers(images.side, beta, 64 if images.side == 28 else 32, seed)

    models, about = trained(f"surrogate, beta {beta}", make, images, seeds, budget)
    found = [model.parts(images.test) for model in models]
    return about | {what: [one[what] for one in found] for what in found[0]}


class Clock:
    """Says whether there is time for one more model; without minutes there always is."""

    def __init__(self, minutes: float | None) -> None:
        self.ends = float("inf") if minutes is None else time.monotonic() + 60.0 * minutes

    def has(self, seconds: float) -> bool:
        """Whether that many seconds, and a few for testing, are left."""
        return time.monotonic() + 1.1 * seconds + 6.0 < self.ends


def measure(
    name: str, given: argparse.Namespace, clock: Clock, keep: Callable[[dict[str, Any]], None]
) -> None:
    """All models of one data set; `keep` gets what is known after each."""
    images = binary(name)
    seeds = given.seeds or SEEDS[name]
    found: dict[str, Any] = {
        "source": images.source,
        "rows": [len(part) for part in (images.train, images.valid, images.test)],
        "seeds": list(range(seeds)),
        "models": {},
        "surrogate": {},
        "skipped": [],
    }
    models = sampled_models(images.side)
    seconds = SECONDS.get(name, dict.fromkeys([*models, "surrogate"], 0))

    def budget(key: str) -> Budget:
        # The steps of VFGs are many small kernels: more rows at a time cost them next to nothing.
        rows = 512 if key.startswith("VFG") and name == "mnist" else 256
        steps, batch = (given.steps or 100, 64) if given.quick else (given.steps, rows)
        return Budget(given.pace * seconds[key], steps, batch)

    for model, make in models.items():
        if model not in seconds or not clock.has(given.pace * seconds[model]):
            found["skipped"].append(model)
            continue
        print(f"{name}: {model}", flush=True)
        try:
            row = measured(model, make, images, seeds, budget(model), given.draws)
        except RuntimeError:  # the others still have their minutes
            traceback.print_exc()
            found["skipped"].append(f"{model} (failed)")
            continue
        found["models"][model] = row
        print("  " + ", ".join(f"{k} {v}" for k, v in row.items()), flush=True)
        keep(found)
    for beta in BETAS:
        if not clock.has(given.pace * seconds["surrogate"]):
            found["skipped"].append(f"surrogate, beta {beta}")
            continue
        found["surrogate"][str(beta)] = surrogate(images, beta, seeds, budget("surrogate"))
        print(f"  surrogate, beta {beta}: {found['surrogate'][str(beta)]}", flush=True)
        keep(found)


def main() -> None:
    """Train, test, and write after every model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small digits, few steps")
    parser.add_argument("--data", nargs="*", choices=list(SECONDS), default=list(SECONDS))
    parser.add_argument("--seeds", type=int, help="per model, in place of 3, 3 and 1")
    parser.add_argument("--draws", type=int, help="per row, for the likelihood; 500, quick 100")
    parser.add_argument("--steps", type=int, help="of training per model, in place of seconds")
    parser.add_argument("--pace", type=float, default=1.0, help="what seconds are multiplied by")
    parser.add_argument("--minutes", type=float, help="after which no further model is begun")
    parser.add_argument("--output", type=Path, help="folder for the results")
    given = parser.parse_args()
    given.draws = given.draws or (100 if given.quick else 500)
    clock = Clock(given.minutes)
    sets: dict[str, Any] = {}

    def keep(name: str, found: dict[str, Any]) -> None:
        sets[name] = found
        seeds = max((one["seeds"] for one in sets.values()), key=len)
        described = {"seeds": seeds, "draws": given.draws, "data": sets}
        write("likelihood", described, quick=given.quick, output=given.output)

    for name in ["digits"] if given.quick else given.data:
        measure(name, given, clock, partial(keep, name))


if __name__ == "__main__":
    main()
