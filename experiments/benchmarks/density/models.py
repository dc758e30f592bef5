"""Density models under one contract: equally many configurations, the same rows, one log p.

A fitted model is a function from a table to log p of every row. NaN is unobserved and marginalised
where the method can do so; `MARGINAL` names those methods.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

import vfg
from vfg.training import maximise

from ...baselines.graphical import learn_network
from .tables import Array

Configuration = dict[str, Any]
LogProb = Callable[[Array], Array]

BUDGET = 8
"""Configurations of every method; the validation rows choose one."""
OURS = "GaussianVFG"
MARGINAL = (OURS, "Gaussian", "Gaussian mixture", "SPFlow")
"""Methods that answer log p of some columns."""
STEPS, BATCH, LOOK, PATIENCE = 2000, 128, 25, 20
"""Of flows: steps at the most, rows per step, steps between two looks at the validation rows, and
looks in vain after which training ends."""


def ours(train: Array, validation: Array, setting: Configuration, seed: int) -> LogProb:
    """A star over the columns; width and shrinkage are relative to their number."""
    columns = train.shape[1]
    width = max(2, round(setting["width"] * columns))
    graph = vfg.Graph.star({f"x{k}": 1 for k in range(columns)}, width=width)
    model = vfg.GaussianVFG(
        graph, setting["components"], leaf=setting["leaf"], mixture=setting["mixture"], seed=seed
    )
    model.fit(train, validation=validation, shrinkage=setting["shrinkage"] * width, seed=seed)
    return lambda table: model.log_prob(table).numpy()


def gaussian(train: Array, validation: Array, setting: Configuration, seed: int) -> LogProb:
    """One Normal, its covariances drawn towards 0."""
    covariance = np.cov(train.T, bias=True)
    kept = np.where(np.eye(len(covariance)) > 0, 1.0, 1.0 - setting["shrinkage"])
    covariance = covariance * kept + 1e-6 * np.eye(len(covariance))
    mean = train.mean(0)
    return lambda table: mixture_log_prob(table, np.ones(1), mean[None], covariance[None])


def mixture(train: Array, validation: Array, setting: Configuration, seed: int) -> LogProb:
    """scikit-learn's mixture, the best of as many runs as ours has."""
    model = GaussianMixture(
        min(setting["components"], len(train)),
        covariance_type=setting["covariance"],
        n_init=3,
        max_iter=300,
        random_state=seed,
    ).fit(train)
    covariances = model.covariances_
    if setting["covariance"] == "diag":
        covariances = np.stack([np.diag(part) for part in covariances])
    return lambda table: mixture_log_prob(table, model.weights_, model.means_, covariances)


def spflow(train: Array, validation: Array, setting: Configuration, seed: int) -> LogProb:
    """LearnSPN with Normal leaves, then EM on all parameters."""
    table = torch.tensor(train, dtype=torch.float32)
    network = learn_network(table, setting["rows"], setting["dependence"], seed)

    @torch.no_grad()
    def log_prob(table: Array) -> Array:
        found = network.log_likelihood(torch.tensor(table, dtype=torch.float32))
        return np.asarray(found.flatten().double())

    return log_prob


def flow(train: Array, validation: Array, setting: Configuration, seed: int) -> LogProb:
    """zuko's masked autoregressive flow or neural spline flow."""
    import zuko

    torch.manual_seed(seed)
    model = getattr(zuko.flows, setting["kind"])(
        train.shape[1],
        transforms=setting["transforms"],
        hidden_features=(setting["hidden"],) * 2,
        randperm=True,
    )
    return _train_flow(model, train, validation, setting["decay"], seed)


def mixture_log_prob(table: Array, weights: Array, means: Array, covariances: Array) -> Array:
    """log p of the observed columns under a mixture of Normals, rows with equal masks together."""
    found, seen = np.empty(len(table)), ~np.isnan(table)
    masks, groups = np.unique(seen, axis=0, return_inverse=True)
    for number, mask in enumerate(masks):
        here = groups.reshape(-1) == number
        parts = [
            np.log(weight)
            + multivariate_normal.logpdf(
                table[here][:, mask], mean[mask], covariance[mask][:, mask]
            )
            for weight, mean, covariance in zip(weights, means, covariances, strict=True)
        ]
        found[here] = logsumexp(parts, axis=0)
    return found


class Density(nn.Module):
    """A flow of zuko, whose log-likelihood is what training maximises."""

    def __init__(self, flow: Any) -> None:
        super().__init__()
        self.flow = flow

    def objective(self, rows: Tensor, beta: Tensor) -> Tensor:
        found: Tensor = self.flow().log_prob(rows).mean()
        return found


def _train_flow(flow: Any, train: Array, validation: Array, decay: float, seed: int) -> LogProb:
    """AdamW at a falling rate, the state that is best on the validation rows."""
    rows, judges = (torch.tensor(part, dtype=torch.float32) for part in (train, validation))
    maximise(
        Density(flow), rows, validate=lambda: -float(_flow_log_prob(flow, judges).mean()),
        epochs=STEPS // LOOK, steps=LOOK, patience=PATIENCE, batch=min(BATCH, len(rows)),
        rate=2e-3, schedule="cosine", weight_decay=decay, seed=seed, device="cpu", compile=False,
    )  # fmt: skip
    return lambda table: np.asarray(
        _flow_log_prob(flow, torch.tensor(table, dtype=torch.float32)).double()
    )


@torch.no_grad()
def _flow_log_prob(flow: Any, rows: Tensor) -> Tensor:
    found: Tensor = flow().log_prob(rows)
    return found


def _grid(**choices: list[Any]) -> list[Configuration]:
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def _star(*values: Any) -> Configuration:
    names = ("leaf", "mixture", "components", "width", "shrinkage")
    return dict(zip(names, values, strict=True))


FITS = {
    OURS: ours,
    "Gaussian": gaussian,
    "Gaussian mixture": mixture,
    "SPFlow": spflow,
    "MAF": flow,
    "NSF": flow,
}
REQUIRED = {"SPFlow": "spflow", "MAF": "zuko", "NSF": "zuko"}
"""What has to be installed for a method."""
CONFIGURATIONS: dict[str, list[Configuration]] = {
    OURS: [
        _star("spline", "root", 1, 0.1, 0.0),
        _star("spline", "root", 1, 0.5, 0.0),
        _star("spline", "root", 8, 0.25, 1.0),
        _star("spline", "root", 8, 1.0, 1.0),
        _star("spline", "root", 32, 1.0, 0.25),
        _star("spline", "loadings", 4, 0.5, 0.5),
        _star("affine", "root", 4, 1.0, 0.4),
        _star("affine", "root", 64, 1.0, 0.1),
    ],
    "Gaussian": _grid(shrinkage=[0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0]),
    "Gaussian mixture": _grid(components=[2, 5, 12, 32], covariance=["full", "diag"]),
    "SPFlow": _grid(rows=[20, 60], dependence=[0.1, 0.2, 0.3, 0.5]),
    "MAF": _grid(kind=["MAF"], transforms=[2, 4], hidden=[32, 128], decay=[1e-4, 1e-1]),
    "NSF": _grid(kind=["NSF"], transforms=[1, 2], hidden=[32, 128], decay=[1e-4, 1e-1]),
}
