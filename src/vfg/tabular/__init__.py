"""Mixed tables: what their columns hold, and how they become matrices of real numbers and back."""

from .encoding import Encoding
from .schema import Schema
from .specs import Boolean, Categorical, ColumnSpec, Continuous, Date, Integer, Ordinal

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
