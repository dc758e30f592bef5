"""What an imputer returns: columns that go, zeros and indicators that come, and their names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in

from vfg.tables.cells import Array, Mask
from vfg.tables.frames import open_table
from vfg.tables.numeric_frames import is_frame
from vfg.tables.specs import Continuous, Integer

if TYPE_CHECKING:
    from vfg.imputation.imputer import VFGImputer


def finished(imputer: VFGImputer, filled: Any, gaps: Mask, *, indicate: bool) -> Any:
    """A filled table with all that the settings of an imputer ask for.

    Args:
        imputer: a fitted one.
        filled: the table, with gaps in columns that had no observed cell in fitting.
        gaps: which cells were missing.
        indicate: whether columns that mark gaps may be appended.
    """
    if imputer.keep_empty_features:
        kept = _with_zeros(imputer, filled, gaps)
    else:
        kept = _without_columns(filled, dropped_columns(imputer))
    if indicate and imputer.add_indicator:
        return _with_indicator(imputer, kept, gaps[:, imputer.gaps_in_fit_])
    return kept


def dropped_columns(imputer: VFGImputer) -> list[int]:
    """Positions of the columns that had no observed cell in fitting, unless they are kept."""
    parts = imputer.model_.encoding.parts.values()
    return [k for k, part in enumerate(parts) if part.empty and not imputer.keep_empty_features]


def feature_names(imputer: VFGImputer, input_features: Any) -> Array:
    """Names of the returned columns."""
    names = _check_feature_names_in(imputer, input_features)
    kept = np.delete(names, dropped_columns(imputer))
    if not imputer.add_indicator:
        return kept
    marks = [f"missingindicator_{name}" for name in names[imputer.gaps_in_fit_]]
    return np.concatenate([kept, np.asarray(marks, dtype=object)])


def _with_zeros(imputer: VFGImputer, filled: Any, gaps: Mask) -> Any:
    """The table with 0 in the gaps of empty columns of numbers; other empty columns stay."""
    encoding = imputer.model_.encoding
    zeros = {
        place: (gaps[:, place], np.zeros(int(gaps[:, place].sum())))
        for place, (label, part) in enumerate(encoding.parts.items())
        if part.empty and isinstance(encoding.schema[label], Continuous | Integer)
    }
    return open_table(filled, encoding.missing_values).filled(zeros) if zeros else filled


def _without_columns(filled: Any, dropped: list[int]) -> Any:
    if not dropped:
        return filled
    if not is_frame(filled):
        return np.delete(filled, dropped, axis=1)
    if _is_pandas(filled):
        return filled.iloc[:, [k for k in range(filled.shape[1]) if k not in dropped]]
    import narwhals as nw

    frame = nw.from_native(filled, eager_only=True)
    return frame.select(
        [name for k, name in enumerate(frame.columns) if k not in dropped]
    ).to_native()


def _with_indicator(imputer: VFGImputer, filled: Any, marked: Mask) -> Any:
    """The table with a column of truth values for every column that had gaps in fitting."""
    if not is_frame(filled):
        return _joined(filled, marked)
    names = feature_names(imputer, None).tolist()
    marks = dict(zip(names[filled.shape[1] :], marked.T, strict=True))
    if _is_pandas(filled):
        # Columns without names of their own get those that set_output gives them.
        return filled.set_axis(names[: filled.shape[1]], axis=1).assign(**marks)
    import narwhals as nw

    frame = nw.from_native(filled, eager_only=True)
    backend = frame.implementation
    added = [nw.new_series(k, v, nw.Boolean(), backend=backend) for k, v in marks.items()]
    return frame.with_columns(*added).to_native()


def _joined(filled: Array, marked: Mask) -> Array:
    """Numbers with 0 and 1; anything else with truth values, as objects."""
    dtype = filled.dtype if filled.dtype.kind in "fiub" else np.dtype(object)
    return np.hstack([filled.astype(dtype, copy=False), marked.astype(dtype)])


def _is_pandas(frame: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(frame, pandas.DataFrame)
