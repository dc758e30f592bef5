"""Figures as plain dictionaries, which plotly draws; colours come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from vfg.inference.variables import Array, Variable, days_of, moments_of
from vfg.studio.exploring.analysis import Calibration, Traversal
from vfg.studio.filling.tables import Table, missing_map
from vfg.training.history import History

Figure: TypeAlias = dict[str, Any]

ACCENT = "#4f6bdc"
"""Visible on the light and on the dark background."""
GREY = "#9aa1ac"
SCALE = [[0.0, "rgba(79,107,220,0)"], [1.0, "rgba(79,107,220,1)"]]
COLOURS = ("#4f6bdc", "#d9822b", "#2f9e77", "#b7547f", "#8a6fd1", "#a08a1f", "#3d93b8", "#9aa1ac")
"""For categories, chosen for colour-blind readers."""
MOST_CATEGORIES = 8


def figure(traces: Sequence[Figure], **layout: Any) -> Figure:
    """Traces on a background that lets the page's show through."""
    plain = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 52, "r": 12, "t": 12, "b": 44},
        "font": {"family": "system-ui, Segoe UI, Roboto, Inter, Arial, sans-serif", "size": 12},
        "showlegend": False,
        "hoverlabel": {"font": {"size": 12}},
        "legend": {"orientation": "h", "x": 0, "y": 1.08, "yanchor": "bottom"},
    }
    return {"data": list(traces), "layout": plain | layout}


def axis(title: str = "", **options: Any) -> Figure:
    """An axis in the page's manner."""
    plain = {"title": {"text": title, "standoff": 8}, "zeroline": False, "automargin": True}
    return plain | options


def empty(message: str) -> Figure:
    """An empty figure with a message."""
    note = {"text": message, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5}
    hidden = {"visible": False}
    return figure([], xaxis=hidden, yaxis=hidden, annotations=[note | {"y": 0.5}])


def missingness(table: Table) -> Figure:
    """The missing cells of a table: columns across, rows downwards."""
    shares = missing_map(table.missing)
    edges = np.linspace(0, table.rows, len(shares) + 1).round().astype(int)
    rows = (edges[:-1] + 1).tolist()
    trace = {
        "type": "heatmap",
        "z": shares.tolist(),
        "x": table.columns,
        "y": rows,
        "zmin": 0,
        "zmax": 1,
        "colorscale": SCALE,
        "showscale": False,
        "xgap": 1,
        "hovertemplate": "%{x}<br>from row %{y}: %{z:.0%} missing<extra></extra>",
    }
    return figure(
        [trace],
        xaxis=axis(tickangle=-40, type="category", showgrid=False),
        yaxis=axis("row", autorange="reversed", showgrid=False),
    )


def distributions(variable: Variable, cells: Mapping[str, Array]) -> Figure:
    """Observed and filled cells of a column, as shares of each."""
    traces = []
    for (name, values), colour in zip(cells.items(), (GREY, ACCENT), strict=False):
        is_text = variable.kind in ("choice", "date")
        numbers = days_of(values) if values.dtype.kind == "m" else values
        shown = values.astype(str).tolist() if is_text else numbers.tolist()
        traces.append(
            {
                "type": "histogram",
                "x": shown,
                "name": f"{name} ({len(shown)})",
                "histnorm": "probability",
                "marker": {"color": colour},
                "opacity": 0.75,
                "nbinsx": 30,
                "bingroup": 1,
            }
        )
    return figure(
        traces,
        barmode="overlay" if variable.kind != "choice" else "group",
        showlegend=True,
        xaxis=axis(variable.name),
        yaxis=axis("share", tickformat=".0%"),
    )


def scatter(
    places: Array, rows: Array, variable: Variable | None, cells: Sequence[Any], names: str
) -> Figure:
    """Rows in two dimensions, coloured by a column.

    Args:
        places: `(rows, 2)`.
        rows: their numbers from 0 on.
        variable: what they are coloured by; None for nothing.
        cells: its cells, None if missing.
        names: of the two directions.
    """
    texts = [f"row {row + 1}" for row in rows]
    base = {"type": "scattergl", "mode": "markers", "hovertemplate": "%{text}<extra></extra>"}
    if variable is None:
        traces = [_dots(base, places, texts, {"color": ACCENT})]
    elif variable.kind == "choice":
        traces = _by_category(base, places, texts, cells)
    else:
        numbers = [None if cell is None else variable.number_of(cell) for cell in cells]
        marks = {"color": numbers, "colorscale": "Viridis", "showscale": True,
                 "colorbar": {"title": {"text": variable.name}, "thickness": 10}}  # fmt: skip
        said = [f"{t}: {variable.show(c) if c is not None else 'missing'}" for t, c in
                zip(texts, cells, strict=True)]  # fmt: skip
        traces = [_dots(base, places, said, marks)]
    return figure(
        traces,
        xaxis=axis(f"{names} 1"),
        yaxis=axis(f"{names} 2"),
        showlegend=variable is not None and variable.kind == "choice",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )


def _dots(base: Figure, places: Array, texts: Sequence[str], marks: Figure) -> Figure:
    return base | {
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
        "text": list(texts),
        "marker": {"size": 6, "opacity": 0.8} | marks,
    }


