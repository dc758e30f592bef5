"""The Fill page: content and callbacks."""

from __future__ import annotations

import base64
import binascii
import time
from typing import Any

import flask
import numpy as np
from dash import Dash, Output, ctx, dcc, html, no_update

from vfg.imputation.explanation import Explanation, show_value
from vfg.plots.report import confidence
from vfg.studio import components as parts
from vfg.studio.asking.cards import spread_text
from vfg.studio.asking.model import OpenModel
from vfg.studio.components import box, choice, connect, number, plot, row
from vfg.studio.filling.opened_tables import (
    ENDINGS,
    MOST_BYTES,
    Cell,
    cell,
    comparison,
    download,
)
from vfg.studio.session import Opened, Session

NO_TABLE = "No table is open yet."
FILL = "Fill missing values"
CONTRIBUTIONS = 8
"""How many contributions to a filled cell are listed, the largest first."""
ROWS_SHOWN = 20
"""How many rows of the filled table are shown at once."""


def build(model: OpenModel) -> list[Any]:
    """Opening, filling and inspecting a table."""
    columns = list(model.variables)
    first = next((v.name for v in model.variables.values() if not v.idle), columns[0])
    looking = box(
        html.H2("One cell"),
        row(
            number("cell-row", "Row", 1, min=1, step=1),
            choice("cell-column", "Column", columns, first),
        ),
        html.Div(id="cell-text", className="cell-text", role="status"),
        plot("cell-plot", 200),
    )
    compared = box(
        row(
            html.H2("Observed and filled"),
            choice("compare-column", "Column", columns, first),
            kind="box-head wide",
        ),
        plot("compare-plot", 280),
    )
    missing = box(html.H2("Missing values"), plot("missing-plot", 300))
    content = row(missing, _filled_box(), compared, kind="content")
    return [row(_opening_box(), looking, kind="side"), content]


def _opening_box() -> Any:
    drop = [
        html.Strong("Drop a table here"),
        html.Span(f"{', '.join(ENDINGS)}, up to {MOST_BYTES // 2**20} MiB"),
        html.Button("Pick a file", id="pick", type="button"),
    ]
    return box(
        html.H2("Table"),
        dcc.Upload(html.Div(drop, className="drop"), id="upload", className="upload"),
        html.P(id="table-summary", className="note", role="status"),
        row(
            html.Button(FILL, id="fill", className="primary", disabled=True),
            html.Button("Download", id="download", disabled=True),
        ),
        html.P(id="fill-summary", className="note", role="status"),
    )


def _filled_box() -> Any:
    words = (
        "Rows with missing values. Filled cells are coloured, the darker the more certain; "
        "choose one to see its distribution."
    )
    head = row(
        html.H2("Filled table"),
        html.Button("Previous", id="rows-before", className="quiet", disabled=True),
        html.Button("Next", id="rows-after", className="quiet", disabled=True),
        kind="box-head",
    )
    table = html.Div(id="filled-table", className="scroll", tabIndex="0")
    return box(head, html.P(words, className="note"), table)


def register(app: Dash, session: Session) -> None:
    """Wire the page to the session."""
    _register_opening(app, session)
    _register_filled(app, session)
    _register_cell(app, session)


def _register_opening(app: Dash, session: Session) -> None:
    @connect(app, "table.data notice.children", "upload.contents", "upload.filename", first=False)
    def upload(contents: str | None, name: str | None) -> Any:
        if not contents:
            return no_update, no_update
        client = flask.request.cookies.get("vfg-client", "")
        described = session.read(name or "table", content_bytes(contents), client)
        return described, described["note"]

    @connect(app, "table-summary.children missing-plot.figure fill.disabled", "table.data")
    def show_table(described: Any) -> Any:
        if not described:
            return NO_TABLE, parts.empty(NO_TABLE), True
        table = session.table(described)
        nothing = not table.missing.any()
        return f"{table.name}: {table.summary}", parts.missingness(table), nothing

    @connect(
        app,
        "filled.data fill-summary.children download.disabled",
        "fill.n_clicks table.data",
        running=[(Output("fill", "children"), "Filling …", FILL)],
    )
    def fill(clicks: int | None, described: Any) -> Any:
        if ctx.triggered_id != "fill":
            return None, "", True
        begun, opened = time.monotonic(), session.look_up(described)
        left = int(opened.filled.missing.sum())
        words = f"{int(opened.table.missing.sum()) - left} missing values filled in "
        words += f"{time.monotonic() - begun:.1f} s{session.model.about_missing_cells}"
        return {"token": described["token"]}, words, False

    @connect(app, "download-table.data", "download.n_clicks", "table.data", first=False)
    def send_file(clicks: int | None, described: Any) -> Any:
        name, data = download(session.model, session.table(described))
        return dcc.send_bytes(data, name)


