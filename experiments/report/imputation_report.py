"""The section of docs/results.md on imputation, from docs/results/imputation.json."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log
from statistics import mean
from typing import Any

from .pages import rows

Found = dict[str, Any]

FIRST = ("mcar50", "in_sample")
GOAL = 0.9
"""What the ratio to the best rival should be over all contests."""
MECHANISMS = {
    "mcar50": "MCAR 50 %",
    "mcar30": "MCAR 30 %",
    "mar30": "MAR 30 %",
    "mnar30": "MNAR 30 %",
}
SETTINGS = {"in_sample": "in sample", "unseen": "unseen rows"}
METHODS = {
    "vfg": "`VFGImputer`",
    "mean": "mean",
    "knn": "kNN",
    "ridge": "BayesianRidge",
    "extratrees": "ExtraTrees",
    "missforest": "missForest",
    "miceforest": "miceforest",
    "hyperimpute": "HyperImpute",
    "miwae": "MIWAE",
    "gain": "GAIN",
}

INTRODUCTION = """## Filling missing cells

Sixteen UCI tables and California housing, z-scored by the means and standard deviations of their
complete columns, as is common; columns of a single value are dropped. Cells are hidden completely
at random (MCAR), by a logistic model of a third of the columns that stay observed (MAR), or by a
logistic model of their own value (MNAR). Either the table that was fitted is filled (in sample), or
70 % of the rows are fitted and the others filled (unseen rows). Three seeds, five below 1,000 rows,
and fewer where a table says so; every method sees the same masks. The tables come in a tuning half,
for choosing defaults, and a held-back half, for judging them.

The rivals: scikit-learn's mean, kNN (20 neighbours) and IterativeImputer with BayesianRidge (kept
inside each column's observed range) and with ExtraTrees (50 trees, 5 rounds); missForest (100
trees, up to 10 rounds); miceforest (10 imputed tables); HyperImpute with its defaults; MIWAE (10
latent dimensions, 128 hidden units, 500 epochs) and GAIN (3,000 steps). HyperImpute keeps no fitted
model, so it fills unseen rows along with the fitted ones. Slow methods run where
rows x columns x columns is at most a limit: {limits}.

### Mean squared error of the missing cells, {where}

{table}

Means over seeds, the least in bold. A dash: not run. A star: fewer seeds than the others of the
row, hence not to be compared with them.
"""

CONTESTS = """### Against the best rival

For every table the rival with the least mean error there, so that the bar is higher than any single
rival's. The ratio of our error to its error as a geometric mean over tables (below 1: ours is
better), and wins, draws and losses: a difference counts if it is beyond 2 % plus two standard
errors of the paired differences over seeds. Rivals with fewer than three seeds are left out where
others have them: MIWAE and GAIN on most tables, HyperImpute and miceforest on large ones.

{table}

{goals}

Table by table, `VFGImputer` / best rival over the seeds that both have (their number):

{pairs}
"""

GUESS = """ What may be in the way, by looking at single tables: cells that hide themselves are
larger than what is seen, and ours, drawn to means as far as known cells ask for, fall short of them
by more than trees do; ionosphere and sonar have few rows for their many columns."""

SPREADS = """### Draws and intervals

{where}, means over tables on which all methods of a list ran: CRPS of single cells and energy score
of all missing cells of a row together, both from draws (20; miceforest 10) and the smaller the
better; the share of cells inside their 90 % intervals, also by thirds of the intervals' width; the
mean width. Rivals' intervals are quantiles of their draws; ten draws give no more than the span
from the least to the most, which is too narrow by construction.

{tables}
"""

TIMES = """### Time and memory

Median seconds to fit, {where}; rows filled per second after fitting, {other}; the most memory that
the process held, libraries included. Not all methods were timed in the same way:

{circumstances}

