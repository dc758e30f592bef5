"""Who does the work on a big table: one machine, or many. All give the same bits."""

from vfg.bigtable.engines.base import Engine, FillTask, Part, engine_named

__all__ = ["Engine", "Part", "FillTask", "engine_named"]
