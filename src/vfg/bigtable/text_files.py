"""Text files: comma- or tab-separated values, and JSON lines."""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from dataclasses import field as setting
from functools import cached_property
from pathlib import Path
from typing import Any

from vfg.bigtable.columnar import TableFile, check_number_of_columns
from vfg.bigtable.formats import (
    Dialect,
    Kind,
    Quoting,
    Reading,
    check_text,
    open_bytes,
    reading_errors,
)
from vfg.bigtable.type_inference import (
    IDENTIFIER,
    MOMENTS,
    cast_layout,
    cast_text,
    common_type,
    mark_missing,
    missing_texts,
)
from vfg.tables.cells import LAYOUTS, PADDING
from vfg.utils.extras import needs
from vfg.utils.remote import RemotePath

with needs("table"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pcsv
    import pyarrow.json as pjson

LONGEST_LINE = 8 << 20
"""Bytes that are parsed together, and that no line may be longer than."""
SEPARATORS = (",", ";", "\t", "|")
DEFAULTS = vars(Dialect())


@dataclass
class FileInfo:
    """What is known of a CSV file so far; None for what was not read yet."""

    dialect: Dialect | None = None
    names: list[str] = setting(default_factory=list)
    types: dict[str, Any] = setting(default_factory=dict)
    rows: int | None = None
    samples: dict[str, str] = setting(default_factory=dict)  # first observed cells, as written
    layouts: dict[str, str] = setting(default_factory=dict)  # see `LAYOUTS`
    doubts: list[str] = setting(default_factory=list)  # see `Inference.doubts`
    is_warned: bool = False  # of cells that hold rows
    blank_lines: int = 0  # before the names


class CsvFile(TableFile):
    """A file of separated text, whose first line names the columns.

    The type of a column is the narrowest that holds all its cells, so types are inferred in a pass
    over the whole file: before it is read by `batches`, or while it is read by `scan`. A file and
    the copies that `with_text_columns` returns share the result.
    """

    def __init__(
        self,
        path: Path | RemotePath,
        kind: Kind,
        name: str,
        dialect: Dialect = Dialect(),  # noqa: B008
        like: Reading | None = None,
    ) -> None:
        super().__init__(path, kind, name)
        self.text_columns: dict[str, None] = {}
        self.text_categories: dict[str, None] = {}
        self.real_columns: dict[str, None] = {}
        self._wanted, self._like = dialect, like
        self._info = FileInfo()

    def with_text_columns(
        self, names: Sequence[str], categories: Sequence[str] = (), real: Sequence[str] = ()
    ) -> CsvFile:
        result = copy(self)
        result.text_columns = dict.fromkeys(names)
        result.text_categories = dict.fromkeys(categories)
        result.real_columns = dict.fromkeys(real)
        return result

    @property
    def names(self) -> list[str]:
        """The names of the columns, from the first line."""
        self.dialect  # noqa: B018
        return list(self._info.names)

    @property
    def dialect(self) -> Dialect:
        """How the file is written: what was asked for, and else detected."""
        if self._info.dialect is None:
            self._info.dialect = self._read_start()
        return self._info.dialect

    @property
    def samples(self) -> dict[str, str]:
        """The first observed cell of columns, as it is written; known after the types are."""
        return {**(self._like.samples if self._like else {}), **self._info.samples}

    @property
    def doubts(self) -> list[str]:
        """Sentences about cells that may be meant otherwise; known after the types are."""
        return self._info.doubts

    @property
    def layouts(self) -> dict[str, str]:
        return self._info.layouts

    def _read_start(self) -> Dialect:
        with self._text_errors():
            with open_bytes(self.path, self.kind.compression) as stream:
                # The reader parses one block for the names; the next one may end within a line.
                start = stream.read_buffer(2 * LONGEST_LINE)
            line = self._first_line(start)
            blank = re.match(rb"(?:\xef\xbb\xbf)?([\r\n]*)", memoryview(start))
            self._info.blank_lines = len(re.findall(rb"\r\n|\r|\n", blank[1])) if blank else 0
            dialect = self._choose_dialect(line)
            check_number_of_columns(line.count(dialect.delimiter or ",") + 1, self.name)
            with _reader(pa.BufferReader(start), dialect, {}) as reader:
                self._info.names = list(self.check_schema(reader.schema).names)
            return replace(
                dialect,
                decimal=dialect.decimal or self._find_decimal(start, dialect),
                newline=find_newline(start),
                quoting=find_quoting(start, dialect, self._info.names),
            )

    def _choose_dialect(self, line: str) -> Dialect:
        """The dialect that is wanted, else that of the fit if it splits a first line well."""
        wanted, like = self._wanted, self._like
        if like is not None:
            own = {key: value for key, value in vars(wanted).items() if value != DEFAULTS[key]}
            known = replace(like.dialect, **own)
            first = csv.reader([line.strip("\ufeff\r")], delimiter=known.delimiter or ",")
            with suppress(csv.Error, StopIteration):  # for example for very long names
                if {*like.columns} <= {*next(first)}:
                    return known
            wanted = replace(wanted, missing=wanted.missing or like.dialect.missing)
        is_tabs = self.kind.format == "tsv"
        return replace(
            wanted, delimiter=wanted.delimiter or ("\t" if is_tabs else find_delimiter(line))
        )

    def _find_decimal(self, start: Any, dialect: Dialect) -> str:
        """The decimal mark of the first block, where a comma can be one."""
        if dialect.delimiter == "," or len(self._info.names) == 1:
            return "."
        texts = dict.fromkeys(self._info.names, pa.string())
        with _reader(pa.BufferReader(start), dialect, texts) as reader:
            block = next(iter(reader), None)
        columns = [] if block is None else block.columns
        return find_decimal([mark_missing(cells, dialect.missing) for cells in columns])

    def _first_line(self, start: Any) -> str:
        check_text(start, self.name)
        block = bytes(memoryview(start)[:LONGEST_LINE])
        line, end, _ = block.partition(b"\n")
        if not end and len(line) >= LONGEST_LINE:
            raise ValueError(self._too_long())
        return line.decode("utf-8", "replace")

    @property
    def schema(self) -> Any:
        if self.needs_inference:
            self._infer_types()
        texts = dict.fromkeys([*self.text_columns, *self.text_categories], pa.string())
        types = {**self._info.types, **texts}
        for name in self.real_columns:
            types[name] = pa.float64() if types[name] == pa.int64() else types[name]
        return pa.schema([(name, types[name]) for name in self.names])

    @property
    def rows(self) -> int:
        if self._info.rows is None:
            self._infer_types()
        assert self._info.rows is not None
        return self._info.rows

    @property
    def needs_inference(self) -> bool:
        known = {**self._info.types, **self.text_columns, **self.text_categories}
        return self._info.rows is None or any(name not in known for name in self.names)

    def batches(self, schema: Any) -> Iterator[Any]:
        types = {field.name: field.type for field in schema}
        texts = {
            name for name, kind in types.items() if name in self.layouts or kind == pa.string()
        }
        for batch in self._batches({**types, **dict.fromkeys(texts, pa.string())}):
            columns = [
                self._text(batch, name, kind) if name in texts else batch.column(name)
                for name, kind in types.items()
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _text(self, batch: Any, name: str, kind: Any = None) -> Any:
        """A column of text, with nulls for missing values unless it is left as it is; or dates."""
        column = batch.column(name)
        if name in self.text_columns:
            return column
        marked = mark_missing(column, self.dialect.missing)
        if kind in (None, pa.string()):
            return marked
        dates = cast_layout(marked, self.layouts[name], kind)
        if dates is None:
            raise self._change_error()
        return dates

    def scan(self) -> Iterator[Any]:
        if not self.needs_inference:
            yield from self.batches(self.schema)
            return
        for batch, typed in self._typed_batches():
            columns = {
                name: typed[name] if name in typed else self._text(batch, name)
                for name in self.names
            }
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _infer_types(self) -> None:
        for _ in self._typed_batches():
            pass

    def _typed_batches(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Batches of text, and their columns that are not text so far; keeps types at the end."""
        texts = {**self.text_columns, **self.text_categories}
        result = Inference([name for name in self.names if name not in texts], self.dialect)
        for batch in self._batches(dict.fromkeys(self.names, pa.string())):
            for column in batch.columns:
                check_text(column.buffers()[2], self.name)
            self._check_newlines(batch)
            yield batch, result.add(batch)
        result.choose_layouts({} if self._like is None else self._like.layouts)
        self._info.types.update(result.types)
        self._info.samples.update(result.samples)
        self._info.layouts.update(result.layouts)
        self._info.doubts[:] = result.doubts
        self._info.rows = result.rows

    def _check_newlines(self, batch: Any) -> None:
        """Warn of cells that hold whole rows, as they do after an unclosed quotation mark."""
        separators, delimiter = len(self.names) - 1, self.dialect.delimiter or ","
        if self._info.is_warned or not separators:
            return
        for name in batch.schema.names:
            cells = batch.column(name)
            broken = cells.filter(pc.match_substring(cells, "\n"))
            for cell in broken.to_pylist():
                lines = cell.split("\n")[1:-1]
                if any(line.count(delimiter) == separators for line in lines):
                    self._info.is_warned = True
                    warnings.warn(
                        f"{self.name} has a cell of {cell.count(chr(10)) + 1} lines in the column "
                        f"{name!r} that holds whole rows, so a quotation mark may not be closed: "
                        f"it begins with {cell[:40]!r}; correct it, or read quotation marks as "
                        "text (--no-quotes)",
                        stacklevel=2,
                    )
                    return

    def _batches(self, types: dict[str, Any]) -> Iterator[Any]:
        # The reader reads ahead in threads of its own, which may outlive it: they must neither
        # need Python nor find their stream closed, so it is left to the last of them to close it.
        dialect = self.dialect
        with self._text_errors():
            stream = open_bytes(self.path, self.kind.compression)
            # An empty line of a single column is a missing value, any other is nothing.
            blank = self._info.blank_lines if len(self._info.names) == 1 else None
            with _reader(stream, dialect, types, blank) as reader:
                yield from reader

    @contextmanager
    def _text_errors(self) -> Iterator[None]:
        """Turn pyarrow's errors about text into sentences that name the remedy."""
        with reading_errors(self.name, self.kind.format):
            try:
                yield
            except pa.ArrowInvalid as error:
                if "straddling" in str(error):
                    raise ValueError(self._too_long()) from error
                if "UTF8" in str(error):
                    raise ValueError(
                        f"{self.name} is not text in UTF-8; convert it, for example with "
                        "iconv -f LATIN1 -t UTF-8"
                    ) from error
                raise

    def _too_long(self) -> str:
        return (
            f"{self.name} has a line of more than {LONGEST_LINE >> 20} MiB, or a quotation mark "
            "that is never closed; correct it, or use Parquet"
        )


def find_delimiter(line: str) -> str:
    """The delimiter of a first line: the commonest outside of quotation marks, else the comma.

    Example:
        >>> find_delimiter('"name, given";age;sex'), find_delimiter("a")
        (';', ',')
    """
    plain = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=plain.count)


def find_decimal(columns: Sequence[Any]) -> str:
    """The decimal mark of columns of text: a comma if numbers have one, and none has a point.

    Example:
        >>> find_decimal([pa.array(["1,5", "2"]), pa.array(["x", "y"])])
        ','
    """
    marks = {
        mark: rf"^\s*[+-]?[0-9]*({re.escape(mark)}[0-9]+)?([eE][+-]?[0-9]+)?\s*$" for mark in ",."
    }
    has_mark = {
        mark: any(
            pc.all(pc.match_substring_regex(cells, pattern)).as_py()
            and pc.any(pc.match_substring(cells, mark)).as_py()
            for cells in columns
        )
        for mark, pattern in marks.items()
    }
    return "," if has_mark[","] and not has_mark["."] else "."


def find_newline(start: Any) -> str:
    r"""What ends the lines of a text that begins so.

    Example:
        >>> find_newline(b"a,b\r\n1,2\r\n")
        '\r\n'
    """
    result = re.search(rb"\r\n|\n|\r", memoryview(start)[:LONGEST_LINE])
    return "\n" if result is None else result[0].decode()


QUOTED_BYTES = 1 << 16
"""The part of a file that tells which columns are quoted: 64 KiB are read in about 20 ms."""


def find_quoting(start: Any, dialect: Dialect, names: Sequence[str]) -> Quoting:
    r"""What stands in quotation marks in all lines at the start of a text.

    Example:
        >>> find_quoting(b'"a","b"\n"x",1\n"y",\n', Dialect(","), ["a", "b"])
        Quoting(names=True, cells=('a',), empty=())
    """
    block = bytes(memoryview(start)[:QUOTED_BYTES])
    if b'"' not in block or not dialect.quotes:
        return Quoting()
    mark = (dialect.delimiter or ",").encode()
    pattern = rb'("(?:[^"]|"")*"|[^%b\r\n]*)(%b|\r\n|\n|\r|\Z)' % (re.escape(mark), re.escape(mark))
    lines: list[list[bytes]] = [[]]
    for match in re.finditer(pattern, block.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")):
        lines[-1].append(match[1])
        lines += [] if match[2] == mark else [[]]
    lines = [line for line in lines if any(line)]
    if len(block) == QUOTED_BYTES:
        lines.pop()  # which may be cut
    if not lines or any(len(line) != len(names) for line in lines):
        return Quoting()
    head, *rows = lines
    cells: list[str] = []
    empty: list[str] = []
    for name, column in zip(names, zip(*rows, strict=True), strict=False):
        observed = [cell.startswith(b'"') for cell in column if cell.strip(b'"')]
        missing = [cell == b'""' for cell in column if not cell.strip(b'"')]
        cells += [name] if observed and all(observed) else []
        # Where no cell is missing yet, as in columns before.
        empty += [name] if all(missing) and (missing or empty) else []
    return Quoting(all(cell.startswith(b'"') for cell in head), tuple(cells), tuple(empty))


MOST_MARKS = 3
"""Different texts among numbers that may still be marks of missing values."""
SENTINELS = tuple(sign * int("9" * digits) for digits in range(2, 7) for sign in (-1, 1))
"""Numbers that stand for missing values in many tables."""


NAME_IT = "if that marks missing values, name it in --missing"
AMBIGUOUS = (
    "looks like dates, but no day is above 12, so days and months are ambiguous; use "
    "--day-first or --month-first"
)


class Inference:
    """Types, layouts and first cells of columns of text, inferred from block after block.

    Example:
        >>> found = Inference(["a"], Dialect())
        >>> typed = found.add(pa.record_batch({"a": ["1", "?", "3", "4"]}))
        >>> found.types["a"], found.doubts[0].partition(";")[0]
        (DataType(string), "the text column 'a' looks like numbers with '?'")
    """

    def __init__(self, names: Sequence[str], dialect: Dialect) -> None:
        self.dialect, self.rows = dialect, 0
        self.types: dict[str, Any] = dict.fromkeys(names, pa.null())
        self.samples: dict[str, str] = {}
        self.layouts: dict[str, str] = {}
        self._possible: dict[str, dict[str, Any]] = {}
        """Layouts that all cells of a column have so far, with the types that hold them."""
        self._odd: dict[str, tuple[str, int]] = {}
        """Cells that made columns of numbers text, and their rows."""
        self._first: dict[str, Any] = {}

    def add(self, batch: Any) -> dict[str, Any]:
        """Take a block of text into account; its columns that were not text before, by name."""
        cells = {
            name: mark_missing(batch.column(name), self.dialect.missing)
            for name, kind in self.types.items()
            if kind != pa.string() or name not in self.samples or self._possible.get(name)
        }
        typed = {}
        for name, column in cells.items():
            before = self.types[name]
            if before != pa.string():
                typed[name] = cast_text(column, before, decimal=self.dialect.decimal or ".")
                self.types[name] = typed[name].type
            if self.types[name] == pa.string():
                self._note_text(name, column, before)
            if name not in self.samples and column.null_count < len(column):
                self.samples[name] = column.drop_null()[0].as_py()
        self._first = self._first or {**cells, **typed}
        self.rows += batch.num_rows
        return typed

    def _note_text(self, name: str, column: Any, before: Any) -> None:
        """Keep the layouts that a column of text still can have, and the cell that made it text."""
        if before == pa.string() or pa.types.is_null(before):
            first = column.drop_null()[:1].to_pylist() or [""]
            is_moment = re.match(r"\s*[0-9]+[./:-]", first[0])  # most texts are none
            possible = self._possible.get(
                name, dict.fromkeys(LAYOUTS if is_moment else (), pa.null())
            )
            result = {key: cast_layout(column, key, kind) for key, kind in possible.items()}
            self._possible[name] = {k: v.type for k, v in result.items() if v is not None}
        elif before in (pa.int64(), pa.float64()):
            odd = column.filter(pc.invert(is_number(column, self.dialect.decimal or ".")))
            if len(odd):
                self._odd[name] = odd[0].as_py(), self.rows + pc.index(column, odd[0]).as_py() + 1

    def choose_layouts(self, known: Mapping[str, str]) -> None:
        """Choose the layouts that are left, after the last block; those that are known go first."""
        first = {None: "dmyh", True: "dyh", False: "myh"}[self.dialect.day_first]
        for name, kind in self.types.items():
            wanted, possible = known.get(name, ""), self._possible.get(name, {})
            if pa.types.is_null(kind) and wanted in LAYOUTS:  # no cell tells otherwise
                possible = {wanted: pa.duration("s") if wanted == "hms:" else pa.timestamp("s")}
            elif wanted in possible:
                possible = {wanted: possible[wanted]}
            self._possible[name] = {key: kept for key, kept in possible.items() if key[0] in first}
            if len(self._possible[name]) == 1:
                [(self.layouts[name], self.types[name])] = self._possible[name].items()

    @property
    def doubts(self) -> list[str]:
        """Sentences about columns that may be meant otherwise, with what to do."""
        marks: dict[str, list[str]] = {}
        result, odd = [], dict(self._odd)
        for name, cells in self._first.items():
            if self.types[name] == pa.string() and cells.type == pa.string():
                for mark in self._marks_among_numbers(cells):
                    if re.search("[0-9]", mark):
                        odd.setdefault(name, (mark, pc.index(cells, mark).as_py() + 1))
                    else:
                        marks.setdefault(mark, []).append(name)
            elif pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type):
                number = _sentinel(cells)
                if number is not None:
                    result.append(
                        f"the column {name!r} has {number} far from its other numbers; {NAME_IT}"
                    )
        for mark, names in marks.items():
            listed = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
            several = f"{len(names)} text columns ({listed}) look"
            subject = several if len(names) > 1 else f"the text column {listed} looks"
            result.append(f"{subject} like numbers with {mark!r}; {NAME_IT}")
        result += [
            f"the column {name!r} is text, not numbers, because of {cell!r} in row {row}; correct "
            "the cell, or name it in --missing"
            for name, (cell, row) in odd.items()
            if not is_code(cell, self._first[name])
        ]
        unclear = [name for name, possible in self._possible.items() if len(possible) > 1]
        return result + [f"the text column {name!r} {AMBIGUOUS}" for name in unclear]

    def _marks_among_numbers(self, cells: Any) -> list[str]:
        """The few texts in a column that else holds numbers; none for other columns."""
        observed = cells.drop_null()
        numeric = is_number(observed, self.dialect.decimal or ".")
        others = pc.unique(observed.filter(pc.invert(numeric))).to_pylist()
        is_mostly_numeric = 2 * (pc.sum(numeric).as_py() or 0) > len(observed)
        return others if is_mostly_numeric and 0 < len(others) <= MOST_MARKS else []


def is_number(cells: Any, decimal: str) -> Any:
    """Which cells of text are numbers with a decimal mark, but no names of digits.

    Example:
        >>> is_number(pa.array(["1.5", "1,5", "007", "2"]), ".").to_pylist()
        [True, False, False, True]
    """
    plain, mark = pc.ascii_trim(cells, PADDING), re.escape(decimal)
    number = rf"^[+-]?([0-9]+{mark}?[0-9]*|{mark}[0-9]+)([eE][+-]?[0-9]+)?$"
    named = pc.match_substring_regex(plain, IDENTIFIER)
    return pc.and_not(pc.match_substring_regex(plain, number), named)


def is_code(cell: str, others: Any) -> bool:
    """Whether digits with leading zeros are as wide as all other cells, as zip codes are.

    Example:
        >>> is_code("00701", pa.array([10115, 80331])), is_code("00701", pa.array(["7", "12"]))
        (True, False)
    """
    if not re.fullmatch("0[0-9]+", cell):
        return False
    widths = pc.unique(pc.utf8_length(others.drop_null().cast(pa.string()))).to_pylist()
    return bool(widths == [len(cell)])


def _sentinel(cells: Any) -> int | None:
    """A number such as -999 that occurs more than once, farther off than all others are apart."""
    values = cells.drop_null().to_numpy(zero_copy_only=False)
    for number in SENTINELS:
        is_number = values == number
        rest = values[~is_number]
        if is_number.sum() > 1 and len(rest) > 1:
            low, high = rest.min(), rest.max()
            if max(low - number, number - high) > high - low:
                return number
    return None


def _reader(
    stream: Any, dialect: Dialect, types: dict[str, Any], blank_lines: int | None = None
) -> Any:
    """A reader of separated text that skips empty lines, or only so many before the names."""
    return pcsv.open_csv(
        stream,
        pcsv.ReadOptions(block_size=LONGEST_LINE, skip_rows=blank_lines or 0),
        pcsv.ParseOptions(
            delimiter=dialect.delimiter,
            newlines_in_values=dialect.quotes,
            quote_char='"' if dialect.quotes else False,
            ignore_empty_lines=blank_lines is None,
        ),
        pcsv.ConvertOptions(
            column_types=types,
            null_values=missing_texts(dialect.missing),
            strings_can_be_null=False,
            decimal_point=dialect.decimal or ".",
        ),
    )


LONG_NUMBER = re.compile(rb":\s*-?[0-9]{19,}\s*[,}]")
MOST_BRACKETS = 500
"""How many brackets a line may open: the parser would crash on those nested too deeply."""


JSON_CELL = re.compile(rb'(?P<cell>"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*)(?P<key>\s*:)?')
"""A text, a number, or a key with its colon."""


class JsonLinesFile(TableFile):
    """A file with one JSON object per line, whose keys name the columns.

    A key that a line lacks is a missing value, and so are texts and numbers that are written like
    one of `missing`. The file is scanned once before it is read, since a key may come first, or
    change its type, in any line.
    """

    def __init__(
        self, path: Path | RemotePath, kind: Kind, name: str, missing: Sequence[str] = ()
    ) -> None:
        super().__init__(path, kind, name)
        self._marks = {*missing}
        self._numbers: set[float] = set()
        for text in missing:
            with suppress(ValueError):  # it is no number
                self._numbers.add(float(text))

    @property
    def schema(self) -> Any:
        return self._schema_and_rows[0]

    @property
    def rows(self) -> int:
        return self._schema_and_rows[1]

    def batches(self, schema: Any) -> Iterator[Any]:
        parsing = _text_parsing(schema)
        for block in self._blocks():
            table = self._parse(block, parsing).select(schema.names)
            with reading_errors(self.name, "JSON lines"):
                yield from table.cast(schema).combine_chunks().to_batches()

    @cached_property
    def _schema_and_rows(self) -> tuple[Any, int]:
        """Schema and number of rows."""
        kinds: dict[str, Any] = {}
        rows = 0
        for block in self._blocks():
            table = self._parse(block, pjson.ParseOptions())
            rows += table.num_rows
            self.check_schema(table.schema)
            has_moments = any(map(pa.types.is_temporal, table.schema.types))
            texts = self._parse(block, _text_parsing(table.schema)) if has_moments else table
            for field in table.schema:
                known = kinds.get(field.name, pa.null())
                kinds[field.name] = self._widen(field, texts.column(field.name), known)
        return self.check_schema(pa.schema(list(kinds.items()))), rows

    def _widen(self, field: Any, texts: Any, known: Any) -> Any:
        if texts.type == pa.string():
            return cast_text(texts, known, candidates=MOMENTS).type
        return self._common_type(field, known)

    def _common_type(self, field: Any, known: Any) -> Any:
        result = common_type(known, field.type)
        if result is None:
            raise ValueError(
                f"{self.name} has both {known} and {field.type} under {field.name!r}; make them "
                "one type"
            )
        return result

    def _parse(self, block: bytes, parsing: Any) -> Any:
        with reading_errors(self.name, "JSON lines"):
            options = pjson.ReadOptions(block_size=len(block) + 1, use_threads=False)
            return pjson.read_json(pa.py_buffer(block), options, parsing)

    def _blocks(self) -> Iterator[bytes]:
        """The bytes of the file in pieces that end with a line."""
        rest = b""
        with (
            reading_errors(self.name, "JSON lines"),
            open_bytes(self.path, self.kind.compression) as stream,
        ):
            while piece := stream.read(LONGEST_LINE):
                check_text(piece, self.name)
                lines, end, left = piece.rpartition(b"\n")
                if end:
                    yield from self._check_lines(rest + lines + end)
                rest = left if end else rest + left
                if len(rest) > LONGEST_LINE:
                    raise ValueError(
                        f"{self.name} has a line of more than {LONGEST_LINE >> 20} MiB; use Parquet"
                    )
        yield from self._check_lines(rest)

    def _check_lines(self, block: bytes) -> Iterator[bytes]:
        """A block that holds something, none of it nested too deeply for the parser."""
        for line in block.split(b"\n"):
            if line.count(b"[") + line.count(b"{") > MOST_BRACKETS:
                raise ValueError(
                    f"{self.name} has a line with more than {MOST_BRACKETS} brackets; flatten it"
                )
            if LONG_NUMBER.search(line):
                self._check_whole_numbers(line)
            # Every key has a colon; the parser takes very long for very many keys.
            check_number_of_columns(line.count(b":"), self.name)
        if block.strip():
            yield JSON_CELL.sub(self._without_mark, block) if self._marks else block

    def _without_mark(self, cell: re.Match[bytes]) -> bytes:
        """Null for a text or number that means a missing value; keys stay."""
        result = cell["cell"]
        with suppress(ValueError):  # which the parser tells better
            is_text = result.startswith(b'"')
            marked = json.loads(result) in (self._marks if is_text else self._numbers)
            return b"null" if marked and not cell["key"] else cell[0]
        return cell[0]

    def _check_whole_numbers(self, line: bytes) -> None:
        """Refuse whole numbers of which the parser would lose digits."""
        try:
            cells = json.loads(line)
        except ValueError:  # which the parser tells better
            return
        for key, cell in cells.items() if isinstance(cells, dict) else ():
            if isinstance(cell, int) and not -(2**63) <= cell < 2**63:
                raise ValueError(
                    f"{self.name} has a whole number of {len(str(abs(cell)))} digits under "
                    f"{key!r}, of which some would be lost; write it as text, in quotation marks"
                )


def _text_parsing(schema: Any) -> Any:
    """How to parse a schema, with dates and times left as the texts that they are."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_temporal(field.type) else field
        for field in schema
    ]
    return pjson.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")
