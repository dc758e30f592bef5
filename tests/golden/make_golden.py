"""Write the golden model files and the answers that they give.

    OMP_NUM_THREADS=1 python tests/golden/make_golden.py [folder]

The folder is `v1` beside this script unless another one is given. Files that the folder holds are
kept with their answers: only models without a file are fitted. To make one again, which breaks a
promise once it was released, remove its line of `answers.json`. A later version of the file format
gets a folder of its own. Every model is small, fitted briefly and with a fixed seed; what matters
is that a file loads and answers as it did, not that the model is any good.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

# Run as a script, the folder of tests is not on the path.
sys.path.insert(0, str(Path(__file__).parent.parent))

from golden.asking import answers, facts, from_batch, plain, table_to_score

import vfg
from vfg.sklearn import VFGImputer

SMALL = vfg.Coupling(blocks=2, hidden=4, layers=2, activation="silu")
"""Smooth, so that every parameter counts in every answer."""
TINY = vfg.Coupling(blocks=2, hidden=3, layers=1, activation="silu")
GAPS = [
    [None, 0.4, None, 1.2, -0.3],
    [0.7, None, None, None, None],
    [-1.1, 0.2, 0.9, None, None],
    [None, None, None, None, None],
]
"""Rows that are asked about: sections known in part, one known cell, whole sections, nothing."""


# Models of tables of numbers.


def numbers(rows=120, columns=5, seed=0, share=0.1):
    """Columns that hang together by two factors, with gaps."""
    generator = np.random.default_rng(seed)
    factors = generator.normal(size=(rows, 2))
    table = factors @ generator.normal(size=(2, columns))
    table[:, -1] = np.tanh(table[:, -1]) + 0.5 * factors[:, 0] ** 2
    table = table + 0.3 * generator.normal(size=table.shape)
    table[generator.random(table.shape) < share] = np.nan
    return table


def discrete(rows=150, seed=0):
    """Two real columns, two binary ones, and one of three categories."""
    generator = np.random.default_rng(seed)
    factors = generator.normal(size=(rows, 2))
    noisy = factors[:, [0, 1, 0, 1, 0]] + 0.5 * generator.normal(size=(rows, 5))
    noisy[:, 2:4] = noisy[:, 2:4] > 0
    noisy[:, 4] = np.digitize(noisy[:, 4], [-0.5, 0.7])
    noisy[generator.random(noisy.shape) < 0.1] = np.nan
    return noisy


DISCRETE_GAPS = [
    [0.5, None, 1.0, None, None],
    [None, None, None, 0.0, 2.0],
    [-0.8, 1.1, None, 1.0, None],
    [None, None, None, None, None],
]
DISCRETE = {"flags": "bernoulli", "kind": vfg.Categorical(3), "*": "gaussian"}


def sections(width=3):
    """Leaves of 2, 1 and 2 columns under two layers."""
    return vfg.Graph.tree({"a": 2, "b": 1, "c": 2}, arity=2, width=width)


def discrete_sections(width):
    return vfg.Graph.star({"real": 2, "flags": 2, "kind": 2}, width=width)


def named_sections():
    leaves = [
        vfg.Node("body", 2, columns=("height", "weight")),
        vfg.Node("age", 1, columns=("age",)),
        vfg.Node("blood", 2, columns=("sugar", "iron")),
    ]
    return vfg.Graph.star(leaves, width=3)


def flows(graph, table, rows, targets, labels=None, given_labels=None, **options):
    """A trained `VFG`, in double precision so that machines agree, and what it is asked."""
    model = vfg.VFG(graph, **({"flow": SMALL} | options))
    vfg.fit(model, table, labels=labels, epochs=6, batch=64, rate=1e-2, device="cpu",
            compile=False, progress=False, seed=0)  # fmt: skip
    given = {"rows": rows, "targets": targets}
    return model.double(), given if given_labels is None else given | {"labels": given_labels}


def gaussian(graph, table, rows, targets, **options):
    model = vfg.GaussianVFG(graph, **options)
    model.fit(table, iterations=20, steps=20, restarts=1, seed=0)
    return model, {"rows": rows, "targets": targets}


def completed_sections():
    """Sections whose columns follow each other, so that mixtures answer for their rest."""
    table = numbers(columns=5, seed=21, share=0.0)
    table[:, 1] = table[:, 0] ** 2 + 0.1 * table[:, 1]
    table[:, 4] = np.sin(table[:, 3]) + 0.1 * table[:, 4]
    model, given = flows(sections(), table, GAPS, ["a", "c"], aggregation="gaussian")
    assert any(bool(packed.any()) for packed in model.spread.sections().values())
    return model, given


def mean_of_named_columns():
    frame = pd.DataFrame(numbers(), columns=["height", "weight", "age", "sugar", "iron"])
    targets = ["body", "age", "blood", "sugar", "root"]
    flow = vfg.Coupling(blocks=2, hidden=8)
    return flows(named_sections(), frame, GAPS, targets, aggregation="mean", flow=flow)


def joint_gaussian():
    targets = ["a", "b", "c", "node1_1", "root"]
    return flows(sections(), numbers(seed=1), GAPS, targets, aggregation="gaussian")


def concatenation():
    graph = vfg.Graph.star({"a": 2, "b": 1, "c": 2}, width=5)
    targets = ["a", "b", "c", "root"]
    return flows(graph, numbers(seed=2), GAPS, targets, aggregation="concatenation")


def single_precision():
    """As trained, with other flows: an affine map and splines."""
    flow = {"a->root": vfg.Linear(), "*": vfg.Spline(bins=4)}
    graph = vfg.Graph.star({"a": 2, "b": 1, "c": 2}, width=2)
    options = {"aggregation": "precision", "flow": flow}
    model, given = flows(graph, numbers(seed=3), GAPS, ["a", "b", "c", "root"], **options)
    return model.float(), given


def sampled():
    targets = ["a", "b", "c", "node1_1", "root"]
    return flows(sections(), numbers(seed=4), GAPS, targets, states="sampled")


def discrete_leaves():
    return flows(
        discrete_sections(3), discrete(), DISCRETE_GAPS, ["real", "flags", "kind", "root"],
        likelihood=DISCRETE,
    )  # fmt: skip


def discrete_leaves_sampled():
    return flows(
        discrete_sections(3), discrete(seed=1), DISCRETE_GAPS, ["real", "flags", "kind", "root"],
        likelihood=DISCRETE, states="sampled", aggregation="gaussian",
    )  # fmt: skip


def per_label():
    table = numbers(seed=5)
    labels = (np.nan_to_num(table[:, 0]) > 0).astype(int)
    return flows(
        sections(), table, GAPS, ["a", "b", "c", "root"], labels=labels, given_labels=[1, -1, 0, 1],
        prior=vfg.PerLabel(2),
    )  # fmt: skip


def mixture_prior():
    return flows(
        sections(), numbers(seed=6), GAPS, ["a", "b", "c", "root"],
        prior=vfg.Mixture(3), states=vfg.Sampled(ladder=True),
    )  # fmt: skip


def flowed_prior():
    return flows(
        sections(), numbers(seed=7), GAPS, ["a", "b", "c", "root"],
        prior=vfg.FlowPrior(blocks=2, hidden=4, layers=2, activation="silu"),
        states=vfg.Sampled(amortised=4),
    )  # fmt: skip


def gaussian_affine():
    frame = pd.DataFrame(numbers(seed=8), columns=["height", "weight", "age", "sugar", "iron"])
    targets = ["body", "age", "blood", "iron", "root"]
    return gaussian(named_sections(), frame, GAPS, targets)


def gaussian_splines():
    options = {"leaf": vfg.Spline(bins=4)}
    return gaussian(sections(2), numbers(seed=9), GAPS, ["a", "b", "c", "root"], **options)


def gaussian_mixture():
    graph = vfg.Graph.star({"a": 2, "b": 1, "c": 2}, width=2)
    return gaussian(graph, numbers(seed=10), GAPS, ["a", "b", "c", "root"], components=2)


def gaussian_mixture_of_loadings():
    graph = vfg.Graph.star({"a": 2, "b": 1, "c": 2}, width=2)
    options = {"components": 2, "mixture": "loadings"}
    return gaussian(graph, numbers(seed=11), GAPS, ["a", "b", "c", "root"], **options)


def gaussian_discrete():
    return gaussian(
        discrete_sections(2), discrete(seed=2), DISCRETE_GAPS, ["real", "flags", "kind", "root"],
        likelihood=DISCRETE,
    )  # fmt: skip


def gaussian_network():
    edges = [("A", "C"), ("B", "C"), ("C", "D"), ("A", "E"), ("D", "E")]
    graph = vfg.Graph.from_bayesian_network(edges, width=3)
    frame = pd.DataFrame(numbers(seed=12), columns=list("ABCDE"))
    leaves = list(graph.leaves)
    rows = [[dict(zip("ABCDE", row, strict=True))[leaf] for leaf in leaves] for row in GAPS]
    return gaussian(graph, frame[leaves], rows, [*leaves, "family:C", "root"])


def gaussian_with_causes():
    """A graph that was learned keeps its causes and effects; further rows were added as sums."""
    chain = [("A", "B"), ("B", "C"), ("B", "D"), ("D", "E")]
    model = vfg.GaussianVFG(vfg.LearnedGraph.from_edges(chain, columns=list("ABCDE")))
    frame = pd.DataFrame(numbers(seed=15), columns=list("ABCDE"))[list(model.graph.leaves)]
    for rows in (frame[:80], frame[80:]):
        model.partial_fit(rows, iterations=20, seed=0)
    return model, {"rows": GAPS, "targets": list("ABCDE")}


def flows_with_causes():
    learned = vfg.LearnedGraph.from_edges([("a", "b"), ("b", "c")], columns=["a", "b", "c"])
    graph = vfg.Graph(
        learned.graph.nodes, learned.graph.edges, vfg.Network(learned.edges, [("a", "b")])
    )
    frame = pd.DataFrame(numbers(columns=3, seed=16), columns=["a", "b", "c"])
    rows = [row[:3] for row in GAPS]
    return flows(graph, frame[list(graph.leaves)], rows, ["a", "b", "c"], aggregation="precision")


# Models of images.


def pixels(rows=64, seed=0):
    """Binary images of 4 x 4 pixels whose halves follow two factors."""
    generator = np.random.default_rng(seed)
    factors = np.repeat(generator.normal(size=(rows, 2)), 8, axis=1)
    return (factors + 0.5 * generator.normal(size=(rows, 16)) > 0).astype(float)


PIXEL_GAPS = [
    [1.0] * 8 + [None] * 8,
    [None if k % 3 else float(k % 2) for k in range(16)],
    [None] * 16,
]


def encoding_edge():
    """An edge that encodes an image, and draws that couplings transform by the messages."""
    return flows(
        vfg.Graph.star({"image": 16}, width=3), pixels(), PIXEL_GAPS, ["image", "root"],
        flow=vfg.Bottleneck((4, 4), channels=2, residual=1), likelihood="bernoulli",
        aggregation="mean", states=vfg.Sampled(amortised=4, blocks=2, children=False),
    )  # fmt: skip


def vamp_prior():
    return flows(
        vfg.Graph.star({"image": 16}, width=3), pixels(seed=1), PIXEL_GAPS, ["image", "root"],
        flow=vfg.Bottleneck((4, 4), channels=2, residual=1), likelihood="bernoulli",
        aggregation="mean", states="sampled", prior=vfg.VampPrior(3),
    )  # fmt: skip


def image_couplings():
    """Convolutions in the conditioners, and in the networks of q."""
    size = {"image": (4, 4), "residual": 1}
    return flows(
        vfg.Graph.star({"image": 16}, width=16), pixels(seed=2), PIXEL_GAPS, ["image", "root"],
        flow=vfg.Coupling(blocks=2, hidden=4, kind="additive", channels=2, **size),
        likelihood="bernoulli", aggregation="mean", latent="normal",
        states=vfg.Sampled(amortised=2, **size),
    )  # fmt: skip


def other_couplings():
    """Splines in couplings, conditioners that edges share, scales from the first batch."""
    spline = vfg.Coupling(blocks=2, hidden=4, kind="spline", bins=3, shared=2, normalise=True)
    flow = {"node1_1->root": vfg.Linear("householder"), "*": spline}
    return flows(
        sections(), numbers(seed=17), GAPS, ["a", "b", "c", "root"], flow=flow,
        likelihood=vfg.Gaussian(scale=0.5, learn=True), prior="laplace", aggregation="mean",
    )  # fmt: skip


# Models of tables with columns of every kind.


def mixed(rows, seed, share=0.2):
    """A column of every kind with gaps, an empty one and a constant one; the first row has none."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=rows)
    noisy = hidden[:, None] + 0.5 * generator.normal(size=(rows, 8))
    letters = np.array(list("abcdefghijkl"))
    days = pd.to_timedelta(np.round(100 * noisy[:, 5]), unit="D")
    frame = pd.DataFrame(
        {
            "height": 170.0 + 10.0 * noisy[:, 0],
            "weight": np.exp(4.2 + 0.2 * noisy[:, 7]),
            "age": pd.array(np.round(40 + 12 * noisy[:, 1]).astype(int), dtype="Int64"),
            "member": pd.array(noisy[:, 2] > 0, dtype="boolean"),
            "city": np.array(["Bern", "Oslo", "Rome"])[np.digitize(noisy[:, 3], [-0.5, 0.5])],
            "letter": letters[np.digitize(noisy[:, 6], np.linspace(-1.5, 1.5, 11))],
            "grade": pd.Categorical.from_codes(
                np.digitize(noisy[:, 4], [-0.7, 0.7]), ["low", "mid", "high"], ordered=True
            ),
            "since": (pd.Timestamp("2020-01-01") + days).astype("datetime64[us]"),
        }
    )
    gaps = generator.random(frame.shape) < share
    gaps[0] = False
    return frame.mask(gaps).assign(empty=np.nan, constant=1.5)


