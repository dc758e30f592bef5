"""The Ask and Graph pages: content and callbacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dash import Dash, ctx, dcc, html, no_update

from vfg.graph import Graph
from vfg.studio.asking.graph_drawing import view_of
from vfg.studio.asking.state import PageState, render, update
from vfg.studio.components import box, connect
from vfg.studio.session import Session

LEGEND = {
    "leaf": "leaf: a column of the data, or several",
    "given": "leaf with evidence",
    "aggregation": "aggregation node: joins several children",
    "latent": "latent node with one child",
    "group": "group of leaves: choose it to see them",
}
NETWORK_LEGEND = {
    "leaf": "variable of the network",
    "given": "variable with evidence",
    "arrow": "from cause to effect",
}


def build_ask() -> list[Any]:
    """The graph, the evidence and the code; beside them the cards."""
    given = [
        html.H2("Given"),
        _button("Undo", "undo"),
        _button("Clear", "clear"),
    ]
    cases = [
        _button("Save case", "save-case", None),
        _button("Compare", "compare"),
        html.Div(id="cases", className="cases"),
    ]
    code = [
        html.Summary("As code, or as a page of its own"),
        html.Div(id="code"),
        html.Button("Download this answer (HTML)", id="export"),
    ]
    graph = [html.H2("The graph"), html.Div(id="ask-graph", className="small-graph")]
    evidence = [
        html.Div(given, className="box-head"),
        _switch(),
        html.Div(id="evidence"),
        html.Div(cases),
    ]
    side = [
        box(*graph, className="box graph-box"),
        box(*evidence),
        html.Details(code, className="box"),
    ]
    search = dcc.Input(id="search", type="search", placeholder="Find a column")
    head = [
        html.H2("Posterior"),
        html.Span(
            [html.I(className="key posterior"), html.Span(id="posterior-key")], className="note"
        ),
        html.Span([html.I(className="key marginal"), html.Span(id="baseline")], className="note"),
        html.Label([html.Span("Find a column", className="unseen"), search], className="search"),
    ]
    main = [
        html.Div(head, className="box-head wide"),
        html.Div(id="introduction"),
        html.Div(id="answers", className="answers"),
    ]
    return [html.Div(side, className="side"), html.Div(main, className="content")]


def _switch() -> Any:
    """Whether values are observed or set."""
    modes = {"observe": "Observe", "intervene": "Intervene (do)"}
    buttons = [
        html.Button(words, id=mode, className="mode", **{"data-act": mode, "aria-pressed": "false"})
        for mode, words in modes.items()
    ]
    group = {"role": "group", "aria-label": "What values mean"}
    return html.Div(
        [html.Div(buttons, className="modes", **group), html.P(id="meaning", className="note")]
    )


def _button(words: str, identity: str, act: str | None = "") -> Any:
    acts = {} if act is None else {"data-act": identity}
    return html.Button(words, id=identity, className="quiet", **acts)


def build_graph(session: Session) -> list[Any]:
    """The whole graph, the details of a node and the legend."""
    graph = session.model.graph
    by_name = dcc.Dropdown(node_names(graph), id="node-by-name", placeholder="choose")
    note = html.P("Choose a node to see its columns, width and edges.", className="note")
    node = [
        html.H2("Node"),
        html.Div(note, id="node-details", **{"aria-live": "polite"}),
        html.Label([html.Span("Node by name"), by_name], className="labelled"),
        html.Button("Ask about it", id="ask-node", disabled=True),
    ]
    marks = [html.Li([html.I(className=f"mark {kind}"), words]) for kind, words in legend_of(graph)]
    zoom = {"+": "Zoom in", "−": "Zoom out", "Reset": "Show the whole graph", "SVG": "Save as SVG"}
    tools = [
        html.Button(words, className="quiet", title=title, **{"data-zoom": words})
        for words, title in zoom.items()
    ]
    drawing = [html.Div(tools, className="tools"), html.Div(id="graph", className="drawing")]
    legend = [html.H2("Legend"), html.Ul(marks, className="legend")]
    return [
        box(*drawing, className="box large-graph"),
        html.Div([box(*node), box(*legend)], className="side"),
    ]


def node_names(graph: Graph) -> list[str]:
    """The nodes that can be shown: of a network its variables, else all."""
    return [node.name for node in graph.nodes if graph.network is None or node.name in graph.leaves]


def legend_of(graph: Graph) -> list[tuple[str, str]]:
    """The marks that a drawing of the graph has, and what they mean."""
    view = view_of(graph)
    if view.is_network:
        return list(NETWORK_LEGEND.items())
    latent = [len(graph.children(node)) for layer in graph.layers[1:] for node in layer]
    shown = {"aggregation": max(latent, default=0) > 1, "latent": 1 in latent}
    shown["group"] = bool(view.groups)
    return [(kind, words) for kind, words in LEGEND.items() if shown.get(kind, True)]


def register(app: Dash, session: Session) -> None:
    """Wire the pages to the session."""
    model = session.model

    @connect(app, "state.data view.data", "action.data table.data", "state.data")
    def answer(action: Any, table: Any, state: Any) -> Any:
        standing = PageState() if state is None else PageState.from_dict(state)
        before, rows = standing, table["rows"] if table else 0
        with session.lock:
            if action is not None and ctx.triggered_id == "action":
                row_of = None if not table else lambda row: session.row(table, row)
                standing = update(model, standing, action, row_of)
            distances = session.consistency(table)
            try:
                shown = render(model, standing, rows, distances)
            except ValueError as error:
                # Evidence that a model cannot use, such as part of a section that it needs whole.
                standing = replace(before, error=str(error))
                shown = render(model, standing, rows, distances)
        return standing.to_dict(), shown

    @connect(app, "download-answer.data", "export.n_clicks", "state.data", first=False)
    def export(clicks: int | None, state: Any) -> Any:
        if not clicks:
            return no_update
        with session.lock:
            standing = PageState.from_dict(state)
            answered = model.ask(standing.question.given, intervene=standing.intervening)
        return dcc.send_string(answered.to_html(), "answer.html", type="text/html")
