"""The command line: `vfg`, and the same as `python -m vfg`.

Every command is a file of its own and imports torch, pandas and the like only when it runs, so
that help and completion are fast.
"""

from vfg.cli.app import app, main

__all__ = ["app", "main"]
