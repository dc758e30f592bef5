"""Tables on the page: what is read, refused, filled and shown."""

import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from imputation.mixed_tables import linear, mixed, numbers

pytest.importorskip("dash", reason="the page needs the extra studio")
from plotly.utils import PlotlyJSONEncoder

from vfg.plots.report import confidence
from vfg.sklearn import VFGImputer
from vfg.studio.asking.model import open_model
from vfg.studio.filling.opened_tables import (
    cell,
    colour_cells,
    comparison,
    download,
    fill_table,
    open_table,
    read_bytes,
    row_evidence,
)
from vfg.studio.filling.page import cell_text
from vfg.studio.session import Session


@pytest.fixture(scope="module")
def table(mixed_opened):
    return open_table(mixed_opened, mixed(), "mixed.csv")


@pytest.fixture(scope="module")
def places():
    """A model of zip codes, kinds and sizes, as the command line reads them."""
    generator = np.random.default_rng(0)
    size = generator.normal(size=60)
    zips = np.array(["00701", "00901", "10001"])[np.digitize(size, [-0.5, 0.5])]
    frame = pd.DataFrame({"zip": zips, "size": size, "count": np.round(10 * size).astype(int)})
    return open_model(linear().fit(frame))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.xlsx", b"PK", "choose .csv"),
        ("a.csv", b"", "'a.csv' cannot be read as csv"),
        ("a.csv", b"\xff\xfe\x00", "UTF-8"),
        ("a.csv", b"zip,size,count\n", "no rows"),
        ("a.csv", b'zip,size,count\n"1,2,3\n', "'a.csv'"),
        ("a.csv", b"zip,size,count\n1,2\n", "'a.csv' cannot be read as csv"),
        ("a.parquet", b"not parquet", "'a.parquet' cannot be read as Parquet"),
    ],
)
def test_files_that_are_no_tables_are_refused_in_a_sentence(places, name, data, words):
    with pytest.raises(ValueError, match=words) as caught:
        read_bytes(places, name, data)
    assert "\n" not in str(caught.value)
    assert "/tmp" not in str(caught.value)


def test_large_files_are_sent_to_the_command_line(monkeypatch, places):
    monkeypatch.setattr("vfg.studio.filling.opened_tables.MOST_BYTES", 3)
    with pytest.raises(ValueError, match="vfg impute"):
        read_bytes(places, "a.csv", b"zip,size,count\n1,2,3\n")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_are_found(places, separator):
    rows = ["zip", "size", "count"], ["00701", "0.5", "2"]
    text = "".join(separator.join(row) + "\n" for row in rows)
    found = read_bytes(places, "t.txt", text.encode())
    assert row_evidence(found, 1) == {"zip": "00701", "size": 0.5, "count": 2}


def test_parquet_is_read(places):
    buffer = io.BytesIO()
    frame = pd.DataFrame({"zip": ["00701", None], "size": [1.0, None], "count": [1, 2]})
    frame.to_parquet(buffer)
    found = read_bytes(places, "t.parquet", buffer.getvalue())
    np.testing.assert_array_equal(found.missing, frame.isna().to_numpy())


def test_cells_stay_as_they_are_written(places):
    """Zip codes keep their zeros and are evidence; identifiers, texts and integers stay."""
    text = "id,zip,size,count,note\n0000000,00701,-1.5,,NA\n0000001,,0.25,3,x\n7,10001,,12,\n"
    found = read_bytes(places, "t.csv", text.encode())
    assert row_evidence(found, 1) == {"zip": "00701", "size": -1.5}
    name, data = download(places, found)
    assert name == "t-filled.csv"
    done = data.decode().splitlines()
    assert done[0] == "id,zip,size,count,note"
    cells = [line.split(",") for line in done[1:]]
    assert [row[0] for row in cells] == ["0000000", "0000001", "7"]
    assert [row[4] for row in cells] == ["NA", "x", ""]
    assert cells[0][1:3] == ["00701", "-1.5"]
    assert cells[1][1] in ("00701", "00901", "10001")
    assert [row[3] for row in cells[1:]] == ["3", "12"]
    assert cells[0][3].lstrip("-").isdecimal()


def test_text_categories_are_compared_as_they_are_written(places):
    """In a file of 10001 alone the column looks like numbers."""
    found = read_bytes(places, "t.csv", b"zip,size,count\n10001,,\nNA,1.0,2\n")
    assert row_evidence(found, 1) == {"zip": "10001"}
    assert found.missing.tolist() == [[False, True, True], [True, False, False]]


