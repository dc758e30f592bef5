"""From the files of all cells to docs/results: each cell, and means, spreads and contests.

All cells that were ever measured are in one small file, so that results grow over machines.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from itertools import cycle
from math import sqrt
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from vfg.plots.style import CATEGORIES, FILLED, INK, MARKERS, SMALL, new_figure, tidy

from ...results import FOLDER, Arguments
from .cells import FITTED, PROTOCOL, PUBLISHED, SETTINGS
from .methods import LIMITS, is_ours

Group = tuple[str, str, str]
Circumstances = tuple[int, int, int, bool]
Key = tuple[Any, ...]
Measured = dict[str, dict[int, dict[str, Any]]]
"""What was measured in one group, by method and seed."""

LOG = FOLDER / "cells" / "imputation.json"
"""All cells that were ever measured."""
AVERAGED = ("mse", "mae", "mae_median", "crps", "energy", "coverage", "width")
TIMED = ("fit_seconds", "draw_seconds", "transform_rows_per_second", "peak_mb")
MARGIN = 0.02
OURS = "vfg"
"""The method that others are compared with: this library's imputer with its defaults."""


def collect(folder: Path, tuning: list[str], held_back: list[str], given: Arguments) -> Path:
    """Merge the cells of `folder` into one result file."""
    log = None if given.quick else LOG
    cells = merged(folder, log, keep_seconds=given.keep_seconds)
    groups = grouped([cell for cell in cells if "error" not in cell])
    protocol = {group: groups[group] for group in sorted(groups) if is_of_protocol(group)}
    groups = {
        group: found
        for group, found in groups.items()
        if group[0] in (*tuning, *held_back) and group[2] in SETTINGS and group[1] not in PROTOCOL
    }
    taken = usual_circumstances(cells)
    found = {
        "seeds": sorted({cell["seed"] for cell in cells}),
        "tuning": tuning,
        "held_back": held_back,
        "limits": LIMITS,
        "circumstances": {method: described(*how) for method, how in taken.items()},
        "failures": failures(cells),
        "measures": {" ".join(group): measures(groups[group], taken) for group in sorted(groups)},
        **{
            key: {" ".join(group): contests(groups[group], loss) for group in sorted(groups)}
            for key, loss in (("contests", "mse"), ("contests_mae", "mae"))
        },
        "draws": draws_side_by_side(groups),
        "protocol": {" ".join(group): roots(found) for group, found in protocol.items()},
    }
    path = given.write("imputation", found)
    if not given.quick:
        given.save(draw_costs(found["measures"]), "imputation_cost")
    path.write_text(on_single_lines(path.read_text()))
    if log is not None:
        log.parent.mkdir(exist_ok=True)
        log.write_text(packed(cells))
    return path


DRAWN = ("banknote", "energy", "ionosphere", "sonar", "wine_white", "yacht")
"""Tables of the picture: held-back ones, few and many rows and columns."""


