"""Fit to tables larger than memory: one pass for ranges, categories and a random sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from vfg.bigtable.engines import process_group
from vfg.bigtable.fill_batch import model_columns
from vfg.bigtable.formats import Dialect, Reading
from vfg.bigtable.source import Place, Source, open_table
from vfg.bigtable.streaming_em import SharedRows, fit_linear_to_all
from vfg.bigtable.type_inference import common_schema, widen, widen_table
from vfg.imputation.imputer import VFGImputer
from vfg.imputation.plan import MOST_ROWS
from vfg.imputation.settings import as_seed, check_count
from vfg.modelfile import dumps
from vfg.tables.cells import Array, are_moments, is_absent
from vfg.tables.frames import quote
from vfg.tables.schema import Categorical, ColumnSpec, Continuous, Date, Integer, Schema
from vfg.utils.extras import needs

with needs("table"):
    import pyarrow as pa
    import pyarrow.compute as pc


MOST_CATEGORIES = 10_000
"""Columns of text with more different cells are not listed: they are names, not categories."""


HAVE_RANGES = (
    pa.types.is_date, pa.types.is_timestamp, pa.types.is_integer, pa.types.is_floating
)  # fmt: skip


class Statistics:
    """Missing values, ranges and categories of all columns, from batches of a table.

    A column may have a wider type in a later batch; see `widen`. The marker of missing values is
    `missing_values` of `VFGImputer`.

    Example:
        >>> statistics = Statistics()
        >>> statistics.add(pa.record_batch({"a": [1, None], "b": ["x", "y"]}))
        >>> statistics.add(pa.record_batch({"a": [5, 3], "b": ["z", "x"]}))
        >>> statistics.rows, statistics.missing, statistics.ranges["a"], statistics.categories("b")
        (4, {'a': 1, 'b': 0}, (1, 5), ('x', 'y', 'z'))
    """

    def __init__(self, marker: Any = None) -> None:
        self.marker = None if is_absent(marker) else marker
        self.rows = 0
        self.missing: dict[str, int] = {}
        self._ends: dict[str, Any] = {}
        self._texts: dict[str, dict[str, None] | None] = {}
        self._moments: dict[str, tuple[str, str] | None] = {}

    def add(self, batch: Any) -> None:
        """Take the next rows into account."""
        self.rows += batch.num_rows
        for field, column in zip(batch.schema, batch.columns, strict=True):
            column = self._without_marker(column)
            missing = pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0
            self.missing[field.name] = self.missing.get(field.name, 0) + missing
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                self._add_texts(field.name, column)
            elif any(is_kind(kind) for is_kind in HAVE_RANGES):
                self._add_range(field.name, column)

    @property
    def ranges(self) -> dict[str, tuple[Any, Any]]:
        """The minimum and maximum of columns of numbers, dates and timestamps, by name."""
        return {name: (ends[0].as_py(), ends[1].as_py()) for name, ends in self._ends.items()}

    def categories(self, name: str) -> tuple[str, ...] | None:
        """The different cells of a column of text, in order; None if it has none, or too many."""
        result = self._texts.get(name)
        return tuple(sorted(result)) if result else None

    def are_words(self, name: str) -> bool:
        """Whether a column of text holds other cells than dates and times in ISO form."""
        return name in self._moments and self._moments[name] is None

    def bounds(self, kinds: Mapping[Any, ColumnSpec]) -> dict[str, tuple[Any, Any]]:
        """The ranges of columns that are kept within them, as an imputer takes them."""
        result: dict[str, tuple[Any, Any]] = {}
        ranges = self.ranges
        for name, spec in kinds.items():
            written = self._moments.get(name)
            if isinstance(spec, Date) and written is not None:
                result[name] = (written[0].rstrip("Z"), written[1].rstrip("Z"))
            if name not in ranges:
                continue
            low, high = ranges[name]
            if isinstance(spec, Date) and hasattr(low, "isoformat"):
                result[name] = (_local_time(low), _local_time(high))
            elif isinstance(spec, Continuous | Integer):
                result[name] = (float(low), float(high))
        return result

    def _without_marker(self, column: Any) -> Any:
        if self.marker is None:
            return column
        try:
            marked = pc.equal(column, pa.scalar(self.marker))
        except pa.ArrowException:  # a number is never a text
            return column
        return pc.if_else(marked, pa.scalar(None, column.type), column)

    def _add_texts(self, name: str, column: Any) -> None:
        known = self._texts.setdefault(name, {})
        ends = self._moments.get(name, ())
        if known is None and ends is None:
            return
        texts = pc.unique(column).drop_null().to_pylist()
        if known is not None:
            known.update(dict.fromkeys(texts))
            if len(known) > MOST_CATEGORIES:
                self._texts[name] = None
        if ends is not None and texts:
            every = [*ends, *texts]  # which are in the order of their moments
            self._moments[name] = (min(every), max(every)) if are_moments(every) else None

    def _add_range(self, name: str, column: Any) -> None:
        result = _ends(column)
        if name in self._ends:
            result = _ends(pa.concat_arrays([widen(self._ends[name], column.type), result]))
        if not pc.is_null(result, nan_is_null=True)[0].as_py():
            self._ends[name] = result


def _ends(column: Any) -> Any:
    """An array of minimum and maximum; of null or NaN if all cells are missing."""
    result = pc.min_max(column)
    return pa.array([result["min"], result["max"]], column.type)


def _local_time(moment: Any) -> str:
    """A moment as the clocks of its own time zone show it."""
    plain = moment.replace(tzinfo=None) if getattr(moment, "tzinfo", None) else moment
    return str(plain.isoformat())


MOST_CELLS = 50_000_000
"""How many cells are kept in memory for fitting, at most; wide tables keep fewer rows."""
ROWS_AT_ONCE = 65_536
"""Rows that are read together, as `columnar.ROWS_AT_ONCE`, so that nothing is cut up again."""


def fit(
    source: Source | Place | Sequence[Place],
    imputer: VFGImputer | None = None,
    *,
    columns: Sequence[str] | None = None,
    rows: int = MOST_ROWS,
    every_row: bool = False,
    progress: Callable[[int], None] | None = None,
) -> VFGImputer:
    r"""Fit an imputer to a table of any size, in memory that does not grow with it.

    A table of at most `rows` rows is read as a whole, and the result is that of `VFGImputer.fit`.
    From a larger table, `rows` rows are drawn at random in one pass, each with the same
    probability; rows without any observed cell are left out. `VFGImputer.fit` uses at most as many
    rows. The ranges of filled numbers and dates, and the categories of text (in columns with at
    most 10,000), come from all rows. Means, standard deviations and code points come from the drawn
    rows only, so categories that no drawn row has are known but never filled in.

    Processes that torchrun or `vfg.bigtable.engines.ray.Ray.together` started share the work of
    `every_row`; all else happens in each of them, with the same result.

    Args:
        source: a table, or what `open_table` takes.
        imputer: the settings; it is not fitted itself. None (default) for the defaults.
        columns: names of the columns to fit; None (default) for all columns but a stored pandas
            index.
        rows: largest number of rows to keep (default 200,000); fewer are kept of tables with very
            many columns.
        every_row: whether the linear model is then fitted to all rows of the table, in further
            passes over it (default False).
        progress: called with the number of rows read; None (default) for none.

    Returns:
        A fitted imputer.

    Raises:
        ValueError: for tables that cannot be read, unknown columns, or no rows.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open(f"{folder}/table.csv", "w") as file:
        ...         _ = file.write("a,b\n" + "".join(f"{k},{2 * k}\n" for k in range(50)))
        ...     imputer = fit(f"{folder}/table.csv", VFGImputer(bend=False, random_state=0))
        >>> imputer.transform(pa.table({"a": [10, 20], "b": [None, 40]}))["b"].null_count
        0
    """
    check_count("rows", rows)
    table = source if isinstance(source, Source) else open_table(source)
    known = [name for name in table.names if name not in table.index_columns]
    names = select_columns(table.names, known if columns is None and known else columns)
    # Columns that are left out may hold anything.
    table = table.with_text_columns(
        [name for name in table.names if name not in dict.fromkeys(names)]
    )
    learner: VFGImputer = VFGImputer() if imputer is None else clone(imputer)
    settings = learner.get_params(deep=False)
    survey = Survey(
        names,
        size=min(rows, max(MOST_CELLS // len(names), 1)),
        seed=as_seed(learner.random_state),
        marker=learner.missing_values,
        progress=progress,
    )
    sample, statistics = survey.run(table)
    if not sample.seen:
        raise ValueError("the table has no rows to fit to")
    if sample.seen > sample.size:
        learner.set_params(**_settings(learner, sample.table, statistics))
    learner.fit(sample.table)
    if every_row:
        with process_group() as world:
            known = model_columns(learner.model_, names)
            fit_linear_to_all(SharedRows(table, known, learner.model_, world))
    learner.set_params(**settings)
    learner.model_.origin = describe_origin(table, names, learner)
    return learner


def draw_sample(table: Source, columns: Sequence[str], rows: int, seed: int) -> Any:
    """At most so many rows of some columns of a table, drawn at random in one pass over it."""
    others = [name for name in table.names if name not in dict.fromkeys(columns)]
    survey = Survey(list(columns), size=rows, seed=seed, marker=np.nan, progress=None)
    return survey.run(table.with_text_columns(others))[0].table


MOST_DIGESTS = 256
"""Rows whose digests a model keeps, 5 KB: enough to find two of them in 1 % of the fitted rows."""


def describe_origin(table: Source, names: Sequence[str], learner: VFGImputer) -> dict[str, Any]:
    """How CSV files were read, for `open_table(like=)`, and digests of rows, for `vfg evaluate`."""
    digests = learner.fitted_rows_
    origin: dict[str, Any] = {"rows": digests[digests != 0][:MOST_DIGESTS].tolist()}
    if table.is_text:
        layouts = {name: layout for name, layout in table.layouts.items() if name in names}
        samples = {name: re.sub("[0-9]", "0", table.samples[name]) for name in layouts}
        origin |= Reading(table.dialect, tuple(names), layouts, samples).to_dict()
    return origin


def fit_files(
    files: Sequence[tuple[str, str]],
    imputer: VFGImputer,
    columns: Sequence[str] | None,
    every_row: bool,
    dialect: Dialect | None = None,
) -> tuple[bytes, dict[str, Any] | None]:
    """The bytes and history of a model fitted to files, for processes that work together."""
    parts = [
        open_table(path, format=format, dialect=dialect if format in ("csv", "tsv") else None)
        for path, format in files
    ]
    source = Source([file for part in parts for file in part.files])
    model = fit(source, imputer, columns=columns, every_row=every_row).model_
    history = None if model.history is None else model.history.to_dict()
    return dumps(model), history


def select_columns(names: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """The columns to fit, in the order of the table.

    Example:
        >>> select_columns(["a", "b", "c"], ["c", "a"])
        ['a', 'c']
    """
    if wanted is None:
        return list(names)
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        raise ValueError(
            f"there is no column {quote(unknown) or 'to fit'}; there are {quote(list(names))}"
        )
    return [name for name in names if name in dict.fromkeys(wanted)]


@dataclass(frozen=True)
class Survey:
    r"""A pass over some columns of a table that draws a sample and computes statistics.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open(f"{folder}/table.csv", "w") as file:
        ...         _ = file.write("a,b\n1,x\n2.5,y\n")
        ...     sample, statistics = Survey(["a"], 10, 0).run(open_table(f"{folder}/table.csv"))
        >>> sample.table["a"].to_pylist(), statistics.ranges
        ([1.0, 2.5], {'a': (1.0, 2.5)})
    """

    names: list[str]
    size: int
    seed: int
    marker: Any = None
    progress: Callable[[int], None] | None = None

    def run(self, source: Source) -> tuple[Sample, Statistics]:
        """The sample and the statistics of a table.

        The same pass infers the types of CSV files. If a column turns out to be text after cells of
        it were read as numbers or dates, the table is read a second time in its final types.
        """
        known, batches = dict(source.layouts), source.scan()
        try:
            result = self._gather(batches)
        except pa.ArrowInvalid:
            for _ in batches:  # types are inferred from the remaining rows too
                pass
            return self._gather(source.batches(ROWS_AT_ONCE))
        # The layout of dates is known after the last row alone.
        is_same = source.layouts == known
        return result if is_same else self._gather(source.batches(ROWS_AT_ONCE))

    def _gather(self, batches: Iterator[Any]) -> tuple[Sample, Statistics]:
        sample, statistics = Sample(self.size, self.seed), Statistics(self.marker)
        schema: Any = None
        for batch in batches:
            chosen = batch.select(self.names)
            schema = chosen.schema if schema is None else common_schema(schema, chosen.schema)
            widest = widen_table(chosen, schema)
            statistics.add(widest)
            sample.add(widest)
            if self.progress is not None:
                self.progress(sample.seen)
        return sample, statistics


class Sample:
    """Rows of a stream, each with the same chance of being kept.

    Every row draws a number, and those with the least numbers are kept, in their order; rows
    without any observed cell only if there are too few others. Which rows are kept does not depend
    on how the stream is cut. A column may have a wider type in a later batch; see `widen`.

    Example:
        >>> sample = Sample(2, seed=0)
        >>> sample.add(pa.record_batch({"a": [1, 2, None, 4]}))
        >>> sample.seen, sample.table.num_rows
        (4, 2)
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seen = 0
        self._numbers = np.random.Generator(np.random.Philox(key=seed))
        self._draws: Array = np.zeros(0)
        self._kept: Any = None

    def add(self, batch: Any) -> None:
        """Take the next rows of the stream into account."""
        self.seen += batch.num_rows
        draws = self._numbers.random(batch.num_rows) + ~_has_observed(batch)
        chosen = np.flatnonzero(draws < self._limit)
        part = pa.Table.from_batches([batch]).take(chosen)
        kept = [] if self._kept is None else [widen_table(self._kept, part.schema)]
        self._kept = pa.concat_tables([*kept, part])
        self._draws = np.concatenate([self._draws, draws[chosen]])
        if len(self._draws) > 2 * self.size:
            self._prune()

    @property
    def table(self) -> Any:
        """The rows that are kept, as a `pyarrow.Table`."""
        self._prune()
        return self._kept

    @property
    def _limit(self) -> float:
        """The greatest number that may still be among the least."""
        if len(self._draws) < self.size:
            return 2.0
        return float(np.partition(self._draws, self.size - 1)[self.size - 1])

    def _prune(self) -> None:
        if len(self._draws) > self.size:
            chosen = np.sort(np.argpartition(self._draws, self.size)[: self.size])
            self._kept, self._draws = self._kept.take(chosen), self._draws[chosen]
        self._kept = self._kept.unify_dictionaries().combine_chunks()


