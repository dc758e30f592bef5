"""Observed cells of separated text are written as they were read; dialects; one column."""

import pyarrow as pa
import pytest
from bigtable.tables_on_disk import linear_model

from vfg.bigtable import Dialect, Filling, fit, impute, open_table
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
        "the column 'b' has -999 far from its other numbers",
        "the text column 'a' looks like numbers with '?'",
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
