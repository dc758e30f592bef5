"""Observed cells of separated text are written as they were read; dialects; one column."""

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from bigtable.tables_on_disk import linear_model

from vfg.bigtable import Dialect, Filling, fit, impute, open_table, text_files, write_table
from vfg.modelfile import dumps, loads
from vfg.sklearn import VFGImputer

HEAD = "real,whole,truth,day,time,zone,word,zip\n"
ROWS = [
    "2.50,+4,True,2020-01-31,2020-01-31T10:20:30,2020-01-31T10:20:30+02:00,a,00701",
    ".120,-0,False,2020-02-29,2020-02-01T00:00:00,2020-02-01T00:00:00Z,b,00702",
    "1e-400,12,True,2021-01-01,2021-01-01T12:00:00,2021-01-01T12:00:00Z,a,12345",
    "12345678901234567.25,7,False,2021-05-05,2021-05-05T01:02:03,2021-05-05T01:02:03Z,b,00701",
    ' 3.10 ,8,True,2021-06-06,2021-06-06T01:02:03,2021-06-06T01:02:03Z,"c, d",00702',
    "-0.0,9,NA,2021-07-07,2021-07-07T01:02:03,2021-07-07T01:02:03Z,a,00703",
    ",,,,,,,",
    "nan,null,NA,,NULL,,n/a,",
]


@pytest.fixture(scope="module")
def model():
    table = pa.table(
        {
            "real": [1.5, 2.5, None, 4.0] * 10,
            "whole": [1, 2, 3, None] * 10,
            "truth": [True, False, None, True] * 10,
            "word": ["a", "b", None, "c, d"] * 10,
            "zip": ["00701", "00702", "00703", None] * 10,
        }
    )
    return linear_model(table)


@pytest.mark.filterwarnings("ignore:the column 'zip' holds categories that did not occur")
@pytest.mark.parametrize("shard_rows", [3, 100])
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_observed_cells_keep_their_text(tmp_path, model, shard_rows, processes):
    (tmp_path / "t.csv").write_text(HEAD + "\n".join(ROWS) + "\n")
    impute(
        tmp_path / "t.csv", model, tmp_path / "f.csv", shard_rows=shard_rows, processes=processes
    )
    found = (tmp_path / "f.csv").read_text().splitlines()
    assert found[0] + "\n" == HEAD
    assert found[1:6] == ROWS[:5]
    assert found[6] == ROWS[5].replace("NA", found[6].split(",")[2])
    assert found[6].split(",")[2] in ("True", "False")
    for line, was in zip(found[7:], ROWS[6:], strict=True):
        cells, before = line.split(","), was.split(",")
        assert cells[2] in ("True", "False")
        assert cells[3:6] == before[3:6]  # not in the model
        assert float(cells[0]) == float(cells[0])
        assert int(cells[1]) in (1, 2, 3)
        assert cells[-1].startswith("007")


@pytest.mark.filterwarnings("ignore:the column 'zip' holds categories that did not occur")
def test_draws_and_intervals_keep_it_too(tmp_path, model):
    (tmp_path / "t.csv").write_text(HEAD + "\n".join(ROWS) + "\n")
    impute(tmp_path / "t.csv", model, tmp_path / "f.csv", filling=Filling(draws=3, flag=True))
    found = (tmp_path / "f.csv").read_text().splitlines()[1:]
    assert len(found) == 3 * len(ROWS)
    for row, before in enumerate(ROWS[:5]):
        for draw in range(3):
            assert found[3 * row + draw].startswith(before + ",")
            assert found[3 * row + draw].endswith(f",{draw + 1}")


def test_categories_of_text_are_text_whatever_they_look_like(tmp_path, model):
    (tmp_path / "t.csv").write_text("real,whole,truth,word,zip\n1.5,1,true,a,701\n2.5,2,false,b,\n")
    impute(tmp_path / "t.csv", model, tmp_path / "f.csv")
    found = (tmp_path / "f.csv").read_text().splitlines()
    assert found[1] == "1.5,1,true,a,701"
    assert found[2].split(",")[-1].startswith("007")


