"""Fill a table, then train a model on a graph and fill missing sections with it: `make demo`.

The first table has 13 measurements of 178 wines, which come with scikit-learn. 30 % of the cells
are removed, and filled by `VFGImputer` and two imputers of scikit-learn.

The second table is the paper's synthetic data: eight columns in four sections, which are functions
of two numbers z1 and z2. The model is trained on 1000 complete rows. In 300 other rows only z1 and
z2 are given, and it fills in 2 sin z1 and z2 squared, with intervals.
"""

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_wine
from sklearn.impute import KNNImputer, SimpleImputer

import vfg
from vfg.data import mcar, synthetic
from vfg.sklearn import VFGImputer

OUTPUT = Path("outputs/demo.png")
CONSOLE = Console()
torch.set_num_threads(1)  # steps this small are no faster on more
TRAIN = 1000
SECTIONS = {"z1": 2, "2 sin z1": 2, "z2": 2, "z2²": 2}
MISSING = ("2 sin z1", "z2²")


def fill_a_table() -> None:
    """Remove cells of a table, fill them, and compare with the true values."""
    wines = load_wine(as_frame=True).data
    truth = (wines - wines.mean()) / wines.std()  # neighbours need columns of one scale
    hidden = mcar(truth.shape, rate=0.3, seed=0)
    gaps = truth.mask(hidden)
    imputer = VFGImputer(budget=30, random_state=0, verbose=True)
    found = {
        "mean": SimpleImputer().fit_transform(gaps),
        "5 nearest neighbours": KNNImputer().fit_transform(gaps),
        "VFGImputer": imputer.fit_transform(gaps).to_numpy(),
    }
    shown = Table("method", "mean squared error", title="wines, 30 % of the cells missing")
    for name, values in found.items():
        error = (values - truth).to_numpy()[hidden]
        shown.add_row(name, f"{(error**2).mean():.3f}")
    CONSOLE.print(shown)
    low, high = imputer.predict_interval(gaps, level=0.9)
    covered = ((low <= truth) & (truth <= high)).to_numpy()[hidden].mean()
    CONSOLE.print(f"{covered:.0%} of the hidden cells lie within their 90 % intervals")


def learned(table: torch.Tensor) -> vfg.VFG:
    """One root over the four sections; hidden sections are learned from the others."""
    graph = vfg.Graph.star(SECTIONS)
    CONSOLE.print(graph)
    model = vfg.VFG(graph)
    history = vfg.fit(model, table, device="cpu")
    CONSOLE.print(repr(history))
    return model


def compare(model: vfg.VFG, table: torch.Tensor, gaps: torch.Tensor) -> Table:
    """Mean squared error of the missing cells, next to two imputers of scikit-learn."""
    shown = Table("method", "mean squared error", title="2 sin z1 and z2², given z1 and z2")
    missing = gaps[TRAIN:].isnan()
    filled = {"mean": SimpleImputer(), "5 nearest neighbours": KNNImputer()}
    found = {
        name: torch.from_numpy(imputer.fit_transform(gaps)[TRAIN:])
        for name, imputer in filled.items()
    }
    found["VFG"] = model.reconstruct(gaps[TRAIN:])
    for name, values in found.items():
        error = (values - table[TRAIN:])[missing].square().mean()
        shown.add_row(name, f"{error:.3f}")
    return shown


def draw(answer: vfg.Answer, table: torch.Tensor) -> None:
    """Filled values with 90 % intervals, and the true values."""
    import matplotlib

    matplotlib.use("Agg")
    from vfg.plots.style import BAND, FILLED, REFERENCE, legend, new_figure, tidy

    figure = new_figure(10.0, 3.8, columns=2)
    low, high = answer.interval(0.9)
    for axis, name, given, truth in zip(figure.axes, MISSING, (0, 4), (2, 6), strict=True):
        x, mean = table[:, given], answer.mean[name][:, 0]
        order = x.argsort()
        ends = (low[name][order, 0], high[name][order, 0])
        style = {"color": FILLED, "alpha": BAND, "lw": 0, "label": "90 % interval"}
        axis.fill_between(x[order], *ends, **style)
        circles = {"facecolors": "none", "edgecolors": REFERENCE, "label": "truth"}
        axis.scatter(x, table[:, truth], s=30, **circles)
        axis.scatter(x, mean, s=7, color=FILLED, label="filled")
        tidy(axis, x="z1, given" if given == 0 else "z2, given", y=f"{name}, missing")
        legend(axis)
    OUTPUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUTPUT, dpi=200)


def main() -> None:
    """Fill a table; then train a model on a graph, hide sections, fill, compare and draw."""
    fill_a_table()
    table = synthetic(1300, seed=0)
    model = learned(table[:TRAIN])
    gaps = table.clone()
    gaps[TRAIN:, [2, 3, 6, 7]] = torch.nan
    CONSOLE.print(compare(model, table, gaps))
    answer = model.infer({"z1": table[TRAIN:, :2], "z2": table[TRAIN:, 4:6]}, targets=MISSING)
    CONSOLE.print(answer)
    draw(answer, table[TRAIN:])
    CONSOLE.print(f"picture: {OUTPUT}")


if __name__ == "__main__":
    main()