def batch_of(frame):
    """Seven rows to fill, in another order of columns.

    The first is complete and the last empty; the others miss every third cell; one of them has an
    unknown city.
    """
    row, column = np.indices(frame.shape)
    gaps = (row > 0) & ((row + column) % 3 == 0)
    gaps[6] = True
    part = frame.mask(gaps)
    part.loc[4, "city"] = "Lima"
    order = np.random.default_rng(0).permutation(len(part.columns))
    part = part.iloc[:, order].assign(id=[f"row {k}" for k in range(7)])
    return pa.RecordBatch.from_pandas(part, preserve_index=False)


def table_model(frame, other, **options):
    """A fitted imputer, and what its model is asked."""
    imputer = VFGImputer(device="cpu", random_state=0, **options).fit(frame)
    given = {"batch": from_batch(batch_of(other)), "columns": list(frame.columns)}
    return imputer, given


def table_linear():
    return table_model(mixed(80, 0), mixed(7, 1, 0.0), bend=False)


def table_ensemble():
    # Of the twelve letters every part would keep a grid for each of their many coordinates.
    sizes = [(60, 2, 0.2), (7, 3, 0.0)]
    frame, other = (mixed(*size).drop(columns="letter") for size in sizes)
    return table_model(
        frame, other, members=2, mixtures=2, neighbours=2, steps=300, width=4,
        flow=TINY,
    )  # fmt: skip


