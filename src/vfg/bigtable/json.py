"""Files with one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from vfg.bigtable.columnar import TableFile, check_number_of_columns
from vfg.bigtable.csv import LONGEST_LINE
from vfg.bigtable.formats import open_text, reading
from vfg.bigtable.type_inference import MOMENTS, joined, text_type
from vfg.utils.extras import needs

with needs("table"):
    import pyarrow as pa
    import pyarrow.json as pjson

MOST_BRACKETS = 500
"""How many brackets a line may open: the parser would crash on those nested too deeply."""


class JsonLinesFile(TableFile):
    """A file with one JSON object per line, whose keys name the columns.

    A key that a line lacks is a gap. The file is looked through once before it is read, since a
    key may come first, or change its type, in any line.
    """

    @property
    def schema(self) -> Any:
        return self._looked_through[0]

    @property
    def rows(self) -> int:
        return self._looked_through[1]

    def batches(self, schema: Any) -> Iterator[Any]:
        parsing = _as_texts(schema)
        for block in self._blocks():
            table = self._parsed(block, parsing).select(schema.names)
            with reading(self.name, "JSON lines"):
                yield from table.cast(schema).combine_chunks().to_batches()

    @cached_property
    def _looked_through(self) -> tuple[Any, int]:
        """Schema and number of rows."""
        kinds: dict[str, Any] = {}
        rows = 0
        for block in self._blocks():
            table = self._parsed(block, pjson.ParseOptions())
            rows += table.num_rows
            self.checked(table.schema)
            has_moments = any(map(pa.types.is_temporal, table.schema.types))
            texts = self._parsed(block, _as_texts(table.schema)) if has_moments else table
            for field in table.schema:
                known = kinds.get(field.name, pa.null())
                kinds[field.name] = self._wider(field, texts.column(field.name), known)
        return self.checked(pa.schema(list(kinds.items()))), rows

    def _wider(self, field: Any, texts: Any, known: Any) -> Any:
        if texts.type == pa.string():
            return text_type(texts, known, candidates=MOMENTS)
        return self._joined(field, known)

    def _joined(self, field: Any, known: Any) -> Any:
        found = joined(known, field.type)
        if found is None:
            raise ValueError(
                f"{self.name} has both {known} and {field.type} under {field.name!r}; make them "
                "one type"
            )
        return found

    def _parsed(self, block: bytes, parsing: Any) -> Any:
        with reading(self.name, "JSON lines"):
            options = pjson.ReadOptions(block_size=len(block) + 1, use_threads=False)
            return pjson.read_json(pa.py_buffer(block), options, parsing)

    def _blocks(self) -> Iterator[bytes]:
        """The bytes of the file in pieces that end with a line."""
        rest = b""
        with (
            reading(self.name, "JSON lines"),
            open_text(self.path, self.kind.compression, self.name) as stream,
        ):
            while piece := stream.read(LONGEST_LINE):
                lines, end, left = piece.rpartition(b"\n")
                if end:
                    yield from self._checked(rest + lines + end)
                rest = left if end else rest + left
                if len(rest) > LONGEST_LINE:
                    raise ValueError(
                        f"{self.name} has a line of more than {LONGEST_LINE >> 20} MiB; use Parquet"
                    )
        yield from self._checked(rest)

    def _checked(self, block: bytes) -> Iterator[bytes]:
        """A block that holds something, none of it nested too deeply for the parser."""
        for line in block.split(b"\n"):
            if line.count(b"[") + line.count(b"{") > MOST_BRACKETS:
                raise ValueError(
                    f"{self.name} has a line with more than {MOST_BRACKETS} brackets; flatten it"
                )
            # Every key has a colon; the parser takes very long for very many keys.
            check_number_of_columns(line.count(b":"), self.name)
        if block.strip():
            yield block


def _as_texts(schema: Any) -> Any:
    """How to parse a schema, with dates and times left as the texts that they are."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_temporal(field.type) else field
        for field in schema
    ]
    return pjson.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")
