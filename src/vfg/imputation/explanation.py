"""Why a cell is filled as it is: what every observed cell of its row contributes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vfg.graph.checks import suggestion
from vfg.imputation.answers import axis_numbers, read_evidence
from vfg.imputation.row_mixture import RowMixture
from vfg.imputation.settings import check_count
from vfg.inference.variables import Variable, days_of, format_number, percent
from vfg.tables.cells import Array, Column, ColumnEncoding, Label, hide_unreadable
from vfg.tables.numeric import NumericEncoding

if TYPE_CHECKING:
    import pandas

    from vfg.imputation.table_model import TableModel

SIMILAR = 5
"""How many training rows are listed."""
LISTED = 8
"""Contributions that a printed explanation lists, the largest; the others are summed."""
NAMED = 3
"""How many contributions the sentence names."""
ROUNDED = 1e-4
"""How far numbers of row mixtures, which are kept in single precision, may be from what they were,
in deviations of their column."""


@dataclass(frozen=True)
class Explanation:
    r"""How the observed cells of a row lead from the unconditional answer to the filled value.

    $\text{total} - \text{start} = s + \sum_j c_j$ over the observed cells j, where s is `shift`.
    For a number, `start` and `total` are expected values; dates are counted in days. For a
    category they are probabilities of the one that is filled in.

    Args:
        column: whose cell is explained.
        value: what the cell is filled with.
        start: the answer without evidence.
        total: the answer with the evidence of the row.
        contributions: by column, the largest first.
        evidence: the observed cells of the row, by column.
        method: how the contributions were computed.
        similar: the most similar training rows, as pairs of a weight and cells, without the
            explained row itself; empty where the model keeps no rows.
        is_choice: whether the column holds categories.
        shift: what is added because the cell is missing, where cells are missing because of their
            own value (`VFGImputer(missingness=)`), else 0.
    """

    column: Label
    value: Any
    start: float
    total: float
    contributions: dict[Label, float]
    evidence: dict[Label, Any]
    method: str
    similar: tuple[tuple[float, dict[Label, Any]], ...] = ()
    is_choice: bool = False
    shift: float = 0.0

    @property
    def sentence(self) -> str:
        """The explanation in words.

        Example:
            >>> parts = {"age": 3.0, "city": -1.0}
            >>> said = {"age": 41, "city": "Bern"}
            >>> why = Explanation("income", 12.0, 10.0, 12.0, parts, said, "Shapley")
            >>> why.sentence[:71]
            'income is filled with 12, because age = 41 (+3) and city = Bern (−1); w'
        """
        show, signed = self.show, self.show_signed
        parts = [
            f"{show_name(name)} = {show_value(self.evidence[name])} ({signed(size)})"
            for name, size in list(self.contributions.items())[:NAMED]
            if size
        ]
        if self.shift:
            parts.append(f"it is missing ({signed(self.shift)})")
        listed = " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
        because = f"because {listed}" if parts else "since no observed cell predicts it"
        if self.is_choice:
            start = (
                f"its probability is {show(self.total)}, and {show(self.start)} without evidence"
            )
        else:
            start = f"without evidence it would be {self.show_level(self.start)}"
        filled = f"{show_name(self.column)} is filled with {show_value(self.value)}"
        return f"{filled}, {because}; {start}."

    def __str__(self) -> str:
        """The sentence, and the largest contributions."""
        lines = [self.sentence, f"{'column':<24}{'value':>16}{'contribution':>16}"]
        sizes = list(self.contributions.items())
        for name, size in sizes[:LISTED]:
            value = show_value(self.evidence[name])
            lines.append(f"{str(name)[:23]:<24}{value[:15]:>16}{self.show_signed(size):>16}")
        left = sum(size for _, size in sizes[LISTED:])
        if len(sizes) > LISTED:
            words = f"{len(sizes) - LISTED} more"
            lines.append(f"{words:<40}{self.show_signed(left):>16}")
        return "\n".join(lines)

    @property
    def decimals(self) -> int:
        """After how many decimals numbers are rounded: the largest difference has three digits."""
        largest = max(map(abs, [self.total - self.start, *self.contributions.values()]))
        largest = largest or abs(self.total)
        return 2 - math.floor(math.log10(largest)) if largest > 0.0 else 0

    def show(self, size: float) -> str:
        """A difference on the axis of `start` and `total` in words."""
        if self.is_choice:
            return percent(size)
        days = isinstance(self.value, np.datetime64 | np.timedelta64)
        number = format_number(round(size, self.decimals), max(self.decimals, 0))
        return number + (" days" if days else "")

    def show_level(self, size: float) -> str:
        """A point on that axis in words; dates as such."""
        if isinstance(self.value, np.datetime64):
            return str(np.datetime64(round(size), "D"))
        return self.show(size)

    def show_signed(self, size: float) -> str:
        """A contribution in words."""
        return f"{'−' if size < 0.0 else '+'}{self.show(abs(size))}"

    def to_frame(self) -> pandas.DataFrame:
        """One row per observed cell: column, value, contribution."""
        import pandas

        rows = [(name, self.evidence[name], size) for name, size in self.contributions.items()]
        return pandas.DataFrame(rows, columns=["column", "value", "contribution"])


def show_name(label: Label) -> str:
    """A column in words; in tables without names its position."""
    return label if isinstance(label, str) else f"column {label}"


def show_value(value: Any) -> str:
    """A cell in words: numbers rounded, dates without a time."""
    if isinstance(value, float | np.floating):
        return format_number(float(value))
    if isinstance(value, np.datetime64):
        return str(value.astype("M8[D]"))
    if isinstance(value, np.timedelta64):
        return f"{format_number(float(days_of(np.array([value]))[0]))} days"
    return str(value)


def _readable(part: ColumnEncoding, column: Column) -> Column:
    """A column whose cells that are no dates count as missing, as in filling."""
    clock = part.clock if isinstance(part, NumericEncoding) else None
    return column if clock is None else hide_unreadable(column, clock.template, warn=False)


def explain(
    model: TableModel, table: Any, row: int, column: Label, *, evaluations: int = 512, seed: int = 0
) -> Explanation:
    """Explain one cell of a table; see `TableModel.explain`."""
    check_count("evaluations", evaluations)
    view = model.view(table)
    if not 0 <= row < view.rows:
        raise IndexError(f"the table has {view.rows} rows, but row {row} was requested")
    labels = [label for label in model.encoding.schema if label not in model.encoding.idle]
    if column not in labels:
        known = column in model.encoding.schema
        hint = "it has one value only" if known else suggestion(str(column), map(str, labels))
        raise ValueError(f"column {column!r} cannot be explained; {hint.lstrip('; ')}")
    # The view has the columns of the model in its order, perhaps under other labels.
    columns = map(view.column, range(len(view.labels)))
    cells = {
        label: _readable(model.encoding.parts[label], cells)
        for label, cells in zip(model.encoding.schema, columns, strict=True)
    }
    whole = {label: cells[label].values[row] for label in labels if not cells[label].missing[row]}
    evidence = {label: value for label, value in whole.items() if label != column}
    variable = model.variables[str(column)]
    target = _Target(model, column, variable, evidence)
    linear = model.linear is not None and not model.is_stacked
    if linear and model.relations is None and variable.kind != "choice":
        sizes, method = target.linear_parts(), "closed form of the linear model"
    else:
        sizes, method = target.shapley(evaluations, np.random.default_rng(seed))
    order = sorted(evidence, key=lambda label: -abs(sizes[label]))
    shift = target.fill(row, missing=bool(cells[column].missing[row]))
    return Explanation(
        column,
        target.value,
        target.start,
        target.total + shift,
        {label: sizes[label] for label in order},
        {label: evidence[label] for label in order},
        method,
        find_similar(model, evidence, whole),
        variable.kind == "choice",
        shift,
    )


class _Target:
    """The answer about one cell as a function of which cells of its row are known."""

    def __init__(
        self, model: TableModel, column: Any, variable: Variable, evidence: dict[Label, Any]
    ) -> None:
        self.model, self.column, self.evidence = model, column, evidence
        answer = model.infer([evidence], [column])
        self.value = answer.mean[column][0]
        self.category = None
        if variable.kind == "choice":
            self.category = list(answer.categories[column]).index(self.value)
        self.start, self.total = map(float, self.values([(), tuple(evidence)]))

    def fill(self, row: int, *, missing: bool) -> float:
        """Set the value to what is filled in; how far it moves because the cell is missing."""
        from vfg.imputation.missing_cells import MissingCells

        model, part = self.model, self.model.encoding.parts[self.column]
        if not isinstance(part, NumericEncoding):
            return 0.0
        values, observed = read_evidence(model, [self.evidence]).matrix
        cells = MissingCells.of_rows(model, values, observed, torch.tensor([row]))
        moves = missing and cells.moves(places_of(model, self.column)[0])
        filled = cells.means() if missing else model.fills(values, observed, cells.ids)
        matrix = model.spread_out(filled)[:, model.encoding.sections[self.column]]
        self.value = part.decode(matrix)[0]
        unrounded = part.numbers(matrix) if part.clock is None else part.decode(matrix)
        return float(axis_numbers(unrounded)[0]) - self.total if moves else 0.0

    def values(self, known: list[tuple[Label, ...]]) -> Array:
        """The answer for every set of known cells."""
        rows = [{label: self.evidence[label] for label in own} for own in known]
        expected = self.model.infer(rows, [self.column], padded=True).expectations()
        cells = expected[str(self.column)]
        return np.asarray(cells if self.category is None else cells[:, self.category], float)

    def linear_parts(self) -> dict[Label, float]:
        """Coefficients times distances from the mean: a linear model's mean is affine in a row."""
        model, labels = self.model, list(self.evidence)
        values, observed = read_evidence(model, [self.evidence, {}]).matrix
        centre = model.predictions(values[1:], observed[1:]).means[0]
        rows = values[:1].repeat(len(labels) + 1, 1)
        for k, label in enumerate(labels):
            own = places_of(model, label)
            rows[k + 1, own] = centre[own]
        means = model.predictions(rows, observed[:1].repeat(len(rows), 1)).means
        at = places_of(model, self.column)[0]
        sizes = (means[0, at] - means[1:, at]).numpy()
        whole = float(sizes.sum())
        # Where the answer stays inside the observed range, the parts are cut in proportion.
        scale = (self.total - self.start) / whole if abs(whole) > 1e-300 else 0.0
        return dict(zip(labels, (sizes * scale).tolist(), strict=True))

    def shapley(
        self, evaluations: int, generator: np.random.Generator
    ) -> tuple[dict[Label, float], str]:
        """Shapley values of the observed cells, exact where all sets of them can be evaluated."""
        labels = list(self.evidence)
        count = len(labels)
        if count == 0:
            return {}, "no cell is observed"
        if 2**count <= evaluations:
            return self._exact(labels), f"Shapley values, exact, {2**count} evaluations"
        pairs = max(1, evaluations // (2 * count))
        orders = [generator.permutation(count) for _ in range(pairs)]
        orders += [order[::-1] for order in orders]
        sets = [
            tuple(labels[k] for k in order[:size]) for order in orders for size in range(1, count)
        ]
        inner = self.values(sets).reshape(len(orders), count - 1)
        ends = np.tile([self.start, self.total], (len(orders), 1))
        path = np.concatenate([ends[:, :1], inner, ends[:, 1:]], axis=1)
        sizes = np.zeros(count)
        for order, steps in zip(orders, np.diff(path, axis=1), strict=True):
            sizes[order] += steps / len(orders)
        described = f"Shapley values, {len(orders)} orders, {len(sets) + 2} evaluations"
        return dict(zip(labels, sizes.tolist(), strict=True)), described

    def _exact(self, labels: list[Label]) -> dict[Label, float]:
        count = len(labels)
        sets = [
            frozenset(own)
            for size in range(count + 1)
            for own in itertools.combinations(labels, size)
        ]
        values = dict(zip(sets, self.values([tuple(own) for own in sets]), strict=True))
        sizes = dict.fromkeys(labels, 0.0)
        for own, value in values.items():
            for label in labels:
                size = len(own - {label})
                weight = 1.0 / (count * math.comb(count - 1, size))
                sizes[label] += weight * float(value) * (1.0 if label in own else -1.0)
        return sizes


def places_of(model: TableModel, label: Label) -> list[int]:
    """The positions of a column of the table among the modelled columns of the matrix."""
    section = model.encoding.sections[label]
    return [k for k, at in enumerate(model.columns) if section.start <= at < section.stop]


def find_similar(
    model: TableModel, evidence: dict[Label, Any], whole: dict[Label, Any]
) -> tuple[tuple[float, dict[Label, Any]], ...]:
    """The training rows with the largest weights, with their observed cells.

    A row of the fitted table is most similar to itself. So the first training row that has the same
    cells as the `whole` row, and no others, is left out, and the weights are those among all other
    rows; further copies of it are not left out.
    """
    if not len(model.neighbours):
        return ()
    mixture = model.neighbours[0]
    assert isinstance(mixture, RowMixture)
    device = mixture.centres.device
    cells = (part.to(device) for part in read_evidence(model, [evidence]).matrix)
    weights = mixture.shares_of_rows(*cells)[0]
    chosen = weights.argsort(descending=True)[: SIMILAR + 1]
    matrix = model.spread_out(mixture.ranks.inverse(mixture.centres[chosen].double()).cpu())
    known = (mixture.doubts[chosen] == 0.0).cpu().numpy()
    own = model.spread_out(read_evidence(model, [whole]).matrix[0])
    rows: list[dict[Label, Any]] = [{} for _ in chosen]
    is_same = np.ones(len(chosen), dtype=bool)
    for label, part in model.encoding.parts.items():
        places, section = places_of(model, label), model.encoding.sections[label]
        if not places:
            continue
        decoded, seen = part.decode(matrix[:, section]), known[:, places].all(axis=1)
        for k in np.flatnonzero(seen):
            rows[k][label] = decoded[k]
        is_same &= seen == (label in whole)
        if label in whole:
            is_same &= _is_alike(part, matrix[:, section], own[:, section])
    listed = list(range(len(chosen)))
    if is_same.any():
        weights[chosen[listed.pop(int(is_same.argmax()))]] = 0.0
        weights = weights / weights.sum().clamp(min=1e-30)
    return tuple((float(weights[chosen[k]]), rows[k]) for k in listed[:SIMILAR])


def _is_alike(part: Any, rows: Array, one: Array) -> Array:
    """Which encoded cells of rows are that of another; numbers up to their rounding."""
    if isinstance(part, NumericEncoding):
        return np.asarray(np.isclose(rows, one, rtol=ROUNDED, atol=ROUNDED).all(1))
    # Code points of training rows may differ from those of other rows with the same category.
    return np.asarray(part.decode(rows) == part.decode(one)[0])
