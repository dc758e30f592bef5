"""Parts that the pages share: boxes, inputs, pictures, tables, and figures for plotly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import numpy as np
from dash import Dash, Input, Output, State, dcc, html
from dash.exceptions import PreventUpdate

from vfg.inference.variables import Array, Variable, days_of, format_number, moments_of
from vfg.plots.imputations import missing_bands
from vfg.plots.style import shorten
from vfg.studio.exploring.analysis import IntervalScores, Traversal
from vfg.studio.filling.opened_tables import MatchedTable
from vfg.studio.markup import png, stretch
from vfg.training.history import History

Figure: TypeAlias = dict[str, Any]
Handler = TypeVar("Handler", bound=Callable[..., Any])

PLOT = {"displaylogo": False, "displayModeBar": False, "responsive": True}
ACCENT = "#4f6bdc"
"""Visible on the light and on the dark background."""
GREY = "#9aa1ac"
SCALE = [[0.0, "rgba(79,107,220,0)"], [1.0, "rgba(79,107,220,1)"]]
COLOURS = ("#4f6bdc", "#d9822b", "#2f9e77", "#b7547f", "#8a6fd1", "#a08a1f", "#3d93b8", "#9aa1ac")
"""For categories, chosen for colour-blind readers."""
MOST_CATEGORIES = len(COLOURS)
BANDS = 160
"""How many bands of rows the map of missing cells has."""
MOST_LABELS = 25
"""How many columns of the map of missing cells are named; names of more would overlap."""
LETTERS_LABELLED = 16
"""Letters of their names that fit beside each other."""
MOST_COLUMNS = 60
"""How many columns of a table are shown."""


def connect(
    app: Dash, outputs: str, inputs: str, states: str = "", *, first: bool = True, **options: Any
) -> Callable[[Handler], Handler]:
    """Call a function when inputs such as `"tab.data table.data"` change, and once at first."""
    kinds = ((Output, outputs), (Input, inputs), (State, states))
    places = [kind(*word.split(".")) for kind, words in kinds for word in words.split()]

    def register(handler: Handler) -> Handler:
        app.callback(*places, prevent_initial_call=not first, **options)(handler)
        return handler

    return register


def box(*children: Any, **options: Any) -> Any:
    """A framed part of the page."""
    return html.Div(list(children), **{"className": "box", **options})


def row(*children: Any, kind: str = "row") -> Any:
    """Parts side by side."""
    return html.Div(list(children), className=kind)


def plot(identity: str, height: int = 300) -> Any:
    """Room for a figure of plotly."""
    graph = dcc.Graph(id=identity, config=PLOT, style=plot_style(height))
    return dcc.Loading(graph, type="dot", delay_show=400)


def plot_style(height: int, *, shown: bool = True) -> dict[str, str]:
    """The size of a figure; one that has nothing to show takes no room."""
    return {"height": f"{height}px"} if shown else {"display": "none"}


def choice(identity: str, words: str, options: list[str], value: str | None = None) -> Any:
    """A labelled list to choose from."""
    field = dcc.Dropdown(options, value, id=identity, clearable=False, maxHeight=260)
    return html.Label([html.Span(words), field], className="labelled")


def number(identity: str, words: str, value: int, **limits: Any) -> Any:
    """A labelled field for a number."""
    options = {"type": "number", "debounce": 0.3, "className": "field", **limits}
    field = dcc.Input(id=identity, value=value, **options)
    return html.Label([html.Span(words), field], className="labelled narrow")


def pictures(pixels: Any, captions: list[str] | None = None) -> Any:
    """Images side by side."""
    shown = stretch(pixels)
    words = captions or [""] * len(shown)
    figures = [
        html.Figure([html.Img(src=png(one), alt=f"image {k + 1}"), html.Figcaption(word)])
        for k, (one, word) in enumerate(zip(shown, words, strict=True))
    ]
    return html.Div(figures, className="pictures small")


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """A table of HTML; the first cell of a row is its name."""
    heads = html.Tr([html.Th(words, scope="col") for words in head])
    body = [
        html.Tr([html.Th(first, scope="row"), *(html.Td(cell) for cell in cells)])
        for first, *cells in rows
    ]
    return html.Table([html.Thead(heads), html.Tbody(body)], className="data")


def data_table(frame: Any, names: Sequence[Any] | None = None) -> Any:
    """A frame as a table of HTML, its rows named or counted from 1."""
    columns = [str(column) for column in frame.columns][:MOST_COLUMNS]
    counted = range(1, len(frame) + 1) if names is None else names
    rows = [
        [str(name), *map(format_cell, cells[: len(columns)])]
        for name, cells in zip(counted, frame.itertuples(index=False), strict=True)
    ]
    return table(["row", *columns], rows)


def format_cell(cell: Any) -> str:
    """A cell in few characters; nothing if it is missing."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, bool | np.bool_) or not isinstance(cell, float | int | np.number):
        return str(cell)[:24]
    return format_number(float(cell), 3)