{table}
"""

COMMAND = """Measured by `python -m experiments.benchmarks.imputation`, collected by its option `--collect`;
torch {torch}.
"""


def imputation(found: Found) -> str:
    """The whole section."""
    parts = [introduction(found), contests(found), spreads(found), times(found), failures(found)]
    command = COMMAND.format(torch=found["machine"]["torch"])
    return "\n".join([part for part in [*parts, command] if part])


def label(method: str) -> str:
    """A method as the page names it."""
    return METHODS.get(method, f"`{method}`")


def methods_of(found: Found) -> list[str]:
    """All methods measured anywhere, ours first."""
    present = {method for measured in found["measures"].values() for method in measured}
    known = [method for method in METHODS if method in present]
    budgets = sorted(present - set(known))
    return [*known[:1], *budgets, *known[1:]] if "vfg" in known else [*budgets, *known]


def measured(found: Found, table: str, mechanism: str, setting: str) -> dict[str, Found]:
    """The measures of one group by method, empty if it was not run."""
    group: dict[str, Found] = found["measures"].get(f"{table} {mechanism} {setting}", {})
    return group


def named(mechanism: str, setting: str) -> str:
    """A group in words."""
    return f"{MECHANISMS[mechanism]}, {SETTINGS[setting]}"


def introduction(found: Found) -> str:
    """What was done, and the errors by table and method."""
    methods = methods_of(found)
    body = []
    for half, tables in (("tuning half", found["tuning"]), ("held-back half", found["held_back"])):
        body.append([f"*{half}*", *[""] * len(methods)])
        body += [error_row(table, measured(found, table, *FIRST), methods) for table in tables]
    limits = ", ".join(f"{label(name)} {limit:,}" for name, limit in found["limits"].items())
    table = rows(["", *[label(method) for method in methods]], body)
    return INTRODUCTION.format(limits=limits, table=table, where=named(*FIRST))


def error_row(table: str, group: dict[str, Found], methods: list[str]) -> list[str]:
    """One table's errors, the least in bold, those of fewer seeds with a star."""
    most = max((values["seeds"] for values in group.values()), default=0)
    least = min((v["mse"] for v in group.values() if v["seeds"] == most), default=0.0)
    cells = []
    for method in methods:
        values = group.get(method)
        text = "–" if values is None else f"{values['mse']:.3f}"
        if values is not None and values["seeds"] < most:
            text += "\\*"
        elif values is not None and values["mse"] == least:
            text = f"**{text}**"
        cells.append(text)
    return [table, *cells]


def contests(found: Found) -> str:
    """Ratios and outcomes by mechanism, setting and half."""
    ours = [m for m in methods_of(found) if any(m in c for c in found["contests"].values())]
    body = []
    for method in ours:
        for mechanism in MECHANISMS:
            for setting in SETTINGS:
                halves = [
                    standing(found, method, tables, mechanism, setting)
                    for tables in (found["tuning"], found["held_back"])
                ]
                if any(halves):
                    cells = [half or ["–", "–"] for half in halves]
                    body.append([label(method), named(mechanism, setting), *cells[0], *cells[1]])
    header = ["", "", "tuning half", "won / drawn / lost", "held-back half", "won / drawn / lost"]
    if not body:
        return ""
    table, pairs = rows(header, body), pairs_table(found)
    return CONTESTS.format(table=table, goals=goals(found), pairs=pairs)


def goals(found: Found) -> str:
    """What was aimed at, and what came out."""
    ours = {group: held["vfg"] for group, held in found["contests"].items() if "vfg" in held}
    if not ours:
        return ""

    def mean_of(groups: Iterable[str]) -> float:
        return exp(mean(log(ours[group]["ratio"]) for group in groups))

    overall = mean_of(ours)
    seen = [group for group in ours if "mnar" not in group]
    lost: dict[str, list[str]] = {}
    for group, contest in ours.items():
        if contest["outcome"] == "loss":
            table, mechanism, setting = group.split(" ")
            where = f"{named(mechanism, setting)} ({contest['ratio']:.2f})"
            lost.setdefault(table, []).append(where)
    said = [
        f"Aimed at were {GOAL:.2f} over all tables, mechanisms and settings, and no loss. All "
        f"{len(ours)} contests of `VFGImputer` come to {overall:.3f}"
    ]
    if seen and len(seen) < len(ours):
        said.append(f", those in which cells do not hide themselves to {mean_of(seen):.3f}")
    said.append(f": {'met' if overall <= GOAL else 'missed'}. ")
    names = "; ".join(f"{table}: {', '.join(where)}" for table, where in lost.items())
    said.append(f"Lost are {names}.{GUESS}" if lost else "None is lost.")
    return "".join(said)


def pairs_table(found: Found) -> str:
    """Our errors and those of the best rival, by table, mechanism and setting."""
    groups = [(m, s) for m in MECHANISMS for s in SETTINGS]
    groups = [g for g in groups if any(f" {g[0]} {g[1]}" in k for k in found["contests"])]
    body = []
    for table in [*found["tuning"], *found["held_back"]]:
        contests = [found["contests"].get(f"{table} {m} {s}", {}).get("vfg") for m, s in groups]
        body.append([table, *["–" if c is None else _pair(c) for c in contests]])
    used = [place for place in range(len(groups)) if any(row[1 + place] != "–" for row in body)]
    header = ["", *[named(*groups[place]) for place in used]]
    return rows(header, [[row[0], *[row[1 + place] for place in used]] for row in body])