def _register_filled(app: Dash, session: Session) -> None:
    def is_filled(done: Any, described: Any) -> bool:
        return bool(done and described and done["token"] == described["token"])

    @connect(
        app,
        "filled-table.children filled-page.data rows-before.disabled rows-after.disabled",
        "filled.data rows-before.n_clicks rows-after.n_clicks",
        "filled-page.data table.data",
    )
    def show_rows(done: Any, before: Any, after: Any, page: int | None, described: Any) -> Any:
        if not is_filled(done, described):
            words = "Not filled yet." if described else NO_TABLE
            return html.P(words, className="note"), 0, True, True
        steps = {"rows-before": -1, "rows-after": 1}
        wanted = (page or 0) + steps[ctx.triggered_id] if ctx.triggered_id in steps else 0
        opened = session.look_up(described)
        last = max((int(opened.table.missing.any(axis=1).sum()) - 1) // ROWS_SHOWN, 0)
        chosen = min(max(wanted, 0), last)
        with session.lock:
            return filled_table(opened, chosen), chosen, chosen == 0, chosen == last

    @connect(app, "compare-plot.figure", "filled.data compare-column.value table.data")
    def compare(done: Any, column: str, described: Any) -> Any:
        if not described:
            return parts.empty(NO_TABLE)
        variable, opened = session.model.variable(column), session.look_up(described)
        filled = is_filled(done, described)
        cells = comparison(opened.table, opened.filled if filled else opened.table, column)
        return parts.distributions(variable, cells if filled else {"observed": cells["observed"]})


def filled_table(opened: Opened, page: int = 0) -> Any:
    """Some rows with missing values, as they are filled, coloured by confidence."""
    table = opened.table
    gaps = np.flatnonzero(table.missing.any(axis=1))
    rows = gaps[page * ROWS_SHOWN : (page + 1) * ROWS_SHOWN]
    if not len(rows):
        return html.P("No row has missing values.", className="note")
    sure = confidence(opened.model.model, table.frame.take(rows), table.missing[rows])
    columns = table.columns[: parts.MOST_COLUMNS]
    cells = {name: opened.filled.column(name) for name in columns}
    shown = [
        [
            str(k + 1),
            *(
                _filled_cell(cells[name], int(k), name, float(sure[place, column]))
                for column, name in enumerate(columns)
            ),
        ]
        for place, k in enumerate(rows)
    ]
    return parts.table(["row", *columns], shown)


def _filled_cell(column: Any, k: int, name: str, sure: float) -> Any:
    missing, value = bool(column.missing[k]), column.values[k]
    if column.storage == "date" and not missing:
        value = str(value.astype("M8[D]"))
    text = "" if missing else parts.format_cell(value)
    if not np.isfinite(sure):
        return text
    options = {"data-cell-row": str(k + 1), "data-cell-column": name}
    colour = {"background": f"rgba(79,107,220,{0.08 + 0.5 * sure:.2f})"}
    title = f"{name}: confidence {sure:.0%}"
    return html.Button(text or "–", className="cell", title=title, style=colour, **options)


def _register_cell(app: Dash, session: Session) -> None:
    @connect(
        app, "cell-row.value cell-column.value", "missing-plot.clickData", "table.data", first=False
    )
    def point(click: Any, described: Any) -> Any:
        if not click or not described:
            return no_update, no_update
        chosen, columns = click["points"][0], session.table(described).columns
        return int(chosen["y"]), columns[parts.plain(columns).index(chosen["x"])]

    @connect(
        app, "cell-text.children cell-plot.figure", "cell-row.value cell-column.value table.data"
    )
    def look(place: int | None, column: str, described: Any) -> Any:
        if not described:
            return NO_TABLE, parts.empty("")
        try:
            with session.lock:
                result = cell(session.model, session.table(described), place or 0, column)
        except ValueError as error:
            return html.P(str(error), className="problem"), parts.empty("")
        return cell_text(result, place or 0), cell_figure(result)


def content_bytes(contents: str) -> bytes:
    """The bytes of an upload, which come as the address of data."""
    try:
        return base64.b64decode(contents.partition(",")[2], validate=True)
    except binascii.Error as error:
        raise ValueError("the upload was cut short; choose the file again") from error


def cell_text(found: Cell, row: int) -> Any:
    """A cell in words."""
    expected, variable = found.expected, found.expected.variable
    words = {
        "actual value": "missing" if found.actual is None else variable.show(found.actual),
        "expected from the row": [html.Strong(expected.text), f", {spread_text(expected)}"],
        "moved most by": ", ".join(n for n, by in found.influence[:3] if by > 0.0) or "nothing",
    }
    if found.why is not None:
        del words["moved most by"]
    pairs = [part for term, text in words.items() for part in (html.Dt(term), html.Dd(text))]
    listed = html.Dl(pairs, **{"data-row": str(row), "data-mean": repr(expected.mean)})
    return listed if found.why is None else html.Div([listed, *explanation_parts(found.why)])


def explanation_parts(why: Explanation) -> list[Any]:
    """Why a cell is filled as it is: a sentence, and the contribution of every observed cell."""
    sizes: dict[str, float] = {str(name): size for name, size in why.contributions.items()}
    values = {str(name): show_value(value) for name, value in why.evidence.items()}
    if why.shift:
        sizes["missing itself"], values["missing itself"] = why.shift, ""
    ranked = sorted(sizes.items(), key=lambda pair: -abs(pair[1]))[:CONTRIBUTIONS]
    rows = [[name, values[name], why.show_signed(size)] for name, size in ranked]
    rows.insert(0, ["without evidence", "", why.show_level(why.start)])
    rows.append(["with the row", "", why.show_level(why.total)])
    contributions = html.Div(
        parts.table(["column", "value", "contribution"], rows), className="scroll", tabIndex="0"
    )
    return [html.P(why.sentence), contributions, html.P(why.method, className="note")]


def cell_figure(found: Cell) -> Any:
    """The draws behind a cell, or the probabilities of its categories."""
    expected, variable = found.expected, found.expected.variable
    if variable.kind == "choice":
        return parts.shares(variable.categories, expected.probabilities)
    actual = None if found.actual is None else variable.number_of(found.actual)
    return parts.cell_draws(variable, expected.draws, actual, (expected.low, expected.high))
