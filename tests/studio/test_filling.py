"""Tables on the page: what is read, refused, filled and shown."""

import io

import numpy as np
import pandas as pd
import pytest
from tabular.mixed_tables import mixed

from vfg.studio.desk import Desk
from vfg.studio.filling import (
    cell,
    column_cells,
    comparison,
    filled,
    missing_map,
    open_table,
    read_frame,
    row_evidence,
    to_csv,
)
from vfg.studio.subjects import open_subject


@pytest.fixture(scope="module")
def table(mixed_subject):
    return open_table(mixed_subject, mixed(), "mixed.csv")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.xlsx", b"PK", "choose .csv"),
        ("a.csv", b"", "cannot be read as a table"),
        ("a.csv", b"\xff\xfe\x00", "UTF-8"),
        ("a.csv", b"a,b\n", "no rows"),
        ("a.csv", b'a,b\n"1,2\n', "cannot be read as a table"),
        ("a.parquet", b"not parquet", "cannot be read as a table"),
    ],
)
def test_files_that_are_no_tables_are_refused_in_a_sentence(name, data, words):
    with pytest.raises(ValueError, match=words) as caught:
        read_frame(name, data)
    assert "\n" not in str(caught.value)


def test_large_files_are_sent_to_the_command_line(monkeypatch):
    monkeypatch.setattr("vfg.studio.filling.MOST_BYTES", 3)
    with pytest.raises(ValueError, match="vfg impute"):
        read_frame("a.csv", b"a,b\n1,2\n")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_are_found(separator):
    text = separator.join(["a", "b"]) + "\n" + separator.join(["1", "2"]) + "\n"
    assert list(read_frame("t.csv", text.encode()).columns) == ["a", "b"]


def test_parquet_is_read():
    buffer = io.BytesIO()
    pd.DataFrame({"a": [1.0, None]}).to_parquet(buffer)
    assert read_frame("t.parquet", buffer.getvalue())["a"].isna().sum() == 1


def test_a_table_must_have_the_columns_of_the_model(mixed_subject):
    with pytest.raises(ValueError, match="lacks the column 'city'"):
        open_table(mixed_subject, mixed().drop(columns="city"))
    with pytest.raises(ValueError, match="column 'height' must hold numbers"):
        open_table(mixed_subject, mixed().assign(height="tall"))
    with pytest.raises(ValueError, match="column 'since' must hold dates"):
        open_table(mixed_subject, mixed().assign(since="someday"))


def test_text_files_are_brought_to_the_kinds_of_the_model(mixed_imputer, mixed_subject):
    text = mixed().assign(more=1).to_csv(index=False)
    table = open_table(mixed_subject, read_frame("t.csv", text.encode()))
    np.testing.assert_array_equal(table.gaps, mixed().isna().to_numpy())
    done = filled(mixed_subject, table)
    assert list(done.columns) == [*mixed().columns, "more"]
    assert not done.isna().any().any()
    wanted = mixed_imputer.transform(mixed())
    np.testing.assert_allclose(done["height"], wanted["height"])
    assert (done["city"].to_numpy() == wanted["city"].to_numpy()).all()


def test_filling_keeps_known_cells_and_does_what_the_imputer_does(
    mixed_imputer, mixed_subject, table
):
    done = filled(mixed_subject, table)
    pd.testing.assert_frame_equal(done, mixed_imputer.transform(mixed()))


def test_models_of_numbers_fill_with_means(network, network_subject):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 4)), columns=list("DCBA"))
    gaps = frame.mask(np.random.default_rng(1).random(frame.shape) < 0.4)
    done = filled(network_subject, open_table(network_subject, gaps))
    answer = network.infer(gaps, targets=["A", "D"])
    for name in ("A", "D"):
        np.testing.assert_allclose(done[name], answer.mean[name].numpy().ravel())
    known = gaps.notna().to_numpy()
    assert (done.to_numpy()[known] == gaps.to_numpy()[known]).all()


def test_long_tables_are_sent_to_the_command_line(monkeypatch, mixed_subject, table):
    monkeypatch.setattr("vfg.studio.filling.MOST_ROWS", 10)
    with pytest.raises(ValueError, match="at most 10; fill it with: vfg impute"):
        filled(mixed_subject, table)


def test_a_cell_is_what_filling_puts_there(mixed_subject, table):
    done = filled(mixed_subject, table)
    place = table.columns.index("height")
    row = int(np.flatnonzero(table.gaps[:, place])[0]) + 1
    found = cell(mixed_subject, table, row, "height")
    assert found.actual is None
    assert found.finding.mean == pytest.approx(done["height"].iloc[row - 1], rel=1e-5)
    assert len(found.finding.draws) > 50
    moves = [by for _, by in found.influence]
    assert moves == sorted(moves, reverse=True)


def test_a_known_cell_is_looked_at_without_itself(mixed_subject, table):
    place = table.columns.index("age")
    row = int(np.flatnonzero(~table.gaps[:, place])[0]) + 1
    found = cell(mixed_subject, table, row, "age")
    assert found.actual == mixed()["age"].iloc[row - 1]
    assert not found.finding.given
    assert "age" not in dict(found.influence)


def test_unknown_categories_are_no_evidence(mixed_subject):
    frame = mixed()
    frame["city"] = "Paris"
    table = open_table(mixed_subject, frame)
    assert "city" not in row_evidence(mixed_subject, table, 1)
    assert column_cells(mixed_subject, table, "city", np.arange(2)) == [None, None]


def test_rows_outside_the_table_are_refused(mixed_subject, table):
    with pytest.raises(ValueError, match="the rows 1 to 60"):
        row_evidence(mixed_subject, table, 61)


def test_maps_of_gaps_keep_their_share():
    gaps = np.random.default_rng(0).random((1000, 3)) < 0.3
    bands = missing_map(gaps, 100)
    assert bands.shape == (100, 3)
    np.testing.assert_allclose(bands.mean(0), gaps.mean(0))


def test_comparisons_split_a_column(mixed_subject, table):
    parts = comparison(table, filled(mixed_subject, table), "city")
    assert len(parts["filled"]) == table.gaps[:, table.columns.index("city")].sum()
    assert len(parts["filled"]) + len(parts["observed"]) == table.rows


def test_arrays_without_names_fit_by_position(linear_subject):
    table = open_table(linear_subject, np.full((3, 4), np.nan))
    assert not np.isnan(filled(linear_subject, table).to_numpy(dtype=float)).any()


def test_the_desk_forgets_the_oldest_table(mixed_subject):
    desk = Desk(mixed_subject)
    described = [desk._kept(open_table(mixed_subject, mixed())) for _ in range(5)]
    with pytest.raises(ValueError, match="not open any more"):
        desk.table(described[0])
    assert desk.table(described[-1]).rows == 60
    with pytest.raises(ValueError, match="no table is open"):
        desk.table(None)


def test_the_desk_opens_files(tmp_path, mixed_subject):
    path = tmp_path / "t.csv"
    path.write_text(to_csv(mixed()))
    assert Desk(mixed_subject, path).first["rows"] == 60
    with pytest.raises(ValueError, match="there is no table"):
        Desk(mixed_subject, tmp_path / "other.csv")


def test_images_fill_too(picture_model):
    subject = open_subject(picture_model)
    pixels = np.zeros((2, 24))
    pixels[0, :5] = np.nan
    done = filled(subject, open_table(subject, pixels))
    assert np.isfinite(done.to_numpy(dtype=float)).all()
