"""The section on imputation, from docs/results/imputation.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from math import exp, log
from statistics import mean
from typing import Any

from ..benchmarks.imputation.cells import SHAPES
from ..benchmarks.imputation.methods import allowed
from .render import NONE, TEMPLATES, Found, bold, fill, folded, plural, rows

FIRST = ("mcar50", "in_sample")
OTHER = ("mcar30", "unseen")
TIMED = ("concrete", "breast_wdbc", "california")
"""A small, a wide and a long table."""
RELATIVE = ("mse", "mae", "crps", "energy")
MARGIN = 0.02
"""By how much errors differ at least where a contest is won or lost."""
SEEDS = 3
"""As many count against the best baseline."""
GOAL = 0.9
"""What the ratio to the best baseline should be over all contests."""
MECHANISMS = {
    "mcar50": "MCAR 50 %",
    "mcar30": "MCAR 30 %",
    "mar30": "MAR 30 %",
    "mnar30": "MNAR 30 %",
}
SETTINGS = {"in_sample": "in sample", "unseen": "unseen rows"}
GROUPS = list(product(MECHANISMS, SETTINGS))


def is_plain(group: str) -> bool:
    """Whether cells are not missing by their own value there, of which only ours has a model."""
    return "mnar" not in group


PLAIN = [group for group in GROUPS if is_plain(group[0])]
"""Such masks and settings."""
METHODS = {
    name: label
    for name, label, _ in (line.split(" | ") for line in fill("imputation.methods").splitlines())
}
"""How the page names the methods, ours first."""
SCORES = {
    "crps": "CRPS",
    "energy": "energy score",
    "coverage": "coverage",
    "coverage_narrow": "narrowest third",
    "coverage_middle": "middle",
    "coverage_wide": "widest",
    "width": "width",
}


def imputation(found: Found) -> str:
    parts = [errors(found), contests(found), by_setting(found), protocol(found), spreads(found)]
    parts += [times(found), failures(found)]
    return "\n".join([*filter(None, parts), fill("imputation.command", **found)])


def label(method: str) -> str:
    return METHODS.get(method, f"`{method}`")


def setting_of(method: str) -> str:
    """How one of our imputers is called, by what is set in it."""
    return f'`effort="{method.removeprefix("vfg-")}"`' if method.startswith("vfg-") else "defaults"


def methods_of(found: Found) -> list[str]:
    """All methods measured anywhere, ours first."""
    present = {method for measured in found["measures"].values() for method in measured}
    known = [method for method in METHODS if method in present]
    first = ["vfg"] if "vfg" in present else []
    return [*first, *sorted(present - set(known)), *known[len(first) :]]


def tables_of(found: Found) -> list[str]:
    """All tables, those that were held back first."""
    return [*found["held_back"], *found["tuning"]]


def measured(found: Found, table: str, mechanism: str, setting: str) -> dict[str, Found]:
    """The measures of one group by method, empty if it was not run."""
    group: dict[str, Found] = found["measures"].get(f"{table} {mechanism} {setting}", {})
    return group


def named(mechanism: str, setting: str) -> str:
    return f"{MECHANISMS[mechanism]}, {SETTINGS[setting]}"


def errors(found: Found) -> str:
    """What was done, and the errors by table and method."""
    methods = methods_of(found)
    body = []
    for half, tables in (("held-back half", found["held_back"]), ("tuning half", found["tuning"])):
        body.append([f"*{half}*", *[""] * len(methods)])
        body += [[name, *error_cells(measured(found, name, *FIRST), methods)] for name in tables]
    return fill(
        "imputation",
        baselines="\n".join(descriptions(methods)),
        standings=standings(found, found["held_back"], PLAIN),
        slow=slow(found),
        limits=", ".join(f"{label(name)} {limit:,}" for name, limit in found["limits"].items()),
        table=folded(f"Errors by table, {named(*FIRST)}", rows(["", *map(label, methods)], body)),
        where=named(*FIRST),
    )


def descriptions(methods: list[str]) -> list[str]:
    """What the baselines are that were measured."""
    lines = [line.split(" | ") for line in fill("imputation.methods").splitlines()]
    return [f"- {label}: {text}" for name, label, text in lines if name in methods[1:]]


SLOW = (
    "hyperimpute",
    "miceforest",
    "miceforest40",
    "utrees",
    "classical",
    "forestdiffusion",
    "miwae",
)
"""Methods that take so long that they were not run everywhere."""


def slow(found: Found) -> str:
    """How many contests and cells slow methods have, and which tables lack them."""
    held = {group: own for group, own in found["measures"].items() if "vfg" in own}
    cells = sum(own["vfg"]["seeds"] for own in held.values())
    most = Counter(group.split()[0] for group in held)
    body = []
    for method in SLOW:
        seeds = {group: own.get(method, {}).get("seeds", 0) for group, own in held.items()}
        full = sum(bool(n) and n == held[group]["vfg"]["seeds"] for group, n in seeds.items())
        by_table = Counter(group.split()[0] for group, n in seeds.items() if n)
        lacking = [
            name if _is_allowed(method, name) else f"*{name}*"
            for name in most
            if not by_table[name]
        ]
        partly = [f"{name} {n} of {most[name]}" for name, n in by_table.items() if n < most[name]]
        counts = [sum(map(bool, seeds.values())), full, sum(seeds.values())]
        where = [", ".join(names) or NONE for names in (lacking, partly)]
        body.append([label(method), *map(str, counts), *where])
    header = ["slow method", f"contests of {len(held)}", "with all seeds of ours"]
    header += [f"cells of {cells}", "tables without it", "tables with a part of the contests"]
    return rows(header, body)


def _is_allowed(method: str, table: str) -> bool:
    """Whether a table is no larger than a method is run on."""
    return table not in SHAPES or allowed(method, *SHAPES[table])


def standings(
    found: Found, tables: list[str], groups: Sequence[tuple[str, str]] = tuple(GROUPS)
) -> str:
    """Errors of every method relative to ours, its intervals and its cost, where both ran."""
    held = [measured(found, table, *group) for table in tables for group in groups]
    body = []
    for method in methods_of(found):
        pairs = [(group[method], group["vfg"]) for group in held if {method, "vfg"} <= set(group)]
        if method == "vfg" or not pairs:
            continue
        thrice = sum(other["seeds"] >= SEEDS for other, _ in pairs)
        cells = [str(len(pairs)), str(thrice)]
        errors = [[a["relative"][m] for a, _ in pairs if m in a["relative"]] for m in RELATIVE]
        shares = [(a["coverage"], b["coverage"]) for a, b in pairs if "coverage" in a]
        share = " / ".join(f"{mean(side):.2f}" for side in zip(*shares, strict=True))
        fitting = [a["fit_seconds"] / b["fit_seconds"] for a, b in pairs if "fit_seconds" in a]
        rate = "transform_rows_per_second"
        filling = [b[rate] / a[rate] for a, b in pairs if rate in a and rate in b]
        times = map(_ratio, (fitting, filling))
        body.append([label(method), *cells, *map(_ratio, errors), share or NONE, *times])
    header = ["relative to `VFGImputer`", "tables and masks", "with three seeds"]
    header += ["squared error", "absolute error", "CRPS", "energy score"]
    header += ["cells in 90 % intervals / in ours", "seconds to fit", "seconds to fill"]
    return rows(header, body)


def _ratio(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.3g}" if ratios else NONE


def by_setting(found: Found) -> str:
    """The same for every mask and setting by itself."""
    shown = [
        folded(named(*group), standings(found, found["held_back"], [group])) for group in GROUPS
    ]
    return fill("imputation.settings", tables="\n\n".join(shown))


def error_cells(group: dict[str, Found], methods: list[str]) -> list[str]:
    """One table's errors, the least in bold, those of fewer seeds with a star."""
    most = max((values["seeds"] for values in group.values()), default=0)
    texts, values = [], []
    for method in methods:
        cell = group.get(method)
        is_full = cell is not None and cell["seeds"] == most
        texts.append(NONE if cell is None else f"{cell['mse']:.3f}" + "\\*" * (not is_full))
        values.append(cell["mse"] if cell is not None and is_full else None)
    return bold(texts, values)


