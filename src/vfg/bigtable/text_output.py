"""Record batches as lines of text."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from vfg.utils.extras import needs

with needs("table"):
    import pyarrow as pa
    import pyarrow.compute as pc


def header_line(names: Sequence[str], separator: str) -> bytes:
    r"""The first line of a file of separated text.

    Example:
        >>> header_line(["a", "b,c"], ",")
        b'a,"b,c"\n'
    """
    cells = _quoted(pa.array(names, pa.large_string()), separator).to_pylist()
    return (separator.join(cells) + "\n").encode()


def csv_lines(batch: Any, separator: str) -> bytes:
    r"""The rows of a record batch as lines of separated text; gaps are empty cells.

    Args:
        batch: a record batch.
        separator: between cells.

    Raises:
        ValueError: for columns of lists and other things that text cannot hold.

    Example:
        >>> csv_lines(pa.record_batch({"a": [1.0, None], "b": ["x", "y"]}), ",")
        b'1.0,x\n,y\n'
    """
    if not batch.num_rows:
        return b""
    cells = [_cells(batch.column(k), field, separator) for k, field in enumerate(batch.schema)]
    if len(cells) == 1:  # an empty line would be no row
        cells[0] = pc.if_else(pc.equal(cells[0], ""), '""', cells[0])
    lines = _joined([_joined(cells, separator), _text("\n")], "")
    # The cells of an array of texts lie one after the other: together they are the file.
    return bytes(lines.buffers()[2])


def json_lines(batch: Any) -> bytes:
    r"""The rows of a record batch as one JSON object per line; gaps are `null`.

    Example:
        >>> json_lines(pa.record_batch({"a": [1.5, None]}))
        b'{"a":1.5}\n{"a":null}\n'
    """
    rows = batch.to_pylist()
    return "".join(_object(row) + "\n" for row in rows).encode()


def _object(row: dict[str, Any]) -> str:
    cells = {key: None if _is_nan(cell) else cell for key, cell in row.items()}
    return json.dumps(cells, separators=(",", ":"), ensure_ascii=False, default=_plain)


def _is_nan(cell: Any) -> bool:
    return isinstance(cell, float) and math.isnan(cell)


def _plain(cell: Any) -> Any:
    """What JSON has no word for, such as dates and decimals, as text."""
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)


def _cells(column: Any, field: Any, separator: str) -> Any:
    kind = field.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_nested(kind):
        raise ValueError(
            f"the column {field.name!r} holds {kind}, which separated text cannot; use Parquet"
        )
    if pa.types.is_floating(kind):
        text = _decimals(column)
    else:
        text = _quoted(column.cast(pa.large_string()), separator)
    return pc.fill_null(text, "")


def _decimals(column: Any) -> Any:
    """Numbers as text, with a decimal point also where they are whole; gaps for NaN."""
    observed = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    text = observed.cast(pa.large_string())
    whole = pc.match_substring_regex(text, "^-?[0-9]+$")
    return pc.if_else(whole, _joined([text, _text(".0")], ""), text)


def _quoted(column: Any, separator: str) -> Any:
    """Texts in quotation marks where they need them."""
    needy = pc.match_substring_regex(column, f'["\\r\\n{separator}]')
    if not pc.any(needy).as_py():
        return column
    doubled = pc.replace_substring(column, '"', '""')
    return pc.if_else(needy, _joined([_text('"'), doubled, _text('"')], ""), column)


def _text(words: str) -> Any:
    return pa.scalar(words, pa.large_string())


def _joined(parts: list[Any], separator: str) -> Any:
    """Texts put together row by row; a gap among them gives a gap."""
    return pc.binary_join_element_wise(*parts, _text(separator))
