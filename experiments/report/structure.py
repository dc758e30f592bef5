"""Sections on learned graphs and interventions."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

from .render import NONE, Found, fill, rows


def _spread(values: list[float], digits: int) -> str:
    """Mean and deviation; a dash for none."""
    if not values:
        return NONE
    around = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{around}"


def _counted(values: list[float], seeds: int) -> str:
    """Mean and deviation, and of how many seeds if these are not all."""
    return _spread(values, 3) + (f" ({len(values)})" if 0 < len(values) < seeds else "")


GROUPS = {
    "main": "Graphs of 20 nodes",
    "more": "Graphs of 20 nodes: scale-free, missing at random, other shares of missing cells",
    "small": "Graphs of 10 nodes: from no missing cells to half of them",
    "large": "Graphs of 50 nodes",
    "networks": "Networks that pgmpy bundles: four Gaussian ones and two discrete ones",
}
"""Groups of settings and the headings of their tables."""


def _label(setting: Found) -> str:
    missing = f"{100 * setting['missing']:.0f} % {setting['pattern']}"
    return f"{setting['kind']}, {setting['graph']}, {missing if setting['missing'] else 'complete'}"


def _runs(setting: Found, name: str, key: str) -> list[Any]:
    return [run[key] for run in setting["methods"].get(name, []) if run and key in run]


def _cell(setting: Found, name: str, key: str, digits: int) -> str:
    """The mean over tables, and their number; of intervention distances both bounds."""
    found = _runs(setting, name, key)
    if not found:
        return NONE
    ends = zip(*found, strict=True) if key == "sid" else [found]
    words = " to ".join(f"{fmean(own):.{digits}f}" for own in ends)
    return f"{words} ({len(found)})"


def _group(settings: list[Found], *, timed: bool) -> str:
    """The tables of a group of settings, a line per method; times if asked for."""
    methods = dict.fromkeys(name for setting in settings for name in setting["methods"])
    parts = []
    for key, digits, title in (
        ("shd", 1, "Hamming distance of the classes"),
        ("sid", 0, "Intervention distance, from the best to the worst member of the class"),
        ("f1", 2, "F1 of directions in the class"),
        ("seconds", 1, "Processor seconds"),
    ):
        if key == "seconds" and not timed:
            continue
        lines = [
            [name, *(_cell(setting, name, key, digits) for setting in settings)]
            for name in methods
            if any(_runs(setting, name, key) for setting in settings)
        ]
        parts.append(f"{title}:\n\n{rows(['method', *map(_label, settings)], lines)}")
    return "\n\n".join(parts)


def _walks(settings: list[Found]) -> str:
    """Distances with other weights of the evidence and other shares of agreement."""
    if not settings:
        return ""
    names = dict.fromkeys(name for setting in settings for name in setting["methods"])
    lines = [
        [*name.split()[1:], *(_cell(setting, name, "shd", 1) for setting in settings)]
        for name in names
        if any(_runs(setting, name, "shd") for setting in settings)
    ]
    return fill("structure.walks", table=rows(["weight", "share", *map(_label, settings)], lines))


def structure(found: Found) -> str:
    """Distances and seconds of every method in every setting, group by group."""
    settings: list[Any] = found["settings"]
    groups = []
    for group, title in GROUPS.items():
        own = [setting for setting in settings if setting["group"] == group]
        if own:
            groups.append(f"### {title}\n\n{_group(own, timed=group == 'main')}")
    failed = "".join(
        f"\n- {name}: {'; '.join(words)}" for name, words in found["errors"].items() if words
    )
    missing = [words for own in found["not_run"].values() for words in own]
    done = sum(len(runs) for setting in settings for runs in setting["methods"].values())
    return fill(
        "structure",
        **{key: value for key, value in found.items() if key != "sachs"},
        sachs=fill("structure.sachs", **found["sachs"]),
        walks=_walks([setting for setting in settings if setting["group"] == "walks"]),
        groups="\n\n".join(groups),
        failed=failed,
        done=done,
        missing=f"Nothing was run of: {'; '.join(missing)}." if missing else "",
    )


def graph_models(found: Found) -> str:
    """Likelihood and imputation over several graphs."""
    runs: list[Any] = found["runs"]
    lines = [
        [
            name,
            _spread([run[name]["log_likelihood"] for run in runs], 3),
            _spread([run[name]["error"] for run in runs], 3),
        ]
        for name in runs[0]
        if all(name in run for run in runs)
    ]
    return fill(
        "graph_models",
        **found,
        share=round(100 * found["missing"]),
        seeds=len(runs),
        table=rows(["model", "log-likelihood per row", "imputation error"], lines),
    )


def _share(runs: list[Any], name: str, baselines: list[str]) -> str:
    """The mean error as a share of the best baseline's, on the seeds that both have.

    Baselines with fewer than three of them do not count, unless none has more.
    """
    shares: dict[int, list[float]] = {}
    for other in baselines:
        both = [run for run in runs if name in run and other in run]
        if both:
            own, others = (fmean(run[key]["rmse"] for run in both) for key in (name, other))
            shares.setdefault(min(len(both), 3), []).append(own / others)
    return f"{max(shares[max(shares)]):.2f}" if shares else NONE


def interventions(found: Found) -> str:
    """Errors of every method on every system."""
    systems: dict[str, list[Any]] = found["systems"]
    methods = list(dict.fromkeys(name for runs in systems.values() for run in runs for name in run))
    seeds = max(map(len, systems.values()))
    errors = {
        system: {name: [run[name]["rmse"] for run in runs if name in run] for name in methods}
        for system, runs in systems.items()
    }
    lines = [
        [name, *(_counted(errors[system][name], seeds) for system in systems)] for name in methods
    ]
    baselines = [name for name in methods if not name.startswith(("vfg", "bound"))]
    ratios = [
        [name, *(_share(runs, name, baselines) for runs in systems.values())]
        for name in methods
        if name.startswith(("vfg", "bound"))
    ]
    fields = {key: value for key, value in found.items() if key != "systems"}
    return fill(
        "interventions",
        **fields,
        share=round(100 * found["missing"]),
        seeds=seeds,
        systems=len(systems),
        table=rows(["method", *systems], lines),
        verdict=rows(["method", *systems], ratios),
    )
