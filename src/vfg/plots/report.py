"""A page about a filled table: one file of HTML that needs nothing else."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vfg.imputation.answers import axis_numbers
from vfg.inference.variables import Model, central_levels
from vfg.inputs import Name
from vfg.plots.graphs import graph as draw_graph
from vfg.plots.imputations import distributions, missingness
from vfg.tables.cells import Label
from vfg.tables.frames import open_table
from vfg.utils.extras import needs
from vfg.utils.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vfg.graph import Graph
    from vfg.imputation.evaluation import ColumnScore, Evaluation

LEVEL = 0.9
"""Of the intervals whose length is the confidence in a number."""
MOST_DOUBTFUL = 15
"""How many of the cells with the least confidence are listed."""
MOST_CHECKED = 500
"""Of how many rows the confidence is computed, so that it takes seconds."""
MOST_COLUMNS = 40
"""How many columns get a picture of their distribution."""


@dataclass(frozen=True)
class Report:
    """What a page about a filled table is made of.

    Args:
        source: what the table is called.
        table: the table with missing values, as a frame or array; some of its rows if it is long.
        filled: the same rows, filled.
        evaluation: errors on held-out cells; None leaves it out.
        graph: the graph of the model; None leaves it out.
        rows: number of rows of the whole table.
        settings: names and values of everything that was chosen, the seed among them.
        model: the model that filled it; None leaves out the list of the most uncertain cells.
        hiding: which model filled the held-out cells, and what it was fitted to, in a sentence.
    """

    source: str
    table: Any
    filled: Any
    evaluation: Evaluation | None
    graph: Graph | None
    rows: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    hiding: str = ""
    model: Model | None = None


def write_report(report: Report, path: str | Path) -> None:
    """Write the page to a file, whole or not at all.

    Raises:
        ImportError: without matplotlib, which comes with the extra `plot`.
        OSError: if the file cannot be written.
    """
    write_atomically(path, page(report).encode())


def page(report: Report) -> str:
    """The page as text."""
    columns = open_table(report.table).columns()
    gaps = np.stack([column.missing for column in columns], axis=1)
    labels = [column.label for column in columns]
    parts = [
        _head(report, gaps),
        _missing_section(report, labels, gaps),
        _evaluation_section(report),
        _doubtful(report, labels, gaps),
        _distributions(report, labels, gaps),
        _graph(report),
        _settings(report),
    ]
    title = f"How {escape(report.source)} was filled"
    style = (files("vfg.plots") / "report.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style></head>\n<body>\n<h1>{title}</h1>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _head(report: Report, gaps: Any) -> str:
    facts = [
        (f"{report.rows:,}", "rows"),
        (f"{gaps.shape[1]:,}", "columns"),
        (f"{gaps.mean():.1%}", "of the cells were missing"),
        (f"{gaps.any(1).mean():.1%}", "of the rows had a missing value"),
    ]
    if report.evaluation is not None and not np.isnan(report.evaluation.rmse):
        facts.append((f"{report.evaluation.rmse:.2f}", "error, in standard deviations"))
        if not np.isnan(report.evaluation.coverage):
            words = f"of the true values inside {report.evaluation.level:.0%} intervals"
            facts.append((f"{report.evaluation.coverage:.1%}", words))
    result = "".join(f"<div><b>{value}</b>{escape(words)}</div>" for value, words in facts)
    part = ""
    if len(gaps) < report.rows:
        part = f'<p class="quiet">Pictures and shares are of {len(gaps):,} of the rows.</p>'
    return f'<div class="facts">{result}</div>{part}'


def _missing_section(report: Report, labels: Sequence[Label], gaps: Any) -> str:
    drawing = missingness(report.table).get_figure(root=True)
    picture = _picture(drawing, "Which cells were missing")
    rows = [
        (escape(str(label)), f"{int(count):,}", f"{share:.1%}")
        for label, count, share in zip(labels, gaps.sum(0), gaps.mean(0), strict=True)
        if count
    ]
    table = _table(("column", "missing", "share"), rows)
    listed = f"<details><summary>Numbers by column</summary>{table}</details>" if rows else ""
    return f"<h2>Missing values</h2>{picture}{listed}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], last: str = "") -> str:
    """A table of HTML; cells are HTML already."""
    heads = "".join(f"<th>{words}</th>" for words in head)
    body = "".join(f"<tr><td>{'</td><td>'.join(cells)}</td></tr>" for cells in rows)
    return f'<div class="scroll"><table><tr>{heads}</tr>{body}{last}</table></div>'


def _evaluation_section(report: Report) -> str:
    result = report.evaluation
    if result is None or not any(score.hidden for score in result.columns):
        return ""
    scores = [score for score in result.columns if score.hidden]
    top = max(max(score.rmse, score.baseline) for score in scores)
    hidden = sum(score.hidden for score in scores)
    overall = (
        f'<tr class="all"><td>all</td><td>{hidden:,}</td><td>{_number(result.rmse)}</td>'
        f"<td>{_number(result.baseline)}</td><td></td><td>{_share(result.coverage)}</td>"
        "<td></td></tr>"
    )
    head = ("column", "hidden", "error", "of the mean", "", "inside interval", "right category")
    caution = f" {escape(report.hiding)}" if report.hiding else ""
    return (
        "<h2>Errors on held-out cells</h2>"
        f"<p>{hidden:,} observed cells were held out and imputed. Errors are root "
        "mean squares in standard deviations of a column; beside them the error of filling in the "
        f"mean. Intervals should contain {result.level:.0%} of the true values.{caution}</p>"
        + _table(head, [_score_row(score, top) for score in scores], overall)
    )


def _score_row(score: ColumnScore, top: float) -> tuple[str, ...]:
    bars = "".join(
        f'<span class="{kind}" style="width:{100 * min(1.0, value / (top or 1.0)):.1f}%"></span>'
        for kind, value in (("ours", score.rmse), ("mean", score.baseline))
    )
    numbers = (f"{score.hidden:,}", _number(score.rmse), _number(score.baseline))
    shares = (_share(score.coverage), _share(score.accuracy))
    return (escape(str(score.column)), *numbers, f'<div class="bars">{bars}</div>', *shares)


def confidence(model: Model, table: Any, missing: Any) -> Any:
    """How certain a model is of missing cells, `(rows, columns)`, from 0 to 1; NaN elsewhere.

    Of categories it is the probability of the most probable one, of numbers and dates how much
    shorter the 90 % interval is than without evidence, as a share. The table has the model's
    columns in their order.
    """
    names: list[Name] = list(model.variables)
    answer, before = model.infer(table, targets=names), model.infer([{}], targets=names)
    levels = list(central_levels(LEVEL))
    ends, wide = answer.quantile(levels), before.quantile(levels)
    expected, result = answer.expectations(), np.full(missing.shape, np.nan)
    for k, (name, variable) in enumerate(model.variables.items()):
        if variable.kind == "choice":
            sure = np.asarray(expected[name]).max(axis=1, initial=0.0)
        else:
            # Of a leaf of one column there is an axis of length 1 besides.
            lengths = [
                np.ptp(axis_numbers(np.asarray(one[name])).reshape(2, -1), axis=0)
                for one in (ends, wide)
            ]
            sure = 1.0 - lengths[0] / (lengths[1] or 1.0)
        result[missing[:, k], k] = np.clip(sure, 0.0, 1.0)[missing[:, k]]
    return result


def _doubtful(report: Report, labels: Sequence[Label], gaps: Any) -> str:
    if report.model is None or not gaps.any():
        return ""
    rows = np.flatnonzero(gaps.any(1))
    if len(rows) > MOST_CHECKED:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_CHECKED, replace=False))
    whole, filled = report.table, open_table(report.filled).columns()
    by_position = isinstance(whole, np.ndarray) or not hasattr(whole, "take")
    part = whole[rows] if by_position else whole.take(rows)
    sure = confidence(report.model, part, gaps[rows])
    order = np.argsort(np.where(np.isnan(sure), 2.0, sure), axis=None, kind="stable")
    count = min(MOST_DOUBTFUL, int(gaps[rows].sum()))
    cells = []
    for k, c in (divmod(int(place), len(labels)) for place in order[:count]):
        texts = escape(str(labels[c])), escape(_cell(filled[c].values[rows[k]]))
        cells.append((f"{rows[k] + 1:,}", *texts, f"{sure[k, c]:.0%}"))
    head = "row" if len(gaps) == report.rows else "row (of those drawn)"
    return (
        "<h2>Most uncertain cells</h2><p>Filled cells with the least confidence. The confidence of "
        "a category is the probability of the one that was filled in; that of a number is how much "
        "shorter the 90 % interval is than without the rest of the row.</p>"
        + _table((head, "column", "filled with", "confidence"), cells)
    )


def _distributions(report: Report, labels: Sequence[Label], gaps: Any) -> str:
    counts = dict(zip(labels, gaps.sum(0), strict=True))
    chosen = [label for label, count in counts.items() if 0 < count < len(gaps)]
    most = sorted(chosen, key=lambda label: -counts[label])[:MOST_COLUMNS]
    if not most:
        return ""
    shown = [label for label in chosen if label in most]
    pictures = [
        _picture(distributions(report.table, report.filled, [label]), f"Distributions of {label}")
        for label in shown
    ]
    left_out = len(chosen) - len(shown)
    note = f' <span class="quiet">{left_out} columns with fewer missing values are left out.</span>'
    return (
        "<h2>Distributions before and after</h2><p>Observed cells and those that were filled in. "
        "They need not agree: cells are seldom missing completely at random, and expected values "
        f"vary less than data do.{note if left_out else ''}</p>"
        + f'<div class="pictures">{"".join(pictures)}</div>'
    )


def _graph(report: Report) -> str:
    if report.graph is None:
        return ""
    picture = _picture(draw_graph(report.graph).get_figure(root=True), "The graph of the model")
    return f"<h2>The graph</h2>{picture}"


def _settings(report: Report) -> str:
    import vfg

    settings = {**report.settings, "vfg": vfg.__version__}
    rows = "".join(
        f'<tr><td>{escape(str(name))}</td><td class="text">{escape(str(value))}</td></tr>'
        for name, value in settings.items()
    )
    return f"<h2>Settings</h2><table>{rows}</table>"


def _picture(figure: Figure | None, words: str) -> str:
    """A figure inside the page; it is closed afterwards."""
    with needs("plot"):
        import matplotlib
        import matplotlib.pyplot as plt

    assert figure is not None  # every picture is on one
    stream = io.BytesIO()
    # Without a date and with fixed names, equal reports are equal bytes.
    with matplotlib.rc_context({"svg.hashsalt": "vfg"}):
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    plt.close(figure)
    data = base64.b64encode(stream.getvalue()).decode()
    return f'<img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'


def _cell(value: Any) -> str:
    """A filled cell: whole numbers without a point, as tables are read with."""
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(value)


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"


def _share(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.1%}"
