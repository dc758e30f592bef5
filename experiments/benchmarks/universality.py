"""How well a cover approximates an immersion of R^2 or R^3 (Theorem 1), and where it cannot.

A target g maps a root z of the cube [-1, 1]^m to n data coordinates; the model is
`Graph.cover(n, m)` with coupling edges, read from the root to the leaves. Three kinds of target:

- *invertible blocks*: every section of g is itself a diffeomorphism, as the proof assumes;
- *generic*: g is an injective immersion, but its sections fold the cube, so none is invertible;
- *generic, lifted*: the same g, with every section lifted into a root of width 8.

The error is the root mean square over fresh roots, divided by that of the best constant.

    python -m experiments.benchmarks.universality            3 minutes on 16 cores
    python -m experiments.benchmarks.universality --quick    one size, few steps
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

import vfg
from vfg.plots.style import BAND, CATEGORIES, HAIRLINE, LINE, MARKERS, PAPER, legend, tidy
from vfg.training import maximise

from ..results import Arguments, arguments, on_all_cores, subplots

LIFTED = 8
RATE, BATCH = 3e-3, 256
BLOCKS = (1, 2, 4, 8)
HIDDEN = (4, 16, 64)
SIZES = [(blocks, HIDDEN[-1]) for blocks in BLOCKS] + [(4, hidden) for hidden in HIDDEN[:-1]]
"""Depths at the largest width, then widths at depth 4."""
KINDS = ("invertible blocks", "generic", "generic, lifted")


def bent(z: Tensor) -> Tensor:
    """A diffeomorphism of any R^k: two bent shears with a rotation between them."""
    coordinates = list(z.unbind(-1))
    for k in range(1, len(coordinates)):
        coordinates[k] = coordinates[k] + 0.8 * torch.sin(2.0 * coordinates[k - 1])
    first, last = coordinates[0], coordinates[-1]
    coordinates[0], coordinates[-1] = 0.8 * first - 0.6 * last, 0.6 * first + 0.8 * last
    coordinates[0] = coordinates[0] + 0.5 * torch.cos(2.0 * coordinates[-1])
    return torch.stack(coordinates, dim=-1)


def turned(z: Tensor) -> Tensor:
    """The plane turned by a right angle. A mirror image would be out of reach: couplings scale by
    positive numbers and keep the orientation of space.
    """
    return torch.stack([-z[..., 1], z[..., 0]], dim=-1)


def invertible_plane(z: Tensor) -> Tensor:
    """R^2 to R^4 in two invertible sections."""
    return torch.cat([bent(z), bent(turned(z))], dim=-1)


def folding_plane(z: Tensor) -> Tensor:
    """R^2 to R^4: an injective immersion whose two sections both fold the square."""
    a, b = z.unbind(-1)
    return torch.stack([2 * a.square(), b + 0.5 * a, a - 0.5 * b, 2 * b.square()], dim=-1)


def invertible_space(z: Tensor) -> Tensor:
    """R^3 to R^7 in three sections: all coordinates, the first two, the last two."""
    return torch.cat([bent(z), bent(z[..., :2]), bent(turned(z[..., 1:]))], dim=-1)


def folding_space(z: Tensor) -> Tensor:
    """R^3 to R^7: an injective immersion; each section folds the coordinates it covers."""
    a, b, c = z.unbind(-1)
    first = [2 * a.square(), b + 0.5 * c, c - 0.5 * a]
    return torch.stack([*first, a + 0.3 * b, 2 * b.square(), 2 * c.square(), b + 0.3 * c], dim=-1)


TARGETS = {
    (2, "invertible blocks"): invertible_plane,
    (2, "generic"): folding_plane,
    (3, "invertible blocks"): invertible_space,
    (3, "generic"): folding_space,
}


def build(m: int, n: int, kind: str, blocks: int, hidden: int, seed: int) -> vfg.VFG:
    """The cover, or for the lifted kind the star over the same sections with a wider root."""
    graph = vfg.Graph.cover(n, m)
    if kind == "generic, lifted":
        leaves = [graph.node(leaf) for leaf in graph.leaves]
        graph = vfg.Graph.star(leaves, width=LIFTED)
    flow = vfg.Coupling(blocks=blocks, hidden=hidden, activation="tanh")
    return vfg.VFG(graph, flow=flow, aggregation="mean", seed=seed)


def decoded(model: vfg.VFG, z: Tensor) -> Tensor:
    """Roots to data, with gradients; a root wider than z is padded with zeros."""
    block, _ = model.passing.schedule.place[model.graph.roots[0]]
    width = model.passing.schedule.blocks[block].width
    root = torch.nn.functional.pad(z, (0, width - z.shape[-1]))[None]
    known = {block: torch.ones_like(root[..., :1]).bool()}
    states, _, _ = model.passing.backward_pass({block: root}, known, {})
    return model.sections.join({index: states[index] for index in model.sections.blocks})


class Decoder(nn.Module):
    """A model whose decoder approximates a target."""

    def __init__(self, model: vfg.VFG, target: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.target = model, target

    def objective(self, z: Tensor, beta: Tensor) -> Tensor:
        """Minus the mean square distance."""
        return -(decoded(self.model, z) - self.target(z)).square().sum(-1).mean()


def approximate(m: int, kind: str, blocks: int, hidden: int, seed: int, steps: int) -> float:
    """Train the decoder on one target; the relative error on fresh roots."""
    target = TARGETS[m, kind.removesuffix(", lifted")]
    generator = torch.Generator().manual_seed(seed)
    n = target(torch.zeros(1, m)).shape[-1]
    model = build(m, n, kind, blocks, hidden, seed)
    roots = 2 * torch.rand(BATCH * steps, m, generator=generator) - 1  # every step has new ones
    maximise(
        Decoder(model, target), roots, epochs=1, batch=BATCH, rate=RATE, weight_decay=0.0,
        seed=seed, device="cpu", compile=False,
    )  # fmt: skip
    with torch.no_grad():
        z = 2 * torch.rand(4096, m, generator=generator) - 1
        wanted = target(z)
        error = (decoded(model, z) - wanted).square().sum(-1).mean()
        return float((error / (wanted - wanted.mean(0)).square().sum(-1).mean()).sqrt())


def run(steps: int, seeds: int, chosen: list[tuple[int, int]]) -> list[dict[str, object]]:
    """Every kind, dimension, size and seed."""
    cases = list(itertools.product((2, 3), KINDS, chosen))
    calls = [(m, kind, *size, seed, steps) for m, kind, size in cases for seed in range(seeds)]
    errors = iter(on_all_cores(approximate, calls))
    return [
        {
            "dimension": m,
            "kind": kind,
            "blocks": blocks,
            "hidden": hidden,
            "errors": [next(errors) for _ in range(seeds)],
        }
        for m, kind, (blocks, hidden) in cases
    ]


def draw(found: list[dict[str, object]], given: Arguments) -> None:
    figure, axes = subplots(2, 2, figsize=(8, 5.6), sharey=True)
    for row, m in zip(axes, (2, 3), strict=True):
        for axis, varied, fixed, value in zip(
            row, ("blocks", "hidden"), ("hidden", "blocks"), (HIDDEN[-1], 4), strict=True
        ):
            for kind, colour, marker in zip(KINDS, CATEGORIES, MARKERS, strict=False):
                rows = [
                    case
                    for case in found
                    if (case["dimension"], case["kind"], case[fixed]) == (m, kind, value)
                ]
                rows.sort(key=lambda case: case[varied])
                errors = torch.tensor([case["errors"] for case in rows])
                where = [case[varied] for case in rows]
                look = {"color": colour, "marker": marker, "lw": LINE, "markersize": 4}
                axis.plot(where, errors.mean(1), label=kind, **look)
                low, high = errors.min(1).values, errors.max(1).values
                axis.fill_between(where, low, high, alpha=BAND, color=colour, lw=0)
            axis.set_xscale("log", base=2)
            axis.set_xticks(where, [str(value) for value in where])
            axis.set_yscale("log")
            axis.grid(color=PAPER, lw=HAIRLINE)
            tidy(axis, x="coupling blocks" if varied == "blocks" else "hidden units")
            if varied == "blocks":
                tidy(
                    axis,
                    x="coupling blocks",
                    y="relative error, " + ("R² to R⁴" if m == 2 else "R³ to R⁷"),
                )
    legend(axes[0, 0])
    given.save(figure, "universality")


def main() -> None:
    given = arguments(__doc__)
    seeds, steps = given.chosen(full=3, quick=1), 100 if given.quick else 4000
    found = run(steps, len(seeds), [(4, 16)] if given.quick else SIZES)
    print(given.write("universality", {"steps": steps, "seeds": seeds, "cases": found}))
    if not given.quick:
        draw(found, given)


if __name__ == "__main__":
    main()
