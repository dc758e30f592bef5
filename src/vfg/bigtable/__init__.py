"""Tables larger than memory: read in pieces, filled shard by shard, written whole."""

from vfg.bigtable.fill_batch import Filling, filled_batch, filled_schema
from vfg.bigtable.fill_job import Imputed, impute
from vfg.bigtable.fit import fit
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
