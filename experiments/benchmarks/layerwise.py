"""What layer-wise training changes on a tree with three layers of nodes above its leaves.

Eight sections are functions of two hidden numbers; a binary tree joins them. The same model is
trained all layers at once, one layer of edges per step, and the latter with three times the steps,
so that every edge is updated as often; and compared on fresh rows with half of the sections hidden.

    python -m experiments.benchmarks.layerwise            2 minutes on 16 cores
    python -m experiments.benchmarks.layerwise --quick    one seed, few epochs
"""

from __future__ import annotations

import torch
from torch import Tensor

import vfg

from ..results import arguments, on_all_cores

SECTIONS = [f"x{k}" for k in range(8)]


def rows(count: int, seed: int) -> Tensor:
    """Eight sections of two columns, each a bent view of the same two numbers."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, 2, generator=generator)
    views = []
    for k in range(len(SECTIONS)):
        angle = torch.tensor(0.7 * k)
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
        turned = z @ turn
        views.append(turned + 0.5 * torch.sin(2.0 * turned.flip(-1)))
    return torch.cat(views, dim=1)


def measure(model: vfg.VFG, table: Tensor) -> dict[str, float]:
    """Hidden cells' error, and how far the two directions of messages are apart."""
    generator = torch.Generator().manual_seed(99)
    hidden = torch.rand(len(table), len(SECTIONS), generator=generator) < 0.5
    hidden = hidden.repeat_interleave(2, dim=1)
    filled = model.reconstruct(table, observed=~hidden)
    apart = model.consistency(table)
    layers = model.graph.layers
    return {
        "hidden mse": float((filled - table)[hidden].square().mean()),
        "surrogate": float(model.surrogate(table).total.detach().mean()),
        **{
            f"consistency of layer {k}": float(torch.stack([apart[n] for n in layer]).mean())
            for k, layer in enumerate(layers)
        },
    }


MODES = {
    "all layers at once": (False, 1),
    "one layer per step": (True, 1),
    "one layer per step, three times as long": (True, 3),
}
"""Whether layer by layer, and how many times the epochs."""


def trained(seed: int, layerwise: bool, times: int, epochs: int) -> dict[str, float]:
    """One model from the same start and the same rows."""
    graph = vfg.Graph.tree(dict.fromkeys(SECTIONS, 2), arity=2, width=4)
    paper = vfg.paper_settings()
    model = vfg.VFG(graph, **paper.model, seed=seed)
    vfg.fit(
        model,
        rows(2000, seed),
        paper.fit,
        layerwise=layerwise,
        epochs=times * epochs,
        batch=100,
        seed=seed,
        device="cpu",
        progress=False,
    )
    return measure(model, rows(1000, 1000 + seed))


def main() -> None:
    given = arguments(__doc__)
    seeds, epochs = given.chosen(full=5, quick=2), 2 if given.quick else 60
    calls = [(seed, *mode, epochs) for mode in MODES.values() for seed in seeds]
    runs = on_all_cores(trained, calls)
    count = len(seeds)
    found = {mode: runs[k * count : (k + 1) * count] for k, mode in enumerate(MODES)}
    described = {"epochs": epochs, "steps": epochs * 20, "seeds": seeds, "runs": found}
    print(given.write("layerwise", described))


if __name__ == "__main__":
    main()