def show_errors(callback: Callable[..., Any]) -> Callable[..., Figure]:
    """A callback of one figure that shows an error where the figure would be."""

    @wraps(callback)
    def guard(*values: Any) -> Any:
        try:
            return callback(*values)
        except PreventUpdate:
            raise
        except ValueError as error:
            return empty(str(error))

    return guard


def figure(traces: Sequence[Figure], **layout: Any) -> Figure:
    """Traces on a background that lets the page's show through."""
    common = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 52, "r": 12, "t": 12, "b": 44},
        "font": {"family": "system-ui, Segoe UI, Roboto, Inter, Arial, sans-serif", "size": 12},
        "showlegend": False,
        "hoverlabel": {"font": {"size": 12}},
        "legend": {"orientation": "h", "x": 0, "y": 1.08, "yanchor": "bottom"},
    }
    return {"data": list(traces), "layout": common | layout}


def axis(title: str = "", **options: Any) -> Figure:
    """An axis in the page's manner."""
    name = {"text": plain([title])[0], "standoff": 8}
    return {"title": name, "zeroline": False, "automargin": True} | options


def plain(texts: Iterable[Any]) -> list[str]:
    """Texts that plotly shows as they are, without links and other markup.

    Example:
        >>> plain(["<a href='x'>y</a>"])
        ["&lt;a href='x'>y&lt;/a>"]
    """
    return [str(text).replace("<", "&lt;") for text in texts]


def empty(message: str) -> Figure:
    """An empty figure with a message."""
    note = {
        "text": plain([message])[0],
        "showarrow": False,
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
    }
    hidden = {"visible": False}
    return figure([], xaxis=hidden, yaxis=hidden, annotations=[note | {"y": 0.5}])


def missingness(table: MatchedTable) -> Figure:
    """The missing cells of a table: columns across, rows downwards."""
    if not table.missing.any():
        return empty("No cell is missing.")
    shares = missing_bands(table.missing, BANDS)
    named = table.columns[:: -(-len(table.columns) // MOST_LABELS)]
    cut = [shorten(name, LETTERS_LABELLED) for name in named]
    ticks: Figure = {"tickmode": "array", "tickvals": plain(named), "ticktext": plain(cut)}
    rows = np.linspace(1, table.rows + 1, len(shares) + 1).round().astype(int)[:-1]
    trace = {
        "type": "heatmap", "z": shares.tolist(), "x": plain(table.columns), "y": rows.tolist(),
        "zmin": 0, "zmax": 1, "colorscale": SCALE, "showscale": False, "xgap": 1,
        "hovertemplate": "%{x}<br>from row %{y}: %{z:.0%} missing<extra></extra>",
    }  # fmt: skip
    return figure(
        [trace],
        xaxis=axis(tickangle=-40, type="category", showgrid=False, **ticks),
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
            {"type": "histogram", "x": plain(shown) if is_text else shown,
             "name": f"{name} ({len(shown)})", "histnorm": "probability", "nbinsx": 30,
             "bingroup": 1, "marker": {"color": colour}, "opacity": 0.75}
        )  # fmt: skip
    return figure(
        traces,
        barmode="overlay" if variable.kind != "choice" else "group",
        showlegend=True,
        xaxis=axis(variable.name),
        yaxis=axis("share", tickformat=".0%"),
    )


def scatter(places: Array, rows: Array, colour: str, cells: Sequence[Any], names: str) -> Figure:
    """Rows in two dimensions, coloured by a column."""
    known = np.array([cell is not None and cell == cell for cell in cells], dtype=bool)
    is_number = [isinstance(cell, float | int) and not isinstance(cell, bool) for cell in cells]
    texts = [f"row {row + 1}" for row in rows]
    if colour:
        shown = [
            format_cell(cell) if ok else "missing" for cell, ok in zip(cells, known, strict=True)
        ]
        texts = [f"{text}: {words}" for text, words in zip(texts, shown, strict=True)]
    is_category = bool(colour) and not all(np.array(is_number)[known])

    def dots(chosen: Array, **marks: Any) -> Figure:
        return {
            "type": "scattergl", "mode": "markers", "hovertemplate": "%{text}<extra></extra>",
            "x": places[chosen, 0].tolist(), "y": places[chosen, 1].tolist(),
            "text": plain(texts[k] for k in np.flatnonzero(chosen)),
            "customdata": rows[chosen].tolist(), "marker": {"size": 6, "opacity": 0.8} | marks,
        }  # fmt: skip

    if not colour:
        traces = [dots(np.ones(len(rows), dtype=bool), color=ACCENT)]
    else:
        missing = dots(~known, color=GREY, symbol="circle-open", opacity=0.5)
        traces = [missing | {"name": "missing"}] if not known.all() else []
        if is_category:
            traces += _by_category(dots, shown, known)
        else:
            bar = {"title": {"text": plain([colour])[0]}, "thickness": 10}
            numbers = [float(cell) for cell, ok in zip(cells, known, strict=True) if ok]
            marks = {"color": numbers, "colorscale": "Cividis", "showscale": True, "colorbar": bar}
            traces.append(dots(known, **marks))
    return figure(
        traces,
        xaxis=axis(f"{names} 1"),
        yaxis=axis(f"{names} 2"),
        dragmode="lasso",
        showlegend=is_category,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )


def _by_category(dots: Callable[..., Figure], shown: Sequence[str], known: Array) -> list[Figure]:
    """A trace for each of the most frequent categories, and one for all others."""
    labels, counts = np.unique(np.array(shown)[known], return_counts=True)
    common = labels[np.argsort(-counts, kind="stable")][: MOST_CATEGORIES - 1].tolist()
    names = np.array([label if label in common else "others" for label in shown])
    return [
        dots(known & (names == label), color=COLOURS[k % len(COLOURS)])
        | {"name": plain([label])[0]}
        for k, label in enumerate([*common, "others"])
        if (known & (names == label)).any()
    ]


def traversal_lines(found: Traversal, variables: Mapping[str, Variable], most: int = 8) -> Figure:
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
            "name": plain([name])[0],
            "line": {"width": 2, "color": COLOURS[k % len(COLOURS)]},
            "hovertemplate": f"{plain([name])[0]}: %{{y:+.1%}} of its range<extra></extra>",
        }
        for k, name in enumerate(ranked)
    ]  # fmt: skip
    return figure(
        traces,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": -0.24, "yanchor": "top"},
        xaxis=axis("shift of the coordinate"),
        yaxis=axis("change, in % of the range", tickformat="+.0%"),
    )


