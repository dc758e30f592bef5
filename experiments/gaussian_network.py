"""A known Bayesian network in, closed-form answers out: bnlearn's Gaussian network of 7 variables.

`GaussianVFG` on `Graph.from_bayesian_network` with the true edges, 4500 rows to train, 500 to test.
Every variable is missing in turn, then 30 % of all cells at random. The yardstick is least squares
with an intercept on the training rows: for one missing variable a regression on all others, for
random gaps the conditional mean of the multivariate Normal with the training rows' moments.

Both scales are printed: raw, and divided by the variance of the variable.

    VFG_DATA=folder python experiments/gaussian_network.py    with bnlearn's rows
    python experiments/gaussian_network.py                    with simulated ones
"""

from __future__ import annotations

import argparse

import torch
from results import write
from torch import Tensor

import vfg
from vfg.data import NETWORK, gaussian_network

TRAIN = 4500


def least_squares(train: Tensor, test: Tensor, gaps: Tensor) -> Tensor:
    """Conditional means of a multivariate Normal with the moments of the training rows."""
    centre, covariance = train.mean(0), train.T.cov()
    filled = test.clone()
    for row, missing in zip(filled, gaps, strict=True):
        seen = ~missing
        gain = torch.linalg.solve(covariance[seen][:, seen], covariance[seen][:, missing])
        row[missing] = centre[missing] + (row[seen] - centre[seen]) @ gain
    return filled


def errors(model: vfg.GaussianVFG, train: Tensor, test: Tensor, gaps: Tensor) -> dict[str, float]:
    """Mean squared errors of the missing cells: ours and the yardstick's, raw and standardised."""
    ours = model.infer(torch.where(gaps, torch.nan, test)).to_frame().to_numpy(copy=True)
    found = {"ours": torch.from_numpy(ours), "least squares": least_squares(train, test, gaps)}
    size = train.std(0, correction=0)
    measured = {}
    for name, filled in found.items():
        measured[f"{name}, raw"] = float((filled - test)[gaps].square().mean())
        standard = ((filled - test) / size)[gaps]
        measured[f"{name}, standardised"] = float(standard.square().mean())
    measured["ratio"] = measured["ours, raw"] / measured["least squares, raw"]
    return measured


def main() -> None:
    """Fit, ask, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    quick = parser.parse_args().quick
    table, names = gaussian_network(1000 if quick else 5000)
    split = len(table) * 9 // 10
    train, test = table[:split], table[split:]
    graph = vfg.Graph.from_bayesian_network(NETWORK, variables=names)
    model = vfg.GaussianVFG(graph)
    print(model.fit(train))
    found = {}
    for k, name in enumerate(names):
        gaps = torch.zeros_like(test, dtype=torch.bool)
        gaps[:, k] = True
        found[f"{name} missing"] = errors(model, train, test, gaps)
    generator = torch.Generator().manual_seed(0)
    found["30 % at random"] = errors(
        model, train, test, torch.rand(test.shape, generator=generator) < 0.3
    )
    print(write("gaussian_network", {"seeds": [0], "cases": found}, quick=quick))
    for case, measured in found.items():
        print(f"{case:16}", "  ".join(f"{name} {value:.4f}" for name, value in measured.items()))


if __name__ == "__main__":
    main()