def test_columns_without_any_cell_are_filled(places):
    found = fill_table(places, read_bytes(places, "t.csv", b"zip,size,count\n,1.0,\n,-1.0,\n"))
    assert not found.missing.any()
    assert found.whole.schema.types == [pa.string(), pa.float64(), pa.int64()]


def test_labels_that_are_no_text_are_found():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=[2020, 2021])
    opened = open_model(linear().fit(frame))
    gaps = frame.mask(np.eye(30, 2, dtype=bool))
    done = fill_table(opened, open_table(opened, gaps.assign(more="x")))
    wanted = opened.model.fill(gaps)
    np.testing.assert_allclose(done.frame.to_pandas().to_numpy(), wanted.to_numpy())


def test_a_table_must_have_the_columns_of_the_model(mixed_opened):
    with pytest.raises(ValueError, match="lacks the column 'city'"):
        open_table(mixed_opened, mixed().drop(columns="city"))
    with pytest.raises(ValueError, match="column 'height' must hold numbers"):
        open_table(mixed_opened, mixed().assign(height="tall"))
    with pytest.raises(ValueError, match="column 'since' must hold dates"):
        open_table(mixed_opened, mixed().assign(since="someday"))


def test_text_files_are_brought_to_the_kinds_of_the_model(mixed_imputer, mixed_opened):
    text = mixed().assign(more=1).to_csv(index=False)
    table = read_bytes(mixed_opened, "t.csv", text.encode())
    np.testing.assert_array_equal(table.missing, mixed().isna().to_numpy())
    done = fill_table(mixed_opened, table).whole.to_pandas()
    assert list(done.columns) == [*mixed().columns, "more"]
    assert not done.isna().any().any()
    wanted = mixed_imputer.transform(mixed())
    np.testing.assert_allclose(done["height"], wanted["height"])
    assert (done["city"].to_numpy() == wanted["city"].to_numpy()).all()


def test_filling_keeps_known_cells_and_does_what_the_imputer_does(
    mixed_imputer, mixed_opened, table
):
    done = fill_table(mixed_opened, table).whole.to_pandas()
    wanted = mixed_imputer.transform(mixed())
    for name in wanted:
        assert done[name].tolist() == wanted[name].tolist()


def test_models_of_numbers_fill_with_means(network, network_opened):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 4)), columns=list("DCBA"))
    frame["B"] = np.round(frame["B"])  # whole numbers, as some columns of files are
    gaps = frame.mask(np.random.default_rng(1).random(frame.shape) < 0.4)
    table = read_bytes(network_opened, "t.csv", gaps.astype({"B": "Int64"}).to_csv().encode())
    done = fill_table(network_opened, table).frame.to_pandas()
    answer = network.infer(gaps, targets=["A", "B", "D"])
    for name in ("A", "B", "D"):
        np.testing.assert_allclose(done[name], answer.mean[name].numpy().ravel())
    known = gaps.notna()
    assert (done[list("DCBA")].to_numpy()[known] == gaps.to_numpy()[known]).all()


def test_long_tables_are_sent_to_the_command_line(monkeypatch, mixed_opened, table):
    monkeypatch.setattr("vfg.studio.filling.opened_tables.MOST_ROWS", 10)
    with pytest.raises(ValueError, match="at most 10; fill it with: vfg impute"):
        fill_table(mixed_opened, table)


def test_a_cell_is_what_filling_puts_there(mixed_opened, table):
    done = fill_table(mixed_opened, table)
    place = table.columns.index("height")
    row = int(np.flatnonzero(table.missing[:, place])[0]) + 1
    found = cell(mixed_opened, table, row, "height")
    assert found.actual is None
    wanted = done.column("height").values[row - 1]
    assert found.expected.mean == pytest.approx(wanted, rel=1e-5)
    assert len(found.expected.draws) > 50
    moves = [by for _, by in found.influence]
    assert moves == sorted(moves, reverse=True)


