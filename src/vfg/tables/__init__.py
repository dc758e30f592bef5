"""Mixed tables: what their columns hold, and how they become matrices of real numbers and back."""

from vfg.tables.encoding import Encoding
from vfg.tables.schema import (
    Boolean,
    Categorical,
    ColumnSpec,
    Continuous,
    Date,
    Empty,
    FewValued,
    Identifier,
    Integer,
    Ordinal,
    Schema,
    Whole,
)

__all__ = [
    "Schema",
    "ColumnSpec",
    "Continuous",
    "Whole",
    "FewValued",
    "Integer",
    "Boolean",
    "Categorical",
    "Ordinal",
    "Date",
    "Empty",
    "Identifier",
    "Encoding",
]