SEMICOLONS = "a;b;c\n" + "".join(f"{k},5;{2 * k + 1};x\n" for k in range(30)) + ";7;x\n3,5;;x\n"


def test_the_output_has_the_delimiter_and_decimal_mark_of_the_input(tmp_path):
    (tmp_path / "t.csv").write_text(SEMICOLONS)
    source = open_table(tmp_path / "t.csv")
    assert source.schema.types == [pa.float64(), pa.int64(), pa.string()]
    assert (source.dialect.delimiter, source.dialect.decimal) == (";", ",")
    learner = fit(source, VFGImputer(bend=False, random_state=0), columns=["a", "b"])
    impute(source, learner, tmp_path / "f.csv", filling=Filling(level=0.9))
    found = (tmp_path / "f.csv").read_text().splitlines()
    assert found[0] == "a;b;c;a_low;a_high;b_low;b_high"
    assert found[1].startswith("0,5;1;x;0,5;")
    assert abs(float(found[31].split(";")[0].replace(",", ".")) - 3.5) < 2
    assert abs(int(found[32].split(";")[1]) - 7) < 4
    assert "." not in "".join(found)


@pytest.mark.parametrize("delimiter", [":", " ", "|"])
def test_other_delimiters_can_be_named(tmp_path, delimiter):
    (tmp_path / "t.csv").write_text(f"a{delimiter}b\n1{delimiter}2\n")
    source = open_table(tmp_path / "t.csv", dialect=Dialect(delimiter=delimiter))
    assert source.read().to_pydict() == {"a": [1], "b": [2]}


@pytest.mark.parametrize("wrong", [{"delimiter": ",,"}, {"delimiter": '"'}, {"decimal": "x"}])
def test_dialects_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=r"must be"):
        Dialect(**wrong)


def test_quoted_names_do_not_decide_the_delimiter(tmp_path):
    (tmp_path / "t.csv").write_text('"a, b";"c"\n1;2\n')
    assert open_table(tmp_path / "t.csv").read().to_pydict() == {"a, b": [1], "c": [2]}


