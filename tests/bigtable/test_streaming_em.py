"""The linear model of all rows: the sums of pieces, and what EM makes of them."""

import pyarrow as pa
import pytest
import torch
from bigtable.tables_on_disk import numbers, one_batch

from vfg.bigtable import fit, open_table, write_table
from vfg.bigtable import streaming_em as every_row
from vfg.bigtable.streaming_em import SharedRows, fit_linear_to_all
from vfg.gaussian.em.general import chunks_of, e_step
from vfg.inputs import scale_cells
from vfg.sklearn import VFGImputer
from vfg.training.data import World

SAMPLE = 60


@pytest.fixture
def rows(tmp_path):
    table = numbers(500, seed=4)
    write_table(table.to_batches(), table.schema, tmp_path / "t.parquet")
    model = VFGImputer(bend=False, random_state=0).fit(table.slice(0, SAMPLE)).model_
    return SharedRows(open_table(tmp_path / "t.parquet"), table.column_names, model, World())


def flat(expected):
    return torch.cat([part.reshape(-1) for part in every_row._parts(expected)])


def test_sums_of_pieces_are_those_of_the_whole_table(rows, monkeypatch):
    values = rows.model.linear.linear.values()
    monkeypatch.setattr(every_row, "PIECE", 70)
    with torch.no_grad():
        found, number = rows.sums(values)
        linear = rows.model.linear
        cells, seen = rows.model.encode(rows.source.read())
        some = seen.any(1)
        leaves, known, _ = linear.encode(*scale_cells(linear, cells[some], seen[some]))
        chunks = chunks_of(linear.structure, 1, leaves, known)
        expected = e_step(linear.structure, values, chunks)
    assert number == int(some.sum())
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-10, atol=1e-8)


def test_any_number_of_processes_takes_every_piece_once_and_in_order(rows, monkeypatch):
    values = rows.model.linear.linear.values()
    monkeypatch.setattr(every_row, "PIECE", 70)
    with torch.no_grad():
        single = torch.stack(list(rows._own_sums(values, size_of(rows, values))))
        for size in (2, 3, 5):
            shares = [
                torch.stack(
                    list(
                        SharedRows(
                            rows.source, rows.names, rows.model, World(rank, size)
                        )._own_sums(values, size_of(rows, values))
                    )
                )
                for rank in range(size)
            ]
            joined = torch.stack(shares, dim=1).flatten(0, 1)
            assert torch.equal(joined[: len(single)], single)
            assert not joined[len(single) :].any()


def size_of(rows, values):
    shapes = every_row._shapes(rows.model.linear, values)
    return 1 + sum(part.numel() for part in shapes)


def test_all_rows_make_the_model_likelier(rows):
    table = rows.source.read()
    values, observed = rows.model.encode(table)
    before = float(rows.model.log_prob(table).mean())
    means = rows.model.means(values, observed)
    trace = fit_linear_to_all(rows)
    assert len(trace) > 2
    assert float(rows.model.log_prob(table).mean()) > before
    assert not torch.equal(rows.model.means(values, observed), means)  # nothing old is kept


def test_fit_learns_from_every_row(tmp_path):
    table = numbers(500, seed=4)
    write_table(table.to_batches(), table.schema, tmp_path / "t.parquet")
    scores = [
        fit(
            tmp_path / "t.parquet",
            VFGImputer(bend=False, random_state=0),
            rows=SAMPLE,
            every_row=every,
        ).score(table)
        for every in (False, True)
    ]
    assert scores[1] > scores[0]


def test_rows_without_any_cell_count_for_nothing(rows, tmp_path):
    batch = one_batch(numbers(500, seed=4))
    empty = pa.RecordBatch.from_arrays(
        [pa.nulls(500, kind) for kind in batch.schema.types], schema=batch.schema
    )
    write_table([batch, empty], batch.schema, tmp_path / "long.parquet")
    longer = SharedRows(open_table(tmp_path / "long.parquet"), rows.names, rows.model, rows.world)
    values = rows.model.linear.linear.values()
    with torch.no_grad():
        assert torch.equal(flat(longer.sums(values)[0]), flat(rows.sums(values)[0]))
