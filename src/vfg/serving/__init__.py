"""A model over HTTP: rows in, filled rows, intervals and probabilities out."""

from vfg.serving.server import Limits, make_server, serve

__all__ = ["Limits", "make_server", "serve"]
