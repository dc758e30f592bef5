"""Filling a table into its target, counting cells on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vfg.cli.commands.fit import check_folder, check_target
from vfg.cli.errors import tell
from vfg.cli.progress import advancing

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.bigtable.engines import Engine, FillTask, Part
    from vfg.bigtable.fill_batch import Filling
    from vfg.imputation.table_model import TableModel


@dataclass(frozen=True)
class Target:
    """Where a filled table goes, and who fills it."""

    output: str
    format: str | None
    engine: Engine
    shard_rows: int


def check_output(output: str) -> None:
    """Refuse a target that cannot be written: a file, a folder of shards, or standard output.

    Raises:
        OSError: if it cannot be written.
    """
    from vfg.bigtable.fill_job import is_one_file

    if output == "-":
        return
    if is_one_file(output):
        check_target(Path(output))
    elif Path(output).is_dir():
        check_folder(Path(output))
    else:
        check_folder(Path(output).absolute().parent)


class Counting:
    """An engine that counts on the way how many cells it fills.

    Args:
        engine: that does the work.
        names: of the columns to count in.
    """

    def __init__(self, engine: Engine, names: Sequence[str]) -> None:
        self.engine, self.names = engine, list(names)
        self.gaps = self.left = 0

    def run(self, work: FillTask, parts: Iterable[Part]) -> Iterator[Any]:
        """The filled record batches of the parts, in their order."""
        for batch in self.engine.run(work, self._counted(parts)):
            self.left += gaps_in(batch, self.names) // (work.filling.draws or 1)
            yield batch

    def _counted(self, parts: Iterable[Part]) -> Iterator[Part]:
        for first, batch in parts:
            self.gaps += gaps_in(batch, self.names)
            yield first, batch


def gaps_in(batch: Any, names: Sequence[str]) -> int:
    """How many cells of some columns are missing; NaN counts as missing."""
    import pyarrow.compute as pc

    empty = (pc.sum(pc.is_null(batch.column(name), nan_is_null=True)).as_py() for name in names)
    return sum(int(number or 0) for number in empty)


def write_filled(
    source: Source, model: TableModel, filling: Filling, target: Target, *, show: bool
) -> dict[str, int]:
    """Fill a table; how many rows there are, how many an earlier run did, cells filled and left."""
    from vfg.bigtable import impute as impute_table
    from vfg.bigtable.fill_batch import known_names

    engine = Counting(target.engine, known_names(model, source.names))
    with advancing(source.rows if show else None, "rows") as advance:
        done = 0

        def progress(now: int, _: int) -> None:
            nonlocal done
            advance(now - done)
            done = now

        found = impute_table(
            source,
            model,
            target.output,
            filling=filling,
            shard_rows=target.shard_rows,
            format=target.format,
            engine=engine,
            progress=progress,
        )
    if engine.left:
        empty = [str(label) for label, part in model.encoding.parts.items() if part.empty]
        tell(f"{engine.left:,} gaps are left, since nothing is known of {', '.join(empty)}")
    filled = engine.gaps - engine.left
    return {"rows": found.rows, "resumed": found.found, "filled": filled, "left": engine.left}
