"""Tables larger than memory: read in pieces, filled shard by shard, written to files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vfg.utils.lazy import lazy_names

if TYPE_CHECKING:
    from vfg.bigtable.fill_batch import Filling, filled_batch, filled_schema
    from vfg.bigtable.fill_job import Imputed, impute
    from vfg.bigtable.fitting import fit
    from vfg.bigtable.formats import Dialect
    from vfg.bigtable.source import Source, open_table
    from vfg.bigtable.writing import Sink, write_table

__all__ = [
    "Dialect",
    "Source",
    "open_table",
    "Sink",
    "write_table",
    "Filling",
    "filled_batch",
    "filled_schema",
    "fit",
    "Imputed",
    "impute",
]

# Workers import the modules that fill and write, but not those that fit, which take seconds.
__getattr__ = lazy_names(
    __name__,
    {
        "fill_batch": ("Filling", "filled_batch", "filled_schema"),
        "fill_job": ("Imputed", "impute"),
        "fitting": ("fit",),
        "formats": ("Dialect",),
        "source": ("Source", "open_table"),
        "writing": ("Sink", "write_table"),
    },
    globals(),
)
