"""The paper's synthetic data (7.1.1): eight columns made from two numbers, four of them missing.

10 seeds, 1000 rows to train and 300 to test, where x3, x4, x7 and x8 are missing. The paper's model
is one mean node of width 2 over four sections of two variables, 3 coupling layers each. It does not
say which two variables share a section. Here they are the equal ones, (x1, x2), (x3, x4), (x5, x6)
and (x7, x8): then the missing cells are two whole sections, as the method requires.

Ours is the same graph with the sections lifted into a root of width 8, once with the paper's mean
and once with messages that carry precision matrices.

    python experiments/synthetic.py            3 minutes on 16 cores
    python experiments/synthetic.py --quick    2 seeds, few epochs
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import torch
from results import IMAGES, on_all_cores, write
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from torch import Tensor

import vfg
from vfg.data import synthetic

TRAIN = 1000
MISSING = [2, 3, 6, 7]
SECTIONS = [vfg.Node(f"x{k + 1}, x{k + 2}", 2, columns=(k, k + 1)) for k in (0, 2, 4, 6)]


def rivals(seed: int) -> dict[str, object]:
    """Imputers of scikit-learn; all see the training rows and the test rows with their gaps."""
    trees = ExtraTreesRegressor(50, random_state=seed)
    return {
        "mean": SimpleImputer(),
        "iterative": IterativeImputer(random_state=seed),
        "MICE": IterativeImputer(random_state=seed, sample_posterior=True),
        "kNN": KNNImputer(),
        "iterative, ExtraTrees": IterativeImputer(trees, max_iter=5, random_state=seed),
    }


def fill_by(rival: object, table: Tensor, gaps: Tensor) -> Tensor:
    """What a rival puts into the gaps of the test rows."""
    # Exact copies among the columns leave posterior draws without any spread to draw with.
    jitter = 1e-5 * np.random.default_rng(0).standard_normal(table.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filled = rival.fit_transform(np.where(gaps, np.nan, table.double() + jitter))
    return torch.from_numpy(filled)


OURS = {
    "VFG, width 2 (the paper's)": (2, "mean", 0.1),
    "VFG, width 8": (8, "mean", 0.001),
    "VFG, width 8, gaussian": (8, "gaussian", 0.001),
}
"""Width of the root, aggregation and β."""


def trained(name: str, table: Tensor, seed: int, epochs: int) -> vfg.VFG:
    """A star over the sections; they are lifted if the root is wider."""
    width, aggregation, beta = OURS[name]
    graph = vfg.Graph.star(SECTIONS, width=width)
    flow = vfg.Coupling(blocks=3, hidden=64)
    model = vfg.VFG(graph, flow=flow, aggregation=aggregation, seed=seed)
    vfg.fit(
        model,
        table[:TRAIN],
        masking=vfg.Masking(rate=1.0),
        beta=beta,
        rate=5e-3,
        weight_decay=0.0,
        validation=0.0,  # a held-out section is a row less at the ends, where errors are largest
        epochs=epochs,
        batch=100,
        seed=seed,
        device="cpu",
        progress=False,
    )
    return model


def errors(seed: int, epochs: int) -> dict[str, float]:
    """Mean squared error of the missing cells of the test rows, by method."""
    table = synthetic(1300, seed=seed)
    gaps = torch.zeros_like(table, dtype=torch.bool)
    gaps[TRAIN:, MISSING] = True
    filled = {name: fill_by(rival, table, gaps) for name, rival in rivals(seed).items()}
    for name in OURS:
        model = trained(name, table, seed, epochs)
        filled[name] = model.reconstruct(torch.where(gaps, torch.nan, table))
    return {name: float((found - table)[gaps].square().mean()) for name, found in filled.items()}


def draw(found: dict[str, list[float]]) -> None:
    """Box plots as in the paper, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(9, 3.8), constrained_layout=True)
    axis.boxplot(list(found.values()), orientation="horizontal", tick_labels=list(found))
    axis.set_xscale("log")
    axis.set_xlabel("mean squared error of the missing cells, 10 seeds")
    axis.grid(axis="x", alpha=0.3)
    axis.invert_yaxis()
    figure.savefig(IMAGES / "synthetic.png", dpi=110)


def main() -> None:
    """Run, write, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 seeds, few epochs")
    quick = parser.parse_args().quick
    seeds, epochs = (2, 5) if quick else (10, 600)
    runs = on_all_cores(errors, [(seed, epochs) for seed in range(seeds)])
    found = {name: [run[name] for run in runs] for name in runs[0]}
    described = {"epochs": epochs, "seeds": list(range(seeds)), "mse": found}
    print(write("synthetic", described, quick=quick))
    if not quick:
        draw(found)
    for name, values in found.items():
        shown = torch.tensor(values)
        spread = f"({shown.min():.3f} to {shown.max():.3f})"
        print(f"{name:28} {shown.mean():8.3f} ± {shown.std():.3f}  {spread}")


if __name__ == "__main__":
    main()
