"""Tables larger than memory: read in pieces, filled shard by shard, written whole."""

from .filling import Filling, filled_batch, filled_schema
from .fitting import fit
from .imputing import Imputed, impute
from .reading import Source, open_table
from .writing import Sink, write_table

__all__ = [
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