def calibration_curve(found: IntervalScores) -> Figure:
    """Coverage of intervals against their nominal level, with the band that chance allows."""
    ideal = np.linspace(0.0, 1.0, 51)
    reach = 2.0 * np.sqrt(ideal * (1.0 - ideal) / found.cells)
    ends = (
        np.concatenate([ideal, ideal[::-1]]),
        np.concatenate([ideal - reach, (ideal + reach)[::-1]]),
    )
    band = {"type": "scatter", "x": ends[0].tolist(), "y": ends[1].tolist(), "fill": "toself",
            "mode": "none", "fillcolor": "rgba(154,161,172,0.25)", "hoverinfo": "skip",
            "name": f"chance, {found.cells} cells"}  # fmt: skip
    line = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 1], "hoverinfo": "skip",
            "line": {"color": GREY, "width": 1.5, "dash": "dot"}, "name": "ideal"}  # fmt: skip
    own = {
        "type": "scatter", "mode": "lines+markers", "x": found.levels.tolist(),
        "y": found.coverage.tolist(), "line": {"color": ACCENT, "width": 2}, "marker": {"size": 7},
        "name": "this model", "hovertemplate": "%{x:.0%} intervals cover %{y:.1%}<extra></extra>",
    }  # fmt: skip
    share = {"range": [0, 1], "tickformat": ".0%"}
    return figure(
        [band, line, own],
        showlegend=True,
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
    shapes = [_bar(_display_value(variable, end), GREY, "dot") for end in ends]
    if actual is not None:
        shapes.append(_bar(_display_value(variable, actual), COLOURS[1], "solid"))
    return figure([trace], xaxis=axis(variable.name), yaxis=axis("draws"), shapes=shapes)


def _display_value(variable: Variable, number: float) -> Any:
    return variable.value_of(number) if variable.kind == "date" else number


def _bar(x: Any, colour: str, dash: str) -> Figure:
    line = {"color": colour, "width": 2, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def shares(categories: Sequence[Any], probabilities: Array, most: int = 20) -> Figure:
    """Probabilities of categories, the likeliest first."""
    order = np.argsort(-probabilities, kind="stable")[:most]
    trace = {
        "type": "bar",
        "x": plain(categories[k] for k in order),
        "y": probabilities[order].tolist(),
        "marker": {"color": ACCENT},
        "hovertemplate": "%{x}: %{y:.1%}<extra></extra>",
    }
    return figure([trace], xaxis=axis(type="category"), yaxis=axis("probability", tickformat=".0%"))
