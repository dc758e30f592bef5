"""Tables on the page: reading them, where they have gaps, filling them, and single cells."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vfg.extras import needs

from .findings import Finding
from .subjects import Subject
from .table_subject import TableSubject
from .variables import Array, Value, Variable, days_of, listed

MOST_BYTES = 64 * 2**20
"""The largest file that a page takes."""
MOST_ROWS = 100_000
"""The longest table that a page fills."""
ENDINGS = (".csv", ".tsv", ".txt", ".parquet")


@dataclass(frozen=True)
class Table:
    """A table that fits a model.

    Args:
        name: of its file.
        whole: the frame as it came.
        frame: the model's columns, in its order and kinds.
        gaps: which of these cells are missing, `(rows, columns)`.
    """

    name: str
    whole: Any
    frame: Any
    gaps: Array

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """The names of the model's columns."""
        return [str(name) for name in self.frame.columns]

    @property
    def summary(self) -> str:
        """The table in half a line."""
        missing = int(self.gaps.sum())
        share = missing / max(self.gaps.size, 1)
        return f"{self.rows} rows · {len(self.columns)} columns · {missing} gaps ({share:.1%})"


def read_frame(name: str, data: bytes) -> Any:
    """A file's bytes as a frame of pandas.

    Raises:
        ValueError: for a file that is too large, empty, of another kind or broken, in a sentence.
    """
    with needs("table"):
        import pandas
    ending = Path(name).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{name!r} is no table that can be read; choose {', '.join(ENDINGS)}")
    if len(data) > MOST_BYTES:
        raise ValueError(
            f"{name!r} has {len(data) / 2**20:.0f} MiB, and the page takes "
            f"{MOST_BYTES / 2**20:.0f}; fill it with: vfg impute"
        )
    try:
        if ending == ".parquet":
            frame = pandas.read_parquet(io.BytesIO(data))
        else:
            text = data.decode("utf-8-sig")
            frame = pandas.read_csv(io.StringIO(text), sep=separator(text, ending))
    except UnicodeDecodeError:
        raise ValueError(f"{name!r} is not text in UTF-8; save it as CSV (UTF-8)") from None
    except Exception as error:
        # Parsers fail in many ways, and every one of them is a file that is no table.
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{name!r} cannot be read as a table: {reason}") from error
    if not len(frame) or not len(frame.columns):
        raise ValueError(f"{name!r} has no rows; choose a table with a header and rows")
    return frame


def separator(text: str, ending: str) -> str:
    r"""What stands between the cells of a text: the most frequent candidate of its first line.

    Example:
        >>> separator("a;b;c", ".csv"), separator("a,b", ".csv"), separator("a", ".tsv")
        (';', ',', '\t')
    """
    first = text.partition("\n")[0]
    candidates = ("\t", ",", ";") if ending == ".tsv" else (",", ";", "\t")
    return max(candidates, key=first.count)


def open_table(subject: Subject, frame: Any, name: str = "table") -> Table:
    """A frame as a table of a model.

    Args:
        subject: the model.
        frame: a frame of pandas, or an array; it may have more columns.
        name: of its file.

    Raises:
        ValueError: if columns are missing, or hold what the model cannot read.
    """
    with needs("table"):
        import pandas
    names = list(subject.variables)
    if not hasattr(frame, "columns"):
        frame = pandas.DataFrame(np.asarray(frame))
    if not isinstance(frame, pandas.DataFrame):
        frame = frame.to_pandas()
    labels = {str(label): label for label in frame.columns}
    if len(labels) == len(names) and list(labels) == [str(k) for k in range(len(names))]:
        labels = dict(zip(names, frame.columns, strict=True))
    missing = [column for column in names if column not in labels]
    if missing:
        raise ValueError(
            f"{name!r} lacks the column{'' if len(missing) == 1 else 's'} {listed(missing)}; "
            f"the model has {listed(names)}"
        )
    columns = {
        column: _conformed(frame[labels[column]], subject.variables[column]) for column in names
    }
    fitting = pandas.DataFrame(columns, index=frame.index)
    if isinstance(subject, TableSubject):
        fitting.columns = pandas.Index([subject.labels[column] for column in names])
    return Table(name, frame, fitting, np.asarray(fitting.isna(), dtype=bool))


def _conformed(series: Any, variable: Variable) -> Any:
    """A column in the kind that the model learned, as text files do not tell kinds."""
    import pandas

    try:
        if variable.kind == "date" and not pandas.api.types.is_datetime64_any_dtype(series):
            return pandas.to_datetime(series)
        if variable.kind == "choice" and any(isinstance(c, str) for c in variable.categories):
            if not pandas.api.types.is_numeric_dtype(series):
                return series
            whole = (series.dropna() % 1 == 0).all()
            text = series.map(lambda x: str(int(x)) if whole else str(x), na_action="ignore")
            return text.astype(object)
        if variable.kind in ("number", "integer"):
            if pandas.api.types.is_timedelta64_dtype(series):
                return series
            return pandas.to_numeric(series)
    except (ValueError, TypeError) as error:
        wanted = "dates" if variable.kind == "date" else "numbers"
        raise ValueError(f"column {variable.name!r} must hold {wanted}: {error}") from error
    return series


