"""The Explore page; nothing is computed before it is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from dash import Dash, Input, Output, State, ctx, html
from dash.exceptions import PreventUpdate

from vfg.inference.variables import format_number
from vfg.studio import figures
from vfg.studio.callbacks_fill import NO_TABLE, content_bytes
from vfg.studio.exploring import (
    Calibration,
    calibration,
    embedding,
    read_history,
    samples,
    traversal,
)
from vfg.studio.filling import column_cells
from vfg.studio.pictures import levelled, png
from vfg.studio.session import Session

STEPS = np.linspace(-3.0, 3.0, 25)
PICTURE_STEPS = np.linspace(-3.0, 3.0, 9)


def register(app: Dash, session: Session) -> None:
    """Wire the page to the session."""
    _register_table(app, session)
    _register_model(app, session)


def _wait_for(tab: str) -> None:
    if tab != "explore":
        raise PreventUpdate


def _register_table(app: Dash, session: Session) -> None:
    model = session.model

    def embed(tab: str, table: Any, method: str, colour: str) -> Any:
        _wait_for(tab)
        if not table:
            return figures.empty(f"{NO_TABLE} Open one under Fill.")
        opened = session.table(table)
        rows, places = kept_embedding(table, method)
        variable = model.variables.get(colour)
        cells = [] if variable is None else column_cells(opened, colour, rows)
        names = "component" if method == "PCA" else "t-SNE"
        return figures.scatter(places, rows, variable, cells, names)

    app.callback(
        Output("embedding-plot", "figure"),
        Input("tab", "data"),
        Input("table", "data"),
        Input("method", "value"),
        Input("colour", "value"),
    )(embed)

    def calibrate(clicks: int | None, table: Any) -> Any:
        if ctx.triggered_id != "calibrate":
            return figures.empty("Not looked at yet." if table else NO_TABLE), None
        found = calibration(model, session.table(table))
        return figures.calibration_curve(found), calibration_table(found)

    app.callback(
        Output("calibration-plot", "figure"),
        Output("calibration-table", "children"),
        Input("calibrate", "n_clicks"),
        Input("table", "data"),
        running=[(Output("calibrate", "disabled"), True, False)],
    )(calibrate)

    def kept_embedding(table: Any, method: str) -> Any:
        # Another colour needs no other places.
        key = table["token"], method
        if key not in remembered:
            remembered.clear()
            remembered[key] = embedding(model, session.table(table), method)
        return remembered[key]

    remembered: dict[tuple[str, str], Any] = {}


def calibration_table(found: Calibration) -> Any:
    """Errors and coverage by column."""
    head = ("column", "hidden", "error", "of means", "90 % hold")
    rows = [
        html.Tr(
            [
                html.Th(name, scope="row"),
                html.Td(str(hidden)),
                html.Td(f"{error:.3f}"),
                html.Td(f"{plain:.3f}"),
                html.Td(f"{held:.0%}"),
            ]
        )
        for name, hidden, error, plain, held in found.columns
    ]
    heads = html.Tr([html.Th(words, scope="col") for words in head])
    return html.Table([html.Thead(heads), html.Tbody(rows)], className="data")


def _register_model(app: Dash, session: Session) -> None:
    model = session.model

    def traverse(tab: str, node: str, coordinate: int | None, row: int | None, table: Any) -> Any:
        _wait_for(tab)
        if node is None:
            return figures.empty("This model has no latent node."), None
        width = model.graph.node(node).width
        if coordinate is None or not 1 <= coordinate <= width:
            raise ValueError(f"{node!r} has the coordinates 1 to {width}")
        start = None
        if row and table:
            opened = session.table(table)
            if not 1 <= row <= opened.rows:
                raise ValueError(f"the table has the rows 1 to {opened.rows}, but got {row}")
            start = opened.frame.slice(row - 1, 1)
        steps = STEPS if model.picture is None else PICTURE_STEPS
        found = traversal(model, node, coordinate - 1, steps.tolist(), start)
        if found.pixels is not None:
            captions = [f"{step:+.2g}".replace("-", "−") for step in steps]
            return figures.traversal_lines(found, model.variables), pictures(found.pixels, captions)
        return figures.traversal_lines(found, model.variables), None

    app.callback(
        Output("traversal-plot", "figure"),
        Output("traversal-pictures", "children"),
        Input("tab", "data"),
        Input("node", "value"),
        Input("coordinate", "value"),
        Input("start-row", "value"),
        State("table", "data"),
    )(traverse)

    def sample(tab: str, seed: int | None, count: int | None) -> Any:
        _wait_for(tab)
        if seed is None or count is None:
            raise PreventUpdate
        frame, pixels = samples(model, int(count), int(seed))
        return data_table(frame) if pixels is None else pictures(pixels)

    app.callback(
        Output("samples", "children"),
        Input("tab", "data"),
        Input("sample-seed", "value"),
        Input("sample-count", "value"),
    )(sample)

    def show_history(contents: str | None) -> Any:
        history = session.history if not contents else read_history(content_bytes(contents))
        if history is None or not len(history):
            return figures.empty("Pick a file that history.save(path) wrote.")
        return figures.history_lines(history)

    app.callback(
        Output("history-plot", "figure"),
        Input("history", "contents"),
    )(show_history)


def pictures(pixels: Any, captions: list[str] | None = None) -> Any:
    """Images side by side."""
    shown = levelled(pixels)
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
        html.Tr([html.Td(_said(cell)) for cell in row[: len(columns)]])
        for row in frame.itertuples(index=False)
    ]
    head = html.Tr([html.Th(column, scope="col") for column in columns])
    return html.Table([html.Thead(head), html.Tbody(rows)], className="data")


def _said(cell: Any) -> str:
    if isinstance(cell, bool | np.bool_) or not isinstance(cell, float | int | np.number):
        return str(cell)[:24]
    return format_number(float(cell), 3)
