"""The small pictures of docs/plots.md: `python examples/gallery.py`."""

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from PIL import Image
from sklearn.datasets import load_wine

import vfg
from vfg import plots
from vfg.data import NETWORK, gaussian_network, mcar, synthetic
from vfg.sklearn import VFGImputer

SIZE = 180
"""Dots per inch: twice as many as a plain screen shows at the width of a page."""
COLOURS = 48
"""Enough for lines and text, and files of few kilobytes."""


def save(folder: Path, name: str, drawn: Any) -> None:
    """Write the figure of axes, or a figure, and close it."""
    figure = drawn if hasattr(drawn, "savefig") else drawn.get_figure(root=True)
    path = folder / f"plot-{name}.png"
    figure.savefig(path, dpi=SIZE)
    plt.close(figure)
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def draw_graphs(folder: Path) -> None:
    """Graphs of several kinds."""
    sections = {"z1": 2, "sine": 2, "z2": 2, "square": 2}
    star = vfg.Graph.star(sections, width=8)
    save(folder, "graph-question", plots.graph(star, observed=["z1", "z2"]))
    tree = vfg.Graph.tree({f"x{k}": 1 for k in range(9)}, arity=3, width=2)
    save(folder, "graph-tree", plots.graph(tree))
    save(folder, "graph-network", plots.graph(vfg.Graph.from_bayesian_network(NETWORK)))
    wide = vfg.Graph.tree({f"column {k}": 1 for k in range(200)}, arity=8, width=4)
    save(folder, "graph-wide", plots.graph(wide))


def draw_models(folder: Path) -> None:
    """Answers and latent spaces."""
    graph = vfg.Graph.star({"z1": 2, "sine": 2, "z2": 2, "square": 2}, width=8)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=16), aggregation="gaussian")
    table = synthetic(300)
    vfg.fit(model, table, rate=5e-3, beta=0.001, epochs=30, seed=0, progress=False)
    save(folder, "consistency", plots.consistency(model.consistency(table)))
    steps = torch.linspace(-1.0, 1.0, 21)
    moved = model.traverse(table[:1], "root", 0, steps)[0]
    curves = plots.traversal_curves(moved[:, ::2], steps, columns=list(graph.leaves))
    save(folder, "traversal-curves", curves)
    rows, names = gaussian_network(300)
    exact = vfg.GaussianVFG(vfg.Graph.from_bayesian_network(NETWORK, variables=names))
    save(folder, "likelihoods", plots.likelihoods(exact.fit(rows)))
    answer = exact.infer({"A": 2.5, "D": 14.0}, targets=["F"])
    save(folder, "answer", plots.answer(answer, "F", marginal=rows[:, 5]))


def draw_tables(folder: Path) -> None:
    """Missing, filled and hidden cells."""
    wine = load_wine(as_frame=True)
    truth = wine.data
    hidden = mcar(truth.shape, rate=0.3, seed=0)
    gaps = truth.mask(hidden)
    imputer = VFGImputer(bend=False, random_state=0).fit(gaps)
    filled = imputer.transform(gaps)
    some = ["alcohol", "malic_acid", "flavanoids", "proline"]
    save(folder, "missingness", plots.missingness(gaps))
    save(folder, "distributions", plots.distributions(gaps, filled, some))
    intervals = imputer.predict_interval(gaps)
    cells = plots.hidden_cells(truth, filled, hidden, column="proline", intervals=intervals)
    save(folder, "hidden-cells", cells)
    save(folder, "coverage", plots.coverage(truth, imputer.sample(gaps, 20), hidden))
    wines = plots.embedding(imputer.embed(gaps), colour=wine.target.to_numpy(), name="maker")
    save(folder, "embedding", wines)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    for draw in (draw_graphs, draw_models, draw_tables):
        draw(target)