def test_a_filled_cell_is_explained(mixed_opened, table):
    done = fill_table(mixed_opened, table)
    for column in ("height", "city"):
        place = table.columns.index(column)
        row = int(np.flatnonzero(table.missing[:, place])[0]) + 1
        found = cell(mixed_opened, table, row, column)
        why = found.why
        assert why.value == pytest.approx(done.column(column).values[row - 1])
        added = why.start + sum(why.contributions.values()) + why.shift
        assert added == pytest.approx(why.total, abs=1e-6)
        shown = json.dumps(cell_text(found, row), cls=PlotlyJSONEncoder, ensure_ascii=False)
        assert why.sentence in shown
        assert "contribution" in shown
    known = int(np.flatnonzero(~table.missing[:, place])[0]) + 1
    found = cell(mixed_opened, table, known, column)
    assert found.why is None
    assert "moved most by" in json.dumps(cell_text(found, known), cls=PlotlyJSONEncoder)


@pytest.mark.parametrize("options", [{"bend": False}, {"members": 1, "steps": 20}])
def test_a_cell_has_the_interval_of_the_imputer(options):
    """Also where cells are missing because of their value, which moves and widens it."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 400))
    frame.columns = ["x", "y"]
    hide = generator.random(400) < 1 / (1 + np.exp(-3 * (frame["y"] - 0.5)))
    frame.loc[hide, "y"] = np.nan
    for missingness in ("self", "ignorable"):
        imputer = VFGImputer(missingness=missingness, **options).fit(frame)
        opened = open_model(imputer)
        row = int(np.flatnonzero(hide)[0])
        found = cell(opened, open_table(opened, frame), row + 1, "y")
        low, high = imputer.predict_interval(frame, level=0.9)
        assert found.expected.low == pytest.approx(low["y"][row], abs=1e-9)
        assert found.expected.high == pytest.approx(high["y"][row], abs=1e-9)
        filled = imputer.transform(frame)["y"][row]
        assert found.expected.mean == pytest.approx(filled, abs=1e-6)
        assert abs(np.mean(found.expected.draws) - filled) < 0.15
        assert found.why.value == pytest.approx(filled, abs=1e-6)
        assert (found.why.shift > 0.1) == (missingness == "self")
        assert ("it is missing (+" in found.why.sentence) == (missingness == "self")


def test_a_known_cell_is_looked_at_without_itself(mixed_opened, table):
    place = table.columns.index("age")
    row = int(np.flatnonzero(~table.missing[:, place])[0]) + 1
    found = cell(mixed_opened, table, row, "age")
    assert found.actual == mixed()["age"].iloc[row - 1]
    assert not found.expected.given
    assert "age" not in dict(found.influence)


def test_cells_of_columns_that_never_varied_are_not_missing():
    values = numbers()[1]
    values[:, 1] = 7.0
    opened = open_model(linear().fit(values))
    assert cell(opened, open_table(opened, values), 1, "1").actual == 7.0


def test_tables_without_missing_cells_say_so(linear_opened):
    pytest.importorskip("dash")
    from vfg.studio.components import missingness

    whole, gaps = (missingness(open_table(linear_opened, t)) for t in numbers())
    assert not whole["data"]
    assert whole["layout"]["annotations"][0]["text"] == "No cell is missing."
    assert gaps["data"][0]["type"] == "heatmap"


def test_maps_of_many_columns_name_some_of_them():
    pytest.importorskip("dash")
    from vfg.studio.components import missingness

    names = [f"a long name of column {k}" for k in range(60)]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 60)), columns=names)
    opened = open_model(linear().fit(frame))
    frame.iloc[0, 0] = np.nan
    axis = missingness(open_table(opened, frame))["layout"]["xaxis"]
    assert axis["tickvals"] == names[::3]
    assert all(len(text) <= 16 for text in axis["ticktext"])


def test_rows_give_dates_as_people_write_them(mixed_opened, table):
    place = table.columns.index("since")
    row = int(np.flatnonzero(~table.missing[:, place])[0]) + 1
    wanted = mixed()["since"].iloc[row - 1].date().isoformat()
    assert row_evidence(table, row)["since"] == wanted


def test_unknown_categories_are_no_evidence(mixed_opened):
    frame = mixed()
    frame["city"] = "Paris"
    table = open_table(mixed_opened, frame)
    assert "city" not in row_evidence(table, 1)
    assert colour_cells(table, "city", np.arange(2)) == [None, None]


def test_rows_outside_the_table_are_refused(table):
    with pytest.raises(ValueError, match="the rows 1 to 60"):
        row_evidence(table, 61)


def test_comparisons_split_a_column(mixed_opened, table):
    parts = comparison(table, fill_table(mixed_opened, table), "city")
    assert len(parts["filled"]) == table.missing[:, table.columns.index("city")].sum()
    assert len(parts["filled"]) + len(parts["observed"]) == table.rows


def test_arrays_without_names_fit_by_position(linear_opened):
    table = open_table(linear_opened, np.full((3, 4), np.nan))
    done = fill_table(linear_opened, table)
    assert not done.missing.any()
    assert done.whole.num_columns == 4


def test_a_browser_keeps_four_tables_open(mixed_opened):
    session = Session(mixed_opened, mixed())
    data = mixed().to_csv(index=False).encode()
    other = session.read("other.csv", data, "b")
    described = [session.read(f"{k}.csv", data, "a") for k in range(5)]
    assert [one["note"] != "" for one in described] == [False] * 4 + [True]
    assert described[4]["note"].startswith("0.csv was closed")
    with pytest.raises(ValueError, match="not open any more"):
        session.table(described[0])
    for one in (*described[1:], other, session.first):
        assert session.table(one).rows == 60
    with pytest.raises(ValueError, match="no table is open"):
        session.table(None)


def test_many_browsers_do_not_fill_the_memory(mixed_opened):
    session = Session(mixed_opened)
    data = mixed().to_csv(index=False).encode()
    described = [session.read("t.csv", data, str(k)) for k in range(9)]
    with pytest.raises(ValueError, match="not open any more"):
        session.table(described[0])
    assert session.table(described[1]).rows == 60


def test_small_files_of_large_tables_are_refused(places):
    """Parquet holds a million equal rows in a few bytes."""
    rows = 7_000_000
    table = pa.table({name: pa.nulls(rows, pa.int8()) for name in ("zip", "size", "count")})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    assert buffer.tell() < 2**20
    with pytest.raises(ValueError, match="21,000,000 cells, and the page takes 20,000,000"):
        read_bytes(places, "t.parquet", buffer.getvalue())


def test_texts_that_take_much_memory_are_refused(monkeypatch, places):
    monkeypatch.setattr("vfg.studio.filling.opened_tables.MOST_MEMORY", 2**20)
    column = ["x" * 1000] * 5000
    buffer = io.BytesIO()
    pq.write_table(pa.table({"zip": column, "size": [0.5] * 5000, "count": [1] * 5000}), buffer)
    assert buffer.tell() < 2**17
    with pytest.raises(ValueError, match="and the page takes 1; fill it with: vfg impute"):
        read_bytes(places, "t.parquet", buffer.getvalue())


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_download_is_what_vfg_impute_writes(tmp_path, mixed_imputer, mixed_opened, ending):
    from vfg.bigtable import impute

    frame = mixed().assign(id=[f"{k:07d}" for k in range(60)], note="NA", count=range(60))
    path, target = tmp_path / f"t.{ending}", tmp_path / f"done.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path, index=False)
    impute(path, mixed_imputer.model_, target)
    name, data = download(mixed_opened, read_bytes(mixed_opened, path.name, path.read_bytes()))
    assert name == f"t-filled.{ending}"
    assert data == target.read_bytes()


def test_confidence_is_that_of_infer(mixed_opened, table):
    rows = np.arange(5, 25)
    found = confidence(mixed_opened.model, table.frame.take(rows), table.missing[rows])
    np.testing.assert_array_equal(np.isfinite(found), table.missing[rows])
    place, column = np.argwhere(table.missing[rows][:, [3]])[0][0], table.columns.index("city")
    assert table.columns[3] == "city"
    expected = cell(mixed_opened, table, int(rows[place]) + 1, "city").expected
    assert found[place, column] == pytest.approx(expected.probabilities.max(), abs=1e-4)
    known = found[np.isfinite(found)]
    assert ((known >= 0) & (known <= 1)).all()


def test_the_session_opens_files(tmp_path, mixed_opened):
    path = tmp_path / "t.csv"
    path.write_text(mixed().to_csv(index=False))
    assert Session(mixed_opened, path).first["rows"] == 60
    with pytest.raises(ValueError, match="there is no table"):
        Session(mixed_opened, tmp_path / "other.csv")


def test_images_fill_too(picture_model):
    opened = open_model(picture_model)
    pixels = np.zeros((2, 24))
    pixels[0, :5] = np.nan
    done = fill_table(opened, open_table(opened, pixels))
    assert np.isfinite(done.frame.to_pandas().to_numpy(dtype=float)).all()
