"""What the service answers, apart from HTTP: rows as JSON or Arrow, questions, batches."""

from __future__ import annotations

import json
import math
import queue
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vfg.graph.checks import suggestion
from vfg.tables.numeric import STEPS
from vfg.utils.extras import needs

if TYPE_CHECKING:
    import pyarrow

    from vfg.inference.variables import Model, Variable

Row = Mapping[str, Any]

BATCH = 4096
"""Rows that are filled in one call. More than this gains nothing: 16 columns fill at the same rate
from about 1,000 rows on."""


def to_json(value: Any) -> Any:
    """A cell as JSON has it: dates as ISO text, missing and infinite numbers as null.

    Example:
        >>> to_json(np.float64("nan")), to_json(np.int64(3)), to_json(np.datetime64("2020-01-02"))
        (None, 3, '2020-01-02T00:00:00')
    """
    if isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value):
        return None
    if isinstance(value, np.datetime64):
        return value.astype("M8[us]").item().isoformat()
    if isinstance(value, np.timedelta64):
        return str(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def is_missing(value: Any) -> bool:
    """Whether a cell of a request is missing: null, or a number that is none."""
    return value is None or (isinstance(value, float) and math.isnan(value))


@dataclass
class Service:
    """A fitted model and the questions that requests ask it.

    Concurrent requests to fill wait in a queue; a thread takes all that wait and fills their rows
    in one call. Other questions take turns. A request has the answer that it has alone.

    Args:
        model: of any kind.
        most_rows: rows of one request.
    """

    model: Model
    most_rows: int = 10_000
    _queue: queue.Queue[tuple[pyarrow.Table, Future[pyarrow.Table]] | None] = field(
        default_factory=queue.Queue
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.variables: dict[str, Variable] = dict(self.model.variables)
        self._days = _columns_of_days(self.model)
        self._thread = threading.Thread(target=self._work, name="vfg fills", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer what waits, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def describe(self) -> dict[str, Any]:
        """The columns that requests may have: kind, range or categories."""
        return {
            "kind": type(self.model).__name__,
            "columns": [
                {"name": name, "kind": variable.kind}
                | (
                    {"categories": [to_json(c) for c in variable.categories]}
                    if variable.kind == "choice"
                    else {
                        "low": variable.value_of(variable.low),
                        "high": variable.value_of(variable.high),
                    }
                )
                for name, variable in self.variables.items()
            ],
        }

    def read_rows(self, body: Any) -> list[dict[str, Any]]:
        """The rows of a request, checked: `{"rows": [...]}`, a list of rows, or one row.

        Raises:
            ValueError: for anything else, unknown columns and values that a column cannot have.
        """
        rows = body.get("rows", [body]) if isinstance(body, dict) else body
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError('expected {"rows": [{"column": value, ...}, ...]}, one object per row')
        if not rows:
            raise ValueError("expected at least one row, but rows is empty")
        if len(rows) > self.most_rows:
            raise ValueError(
                f"a request may have {self.most_rows:,} rows, but this one has {len(rows):,}; send "
                "them in several requests"
            )
        return [
            {name: self._cell(name, value, k) for name, value in row.items()}
            for k, row in enumerate(rows)
        ]

    def _cell(self, name: str, value: Any, row: int) -> Any:
        if name not in self.variables:
            raise ValueError(
                f"row {row}: there is no column {name!r}; {suggestion(name, self.variables)}"
            )
        if is_missing(value):
            return None
        if isinstance(value, dict | list):
            raise ValueError(f"row {row}: column {name!r} takes one value, but got {value!r}")
        if self._is_kept(name, value):
            return value
        try:
            return self.variables[name].parse(value)
        except ValueError as error:
            raise ValueError(f"row {row}: {error}") from None

    def _is_kept(self, name: str, value: Any) -> bool:
        """Whether a cell is kept and is no evidence: an identifier or an unseen category."""
        variable = self.variables[name]
        if variable.kind != "choice" or (not variable.idle and value in variable.categories):
            return False
        known = {type(category) for category in variable.categories}
        return known <= {type(value)} and (variable.idle or known == {str})

    def _format(self, name: str, value: Any) -> Any:
        """A cell of an answer; dates of whole days without a time."""
        cell = to_json(value)
        return cell[:10] if name in self._days and isinstance(cell, str) else cell

    def fill(self, rows: Sequence[Row]) -> Future[pyarrow.Table]:
        """The filled rows as an Arrow table, when their turn has come."""
        return self.fill_table(self.to_arrow(rows))

    def fill_table(self, table: pyarrow.Table) -> Future[pyarrow.Table]:
        """A filled Arrow table, when its turn has come."""
        future: Future[pyarrow.Table] = Future()
        self._queue.put((table, future))
        return future

    def infer(
        self, rows: Sequence[Row], targets: Sequence[str], level: float
    ) -> list[dict[str, dict[str, Any]]]:
        """By row and target: the mean and the ends of an interval, or probabilities.

        Cells that are given have the given value alone.

        Raises:
            ValueError: for targets that are no columns.
        """
        for name in targets:
            if name not in self.variables:
                hint = suggestion(str(name), self.variables)
                raise ValueError(f"there is no column {name!r}; {hint}")
        kinds = {name: self.variables[name].kind == "choice" for name in targets}
        with self._lock:
            evidence = [
                {k: x for k, x in row.items() if not (is_missing(x) or self._is_kept(k, x))}
                for row in rows
            ]
            answer = self.model.infer(evidence, list(targets))
            means = answer.mean
            ends = answer.interval(level) if not all(kinds.values()) else None
            shares = answer.probabilities if any(kinds.values()) else None
            categories = answer.categories
        answers: list[dict[str, dict[str, Any]]] = [{} for _ in rows]
        parts: list[dict[str, Any]] = []
        for name, is_choice in kinds.items():
            centre = _flat(means[name])
            if is_choice and shares is not None:
                texts = [str(to_json(category)) for category in categories[name]]
                values = np.asarray(shares[name]).reshape(len(rows), -1).tolist()
                parts = [{"probabilities": dict(zip(texts, row, strict=True))} for row in values]
            elif ends is not None:
                low, high = _flat(ends[0][name]), _flat(ends[1][name])
                parts = [
                    {"interval": [self._format(name, a), self._format(name, b)]}
                    for a, b in zip(low, high, strict=True)
                ]
            for k, row in enumerate(rows):
                if is_missing(row.get(name)):
                    answers[k][name] = {"mean": self._format(name, centre[k]), **parts[k]}
                else:
                    answers[k][name] = {"given": row[name]}
        return answers

    def to_arrow(self, rows: Sequence[Row]) -> pyarrow.Table:
        """Rows as a table with every column of the model; cells that are not given are null."""
        with needs("table"):
            import pyarrow
        columns = {}
        for name, variable in self.variables.items():
            cells = [row.get(name) for row in rows]
            if variable.kind == "date":
                moments = np.array([np.datetime64(cell or "NaT", "us") for cell in cells])
                columns[name] = pyarrow.array(moments)
            elif variable.kind == "choice":
                given = [cell for cell in cells if cell is not None]
                own = pyarrow.array([*given, *variable.categories[:1]]).type
                columns[name] = pyarrow.array(cells, type=own)
            else:
                columns[name] = pyarrow.array(cells, type=pyarrow.float64())
        return pyarrow.table(columns)

    def to_rows(self, table: pyarrow.Table) -> list[dict[str, Any]]:
        """The rows of a filled table, whole numbers without a point."""
        columns: dict[str, Iterable[Any]] = {}
        for name in table.column_names:
            cells = [self._format(name, cell) for cell in table[name].to_pylist()]
            variable = self.variables.get(name)
            if variable is not None and variable.kind == "integer":
                cells = [cell if cell is None else round(cell) for cell in cells]
            columns[name] = cells
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _work(self) -> None:
        """Take all requests that wait, and fill them together."""
        held: tuple[pyarrow.Table, Future[pyarrow.Table]] | None = None
        while (first := held or self._queue.get()) is not None:
            held, batch, rows = None, [first], len(first[0])
            while rows < BATCH and not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    self._queue.put(None)
                    break
                if following[0].schema != first[0].schema:
                    held = following
                    break
                batch.append(following)
                rows += len(following[0])
            self._answer(batch)

    def _answer(self, batch: list[tuple[pyarrow.Table, Future[pyarrow.Table]]]) -> None:
        """Fill some requests in one call; each by itself if that fails, so that one hurts none."""
        import pyarrow

        try:
            with self._lock:
                filled = self.model.fill(pyarrow.concat_tables([table for table, _ in batch]))
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:
                for one in batch:
                    self._answer([one])
            return
        start = 0
        for table, future in batch:
            future.set_result(filled.slice(start, len(table)))
            start += len(table)


def _columns_of_days(model: Any) -> set[str]:
    """The columns of dates without times, as far as the fitted table tells."""
    encoding = getattr(model, "encoding", None)
    clocks = {
        str(label): getattr(part, "clock", None)
        for label, part in ({} if encoding is None else encoding.parts).items()
    }
    a_day = np.ones((), "m8[D]")
    days = {unit: int(a_day.astype(f"m8[{unit}]").astype(np.int64)) for unit in STEPS}
    return {
        name
        for name, clock in clocks.items()
        if clock is not None and clock.kind == "M" and clock.step == days.get(clock.unit)
    }


def _flat(values: Any) -> list[Any]:
    """The values of one column, `(rows,)`."""
    return list(np.asarray(values).reshape(len(values)))


def decode_json(body: bytes) -> Any:
    """JSON of a request; NaN and Infinity, which JSON does not have, are refused."""

    def refuse(text: str) -> None:
        raise ValueError(f"{text} is no JSON; write null for a missing value")

    try:
        return json.loads(body, parse_constant=refuse)
    except UnicodeDecodeError as error:
        raise ValueError(f"the body is not UTF-8: {error}") from error
    except RecursionError as error:
        raise ValueError("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"the body is no JSON: {error}") from error
