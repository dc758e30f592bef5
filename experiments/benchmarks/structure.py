"""Graphs learned from simulated tables with missing cells, against published methods.

    python -m experiments.benchmarks.structure [--seeds 5] [--jobs 2] [--seconds 1500]
        [--skip 0] [--groups main small more large networks walks]
        [--methods vfg GES ...]    some of them, by how names begin

Graphs are random, columns standardised, and results compared as completed partially directed
graphs: Hamming distance (the empty graph has as many as there are edges), structural intervention
distance, F1 of directions. Baselines, and the table of Sachs and others (2005), need the
interpreter that VFG_GRAPHS_PYTHON names (see experiments/baselines/graph_worker.py). Every cell is
kept in docs/results/cells/structure.jsonl, so that a run that was stopped goes on; after
`--seconds` no cell is begun. Settings of vfg were chosen on seeds below 10 and from 100 on, and the
linear start after a look at seed 10; the seeds here are 10 to 14, those of the group "walks" 100 to
104. The group "networks" has tables of networks that pgmpy bundles; with VFG_NETWORKS, a folder,
they are kept there for machines without pgmpy.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import vfg
from vfg.structure import (
    edge_f1,
    equivalence_class,
    structural_hamming_distance,
    structural_intervention_distance,
)
from vfg.structure.completing import draw_gaussian, fit_covariance
from vfg.structure.pdag import edge_matrix

from ..baselines.graph_methods import VARIABLE, GraphWorker, own_worker
from ..cells import Cell, Cells
from ..results import FOLDER, arguments, as_they_end, machine, positive

FIRST_SEED, WALK_SEED = 10, 100
SACHS = {"table": "Sachs and others (2005)"}
CONSENSUS = (
    "praf>pmek pmek>p44/42 plcg>PIP2 plcg>PIP3 PIP3>PIP2 p44/42>pakts473 PKA>praf PKA>pmek "
    "PKA>p44/42 PKA>pakts473 PKA>pjnk PKA>P38 PKC>praf PKC>pmek PKC>PKA PKC>pjnk PKC>P38"
)
"""The 17 edges between the 11 proteins that are the usual reference."""


def random_dag(generator: np.random.Generator, nodes: int, edges: int, graph: str) -> Any:
    """A DAG of any edges (`er`), or one whose nodes prefer popular parents (`scale-free`)."""
    order = generator.permutation(nodes)
    dag = np.zeros((nodes, nodes), dtype=bool)
    if graph == "er":
        pairs = np.argwhere(np.triu(np.ones((nodes, nodes)), 1))
        for i, j in pairs[generator.choice(len(pairs), edges, replace=False)]:
            dag[order[i], order[j]] = True
        return dag, order
    each = max(1, round(edges / nodes))
    for k in range(1, nodes):
        weights = 1.0 + dag[order[:k]].sum(1)
        chosen = generator.choice(k, min(each, k), replace=False, p=weights / weights.sum())
        dag[order[chosen], order[k]] = True
    return dag, order


def curve(generator: np.random.Generator) -> Callable[[Any], Any]:
    """A random function with up to two bends."""
    size, slope, shift = (
        generator.uniform(1, 2),
        generator.uniform(0.5, 2),
        generator.uniform(-1, 1),
    )
    kinds = (
        lambda x: np.sin(1.5 * slope * x + shift),
        lambda x: np.tanh(slope * x + shift),
        lambda x: (x**2 - 1) / 1.5,
        lambda x: 2 * np.exp(-(x**2)),
    )
    kind, sign = kinds[generator.integers(4)], generator.choice([-1, 1])
    return lambda x: sign * size * kind(x)


def effect(generator: np.random.Generator, causes: Any, kind: str) -> Any:
    """What causes `(rows, causes)` do to a column: linear, sums of curves, or a random network."""
    count = causes.shape[1]
    if kind == "linear":
        return causes @ (generator.uniform(0.5, 2, count) * generator.choice([-1, 1], count))
    if kind == "additive":
        return sum((curve(generator)(causes[:, k]) for k in range(count)), np.zeros(len(causes)))
    inner = generator.uniform(0.5, 2, (count, 50)) * generator.choice([-1, 1], (count, 50))
    outer = generator.uniform(0.5, 2, 50) * generator.choice([-1, 1], 50)
    return 1 / (1 + np.exp(-causes @ inner)) @ outer


def simulate(seed: int, kind: str, graph: str, nodes: int, rows: int) -> tuple[Any, Any]:
    """A DAG and a table of standardised columns."""
    generator = np.random.default_rng(seed)
    dag, order = random_dag(generator, nodes, 3 * nodes // 2, graph)
    table = np.zeros((rows, nodes))
    for node in order:
        parents = np.flatnonzero(dag[:, node])
        noise = generator.normal(size=rows) * generator.uniform(0.7, 1.2)
        column = noise + (effect(generator, table[:, parents], kind) if len(parents) else 0.0)
        table[:, node] = (column - column.mean()) / column.std()
    return dag, table


def bundled(name: str, rows: int, seed: int) -> tuple[Any, Any]:
    """The DAG and rows of a network that pgmpy bundles; from a file of VFG_NETWORKS if given."""
    file = Path(os.environ.get("VFG_NETWORKS", "")) / f"{name}-{seed}.npz"
    if file.is_file():
        with np.load(file) as found:
            return found["dag"], found["table"]
    answer = own_worker().ask("network", limit=600.0, model=name, rows=rows, seed=seed)
    table = answer["table"]
    if np.issubdtype(table.dtype, np.floating):
        table = (table - table.mean(0)) / table.std(0)
    if "VFG_NETWORKS" in os.environ:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, dag=answer["dag"], table=table)
    return answer["dag"], table


def hide(table: Any, share: float, pattern: str, seed: int) -> Any:
    """Missing cells: anywhere (MCAR), or where one of the first columns is large (MAR)."""
    generator = np.random.default_rng(1000 + seed)
    hidden = generator.random(table.shape) < share
    if pattern == "MAR":
        sure = table.shape[1] // 4
        for column in range(sure, table.shape[1]):
            cause = table[:, generator.integers(sure)]
            odds = 1 / (1 + np.exp(-2 * cause))
            hidden[:, column] = generator.random(len(table)) < 2 * share * odds
        hidden[:, :sure] = False
    return np.where(hidden, np.nan, table)


def ours(table: Any, **options: Any) -> Any:
    names = [f"x{k}" for k in range(table.shape[1])]
    columns: dict[str, Any] = dict(zip(names, table.T, strict=True))
    if has_codes(table):
        columns = {k: [None if x != x else f"c{x:g}" for x in v] for k, v in columns.items()}
    return stated_class(names, vfg.learn_graph(columns, **options))


def has_codes(table: Any) -> bool:
    """Whether a table has codes of categories rather than numbers."""
    cells = np.nan_to_num(table)
    return bool((cells == np.round(cells)).all())


def stated_class(names: Sequence[str], learned: vfg.LearnedGraph) -> Any:
    """The class of a learned graph, with the arrows that it says are known."""
    found = equivalence_class(edge_matrix(names, learned.edges))
    unknown = found & ~found.T & ~edge_matrix(names, learned.directed)
    return found | unknown.T


def with_covariance(table: Any) -> Any:
    """A table with the covariance by EM, and as many rows as the share of observed cells."""
    seen = ~np.isnan(table)
    covariance = fit_covariance(np.where(seen, table, 0.0), seen)[1]
    rows = int(len(table) * seen.mean())
    noise = np.random.default_rng(0).normal(size=(rows, len(covariance)))
    noise -= noise.mean(0)
    white = noise @ np.linalg.inv(np.linalg.cholesky(noise.T @ noise / rows)).T
    return white @ np.linalg.cholesky(covariance).T


def with_draws(table: Any) -> Any:
    """Missing cells drawn from the Gaussian by EM given the others of their row."""
    seen = ~np.isnan(table)
    return draw_gaussian(np.where(seen, table, 0.0), seen, 1, np.random.default_rng(0))


def with_means(table: Any) -> Any:
    """Missing cells filled by means, or codes of categories by the most frequent one."""
    if has_codes(table):
        codes = [column[~np.isnan(column)] for column in table.T]
        modes = [np.bincount(own.astype(int)).argmax() for own in codes]
        return np.where(np.isnan(table), np.array(modes, dtype=float), table)
    return np.where(np.isnan(table), np.nanmean(table, 0), table)


def complete_rows(table: Any) -> Any:
    kept = table[~np.isnan(table).any(1)]
    if len(kept) < FEWEST_ROWS:
        raise ValueError(TOO_FEW)
    return kept


FEWEST_ROWS = 50
"""Complete rows below which no method is tried."""
TOO_FEW = f"fewer than {FEWEST_ROWS} complete rows"
OURS: dict[str, Callable[[Any], Any]] = {
    "vfg": ours,
    "vfg, linear": lambda table: ours(table, nonlinear=False),
}
WALKS: dict[str, dict[str, Any]] = {
    f"walk {weight:g} {support:g}": {"WEIGHT": weight, "FALL": 0.0, "SUPPORT": support}
    for weight in (1.0, 0.7, 0.57, 0.4)
    for support in (0.5, 0.75, 0.9)
}
"""Constants of `vfg.structure.learning` that are compared on the group "walks"."""
LEARNERS = {
    "GES": with_covariance,
    "DAGMA": with_covariance,
    "NOTEARS": with_covariance,
    "DirectLiNGAM": with_draws,
    "MIIC": with_draws,
    "hill-climbing": with_draws,
}
"""Baselines, and how they get what EM says: by a covariance where they read no more than that."""
OF_NETWORKS = ("hill-climbing",)
"""Baselines of bundled networks alone."""
REFERENCES = ("vfg, complete", "GES, complete")
"""What is learned from the table before cells are hidden."""


def methods() -> list[str]:
    """All methods of a table with missing cells, in the order of the page."""
    ways = ("EM", "means", "complete rows")
    others = [f"{name} on {way}" for name in LEARNERS for way in ways]
    return [*REFERENCES, *OURS, *others, "MVPC"]


def learn(method: str, table: Any, gaps: Any) -> tuple[Any, float]:
    """The equivalence class that a method finds, and its processor seconds."""
    begun = time.process_time()
    if method in OURS:
        return OURS[method](gaps), time.process_time() - begun
    if method in WALKS:
        with patch.multiple("vfg.structure.learning", **WALKS[method]):
            return ours(gaps), time.process_time() - begun
    if method == "vfg, complete":
        return ours(table), time.process_time() - begun
    name, _, way = method.partition(" on ")
    if method == "GES, complete":
        name, given = "GES", table
    elif way:
        fills = {"EM": LEARNERS[name], "means": with_means, "complete rows": complete_rows}
        given = fills[way](gaps)
        if has_codes(gaps):
            given = np.clip(np.round(given), np.nanmin(gaps, 0), np.nanmax(gaps, 0))
    else:
        given = gaps
    own = time.process_time() - begun
    answer = own_worker().ask(name, table=given)
    found = answer["found"]
    return equivalence_class(found) if answer.get("is_dag") else found, own + answer["seconds"]


def measure(method: str, dag: Any, table: Any, gaps: Any) -> Cell:
    """Distances to the truth and processor seconds; the error of a method that fails."""
    try:
        found, seconds = learn(method, table, gaps)
    except (ValueError, RuntimeError, np.linalg.LinAlgError) as error:
        return {"error": str(error)}
    truth = equivalence_class(dag)
    least, greatest = structural_intervention_distance(found, dag)
    return {
        "shd": structural_hamming_distance(found, truth),
        "sid": [least, greatest],
        "f1": round(edge_f1(found, truth), 4),
        "skeleton": round(edge_f1(found | found.T, truth | truth.T), 4),
        "seconds": round(seconds, 2),
    }


SETTING = ("kind", "graph", "nodes", "rows", "missing", "pattern")
MAIN = [(kind, "er", 20, 1000, 0.3, "MCAR") for kind in ("linear", "additive", "network")]
SMALL = [
    (kind, "er", 10, 1000, share, "MCAR")
    for kind in ("linear", "additive")
    for share in (0.0, 0.1, 0.3, 0.5)
]
MORE = [
    (kind, graph, 20, 1000, share, pattern)
    for graph, share, pattern in (
        ("scale-free", 0.3, "MCAR"),
        ("er", 0.3, "MAR"),
        ("er", 0.0, "MCAR"),
        ("er", 0.1, "MCAR"),
        ("er", 0.5, "MCAR"),
    )
    for kind in ("linear", "additive")
]
LARGE = [
    (kind, graph, 50, 1000, 0.3, "MCAR")
    for graph in ("er", "scale-free")
    for kind in ("linear", "additive")
]
COMPARED = [
    (kind, graph, 20, 1000, 0.3, "MCAR")
    for graph in ("er", "scale-free")
    for kind in ("linear", "additive")
]
BUNDLED = [
    (name, "pgmpy", nodes, 1000, 0.3, "MCAR")
    for name, nodes in (
        ("ecoli70", 46),
        ("magic-niab", 44),
        ("magic-irri", 64),
        ("arth150", 107),
        ("asia", 8),
        ("child", 20),
    )
]
"""Networks that pgmpy bundles: four Gaussian ones, then two discrete ones."""
GROUPS = {
    "main": (MAIN, 5),
    "small": (SMALL, 5),
    "more": (MORE, 5),
    "large": (LARGE, 2),
    "networks": (BUNDLED, 2),
    "walks": (COMPARED, 5),
}
"""Settings and how many seeds each has."""
SLOW = ("DirectLiNGAM", "DAGMA", "NOTEARS")
"""Baselines that are run after all others, and not on graphs of 50 nodes, where each takes
minutes."""


def tasks(
    seeds: Sequence[int], groups: Sequence[str], wanted: Sequence[str]
) -> list[tuple[tuple[Any, ...], int, str]]:
    """Settings, seeds and methods: first seeds first, and of these fast methods."""
    found = [
        (setting, (WALK_SEED if group == "walks" else FIRST_SEED) + k, method)
        for group, (settings, most) in ((name, GROUPS[name]) for name in groups)
        for setting in settings
        for k in seeds
        if k < most
        for method in (WALKS if group == "walks" else methods_of(setting))
        if method.startswith(tuple(wanted))
    ]

    def rank(task: tuple[tuple[Any, ...], int, str]) -> tuple[int, bool, int]:
        setting, seed, method = task
        slow = [method.startswith(name) for name in SLOW]
        return seed, setting[2] > 20, slow.index(True) + 1 if any(slow) else 0

    return sorted(found, key=rank)


def methods_of(setting: tuple[Any, ...]) -> list[str]:
    """The methods of a setting: on a complete table all ways to complete it are the same."""
    nodes, share = setting[2], setting[4]
    chosen = methods()
    if setting[1] != "pgmpy":
        chosen = [name for name in chosen if not name.startswith(OF_NETWORKS)]
    if nodes > 20:
        chosen = [name for name in chosen if not name.startswith(SLOW)]
    if share:
        return chosen
    return [m for m in chosen if m in OURS or m.endswith(" on means") or m == "MVPC"]


def tables(setting: tuple[Any, ...], seed: int) -> tuple[Any, Any, Any]:
    """A DAG, a table, and the table with missing cells."""
    kind, graph, _, rows = setting[:4]
    dag, table = bundled(kind, rows, seed) if graph == "pgmpy" else simulate(seed, *setting[:4])
    return dag, table, hide(table, setting[4], setting[5], seed)


def key_of(setting: tuple[Any, ...], seed: int, method: str) -> Cell:
    return {**dict(zip(SETTING, setting, strict=True)), "seed": seed, "method": method}


def measure_task(setting: tuple[Any, ...], seed: int, method: str) -> tuple[Cell, Cell]:
    """The key of a cell, and what was measured."""
    return key_of(setting, seed, method), measure(method, *tables(setting, seed))


def run(
    cells: Cells, chosen: list[tuple[tuple[Any, ...], int, str]], jobs: int, seconds: float
) -> None:
    """Measure every chosen cell that is not there yet."""
    left = [task for task in chosen if cells.get(key_of(*task)) is None]
    for done, (key, cell) in enumerate(as_they_end(measure_task, left, jobs, seconds), 1):
        cells.add(key, cell)
        print(f"{done}/{len(left)}", json.dumps(cells.get(key)), flush=True)


def summarise(cells: Cells) -> list[dict[str, Any]]:
    """Every setting with the cells of its seeds by method; None for a method that failed."""
    found = []
    for group, (settings, planned) in GROUPS.items():
        for setting in settings:
            described = dict(zip(SETTING, setting, strict=True))
            own = [
                cell
                for cell in cells.known.values()
                if all(cell["key"].get(k) == v for k, v in described.items())
            ]
            by_method: dict[str, list[Any]] = {}
            names = WALKS if group == "walks" else methods_of(setting)
            own = [cell for cell in own if cell["key"]["method"] in names]
            if not own:
                continue
            for method in names:
                chosen = [cell for cell in own if cell["key"]["method"] == method]
                chosen.sort(key=lambda cell: cell["key"]["seed"])
                by_method[method] = [
                    None if "error" in cell else {k: v for k, v in cell.items() if k != "key"}
                    for cell in chosen
                ]
            seeds = len({cell["key"]["seed"] for cell in own})
            found.append(
                {
                    "group": group,
                    **described,
                    "seeds": seeds,
                    "planned": planned,
                    "methods": by_method,
                }
            )
    return found


def errors(cells: Cells) -> dict[str, list[str]]:
    """What methods failed with."""
    found: dict[str, list[str]] = {}
    for cell in cells.known.values():
        if "error" in cell:
            known = found.setdefault(cell["key"]["method"], [])
            if cell["error"] not in known:
                known.append(cell["error"])
    return found


def not_run(cells: Cells) -> dict[str, list[str]]:
    """Methods and settings without any cell."""
    keys = [cell["key"] for cell in cells.known.values()]
    settings = [setting for own, _ in GROUPS.values() for setting in own]
    return {
        "methods": [name for name in methods() if all(key.get("method") != name for key in keys)],
        "settings": [
            f"{kind} {graph} of {nodes} nodes, {100 * share:.0f} % {pattern}"
            for kind, graph, nodes, _, share, pattern in settings
            if not any(
                (key.get("kind"), key.get("graph"), key.get("nodes"), key.get("missing"))
                == (kind, graph, nodes, share)
                and key["pattern"] == pattern
                for key in keys
            )
        ],
    }


def sachs() -> dict[str, Any]:
    """The 853 rows of the first experiment, before any intervention; raw and as logarithms."""
    with GraphWorker() as worker:
        answer = worker.ask("Sachs")
    names, table = [str(name) for name in answer["names"]], answer["table"]
    truth = edge_matrix(
        names, [(a, b) for a, _, b in (e.partition(">") for e in CONSENSUS.split())]
    )
    result = {}
    for form, rows in (("raw", table), ("logarithms", np.log(table))):
        learned = vfg.learn_graph(dict(zip(names, rows.T, strict=True)))
        dag = edge_matrix(names, learned.edges)
        result[form] = {
            "edges": len(learned.edges),
            "shd": structural_hamming_distance(dag, truth),
            "shd of classes": structural_hamming_distance(
                equivalence_class(dag), equivalence_class(truth)
            ),
        }
    return result


def main() -> None:
    chosen = arguments(
        __doc__,
        jobs={"type": positive, "default": 1, "help": "processes, of one thread each"},
        seconds={"type": float, "default": float("inf"), "help": "after which no cell is begun"},
        skip={"type": int, "default": 0, "help": "how many of the first seeds are left out"},
        groups={"nargs": "+", "default": list(GROUPS), "choices": GROUPS},
        methods={"nargs": "+", "default": [""], "help": "how their names begin"},
    )
    folder = chosen.output or FOLDER / "cells"
    cells = Cells(None if chosen.quick else folder / "structure.jsonl")
    if cells.get(SACHS) is None and VARIABLE in os.environ:
        cells.add(SACHS, {**sachs(), "machine": machine()})
    run(
        cells,
        tasks(range(chosen.skip, chosen.seeds or 5), chosen.groups, chosen.methods),
        chosen.jobs,
        120.0 if chosen.quick else chosen.seconds,
    )
    seconds = sum(cell.get("seconds", 0.0) for cell in cells.known.values())
    found = cells.get(SACHS) or {}
    chosen.write(
        "structure",
        {
            "seconds": round(seconds, 1),  # of all runs, of the processor
            "machine": found.get("machine", machine()),
            "sachs": {form: found.get(form, {}) for form in ("raw", "logarithms")},
            "settings": summarise(cells),
            "planned": len(tasks(range(5), list(GROUPS), [""])),
            "errors": errors(cells),
            "not_run": not_run(cells),
        },
    )


if __name__ == "__main__":
    main()