def contests(found: Found) -> str:
    """Ratios and outcomes by mechanism, setting and half."""
    ours = [m for m in methods_of(found) if any(m in c for c in found["contests"].values())]
    body = []
    for method, group in product(ours, GROUPS):
        halves = [standing(found, method, found[half], *group) for half in ("held_back", "tuning")]
        if any(halves):
            cells = [cell for half in halves for cell in half or [NONE, NONE]]
            body.append([label(method), named(*group), *cells])
    if not body:
        return ""
    header = ["", "", "held-back half", "won / drawn / lost", "tuning half", "won / drawn / lost"]
    pairs = folded("Table by table", pairs_table(found))
    fields = {"goals": goals(found), "pairs": pairs, "partial": partial(found)}
    fields["codes"] = "\n".join(filter(None, (codes(found, method) for method in ours)))
    return fill("imputation.contests", table=rows(header, body), **fields)


def partial(found: Found) -> str:
    """Which methods were not run in all settings."""
    counts = {
        label(method): sum(
            any(method in measured(found, table, *group) for table in tables_of(found))
            for group in GROUPS
        )
        for method in methods_of(found)
    }
    few = [f"{name} in {n}" for name, n in counts.items() if n < len(GROUPS)]
    return f" Of the {len(GROUPS)} masks and settings, {', '.join(few)} were run." if few else ""


