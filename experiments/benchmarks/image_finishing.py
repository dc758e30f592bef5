"""Ways to finish a longer run of the encoding edge on static MNIST.

A run trains on the bound and then goes on in short stages: with less dropout and no hidden inputs
(quiet), or on the importance-weighted bound of several draws (`samples` of `vfg.fit`). Bounds and
NLL are of validation rows, so that choices leave the test rows alone; NLL is on 2,000 of them.

    python -m experiments.benchmarks.image_finishing --runs ...   on a GPU, 6 to 9 minutes per run
    python -m experiments.benchmarks.image_finishing --merge A B  those of folders as one file
    python -m experiments.benchmarks.image_finishing --quick      small digits on a CPU
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import vfg

from ..paper.image_models import Bounded, encoding
from ..paper.image_training import NEXT_STAGE, Budget, count
from ..paper.images import Images, binary
from ..paper.likelihood import LONGER, SHAPES
from ..results import Arguments, arguments, positive

SHAPE = {name: value for name, value in SHAPES["mnist, longer"].items() if name != "finish"}
FINISH = {
    name: value for name, value in SHAPES["mnist, longer"]["finish"].items() if name != "share"
}
WEIGHTED = FINISH | {"samples": 4}
QUIET: dict[str, Any] = {"input_dropout": 0.0}
AS_BEFORE: dict[str, Any] = {"samples": 1, "batch": 256}
LESS = 0.4
"""What dropout is multiplied by in quiet stages: it still regularises, and overfits slower."""


@dataclass(frozen=True)
class Stage:
    """Some seconds of training from where the last stage ended."""

    seconds: float
    settings: dict[str, Any]
    is_quiet: bool = False
    """Whether dropout is lowered, for this stage and those that follow."""


@dataclass(frozen=True)
class Plan:
    """A run: a seed, what differs from the model of `likelihood`, and its stages by name."""

    seed: int
    changed: dict[str, Any]
    stages: dict[str, Stage]


FLOW = vfg.FlowPrior(12, 768, activation="silu", dropout=0.3)
PLANS = {
    "quiet, then weighted": Plan(
        0,
        {},
        {
            "the bound": Stage(340.0, {}),
            "less dropout": Stage(75.0, FINISH | AS_BEFORE | QUIET, is_quiet=True),
            "4 weighted draws": Stage(75.0, WEIGHTED | QUIET | {"rate": 2e-4}),
        },
    ),
    "weighted, then quiet, larger flow prior": Plan(
        1,
        {"prior": FLOW},
        {
            "the bound": Stage(340.0, {}),
            "4 weighted draws": Stage(75.0, WEIGHTED),
            "less dropout": Stage(75.0, WEIGHTED | QUIET | {"rate": 2e-4}, is_quiet=True),
        },
    ),
    "as shown above": Plan(
        0, {}, {"the bound": Stage(285.0, {}), "3 weighted draws": Stage(75.0, FINISH)}
    ),
}


def lower_dropout(model: vfg.VFG) -> None:
    """Lower the dropout of all networks, in place."""
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout *= LESS


def score(model: Bounded, images: Images, draws: int) -> dict[str, float]:
    """Bound and NLL of the validation rows, and the bound of as many training rows."""
    few = images.valid[:: max(1, len(images.valid) // 2000)]
    elbo = -model.bound(images.valid, 4).mean().item()
    gap = model.log_likelihood(few, draws).mean() - model.bound(few, 8).mean()
    known = images.train[: len(images.valid)].bernoulli()
    train = -model.bound(known, 4).mean().item()
    return {"elbo": elbo, "nll": elbo - gap.item(), "train": train}


def measure(plan: Plan, images: Images, given: Arguments) -> Iterator[dict[str, Any]]:
    """The stages of a run, one after the other."""
    shape = SHAPES["digits"] if given.quick else SHAPE | plan.changed
    member = encoding(images.side, seed=plan.seed, **shape)
    cells = images.train.shape[1]
    for number, (name, stage) in enumerate(plan.stages.items()):
        if stage.is_quiet:
            lower_dropout(member.model)
        budget = Budget(stage.seconds, 40 if given.quick else None)
        options = budget.options(len(images.train)) | member.settings | stage.settings
        begun = time.monotonic()
        history = vfg.fit(
            member.model,
            images.train,
            validation=images.valid,
            augment=torch.bernoulli,
            seed=plan.seed + NEXT_STAGE * number,
            **options,
        )
        yield {
            "stage": name,
            "steps": len(history) * options["steps"],
            "seconds": round(time.monotonic() - begun, 1),
            "validation": [round(epoch.validation * cells, 2) for epoch in history],
            **score(member, images, given.draws),
            "parameters": count(member),
        }


def merge(folders: Sequence[Path], earlier: Path | None) -> dict[str, Any]:
    """The runs of several folders as one, with the circumstances of the first."""
    parts = [json.loads((folder / "image_finishing.json").read_text()) for folder in folders]
    found = {name: run for part in parts for name, run in part["runs"].items()}
    runs = {name: found[name] for name in PLANS if name in found}
    seconds = sum(stage["seconds"] for run in runs.values() for stage in run["stages"])
    command = parts[0]["command"].partition(" --runs")[0]
    described = parts[0] | {"command": command, "seconds": round(seconds, 1), "runs": runs}
    if earlier:
        models = json.loads((earlier / "likelihood.json").read_text())["data"]["mnist"]["models"]
        described["earlier"] = models[LONGER]
    return described


def main() -> None:
    given = arguments(
        __doc__,
        runs={"nargs": "*", "choices": list(PLANS), "default": list(PLANS)},
        draws={"type": positive, "default": 500, "help": "per row, for NLL"},
        together={"type": positive, "default": 1, "help": "processes on this GPU, for the record"},
        merge={"nargs": "*", "type": Path, "help": "folders of runs, put together into one file"},
        earlier={"type": Path, "help": "folder of `likelihood` with a longer run, for the record"},
    )
    about = {"seeds": [0, 1], "draws": given.draws, "data": "static binarized MNIST"}
    if given.merge:
        print(given.write("image_finishing", merge(given.merge, given.earlier)))
        return
    images = binary("digits" if given.quick else "mnist")
    runs = {name: {"together": given.together, "stages": []} for name in given.runs}
    for name, run in runs.items():
        for row in measure(PLANS[name], images, given):
            print(name, row, flush=True)
            run["stages"].append(row)
            given.write("image_finishing", about | {"runs": runs})


if __name__ == "__main__":
    main()
