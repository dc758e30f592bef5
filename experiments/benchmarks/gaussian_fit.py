"""How long `GaussianVFG` takes to fit incomplete tables, and to answer them.

python -m experiments.benchmarks.gaussian_fit            all sizes, two minutes on 2 cores
python -m experiments.benchmarks.gaussian_fit --quick    the smallest one
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

import vfg

from ..results import arguments

CASES = {
    "5,000 x 11, half missing, affine": (5_000, 11, 4, 0.5, "affine"),
    "5,000 x 11, half missing, spline": (5_000, 11, 4, 0.5, "spline"),
    "100,000 x 50, 30 % missing, affine": (100_000, 50, 10, 0.3, "affine"),
}
"""Rows, columns, width, share of missing cells, leaf maps."""


def factors(rows: int, columns: int, width: int, missing: float) -> Tensor:
    """A table from a factor model, with cells missing at random."""
    generator = torch.Generator().manual_seed(0)
    loadings = torch.randn(width, columns, generator=generator).double()
    hidden = torch.randn(rows, width, generator=generator).double()
    table = hidden @ loadings + 0.5 * torch.randn(rows, columns, generator=generator) + 3.0
    return torch.where(torch.rand(rows, columns, generator=generator) < missing, torch.nan, table)


def measure(name: str) -> dict[str, float]:
    """Seconds to fit, to score and to fill."""
    rows, columns, width, missing, leaf = CASES[name]
    table = factors(rows, columns, width, missing)
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(columns)}, width=width)
    model = vfg.GaussianVFG(graph, leaf=leaf)
    found = {}
    for what, action in {
        "fit": lambda: model.fit(table),
        "log_prob": lambda: model.log_prob(table),
        "means": lambda: model.infer(table).mean,
    }.items():
        begun = time.perf_counter()
        action()
        found[what] = round(time.perf_counter() - begun, 3)
    return found


def main() -> None:
    given = arguments(__doc__)
    found = {name: measure(name) for name in (list(CASES)[:1] if given.quick else CASES)}
    described = {"seeds": [0], "threads": torch.get_num_threads(), "times": found}
    print(given.write("gaussian_fit", described))
    for name, times in found.items():
        print(f"{name:36}", "  ".join(f"{what} {value:.2f} s" for what, value in times.items()))


if __name__ == "__main__":
    main()