def codes(found: Found, method: str) -> str:
    """How many of the cells of one of our imputers are of which code, and in which contests."""
    groups = {
        group: held[method]
        for group, held in found["measures"].items()
        if method in found["contests"].get(group, {}) and method in held
    }
    if not groups:
        return ""
    cells: Counter[str] = Counter()
    where: dict[str, Counter[str]] = {}
    for group, own in groups.items():
        known = own.get("code", {})
        for code, number in {**known, EARLIER: own["seeds"] - sum(known.values())}.items():
            if number:
                cells[code] += number
                where.setdefault(code, Counter())[group.split()[0]] += 1
    names = {code: f"{n} of commit `{code}`" for code, n in cells.most_common() if code != EARLIER}
    if EARLIER in cells:
        names[EARLIER] = f"{cells[EARLIER] if names else 'all'} older than the note of the commit"
    told = [
        f"{name} ({', '.join(f'{table} {n}' for table, n in where[code].items())})"
        if len(names) > 1
        else name
        for code, name in names.items()
    ]
    fields = {"setting": setting_of(method), "cells": cells.total(), "contests": len(groups)}
    listed = ". In brackets are the contests of each table" if len(names) > 1 else ""
    return fill("imputation.codes", told="; ".join(told) + listed, **fields).strip()


EARLIER = ""
"""Stands for the code of cells that do not name theirs: they are older than its note."""


def geometric_mean(ratios: Iterable[float]) -> float:
    return exp(mean(map(log, ratios)))


def goals(found: Found) -> str:
    """What was aimed at, and what came out."""
    ours = {group: held["vfg"] for group, held in found["contests"].items() if "vfg" in held}
    if not ours:
        return ""
    overall = geometric_mean(contest["ratio"] for contest in ours.values())
    seen = {group: held["ratio"] for group, held in ours.items() if is_plain(group)}
    back = [r for group, r in seen.items() if group.split()[0] in found.get("held_back", ())]
    names = lost_contests(found, "contests")
    parts = ", without MNAR {:.3f}"
    parts = parts.format(geometric_mean(seen.values())) if 0 < len(seen) < len(ours) else ""
    if back:
        parts += f", and without MNAR on held-back tables alone {geometric_mean(back):.3f}"
    return fill(
        "imputation.goals",
        goal=GOAL,
        contests=len(ours),
        overall=overall,
        parts=parts,
        met="met" if overall <= GOAL else "missed",
        lost=fill("imputation.lost", names=names).strip() if names else "None is lost.",
    ).strip()


def lost_contests(found: Found, key: str, *, single: bool = False) -> str:
    """The tables, masks and settings that are lost, with their ratios.

    With `single`, those with a single seed, which do not count, where ours is behind by over 2 %.
    """
    lost: dict[str, list[str]] = {}
    for group, held in found.get(key, {}).items():
        own = held.get("vfg", {})
        behind = own.get("seeds") == 1 and own["ratio"] > 1.0 + MARGIN
        if behind if single else own.get("outcome") == "loss":
            table, *where = group.split(" ")
            title = f"{table} (tuning)" if table in found.get("tuning", ()) else table
            lost.setdefault(title, []).append(f"{named(*where)} ({held['vfg']['ratio']:.2f})")
    return "; ".join(f"{table}: {', '.join(where)}" for table, where in lost.items())


