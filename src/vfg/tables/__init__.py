"""Mixed tables: what their columns hold, and how they become matrices of real numbers and back."""

from vfg.tables.encoding import Encoding
from vfg.tables.schema import (
    Boolean,
    Categorical,
    ColumnSpec,
    Continuous,
    Date,
    Integer,
    Ordinal,
    Schema,
)

__all__ = [
    "Schema",
    "ColumnSpec",
    "Continuous",
    "Integer",
    "Boolean",
    "Categorical",
    "Ordinal",
    "Date",
    "Encoding",
]
