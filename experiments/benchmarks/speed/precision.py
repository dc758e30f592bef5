"""Rounded conditioners: what they cost in held-out loss, and what they save in time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

import vfg
from vfg.data import binarized_mnist
from vfg.flows.fast.primitives import PRECISIONS
from vfg.training.history import Progress

from .clock import Where, Work, medians
from .filling import letter_table
from .steps import letter_members, run_of, step_of, tree_of_quarters

SEEDS = (0, 1)
TRAINED = {"letter imputer": (3e-3, 0.0), "MNIST tree": (2e-3, 1.0)}
"""Learning rate and weight of the KL terms."""


def measured(where: Where) -> list[dict[str, Any]]:
    """Held-out losses by seed, and seconds per step, by model and precision."""
    return [case for name in TRAINED for case in _cases(name, where)]


def _cases(name: str, where: Where) -> list[dict[str, Any]]:
    batches = (64,) if where.quick else (2048, 65_536) if where.is_cuda else (512,)
    times = {batch: _times(name, batch, where) for batch in batches}
    found = []
    for precision in PRECISIONS:
        losses = [_loss(name, precision, seed, where) for seed in SEEDS]
        steps = {str(batch): times[batch][precision] for batch in batches}
        found.append({"model": name, "precision": precision, "losses": losses, "step": steps})
        print(found[-1], flush=True)
    return found


def _times(name: str, batch: int, where: Where) -> dict[str, float]:
    works: dict[str, Work] = {}
    beta = TRAINED[name][1]
    for precision in PRECISIONS:
        model, table = _model(name, batch, 0, quick=True)
        run = run_of(model, table, batch, where.device, beta=beta, precision=precision)
        works[precision] = step_of(run)
    return medians(works, where.device, 0.2 if where.quick else 1.0)


def _loss(name: str, precision: str, seed: int, where: Where) -> float:
    """The held-out loss, in float32, of a model trained in a precision."""
    batch, epochs, steps = (64, 1, 3) if where.quick else (512, 4, 200 if where.is_cuda else 50)
    model, table = _model(name, batch if where.quick else 20_000, seed, quick=where.quick)
    rate, beta = TRAINED[name]
    run = run_of(
        model, table, batch, where.device, beta=beta, precision=precision, rate=rate,
        epochs=epochs, steps=steps, validation=0.1, seed=seed,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[where.device] if where.is_cuda else []):
        history = run.train(Progress(epochs, visible=False))
    return float(history[-1].validation or 0.0)


def _model(name: str, rows: int, seed: int, *, quick: bool) -> tuple[vfg.VFG, Tensor]:
    if name == "MNIST tree":
        return tree_of_quarters(seed), _images(rows, quick=quick)
    table = torch.as_tensor(letter_table(max(rows, 2000))).float()
    table = table.repeat(-(-max(rows, 2000) // len(table)), 1)
    return letter_members(table, seed)


def _images(rows: int, *, quick: bool) -> Tensor:
    """Binarized MNIST, or blots where it is not at hand."""
    if not quick:
        try:
            return torch.as_tensor(binarized_mnist().train[:rows]).float()
        except FileNotFoundError:
            pass
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(rows, 1, 36, 36, generator=generator)
    return (avg_pool2d(noise, 9, stride=1).flatten(1) > 0.1).float()
