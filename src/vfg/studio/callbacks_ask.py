"""The Ask and Graph pages: actions in, HTML out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, no_update

from vfg.studio.ask_state import State as Standing
from vfg.studio.ask_state import render, update
from vfg.studio.graph_layout import elements
from vfg.studio.layout import LARGE_ROW, SMALL_ROW
from vfg.studio.session import Session


def register(app: Dash, session: Session) -> None:
    """Wire the pages to the session."""
    model = session.model

    def answer(action: Any, table: Any, state: Any) -> Any:
        standing = Standing() if state is None else Standing.from_dict(state)
        before, rows = standing, table["rows"] if table else 0
        with session.lock:
            if action is not None and ctx.triggered_id == "action":
                row_of = None if not table else lambda row: session.row(table, row)
                standing = update(model, standing, action, row_of)
            try:
                shown = render(model, standing, rows)
            except ValueError as error:
                # Evidence that a model cannot use, such as part of a section that it needs whole.
                standing = replace(before, error=str(error))
                shown = render(model, standing, rows)
        return standing.to_dict(), shown

    app.callback(
        Output("state", "data"),
        Output("view", "data"),
        Input("action", "data"),
        Input("table", "data"),
        State("state", "data"),
    )(answer)

    def export(clicks: int | None, state: Any) -> Any:
        if not clicks:
            return no_update
        with session.lock:
            found = model.ask(Standing.from_dict(state).question.given)
        return dcc.send_string(found.to_html(), "answer.html", type="text/html")

    app.callback(
        Output("download-answer", "data"),
        Input("export", "n_clicks"),
        State("state", "data"),
        prevent_initial_call=True,
    )(export)

    def draw(expanded: list[str], table: Any) -> Any:
        distances = session.consistency(table)
        return [elements(model, per_row, expanded, distances) for per_row in (SMALL_ROW, LARGE_ROW)]

    app.callback(
        Output("ask-graph", "elements"),
        Output("graph", "elements"),
        Input("expanded", "data"),
        Input("table", "data"),
        prevent_initial_call=True,
    )(draw)