def draw_costs(measures: dict[str, dict[str, dict[str, Any]]]) -> Any:
    """Squared error against seconds to fit, a panel per table, half of the cells missing."""
    figure = new_figure(12.0, 6.4, rows=2, columns=3)
    groups = {table: measures.get(f"{table} mcar50 in_sample", {}) for table in DRAWN}
    methods = sorted({name for group in groups.values() for name in group}, key=_drawing_order)
    colors = [color for color in CATEGORIES if color != FILLED]
    for axis, (table, group) in zip(figure.axes, groups.items(), strict=True):
        looks = zip(cycle(MARKERS), cycle(colors), strict=False)
        for method, (marker, color) in zip(methods, looks, strict=False):
            most = max(one["seeds"] for one in group.values())
            if group.get(method, {}).get("seeds") == most and "fit_seconds" in group[method]:
                at = max(group[method]["fit_seconds"], 1e-3), group[method]["mse"]
                shown = FILLED if is_ours(method) else color
                size = 9 if is_ours(method) else 5
                axis.plot(*at, marker, color=shown, markersize=size, label=method, linestyle="")
        axis.set_xscale("log")
        axis.set_title(table, fontsize=SMALL + 1, color=INK)
        tidy(axis, x="seconds of one core to fit", y="squared error")
    handles = {
        text: handle
        for axis in figure.axes
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    shown = [name for name in methods if name in handles]
    figure.legend(
        [handles[name] for name in shown], shown, loc="outside right center", frameon=False,
        fontsize=SMALL,
    )  # fmt: skip
    return figure


def _drawing_order(method: str) -> tuple[bool, str]:
    return not is_ours(method), method


def grouped(cells: list[dict[str, Any]]) -> dict[Group, Measured]:
    """The cells by table, mechanism and setting, then by method and seed."""
    groups: dict[Group, Measured] = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        group = cell["table"], cell["mechanism"], cell["setting"]
        groups[group][cell["method"]][cell["seed"]] = cell
    return groups


def is_of_protocol(group: Group) -> bool:
    """Whether a group belongs to the protocol of papers on DiffPuter: 70 % fitted, 30 % missing."""
    table, mechanism, setting = group
    return (
        table in PUBLISHED and mechanism in ("mcar30", *PROTOCOL) and setting in (FITTED, "unseen")
    )


def roots(measured: Measured) -> dict[str, dict[str, float]]:
    """Mean absolute and root mean squared errors by method, means over the seeds of ours."""
    own = measured.get(OURS, {})
    found = {}
    for method in sorted(measured):
        cells = [cell for seed, cell in measured[method].items() if seed in own]
        if cells:
            found[method] = {
                "seeds": len(cells),
                "mae": rounded(mean(error_of(cell, "mae") for cell in cells)),
                "rmse": rounded(mean(sqrt(cell["mse"]) for cell in cells)),
            }
    return found


def measures(measured: Measured, taken: dict[str, Circumstances]) -> dict[str, dict[str, Any]]:
    """Means over seeds by method, the spread of the squared error, medians of times.

    All methods are measured on the seeds of ours, or on those of these that they have.
    """
    own = measured.get(OURS, {})
    found = {}
    for method in sorted(measured):
        cells = [cell for seed, cell in measured[method].items() if not own or seed in own]
        if cells:
            found[method] = averages(cells, taken[method])
            if own and method != OURS:
                found[method]["relative"] = relative(cells, own)
    return found


def relative(cells: list[dict[str, Any]], own: dict[int, dict[str, Any]]) -> dict[str, float]:
    """Errors and scores of a method divided by ours on the same seeds."""
    found = {}
    for name in ("mse", "mae", "crps", "energy"):
        if all(name in cell for cell in cells):
            sides = (cells, [own[cell["seed"]] for cell in cells])
            theirs, ours = (sum(error_of(cell, name) for cell in side) for side in sides)
            found[name] = rounded(theirs / ours)
    return found


def averages(cells: list[dict[str, Any]], taken: Circumstances) -> dict[str, Any]:
    """One method's measures over its seeds; what it does not offer is left out.

    Times are those of the usual circumstances, so that they can be compared between tables; of
    others where there are none. `code` counts the cells of every commit; cells that do not name
    theirs are older than this field.
    """
    kept: dict[str, Any] = {"seeds": len(cells)}
    for name in AVERAGED:
        values = [cell[name] for cell in cells if name in cell]
        if values:
            kept[name] = rounded(mean(values))
    if len(cells) > 1:
        kept["mse_sd"] = rounded(stdev(cell["mse"] for cell in cells))
    if "coverage_by_width" in cells[0]:
        thirds = zip(*[cell["coverage_by_width"] for cell in cells], strict=True)
        for name, third in zip(("narrow", "middle", "wide"), thirds, strict=True):
            kept[f"coverage_{name}"] = rounded(mean(third))
    usual = [cell for cell in cells if circumstances(cell) == taken] or cells
    for name in TIMED:
        timed = [cell[name] for cell in usual if cell.get(name) is not None]
        if timed:
            kept[name] = rounded(median(timed))
    known = Counter(cell["code"] for cell in cells if cell.get("code") is not None)
    if known:
        kept["code"] = dict(sorted(known.items()))
    return kept


def contests(measured: Measured, loss: str) -> dict[str, dict[str, Any]]:
    """Ours against the best baseline of the group, by seeds that both have."""
    baselines = {name: cells for name, cells in measured.items() if not is_ours(name)}
    found = {}
    for method in filter(is_ours, sorted(measured)):
        ours = measured[method]
        meeting = {
            name: baselines[name] for name in sorted(baselines) if baselines[name].keys() & ours
        }
        if meeting:
            found[method] = contest(ours, meeting, loss)
        default = {seed: measured[OURS][seed] for seed in ours if seed in measured.get(OURS, {})}
        if meeting and method != OURS and len(default) == len(ours):
            found[method]["default"] = contest(default, meeting, loss)["ratio"]
    return found


def contest(ours: dict[int, dict[str, Any]], baselines: Measured, loss: str) -> dict[str, Any]:
    """Ratio to the baseline with the least error, and whether the difference is beyond doubt.

    A baseline is judged on the seeds that it shares with ours; those with fewer than three of
    them (or than ours has) are left out, unless there are no others. `of_all` is the ratio to the
    best of all, each on the seeds that it has.
    """
    shared = {name: [s for s in ours if s in cells] for name, cells in baselines.items()}
    enough = min(3, max(map(len, shared.values())))
    every = {
        name: [(error_of(ours[s], loss), error_of(baselines[name][s], loss)) for s in seeds]
        for name, seeds in shared.items()
    }
    quotients = {name: sum(o for o, _ in p) / sum(b for _, b in p) for name, p in every.items()}
    pairs = {name: p for name, p in every.items() if len(p) >= enough}
    ratios = {name: quotients[name] for name in pairs}
    best = max(ratios, key=ratios.__getitem__)
    return {
        "rival": best,
        "ratio": rounded(ratios[best]),
        loss: [rounded(mean(side)) for side in zip(*pairs[best], strict=True)],
        "seeds": len(pairs[best]),
        "others": len(pairs),
        "of_all": rounded(max(quotients.values())),
        "all_others": len(every),
        "outcome": outcome([o - b for o, b in pairs[best]], mean(b for _, b in pairs[best])),
    }


def error_of(cell: dict[str, Any], loss: str) -> float:
    """A cell's error; absolute ones by medians where a method has them (a baseline: if better)."""
    if loss != "mae" or "mae_median" not in cell:
        return float(cell[loss])
    median = float(cell["mae_median"])
    return median if is_ours(cell["method"]) else min(median, float(cell["mae"]))


def outcome(differences: list[float], level: float) -> str:
    """`win`, `loss` or `draw` by paired differences of errors, ours less the baseline's.

    A difference counts if it exceeds 2 % of the baseline's error plus two standard errors of the
    paired differences over seeds; with a single seed nothing counts.
    """
    if len(differences) < 2:
        return "draw"
    bound = MARGIN * level + 2.0 * stdev(differences) / len(differences) ** 0.5
    average = mean(differences)
    return "win" if average < -bound else "loss" if average > bound else "draw"


def draws_side_by_side(groups: dict[Group, Measured]) -> dict[str, dict[str, Any]]:
    """Scores of our draws and of each baseline's, means over tables, masks and seeds of both."""
    pairs: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    for measured in groups.values():
        ours = measured.get(OURS, {})
        for name, cells in measured.items():
            shared = [s for s in cells if s in ours and "energy" in cells[s]]
            pairs[name] += [] if is_ours(name) else [(ours[s], cells[s]) for s in shared]
    return {
        name: {
            "cells": len(found),
            **{
                score: [rounded(mean(pair[side][score] for pair in found)) for side in (0, 1)]
                for score in ("crps", "energy")
            },
        }
        for name, found in sorted(pairs.items())
        if found
    }


def circumstances(cell: dict[str, Any]) -> Circumstances:
    """Cores of the machine, cells at a time, threads of each, whether the method used a GPU."""
    return cell["cores"], cell["jobs"], cell["threads"], cell.get("gpu", False)


def usual_circumstances(cells: list[dict[str, Any]]) -> dict[str, Circumstances]:
    """Those under which most cells of each method were measured."""
    counts: dict[str, Counter[Circumstances]] = defaultdict(Counter)
    for cell in cells:
        counts[cell["method"]][circumstances(cell)] += 1
    return {method: counts[method].most_common(1)[0][0] for method in sorted(counts)}


def described(cores: int, jobs: int, threads: int, gpu: bool) -> str:
    where = f"{cores} cores and a GPU" if gpu else f"{cores} cores"
    return f"{where}, {jobs} at a time, {threads} thread{'s' * (threads > 1)} each"


def failures(cells: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Cells that ended with an error, by method: how many, and the first reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        if "error" in cell:
            found[cell["method"]].append(f"{cell['table']}: {cell['error']}")
    return {name: {"cells": len(r), "first": r[0]} for name, r in sorted(found.items())}


def rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


def on_single_lines(text: str) -> str:
    """JSON with every innermost object and list on one line."""
    return re.sub(
        r"([\[{])\s+([^\[\]{}]*?)\s+([\]}])",
        lambda found: found[1] + re.sub(r"\s*\n\s*", " ", found[2]) + found[3],
        text,
    )


IDENTITY = ("table", "mechanism", "setting", "seed", "method")
LEFT_OUT = ("missing_cells", "peak_mb_at_start", "draws")
"""What is not carried over: known from the cell, or of no use."""
WAYS = ("cores", "gpu", "jobs", "sklearn", "threads", "torch")
"""How a cell was measured, which many cells share: a line of the file names it by its place."""


def key_of(cell: dict[str, Any]) -> Key:
    """What tells a cell from the others."""
    return tuple(cell[name] for name in IDENTITY)


def merged(folder: Path, log: Path | None, *, keep_seconds: bool = False) -> list[dict[str, Any]]:
    """The cells of the log and those of `folder`, which replace what the log has of them.

    With `keep_seconds` they replace its errors, and the log's seconds and memory stay.
    """
    known = [] if log is None or not log.exists() else unpacked(log.read_text())
    new = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    found = {key_of(cell): cell for cell in known}
    for cell in new:
        earlier = found.get(key_of(cell), {}) if keep_seconds else {}
        kept = {name: earlier[name] for name in (*TIMED, *WAYS) if name in earlier}
        found[key_of(cell)] = cell | kept
    return [found[key] for key in sorted(found)]


def packed(cells: list[dict[str, Any]]) -> str:
    """The names of what was measured, and a line of values for every cell; null where none is."""
    names = {name for cell in cells for name in cell}
    fields = [*IDENTITY, *sorted(names - {*IDENTITY, *LEFT_OUT, *WAYS}), "way"]
    known = [{name: cell[name] for name in WAYS if name in cell} for cell in cells]
    ways = sorted({json.dumps(way) for way in known})
    places = {way: place for place, way in enumerate(ways)}
    short = [
        [_short(value) for value in (*map(cell.get, fields[:-1]), places[json.dumps(way)])]
        for cell, way in zip(cells, known, strict=True)
    ]
    body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in short)
    listed = ",\n".join(ways)
    return (
        f'{{\n"fields": {json.dumps(fields)},\n"ways": [\n{listed}\n],\n"cells": [\n{body}\n]\n}}\n'
    )


def unpacked(text: str) -> list[dict[str, Any]]:
    table = json.loads(text)
    cells = [
        {name: value for name, value in zip(table["fields"], row, strict=True) if value is not None}
        for row in table["cells"]
    ]
    # Files of before, which have no ways, have these fields in every line.
    return [{**table["ways"][cell.pop("way")], **cell} if "way" in cell else cell for cell in cells]


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(item) for item in value]
    return rounded(value, 5) if isinstance(value, float) else value
