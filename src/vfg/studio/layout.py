"""The page: four tabs, and where everything stands on them."""

from __future__ import annotations

from typing import Any

import dash_cytoscape as cytoscape
from dash import dcc, html

from vfg.studio.asking import OpenModel
from vfg.studio.graph_layout import COLOURS, elements, stylesheet
from vfg.studio.layout_tables import box, explore_page, fill_page
from vfg.studio.session import Session

TABS = {"ask": "Ask", "graph": "Graph", "fill": "Fill", "explore": "Explore"}
SMALL_ROW, LARGE_ROW = 4, 8
"""How many leaves stand side by side in the small and in the large drawing."""


def page(session: Session) -> Any:
    """Everything on the page."""
    model = session.model
    return html.Div(
        [
            *_stores(session),
            html.A("Skip to the page", href="#main", className="skip"),
            _header(model),
            html.Div(id="notice", role="alert", className="notice"),
            html.Div(
                "The studio has stopped. Start it again, and this page goes on by itself.",
                id="offline", role="alert", className="notice", hidden=True,
            ),
            html.Div(id="status", role="status", className="unseen"),
            html.Main(
                [
                    _panel("ask", _ask(session)),
                    _panel("graph", _graph(session)),
                    _panel("fill", fill_page(model)),
                    _panel("explore", explore_page(model)),
                ],
                id="main", tabIndex="-1",
            ),
        ],
        className="vfg-cards studio",
    )  # fmt: skip


def _stores(session: Session) -> list[Any]:
    themes = {
        theme: {
            "base": stylesheet(theme),
            "given": {"background-color": ink["accent"], "border-color": ink["accent"],
                      "color": ink["on"]},
            "chosen": {"border-color": ink["accent"], "border-width": 3},
        }
        for theme, ink in COLOURS.items()
    }  # fmt: skip
    kept: dict[str, Any] = {
        "themes": themes,
        "theme": "light",
        "table": session.first,
        "expanded": [],
        "tab": "ask",
    }
    names = ("action", "state", "view", "shown", "sent", "filled", "hovered")
    return [
        *(dcc.Store(id=name, data=data) for name, data in kept.items()),
        *(dcc.Store(id=name) for name in names),
        *(dcc.Download(id=name) for name in ("download-table", "download-answer")),
    ]


def _header(model: OpenModel) -> Any:
    tabs = [
        html.Button(
            words,
            id=f"tab-{name}",
            role="tab",
            className="tab",
            tabIndex="0" if name == "ask" else "-1",
            **{"aria-selected": "true" if name == "ask" else "false",
               "aria-controls": f"panel-{name}", "data-tab": name},
        )
        for name, words in TABS.items()
    ]  # fmt: skip
    return html.Header(
        [
            html.Div(
                [html.Span("vfg", className="brand"), html.Span("studio", className="brand-2")],
                className="brands",
            ),
            html.Nav(tabs, role="tablist", className="tabs", **{"aria-label": "Pages"}),
            html.Div(
                [html.Strong(model.file.rsplit("/", 1)[-1]), html.Span(model.summary)],
                className="model",
            ),
        ],
        className="topbar",
    )


def _panel(name: str, children: list[Any]) -> Any:
    return html.Section(
        children,
        id=f"panel-{name}",
        role="tabpanel",
        className=f"panel panel-{name}",
        hidden=name != "ask",
        **{"aria-labelledby": f"tab-{name}"},
    )


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


def _ask(session: Session) -> list[Any]:
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
                    html.H2("What the model knows"),
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


def _graph(session: Session) -> list[Any]:
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
