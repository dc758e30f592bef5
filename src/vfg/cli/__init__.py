"""The command line: `vfg`, and the same as `python -m vfg`.

Every command is a file of its own. They import torch, pandas and the like only while they run, so
that help and completion answer at once.
"""

from vfg.cli.app import app, main

__all__ = ["app", "main"]
