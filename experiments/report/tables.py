"""The sections on densities, times of fitting, universal approximation and layer-wise training."""

from __future__ import annotations

from statistics import mean, stdev

from .render import NONE, Found, bold, fill, rows, spread

OURS = "GaussianVFG"


def density(found: Found) -> str:
    return fill(
        "density",
        **{**found, "seeds": len(found["seeds"])},
        whole=_density_table(found, "test"),
        missing=_density_table(found, "missing"),
        gains=_gain_table(found),
        verdict=" ".join(_density_verdict(found, measure) for measure in ("test", "missing")),
        costs=", ".join(f"{name} {took:,}" for name, took in found["core_seconds"].items()),
    )


def _densities(found: Found, measure: str) -> dict[str, dict[str, list[float]]]:
    """What was measured, by method and table; methods that answer nothing are left out."""
    values: dict[str, dict[str, list[float]]] = {}
    for name, part in found["tables"].items():
        for method, measured in part["methods"].items():
            if measured.get(measure):
                values.setdefault(method, {})[name] = measured[measure]
    return values


def _density_table(found: Found, measure: str) -> str:
    values = _densities(found, measure)
    body = []
    for name, part in found["tables"].items():
        known = [by_table.get(name) for by_table in values.values()]
        texts = [spread(each) if each else NONE for each in known]
        cells = bold(texts, [mean(each) if each else None for each in known], max)
        body.append([f"{name} ({part['rows']:,} x {part['columns']})", *cells])
    return rows(["table", *values], body)


def density_gains(found: Found, measure: str) -> dict[str, tuple[str, list[float]]]:
    """By table the best other method, and how far ours is above it on every split."""
    values = _densities(found, measure)
    gains = {}
    for name, ours in values.get(OURS, {}).items():
        others = {
            m: by_table[name] for m, by_table in values.items() if m != OURS and name in by_table
        }
        if others:
            best = max(others, key=lambda method: mean(others[method]))
            gains[name] = best, [a - b for a, b in zip(ours, others[best], strict=True)]
    return gains


def outcome(differences: list[float]) -> str:
    """A `win` or a `loss` if the mean is two standard errors away from 0, else a `draw`."""
    bound = 2.0 * stdev(differences) / len(differences) ** 0.5
    return "win" if mean(differences) > bound else "loss" if mean(differences) < -bound else "draw"


def _gain_table(found: Found) -> str:
    gains = [density_gains(found, measure) for measure in ("test", "missing")]
    body = []
    for name in found["tables"]:
        cells = [by_table.get(name) for by_table in gains]
        if any(cells):
            body.append(
                [name, *(f"{_gain(cell[1])} ({cell[0]})" if cell else NONE for cell in cells)]
            )
    return rows(["table", "whole rows", "30 % of the cells missing"], body)


def _gain(values: list[float]) -> str:
    return f"{mean(values):+.3f} ± {stdev(values) / len(values) ** 0.5:.3f}"


def _density_verdict(found: Found, measure: str) -> str:
    """On how many tables ours is ahead of the best other method, and where it is not."""
    outcomes = {name: outcome(gain) for name, (_, gain) in density_gains(found, measure).items()}
    names = {
        kind: [n for n, o in outcomes.items() if o == kind] for kind in ("win", "draw", "loss")
    }
    start = "With missing cells it is" if measure == "missing" else f"{OURS} is"
    told = (
        f"{start} ahead of the best other method on {len(names['win'])} of {len(outcomes)} tables"
    )
    told += f", level on {', '.join(names['draw'])}" if names["draw"] else ""
    return told + (f", behind on {', '.join(names['loss'])}." if names["loss"] else ".")


def gaussian_fit(found: Found) -> str:
    body = [[case, *[f"{value:.2f}" for value in v.values()]] for case, v in found["times"].items()]
    shown = rows(["table", "fit", "log_prob", "means of all cells"], body)
    return fill("gaussian_fit", **found, table=shown)


def universality(found: Found) -> str:
    depths = (1, 2, 4, 8)
    errors: dict[tuple[int, str], dict[int, str]] = {}
    for case in found["cases"]:
        if case["hidden"] == 64:
            line = errors.setdefault((case["dimension"], case["kind"]), {})
            line[case["blocks"]] = f"{mean(case['errors']):.4f}"
    body = [
        [f"R^{dimension}", kind, *(line.get(depth, NONE) for depth in depths)]
        for (dimension, kind), line in errors.items()
    ]
    header = ["root", "target", *(f"depth {depth}" for depth in depths)]
    return fill("universality", **found, table=rows(header, body))


def layerwise(found: Found) -> str:
    runs = found["runs"]
    body = [
        [name, *(spread([run[name] for run in mode], 4) for mode in runs.values())]
        for name in next(iter(runs.values()))[0]
    ]
    return fill("layerwise", **found, table=rows(["", *runs], body))