def missing_map(gaps: Array, most_rows: int = 160) -> Array:
    """The share of missing cells in bands of rows, `(bands, columns)`.

    Example:
        >>> missing_map(np.array([[True], [False], [True], [True]]), most_rows=2)
        array([[0.5],
               [1. ]])
    """
    rows = len(gaps)
    bands = min(rows, most_rows)
    edges = np.linspace(0, rows, bands + 1).round().astype(int)
    sums = np.add.reduceat(gaps.astype(float), edges[:-1], axis=0)
    return np.asarray(sums / np.diff(edges)[:, None])


def filled(subject: Subject, table: Table) -> Any:
    """The whole frame with the gaps of the model's columns filled.

    Raises:
        ValueError: for a table that is too long for a page.
    """
    if table.rows > MOST_ROWS:
        raise ValueError(
            f"the table has {table.rows} rows, and the page fills at most {MOST_ROWS}; "
            "fill it with: vfg impute"
        )
    if isinstance(subject, TableSubject):
        model = subject.model
        found = model.means(*model.encode(table.frame))
        parts = model.encoding.decode(model.spread_out(found), table.frame)
    else:
        import pandas

        places = getattr(subject, "places", {})
        answer = subject.model.infer(table.frame.to_numpy(dtype=np.float64))
        cells = table.frame.to_numpy(dtype=np.float64, copy=True)
        expected = np.empty_like(cells)
        for leaf, columns in subject.model.sections.positions.items():
            expected[:, list(columns)] = answer.mean[leaf].numpy()
        order = [places[name] for name in table.columns]
        cells[table.gaps] = expected[:, order][table.gaps]
        parts = pandas.DataFrame(cells, columns=table.frame.columns, index=table.frame.index)
    whole = table.whole.copy()
    labels = {str(label): label for label in whole.columns}
    for place, column in enumerate(table.columns):
        target = labels.get(column, whole.columns[min(place, len(whole.columns) - 1)])
        whole[target] = parts.iloc[:, place]
    return whole


def row_evidence(subject: Subject, table: Table, row: int, without: str = "") -> dict[str, Value]:
    """What a row of a table, counted from 1, gives as evidence.

    Raises:
        ValueError: for a row that the table does not have.
    """
    if not 1 <= row <= table.rows:
        raise ValueError(f"the table has the rows 1 to {table.rows}, but got {row}")
    found: dict[str, Value] = {}
    for place, column in enumerate(table.columns):
        variable = subject.variables[column]
        if table.gaps[row - 1, place] or column == without or variable.idle:
            continue
        value = _value(table.frame.iat[row - 1, place], variable)
        if value is not None:
            found[column] = value
    return found


def column_cells(subject: Subject, table: Table, column: str, rows: Array) -> list[Value | None]:
    """Some cells of a column as values of its variable; None for gaps and unknown categories."""
    variable, place = subject.variable(column), table.columns.index(column)
    found: list[Value | None] = []
    for row in rows.tolist():
        known = not table.gaps[row, place]
        found.append(_value(table.frame.iat[row, place], variable) if known else None)
    return found


def _value(cell: Any, variable: Variable) -> Value | None:
    try:
        return variable.parse(_plain(cell, variable))
    except ValueError:
        return None  # A category that the model never saw is no evidence.


def _plain(cell: Any, variable: Variable) -> Any:
    if variable.kind == "date":
        return cell.isoformat()
    if hasattr(cell, "to_timedelta64"):
        return float(days_of(np.array([cell.to_timedelta64()]))[0])
    return cell.item() if isinstance(cell, np.generic) else cell


@dataclass(frozen=True)
class Cell:
    """One cell of a table, as the model sees it from the rest of its row.

    Args:
        finding: what is expected there, with the draws behind it.
        actual: what stands there; None if it is a gap.
        influence: how far other cells of the row moved it, the strongest first.
    """

    finding: Finding
    actual: Value | None
    influence: tuple[tuple[str, float], ...]


def cell(subject: Subject, table: Table, row: int, column: str) -> Cell:
    """What the model expects in one cell, given the rest of its row."""
    variable = subject.variable(column)
    evidence = row_evidence(subject, table, row, without=column)
    whole = row_evidence(subject, table, row)
    findings = subject.answer(evidence)
    moved = [(name, moves.get(column, 0.0)) for name, moves in findings.influence.items()]
    ranked = tuple(sorted(moved, key=lambda pair: -pair[1]))
    return Cell(findings.variables[variable.name], whole.get(column), ranked)


def comparison(table: Table, done: Any, column: str) -> Mapping[str, Array]:
    """Observed and filled cells of a column, apart."""
    place = table.columns.index(column)
    labels = {str(label): label for label in done.columns}
    cells = done[labels.get(column, done.columns[min(place, len(done.columns) - 1)])]
    missing = table.gaps[:, place]
    values = cells.to_numpy()
    return {"observed": values[~missing], "filled": values[missing]}


def to_csv(frame: Any) -> str:
    """A frame as the text of a CSV file."""
    return str(frame.to_csv(index=False))
