"""The page about a filled table: complete, self-contained, and safe with odd names."""

import re

import numpy as np
import pandas as pd
import pytest

from vfg.graph import Graph
from vfg.imputation.evaluation import ColumnScore, Evaluation
from vfg.plots.report import Report, _evaluation_section, page, write_report
from vfg.sklearn import VFGImputer

pytest.importorskip("matplotlib", reason="pictures need matplotlib")
NAN = float("nan")


def report(**changes):
    values = np.random.default_rng(0).normal(size=(30, 2))
    filled = pd.DataFrame({"<b>a</b>": values[:, 0], "b": values[:, 1]})
    table = filled.mask(np.random.default_rng(1).random((30, 2)) < 0.3)
    scores = (
        ColumnScore("<b>a</b>", 9, 0.5, 0.4, 1.0, 0.875, 1.5, NAN),
        ColumnScore("b", 4, 0.2, 0.1, 0.9, NAN, NAN, 0.75),
        ColumnScore("c", 0, NAN, NAN, NAN, NAN, NAN, NAN),
    )
    made = {
        "source": "<table>.csv",
        "table": table,
        "filled": filled,
        "evaluation": Evaluation(0.9, scores),
        "graph": Graph.star({"a": 1, "b": 1}, width=2),
        "rows": 30,
        "settings": {"seed": 7, "graph": "<graph>"},
    }
    return Report(**{**made, **changes})


def test_the_page_holds_every_part_and_no_markup_of_the_data(tmp_path):
    write_report(report(), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    for heading in (
        "Missing values",
        "Errors on held-out cells",
        "Distributions before and after",
        "The graph",
        "Settings",
    ):
        assert text.count(f"<h2>{heading}</h2>") == 1
    assert "<b>a</b>" not in text
    assert "<graph>" not in text
    assert "&lt;b&gt;a&lt;/b&gt;" in text
    assert "<td>87.5%</td>" in text
    assert "<td>75.0%</td>" in text
    assert text.count("<img ") == 4  # one of every column with missing cells
    assert 'src="http' not in text


def test_the_most_doubtful_cells_come_first():
    generator = np.random.default_rng(0)
    size = generator.normal(size=200)
    filled = pd.DataFrame(
        {
            "a": size,
            "b": size + 0.05 * generator.normal(size=200),
            "noise": generator.normal(size=200),
            "kind": np.where(generator.random(200) < 0.5, "x", "<y>"),
        }
    )
    table = filled.mask(generator.random((200, 4)) < 0.1)
    model = VFGImputer(bend=False).fit(table).model_
    text = page(report(table=table, filled=filled, model=model, rows=200, evaluation=None))
    listed = text.partition("Most uncertain cells")[2].partition("</table>")[0]
    rows = re.findall(r"<tr><td>(\d+)</td><td>(\w+)</td><td>([^<]*)</td><td>(\d+)%", listed)
    assert len(rows) == 15
    shares = [int(share) for *_, share in rows]
    assert shares == sorted(shares)
    for row, column, value, _ in rows:
        # Of a and b only rows that lack both are in doubt.
        assert column == "noise" or table[["a", "b"]].iloc[int(row) - 1].isna().all()
        assert pd.isna(table[column].iloc[int(row) - 1])
        assert value == str(filled[column].iloc[int(row) - 1])


def test_the_page_follows_the_system_into_the_dark():
    text = page(report())
    assert "prefers-color-scheme: dark" in text
    assert "image/png" not in text


def test_parts_that_are_not_there_are_left_out():
    whole = report().filled
    text = page(report(table=whole, filled=whole, evaluation=None, graph=None, rows=100))
    assert "held-out cells" not in text
    assert "Distributions" not in text
    assert "The graph" not in text
    assert "Pictures and shares are of 30 of the rows" in text


def test_without_hidden_cells_nothing_is_said_about_them():
    nothing = Evaluation(0.9, (ColumnScore("a", 0, NAN, NAN, NAN, NAN, NAN, NAN),))
    assert _evaluation_section(report(evaluation=nothing)) == ""


def test_the_page_says_what_the_model_knew_of_hidden_cells():
    assert "Another &lt;model&gt; filled them." in _evaluation_section(
        report(hiding="Another <model> filled them.")
    )