def _has_observed(batch: Any) -> Array:
    known = np.zeros(batch.num_rows, dtype=bool)
    for column in batch.columns:
        known |= ~pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    return known


def _settings(learner: VFGImputer, sample: Any, statistics: Statistics) -> dict[str, Any]:
    """Kinds and bounds of the columns, from the statistics of all rows."""
    given: Mapping[Any, Any] = {} if learner.schema is None else learner.schema
    inferred = Schema.infer(sample, dict(given), missing_values=learner.missing_values)
    # Rows that were not drawn may hold other texts than dates.
    texts = [
        name
        for name, spec in inferred.items()
        if isinstance(spec, Date) and name not in given and statistics.are_words(str(name))
    ]
    if texts:
        given = {**given, **dict.fromkeys(texts, "categorical")}
        inferred = Schema.infer(sample, given, missing_values=learner.missing_values)
    kinds = {
        str(name): _add_categories(spec, statistics.categories(str(name)))
        for name, spec in inferred.items()
    }
    wanted = learner.bounds or {}
    bounds = {
        name: _narrow(wanted.get(name) or getattr(kinds[name], "bounds", None), result)
        for name, result in statistics.bounds(kinds).items()
    }
    return {"schema": kinds, "bounds": {**wanted, **bounds}}


def _narrow(wanted: Any, found: tuple[Any, Any]) -> tuple[Any, Any]:
    """The bounds that a user wants, with the ends of the range where they are open."""
    low, high = wanted or (None, None)
    return (found[0] if low is None else low, found[1] if high is None else high)


def _add_categories(spec: ColumnSpec, categories: tuple[str, ...] | None) -> ColumnSpec:
    """A kind with the categories of all rows, after those that it has."""
    if not isinstance(spec, Categorical) or categories is None:
        return spec
    return Categorical(tuple(dict.fromkeys([*(spec.categories or ()), *categories])))