def _pair(contest: Found) -> str:
    ours, theirs = (f"{error:.3f}" for error in contest["mse"])
    return f"{ours} / {theirs} {label(contest['rival'])} ({contest['seeds']})"


def standing(
    found: Found, method: str, tables: list[str], mechanism: str, setting: str
) -> list[str]:
    """Geometric mean of the ratios, and the count of outcomes; empty if nothing was run."""
    groups = [found["contests"].get(f"{table} {mechanism} {setting}", {}) for table in tables]
    held = [group[method] for group in groups if method in group]
    if not held:
        return []
    ratio = exp(mean(log(contest["ratio"]) for contest in held))
    counts = [sum(c["outcome"] == kind for c in held) for kind in ("win", "draw", "loss")]
    return [f"{ratio:.3f}", " / ".join(str(count) for count in counts)]


def spreads(found: Found) -> str:
    """Scores of draws: of methods run everywhere, then of all on the tables they share."""
    tables = [*found["tuning"], *found["held_back"]]
    groups = [measured(found, table, *FIRST) for table in tables]
    groups = [{m: v for m, v in group.items() if "crps" in v} for group in groups]
    present = [method for method in methods_of(found) if any(method in g for g in groups)]
    most = max((sum(m in group for group in groups) for m in present), default=0)
    everywhere = [m for m in present if sum(m in group for group in groups) == most]
    choices = [everywhere] if everywhere == present else [everywhere, present]
    lists = [spread_table(groups, methods) for methods in choices if methods]
    shown = "\n\n".join(filter(None, [*lists, draws_table(found)]))
    return SPREADS.format(tables=shown, where=named(*FIRST)) if shown else ""


def spread_table(groups: list[dict[str, Found]], methods: list[str]) -> str:
    """Means over the tables on which all of `methods` ran, empty if there is none."""
    shared = [group for group in groups if all(method in group for method in methods)]
    if not shared:
        return ""
    fields = ["crps", "energy", "coverage"]
    fields += ["coverage_narrow", "coverage_middle", "coverage_wide", "width"]
    body = [
        [label(m), *[f"{mean(group[m][field] for group in shared):.3f}" for field in fields]]
        for m in methods
    ]
    header = [f"{len(shared)} table{'s' * (len(shared) > 1)}", "CRPS", "energy score", "coverage"]
    return rows([*header, "narrowest third", "middle", "widest", "width"], body)


def draws_table(found: Found) -> str:
    """Our draws and each rival's on the same tables, masks and seeds."""
    pairs = found.get("draws", {})
    if not pairs:
        return ""
    body = [
        [label(rival), str(pair["cells"]), *[f"{x:.3f}" for x in (*pair["crps"], *pair["energy"])]]
        for rival, pair in pairs.items()
    ]
    ours = label("vfg")
    header = ["same masks and seeds", "cells", f"CRPS {ours}", "CRPS rival"]
    return rows([*header, f"energy score {ours}", "energy score rival"], body)


def times(found: Found) -> str:
    """Seconds, rows per second and memory for a small, a wide and a long table."""
    shown = [t for t in ("concrete", "breast_wdbc", "california") if measured(found, t, *FIRST)]
    other = ("mcar30", "unseen")
    header = ["", *[f"{t}: seconds" for t in shown], *[f"{t}: rows/s" for t in shown]]
    header += [f"{t}: MB" for t in shown]
    body = []
    for method in methods_of(found):
        first = [measured(found, table, *FIRST).get(method, {}) for table in shown]
        second = [measured(found, table, *other).get(method, {}) for table in shown]
        cells = [number(values.get("fit_seconds")) for values in first]
        cells += [number(values.get("transform_rows_per_second")) for values in second]
        cells += [number(values.get("peak_mb")) for values in first]
        if any(first):
            body.append([label(method), *cells])
    return TIMES.format(
        table=rows(header, body),
        where=named(*FIRST),
        other=named(*other),
        circumstances=circumstances(found),
    )


def circumstances(found: Found) -> str:
    """How times were taken, with the methods that share a way."""
    taken = found["circumstances"]
    ways = {
        how: ", ".join(label(name) for name in methods_of(found) if taken.get(name) == how)
        for how in sorted(set(taken.values()))
    }
    return "\n".join(f"- {how}: {names}" for how, names in ways.items() if names)


def number(value: float | None) -> str:
    """Two or three digits, a dash for none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def failures(found: Found) -> str:
    """Methods that ended with errors, and why."""
    lines = [
        f"- {label(name)}: {failed['cells']} cells, the first {failed['first']}"
        for name, failed in found["failures"].items()
    ]
    return "\n".join(["Cells that ended with an error:\n", *lines, ""]) if lines else ""
