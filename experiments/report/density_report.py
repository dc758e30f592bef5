"""The section of docs/results.md about densities of continuous tables."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

from .pages import provenance, rows

OURS = "GaussianVFG"

DENSITY = """## Densities of continuous tables

Mean log p of a held-out row in nats, z-scored by the training rows; higher is better. Tables are
those of the UCI archive with at least 3 continuous columns: more than 20 distinct values, none in
over 10 % of the rows, no correlation above 0.98 with a column before. Equal rows count once, and
rounding is undone by uniform noise. 60 % of the rows train, 20 % choose, 20 % test, {seeds}
splits. Every method had {budget} configurations, of which the validation rows chose one; they
could also stop the training of ours and of the flows. "–" was not measured.

{whole}

log p of the observed cells if 30 % of the test cells are missing at random, the same cells for
all, without training for it. The flows have no answer.

{missing}

{verdict}
"""


def density(found: dict[str, Any]) -> str:
    """log p by table and method, whole rows and rows with gaps."""
    text = DENSITY.format(
        seeds=len(found["seeds"]),
        budget=found["budget"],
        whole=_table(found, "test"),
        missing=_table(found, "missing"),
        verdict="\n".join(_verdict(found, measure) for measure in ("test", "missing")),
    )
    return text + "\n" + provenance(found)


def _table(found: dict[str, Any], measure: str) -> str:
    tables = found["tables"]
    names = list(dict.fromkeys(name for part in tables.values() for name in part["methods"]))
    names = [
        name for name in names if any(_values(part, name, measure) for part in tables.values())
    ]
    body = []
    for table, part in tables.items():
        values = {name: _values(part, name, measure) for name in names}
        best = max((mean(v) for v in values.values() if v), default=0.0)
        cells = [_cell(values[name], best) for name in names]
        body.append([f"{table} ({part['rows']:,} x {part['columns']})", *cells])
    return rows(["table", *names], body)


def _cell(values: list[float], best: float) -> str:
    if not values:
        return "–"
    centre, text = mean(values), f"{mean(values):.2f} ± {stdev(values):.2f}"
    return f"**{text}**" if centre >= best else text


def _values(part: dict[str, Any], method: str, measure: str) -> list[float]:
    values: list[float] = part["methods"].get(method, {}).get(measure, [])
    return values


def _verdict(found: dict[str, Any], measure: str) -> str:
    """On how many tables ours is ahead of each rival, and where not."""
    tables, sentences = found["tables"], []
    rivals = dict.fromkeys(name for part in tables.values() for name in part["methods"])
    for rival in [name for name in rivals if name != OURS]:
        pairs = {
            table: (_values(part, OURS, measure), _values(part, rival, measure))
            for table, part in tables.items()
        }
        both = {table: mean(a) - mean(b) for table, (a, b) in pairs.items() if a and b}
        behind = [f"{table} ({-gain:.2f})" for table, gain in both.items() if gain < 0]
        if both:
            where = f", behind on {', '.join(behind)}" if behind else ""
            sentences.append(f"{rival} on {len(both) - len(behind)} of {len(both)}{where}")
    rest = "With gaps: ahead" if measure == "missing" else f"{OURS} is ahead"
    return f"{rest} of {'; '.join(sentences)}."