def pairs_table(found: Found) -> str:
    """Our errors and those of the best baseline, by table, mechanism and setting."""
    held = {
        group: {
            name: contest["vfg"]
            for name in tables_of(found)
            if "vfg" in (contest := found["contests"].get(f"{name} {' '.join(group)}", {}))
        }
        for group in GROUPS
    }
    held = {group: by_table for group, by_table in held.items() if by_table}
    body = [
        [name, *(_pair(by_table[name]) if name in by_table else NONE for by_table in held.values())]
        for name in tables_of(found)
    ]
    return rows(["", *(named(*group) for group in held)], body)


def _pair(contest: Found) -> str:
    ours, theirs = contest["mse"]
    return f"{ours:.3f} / {theirs:.3f} {label(contest['rival'])} ({contest['seeds']})"


def standing(
    found: Found, method: str, tables: list[str], mechanism: str, setting: str
) -> list[str]:
    """Geometric mean of the ratios, and the count of outcomes; empty if nothing was run."""
    groups = [found["contests"].get(f"{table} {mechanism} {setting}", {}) for table in tables]
    held = [group[method] for group in groups if method in group]
    if not held:
        return []
    counts = [sum(c["outcome"] == kind for c in held) for kind in ("win", "draw", "loss")]
    ratio = geometric_mean(contest["ratio"] for contest in held)
    return [f"{ratio:.3f}", " / ".join(map(str, counts))]


PROTOCOL = {"letter": "Letter", "california9": "California, totals and the value of the house"}
QUOTED: Found = json.loads((TEMPLATES / "published.json").read_text())["imputation"]
"""Mean absolute and root mean squared errors that others published, by table and group."""


def protocol(found: Found) -> str:
    """Errors under the protocol of DiffPuter's paper, a table each, ours and quoted ones."""
    groups = list(product(("mcar30", "mar43"), PARTS))
    header = [f"{m[:-2].upper()}, {PARTS[s]}" for m, s in groups]
    shown = []
    for table, title in PROTOCOL.items():
        held = [found.get("protocol", {}).get(f"{table} {m} {s}", {}) for m, s in groups]
        body = [
            [label(method), *(_roots(group.get(method)) for group in held)]
            for method in methods_of({"measures": dict(enumerate(held))})
        ]
        quoted = QUOTED[table].items()
        body += [
            [f"{name}, published", *(_roots(by.get(f"{m} {s}")) for m, s in groups)]
            for name, by in quoted
        ]
        if any(held):
            shown.append(rows([title, *header], body))
    return fill("imputation.protocol", tables="\n\n".join(shown)) if shown else ""


PARTS = {"fitted": "fitted rows", "unseen": "unseen rows"}


def _roots(errors: Found | None) -> str:
    if errors is None:
        return NONE
    few = f" ({errors['seeds']})" if "seeds" in errors else ""
    return f"{errors['mae']:.3f} / {errors['rmse']:.3f}{few}"


SHARED = 5
"""A method is in the second list of draws if it was run on as many tables: few are shared else."""


def spreads(found: Found) -> str:
    """Scores of draws: of methods run everywhere, then of more on the tables that all have."""
    groups = [
        {m: v for m, v in measured(found, table, *FIRST).items() if "crps" in v}
        for table in tables_of(found)
    ]
    counts = {m: sum(m in group for group in groups) for m in methods_of(found)}
    present = [method for method, count in counts.items() if count]
    everywhere = [method for method in present if counts[method] == max(counts.values())]
    often = [method for method in present if counts[method] >= SHARED]
    choices = [everywhere] if everywhere == often else [everywhere, often]
    shown = [*(score_table(groups, methods) for methods in choices if methods), draws_table(found)]
    tables = "\n\n".join(filter(None, shown))
    return fill("imputation.spreads", tables=tables, where=named(*FIRST)) if tables else ""


