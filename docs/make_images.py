"""Draw every picture of the handbook into docs/images: python docs/make_images.py [name ...]."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_wine

import vfg
from vfg import plots
from vfg.data import NETWORK, gaussian_network, mcar, synthetic
from vfg.imputation.baselines import BASELINES
from vfg.plots.style import BAND, FILLED, INK, blank, tidy
from vfg.sklearn import VFGImputer

FOLDER = Path(__file__).parent / "images"
SHORT = ["alcohol", "malic", "ash", "alcalinity", "magnesium", "phenols", "flavanoids",
         "nonflavanoid", "proanthocyanins", "colour", "hue", "dilution", "proline"]  # fmt: skip
LEVEL = 0.9


@cache
def wines() -> dict[str, Any]:
    """The wines of scikit-learn with a third of their cells hidden, filled and drawn."""
    bunch = load_wine(as_frame=True)
    truth = bunch.data.set_axis(SHORT, axis=1)
    hidden = mcar(truth.shape, rate=0.3, seed=0)
    gaps = truth.mask(hidden)
    imputer = VFGImputer(bend=False, random_state=0).fit(gaps)
    return {
        "truth": truth,
        "kinds": bunch.target.to_numpy(),
        "hidden": hidden,
        "gaps": gaps,
        "filled": imputer.transform(gaps),
        "intervals": imputer.predict_interval(gaps, level=LEVEL),
        "draws": imputer.sample(gaps, 40),
        "states": imputer.embed(gaps),
    }


@cache
def learned() -> tuple[vfg.VFG, vfg.History, torch.Tensor]:
    """A star over the four sections of the paper's synthetic data."""
    table = synthetic(600)
    graph = vfg.Graph.star({"z1": 2, "2 sin z1": 2, "z2": 2, "z2²": 2}, width=8)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=3, hidden=32), aggregation="gaussian")
    history = vfg.fit(
        model, table, masking=vfg.Masking(rate=1.0), beta=0.001, rate=5e-3, batch=100, epochs=60,
        device="cpu", progress=False,
    )  # fmt: skip
    return model, history, table


@cache
def digits() -> tuple[vfg.VFG, torch.Tensor]:
    """A tree over 2 x 2 blocks of the small digits of scikit-learn."""
    images = torch.from_numpy(load_digits().data / 16.0).float()
    graph = vfg.Graph.blocks(8, 8, rows=2, columns=2, arity=2)
    model = vfg.VFG(
        graph,
        flow=vfg.Coupling(blocks=4, hidden=64),
        aggregation="gaussian",
        likelihood="bernoulli",
    )
    vfg.fit(
        model, images, masking=vfg.Masking(rate=0.7), beta=0.01, rate=3e-3, epochs=25,
        device="cpu", progress=False,
    )  # fmt: skip
    return model, images


@cache
def network() -> tuple[vfg.GaussianVFG, torch.Tensor]:
    """bnlearn's Gaussian network, exactly."""
    table, _ = gaussian_network(1000)
    model = vfg.GaussianVFG(vfg.Graph.from_bayesian_network(NETWORK, variables="ABCDEFG"))
    model.fit(table)
    return model, table


def graph_tree() -> Any:
    """A small tree, as the method's page explains it."""
    return plots.graph(vfg.Graph.tree(dict.fromkeys("abcd", 2), width=4))


def graph_question() -> Any:
    """Evidence at three leaves, a question at the fourth."""
    return plots.graph(vfg.Graph.tree(dict.fromkeys("abcd", 2), width=4), observed=["a", "b", "d"])


def graph_network() -> Any:
    """A Bayesian network: one aggregation node per family."""
    return plots.graph(network()[0].graph)


def graph_wide() -> Any:
    """Two hundred columns."""
    return plots.graph(vfg.Graph.tree({f"x{k}": 1 for k in range(200)}, arity=6, width=8))


def dag() -> Any:
    """The network that the rows of bnlearn's simulation come from, two directions unknown."""
    unknown = (("B", "D"), ("B", "C"))
    known = [edge for edge in NETWORK if edge not in unknown]
    return plots.dag(list("ABCDEFG"), known, unknown)


def history() -> Any:
    """A training run."""
    return plots.history(learned()[1])


def consistency() -> Any:
    """How far a tree of images is from the method's rules."""
    model, images = digits()
    return plots.consistency(model.consistency(images[:300]))


