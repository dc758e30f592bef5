"""Part 2: one whole training step of three models, next to the least that it could take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import vfg
from vfg.data import NETWORK, gaussian_network
from vfg.flows.conditioners import StackedLinear
from vfg.flows.fast.primitives import PRECISIONS
from vfg.imputation.fitting import MASKING
from vfg.imputation.mixtures import fit_linear, star
from vfg.imputation.plan import make_plan
from vfg.training.acceleration import Replayed
from vfg.training.data import TrainingTable, World
from vfg.training.loop import Run
from vfg.training.model_stack import repeat_columns, stack_models
from vfg.training.settings import RunSettings
from vfg.training.tasks import TableTask

from .clock import Where, Work, bandwidth, matrix_rate, medians

BATCHES = (2048, 65536)


def measured(where: Where) -> dict[str, Any]:
    """The machine's rates, and milliseconds by model, batch and precision of conditioners."""
    device, quick = where.device, where.quick
    precisions = PRECISIONS if where.is_cuda else PRECISIONS[:1]
    rates: dict[str, Any] = {
        "operations per second": matrix_rate(device, quick=quick),
        "bytes per second": bandwidth(device, quick=quick),
        "operations per second by precision": {
            precision: matrix_rate(device, quick=quick, precision=precision)
            for precision in precisions
        },
    }
    batches = (64,) if quick else BATCHES if device.type == "cuda" else (256, *BATCHES)
    plans = [(name, batch, p) for name in MODELS for batch in batches for p in precisions]
    cases = [_case(*plan, device, rates, quick) for plan in plans if where.has_time]
    return {"rates": rates, "cases": cases}


def letter(rows: int) -> tuple[vfg.VFG, Tensor]:
    """The members of an imputer of a table like letter: 16 columns."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, 6, generator=generator)
    table = (hidden @ torch.randn(6, 16, generator=generator)).tanh()
    table += 0.2 * torch.randn(rows, 16, generator=generator)
    return letter_members(table)


def letter_members(table: Tensor, seed: int = 0) -> tuple[vfg.VFG, Tensor]:
    """The members of an imputer of a table of 16 columns, and what they are trained on."""
    plan = make_plan(20_000, 16)
    shown = torch.ones(2000, 16, dtype=torch.bool)
    linear = fit_linear(
        star([1] * 16, plan.width), table[:2000].double(), shown, 0, inner_noise=False
    )
    members = [
        vfg.VFG.from_gaussian(linear, flow=plan.flow, seed=seed + k).float()
        for k in range(plan.members)
    ]
    return stack_models(members), repeat_columns(table, plan.members)


def mnist(rows: int) -> tuple[vfg.VFG, Tensor]:
    """The paper's tree over the four quarters of an image."""
    generator = torch.Generator().manual_seed(0)
    return tree_of_quarters(), (torch.rand(rows, 784, generator=generator) < 0.15).float()


def tree_of_quarters(seed: int = 0) -> vfg.VFG:
    """The paper's model of an image."""
    graph = vfg.Graph.blocks(28, 28, rows=2, columns=2, arity=2)
    flow = vfg.Coupling(blocks=4, hidden=64)
    return vfg.VFG(graph, flow=flow, likelihood="bernoulli", prior="laplace", seed=seed)


def network(rows: int) -> tuple[vfg.VFG, Tensor]:
    """The paper's model of a Bayesian network over six variables."""
    table, names = gaussian_network(rows)
    graph = vfg.Graph.from_bayesian_network(NETWORK, variables=names, width=8)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=4, hidden=64), aggregation="mean")
    return model, table.float()


MODELS = {"letter imputer": letter, "MNIST tree": mnist, "gaussian network": network}


def beta_of(name: str) -> float:
    """The weight of the KL terms in steps of a model."""
    return 0.0 if name == "letter imputer" else 1.0


def _case(
    name: str, batch: int, precision: str, device: torch.device, rates: dict[str, Any], quick: bool
) -> dict[str, Any]:
    model, table = MODELS[name](max(batch, 2000))
    run = run_of(model, table, batch, device, beta=beta_of(name), precision=precision)
    works: dict[str, Work] = {"step": step_of(run)}
    if device.type == "cpu":
        works["products"] = _products(model, batch)
    times = medians(works, device, 0.3 if quick else 3.0 if device.type == "cpu" else 1.0)
    arithmetic = 3.0 * _forward_operations(run, batch)
    moved = 16.0 * sum(p.numel() for p in model.parameters()) + 5.0 * batch * table.shape[1]
    least, rounded = (
        max(arithmetic / rate, moved / rates["bytes per second"])
        for rate in (
            rates["operations per second"],
            rates["operations per second by precision"][precision],
        )
    )
    return {
        "model": name,
        "batch": batch,
        "precision": precision,
        "operations": arithmetic,
        "bytes": moved,
        "floor": least,
        **times,
        "over floor": times["step"] / least,
        "floor of the precision": rounded,
        "over floor of the precision": times["step"] / rounded,
    }


def run_of(
    model: vfg.VFG, table: Tensor, batch: int, device: torch.device, *, beta: float, **others: Any
) -> Run:
    """A training run that is about to begin; `others` are settings that differ from the usual."""
    usual = RunSettings(
        masking=MASKING, layerwise=False, beta=beta, warmup=0, free_bits=0.0, epochs=1, steps=1,
        budget=None, batch=batch, rate=1e-4, weight_decay=1e-2, clip=1.0, validation=0.0,
        patience=None, scale=False, compile=False, seed=0,
    )  # fmt: skip
    cells = table.to(device)
    seen = torch.ones_like(cells, dtype=torch.bool)
    settings = replace(usual, **others)
    task = TableTask([model.to(device)], TrainingTable(cells, seen, None), settings)
    return Run(task, settings, World())


def step_of(run: Run, calls: int = 3) -> Replayed:
    """The first kind of step of a run, after so many of them."""
    run.steps.begin(0, run.settings.beta)
    run.model.train()
    work = run.steps.kind(0)
    for _ in range(calls):
        work()
    return work


@torch.no_grad()
def _forward_operations(run: Run, batch: int) -> float:
    """Of the matrix products of both passes."""
    assert isinstance(run.task, TableTask)
    cells, seen = run.task.data.cells[:batch], run.task.data.seen[:batch]
    with FlopCounterMode(display=False) as counter:
        run.model(cells, seen)
    return float(counter.get_total_flops())


def _products(model: vfg.VFG, batch: int) -> Any:
    """The products of all conditioners, there and back, as a plain chain."""
    layers = [
        layer.weight.detach() for layer in model.modules() if isinstance(layer, StackedLinear)
    ]
    inputs, outputs = list[Tensor](), list[Tensor]()
    for weight in layers:
        before, after = ((len(weight), batch, width) for width in weight.shape[1:])
        follows = outputs and outputs[-1].shape == before
        inputs.append(outputs[-1] if follows else torch.randn(before))
        outputs.append(torch.randn(after))

    def work() -> None:
        for _ in range(2):
            for weight, x, y in zip(layers, inputs, outputs, strict=True):
                torch.bmm(x, weight)
                torch.bmm(y, weight.mT)
                torch.bmm(x.mT, y)

    return work