def score_table(groups: list[dict[str, Found]], methods: list[str]) -> str:
    """Means over the tables on which all of `methods` ran, empty if there is none."""
    shared = [group for group in groups if all(method in group for method in methods)]
    if not shared:
        return ""
    body = [
        [label(m), *(f"{mean(group[m][score] for group in shared):.3f}" for score in SCORES)]
        for m in methods
    ]
    return rows([plural(len(shared), "table"), *SCORES.values()], body)


def draws_table(found: Found) -> str:
    """Our draws and each baseline's on the same tables, masks and seeds."""
    pairs = found.get("draws", {})
    body = [
        [label(name), str(pair["cells"]), *(f"{x:.3f}" for x in (*pair["crps"], *pair["energy"]))]
        for name, pair in pairs.items()
    ]
    ours = label("vfg")
    header = ["same masks and seeds", "cells", f"CRPS {ours}", "CRPS baseline"]
    header += [f"energy score {ours}", "energy score baseline"]
    return rows(header, body) if body else ""


def times(found: Found) -> str:
    """Seconds, rows per second and memory for a small, a wide and a long table."""
    shown = [table for table in TIMED if measured(found, table, *FIRST)]
    columns = [("seconds", "fit_seconds", FIRST), ("rows/s", "transform_rows_per_second", OTHER)]
    columns.append(("MB", "peak_mb", FIRST))
    body = [
        [label(method)]
        + [
            number(measured(found, table, *group).get(method, {}).get(field))
            for _, field, group in columns
            for table in shown
        ]
        for method in methods_of(found)
        if any(method in measured(found, table, *FIRST) for table in shown)
    ]
    taken = found["circumstances"]
    ways = {
        how: ", ".join(label(name) for name in methods_of(found) if taken.get(name) == how)
        for how in sorted(set(taken.values()))
    }
    return fill(
        "imputation.times",
        table=rows(["", *(f"{t}: {title}" for title, *_ in columns for t in shown)], body),
        where=named(*FIRST),
        other=named(*OTHER),
        circumstances="\n".join(f"- {how}: {names}" for how, names in ways.items() if names),
    )


