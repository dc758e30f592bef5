"""The Explore page; nothing is computed before the page is opened."""

from __future__ import annotations

from typing import Any

import numpy as np
from dash import Dash, ctx, dcc, html
from dash.exceptions import PreventUpdate

from vfg.studio import components as parts
from vfg.studio.asking.model import OpenModel
from vfg.studio.components import box, choice, connect, number, plot, row, show_errors
from vfg.studio.exploring.analysis import (
    IntervalScores,
    calibration,
    embedding,
    neighbours,
    read_history,
    samples,
    traversal,
)
from vfg.studio.filling.opened_tables import colour_cells
from vfg.studio.filling.page import NO_TABLE, content_bytes
from vfg.studio.session import Session

STEPS, PICTURE_STEPS = np.linspace(-3.0, 3.0, 25), np.linspace(-3.0, 3.0, 9)
"""Values of a latent coordinate in deviations, for curves and for pictures side by side."""
MOST_SAMPLES = 200
"""Rows that the page draws at most; `vfg sample` draws more."""
CALIBRATION_HEIGHT, HISTORY_HEIGHT = 300, 280
"""Of figures, in pixels."""
ROWS_LISTED = 50
"""How many rows that were chosen in the plane are listed."""


def build(model: OpenModel) -> list[Any]:
    """What lies in the latent space, and how good the model is."""
    latent = list(model.latents)
    pick = html.Button("Pick a history (JSON)", type="button")
    return [
        _plane_box(model),
        box(
            html.H2("Latent traversal"),
            row(
                choice("node", "Node", latent, latent[0] if latent else None),
                number("coordinate", "Coordinate", 1, step=1),
                number("start-row", "From row (0: none)", 0, step=1),
            ),
            html.Div(id="traversal-pictures"),
            plot("traversal-plot", 440),
        ),
        box(
            html.H2("Samples"),
            row(
                number("sample-seed", "Seed", 0, step=1),
                number("sample-count", "Rows", 12, step=1),
            ),
            html.Div(id="samples", className="scroll", tabIndex="0"),
        ),
        box(
            row(
                html.H2("Calibration"),
                html.Button("Hold out cells", id="calibrate", disabled=True),
                kind="box-head",
            ),
            html.P("Observed numbers of the open table are held out and inferred; intervals of a "
                   "level should contain that share of them.", className="note"),
            html.P(id="calibration-note", className="note", role="status"),
            plot("calibration-plot", CALIBRATION_HEIGHT),
            html.Div(id="calibration-table", className="scroll", tabIndex="0"),
        ),
        box(
            html.H2("Training history"),
            dcc.Upload(html.Div(pick), id="history"),
            html.P(id="history-note", className="note", role="status"),
            plot("history-plot", HISTORY_HEIGHT),
        ),
    ]  # fmt: skip


def _plane_box(model: OpenModel) -> Any:
    methods = dcc.RadioItems(["PCA", "t-SNE"], "PCA", id="method", inline=True, className="radio")
    words = "Draw around rows to list them; choose a row for those nearest to it."
    return box(
        html.H2("Rows in latent space"),
        row(
            html.Div([html.Span("Method"), methods], className="labelled"),
            choice("colour", "Coloured by", ["nothing", *model.variables], "nothing"),
        ),
        plot("embedding-plot", 360),
        html.P(words, className="note"),
        html.Div(id="chosen-rows", className="scroll", tabIndex="0"),
    )


def register(app: Dash, session: Session) -> None:
    """Wire the page to the session."""
    _register_plane(app, session)
    _register_calibration(app, session)
    _register_model(app, session)


def _wait_for(tab: str) -> None:
    if tab != "explore":
        raise PreventUpdate


def _register_plane(app: Dash, session: Session) -> None:
    model = session.model
    remembered: dict[tuple[str, str], Any] = {}

    def kept_embedding(described: Any, method: str) -> Any:
        # Another colour needs no other places.
        key = described["token"], method
        if key not in remembered:
            remembered.clear()
            remembered[key] = embedding(model, session.table(described), method)
        return remembered[key]

    @connect(app, "colour.options", "table.data")
    def colours(described: Any) -> Any:
        names = session.table(described).whole.column_names if described else model.variables
        return ["nothing", *dict.fromkeys([*model.variables, *names])]

    @connect(app, "embedding-plot.figure", "tab.data table.data method.value colour.value")
    @show_errors
    def embed(tab: str, described: Any, method: str, colour: str) -> Any:
        _wait_for(tab)
        if not described:
            return parts.empty(f"{NO_TABLE} Open one under Fill.")
        table = session.table(described)
        rows, places, _ = kept_embedding(described, method)
        name = "" if colour == "nothing" else colour
        cells = colour_cells(table, name, rows) if name else [None] * len(rows)
        return parts.scatter(places, rows, name, cells, "component" if method == "PCA" else method)

    @connect(
        app,
        "chosen-rows.children",
        "embedding-plot.selectedData embedding-plot.clickData",
        "table.data method.value",
        first=False,
    )
    def list_rows(lasso: Any, click: Any, described: Any, method: str) -> Any:
        if not described:
            raise PreventUpdate
        by_click = ctx.triggered[0]["prop_id"].endswith("clickData")
        chosen = click if by_click else lasso
        rows = [point["customdata"] for point in (chosen or {}).get("points", ())]
        if not rows:
            return None
        if by_click:
            shown, _, states = kept_embedding(described, method)
            rows = neighbours(shown, states, rows[0])
        part = session.table(described).whole.take(rows[:ROWS_LISTED]).to_pandas()
        return parts.data_table(part, [k + 1 for k in rows[:ROWS_LISTED]])