def missingness() -> Any:
    """The missing cells of the page that newcomers read first."""
    return plots.missingness(wines()["gaps"])


def distributions() -> Any:
    """Observed and filled cells of four columns."""
    found = wines()
    columns = ["alcohol", "malic", "flavanoids", "proline"]
    return plots.distributions(found["gaps"], found["filled"], columns)


def hidden_cells() -> Any:
    """Hidden cells with their intervals."""
    found = wines()
    return plots.hidden_cells(
        found["truth"], found["filled"], found["hidden"], intervals=found["intervals"]
    )


def coverage() -> Any:
    """How often intervals hold the truth."""
    found = wines()
    return plots.coverage(found["truth"], found["draws"], found["hidden"])


def sensitivity() -> Any:
    """Means of four columns of wines, should missing cells differ from what is filled in."""
    columns = [SHORT[k] for k in (0, 1, 2, 6)]
    gaps = wines()["gaps"][columns].astype(float)
    imputer = VFGImputer(bend=False, random_state=0).fit(gaps)
    return plots.sensitivity(imputer.sensitivity(gaps, [-1.0, -0.5, 0.0, 0.5, 1.0]))


def cost() -> Any:
    """Errors of imputers against their processor seconds, on three choices of hidden cells."""
    truth = wines()["truth"]
    scores: dict[str, list[tuple[float, float]]] = {}
    for seed in range(3):
        hidden = mcar(truth.shape, rate=0.3, seed=seed)
        gaps, scale = truth.mask(hidden), truth.std().to_numpy()
        imputers = {"vfg": VFGImputer(random_state=seed)}
        imputers |= {"linear": VFGImputer(bend=False, random_state=seed)}
        names = ("mean", "knn", "ridge", "extratrees", "missforest", "boosting")
        imputers |= {name: BASELINES[name](gaps.to_numpy(), seed, 1) for name in names}
        for name, imputer in imputers.items():
            begun = time.process_time()
            filled = np.asarray(imputer.fit_transform(gaps.to_numpy()))
            seconds = time.process_time() - begun
            errors = ((filled - truth.to_numpy()) / scale)[hidden]
            scores.setdefault(name, []).append((seconds, float(np.sqrt(np.mean(errors**2)))))
    return plots.cost(scores)


def embedding() -> Any:
    """Wines in the root's space; the makers were not shown to the model."""
    found = wines()
    return plots.embedding(found["states"], colour=found["kinds"], name="maker")


def traversal() -> Any:
    """Three digits while a coordinate of the root moves."""
    model, images = digits()
    steps = torch.linspace(-1.0, 1.0, 9)
    moved = model.traverse(images[[0, 3, 8]], "root", 0, steps)
    return plots.traversal(moved, steps, (8, 8), names=["0", "3", "8"])


def traversal_curves() -> Any:
    """Four columns while a coordinate of the root moves."""
    model, _, table = learned()
    steps = torch.linspace(-1.0, 1.0, 41)
    moved = model.traverse(table[:1], "root", 0, steps)[0, :, ::2]
    return plots.traversal_curves(moved, steps, columns=["z1", "2 sin z1", "z2", "z2²"])


def reconstructions() -> Any:
    """Digits with a quarter missing."""
    model, images = digits()
    chosen = images[20:30]
    seen = torch.ones_like(chosen, dtype=torch.bool)
    seen[:, list(model.graph.node("block1_1").columns or ())] = False
    return plots.reconstructions(
        chosen, model.reconstruct(chosen, observed=seen), (8, 8), observed=seen
    )


def answer() -> Any:
    """F given A and D, beside F without evidence."""
    model, table = network()
    found = model.infer({"A": 2.5, "D": 14.0}, targets=["F"])
    return plots.answer(found, "F", marginal=table[:, 5])


def likelihoods() -> Any:
    """EM on a table with gaps."""
    table, _ = gaussian_network(1000)
    gaps = torch.where(torch.from_numpy(mcar(table.shape, 0.3, seed=0)), torch.nan, table)
    model = vfg.GaussianVFG(vfg.Graph.from_bayesian_network(NETWORK, variables="ABCDEFG"))
    return plots.likelihoods(model.fit(gaps))