def number(value: float | None) -> str:
    """Two or three digits, a dash for none."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def failures(found: Found) -> str:
    lines = [
        f"- {label(name)}: {failed['cells']} cells, the first {failed['first']}"
        for name, failed in found["failures"].items()
    ]
    return "\n".join(["Cells that ended with an error:\n", *lines, ""]) if lines else ""


WORST = 1.05
"""The ratio that no table was to exceed."""
PATTERNS = {"columns": "every column in turn", "pairs": "pairs of columns", "half": "half of them"}


def effort(found: Found) -> str:
    """Cost and gain of the efforts, whole columns missing, growth."""
    parts = [
        make(found[name])
        for name, make in (("cost", _costs), ("gaps", _gaps), ("growth", _growth))
        if found.get(name)
    ]
    return fill("imputation.effort", parts="\n".join(parts), **found)


def by_case(records: list[Found], *keys: str) -> dict[tuple[str, ...], dict[str, Found]]:
    """Records by case, and then by method."""
    cases: dict[tuple[str, ...], dict[str, Found]] = {}
    for record in records:
        case = tuple(str(record[key]) for key in keys)
        cases.setdefault(case, {})[record["method"]] = record
    return cases


def _costs(records: list[Found]) -> str:
    """Errors and seconds relative to chained ExtraTrees, with half of the cells missing."""
    cases = by_case(records, "table", "seed").values()
    methods = list(dict.fromkeys(record["method"] for record in records))
    body = []
    for method in methods:
        line = ["ExtraTrees, 100 trees, 10 rounds" if method == "trees100" else label(method)]
        for measure in ("mse", "seconds"):
            for base in ("trees100", "extratrees"):
                ratios = [case[method][measure] / case[base][measure] for case in cases]
                line.append(f"{geometric_mean(ratios):.3g}")
        body.append(line)
    header = ["", "squared error / 100 trees", "/ 50 trees", "seconds / 100 trees", "/ 50 trees"]
    return fill("imputation.costs", tables=len(cases), table=rows(header, body))


def _gaps(records: list[Found]) -> str:
    """Errors where whole columns are missing in new rows, relative to the best baseline."""
    cases: dict[tuple[str, str], dict[str, list[Found]]] = {}
    for record in records:
        case = cases.setdefault((record["gaps"], record["table"]), {})
        case.setdefault(record["method"], []).append(record)
    efforts = [m for m in dict.fromkeys(r["method"] for r in records) if m.startswith("vfg")]
    body = []
    for pattern, title in PATTERNS.items():
        for measure, name in (("mse", "squared"), ("mae", "absolute")):
            line = [title, name]
            for method in efforts:
                ratios = {
                    table: _to_best(case, method, measure)
                    for (gaps, table), case in cases.items()
                    if gaps == pattern and method in case
                }
                worst = max(ratios, key=ratios.__getitem__)
                line += [f"{geometric_mean(ratios.values()):.3f}", f"{worst} {ratios[worst]:.2f}"]
                line.append(str(sum(ratio > WORST for ratio in ratios.values())))
            body.append(line)
    header = ["missing in new rows", "error"]
    header += [x for m in efforts for x in (label(m), "worst", f"above {WORST}")]
    methods = {r["method"] for r in records if not r["method"].startswith("vfg")}
    return fill(
        "imputation.gaps",
        tables=len({table for _, table in cases}),
        seeds=len({record["seed"] for record in records}),
        baselines=", ".join(label(method) for method in METHODS if method in methods),
        table=rows(header, body),
    )


def _to_best(case: dict[str, list[Found]], method: str, measure: str) -> float:
    """The mean error of a method over seeds, relative to that of the best baseline."""
    means = {name: sum(r[measure] for r in found) / len(found) for name, found in case.items()}
    return means[method] / min(mean for name, mean in means.items() if not name.startswith("vfg"))


def _growth(records: list[Found]) -> str:
    """Seconds to fit made tables, and what filling, single rows, intervals and draws take."""
    body = [
        [
            f"{record['rows']:,} x {record['columns']}",
            record["effort"],
            number(record["fit"]),
            number(1.0 / record["per_row"]),
            number(1e3 * record["single"]),
            *(f"{record[key]:.1f}" for key in ("interval", "draws", "again")),
        ]
        for record in sorted(records, key=lambda r: (r["columns"] != 10, r["rows"], r["columns"]))
    ]
    header = ["rows x columns", "effort", "fit, s", "rows/s", "one row, ms"]
    header += ["intervals / fill", "first 20 draws / fill", "later 20 draws / fill"]
    return fill("imputation.growth", table=rows(header, body))


def shifts(found: Found) -> str:
    """Errors and coverage in rows unlike the fitted ones."""
    cases = by_case(found["records"], "table", "order", "seed")
    methods = list(dict.fromkeys(record["method"] for record in found["records"]))
    body = []
    for (table, order, _), case in cases.items():
        line = [table, order]
        for method in methods:
            held = case[method].get("coverage")
            brackets = "" if held is None else f" ({held:.0%})"
            line.append(f"{case[method]['mse']:.3g}{brackets}")
        body.append(line)
    ratios = {
        method: geometric_mean(
            case[method]["mse"] / min(case[base]["mse"] for base in ("mean", "ridge"))
            for case in cases.values()
        )
        for method in methods
    }
    body.append(["relative", "", *(f"{ratio:.3f}" for ratio in ratios.values())])
    names = ["ridge, no limits" if method == "ridge" else label(method) for method in methods]
    return fill("imputation.shifts", table=rows(["table", "sorted by", *names], body), **found)


def intervals(found: Found) -> str:
    """Intervals by what is known, beside the true law."""
    grouped: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for record in found["records"]:
        key = record["table"], record["given"], record["method"]
        grouped.setdefault(key, []).append(record)
    body = []
    for (table, given, method), records in grouped.items():
        ratios = [
            geometric_mean(one[name] / one[f"true_{name}"] for one in records)
            for name in ("rmse", "width", "crps")
        ]
        held = sum(one["coverage"] for one in records) / len(records)
        thirds = [
            sum(one["coverage_by_width"][k] for one in records) / len(records) for k in range(3)
        ]
        line = [table, given, label(method), *(f"{ratio:.2f}" for ratio in ratios), f"{held:.0%}"]
        body.append([*line, " ".join(f"{third:.0%}" for third in thirds)])
    header = ["table", "given", "effort", "error", "width", "CRPS", "held", "by thirds of width"]
    return fill("imputation.intervals", table=rows(header, body), **found)