def test_marks_of_missing_values_are_missing(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,-999\n?,2.5\n3,-999.0\n-999,4\n")
    plain = open_table(tmp_path / "t.csv").read()
    assert plain.to_pydict() == {"a": ["1", "?", "3", "-999"], "b": [-999.0, 2.5, -999.0, 4.0]}
    source = open_table(tmp_path / "t.csv", dialect=Dialect(missing=("?", "-999")))
    assert source.read().to_pydict() == {"a": [1, None, 3, None], "b": [None, 2.5, None, 4.0]}


def test_doubtful_columns_are_named(tmp_path):
    lines = [
        f"{k},{k if k % 4 else '?'},{-999 if k % 5 == 0 else k / 7},{k:05d}" for k in range(40)
    ]
    (tmp_path / "t.csv").write_text("id,a,b,zip\n" + "\n".join(lines) + "\n")
    source = open_table(tmp_path / "t.csv")
    assert source.rows == 40
    assert source.doubts == [
        "the column 'b' has -999 far from its other numbers; if that marks missing values, name it "
        "in --missing",
        "the text column 'a' looks like numbers with '?'; if that marks missing values, name it in "
        "--missing",
    ]


@pytest.mark.parametrize("rows", [["1", "", "3", "", ""], ["", "2"]])
def test_an_empty_line_of_a_single_column_is_a_missing_cell(tmp_path, rows):
    (tmp_path / "t.csv").write_text("a\n" + "\n".join(rows) + "\n")
    source = open_table(tmp_path / "t.csv")
    assert source.read()["a"].to_pylist() == [int(cell) if cell else None for cell in rows]
    assert source.rows == len(rows)


@pytest.mark.parametrize("start", ["\n", "\r\n\r\n", "\r", "\n\n\n", "\ufeff", "\ufeff\n"])
def test_empty_lines_before_the_only_name_are_nothing(tmp_path, start):
    (tmp_path / "t.csv").write_bytes(f"{start}a\n1\n\n3\n".encode())
    source = open_table(tmp_path / "t.csv")
    assert source.read().to_pydict() == {"a": [1, None, 3]}
    assert source.rows == 3


def test_empty_lines_of_several_columns_are_nothing(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n\n3,4\n\n")
    assert open_table(tmp_path / "t.csv").rows == 2


def test_an_unclosed_quotation_mark_is_told(tmp_path):
    lines = [f"{k},word" for k in range(50)]
    lines[5] = '5,"word'
    lines[45] = '45,"word'
    (tmp_path / "t.csv").write_text("a,b\n" + "\n".join(lines) + "\n")
    with pytest.warns(
        UserWarning, match=r"holds whole rows, so a quotation mark may not be closed"
    ):
        assert open_table(tmp_path / "t.csv").rows < 50
    plain = open_table(tmp_path / "t.csv", dialect=Dialect(quotes=False))
    assert plain.rows == 50


def test_cells_of_several_lines_are_fine(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n1,"one\ntwo, and more\nthree"\n2,x\n')
    with pytest.warns(UserWarning, match="whole rows"):
        assert open_table(tmp_path / "t.csv").rows == 2
    (tmp_path / "t.csv").write_text('a,b\n1,"one\ntwo\nthree"\n2,x\n')
    assert open_table(tmp_path / "t.csv").rows == 2


# Dates and durations in other layouts than ISO's.


def write_moments(path, layout, days, clock=""):
    moments = [START + timedelta(days=day) for day in days]
    cells = [moment.strftime(layout) + clock for moment in moments]
    rows = [f"{cell},{day / 4}" for cell, day in zip(cells, days, strict=True)]
    path.write_text("day,x\n" + "\n".join(rows) + "\n")
    return moments


START = date(2020, 1, 1)


@pytest.mark.parametrize("layout", ["%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"])
def test_dates_of_one_order_are_dates(tmp_path, layout):
    moments = write_moments(tmp_path / "t.csv", layout, range(0, 400, 7))
    source = open_table(tmp_path / "t.csv")
    assert source.read()["day"].to_pylist() == moments
    assert source.doubts == []


def test_dates_may_have_times_and_no_leading_zeros(tmp_path):
    (tmp_path / "t.csv").write_text("t\n1.2.2020 9:05\n31.12.2020 23:59:01\n\n")
    expected = [datetime(2020, 2, 1, 9, 5), datetime(2020, 12, 31, 23, 59, 1), None]
    assert open_table(tmp_path / "t.csv").read()["t"].to_pylist() == expected


@pytest.mark.parametrize("cells", [["31.12.2020", "31.02.2020"], ["31.12.2020", "12/31/2020"]])
def test_what_is_no_date_or_no_single_layout_stays_text(tmp_path, cells):
    (tmp_path / "t.csv").write_text("t\n" + "\n".join(cells) + "\n")
    assert open_table(tmp_path / "t.csv").read()["t"].to_pylist() == cells


def test_days_up_to_12_alone_decide_nothing_but_can_be_told(tmp_path):
    (tmp_path / "t.csv").write_text("t\n03/04/2020\n05/06/2020\n")
    source = open_table(tmp_path / "t.csv")
    assert source.schema.field("t").type == pa.string()
    assert len(source.doubts) == 1
    assert "'t' looks like dates" in source.doubts[0]
    assert "--day-first or --month-first" in source.doubts[0]
    for first, month in ((True, 4), (False, 3)):
        told = open_table(tmp_path / "t.csv", dialect=Dialect(day_first=first))
        assert told.read()["t"][0].as_py().month == month
        assert told.doubts == []


def test_files_of_a_table_need_the_same_layout(tmp_path):
    (tmp_path / "1.csv").write_text("t\n31.12.2020\n")
    (tmp_path / "2.csv").write_text("t\n12.31.2020\n")
    source = open_table([tmp_path / "1.csv", tmp_path / "2.csv"])
    assert source.read()["t"].to_pylist() == ["31.12.2020", "12.31.2020"]


def test_durations_are_durations(tmp_path):
    (tmp_path / "t.csv").write_text("t\n1:30:00\nNA\n100:00:59\n")
    expected = [timedelta(hours=1, minutes=30), None, timedelta(hours=100, seconds=59)]
    assert open_table(tmp_path / "t.csv").read()["t"].to_pylist() == expected


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """A table of dates and durations that follow from a number, and a model of it."""
    path = tmp_path_factory.mktemp("dated") / "t.csv"
    rows = [
        f"{(START + timedelta(days=k)).strftime('%d.%m.%Y')};0{k % 10}:{k % 60:02d}:00;{k},5;?"
        for k in range(200)
    ]
    rows[50] = ";" + rows[50].partition(";")[2]
    path.write_text("day;took;x;word\n" + "\n".join(rows) + "\n")
    source = open_table(path, dialect=Dialect(missing=("?",)))
    learner = fit(source, VFGImputer(bend=False, random_state=0), columns=["day", "took", "x"])
    return path, learner.model_


def test_filled_dates_have_the_layout_of_the_column(tmp_path, dated):
    path, model = dated
    impute(path, model, tmp_path / "f.csv", filling=Filling(level=0.9))
    before, after = path.read_text().splitlines(), (tmp_path / "f.csv").read_text().splitlines()
    assert after[0] == "day;took;x;word;day_low;day_high;took_low;took_high;x_low;x_high"
    cells = after[51].split(";")
    moments = [datetime.strptime(cells[k], "%d.%m.%Y").date() for k in (0, 4, 5)]
    assert abs((moments[0] - START).days - 50) < 10
    assert moments[1] <= moments[0] <= moments[2]
    assert cells[6] == cells[7] == cells[1]  # it was observed
    others = [k for k in range(201) if k != 51]
    assert [after[k].split(";")[:4] for k in others] == [before[k].split(";") for k in others]


def test_durations_are_filled_as_they_are_written(tmp_path, dated):
    (tmp_path / "n.csv").write_text("day;took;x;word\n01.02.2020;;31,5;?\n")
    impute(tmp_path / "n.csv", dated[1], tmp_path / "f.csv")
    cell = (tmp_path / "f.csv").read_text().splitlines()[1].split(";")[1]
    hours, minutes, seconds = map(int, cell.split(":"))
    assert len(cell) == 8
    assert max(minutes, seconds) < 60
    assert 0 <= hours < 10


# What a fit learned about reading is kept in the model.


@pytest.mark.parametrize("way", [lambda model: model, lambda model: loads(dumps(model))])
def test_tables_are_read_as_those_of_the_fit(tmp_path, dated, way):
    # One day is not above 12, whole numbers have no decimal mark, and ? is no missing value.
    (tmp_path / "n.csv").write_text("x;day;took;word\n?;01.02.2020;1:00:00;?\n40;?;1:00:00;b\n")
    impute(tmp_path / "n.csv", way(dated[1]), tmp_path / "f.csv")
    first, second = (line.split(";") for line in (tmp_path / "f.csv").read_text().splitlines()[1:])
    assert abs(float(first[0].replace(",", ".")) - 31.5) < 10
    assert "," in first[0]
    day = datetime.strptime(second[1], "%d.%m.%Y").date()
    assert abs((day - START).days - 40) < 10
    assert (first[3], second[3]) == ("?", "b")


def test_another_delimiter_and_explicit_settings_go_first(tmp_path, dated):
    (tmp_path / "n.csv").write_text("day,took,x,word\n01.02.2020,1:00:00,-,?\n,1:00:00,40.5,b\n")
    source = open_table(
        tmp_path / "n.csv", like=dated[1].origin, dialect=Dialect(missing=("-",), day_first=True)
    )
    assert (source.dialect.delimiter, source.dialect.decimal) == (",", ".")
    table = source.read().to_pydict()
    assert table["x"] == [None, 40.5]
    assert table["word"] == ["?", "b"]
    assert table["day"][0] == date(2020, 2, 1)


def test_models_without_an_origin_detect_as_before(tmp_path, model):
    assert model.origin == {}
    (tmp_path / "n.csv").write_text("real;whole;truth;word;zip\n1,5;1;true;a;00701\n;2;;;\n")
    impute(tmp_path / "n.csv", model, tmp_path / "f.csv")
    assert (tmp_path / "f.csv").read_text().splitlines()[1] == "1,5;1;true;a;00701"


@pytest.mark.parametrize("origin", [{"dialect": 3}, {"dialect": {}}, {"columns": [1]}])
def test_an_origin_that_makes_no_sense_is_ignored(tmp_path, origin):
    (tmp_path / "t.csv").write_text("a;b\n1;2\n")
    assert open_table(tmp_path / "t.csv", like=origin).read().to_pydict() == {"a": [1], "b": [2]}


def test_whole_numbers_in_a_column_of_real_ones_lose_no_digits(tmp_path):
    rows = "".join(f"{k / 8:.3f},{k * 0.33:.2f}\n" for k in range(60))
    (tmp_path / "t.csv").write_text("a,b\n" + rows)
    learner = fit(tmp_path / "t.csv", VFGImputer(bend=False, random_state=0))
    (tmp_path / "n.csv").write_text("a,b\n1,\n3,6\n")
    impute(tmp_path / "n.csv", learner, tmp_path / "f.csv")
    lines = (tmp_path / "f.csv").read_text().splitlines()
    assert lines[2] == "3,6"
    table = pa.table({"a": [1.0, 3.0], "b": [None, 6.0]})
    expected = learner.transform(table)["b"][0].as_py()
    assert float(lines[1].split(",")[1]) == expected != round(expected)


# One cell that is no number.


@pytest.mark.parametrize("cell", ["07,50", "1.5.3", "12O"])
@pytest.mark.parametrize("row", [3, 37])
def test_a_cell_that_makes_a_column_text_is_named(tmp_path, monkeypatch, cell, row):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 128)  # so that row 37 is in a later block
    rows = [f"{k}.5;x" for k in range(40)]
    rows[row - 1] = f"{cell};x"
    (tmp_path / "t.csv").write_text("a;b\n" + "\n".join(rows) + "\n")
    source = open_table(tmp_path / "t.csv", dialect=Dialect(decimal="."))
    assert source.schema.field("a").type == pa.string()
    assert source.doubts == [
        f"the column 'a' is text, not numbers, because of {cell!r} in row {row}; correct the "
        "cell, or "
        "name it in --missing"
    ]
    mended = open_table(tmp_path / "t.csv", dialect=Dialect(decimal=".", missing=(cell,)))
    assert mended.read()["a"].null_count == 1
    assert mended.doubts == []


@pytest.mark.parametrize("row", [3, 37])
def test_codes_with_leading_zeros_are_not_said_to_be_wrong(tmp_path, monkeypatch, row):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 128)
    rows = [f"{10000 + 7 * k};{k}" for k in range(40)]
    rows[row - 1] = "00701;5"
    (tmp_path / "t.csv").write_text("zip;x\n" + "\n".join(rows) + "\n")
    source = open_table(tmp_path / "t.csv")
    assert source.schema.field("zip").type == pa.string()
    assert source.doubts == []
    rows[8] = "9;5"  # of another width, so that the zeros may be an error
    (tmp_path / "t.csv").write_text("zip;x\n" + "\n".join(rows) + "\n")
    source = open_table(tmp_path / "t.csv")
    assert source.schema.field("zip").type == pa.string()
    assert "because of '00701' in row" in source.doubts[0]


# Line ends and quotation marks.

QUOTED = {
    "all": '"a","b","c"\r\n"1","x","2.50"\r\n"2","y",""\r\n"3","x","3.5"\r\n',
    "words": '"a","b","c"\n1,"x",2.50\n2,"y",\n3,"x, z",3.5\n',
    "none": "a,b,c\r\n1,x,2.50\r\n2,y,\r\n3,x,3.5\r\n",
    "needed": 'a,b,c\r1,x,2.50\r2,"y, z",\r3,x,3.5\r',
    "lines": '"a","b","c"\r\n"1","x\r\n""y""","2.50"\r\n"2","y",""\r\n"3","x","3.5"\r\n',
}


def test_long_files_keep_their_quotation_marks(tmp_path):
    rows = "".join(f'"{k}";"word {k % 3}";{k / 8}\n' for k in range(5000))
    assert len(rows) > text_files.QUOTED_BYTES
    (tmp_path / "t.csv").write_text(f"a;b;c\n{rows}")
    known = pa.table({"a": [1, 2, 3] * 9, "c": [2.5, 3.0, 3.5] * 9})
    impute(tmp_path / "t.csv", linear_model(known), tmp_path / "f.csv", shard_rows=999)
    assert (tmp_path / "f.csv").read_text() == (tmp_path / "t.csv").read_text()


@pytest.mark.parametrize("kind", QUOTED)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_line_ends_and_quotation_marks_stay(tmp_path, kind, suffix):
    text = QUOTED[kind] if suffix == ".csv" else QUOTED[kind].replace(",", "\t")
    known = pa.table({"a": [1, 2, 3] * 9, "c": [2.5, 3.0, 3.5] * 9})
    (tmp_path / f"t{suffix}").write_bytes(text.encode())
    impute(tmp_path / f"t{suffix}", linear_model(known), tmp_path / f"f{suffix}")
    after = (tmp_path / f"f{suffix}").read_bytes().decode()
    cell = '"3.0"' if kind in ("all", "lines") else "3.0"
    empty = '""' if kind in ("all", "lines") else ""
    mark = "," if suffix == ".csv" else "\t"
    end = "\r\n" if "\r\n" in text else text[-1]
    assert after == text.replace(f"{mark}{empty}{end}", f"{mark}{cell}{end}")


@pytest.mark.parametrize("head", ["a" * 200_000 + ";b", '"a;b', ""])
def test_a_first_line_that_is_not_that_of_the_fit_is_no_defect(tmp_path, dated, head):
    (tmp_path / "t.csv").write_text(f"{head}\n1;2\n")
    try:
        names = open_table(tmp_path / "t.csv", like=dated[1].origin).names
    except ValueError:
        return  # in a sentence
    assert names != ["day", "took", "x"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_moments_of_another_zone_are_converted(tmp_path, suffix):
    first = datetime(2021, 3, 20, 12, tzinfo=UTC)
    moments = [first + timedelta(hours=6 * k) for k in range(60)]
    table = pa.table(
        {"hour": [float(k) for k in range(60)], "when": [*moments[:7], None, *moments[8:]]}
    )
    when = table["when"].cast(pa.timestamp("us", "Europe/Berlin"))
    model = linear_model(table.set_column(1, "when", when))
    source, target = tmp_path / f"gaps.{suffix}", tmp_path / f"full.{suffix}"
    write_table(table.to_batches(), table.schema, source)
    impute(source, model, target)
    cells = open_table(target).read()["when"].to_pylist()
    wanted = model.fill(table.set_column(1, "when", when))["when"].to_pylist()
    assert [cell.astimezone(UTC) for cell in cells] == [cell.astimezone(UTC) for cell in wanted]


def test_texts_that_are_no_dates_are_filled_among_dates(tmp_path):
    rows = [f"{START + timedelta(days=k)},{k}.0" for k in range(60)]
    rows[7], rows[9] = "soon,7.0", ",9.0"
    (tmp_path / "t.csv").write_text("\n".join(["day,x", *rows]) + "\n")
    with pytest.warns(UserWarning, match="'day' holds dates, but 1 of 59 cells, such as 'soon'"):
        model = fit(open_table(tmp_path / "t.csv"), VFGImputer(bend=False, random_state=0)).model_
    with pytest.warns(UserWarning, match="1 of 59 cells"):
        impute(tmp_path / "t.csv", model, tmp_path / "f.csv")
    after = (tmp_path / "f.csv").read_text().splitlines()[1:]
    expected = [f"{START + timedelta(days=k)},{k}.0" for k in range(60)]
    assert after == expected
