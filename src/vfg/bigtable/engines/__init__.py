"""Who does the work on a big table: one machine, or many. All give the same bits."""

from vfg.bigtable.engines.base import Engine, Part, Work, engine_named

__all__ = ["Engine", "Part", "Work", "engine_named"]
