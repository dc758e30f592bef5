"""The Ask and Graph pages: content and callbacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dash_cytoscape as cytoscape
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from vfg.studio.asking.graph import elements, stylesheet
from vfg.studio.asking.state import State as Standing
from vfg.studio.asking.state import render, update
from vfg.studio.components import box
from vfg.studio.session import Session

SMALL_ROW, LARGE_ROW = 4, 8
"""How many leaves stand side by side in the small and in the large drawing."""


def build_ask(session: Session) -> list[Any]:
    """The graph, the editor, the evidence and the code; beside them the cards."""
    side = html.Div(
        [
            box(
                [
                    html.H2("The graph"),
                    html.Div(_drawing(session, "ask-graph", SMALL_ROW), className="small-graph"),
                ]
            ),
            box([html.Div(id="editor")], className="box editor"),
            box(
                [
                    html.Div(
                        [
                            html.H2("Given"),
                            html.Button("Undo", id="undo", className="quiet", **_act("undo")),
                            html.Button("Clear", id="clear", className="quiet", **_act("clear")),
                        ],
                        className="box-head",
                    ),
                    html.Div(id="evidence"),
                ]
            ),
            html.Details(
                [
                    html.Summary("As code, or as a page of its own"),
                    html.Div(id="code"),
                    html.Button("Download this answer (HTML)", id="export"),
                ],
                className="box",
            ),
        ],
        className="side",
    )
    main = html.Div(
        [
            html.Div(
                [
                    html.H2("Posterior"),
                    html.Span(
                        [html.I(className="key posterior"), "given the evidence"], className="note"
                    ),
                    html.Span([html.I(className="key marginal"), "without"], className="note"),
                    html.Label(
                        [
                            html.Span("Find a column", className="unseen"),
                            dcc.Input(id="search", type="search", placeholder="Find a column"),
                        ],
                        className="search",
                    ),
                ],
                className="box-head wide",
            ),
            html.Div(id="answers", className="answers"),
        ],
        className="content",
    )
    return [side, main]


def _act(kind: str) -> dict[str, Any]:
    return {"data-act": kind}


def build_graph(session: Session) -> list[Any]:
    """The whole graph, the details of a node and the legend."""
    legend = [
        ("leaf", "leaf: columns of the data"),
        ("given", "leaf with evidence"),
        ("aggregation", "aggregation node: joins several children"),
        ("latent", "latent node with one child"),
        ("group", "group of leaves: choose it to see them"),
    ]
    return [
        box([_drawing(session, "graph", LARGE_ROW)], className="box large-graph"),
        html.Div(
            [
                box(
                    [
                        html.H2("Node"),
                        html.Div(
                            html.P("Hover over a node, or choose one.", className="note"),
                            id="node-details",
                            **{"aria-live": "polite"},
                        ),
                        html.Label(
                            [
                                html.Span("Node by name"),
                                dcc.Dropdown(
                                    [node.name for node in session.model.graph.nodes],
                                    id="node-by-name",
                                    placeholder="choose",
                                ),
                            ],
                            className="labelled",
                        ),
                        html.Button("Ask about it", id="ask-node"),
                        html.Button("Whole graph", id="fit", className="quiet"),
                    ]
                ),
                box(
                    [
                        html.H2("Legend"),
                        html.Ul(
                            [
                                html.Li([html.I(className=f"mark {kind}"), words])
                                for kind, words in legend
                            ],
                            className="legend",
                        ),
                    ]
                ),
            ],
            className="side",
        ),
    ]


def _drawing(session: Session, identity: str, per_row: int) -> Any:
    return cytoscape.Cytoscape(
        id=identity,
        elements=elements(session.model, per_row, (), session.consistency(session.first)),
        layout={"name": "preset", "fit": True, "padding": 12},
        stylesheet=stylesheet("light"),
        minZoom=0.05,
        maxZoom=3.0,
        autoungrabify=True,
        boxSelectionEnabled=False,
        responsive=True,
        style={"width": "100%", "height": "100%"},
    )


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
