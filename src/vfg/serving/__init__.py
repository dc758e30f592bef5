"""A model over HTTP: filled rows, intervals, probabilities and answers."""

from vfg.serving.server import Limits, make_server, serve

__all__ = ["Limits", "make_server", "serve"]