def learned_dag() -> Any:
    """The learned graph of docs/structure.md."""
    page = (Path(__file__).parent / "structure.md").read_text()
    first, second = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[:2]
    names: dict[str, Any] = {}
    exec(
        compile(first.replace('table.to_csv("trial.csv", index=False)', ""), "page", "exec"), names
    )
    exec(compile(second, "page", "exec"), names)
    return names["ax"]


def hero() -> Any:
    """The picture of the README: rows of a table that was filled, all filled cells, an answer."""
    truth = wines()["truth"].assign(maker=np.array(["A", "B", "C"])[wines()["kinds"]])
    hidden = mcar(truth.shape, rate=0.3, seed=0)
    gaps = truth.mask(hidden)
    imputer = VFGImputer(random_state=0).fit(gaps)
    filled, ends = imputer.transform(gaps), imputer.predict_interval(gaps, level=LEVEL)
    figure = plt.figure(figsize=(11.5, 3.3), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.75, 1.0, 1.0))
    draw_rows(left, gaps, filled, ends)
    plots.hidden_cells(truth, filled, hidden, middle, intervals=ends)
    answer = imputer.model_.infer({"alcohol": 14.0, "maker": "B"}, ["proline"])
    plots.answer(answer, "proline", right, marginal=truth["proline"])
    right.set_yticks([])
    right.legend_.remove()
    tidy(right, x="proline; grey: without evidence", y="density")
    titles = ("a table, filled", "30 % of the cells, filled", "proline of maker B at 14 % alcohol")
    for axis, title in zip((left, middle, right), titles, strict=True):
        axis.set_title(title, loc="left", fontsize=10, weight="bold", pad=20)
    return figure


def draw_rows(ax: plt.Axes, gaps: Any, filled: Any, ends: Any) -> None:
    """Some rows and columns as text; filled cells in colour, with their intervals."""
    columns = ["alcohol", "malic", "colour", "proline", "maker"]
    rows = gaps.index[gaps[columns].isna().sum(axis=1).between(1, 3)][::18][:8]
    blank(ax).set(xlim=(0, len(columns)), ylim=(len(rows) - 0.5, -1.0))
    for x, column in enumerate(columns):
        ax.text(x + 0.5, -0.75, column, ha="center", va="center", fontsize=9, weight="bold")
        for y, row in enumerate(rows):
            value, missing = filled.at[row, column], gaps.isna().at[row, column]
            digits = 0 if column == "proline" else 2
            words = value if isinstance(value, str) else f"{value:.{digits}f}"
            if missing:
                box = plt.Rectangle(
                    (x + 0.03, y - 0.44), 0.94, 0.88, color=FILLED, alpha=BAND, lw=0
                )
                ax.add_patch(box)
            if missing and not isinstance(value, str):
                low, high = (end.at[row, column] for end in ends)
                words += f"\n{low:.{digits}f} to {high:.{digits}f}"
            style = {"color": INK, "ha": "center", "va": "center", "linespacing": 1.05}
            ax.text(x + 0.5, y, words, fontsize=6.8 if "\n" in words else 9, **style)


PICTURES: tuple[Callable[[], Any], ...] = (
    graph_tree, graph_question, graph_network, graph_wide, dag, learned_dag, history, likelihoods,
    consistency, missingness, distributions, hidden_cells, coverage, sensitivity, cost, embedding,
    traversal, traversal_curves, reconstructions, answer, hero,
)  # fmt: skip


def save(figure: plt.Figure, path: Path) -> None:
    """Write a vector picture, or one of few colours for twice the pixels of a page."""
    if path.suffix == ".svg":
        figure.savefig(path, metadata={"Date": None})
        return
    whole = io.BytesIO()
    figure.savefig(whole, dpi=200)
    Image.open(whole).convert("RGB").quantize(64).save(path, optimize=True)


def main() -> None:
    """Draw the pictures that are named, or all of them."""
    torch.set_num_threads(1)
    plt.rcParams["svg.hashsalt"] = "vfg"  # the same bytes on every run
    chosen = sys.argv[1:] or [picture.__name__ for picture in PICTURES]
    for picture in PICTURES:
        if picture.__name__ in chosen:
            drawn = picture()
            figure = drawn if isinstance(drawn, plt.Figure) else drawn.figure
            # Package indexes show PNG for certain.
            ending = "hero.png" if picture is hero else f"plot-{picture.__name__}.svg"
            path = FOLDER / ending.replace("_", "-")
            save(figure, path)
            plt.close(figure)
            print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
