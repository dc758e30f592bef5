"""The page on tables of numbers and categories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import log, sqrt
from statistics import stdev

from .imputation import SEEDS, geometric_mean
from .render import NONE, Found, fill, often, plural, rows

OUTSIDE = ("miceforest", "gcimpute", "hyperimpute")
"""Baselines that run in an environment of their own, on fewer cells."""
MEASURES = {"mse": "squared error", "error": "error rate", "log": "log score"}
HALVES = {"held_back": "kept back", "tuning": "tuning"}


def contests(found: Found, half: str, pattern: str) -> dict[str, dict[str, tuple[float, str]]]:
    """Ours next to the best baseline of every table and measure, and its name."""
    of_tables = {}
    for name in found[half]:
        methods = found["groups"].get(f"{name} {pattern}", {})
        others = {k: own for k, own in methods.items() if k != "vfg" and own["seeds"]}
        if others and methods.get("vfg", {}).get("seeds"):
            of_tables[name] = {
                key: _contest(methods["vfg"], others, key)
                for key in MEASURES
                if key in methods["vfg"]
            }
    return of_tables


def _contest(ours: Found, others: dict[str, Found], key: str) -> tuple[float, str]:
    """Ours next to the best of the others, each at the seeds that both have, and its name."""
    others = {name: own for name, own in others.items() if key in own}
    exact = [name for name, own in others.items() if own[key] == 0.0]
    if exact:
        return float("nan"), exact[0]
    found = {name: own.get("vfg", ours)[key] / own[key] for name, own in others.items()}
    best = max(found, key=lambda name: found[name])
    return found[best], best


def others_of(found: Found, name: str, pattern: str) -> list[str]:
    """The baselines that were run on a table."""
    methods = found["groups"].get(f"{name} {pattern}", {})
    return [key for key, own in methods.items() if key != "vfg" and own["seeds"]]


def ratios(of_tables: dict[str, dict[str, tuple[float, str]]], key: str) -> list[float]:
    """Those that are defined."""
    own = [contest[key][0] for contest in of_tables.values() if key in contest]
    return [ratio for ratio in own if ratio == ratio and ratio > 0.0]


def counted(found: Found) -> str:
    """On how many tables of which half the benchmark was run."""
    numbers = {half: len(contests(found, half, "mcar25")) for half in HALVES}
    told = [f"{plural(numbers['held_back'], 'table')} kept back"] if numbers["held_back"] else []
    told += [f"{numbers['tuning']} for tuning"] if numbers["tuning"] else []
    return f" on {' and '.join(told)}" if told else ""


def mixed(found: Found) -> str:
    tables = []
    for half, words in HALVES.items():
        body = [_line(found, name, own) for name, own in contests(found, half, "mcar25").items()]
        if not body:
            continue
        header = [
            "table",
            *MEASURES.values(),
            "90 % sets hold (size)",
            "exact hits",
            "seconds",
            "seeds",
        ]
        tables.append(f"{words.capitalize()}:\n\n{rows(header, body)}")
    inner = {
        "summary": summary(found),
        "sets": sets_in_words(found),
        "singles": singles(found),
        "outside": outside_in_words(found),
        "above": above_in_words(found),
    }
    return fill("mixed", **found, tables="\n\n".join(tables), **inner)


def singles(found: Found) -> str:
    """Ours next to each baseline on the tables that are kept back: geometric means of ratios."""
    methods = {name: own for group in found["groups"].values() for name, own in group.items()}
    body = []
    for name in sorted(set(methods) - {"vfg"}):
        pairs = [
            (own[name].get("vfg", own["vfg"]), own[name])
            for own in (found["groups"].get(f"{table} mcar25", {}) for table in found["held_back"])
            if own.get(name, {}).get("seeds") and own.get("vfg", {}).get("seeds")
        ]
        cells = [
            f"{geometric_mean(ratios):.3f}"
            if (ratios := [a[key] / b[key] for a, b in pairs if key in b and a[key] * b[key] > 0.0])
            else NONE
            for key in MEASURES
        ]
        if pairs:
            body.append([name, str(len(pairs)), *cells])
    return rows(["baseline", "tables", *MEASURES.values()], body)


ABOVE = 1.05
"""What no ratio of squared errors or error rates should be above."""


def above(found: Found) -> list[str]:
    """The tables that are kept back where one is, with the measure, the ratio and the baseline."""
    of_tables = contests(found, "held_back", "mcar25")
    return [
        f"{name} ({MEASURES[key]} {own[key][0]:.2f}, {own[key][1]})"
        for name, own in of_tables.items()
        for key in ("mse", "error")
        if key in own and own[key][0] > ABOVE
    ]


def above_in_words(found: Found) -> str:
    named = above(found)
    return f"Above {ABOVE}, which was to be avoided: {', '.join(named)}." if named else ""


def outside_in_words(found: Found) -> str:
    """How many tables and seeds baselines of other environments have."""
    sentences = []
    for name in OUTSIDE:
        counts = [
            found["groups"].get(f"{table} mcar25", {}).get(name, {}).get("seeds", 0)
            for table in found["held_back"]
        ]
        some = [count for count in counts if count]
        if some:
            seeds = "to".join(f" {n} " for n in dict.fromkeys((min(some), max(some)))).strip()
            sentences.append(
                f"{name} has {len(some)} of the {len(counts)} tables with {seeds} of 3 seeds"
            )
        else:
            sentences.append(f"{name} was not run")
    return "; ".join(sentences)


SETS = (0.88, 0.93)
"""What share of the cells sets of 90 % should hold on every table."""


def sets_of(found: Found) -> list[float]:
    """The shares of the cells in sets of the level 90 %, by table that is kept back."""
    methods = [found["groups"].get(f"{name} mcar25", {}) for name in found["held_back"]]
    return [own["vfg"]["sets"] for own in methods if "sets" in own.get("vfg", {})]


def sets_in_words(found: Found) -> str:
    """How often sets of the level 90 % hold the truth on the tables that are kept back."""
    held = sets_of(found)
    if not held:
        return ""
    near = sum(SETS[0] <= share <= SETS[1] for share in held)
    methods = [found["groups"].get(f"{name} mcar25", {}) for name in found["held_back"]]
    counts = [
        own["vfg"]["cells"] * own["vfg"]["seeds"]
        for own in methods
        if own.get("vfg", {}).get("cells")
    ]
    chance = ""
    if counts:
        most, least = (sqrt(0.09 / count) for count in (min(counts), max(counts)))
        chance = (
            f" By chance alone shares of so many cells have standard deviations of {least:.3f} to "
            f"{most:.3f}."
        )
    return (
        f"Sets of 90 % hold {min(held):.2f} to {max(held):.2f} of the cells on the {len(held)} "
        f"tables that are kept back, {sum(held) / len(held):.3f} on average; on {near} of them "
        f"{SETS[0]} to {SETS[1]}, which was the goal on all.{chance}"
    )


def _line(found: Found, name: str, contest: dict[str, tuple[float, str]]) -> list[str]:
    ours = found["groups"][f"{name} mcar25"]["vfg"]
    cells = [
        f"{contest[key][0]:.3f} ({ours[key]:.3f}, {contest[key][1]})" if key in contest else NONE
        for key in MEASURES
    ]
    sets, hits = (f"{ours[key]:.2f}" if key in ours else NONE for key in ("sets", "hits"))
    sets += f" ({ours['size']:.1f})" if "size" in ours else ""
    return [name, *cells, sets, hits, f"{ours['seconds']:.0f}", str(ours["seeds"])]


def summary(found: Found) -> str:
    """A line per half and pattern: geometric means, the worst ratio, and how many are below 1."""
    patterns = list(dict.fromkeys(group.split()[1] for group in found["groups"]))
    body = []
    for half, words in HALVES.items():
        for pattern in patterns:
            of_tables = contests(found, half, pattern)
            if of_tables:
                line = [_mean(ratios(of_tables, key)) for key in MEASURES]
                others = _range(len(others_of(found, name, pattern)) for name in of_tables)
                seeds = _range(
                    found["groups"][f"{name} {pattern}"]["vfg"]["seeds"] for name in of_tables
                )
                body.append([words, pattern, str(len(of_tables)), others, seeds, *line])
    return rows(["half", "pattern", "tables", "baselines", "seeds", *MEASURES.values()], body)


def _range(numbers: Iterable[int]) -> str:
    """The least and the largest, or the one that all are."""
    found = sorted(set(numbers))
    return " to ".join(map(str, dict.fromkeys((found[0], found[-1]))))


def _seconds(found: Found, name: str, method: str) -> float:
    return max(found["groups"][f"{name} mcar25"][method]["seconds"], 1e-3)


def _mean(own: list[float]) -> str:
    if not own:
        return NONE
    below = sum(ratio < 1.0 for ratio in own)
    return f"{geometric_mean(own):.3f}, worst {max(own):.2f}, {below} of {len(own)} below 1"


MARGIN = 1.02
"""A table is lost if our error is that many times the best other one, won if it is as far below."""


def lost(found: Found) -> str:
    """The held-back tables that are lost, with the measure, the ratio and the best other."""
    of_tables = contests(found, "held_back", "mcar25")
    names = {
        measure: [
            f"{name} ({own[key][0]:.2f}, {own[key][1]})"
            for name, own in of_tables.items()
            if key in own and own[key][0] > MARGIN
        ]
        for key, measure in MEASURES.items()
    }
    told = [f"{measure}: {', '.join(tables)}" for measure, tables in names.items() if tables]
    return "; ".join(told) or "none"


def lines(found: Found) -> Iterator[list[str]]:
    """Lines of the table of all results: a quarter of the cells missing at random."""
    for half, words in {"held_back": "held-back", "tuning": "tuning"}.items():
        of_tables = contests(found, half, "mcar25")
        for key, measure in MEASURES.items():
            own = ratios(of_tables, key)
            if not own:
                continue
            seeds = [
                found["groups"][f"{name} mcar25"][contest[key][1]]["seeds"]
                for name, contest in of_tables.items()
                if key in contest
            ]
            full = sum(count >= SEEDS for count in seeds)
            told = str(SEEDS) if full == len(seeds) else f"{SEEDS} in {full} of {len(seeds)}"
            times = geometric_mean(
                _seconds(found, name, "vfg") / _seconds(found, name, contest[key][1])
                for name, contest in of_tables.items()
                if key in contest
            )
            others = _range(len(others_of(found, name, "mcar25")) for name in of_tables)
            wins, losses = (sum(r < 2 - MARGIN for r in own), sum(r > MARGIN for r in own))
            number, ratio = len(own), geometric_mean(own)
            yield [
                f"mixed tables, {number} {words} ones, {measure}",
                "`VFGImputer`",
                f"the best on each table: {often(own[key][1] for own in of_tables.values())}",
                f"{ratio:.3f} ± {ratio * stdev(map(log, own)) / sqrt(number):.3f}",
                f"{wins} / {number - wins - losses} / {losses}",
                f"{times:.0f}x",
                f"{others}, {told}",
            ]
