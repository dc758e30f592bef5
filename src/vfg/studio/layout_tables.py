"""The pages about tables: Fill and Explore."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from vfg.studio.asking import OpenModel
from vfg.studio.filling import ENDINGS, MOST_BYTES

PLOT = {"displaylogo": False, "displayModeBar": False, "responsive": True}


def box(children: list[Any], **options: Any) -> Any:
    """A framed part of the page."""
    return html.Div(children, **{"className": "box", **options})


def _plot(identity: str, height: int = 300) -> Any:
    return dcc.Loading(
        dcc.Graph(id=identity, config=PLOT, style={"height": f"{height}px"}),
        type="dot",
        delay_show=400,
    )


def _choice(identity: str, words: str, options: list[str], value: str | None = None) -> Any:
    return html.Label(
        [
            html.Span(words),
            dcc.Dropdown(options, value, id=identity, clearable=False, maxHeight=260),
        ],
        className="labelled",
    )


def _number(identity: str, words: str, value: int, **limits: Any) -> Any:
    field = dcc.Input(
        id=identity, type="number", value=value, debounce=0.3, className="field", **limits
    )
    return html.Label([html.Span(words), field], className="labelled narrow")


def fill_page(model: OpenModel) -> list[Any]:
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
                            html.Button("Fill the gaps", id="fill", className="primary"),
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
                            _number("cell-row", "Row", 1, min=1, step=1),
                            _choice("cell-column", "Column", columns, columns[0]),
                        ],
                        className="row",
                    ),
                    html.Div(id="cell-text", className="cell-text", role="status"),
                    _plot("cell-plot", 200),
                ]
            ),
        ],
        className="side",
    )
    main = html.Div(
        [
            box([html.H2("Where the gaps are"), _plot("missing-plot", 340)]),
            box(
                [
                    html.Div(
                        [
                            html.H2("Observed and filled"),
                            _choice("compare-column", "Column", columns, columns[0]),
                        ],
                        className="box-head wide",
                    ),
                    _plot("compare-plot", 280),
                ]
            ),
        ],
        className="content",
    )
    return [side, main]


def explore_page(model: OpenModel) -> list[Any]:
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
                        _choice("colour", "Coloured by", ["nothing", *columns], columns[0]),
                    ],
                    className="row",
                ),
                _plot("embedding-plot", 360),
            ]
        ),
        box(
            [
                html.H2("Moving one latent coordinate"),
                html.Div(
                    [
                        _choice("node", "Node", latent, latent[0] if latent else None),
                        _number("coordinate", "Coordinate", 1, min=1, step=1),
                        _number("start-row", "From row (0: none)", 0, min=0, step=1),
                    ],
                    className="row",
                ),
                html.Div(id="traversal-pictures"),
                _plot("traversal-plot", 360),
            ]
        ),
        box(
            [
                html.H2("Samples"),
                html.Div(
                    [
                        _number("sample-seed", "Seed", 0, min=0, step=1),
                        _number("sample-count", "Rows", 12, min=1, max=200, step=1),
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
                        html.Button("Hide cells and look", id="calibrate"),
                    ],
                    className="box-head",
                ),
                html.P(
                    "Known numbers of the open table are hidden and inferred; intervals of a level "
                    "should hold that share of them.",
                    className="note",
                ),
                _plot("calibration-plot", 280),
                html.Div(id="calibration-table", className="scroll"),
            ]
        ),
        box(
            [
                html.H2("Training history"),
                dcc.Upload(
                    html.Div([html.Button("Pick a history (JSON)", type="button")]), id="history"
                ),
                _plot("history-plot", 280),
            ]
        ),
    ]
