"""Likelihood and imputation errors of linear models over learned graphs and other graphs.

    python -m experiments.benchmarks.graph_models [--seeds 2]

Random linear graphs of 10 columns. Models are fitted to 300 rows with 30 % of the cells missing:
`GaussianVFG` over the learned DAG, the true DAG, a tree by clustering and a star, whose latent
nodes are wide enough for any covariance; and Gaussians: EM's without structure, and those that
regress every column on its causes in the learned or the true DAG. 2,000 other rows of the same
system give the log-likelihood per row, and with 30 % hidden the error of imputation, as a share of
that by means.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import multivariate_normal

import vfg
from vfg.structure.completing import fit_covariance
from vfg.structure.pdag import edge_matrix

from ..results import arguments
from .structure import FIRST_SEED, hide, simulate

NODES, ROWS, TEST_ROWS, MISSING = 10, 300, 2000, 0.3


def graphs(gaps: dict[str, Any], dag: Any) -> dict[str, Any]:
    """The graphs to compare by name."""
    names = list(gaps)
    edges = [(names[i], names[j]) for i, j in np.argwhere(dag)]
    return {
        "star": vfg.Graph.star(dict.fromkeys(names, 1), width=NODES // 2),
        "clustered tree": vfg.Graph.from_data(pd.DataFrame(gaps)),
        "learned DAG": vfg.learn_graph(gaps),
        "true DAG": vfg.LearnedGraph.from_edges(edges, names),
    }


def score(graph: Any, shown: Any, test: Any, hidden: Any) -> dict[str, float]:
    """Log-likelihood per row, error at hidden cells, processor seconds of the fit."""
    begun = time.process_time()
    model = vfg.GaussianVFG(graph)
    names = list(model.variables)
    place = [int(str(name)[1:]) for name in names]
    model.fit(shown[:, place], columns=names)
    seconds = time.process_time() - begun
    test, hidden = test[:, place], hidden[:, place]
    filled = np.asarray(model.fill(np.where(hidden, np.nan, test)))
    left, total = (filled - test)[hidden], test[hidden]
    return {
        "log_likelihood": round(float(np.mean(np.asarray(model.log_prob(test)))), 4),
        "error": round(float(np.sqrt(np.mean(left**2) / np.mean(total**2))), 4),
        "seconds": round(seconds, 2),
    }


def network(mean: Any, covariance: Any, dag: Any) -> tuple[Any, Any]:
    """The Gaussian whose columns are regressed on their parents, from moments."""
    count = len(covariance)
    weights, noise = np.zeros((count, count)), np.zeros(count)
    for node in range(count):
        own = np.flatnonzero(dag[:, node])
        slopes = np.linalg.solve(covariance[np.ix_(own, own)], covariance[own, node])
        weights[own, node] = slopes
        noise[node] = covariance[node, node] - slopes @ covariance[own, node]
    paths = np.linalg.inv(np.eye(count) - weights)
    return mean, paths.T @ np.diag(noise) @ paths


def score_gaussian(mean: Any, covariance: Any, test: Any, hidden: Any) -> dict[str, float]:
    """As `score`, of a Gaussian by its moments."""
    density = multivariate_normal(mean, covariance).logpdf(test)
    filled = test.copy()
    for row, own in enumerate(hidden):
        weights = np.linalg.solve(covariance[np.ix_(~own, ~own)], covariance[np.ix_(~own, own)])
        filled[row, own] = mean[own] + (test[row, ~own] - mean[~own]) @ weights
    left, total = (filled - test)[hidden], test[hidden]
    return {
        "log_likelihood": round(float(density.mean()), 4),
        "error": round(float(np.sqrt(np.mean(left**2) / np.mean(total**2))), 4),
    }


def main() -> None:
    chosen = arguments(__doc__)
    torch.set_num_threads(1)
    sizes = {"nodes": NODES, "rows": ROWS, "test_rows": TEST_ROWS, "missing": MISSING}
    runs: list[dict[str, Any]] = []
    for seed in chosen.chosen(full=2, quick=1):
        dag, table = simulate(FIRST_SEED + seed, "linear", "er", NODES, ROWS + TEST_ROWS)
        shown, test = hide(table[:ROWS], MISSING, "MCAR", seed), table[ROWS:]
        hidden = np.isnan(hide(test, MISSING, "MCAR", 500 + seed))
        gaps = {f"x{k}": own for k, own in enumerate(shown.T)}
        compared = graphs(gaps, dag)
        seen = ~np.isnan(shown)
        moments = fit_covariance(np.where(seen, shown, 0.0), seen)
        found = edge_matrix(list(gaps), compared["learned DAG"].edges)
        runs.append(
            {
                "Gaussian without structure": score_gaussian(*moments, test, hidden),
                "regressions along the learned DAG": score_gaussian(
                    *network(*moments, found), test, hidden
                ),
                "regressions along the true DAG": score_gaussian(
                    *network(*moments, dag), test, hidden
                ),
            }
        )
        print(seed, runs[-1], flush=True)
        for name, graph in compared.items():
            runs[-1][f"GaussianVFG, {name}"] = score(graph, shown, test, hidden)
            print(seed, name, runs[-1][f"GaussianVFG, {name}"], flush=True)
        chosen.write("graph_models", {**sizes, "runs": runs})


if __name__ == "__main__":
    main()