def _register_calibration(app: Dash, session: Session) -> None:
    @connect(
        app,
        "calibration-plot.figure calibration-plot.style calibration-table.children "
        "calibration-note.children calibrate.disabled",
        "calibrate.n_clicks table.data",
    )
    def calibrate(clicks: int | None, described: Any) -> Any:
        hidden = parts.empty(""), parts.plot_style(CALIBRATION_HEIGHT, shown=False), None
        if ctx.triggered_id != "calibrate":
            return *hidden, "" if described else NO_TABLE, not described
        try:
            result = calibration(session.model, session.table(described))
        except ValueError as error:
            return *hidden, str(error), False
        shown = parts.calibration_curve(result), parts.plot_style(CALIBRATION_HEIGHT)
        return *shown, calibration_table(result), "", False


def calibration_table(found: IntervalScores) -> Any:
    """Errors and coverage by column."""
    rows = [
        [name, str(hidden), f"{error:.3f}", f"{mean:.3f}", f"{held:.0%}"]
        for name, hidden, error, mean, held in found.columns
    ]
    return parts.table(("column", "held out", "error", "of means", "90 % cover"), rows)


def _register_model(app: Dash, session: Session) -> None:
    model = session.model

    @connect(
        app,
        "traversal-plot.figure traversal-pictures.children",
        "tab.data node.value coordinate.value start-row.value",
        "table.data",
    )
    def traverse(tab: str, node: str, coordinate: int | None, start: int | None, table: Any) -> Any:
        _wait_for(tab)
        try:
            if node is None:
                raise ValueError("This model has no latent node.")
            return _traversal(session, node, coordinate, start, table)
        except ValueError as error:
            return parts.empty(str(error)), None

    @connect(app, "samples.children", "tab.data sample-seed.value sample-count.value")
    def sample(tab: str, seed: int | None, count: int | None) -> Any:
        _wait_for(tab)
        if count is None or not 1 <= count <= MOST_SAMPLES or seed is None or seed < 0:
            words = f"Give a seed from 0 on, and 1 to {MOST_SAMPLES} rows; vfg sample draws more."
            return html.P(words, className="problem", role="alert")
        frame, pixels = samples(model, int(count), int(seed))
        return parts.data_table(frame) if pixels is None else parts.pictures(pixels)

    @connect(
        app, "history-plot.figure history-plot.style history-note.children", "history.contents"
    )
    def show_history(contents: str | None) -> Any:
        hidden = parts.empty(""), parts.plot_style(HISTORY_HEIGHT, shown=False)
        try:
            history = session.history if not contents else read_history(content_bytes(contents))
        except ValueError as error:
            return *hidden, html.Span(str(error), className="problem", role="alert")
        if history is None or not len(history):
            return *hidden, "Choose a file that history.save(path) wrote."
        return parts.history_lines(history), parts.plot_style(HISTORY_HEIGHT), ""


def _traversal(
    session: Session, node: str, coordinate: int | None, row: int | None, described: Any
) -> tuple[Any, Any]:
    """The figure of a traversal, and its pictures where the columns are pixels."""
    model = session.model
    width = model.graph.node(node).width
    if coordinate is None or not 1 <= coordinate <= width:
        raise ValueError(f"{node!r} has the coordinates 1 to {width}")
    start = None
    if row and described:
        table = session.table(described)
        if not 1 <= row <= table.rows:
            raise ValueError(f"the table has the rows 1 to {table.rows}, but got {row}")
        start = table.frame.slice(row - 1, 1)
    steps = STEPS if model.picture is None else PICTURE_STEPS
    result = traversal(model, node, coordinate - 1, steps.tolist(), start)
    figure = parts.traversal_lines(result, model.variables)
    captions = [f"{step:+.2g}".replace("-", "−") for step in steps]
    return figure, None if result.pixels is None else parts.pictures(result.pixels, captions)
