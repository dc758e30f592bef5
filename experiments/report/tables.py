"""The sections on densities, times of fitting, universal approximation and layer-wise training."""

from __future__ import annotations

from statistics import mean

from .render import NONE, Found, bold, fill, rows, spread

OURS = "GaussianVFG"


def density(found: Found) -> str:
    """log p by table and method, whole rows and rows with missing values."""
    return fill(
        "density",
        **{**found, "seeds": len(found["seeds"])},
        whole=_density_table(found, "test"),
        missing=_density_table(found, "missing"),
        verdict="\n".join(_density_verdict(found, measure) for measure in ("test", "missing")),
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


def _density_verdict(found: Found, measure: str) -> str:
    """On how many tables ours is ahead of each baseline, and where not."""
    values, sentences = _densities(found, measure), []
    for method, by_table in values.items():
        ours = values.get(OURS, {})
        gains = {n: mean(ours[n]) - mean(by_table[n]) for n in by_table if n in ours}
        behind = [f"{name} ({-gain:.2f})" for name, gain in gains.items() if gain < 0]
        if method != OURS and gains:
            where = f", behind on {', '.join(behind)}" if behind else ""
            sentences.append(f"{method} on {len(gains) - len(behind)} of {len(gains)}{where}")
    start = "With gaps: ahead" if measure == "missing" else f"{OURS} is ahead"
    return f"{start} of {'; '.join(sentences)}."


def gaussian_fit(found: Found) -> str:
    """Times by table."""
    body = [[case, *[f"{value:.2f}" for value in v.values()]] for case, v in found["times"].items()]
    shown = rows(["table", "fit", "log_prob", "means of all cells"], body)
    return fill("gaussian_fit", **found, table=shown)


def universality(found: Found) -> str:
    """Errors by depth."""
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
    """Measures by mode."""
    runs = found["runs"]
    body = [
        [name, *(spread([run[name] for run in mode], 4) for mode in runs.values())]
        for name in next(iter(runs.values()))[0]
    ]
    return fill("layerwise", **found, table=rows(["", *runs], body))