def _by_category(
    base: Figure, places: Array, texts: Sequence[str], cells: Sequence[Any]
) -> list[Figure]:
    labels = ["missing" if cell is None else str(cell) for cell in cells]
    counts: dict[str, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    common = sorted(counts, key=lambda label: -counts[label])[: MOST_CATEGORIES - 1]
    shown = [label if label in common else "others" for label in labels]
    traces = []
    for k, label in enumerate([*common, *(["others"] if "others" in shown else [])]):
        chosen = [place for place, other in enumerate(shown) if other == label]
        marks = {"color": COLOURS[k % len(COLOURS)]}
        said = [f"{texts[place]}: {labels[place]}" for place in chosen]
        traces.append(_dots(base, places[chosen], said, marks) | {"name": label})
    return traces


def traversal_lines(found: Traversal, variables: Mapping[str, Variable], most: int = 12) -> Figure:
    """How the columns that move most follow a latent coordinate, in shares of their range."""
    moves = {}
    for name, values in found.values.items():
        variable = variables[name]
        low, high = (0.0, 1.0) if variable.kind == "choice" else (variable.low, variable.high)
        moves[name] = (values - values[len(values) // 2]) / ((high - low) or 1.0)
    ranked = sorted(moves, key=lambda name: -float(np.ptp(moves[name])))[:most]
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": found.steps.tolist(),
            "y": moves[name].tolist(),
            "name": name,
            "line": {"width": 2, "color": COLOURS[k % len(COLOURS)],
                     "dash": "solid" if k < len(COLOURS) else "dot"},
            "hovertemplate": f"{name}: %{{y:+.1%}} of its range<extra></extra>",
        }
        for k, name in enumerate(ranked)
    ]  # fmt: skip
    return figure(
        traces,
        showlegend=True,
        legend={"orientation": "v", "x": 1.02, "y": 1, "yanchor": "top"},
        xaxis=axis("moved by"),
        yaxis=axis("change, of its range", tickformat="+.0%"),
        margin={"l": 60, "r": 12, "t": 12, "b": 44},
    )


def calibration_curve(found: Calibration) -> Figure:
    """Coverage of intervals against their nominal level."""
    ideal = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 1], "hoverinfo": "skip",
             "line": {"color": GREY, "width": 1.5, "dash": "dot"}, "name": "ideal"}  # fmt: skip
    own = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": found.levels.tolist(),
        "y": found.coverage.tolist(),
        "line": {"color": ACCENT, "width": 2},
        "marker": {"size": 7},
        "name": "this model",
        "hovertemplate": "%{x:.0%} intervals cover %{y:.1%}<extra></extra>",
    }
    share = {"range": [0, 1], "tickformat": ".0%"}
    return figure(
        [ideal, own],
        xaxis=axis("intervals of", **share),
        yaxis=axis("cover held-out cells", **share),
    )


def history_lines(history: History) -> Figure:
    """Objective and held-out loss against the epoch."""
    numbers = [epoch.number for epoch in history]
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": numbers,
            "y": [-epoch.objective for epoch in history],
            "name": "−objective",
            "line": {"color": ACCENT, "width": 2},
        }
    ]
    held = [epoch.validation for epoch in history]
    layout: Figure = {"xaxis": axis("epoch"), "yaxis": axis("−objective"), "showlegend": True}
    if any(value is not None for value in held):
        traces.append(
            {"type": "scatter", "mode": "lines", "x": numbers, "y": held, "yaxis": "y2",
             "name": "held-out loss per cell", "line": {"color": COLOURS[1], "width": 2}}
        )  # fmt: skip
        layout["yaxis2"] = axis("held-out loss", overlaying="y", side="right", showgrid=False)
        layout["margin"] = {"l": 60, "r": 60, "t": 24, "b": 44}
    return figure(traces, **layout)


def cell_draws(
    variable: Variable, draws: Array, actual: float | None, ends: Sequence[float]
) -> Figure:
    """The draws of one cell, its interval, and its actual value."""
    numbers = moments_of(draws).astype("M8[D]").astype(str) if variable.kind == "date" else draws
    trace = {"type": "histogram", "x": numbers.tolist(), "nbinsx": 30, "marker": {"color": ACCENT},
             "opacity": 0.75, "hovertemplate": "%{x}: %{y} draws<extra></extra>"}  # fmt: skip
    shapes = [_bar(_shown(variable, end), GREY, "dot") for end in ends]
    if actual is not None:
        shapes.append(_bar(_shown(variable, actual), COLOURS[1], "solid"))
    return figure([trace], xaxis=axis(variable.name), yaxis=axis("draws"), shapes=shapes)


def _shown(variable: Variable, number: float) -> Any:
    return variable.value_of(number) if variable.kind == "date" else number


def _bar(x: Any, colour: str, dash: str) -> Figure:
    line = {"color": colour, "width": 2, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def shares(categories: Sequence[Any], probabilities: Array, most: int = 20) -> Figure:
    """Probabilities of categories, the likeliest first."""
    order = np.argsort(-probabilities, kind="stable")[:most]
    trace = {
        "type": "bar",
        "x": [str(categories[k]) for k in order],
        "y": probabilities[order].tolist(),
        "marker": {"color": ACCENT},
        "hovertemplate": "%{x}: %{y:.1%}<extra></extra>",
    }
    return figure([trace], xaxis=axis(type="category"), yaxis=axis("probability", tickformat=".0%"))
