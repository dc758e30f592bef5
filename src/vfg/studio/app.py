"""The studio as a Dash app, and the server that shows it on this machine alone."""

from __future__ import annotations

import logging
import secrets
import webbrowser
from pathlib import Path
from threading import Timer
from typing import Any

import flask
from dash import ClientsideFunction, Dash, Input, Output, State, set_props
from werkzeug.serving import BaseWSGIServer, make_server

from vfg.studio import callbacks_ask, callbacks_explore, callbacks_fill
from vfg.studio.asking import open_model
from vfg.studio.layout import page
from vfg.studio.session import Session

HOST = "127.0.0.1"
OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'"
)
"""Nothing is loaded from anywhere else, and no other page may show this one."""
MOST_REQUEST = 128 * 2**20


def build_app(model: Any, table: Any = None) -> Dash:
    """The app of a model; see `vfg.studio.make_app`."""
    session = Session(open_model(model), table)
    app = Dash(
        "vfg.studio",
        assets_folder=str(Path(__file__).parent / "assets"),
        title="vfg studio",
        update_title="",
        serve_locally=True,
        on_error=_told,
    )
    app.layout = lambda: page(session)
    guard(app.server)
    register_client(app)
    callbacks_ask.register(app, session)
    callbacks_fill.register(app, session)
    callbacks_explore.register(app, session)
    return app


def _told(error: Exception) -> None:
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
        name = (
            flask.request.host.rsplit(":", 1)[0]
            if ":" in flask.request.host
            else (flask.request.host)
        )
        if name not in OWN_NAMES:
            flask.abort(403)

    server.before_request(_own_names)

    def _headers(response: flask.Response) -> flask.Response:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    server.after_request(_headers)

    def _alive() -> dict[str, str]:
        return {"instance": instance}

    server.route("/alive")(_alive)


def register_client(app: Dash) -> None:
    """What happens in the browser alone."""
    app.clientside_callback(
        ClientsideFunction("studio", "show"), Output("shown", "data"), Input("view", "data")
    )
    for name in ("ask-graph", "graph"):
        app.clientside_callback(
            ClientsideFunction("studio", "style"),
            Output(name, "stylesheet"),
            Input("theme", "data"),
            Input("view", "data"),
            State("themes", "data"),
        )
    app.clientside_callback(
        ClientsideFunction("studio", "tapped"),
        Output("sent", "data"),
        Input("ask-graph", "tapNodeData"),
        Input("graph", "tapNodeData"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("studio", "hovered"),
        Output("hovered", "data"),
        Input("graph", "mouseoverNodeData"),
        Input("graph", "tapNodeData"),
        Input("node-by-name", "value"),
        State("graph", "elements"),
        prevent_initial_call=True,
    )


def start_server(app: Dash, port: int) -> BaseWSGIServer:
    """A server on this machine alone, ready to serve.

    Raises:
        OSError: if the port is taken, in a sentence that says what to do.
    """
    try:
        return make_server(HOST, port, app.server, threaded=True)
    except (OSError, SystemExit) as error:
        raise OSError(
            f"port {port} of this machine is taken; choose another one with port= (or --port), or "
            "0 for any"
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
