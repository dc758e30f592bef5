"""The studio as a Dash app, and the server that shows it on this machine alone."""

from __future__ import annotations

import logging
import re
import secrets
import webbrowser
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from threading import Timer
from typing import Any

import flask
from dash import ClientsideFunction, Dash, Input, Output, dcc, html, set_props
from werkzeug.serving import BaseWSGIServer, make_server

from vfg.studio.asking import page as ask_page
from vfg.studio.asking.model import OpenModel, open_model
from vfg.studio.exploring import page as explore_page
from vfg.studio.filling import page as fill_page
from vfg.studio.session import Session

HOST = "127.0.0.1"
OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'"
)
"""Nothing is loaded from anywhere else, and no other page may show this one."""
TABS = {"ask": "Ask", "graph": "Graph", "fill": "Fill", "explore": "Explore"}
MOST_REQUEST = 128 * 2**20
"""Bytes of a request: a file of the largest size in base 64, and what is beside it."""


def build_app(model: Any, table: Any = None) -> Dash:
    """The app of a model; see `vfg.studio.make_app`."""
    session = Session(open_model(model), table)
    app = Dash(
        "vfg.studio",
        assets_folder=str(Path(__file__).parent / "assets"),
        title="vfg studio",
        update_title="",
        serve_locally=True,
        on_error=_show_error,
    )
    app.layout = lambda: page(session)
    guard(app.server)
    # What happens in the browser alone.
    for name, output, changed in (
        ("show", "shown", Input("view", "data")),
        ("showNode", "sent", Input("node-by-name", "value")),
    ):
        app.clientside_callback(ClientsideFunction("studio", name), Output(output, "data"), changed)
    ask_page.register(app, session)
    fill_page.register(app, session)
    explore_page.register(app, session)
    return app


def _show_error(error: Exception) -> None:
    """Say on the page what went wrong; every callback's output stays as it was."""
    expected = isinstance(error, ValueError | TypeError | ImportError)
    words = str(error) if expected else f"Something went wrong: {type(error).__name__}: {error}"
    set_props("notice", {"children": words})


def guard(server: flask.Flask) -> None:
    """Answer to this machine's own names only, take no huge requests, load nothing from afar."""
    server.config["MAX_CONTENT_LENGTH"] = MOST_REQUEST
    instance = secrets.token_hex(4)

    def _own_names() -> None:
        # A page elsewhere can point a name of its own at this machine; it must not get answers.
        if re.sub(r":\d+$", "", flask.request.host) not in OWN_NAMES:
            flask.abort(403)
        # The limit holds for a stated length; browsers state it.
        if "chunked" in flask.request.headers.get("Transfer-Encoding", "").lower():
            flask.abort(411)

    def _headers(response: flask.Response) -> flask.Response:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        if "vfg-client" not in flask.request.cookies:
            name = secrets.token_urlsafe(8)
            response.set_cookie("vfg-client", name, httponly=True, samesite="Strict")
        return response

    server.before_request(_own_names)
    server.after_request(_headers)
    server.route("/alive")(lambda: {"instance": instance})


def page(session: Session) -> Any:
    """Everything on the page."""
    model = session.model
    panels = {
        "ask": ask_page.build_ask(),
        "graph": ask_page.build_graph(session),
        "fill": fill_page.build(model),
        "explore": explore_page.build(model),
    }
    stopped = "The studio has stopped. Start it again, and this page continues by itself."
    main = html.Main([_panel(*panel) for panel in panels.items()], id="main", tabIndex="-1")
    parts = [
        *_stores(session),
        html.A("Skip to the page", href="#main", className="skip"),
        _header(model),
        html.Div(id="notice", role="alert", className="notice"),
        html.Div(stopped, id="offline", role="alert", className="notice", hidden=True),
        html.Div(id="status", role="status", className="unseen"),
        main,
    ]
    return html.Div(parts, className="vfg-cards studio")


def _stores(session: Session) -> list[Any]:
    kept: dict[str, Any] = {"table": session.first, "tab": "ask"}
    kept |= dict.fromkeys(("action", "state", "view", "shown", "sent", "filled", "filled-page"))
    return [
        *(dcc.Store(id=name, data=data) for name, data in kept.items()),
        *(dcc.Download(id=name) for name in ("download-table", "download-answer")),
    ]


def _header(model: OpenModel) -> Any:
    tabs = [
        html.Button(
            words, id=f"tab-{name}", role="tab", className="tab",
            tabIndex="0" if name == "ask" else "-1",
            **{"aria-selected": "true" if name == "ask" else "false",
               "aria-controls": f"panel-{name}", "data-tab": name},
        )
        for name, words in TABS.items()
    ]  # fmt: skip
    brand = [html.Span("vfg", className="brand"), html.Span(" studio", className="brand-2")]
    shown = [html.Strong(model.file.rsplit("/", 1)[-1]), html.Span(model.summary)]
    parts = [
        html.H1(brand, className="brands"),
        html.Nav(html.Div(tabs, role="tablist", className="tabs"), **{"aria-label": "Pages"}),
        html.Div(shown, className="model"),
    ]
    return html.Header(parts, className="topbar")


def _panel(name: str, children: list[Any]) -> Any:
    options = {"role": "tabpanel", "className": f"panel panel-{name}", "hidden": name != "ask"}
    labels = {"aria-labelledby": f"tab-{name}"}
    return html.Section(children, id=f"panel-{name}", **options, **labels)


def start_server(app: Dash, port: int) -> BaseWSGIServer:
    """A server on this machine alone, ready to serve."""
    try:
        with redirect_stderr(StringIO()):  # werkzeug prints a message of its own
            return make_server(HOST, port, app.server, threaded=True)
    except (OSError, SystemExit) as error:
        raise OSError(
            f"port {port} of {HOST} is taken; choose another one with port= (or --port), or 0 for "
            "any"
        ) from error


def run(model: Any, table: Any, port: int, open_browser: bool) -> None:
    """Serve until interrupted; see `vfg.studio.serve`."""
    # One line for every request would drown the address.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = start_server(build_app(model, table), port)
    address = f"http://{HOST}:{server.server_port}"
    print(f"vfg studio: {address}   (stop with Ctrl+C)", flush=True)
    if open_browser:
        Timer(0.5, webbrowser.open, [address]).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("stopped")
    finally:
        server.server_close()
