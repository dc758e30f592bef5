"""Bounds and likelihoods of binary images (7.2): VFG trees against autoencoders with flows.

The paper's deterministic tree has a surrogate, whose parts are shown apart. With sampled states the
same graph has a bound that holds, as have a VAE, three VAEs whose posterior is bent by 16 flows and
a VAE with two levels, with 64 latent variables and gated convolutions. All have the same rows and
optimiser. A run without options trains each seed for `SECONDS`; the results are merged from runs of
several lengths, which their page lists. NLL is -ELBO less the gap to the importance-weighted
likelihood on 2,000 test rows (on all if there are fewer than 4,000, or with --every-row).

    python -m experiments.paper.likelihood             52 minutes of training on a GPU, and tests
    python -m experiments.paper.likelihood --resume    goes on after the last finished model
    python -m experiments.paper.likelihood --quick     scikit-learn's digits, 2 minutes on a CPU
    python -m experiments.paper.likelihood --merge A B likelihood.json of these folders, as one

Processes side by side on one GPU (`--together`) each write a folder, for other seeds
(`--first-seed`), another learning rate (`--rate`) or another dropout of the baselines with the
parameters of ours (`--dropout`). Merging puts seeds together, keeps of each model the rate and
dropout with the best bound on validation rows, and leaves other rows as they are; with `--add` runs
are put beside the row that is there. `--against FILE` leaves out the test of a model whose bound on
validation rows is behind that of the same model in an earlier file.

Images are read from the folder that VFG_DATA names. Omniglot is not the file that others use, but
a reduction and split of our own: its numbers compare methods here, and nothing else.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import vfg
from vfg.plots.style import CATEGORIES, MARKERS, tidy

from ..baselines.images import POSTERIORS, FlowAutoencoder, HierarchicalAutoencoder
from ..cells import Cells
from ..results import FOLDER, TRIALS, Arguments, arguments, positive, slug, subplots
from .image_models import encoding, ours, papers, papers_sampled, residual
from .image_training import DEVICE, Budget, Part, count, train
from .images import Images, binary

Make = Callable[[int], Any]
"""A seed to a model."""
BETAS = (0.1, 1.0)
PAPERS, OURS, RESIDUAL = "VFG, the paper's tree", "VFG", "VFG, residual convolutions"
ENCODING, TWO_LEVELS = "VFG, encoding edge", "two-level VAE"
LONGER = "VFG, encoding edge, longer"
SAME_SIZE = ", same size"
"""How the names of baselines end that have about as many parameters as the encoding edge."""
# fmt: off
SHAPES: dict[str, dict[str, Any]] = {
    "mnist": {"channels": 64, "residual": 3, "dropout": 0.25, "input_dropout": 0.15},
    "mnist, longer": {
        "channels": 64, "residual": 3, "dropout": 0.3, "input_dropout": 0.2, "weight_decay": 0.1,
        "prior": vfg.FlowPrior(8, 512, activation="silu", dropout=0.25), "compile": True,
        "finish": {
            "share": 75 / 360, "samples": 3, "batch": 128, "rate": 3e-4, "warmup": 0,
            "average": 0.2, "compile": False,
        },
    },
    "caltech": {"channels": 32, "dropout": 0.3, "free_bits": 20.0, "warmup": 0.2},
    "omniglot": {"channels": 64, "dropout": 0.3},
    "digits": {"channels": 8},
}
# fmt: on
"""Of the encoding edge, by bounds on validation rows: few rows need few channels and much dropout.
Without free bits and the longer warm-up one of three seeds on Caltech ended 14 nats behind. What
ends the longer run is measured by `experiments.benchmarks.image_finishing`."""
LARGE: dict[str, dict[str, int]] = {
    "VAE": {"channels": 50},
    "planar flow": {"channels": 48},
    "IAF": {"channels": 22},
    "orthogonal Sylvester": {"flows": 8, "bottleneck": 16},
    TWO_LEVELS: {"channels": 46},
}
"""5.6 to 5.9 million parameters; the encoding edge has 6.2 on MNIST and 5.5 on Omniglot."""
SMALL: dict[str, dict[str, int]] = {
    "VAE": {"channels": 20},
    "planar flow": {"channels": 16},
    "IAF": {"channels": 14, "flows": 3},
    "orthogonal Sylvester": {"channels": 16, "flows": 4, "bottleneck": 8},
    TWO_LEVELS: {"channels": 17},
}
"""1.7 to 1.9 million parameters; the encoding edge has 1.7 on Caltech."""
SIZES = {"mnist": LARGE, "caltech": SMALL, "omniglot": LARGE}
SECONDS = {
    "mnist": {"models": 170, LONGER: 360, PAPERS: 16, "surrogate": 8},
    "caltech": {"models": 20, "surrogate": 3},
    "omniglot": {"models": 35, RESIDUAL: 35, "surrogate": 3},
}
"""Of training, per seed: the baselines and ours alike, and others."""
SEEDS = {"mnist": 1, "caltech": 1, "omniglot": 1, "digits": 1}
FOREIGN = 4 * 2**30
"""More bytes of the GPU than this beside our own tensors are somebody else's."""
RATE = 1e-3
"""The learning rate where none is given."""
SPARE = 10.0
"""Seconds that every model takes beside its training."""
BROKEN = 75
"""The exit status after an error on the GPU, from which only a new process recovers."""


