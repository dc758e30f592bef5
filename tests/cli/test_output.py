"""What people see: histograms, bars, tables."""

import numpy as np
import pytest

from vfg.cli.output import bar, format_value, histogram, print_table, replace_nonfinite, to_drawable


def test_the_area_of_a_histogram_follows_the_counts():
    draws = np.random.default_rng(0).normal(size=4000)
    *lines, axis = histogram(draws, width=20, height=8)
    marks = " ▁▂▃▄▅▆▇█"
    heights = [sum(marks.index(line[k]) for line in lines) for k in range(20)]
    counts, _ = np.histogram(draws, bins=20)
    assert np.corrcoef(heights, counts)[0, 1] > 0.999
    assert max(heights) == 64
    assert axis.split() == [format_value(float(draws.min())), format_value(float(draws.max()))]
    assert all(len(line) == 20 for line in [*lines, axis])


def test_whole_numbers_have_a_bar_each():
    assert histogram([0, 0, 1, 2, 2], width=9, height=1) == ["███▄▄▄███", "0       2"]


def test_a_single_value_needs_no_picture():
    assert histogram([3.0, 3.0]) == ["always 3"]


def test_ends_may_have_names():
    assert histogram([0.0, 0.5], width=21, ends=("2020-01-01", "2020-07-01"))[-1] == (
        "2020-01-01 2020-07-01"
    )


@pytest.mark.parametrize("share", [-1.0, 0.0, 0.501, 1.0, 7.0])
def test_bars_are_never_too_long(share):
    assert len(bar(share, width=10)) == min(10, max(0, round(10 * share + 0.4)))


def test_terminals_without_blocks_get_signs_they_know(monkeypatch):
    class Ascii:
        encoding = "ascii"

    monkeypatch.setattr("sys.stdout", Ascii())
    assert to_drawable(" ▁▄█") == "  ##"


def test_numbers_that_json_lacks_become_null():
    assert replace_nonfinite({1: (float("inf"), float("nan"), 2.0, None, "a")}) == {
        "1": [None, None, 2.0, None, "a"]
    }


def test_names_that_look_like_markup_are_shown_as_they_are(capsys):
    print_table(("column", "n"), [("[red]a[/red]", 1)])
    assert "[red]a[/red]" in capsys.readouterr().out
