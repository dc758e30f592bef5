"""The studio: a web page that shows a model and answers questions.

Everything is written against `vfg.Model`, so that models of every kind are shown. `server`,
`session`, `components` and the `page` of each folder need the extra `studio`; the rest needs
nothing but the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vfg.studio.asking.model import Answered, ask
from vfg.utils.extras import needs

if TYPE_CHECKING:
    from dash import Dash

__all__ = ["Answered", "ask", "make_app", "serve"]


def serve(model: Any, table: Any = None, *, port: int = 8050, open_browser: bool = True) -> None:
    """Show a model on a web page of this machine, until interrupted.

    The page is served to 127.0.0.1 alone and loads nothing from elsewhere.

    Args:
        model: a path to a model file, a fitted `VFGImputer`, or any `vfg.Model`.
        table: a path to a CSV or Parquet file, a frame or an array to open with it.
        port: to serve on; 0 takes any that is free.
        open_browser: whether to open a browser.

    Raises:
        ImportError: without the extra `studio`.
        ValueError: for a model or a table that cannot be read.
        OSError: if the port is taken.
    """
    with needs("studio"):
        from vfg.studio.server import run
    run(model, table, port, open_browser)


def make_app(model: Any, table: Any = None) -> Dash:
    """The same page as an app that is not served yet, for tests and other servers.

    Args:
        model: as for `serve`.
        table: as for `serve`.

    Raises:
        ImportError: without the extra `studio`.
        ValueError: for a model or a table that cannot be read.
    """
    with needs("studio"):
        from vfg.studio.server import build_app
    return build_app(model, table)