def sampled_models(side: int, data: str, dropout: float = 0.0) -> dict[str, Make]:
    """Everything that has a bound, by name; dropout is that of baselines of the same size."""
    shape = SHAPES[data]
    is_small = side < 28
    narrow, wide = (32, 48) if is_small else (64, 288)
    sizes = {"width": 16, "flows": 4, "channels": 8, "features": 64} if is_small else {}
    models: dict[str, Make] = {
        PAPERS: lambda seed: papers_sampled(side, narrow, seed),
        OURS: lambda seed: ours(side, wide, seed),
        RESIDUAL: lambda seed: residual(side, 8 if is_small else 48, seed),
        ENCODING: lambda seed: encoding(side, seed=seed, **shape),
        LONGER: lambda seed: encoding(side, seed=seed, **SHAPES["mnist, longer"]),
    }
    for name in POSTERIORS:
        models[name] = partial(_autoencoder, partial(FlowAutoencoder, name), side, sizes)
    few = {size: number for size, number in sizes.items() if size != "flows"}
    models[TWO_LEVELS] = partial(_autoencoder, HierarchicalAutoencoder, side, few)
    for name, size in SIZES.get(data, {}).items():
        make = HierarchicalAutoencoder if name == TWO_LEVELS else partial(FlowAutoencoder, name)
        models[name + SAME_SIZE] = partial(_autoencoder, make, side, size | {"dropout": dropout})
    return models


def _autoencoder(make: Callable[..., Any], side: int, sizes: dict[str, Any], seed: int) -> Any:
    torch.manual_seed(seed)
    return make(side=side, **sizes)


def is_shared() -> bool:
    """Whether other processes hold memory of the GPU."""
    if DEVICE.type == "cpu":
        return False
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved() > FOREIGN


def trained(
    make: Make, images: Images, seeds: Sequence[int], budget: Budget
) -> tuple[list[Any], dict[str, Any]]:
    """Models with these seeds, and how their training went."""
    is_alone = not is_shared()
    members = [make(seed) for seed in seeds]
    run = train(members, images.train, images.valid, budget)
    cells = images.train.shape[1] if hasattr(members[0], "model") else 1  # losses are per cell
    first, *last = run.runs[0]
    about = {
        "parameters": count(members[0]),
        "steps": run.steps,
        "first_steps": run.first_steps,
        "batch": budget.batch,
        "images": run.images,
        "rate": getattr(members[0], "settings", {}).get("rate", budget.rate),
        "seeds": list(seeds),
        "train_seconds": round(run.seconds, 1),
        "setbacks": run.setbacks,
        "captured": run.captured,
        "alone": is_alone,
        "validation": curve(first, cells),
    }
    if last:  # whose objective is another one
        about["finish"] = {"steps": last[0].steps, "validation": curve(last[0], cells)}
    return members, about


