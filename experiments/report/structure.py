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


def _cells(setting: Found, name: str, key: str) -> list[float]:
    return [run[key] for run in setting["methods"].get(name, []) if run is not None]


def structure(found: Found) -> str:
    """Distances and seconds of every method in every setting."""
    settings: list[Any] = found["settings"]
    methods = list(settings[0]["methods"])
    lines, scores, times = [], [], []
    for setting in settings:
        label = (
            f"{setting['kind']}, {setting['graph']}, {100 * setting['missing']:.0f} % "
            f"{setting['pattern']}, {setting['seeds']} seeds"
        )
        lines.append([label, *(_spread(_cells(setting, name, "shd"), 1) for name in methods)])
        scores.append([label, *(_spread(_cells(setting, name, "f1"), 2) for name in methods)])
        times.append([label, *(_spread(_cells(setting, name, "seconds"), 0) for name in methods)])
    first = settings[0]
    sachs = fill("structure.sachs", **found["sachs"]) if found.get("sachs") else ""
    return fill(
        "structure",
        **{key: value for key, value in found.items() if key != "sachs"},
        sachs=sachs,
        nodes=first["nodes"],
        rows=first["rows"],
        seeds=first["seeds"],
        edges=3 * first["nodes"] // 2,
        table=rows(["functions, graph, missing cells", *methods], lines),
        scores=rows(["functions, graph, missing cells", *methods], scores),
        times=rows(["functions, graph, missing cells", *methods], times),
    )


def interventions(found: Found) -> str:
    """Errors of every method on every system."""
    systems: dict[str, list[Any]] = found["systems"]
    methods = list(next(iter(systems.values()))[0])
    errors = {
        system: {name: [run[name]["rmse"] for run in runs] for name in methods}
        for system, runs in systems.items()
    }
    lines = [[name, *(_spread(errors[system][name], 3) for system in systems)] for name in methods]
    baselines = [name for name in methods if not name.startswith("vfg")]
    ratios = []
    for name in (name for name in methods if name.startswith("vfg")):
        shares = [
            fmean(own[name]) / min(fmean(own[other]) for other in baselines)
            for own in errors.values()
        ]
        listed = ", ".join(f"{share:.2f}" for share in shares)
        ratios.append(f"Errors of `{name}` as shares of the best baseline's: {listed}.")
    fields = {key: value for key, value in found.items() if key != "systems"}
    return fill(
        "interventions",
        **fields,
        share=round(100 * found["missing"]),
        seeds=len(next(iter(systems.values()))),
        table=rows(["method", *systems], lines),
        verdict="\n".join(ratios),
    )
