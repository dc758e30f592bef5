"""The Fill page: content and callbacks."""

from __future__ import annotations

import base64
import binascii
import time
from pathlib import Path
from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from vfg.studio import figures
from vfg.studio.asking.cards import spread_text
from vfg.studio.asking.model import OpenModel
from vfg.studio.components import box, choice, number, plot
from vfg.studio.filling.tables import ENDINGS, MOST_BYTES, Cell, cell, comparison, to_csv
from vfg.studio.session import Session

NO_TABLE = "No table is open yet."


def build(model: OpenModel) -> list[Any]:
    """Opening, filling and inspecting a table."""
    columns = list(model.variables)
    drop = dcc.Upload(
        html.Div(
            [
                html.Strong("Drop a table here"),
                html.Span(f"{', '.join(ENDINGS)}, up to {MOST_BYTES // 2**20} MiB"),
                html.Button("Pick a file", id="pick", type="button"),
            ],
            className="drop",
        ),
        id="upload",
        className="upload",
    )
    side = html.Div(
        [
            box(
                [
                    html.H2("Table"),
                    drop,
                    html.P(id="table-summary", className="note", role="status"),
                    html.Div(
                        [
                            html.Button("Fill missing values", id="fill", className="primary"),
                            html.Button("Download", id="download", disabled=True),
                        ],
                        className="row",
                    ),
                    html.P(id="fill-summary", className="note", role="status"),
                ]
            ),
            box(
                [
                    html.H2("One cell"),
                    html.Div(
                        [
                            number("cell-row", "Row", 1, min=1, step=1),
                            choice("cell-column", "Column", columns, columns[0]),
                        ],
                        className="row",
                    ),
                    html.Div(id="cell-text", className="cell-text", role="status"),
                    plot("cell-plot", 200),
                ]
            ),
        ],
        className="side",
    )
    main = html.Div(
        [
            box([html.H2("Missing values"), plot("missing-plot", 340)]),
            box(
                [
                    html.Div(
                        [
                            html.H2("Observed and filled"),
                            choice("compare-column", "Column", columns, columns[0]),
                        ],
                        className="box-head wide",
                    ),
                    plot("compare-plot", 280),
                ]
            ),
        ],
        className="content",
    )
    return [side, main]


def register(app: Dash, session: Session) -> None:
    """Wire the page to the session."""
    _register_opening(app, session)
    _register_looking(app, session)


def _register_opening(app: Dash, session: Session) -> None:
    def upload(contents: str | None, name: str | None) -> Any:
        if not contents:
            return no_update, no_update
        return session.read(name or "table", content_bytes(contents)), ""

    app.callback(
        Output("table", "data"),
        Output("notice", "children"),
        Input("upload", "contents"),
        State("upload", "filename"),
        prevent_initial_call=True,
    )(upload)

    def opened(table: Any) -> Any:
        if not table:
            return NO_TABLE, figures.empty(NO_TABLE)
        found = session.table(table)
        return f"{found.name}: {found.summary}", figures.missingness(found)

    app.callback(
        Output("table-summary", "children"),
        Output("missing-plot", "figure"),
        Input("table", "data"),
    )(opened)

    def fill(clicks: int | None, table: Any) -> Any:
        if ctx.triggered_id != "fill":
            return None, "", True
        begun = time.monotonic()
        session.fill(table)
        cells = int(session.table(table).missing.sum())
        words = f"{cells} missing values filled in {time.monotonic() - begun:.1f} s"
        return {"token": table["token"]}, words, False

    app.callback(
        Output("filled", "data"),
        Output("fill-summary", "children"),
        Output("download", "disabled"),
        Input("fill", "n_clicks"),
        Input("table", "data"),
        running=[(Output("fill", "disabled"), True, False)],
    )(fill)

    def download(clicks: int | None, table: Any) -> Any:
        if not clicks:
            return no_update
        stem = Path(session.table(table).name).stem
        return dcc.send_string(to_csv(session.fill(table)), f"{stem}-filled.csv", type="text/csv")

    app.callback(
        Output("download-table", "data"),
        Input("download", "n_clicks"),
        State("table", "data"),
        prevent_initial_call=True,
    )(download)


def _register_looking(app: Dash, session: Session) -> None:
    def compare(done: Any, column: str, table: Any) -> Any:
        if not table:
            return figures.empty(NO_TABLE)
        variable, opened = session.model.variable(column), session.table(table)
        is_filled = done and done["token"] == table["token"]
        cells = comparison(opened, session.fill(table) if is_filled else opened, column)
        return figures.distributions(
            variable, cells if is_filled else {"observed": cells["observed"]}
        )

    app.callback(
        Output("compare-plot", "figure"),
        Input("filled", "data"),
        Input("compare-column", "value"),
        Input("table", "data"),
    )(compare)

    def point(click: Any) -> Any:
        if not click:
            return no_update, no_update
        chosen = click["points"][0]
        return int(chosen["y"]), chosen["x"]

    app.callback(
        Output("cell-row", "value"),
        Output("cell-column", "value"),
        Input("missing-plot", "clickData"),
        prevent_initial_call=True,
    )(point)

    def look(row: int | None, column: str, table: Any) -> Any:
        if not table:
            return NO_TABLE, figures.empty("")
        if row is None:
            return "Give the number of a row.", no_update
        with session.lock:
            found = cell(session.model, session.table(table), int(row), column)
        return cell_text(found, int(row)), cell_figure(found)

    app.callback(
        Output("cell-text", "children"),
        Output("cell-plot", "figure"),
        Input("cell-row", "value"),
        Input("cell-column", "value"),
        Input("table", "data"),
    )(look)


def content_bytes(contents: str) -> bytes:
    """The bytes of an upload, which come as the address of data."""
    try:
        return base64.b64decode(contents.partition(",")[2], validate=True)
    except binascii.Error as error:
        raise ValueError("the upload was cut short; choose the file again") from error


def cell_text(found: Cell, row: int) -> Any:
    """A cell in words."""
    expected, variable = found.expected, found.expected.variable
    actual = "missing" if found.actual is None else variable.show(found.actual)
    moved = ", ".join(name for name, by in found.influence[:3] if by > 0.0)
    return html.Dl(
        [
            html.Dt("actual value"),
            html.Dd(actual),
            html.Dt("expected from the row"),
            html.Dd([html.Strong(expected.text), f", {spread_text(expected)}"]),
            html.Dt("moved most by"),
            html.Dd(moved or "nothing"),
        ],
        **{"data-row": str(row), "data-mean": repr(expected.mean)},
    )


def cell_figure(found: Cell) -> Any:
    """The draws behind a cell, or the probabilities of its categories."""
    expected, variable = found.expected, found.expected.variable
    if variable.kind == "choice":
        return figures.shares(variable.categories, expected.probabilities)
    actual = None if found.actual is None else variable.number_of(found.actual)
    return figures.cell_draws(variable, expected.draws, actual, (expected.low, expected.high))