def curve(part: Part, cells: int) -> list[float]:
    """The objective on validation rows after every epoch."""
    return [round(epoch.validation * cells, 2) for epoch in part.history]


def stride(rows: int) -> int:
    """Of how many test rows one is taken for the NLL, so that these are 2,000 or somewhat more."""
    return max(1, rows // 2000)


def tested(model: Any, images: Images, draws: int, every_row: bool) -> dict[str, float]:
    """-ELBO and NLL of the test rows, and -ELBO of as many training rows."""
    test = images.test
    few = test[:: 1 if every_row else stride(len(test))]
    known = images.train[: len(test)].bernoulli()
    elbo, train = (-model.bound(rows, 8).mean().item() for rows in (test, known))
    print(f"  -ELBO {elbo:.2f}, of training rows {train:.2f}", flush=True)
    gap = model.log_likelihood(few, draws).mean() - model.bound(few, 8).mean()
    measures = {"elbo": elbo, "nll": elbo - gap.item()}
    if hasattr(model, "model"):
        effective = model.model.effective_sample_size(few, samples=min(draws, 500))
        measures["effective"] = effective.median().item()
    return measures | {"train": train}


@dataclass(frozen=True)
class Job:
    """One model on one data set: a row of a table."""

    data: str
    name: str
    seconds: float
    beta: float | None = None
    """Of the surrogate; None for models that have a bound."""

    @property
    def key(self) -> dict[str, str]:
        return {"data": self.data, "model": self.name}

    def measure(self, given: Arguments, images: Images) -> dict[str, Any]:
        # The steps of VFGs are many small kernels: more rows at a time cost them next to nothing.
        is_tree = self.name == OURS and self.data != "caltech"
        batch = 64 if given.quick else 512 if is_tree else 256
        steps = given.steps or (100 if given.quick else None)
        first, number = given.first_seed, given.seeds or SEEDS[self.data]
        seeds = range(first, first + number)
        runs = (given.output or TRIALS) / "likelihood_runs" / f"{self.data}_{slug(self.name)}"
        kept = runs if given.keep_runs else None
        seconds = given.pace * number * self.seconds
        budget = Budget(seconds, steps, batch, given.rate, first, checkpoint=kept)
        hidden = 64 if images.side == 28 else 32
        make: Make = partial(papers, images.side, self.beta, hidden)
        if self.beta is None:
            make = sampled_models(images.side, self.data, given.dropout)[self.name]
        models, about = trained(make, images, seeds, budget)
        if self.name.endswith(SAME_SIZE):
            about["dropout"] = given.dropout
        about |= {"together": given.together, "alone": about["alone"] or given.together > 1}
        if given.against and is_behind(about, json.loads(given.against.read_text()), self.key):
            print("  behind earlier settings on validation rows: not tested", flush=True)
            return about | {"draws": given.draws, "test_seconds": 0.0}
        print("  trained: " + ", ".join(f"{k} {v}" for k, v in about.items()), flush=True)
        begun = time.monotonic()
        if self.beta is None:
            about["draws"] = given.draws
            found = [tested(model, images, given.draws, given.every_row) for model in models]
            about["every_row"] = given.every_row
        else:
            found = [model.parts(images.test) for model in models]
        about["test_seconds"] = round(time.monotonic() - begun, 1)
        return about | {what: [one[what] for one in found] for what in found[0]}


def is_behind(about: dict[str, Any], earlier: dict[str, Any], key: dict[str, str]) -> bool:
    """Whether other settings of the same model have a better bound on validation rows."""
    row = earlier["data"].get(key["data"], {"models": {}})["models"].get(key["model"])
    bounds = {} if row is None else validation_bounds(row)
    is_seed = _settings(about) in bounds  # a further seed of settings that were tested
    return bool(bounds) and not is_seed and min(about["validation"]) > min(bounds.values())


def validation_bounds(row: dict[str, Any]) -> dict[str, float]:
    """The best bound on validation rows by learning rate and dropout, smaller is better."""
    return row.get("rates") or {_settings(row): min(row["validation"])}


def _settings(row: dict[str, Any]) -> str:
    dropout = row.get("dropout", 0.0)
    return f"{row.get('rate', RATE):g}" + (f", dropout {dropout:g}" if dropout else "")


def jobs(name: str) -> Iterator[Job]:
    """What is measured on a data set, the most telling first."""
    seconds = SECONDS.get(name, {"models": 0, PAPERS: 0, "surrogate": 0})
    for model in (ENCODING, OURS, *reversed(POSTERIORS), TWO_LEVELS):
        yield Job(name, model, seconds["models"])
    for beta in BETAS:
        yield Job(name, f"surrogate, beta {beta}", seconds["surrogate"], beta)
    for model in (PAPERS, RESIDUAL, LONGER):
        if model in seconds:
            yield Job(name, model, seconds[model])
    for model in SIZES.get(name, {}):
        yield Job(name, model + SAME_SIZE, seconds["models"])


def finished(cells: Cells, data: str, model: str) -> dict[str, Any] | None:
    """The row of a model; None if it is not measured or an error ended it."""
    cell = cells.get({"data": data, "model": model}) or {"error": ""}
    return None if "error" in cell else {k: v for k, v in cell.items() if k != "key"}


def collected(names: Sequence[str], given: Arguments, cells: Cells) -> dict[str, Any]:
    """The results so far, as one file has them."""
    sets: dict[str, Any] = {}
    for name in names:
        about = finished(cells, name, "data")
        if about is None:
            continue
        found = {job: finished(cells, name, job.name) for job in jobs(name)}
        order = list(sampled_models(28, "mnist"))
        models = {job.name: row for job, row in found.items() if row and job.beta is None}
        sets[name] = about | {
            "models": {model: models[model] for model in order if model in models},
            "surrogate": {str(job.beta): row for job, row in found.items() if row and job.beta},
            "skipped": [job.name for job, row in found.items() if row is None],
        }
    seeds = max((one["seeds"] for one in sets.values()), key=len, default=[])
    described = {"seconds": _seconds(sets), "seeds": seeds, "draws": given.draws}
    return described | {"note": noted(sets, cells), "data": sets}


def _seconds(sets: dict[str, Any]) -> float:
    """Of training and testing, in however many runs."""
    rows = [row for one in sets.values() for row in (one["models"] | one["surrogate"]).values()]
    return round(sum(row["train_seconds"] + row["test_seconds"] for row in rows), 1)


def noted(sets: dict[str, Any], cells: Cells) -> str:
    """What a reader of the numbers must know of how they came about, in sentences."""
    reasons: dict[str, list[str]] = {
        "Other work was on the GPU, so that fewer steps fitted into the seconds of": [],
        "Steps could not be recorded, and were slow, for": [],
        "An error ended": [],
    }
    shared, slow, ended = reasons.values()
    for name, one in sets.items():
        for model, row in one["models"].items():
            is_gpu = DEVICE.type == "cuda"
            shared += [f"{name}: {model}"] * (is_gpu and not row["alone"])
            slow += [f"{name}: {model}"] * (is_gpu and not row["captured"])
        tried = [model for model in one["skipped"] if cells.get({"data": name, "model": model})]
        ended += [f"{name}: {model}" for model in tried]
    return " ".join(f"{text} {'; '.join(who)}." for text, who in reasons.items() if who)


def measure_all(names: Sequence[str], given: Arguments, cells: Cells) -> None:
    """All models that are not measured yet; those that an error ended come last."""
    ends = time.monotonic() + 60.0 * (given.minutes or math.inf)
    images = {name: binary(name) for name in names}
    for name, one in images.items():
        seeds = [given.first_seed + k for k in range(given.seeds or SEEDS[name])]
        sizes = [len(part) for part in (one.train, one.valid, one.test)]
        about = {"source": one.source, "rows": sizes, "seeds": seeds}
        cells.add({"data": name, "model": "data"}, about)
    todo = [job for name in names for job in jobs(name) if not finished(cells, name, job.name)]
    for job in sorted(todo, key=lambda job: cells.get(job.key) is not None):
        if given.models and job.name not in given.models:
            continue
        if (
            time.monotonic()
            + 1.02 * given.pace * job.seconds * (given.seeds or SEEDS[job.data])
            + SPARE
            > ends
        ):
            continue
        print(f"{job.data}: {job.name}", flush=True)
        try:
            row = job.measure(given, images[job.data])
        except RuntimeError as error:
            traceback.print_exc()
            cells.add(job.key, {"error": str(error).partition("\n")[0]})
            if DEVICE.type == "cuda":
                raise SystemExit(BROKEN) from error
            continue
        cells.add(job.key, row)
        print("  " + ", ".join(f"{k} {_short(v)}" for k, v in row.items()), flush=True)
        given.write("likelihood", collected(names, given, cells))


PER_SEED = ("elbo", "nll", "effective", "train", "seeds")


def first_steps(row: dict[str, Any]) -> int:
    """Steps of the first seed, whose curve and images a row has; `steps` are the seeds' mean."""
    return int(row.get("first_steps", row["steps"]))


def merge_rows(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row of the runs of a model: the best settings, seeds side by side, seconds added up.

    Steps are the mean over seeds, those of the first seed are kept beside them.
    """
    tried: dict[str, list[dict[str, Any]]] = {}
    rates: dict[str, float] = {}
    for row in sorted(rows, key=lambda row: row.get("seeds", [0])):
        if "elbo" in row:
            tried.setdefault(_settings(row), []).append({"seeds": [0], "rate": RATE} | row)
        rates = validation_bounds(row) | rates  # of the first seed
    runs = tried[min(rates, key=lambda settings: rates[settings])]
    joined = {key: [one for run in runs for one in run[key]] for key in PER_SEED if key in runs[0]}
    added = {
        key: round(sum(run[key] for run in runs), 1) for key in ("train_seconds", "test_seconds")
    }
    steps = round(sum(run["steps"] * len(run["seeds"]) for run in runs) / len(joined["seeds"]))
    together = max(run.get("together", 1) for run in runs)
    ordered = {settings: rates[settings] for settings in sorted(rates)}
    merged = {"steps": steps, "rates": ordered, "together": together}
    if len(runs) > 1:
        merged["first_steps"] = first_steps(runs[0])
    return runs[0] | joined | added | merged


def merge(
    found: Sequence[dict[str, Any]], before: dict[str, Any], *, add: bool = False
) -> dict[str, Any]:
    """Results of several runs as one; models that none of them has stay as they were before.

    The others are replaced, or the runs are put beside them (`add`).
    """
    sets = dict(before["data"])
    for name, old in sets.items():
        new = [one["data"][name] for one in found if name in one["data"]]
        models = dict(old["models"])
        for model in sampled_models(28, "mnist"):
            rows = [one["models"][model] for one in new if model in one["models"]]
            if rows and add and model in models:
                rows.insert(0, models[model])
            if rows:
                models[model] = merge_rows(rows)
        models = {model: models[model] for model in sampled_models(28, "mnist") if model in models}
        seeds = max((row.get("seeds", old["seeds"]) for row in models.values()), key=len)
        skipped = [model for model in old["skipped"] if model not in models]
        sets[name] = old | {"models": models, "seeds": seeds, "skipped": skipped}
    draws = max(one["draws"] for one in (before, *found))
    described = {"merged": True, "seconds": _seconds(sets), "draws": draws, "data": sets}
    return before | described


def _short(value: Any) -> str:
    return "/".join(f"{one:.2f}" for one in value) if isinstance(value, list) else str(value)


def checked_steps(row: dict[str, Any]) -> list[float]:
    """After how many steps the first seed was validated, before its last stage."""
    values = row["validation"]
    total = first_steps(row) - row.get("finish", {"steps": 0})["steps"]
    return [(k + 1) * total / len(values) for k in range(len(values))]


def draw_validation(found: dict[str, Any]) -> Any:
    """The bounds on validation rows by training step; the best bound of every model is in sight."""
    from matplotlib.lines import Line2D

    figure, axes = subplots(1, len(found["data"]), figsize=(12, 4.2), squeeze=False)
    parts = found["data"].values()
    drawn = [m for part in parts for m, row in part["models"].items() if "validation" in row]
    names = list(dict.fromkeys(drawn))
    looks = {
        name: _look(k) | {"lw": 2.4 if name == ENCODING else 1.2} for k, name in enumerate(names)
    }
    for axis, (name, part) in zip(axes[0], found["data"].items(), strict=True):
        for model in names:
            row = part["models"].get(model, {})
            if "validation" not in row:
                continue
            values, steps = row["validation"], checked_steps(row)
            axis.plot(steps, values, markevery=max(1, len(values) // 8), **looks[model])
        curves = [row["validation"] for row in part["models"].values() if "validation" in row]
        best = [min(values) for values in curves]
        tidy(axis, x="steps", y="−ELBO on validation rows", title=name)
        axis.set(ylim=(0.99 * min(best), max(1.25 * min(best), 1.02 * max(best))))
        axis.locator_params(axis="x", nbins=5)
    lines = [Line2D([], [], label=name, **look) for name, look in looks.items()]
    figure.legend(handles=lines, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure


def _look(k: int) -> dict[str, Any]:
    """Colour, marker and dashes of the k-th line; no two lines share all of them."""
    colours = CATEGORIES[:7]  # the eighth is too light for a line
    return {
        "color": colours[k % len(colours)],
        "marker": MARKERS[k % len(MARKERS)],
        "ms": 4,
        "ls": "-" if k < len(colours) else "--",
    }


def main() -> None:
    given = arguments(
        __doc__,
        data={"nargs": "*", "choices": list(SECONDS), "default": list(SECONDS)},
        draws={"type": positive, "help": "per row, for NLL; 500, or 100 if quick"},
        models={"nargs": "*", "help": "names of models; all by default"},
        steps={"type": positive, "help": "of training per model, in place of seconds"},
        pace={"type": float, "default": 1.0, "help": "what seconds are multiplied by"},
        minutes={"type": float, "help": "after which no further model is begun"},
        resume={"action": "store_true", "help": "keep what an earlier run finished"},
        draw={"action": "store_true", "help": "only the curves of the last results"},
        rate={
            "type": float,
            "default": RATE,
            "help": "of learning, but for VFGs with one of their own",
        },
        dropout={"type": float, "default": 0.1, "help": "of the baselines of the same size"},
        every_row={"action": "store_true", "help": "NLL of all test rows instead of 2,000"},
        first_seed={"type": int, "default": 0},
        together={"type": positive, "default": 1, "help": "processes on this GPU, for the record"},
        merge={"nargs": "*", "type": Path, "help": "folders of runs, put together into one file"},
        add={"action": "store_true", "help": "merge runs with the rows that are there"},
        against={"type": Path, "help": "earlier results that a model must not be behind"},
        keep_runs={"action": "store_true", "help": "checkpoints of VFGs, from which runs resume"},
    )
    if given.draw:
        file = (given.output or FOLDER) / "likelihood.json"
        given.save(draw_validation(json.loads(file.read_text())), "likelihood_validation")
        return
    if given.merge:
        file = (given.output or FOLDER) / "likelihood.json"
        runs = [json.loads((folder / "likelihood.json").read_text()) for folder in given.merge]
        described = merge(runs, json.loads(file.read_text()), add=given.add)
        print(given.write("likelihood", described))
        return
    given.draws = given.draws or (100 if given.quick else 500)
    names = ["digits"] if given.quick else given.data
    folder = (given.output or TRIALS) / ("likelihood_quick" if given.quick else "likelihood_parts")
    folder.mkdir(parents=True, exist_ok=True)
    if not given.resume:
        (folder / "cells.jsonl").unlink(missing_ok=True)
    cells = Cells(folder / "cells.jsonl")
    measure_all(names, given, cells)
    print(given.write("likelihood", collected(names, given, cells)))


if __name__ == "__main__":
    main()