def table_sections():
    names = ["height", "weight", "age", "member", "city", "grade", "since"]
    leaves = [
        vfg.Node("person", 4, ("age", "height", "weight", "member")),
        vfg.Node("place", 2, ("since", "city")),
        vfg.Node("grade", 1, ("grade",)),
    ]
    return table_model(
        mixed(60, 4)[names], mixed(7, 5, 0.0)[names], graph=vfg.Graph.star(leaves, width=6),
        members=2, mixtures=1, steps=300, flow=TINY,
    )  # fmt: skip


def table_of_an_array():
    table, other = numbers(60, seed=13), numbers(6, seed=14, share=0.4)
    imputer = VFGImputer(
        device="cpu", random_state=0, members=1, mixtures=1, neighbours=1, steps=300, width=3,
        flow=TINY,
    ).fit(table)  # fmt: skip
    names = [f"column {k}" for k in range(5)]
    frame = pd.DataFrame(other, columns=names)
    batch = pa.RecordBatch.from_pandas(frame, preserve_index=False)
    return imputer, {"batch": from_batch(batch), "columns": names}


def related(rows, seed, share=0.2):
    """Few-valued, whole and exactly related numbers beside categories, durations and names."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=rows)
    noisy = hidden[:, None] + 0.5 * generator.normal(size=(rows, 6))
    left, right = np.round(noisy[:, :2].T * 4 + 20, 1)
    frame = pd.DataFrame(
        {
            "year": np.where(noisy[:, 2] > 0, 2008.0, 1999.0),
            "doors": np.round(80 + 15 * noisy[:, 3]),
            "left": left,
            "right": right,
            "total": left + right,
            "make": np.array(["Saab", "Fiat", "Lada"])[np.digitize(noisy[:, 4], [-0.6, 0.6])],
            "used": pd.to_timedelta(np.round(1000 + 100 * noisy[:, 5]), unit="h"),
            "plate": [f"{seed}-{k:04d}" for k in range(rows)],
        }
    )
    gaps = generator.random(frame.shape) < share
    gaps[0] = False
    return frame.mask(gaps)


def few_rows(frame, other, weights=None, **options):
    """A fitted imputer, and seven rows to fill in the order of the fit."""
    row, column = np.indices(other.shape)
    part = other.mask((row > 0) & ((row + column) % 3 == 0))
    imputer = VFGImputer(device="cpu", random_state=0, **options).fit(frame, sample_weight=weights)
    batch = pa.RecordBatch.from_pandas(part, preserve_index=False)
    return imputer, {"batch": from_batch(batch), "columns": list(frame.columns)}


PARTS = {"members": 1, "mixtures": 1, "neighbours": 1, "steps": 300, "width": 3, "flow": TINY}


def table_trees_and_sets():
    """Forests of categories and numbers, thresholds of sets, few-valued and whole numbers."""
    return few_rows(related(90, 20), related(7, 21, 0.0), trees=2, **PARTS)


def table_of_many_categories():
    """Probabilities that pool two sources, by weights of their own."""
    names = ["height", "age", "letter", "grade"]
    return few_rows(mixed(80, 34)[names], mixed(7, 35, 0.0)[names], trees=0, **PARTS)


def table_trees_of_numbers():
    names = ["height", "weight", "age", "sugar", "iron"]
    frame, other = (
        pd.DataFrame(numbers(rows, seed=seed, share=share), columns=names)
        for rows, seed, share in ((80, 22, 0.2), (7, 23, 0.0))
    )
    return few_rows(frame, other, trees=2, **PARTS)


def missing_by_value(rows, seed):
    """Numbers of which large ones are missing more often."""
    frame = pd.DataFrame(numbers(rows, seed=seed, share=0.0), columns=list("abcde"))
    chance = 1 / (1 + np.exp(1.0 - 2.0 * (frame - frame.mean()) / frame.std()))
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < chance)


def table_missing_by_value():
    frame, other = missing_by_value(90, 24), missing_by_value(7, 25)
    return few_rows(frame, other, missingness="self", **PARTS)


def table_missing_by_value_linear():
    frame, other = missing_by_value(200, 26), missing_by_value(7, 27)
    return few_rows(frame, other, missingness="auto", bend=False)


CONSTRAINED = ["year", "doors", "left", "right", "total"]


def table_with_constraints():
    return few_rows(
        related(80, 28)[CONSTRAINED], related(7, 29, 0.0)[CONSTRAINED], bend=False,
        constraints=["0 <= doors <= 200", "left + right == total", "left <= total"],
    )  # fmt: skip


def table_with_causes():
    edges = [("height", "weight"), ("height", "sugar"), ("age", "sugar"), ("sugar", "iron")]
    names = ["height", "weight", "age", "sugar", "iron"]
    frame, other = (
        pd.DataFrame(numbers(rows, seed=seed, share=share), columns=names)
        for rows, seed, share in ((60, 30, 0.2), (7, 31, 0.0))
    )
    graph = vfg.LearnedGraph.from_edges(edges, columns=names)
    return few_rows(frame, other, graph=graph, mixtures=1, neighbours=1, members=1, steps=100,
                    width=3, flow=TINY)  # fmt: skip


def table_of_sums():
    """Rows that were given one after the other: the file keeps their sums."""
    frame, other = mixed(80, 32), mixed(7, 33, 0.0)
    imputer = VFGImputer(device="cpu", random_state=0, bend=False)
    for rows in (frame[:50], frame[50:]):
        imputer.partial_fit(rows)
    return imputer, {"batch": from_batch(batch_of(other)), "columns": list(frame.columns)}


NAMES = ["height", "weight", "age", "sugar", "iron"]


def numbers_to_fill(rows, seed, far=1.0):
    """Rows to fit, and seven to fill of which the last four lie further out."""
    frame, other = (
        pd.DataFrame(numbers(*size), columns=NAMES)
        for size in ((rows, 5, seed, 0.2), (7, 5, seed + 1, 0.0))
    )
    other.iloc[3:] *= far
    return frame, other


def table_far_rows():
    """Draws that are sharpened, and rows unlike the fitted ones, in a table of numbers."""
    return few_rows(*numbers_to_fill(90, 36, far=4.0), trees=2, **PARTS)


def table_far_rows_linear():
    """Rows beyond the observed range, filled by the linear model alone."""
    return few_rows(*numbers_to_fill(60, 38, far=4.0), bend=False)


def table_regressions():
    """Logistic regressions beside trees, and dates as text."""
    frame, other = mixed(90, 40), mixed(7, 41, 0.0)
    names = ["height", "age", "member", "city", "grade", "since"]
    frame, other = (
        part[names].assign(since=part["since"].dt.strftime("%Y-%m-%d")) for part in (frame, other)
    )
    return few_rows(frame, other, trees=2, **PARTS)


def table_weights():
    """Rows on a curve that count several times, and some that do not count."""
    angle = np.random.default_rng(42).uniform(-3.0, 3.0, size=(127, 1))
    curve = np.hstack([angle, np.sin(angle), np.cos(angle), angle**2])
    frame = pd.DataFrame(curve + 0.1 * numbers(127, 4, 42, 0.1), columns=NAMES[:4])
    return few_rows(frame[7:], frame[:7], np.arange(120) % 4.0, trees=0, **PARTS)


def table_widths():
    """Rows on a curve, some far out: widths of draws, and errors of the linear model."""
    angle = np.random.default_rng(44).uniform(-3.0, 3.0, size=(167, 1))
    curve = np.hstack([angle, np.sin(angle), np.cos(angle), angle**2])
    frame = pd.DataFrame(curve + 0.2 * numbers(167, 4, 44, 0.1), columns=NAMES[:4])
    frame.iloc[3:7] *= 4.0
    return few_rows(frame[7:], frame[:7], trees=2, **PARTS)


def table_levels():
    """A parabola and its noise, whose level is held in rows outside of what was seen."""
    generator = np.random.default_rng(49)
    a = generator.uniform(-3.0, 3.0, size=120)
    table = np.column_stack([a, np.square(a), generator.standard_normal(120)])
    frame = pd.DataFrame(table, columns=["height", "weight", "age"])
    other = frame.iloc[:7].copy()
    other["height"] = [0.5, 1.0, 4.0, -4.0, 2.0, -9.0, 3.2]  # beyond -3 to 3 in four rows
    return few_rows(frame, other, effort="fast")


def table_lines():
    """Positive columns on lines whose noise jumps, rows far out, and an exact relation."""
    generator = np.random.default_rng(48)
    x = generator.uniform(1.0, 9.0, size=407)
    noise = np.where(x > 5.0, 1.5, 0.1) * generator.standard_normal(407)
    frame = pd.DataFrame({
        "height": x, "weight": x + 6.0 + noise, "age": generator.standard_normal(407),
        "sugar": 2.0 * x + 1.0,
    })  # fmt: skip
    frame.loc[3:6, ["height", "sugar"]] -= 20.0
    hidden = generator.random((407, 4)) < 0.1
    rows = frame.mask(hidden)[7:]
    return few_rows(rows, frame[:7], trees=16, effort="fast")


def table_metrics():
    """A column that depends on one of the others: metrics of similar rows by column."""
    generator = np.random.default_rng(48)
    cells = generator.uniform(-2.0, 2.0, size=(247, 4))
    cells[:, 0] = np.sin(3.0 * cells[:, 1])
    cells[generator.random(cells.shape) < 0.15] = np.nan
    frame = pd.DataFrame(cells, columns=NAMES[:4])
    return few_rows(frame[7:], frame[:7], trees=2, **PARTS)


def table_interactions():
    """Trees of products of two columns, and row mixtures whose categories tell no distances."""
    generator = np.random.default_rng(50)
    number, place = generator.normal(size=127), generator.integers(2, size=127)
    frame = pd.DataFrame({
        "height": number,
        "weight": np.where(place, number, -number) + 0.2 * generator.normal(size=127),
        "member": np.array(["no", "yes"], dtype=object)[place],
        "letter": np.array(list("abcdefghijkl"), dtype=object)[generator.integers(12, size=127)],
    })  # fmt: skip
    frame = frame.mask(generator.random(frame.shape) < 0.1)
    return few_rows(frame[7:], frame[:7], trees=2, **PARTS)


def table_processes():
    """Columns of numbers with Gaussian process regressions after the trees."""
    generator = np.random.default_rng(52)
    cells = generator.uniform(-2.0, 2.0, size=(127, 3))
    cells[:, 0] = np.sin(cells[:, 1]) * cells[:, 2]
    cells[generator.random(cells.shape) < 0.15] = np.nan
    frame = pd.DataFrame(cells, columns=NAMES[:3])
    return few_rows(frame[7:], frame[:7], trees=2, **PARTS)


def table_medians():
    """A column that piles up at 0: medians at values of the column."""
    generator = np.random.default_rng(54)
    cells = generator.normal(size=(127, 3))
    cells[:, 0] = np.maximum(0.0, cells[:, 1] + 0.5 * cells[:, 0])
    cells[generator.random(cells.shape) < 0.15] = np.nan
    frame = pd.DataFrame(cells, columns=NAMES[:3])
    return few_rows(frame[7:], frame[:7], trees=2, **PARTS)


def table_selection():
    """A Normal model fitted together with the reason why cells are missing."""
    frame, other = missing_by_value(200, 46), missing_by_value(7, 47)
    return few_rows(frame, other, missingness="self", bend=False)


MODELS = {
    "vfg_completed": completed_sections,
    "vfg_mean_named": mean_of_named_columns,
    "vfg_gaussian": joint_gaussian,
    "vfg_concatenation": concatenation,
    "vfg_float32": single_precision,
    "vfg_sampled": sampled,
    "vfg_discrete": discrete_leaves,
    "vfg_discrete_sampled": discrete_leaves_sampled,
    "vfg_per_label": per_label,
    "vfg_mixture_prior": mixture_prior,
    "vfg_flowed_prior": flowed_prior,
    "gaussian_affine": gaussian_affine,
    "gaussian_splines": gaussian_splines,
    "gaussian_mixture": gaussian_mixture,
    "gaussian_mixture_loadings": gaussian_mixture_of_loadings,
    "gaussian_discrete": gaussian_discrete,
    "gaussian_network": gaussian_network,
    "table_linear": table_linear,
    "table_ensemble": table_ensemble,
    "table_sections": table_sections,
    "table_array": table_of_an_array,
    "vfg_bottleneck": encoding_edge,
    "vfg_vamp_prior": vamp_prior,
    "vfg_image_couplings": image_couplings,
    "vfg_other_couplings": other_couplings,
    "vfg_causes": flows_with_causes,
    "gaussian_causes": gaussian_with_causes,
    "table_trees": table_trees_and_sets,
    "table_categories": table_of_many_categories,
    "table_trees_numbers": table_trees_of_numbers,
    "table_slopes": table_missing_by_value,
    "table_slopes_linear": table_missing_by_value_linear,
    "table_constraints": table_with_constraints,
    "table_causes": table_with_causes,
    "table_sums": table_of_sums,
    "table_far": table_far_rows,
    "table_far_linear": table_far_rows_linear,
    "table_regressions": table_regressions,
    "table_weights": table_weights,
    "table_widths": table_widths,
    "table_metrics": table_metrics,
    "table_processes": table_processes,
    "table_selection": table_selection,
    "table_lines": table_lines,
    "table_interactions": table_interactions,
    "table_medians": table_medians,
    "table_levels": table_levels,
}


def main():
    """Fit every model without a file, save it, load it again and write down what it answers."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "v1")
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / "answers.json"
    written = json.loads(listed.read_text()) if listed.exists() else {}
    for name, make in MODELS.items():
        if name in written:
            continue
        made, given = make()
        imputer = made if isinstance(made, VFGImputer) else None
        path = folder / f"{name}.vfg"
        vfg.save(made if imputer is None else imputer.model_, path)
        found = answers(vfg.load(path), given)
        if imputer is not None:
            found |= scores(imputer, given)
        written[name] = {"given": given, "answers": found, "facts": facts(vfg.load(path))}
        print(f"{path.stat().st_size:8d} bytes  {path.name}", flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(part)}" for name, part in written.items()]
    listed.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def scores(imputer, given):
    """log p and embedding of the rows, as `VFGImputer` tells them."""
    table = table_to_score(given)
    if not hasattr(imputer, "feature_names_in_"):
        table = table.to_pandas().to_numpy()
    return plain({"log_prob": imputer.score_samples(table), "embed": imputer.embed(table)})


if __name__ == "__main__":
    main()
