"""The Explore page; nothing is computed before the page is opened."""

from __future__ import annotations

from typing import Any

import numpy as np
from dash import Dash, Input, Output, State, ctx, dcc, html
from dash.exceptions import PreventUpdate

from vfg.studio import figures
from vfg.studio.asking.model import OpenModel
from vfg.studio.components import box, choice, data_table, number, pictures, plot
from vfg.studio.exploring.analysis import (
    Calibration,
    calibration,
    embedding,
    read_history,
    samples,
    traversal,
)
from vfg.studio.filling.page import NO_TABLE, content_bytes
from vfg.studio.filling.tables import read_cells
from vfg.studio.session import Session

STEPS = np.linspace(-3.0, 3.0, 25)
PICTURE_STEPS = np.linspace(-3.0, 3.0, 9)


def build(model: OpenModel) -> list[Any]:
    """What lies in the latent space, and how good the model is."""
    columns = list(model.variables)
    latent = list(model.latents)
    methods = dcc.RadioItems(["PCA", "t-SNE"], "PCA", id="method", inline=True, className="radio")
    return [
        box(
            [
                html.H2("Rows in latent space"),
                html.Div(
                    [
                        html.Div([html.Span("Method"), methods], className="labelled"),
                        choice("colour", "Coloured by", ["nothing", *columns], columns[0]),
                    ],
                    className="row",
                ),
                plot("embedding-plot", 360),
            ]
        ),
        box(
            [
                html.H2("Latent traversal"),
                html.Div(
                    [
                        choice("node", "Node", latent, latent[0] if latent else None),
                        number("coordinate", "Coordinate", 1, min=1, step=1),
                        number("start-row", "From row (0: none)", 0, min=0, step=1),
                    ],
                    className="row",
                ),
                html.Div(id="traversal-pictures"),
                plot("traversal-plot", 360),
            ]
        ),
        box(
            [
                html.H2("Samples"),
                html.Div(
                    [
                        number("sample-seed", "Seed", 0, min=0, step=1),
                        number("sample-count", "Rows", 12, min=1, max=200, step=1),
                    ],
                    className="row",
                ),
                html.Div(
                    id="samples", className="scroll", tabIndex="0", **{"aria-label": "Samples"}
                ),
            ]
        ),
        box(
            [
                html.Div(
                    [
                        html.H2("Calibration"),
                        html.Button("Hold out cells", id="calibrate"),
                    ],
                    className="box-head",
                ),
                html.P(
                    "Observed numbers of the open table are held out and inferred; intervals of a "
                    "level should cover that share of them.",
                    className="note",
                ),
                plot("calibration-plot", 280),
                html.Div(id="calibration-table", className="scroll"),
            ]
        ),
        box(
            [
                html.H2("Training history"),
                dcc.Upload(
                    html.Div([html.Button("Pick a history (JSON)", type="button")]), id="history"
                ),
                plot("history-plot", 280),
            ]
        ),
    ]


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
        cells = [] if variable is None else read_cells(opened, colour, rows)
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
            return figures.empty("Not computed yet." if table else NO_TABLE), None
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
