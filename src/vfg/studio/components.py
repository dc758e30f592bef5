"""Parts that the pages share: boxes, plots, inputs, pictures and tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from dash import dcc, html

from vfg.inference.variables import format_number
from vfg.studio.markup import png, stretch

PLOT = {"displaylogo": False, "displayModeBar": False, "responsive": True}


def box(children: list[Any], **options: Any) -> Any:
    """A framed part of the page."""
    return html.Div(children, **{"className": "box", **options})


def plot(identity: str, height: int = 300) -> Any:
    """Room for a figure of plotly."""
    return dcc.Loading(
        dcc.Graph(id=identity, config=PLOT, style={"height": f"{height}px"}),
        type="dot",
        delay_show=400,
    )


def choice(identity: str, words: str, options: list[str], value: str | None = None) -> Any:
    """A labelled list to choose from."""
    return html.Label(
        [
            html.Span(words),
            dcc.Dropdown(options, value, id=identity, clearable=False, maxHeight=260),
        ],
        className="labelled",
    )


def number(identity: str, words: str, value: int, **limits: Any) -> Any:
    """A labelled field for a number."""
    field = dcc.Input(
        id=identity, type="number", value=value, debounce=0.3, className="field", **limits
    )
    return html.Label([html.Span(words), field], className="labelled narrow")


def pictures(pixels: Any, captions: list[str] | None = None) -> Any:
    """Images side by side."""
    shown = stretch(pixels)
    words = captions or [""] * len(shown)
    return html.Div(
        [
            html.Figure([html.Img(src=png(one), alt=f"image {k + 1}"), html.Figcaption(word)])
            for k, (one, word) in enumerate(zip(shown, words, strict=True))
        ],
        className="pictures small",
    )


def data_table(frame: Any) -> Any:
    """A frame as a table of HTML."""
    columns = [str(column) for column in frame.columns][:60]
    rows = [
        html.Tr([html.Td(_format_cell(cell)) for cell in row[: len(columns)]])
        for row in frame.itertuples(index=False)
    ]
    head = html.Tr([html.Th(column, scope="col") for column in columns])
    return html.Table([html.Thead(head), html.Tbody(rows)], className="data")


def _format_cell(cell: Any) -> str:
    if isinstance(cell, bool | np.bool_) or not isinstance(cell, float | int | np.number):
        return str(cell)[:24]
    return format_number(float(cell), 3)
