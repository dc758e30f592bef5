"""The table that docs/results.md opens with: every task on one line, against the best baseline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import exp, log, sqrt
from statistics import mean, median, stdev
from typing import Any

from . import images, mixed, paper, tables
from .imputation import MARGIN, SEEDS, geometric_mean, label, lost_contests
from .render import NONE, Found, fill, least, often, rows

HEADER = (
    "task",
    "ours",
    "best other",
    "ours / other",
    "won / drawn / lost",
    "time",
    "others, seeds",
)
VARIANTS = {
    "vfg": ("VFGImputer", ""),
    "vfg-best": ('VFGImputer(effort="best")', ', `effort="best"`'),
}
"""Imputers of ours, and what their lines say beside the task."""
LOSSES = {"contests": "squared error", "contests_mae": "absolute error"}
Line = list[str]


def table(found: dict[str, Found], *, aside: bool = False) -> str:
    """The lines of all result files that exist, without those of `ASIDE` or these alone."""
    lines = [line for name, make in LINES.items() if name in found for line in make(found[name])]
    return rows(HEADER, [line for line in lines if aside == any(a in line[0] for a in ASIDE)])


ASIDE = ("tables for tuning", "tuning ones", 'effort="best"')
"""What the lines of a second table have in their task: they flatter ours, or have one seed."""


README_TASKS = {
    r"missing cells, (\d+) held-back tables, squared error": "{} tables of numbers, squared error",
    r"missing cells, (\d+) held-back tables, absolute error": "the same, absolute error",
    r"cells missing by their own value, (\d+) held-back tables, squared error": (
        "the same, cells missing because of their own value, squared error"
    ),
    r"mixed tables, (\d+) held-back ones, squared error": "{} mixed tables: numbers, squared error",
    r"mixed tables, (\d+) held-back ones, error rate": "the same: categories, error rate",
    r"log p of (\d+) continuous tables, whole rows": (
        "{} tables, not kept back, log p of whole rows, `GaussianVFG`: ours − other"
    ),
    r"NLL of static MNIST": "static MNIST, NLL, `VFG`: ours − other",
    r"NLL of Caltech 101": "the same, Caltech 101 silhouettes",
    r"NLL of Omniglot": "the same, Omniglot, a split of our own",
    r"California's room counts, absolute error": "California's room counts, absolute error",
}
"""What the README repeats, as a pattern, and how it is called there; no table is of tuning."""


def readme(found: dict[str, Found]) -> str:
    """The results of the README."""
    lines = [line for name, make in LINES.items() for line in make(found[name])]
    body = []
    for pattern, title in README_TASKS.items():
        told, line = next((m, line) for line in lines if (m := re.fullmatch(pattern, line[0])))
        body.append([title.format(*told.groups()), line[3], line[4]])
    plain = [
        line for line in lines if re.fullmatch(r"missing cells, \d+ held-back.*error", line[0])
    ]
    own = next(line for line in lines if re.fullmatch(OWN_VALUES, line[0]))
    pictures = [line for line in lines if line[0].startswith("NLL")]
    steps = [float(line[5].partition("x")[0]) for line in pictures]
    return fill(
        "readme",
        table=rows(("task", "ours / best other", "won / drawn / lost"), body),
        others=plain[0][6].partition(",")[0],
        mixed=next(line[6] for line in lines if line[0].startswith("mixed")).partition(",")[0],
        seeds=_told_seeds(plain[0][6].partition(", ")[2]),
        times=[line[5].removesuffix("x") for line in plain],
        times_own=own[5].removesuffix("x"),
        image_seeds=pictures[0][6].split()[1],
        steps_least=min(steps),
        steps_most=max(steps),
        **_coverages(found["imputation"]),
        **_filled_by_engines(found["engines"]),
    )


def notes(found: dict[str, Found]) -> str:
    """Sentences below the tables: intervals, published likelihoods, tables larger than memory."""
    told = []
    if "imputation" in found:
        told.append(fill("results.intervals", **_coverages(found["imputation"])))
    if "likelihood" in found:
        told.append(_published(found["likelihood"]["data"]))
    if "engines" in found:
        told.append(fill("results.engines", **_filled_by_engines(found["engines"])))
    return "\n".join(told)


def _published(sets: Found) -> str:
    """Our likelihoods of images beside published ones."""
    nll = [
        part["models"][images.best_models(part["models"])[0]]["nll"]
        for part in (sets[name] for name in ANCHORED)
    ]
    return fill(
        "results.published",
        nll=_listed([f"{mean(values):.2f}" for values in nll]),
        spread=_listed([f"{stdev(values):.2f}" for values in nll]),
        published=_listed([f"{images.PUBLISHED[name][SYLVESTER][1]:.2f}" for name in ANCHORED]),
        rows=_listed([f"{images.weighted_rows(sets[name]):,}" for name in SHOWN_IMAGES]),
    )


def _filled_by_engines(engines: Found) -> Found:
    """The size of the table that the engines filled, their speeds, and the memory they held."""
    return {
        "rows": engines["rows"],
        "columns": engines["columns"],
        "local": engines["engines"]["local"]["rows_per_processor_second"],
        "ray": engines["engines"]["ray"]["rows_per_processor_second"],
        "megabytes": _megabytes(engines["engines"]),
    }


def _told_seeds(text: str) -> str:
    """The end of a line, as `3` or `3 in 45 of 54`, in words."""
    number, _, where = text.partition(" in ")
    return f"{number} seeds (in {where}; fewer in the others)" if where else f"{number} seeds"


def _megabytes(engines: Found) -> str:
    """The least and the most that the calling process held from the first tenth on."""
    held = [n for one in engines.values() for n in one["first_process_megabytes"]["by_tenths"]]
    return f"{min(held)} to {max(held)}"


OWN_VALUES = r"cells missing by their own value, \d+ held-back tables, squared error"
SYLVESTER = "orthogonal Sylvester"
ANCHORED = ("mnist", "caltech")
"""Images whose rows are those of published likelihoods."""
SHOWN_IMAGES = (*ANCHORED, "omniglot")
"""Images of the README, in its order."""


def _listed(texts: list[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}"


def _coverages(found: Found) -> Found:
    """How many of 100 cells 90 % intervals hold: means over groups of cells, and extremes."""
    shares = [_coverage(found, own_values=own) for own in (False, True)]
    return {
        "held": mean(shares[0]),
        "held_own": mean(shares[1]),
        "least": min(map(min, shares)),
        "most": max(map(max, shares)),
    }


def _coverage(found: Found, *, own_values: bool) -> list[float]:
    """How many of 100 cells 90 % intervals hold, by held-back table and mask."""
    return [
        100.0 * group["vfg"]["coverage"]
        for name, group in found["measures"].items()
        if "vfg" in group
        and ("mnar" in name) == own_values
        and name.split()[0] in found["held_back"]
    ]


def standard_error(values: list[float]) -> float:
    """Of the mean; infinite for a single value."""
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else float("inf")


def remarks(found: dict[str, Found]) -> str:
    """The ratio of roots, and the contests that are lost, by name."""
    measured = found.get("imputation", {})
    lost = {loss: lost_contests(measured, key) for key, loss in LOSSES.items()}
    told = [fill("results.lost", loss=loss, names=names) for loss, names in lost.items() if names]
    single = {loss: lost_contests(measured, key, single=True) for key, loss in LOSSES.items()}
    listed = [f"By {loss}: {names}" for loss, names in single.items() if names]
    if listed:
        told.append(fill("results.lost_single", names=". ".join(listed)))
    if "mixed" in found:
        told.append(fill("results.lost_mixed", names=mixed.lost(found["mixed"])))
    held = {
        key: [
            contest["vfg"]
            for group, contest in measured.get(key, {}).items()
            if "vfg" in contest
            and "mnar" not in group
            and group.split()[0] in measured["held_back"]
        ]
        for key in LOSSES
    }
    if held["contests"]:
        squared, absolute = (geometric_mean(c["ratio"] for c in held[key]) for key in LOSSES)
        numbers = {"squared": squared, "root": sqrt(squared), "absolute": absolute}
        told.insert(0, fill("results.roots", **numbers))
    if all("of_all" in contest for contest in held["contests"]) and held["contests"]:
        every = [geometric_mean(c["of_all"] for c in held[key]) for key in LOSSES]
        more = sum(c["all_others"] > c["others"] for c in held["contests"])
        told.insert(1, fill("results.every", squared=every[0], absolute=every[1], more=more))
    return "\n".join([*told, *_best_effort(measured)])


def versions(found: dict[str, Found]) -> str:
    """Which files were measured with other versions than the newest, in an item of a list."""
    of_files = {name: sorted(_versions(file)) for name, file in found.items()}
    newest = max((one for own in of_files.values() for one in own if one != UNKNOWN), default="")
    by_version: dict[str, list[str]] = {}
    for name, own in of_files.items():
        for version in own:
            by_version.setdefault(version, []).append(f"`{name}`")
    told = [
        f"{UNTOLD if version == UNKNOWN else f'by {version}'}: {', '.join(names)}"
        for version, names in sorted(by_version.items())
        if version != newest
    ]
    if not told:
        return ""
    return fill("results.versions", newest=newest, others="; ".join(told))


def _versions(file: Found) -> set[str]:
    """Those that a file names, or its parts, which may be of several dates."""
    parts = file["parts"] if isinstance(file.get("parts"), list) else [file]
    return {part["machine"]["vfg"] for part in parts if "vfg" in part.get("machine", {})}


UNTOLD = "without a note of their version"
UNKNOWN = "unknown"
"""The version that a file names if its code was no installed package."""


def _best_effort(measured: Found) -> list[str]:
    """The default beside `effort="best"` on the same seeds and baselines."""
    ratios = [
        [geometric_mean(c[name] for c in held) for name in ("ratio", "default")]
        for key in LOSSES
        if (
            held := [
                contest["vfg-best"]
                for group, contest in measured.get(key, {}).items()
                if "default" in contest.get("vfg-best", {})
                and group.split()[0] in measured["held_back"]
            ]
        )
    ]
    if len(ratios) < len(LOSSES):
        return []
    (squared, default), (absolute, default_absolute) = ratios
    numbers = {"squared": squared, "default": default, "absolute": absolute}
    return [fill("results.best", **numbers, default_absolute=default_absolute)]


def imputation(found: Found) -> Iterator[Line]:
    """Missing cells by mechanism and loss, the held-back half of the tables first."""
    halves = {"held-back tables": found["held_back"], "tables for tuning": found["tuning"]}
    for (half, names), own_values, method in product(halves.items(), (False, True), VARIANTS):
        cells = "cells missing by their own value" if own_values else "missing cells"
        ours, words = VARIANTS[method]
        for key, loss in LOSSES.items():
            groups = {
                group: contest[method]
                for group, contest in found.get(key, {}).items()
                if method in contest
                and group.split()[0] in names
                and ("mnar" in group) == own_values
            }
            if not groups:
                continue
            logs = [
                mean(log(c["ratio"]) for group, c in groups.items() if group.split()[0] == name)
                for name in names
                if any(group.split()[0] == name for group in groups)
            ]
            ratio = geometric_mean(contest["ratio"] for contest in groups.values())
            counts = [
                sum(c["outcome"] == k for c in groups.values()) for k in ("win", "draw", "loss")
            ]
            others = [c["others"] for c in groups.values()]
            best = often(label(c["rival"]) for c in groups.values())
            yield [
                f"{cells}, {len(logs)} {half}, {loss}{words}",
                f"`{ours}`",
                f"the best on each table and mask: {best}",
                f"{ratio:.3f} ± {ratio * standard_error(logs):.3f}",
                " / ".join(map(str, counts)),
                _cost(found, groups, method),
                f"{min(others)} to {max(others)}, {_seeds(groups)}",
            ]


def _seeds(groups: dict[str, Found]) -> str:
    """In how many contests all methods have three seeds; the number if it is one everywhere."""
    counts = [contest["seeds"] for contest in groups.values()]
    if len(set(counts)) == 1:
        return str(counts[0])
    return f"3 in {sum(count >= SEEDS for count in counts)} of {len(counts)}"


def _cost(found: Found, groups: dict[str, Found], method: str) -> str:
    """How many times longer ours takes to fit than the best baseline, a geometric mean."""
    ratios = []
    for group, contest in groups.items():
        times = [
            found["measures"][group].get(name, {}).get("fit_seconds")
            for name in (method, contest["rival"])
        ]
        if all(times):
            ratios.append(times[0] / times[1])
    return f"{geometric_mean(ratios):.0f}x" if ratios else NONE


def density(found: Found) -> Iterator[Line]:
    """log p of whole rows and of rows with missing cells, by paired differences."""
    for measure, title in (("test", "whole rows"), ("missing", "30 % of the cells missing")):
        gains = tables.density_gains(found, measure)
        counts = [
            sum(tables.outcome(g) == k for _, g in gains.values()) for k in ("win", "draw", "loss")
        ]
        means = [mean(gain) for _, gain in gains.values()]
        methods = {
            m
            for part in found["tables"].values()
            for m, v in part["methods"].items()
            if v.get(measure)
        }
        yield [
            f"log p of {len(gains)} continuous tables, {title}",
            "`GaussianVFG`",
            f"the best on each table: {often(name for name, _ in gains.values())}",
            f"{mean(means):+.2f} ± {standard_error(means):.2f} nats, median {median(means):+.2f}",
            " / ".join(map(str, counts)),
            NONE,
            f"{len(methods) - 1}, {len(found['seeds'])}",
        ]


def likelihood(found: Found) -> Iterator[Line]:
    for name, part in found["data"].items():
        ours, other = images.best_models(part["models"])
        if name not in images.TITLES or ours is None or other is None:
            continue
        values = [part["models"][model]["nll"] for model in (ours, other)]
        gain = mean(values[0]) - mean(values[1])
        error = sqrt(sum(standard_error(each) ** 2 for each in values))
        steps = [part["models"][model]["steps"] for model in (ours, other)]
        counts = [len(v["nll"]) for m, v in part["models"].items() if not m.startswith("VFG")]
        single = f" ({number} with one)" if (number := counts.count(1)) else ""
        seeds = " to ".join(str(number) for number in sorted({len(each) for each in values}))
        yield [
            f"NLL of {images.TITLES[name]}",
            f"{ours} {mean(values[0]):.2f}",
            f"{other} {mean(values[1]):.2f}",
            f"{gain:+.2f} nats" + (f" ± {error:.2f}" if error < float("inf") else ""),
            NONE,
            f"{steps[0] / steps[1]:.1f}x steps",
            f"{len(counts)}, {seeds}{single}",
        ]


def synthetic(found: Found) -> Iterator[Line]:
    baseline, best, _ = paper.synthetic_best(found["mse"])
    pairs = list(zip(found["mse"][best], found["mse"][baseline], strict=True))
    logs = [log(ours / other) for ours, other in pairs]
    ratio = exp(mean(logs))
    yield [
        "the paper's synthetic columns, squared error",
        f"{best} {mean(o for o, _ in pairs):.3f}",
        f"{baseline}, made for this question, {mean(b for _, b in pairs):.1g}",
        f"{ratio:,.0f}" if ratio > 10 else f"{ratio:.2f}",
        _outcomes(logs),
        NONE,
        f"{sum(not name.startswith('VFG') for name in found['mse'])}, {len(pairs)}",
    ]
    yield _patterns(found["patterns"])


def _outcomes(logs: list[float]) -> str:
    """How many seeds are won, drawn and lost, by logarithms of ratios, beyond 2 %."""
    wins, losses = (sum(exp(sign * each) < 1.0 - MARGIN for each in logs) for sign in (1, -1))
    return f"{wins} / {len(logs) - wins - losses} / {losses}"


def _patterns(errors: dict[str, list[float]]) -> Line:
    """One model for every question about the synthetic columns."""
    means = {name: mean(values) for name, values in errors.items()}
    ours = least({name: value for name, value in means.items() if name.startswith("VFG")})
    other = least({name: value for name, value in means.items() if not name.startswith("VFG")})
    logs = [log(o / b) for o, b in zip(errors[ours], errors[other], strict=True)]
    ratio = exp(mean(logs))
    return [
        "any sections of these columns from any others, 14 patterns",
        f"{ours}, one model, {means[ours]:.3f}",
        f"{other}, 14 models, {means[other]:.3f}",
        f"{ratio:.3f} ± {ratio * standard_error(logs):.3f}",
        _outcomes(logs),
        NONE,
        f"{sum(not name.startswith('VFG') for name in errors)}, {len(logs)}",
    ]


def california(found: Found) -> Iterator[Line]:
    methods = found["methods"]
    for measure, title in (("mse, raw", "squared"), ("mae, raw", "absolute")):
        ours, other = paper.california_best(methods, measure)
        errors = [methods[name][measure]["all"] for name in (ours, other)]
        yield [
            f"California's room counts, {title} error",
            f"{ours} {errors[0]:.3f}",
            f"{other} {errors[1]:.3f}",
            f"{errors[0] / errors[1]:.2f}",
            NONE,
            NONE,
            f"{sum('VFG' not in name for name in methods)}, {len(found['seeds'])}",
        ]


LINES: dict[str, Any] = {
    "imputation": imputation,
    "mixed": mixed.lines,
    "density": density,
    "likelihood": likelihood,
    "synthetic": synthetic,
    "california": california,
}
