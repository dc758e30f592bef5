r"""Linear constraints between columns that filled cells must satisfy: bounds, sums and orderings.

A constraint is a text such as "0 <= age <= 120", "a + b == total" or "start <= end". It becomes
$c^\top x + d = 0$ or $c^\top x + d \le 0$ for the numbers x of a row; dates count as days since
1970. Equations are exact relations of the model; see `relations`. Draws that break an inequality
are drawn again, and means move as the draws do. What is left, rounding included, is moved to the
nearest point that satisfies all constraints, in deviations of the columns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vfg.graph.checks import suggestion
from vfg.tables.cells import Array, Column, Label, Mask
from vfg.tables.encoding import Encoding
from vfg.tables.frames import Table
from vfg.tables.numeric import NumericEncoding, read_numbers
from vfg.tables.schema import Continuous, Date, Integer, Schema

TOLERANCE = 1e-9
"""By how much constraints may be out by rounding, next to the size of their terms."""
STEPS = 200
"""Steps of the projection before rows are solved one by one."""
Cells = dict[int, tuple[Mask, Array]]


class LinearExpression(NamedTuple):
    """Coefficients by column, and a constant."""

    terms: dict[Label, float]
    constant: float

    def plus(self, other: LinearExpression, factor: float = 1.0) -> LinearExpression:
        """The sum with a multiple of another."""
        terms = dict(self.terms)
        for label, value in other.terms.items():
            terms[label] = terms.get(label, 0.0) + factor * value
        return LinearExpression(terms, self.constant + factor * other.constant)


class Constraint(NamedTuple):
    """A linear form that is 0, or at most 0."""

    form: LinearExpression
    is_equation: bool
    text: str


def parse_constraint(text: str, labels: Sequence[Label]) -> list[Constraint]:
    """The constraints that a text says, between columns of some labels.

    Names that are no words stand in backticks; columns of arrays are x0, x1 and so on; dates stand
    in quotes.

    Raises:
        ValueError: for a text that is no linear constraint, or an unknown column.

    Example:
        >>> [one.form for one in parse_constraint("0 <= age <= 120", ["age"])]
        [LinearExpression(terms={'age': -1.0}, constant=0.0),
         LinearExpression(terms={'age': 1.0}, constant=-120.0)]
    """
    if not isinstance(text, str):
        raise TypeError(f"a constraint is a text such as 'a + b == total', but is {text!r}")
    names = {str(label): label for label in labels}
    if list(labels) == list(range(len(labels))):
        names |= {f"x{label}": label for label in labels}
    quoted: list[str] = []

    def keep(found: re.Match[str]) -> str:
        quoted.append(found.group(1))
        return f"_quoted_{len(quoted) - 1}_"

    plain = re.sub(r"`([^`]+)`", keep, text)
    plain = re.sub(r"(?<![<>=!])=(?!=)", "==", plain)
    reader = _Reader(text, names, quoted)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
    except SyntaxError:
        raise reader.error("it cannot be read") from None
    if not isinstance(tree, ast.Compare):
        raise reader.error("it lacks <=, >= or ==")
    sides = [reader.read(side) for side in (tree.left, *tree.comparators)]
    result = []
    for left, sign, right in zip(sides[:-1], tree.ops, sides[1:], strict=True):
        if not isinstance(sign, ast.LtE | ast.GtE | ast.Eq):
            raise reader.error("it has a comparison other than <=, >= and ==")
        first, second = (right, left) if isinstance(sign, ast.GtE) else (left, right)
        form = first.plus(second, -1.0)
        form = LinearExpression({k: v for k, v in form.terms.items() if v}, form.constant)
        if not form.terms:
            raise reader.error("it names no column")
        result.append(Constraint(form, isinstance(sign, ast.Eq), text))
    return result


@dataclass(frozen=True)
class _Reader:
    """Reads the sides of one constraint."""

    text: str
    names: Mapping[str, Label]
    quoted: Sequence[str]

    def error(self, why: str) -> ValueError:
        return ValueError(
            f"a constraint is linear in columns, such as 'a + b == total' or '0 <= age <= 120', "
            f"but {self.text!r} is not: {why}"
        )

    def read(self, node: ast.expr) -> LinearExpression:
        """A side as a linear form."""
        if isinstance(node, ast.Constant):
            return LinearExpression({}, self._number(node.value))
        if isinstance(node, ast.Name):
            return LinearExpression({self._label(node.id): 1.0}, 0.0)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
            return LinearExpression({}, 0.0).plus(self.read(node.operand), sign)
        if isinstance(node, ast.BinOp):
            left, right = self.read(node.left), self.read(node.right)
            if isinstance(node.op, ast.Add | ast.Sub):
                return left.plus(right, 1.0 if isinstance(node.op, ast.Add) else -1.0)
            if isinstance(node.op, ast.Mult) and (not left.terms or not right.terms):
                form, number = (right, left) if not left.terms else (left, right)
                return LinearExpression({}, 0.0).plus(form, number.constant)
            if isinstance(node.op, ast.Div) and not right.terms and right.constant:
                return LinearExpression({}, 0.0).plus(left, 1.0 / right.constant)
        raise self.error("it has more than sums of columns times numbers")

    def _number(self, value: Any) -> float:
        if isinstance(value, str):
            try:
                return float(np.datetime64(value, "ns").astype(np.int64)) / 86_400e9
            except ValueError:
                raise self.error(f"{value!r} is no date") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f"{value!r} is no number")
        return float(value)

    def _label(self, name: str) -> Label:
        quoted = re.fullmatch(r"_quoted_(\d+)_", name)
        own = self.quoted[int(quoted.group(1))] if quoted else name
        if own not in self.names:
            raise ValueError(
                f"the constraint {self.text!r} names {own!r}, which is no column; "
                f"{suggestion(own, self.names)}"
            )
        return self.names[own]


def parse_constraints(texts: Any, labels: Sequence[Label]) -> list[Constraint]:
    """The constraints of several texts."""
    if isinstance(texts, str):
        texts = [texts]
    return [one for text in texts for one in parse_constraint(text, labels)]


class Constraints:
    """The constraints of a table whose columns are encoded.

    Raises:
        ValueError: for a column of categories or one without observed cells.
    """

    def __init__(self, texts: Sequence[str], encoding: Encoding) -> None:
        self.encoding = encoding
        known = parse_constraints(texts, list(encoding.schema))
        order = {label: place for place, label in enumerate(encoding.schema)}
        used = {label for one in known for label in one.form.terms}
        self.labels = sorted(used, key=lambda label: order[label])
        self.places = [order[label] for label in self.labels]
        self.parts = [_numeric(encoding, label, known) for label in self.labels]
        self.texts = [one.text for one in known]
        self.is_equation = np.array([one.is_equation for one in known])
        # Inequalities of one column are bounds, to which values are clipped.
        self.is_joint = ~self.is_equation & np.array([len(one.form.terms) > 1 for one in known])
        self.matrix = np.array(
            [[one.form.terms.get(label, 0.0) for label in self.labels] for one in known]
        )
        self.constants = np.array([one.form.constant for one in known])
        units = [_unit(part) for part in self.parts]
        self.units, self.origins = np.array(units).T
        self.scales = self.units * np.array([part.deviation for part in self.parts])
        self.grids = np.array([_grid(part) for part in self.parts])

    @classmethod
    def of(cls, texts: Any, encoding: Encoding) -> Constraints | None:
        """The constraints that texts say; None without any."""
        return cls([texts] if isinstance(texts, str) else list(texts), encoding) if texts else None

    def equations(self, columns: Sequence[int]) -> Tensor:
        """Exact relations over some columns of the matrix, `(relations, columns + 1)`."""
        rows = self._standardise(columns)[self.is_equation]
        return torch.from_numpy(rows[np.abs(rows[:, :-1]).max(1) > 0.0])

    def broken(self, draws: Tensor, columns: Sequence[int]) -> Tensor:
        """Which draws `(number, rows, columns)` break an inequality between columns, by row."""
        rows = torch.from_numpy(self._standardise(columns)[self.is_joint])
        result = torch.zeros(draws.shape[:-1], dtype=torch.bool)
        for row in rows:
            size = float(row[:-1].abs().sum())
            result |= draws @ row[:-1] + row[-1] > TOLERANCE * (size + float(row[-1].abs()))
        return result

    def _standardise(self, columns: Sequence[int]) -> Array:
        """Rows `(coefficients, constant)` over some columns of the matrix; others are constant."""
        place = {column: k for k, column in enumerate(columns)}
        rows = np.zeros((len(self.matrix), len(place) + 1))
        rows[:, -1] = self.constants
        for k, (label, part) in enumerate(zip(self.labels, self.parts, strict=True)):
            at = place.get(self.encoding.sections[label].start)
            middle = self.origins[k] + self.units[k] * part.centre
            rows[:, -1] += self.matrix[:, k] * middle
            if at is not None:
                rows[:, at] += self.matrix[:, k] * self.scales[k]
        return rows

    # Tables.

    def check(self, table: Table, first_row: int = 0) -> None:
        """Refuse rows, numbered from `first_row` on, whose observed cells contradict them."""
        numbers, missing = self._read(table)
        involved = self.matrix != 0.0
        errors = self._errors(numbers)
        known = ~(missing[:, None, :] & involved).any(2)
        wrong = known & (errors > self._tolerances(numbers))
        if wrong.any():
            row = int(np.flatnonzero(wrong.any(1))[0])
            broken = np.flatnonzero(wrong[row])
            raise self._contradiction(first_row + row, numbers[row], missing[row], broken)

    def enforce(self, fills: Cells, table: Table, *, are_ends: bool = False) -> Cells:
        """Filled cells that satisfy the constraints, moved as little as possible.

        Ends of intervals, which are no values of one row, satisfy orderings of two columns and
        constraints of which all other columns are known.
        """
        numbers, missing = self._read(table)
        for k, place in enumerate(self.places):
            if place in fills:
                absent, cells = fills[place]
                numbers[absent, k] = self._numbers(k, cells)
        rows = np.flatnonzero(missing.any(1))
        moved = numbers.copy()
        patterns, groups = np.unique(missing[rows], axis=0, return_inverse=True)
        for number, free in enumerate(patterns):
            own = rows[groups.ravel() == number]
            chosen = self._of_ends(free) if are_ends else (self.matrix[:, free] != 0.0).any(1)
            if chosen.any():
                moved[own] = self._satisfy(numbers[own], free, chosen, own)
        result = dict(fills)
        for k, place in enumerate(self.places):
            if place in fills:
                absent, cells = fills[place]
                changed = moved[absent, k] != numbers[absent, k]
                if changed.any():
                    column = table.column(place)
                    result[place] = absent, self._write(k, cells, moved[absent, k], changed, column)
        return result

    def _read(self, table: Table) -> tuple[Array, Mask]:
        """Numbers of all rows, days of dates, and which are missing, `(rows, columns)`."""
        columns = [table.column(place) for place in self.places]
        missing = np.stack([column.missing for column in columns], axis=1)
        numbers = np.zeros(missing.shape)
        for k, (part, column) in enumerate(zip(self.parts, columns, strict=True)):
            own = read_numbers(column, part.clock)
            numbers[:, k] = np.where(column.missing, 0.0, self.origins[k] + self.units[k] * own)
        return numbers, missing

    def _numbers(self, k: int, cells: Array) -> Array:
        clock = self.parts[k].clock
        ticks = clock.ticks(cells) if clock is not None else cells.astype(np.float64)
        return np.asarray(self.origins[k] + self.units[k] * ticks)

    def _write(self, k: int, cells: Array, numbers: Array, changed: Mask, column: Column) -> Array:
        """Cells with changed numbers, in their own dtype."""
        clock, own = self.parts[k].clock, (numbers - self.origins[k]) / self.units[k]
        result = cells.copy()
        if clock is not None:
            result[changed] = clock.to_zone(clock.moments(own), column.zone)[changed]
        elif cells.dtype.kind in "iu":
            result[changed] = np.rint(own[changed]).astype(cells.dtype)
        else:
            result[changed] = own[changed]
        return result

    # One row after the other, or many of the same pattern.

    def _errors(self, numbers: Array) -> Array:
        """How far constraints are out, `(rows, constraints)`; of inequalities 0 if they hold."""
        errors = numbers @ self.matrix.T + self.constants
        return np.asarray(np.where(self.is_equation, np.abs(errors), np.maximum(errors, 0.0)))

    def _tolerances(self, numbers: Array) -> Array:
        sizes = np.abs(numbers) @ np.abs(self.matrix).T + np.abs(self.constants)
        return np.asarray(TOLERANCE * (sizes + np.abs(self.matrix) @ self.scales))

    def _of_ends(self, free: Mask) -> Mask:
        """Constraints that ends of intervals satisfy."""
        own = self.matrix * free
        number = (own != 0.0).sum(1)
        orders = (number == 2) & (own.max(1) * own.min(1) < 0.0) & ~self.is_equation
        return np.asarray((number == 1) | orders)

    def _satisfy(self, numbers: Array, free: Mask, chosen: Mask, rows: Array) -> Array:
        """Rows moved to the nearest ones that satisfy some constraints; then to grids."""
        result = numbers.copy()
        broken = (self._errors(numbers) > 0.1 * self._tolerances(numbers))[:, chosen].any(1)
        if broken.any():
            moved, left = self._project(numbers[broken], free, chosen)
            if left.any():
                at = int(np.flatnonzero(broken)[np.flatnonzero(left)[0]])
                together = self._incompatible(numbers[at], free, np.flatnonzero(chosen))
                raise self._contradiction(int(rows[at]), numbers[at], free, together)
            result[broken] = self._on_grids(moved, free, chosen)
        return self._repair_rounding(result, free, chosen)

    def _project(self, numbers: Array, free: Mask, chosen: Mask) -> tuple[Array, Mask]:
        """The nearest rows that satisfy the constraints, and which have none.

        Hildreth's method: constraint by constraint, for all rows at once.
        """
        result = numbers.copy()
        steps = np.where(free, self.matrix * self.scales**2, 0.0)
        sizes = (steps * self.matrix).sum(1)
        active = np.flatnonzero(chosen & (sizes > 0.0))
        pressure = np.zeros((len(numbers), len(self.matrix)))
        tolerances = 0.1 * self._tolerances(numbers)[:, active]
        left: Mask = np.zeros(len(numbers), dtype=bool)
        for _ in range(STEPS):
            for i in active:
                error = (result @ self.matrix[i] + self.constants[i]) / sizes[i]
                if not self.is_equation[i]:
                    error = np.maximum(error, -pressure[:, i])
                pressure[:, i] += error
                result -= error[:, None] * steps[i]
            left = np.asarray((self._errors(result)[:, active] > tolerances).any(1))
            if not left.any():
                break
        for row in np.flatnonzero(left):
            nearest = self._nearest(numbers[row], free, active)
            if nearest is not None:
                result[row], left[row] = nearest, False
        return result, left

    def _nearest(self, numbers: Array, free: Mask, active: Array) -> Array | None:
        """One row moved by the least sum of distances; None if nothing satisfies the constraints.

        Distances are those up and down, in deviations, of a linear programme.
        """
        from scipy import optimize  # takes long to import

        own = self.matrix[np.ix_(active, free)] * self.scales[free]
        sides, equations = -(self.matrix[active] @ numbers + self.constants[active]), (
            self.is_equation[active]
        )  # fmt: skip
        both = np.hstack([own, -own])
        solved = optimize.linprog(
            np.ones(both.shape[1]),
            A_ub=both[~equations] if (~equations).any() else None,
            b_ub=sides[~equations] if (~equations).any() else None,
            A_eq=both[equations] if equations.any() else None,
            b_eq=sides[equations] if equations.any() else None,
        )
        if solved.status != 0:
            return None
        up, down = np.split(solved.x, 2)
        moved = numbers.copy()
        moved[free] += self.scales[free] * (up - down)
        return moved

    def _on_grids(self, numbers: Array, free: Mask, chosen: Mask) -> Array:
        """Rows whose columns of whole or rounded numbers have such numbers again.

        Columns are rounded one by one, and the others moved after each. Where the nearest number
        leaves no solution, those below and above are tried.
        """
        result, open_ones = numbers.copy(), free & (self.matrix[chosen] != 0.0).any(0)
        for k in np.flatnonzero(open_ones & (self.grids > 0.0)):
            grid, rest = self.grids[k], open_ones.copy()
            rest[k] = False
            steps = (result[:, k] - self.origins[k]) / grid
            todo = np.ones(len(result), dtype=bool)
            for rounding in (np.rint, np.floor, np.ceil):
                tried = result.copy()
                # 199 / 10 is 19.9, but 0.1 * 199 is not.
                tried[:, k] = self.origins[k] + rounding(steps + 0.0) * grid
                decimals = self.parts[k].decimals
                if decimals is not None:
                    tried[:, k] = np.round(tried[:, k], decimals)
                moved, left = self._project(tried[todo], rest, chosen)
                far = (self._errors(moved) > self._tolerances(moved))[:, chosen].any(1)
                good = np.flatnonzero(todo)[~(left | far)]
                result[good] = moved[~(left | far)]
                todo[good] = False
                if not todo.any():
                    break
            open_ones = rest
        return result

    def _repair_rounding(self, numbers: Array, free: Mask, chosen: Mask) -> Array:
        """Rows whose inequalities hold to the last bit, as far as a free column can give way."""
        result = numbers.copy()
        for attempt in range(8):
            errors = result @ self.matrix.T + self.constants
            wrong = (errors > 0.0) & ~self.is_equation & chosen
            if not wrong.any():
                break
            for i in np.flatnonzero(wrong.any(0)):
                sizes = np.abs(self.matrix[i] * self.scales) * free
                k = int(sizes.argmax())
                rows = wrong[:, i]
                more = 2.0**attempt * np.spacing(np.abs(result[rows, k]))
                result[rows, k] -= (
                    errors[rows, i] / self.matrix[i, k] + np.sign(self.matrix[i, k]) * more
                )
        return result

    def _incompatible(self, numbers: Array, free: Mask, among: Array) -> Array:
        """The constraints that one row cannot satisfy together, without those that do not matter.

        Each is left out in turn, and stays out if nothing satisfies the others.
        """
        kept = np.asarray(among)
        for one in among:
            others = kept[kept != one]
            if len(others) and self._nearest(numbers, free, others) is None:
                kept = others
        return kept

    def _contradiction(self, row: int, numbers: Array, missing: Mask, which: Array) -> ValueError:
        every, anything = np.arange(len(self.matrix)), np.ones(len(self.labels), dtype=bool)
        if self._nearest(numbers, anything, every) is None:
            together = self._incompatible(numbers, anything, every)
            return ValueError(
                f"no row satisfies {self._name(together)} together; change or leave out one of them"
            )
        used = (self.matrix[which] != 0.0).any(0)
        known = [
            f"{label} is {self._show(k, numbers[k])}"
            for k, label in enumerate(self.labels)
            if used[k] and not missing[k]
        ]
        return ValueError(
            f"row {row} contradicts {self._name(which)}: {', '.join(known)}; correct the row, mark "
            "wrong cells as missing, or leave out a constraint"
        )

    def _name(self, which: Array) -> str:
        return _quoted([self.texts[i] for i in which])

    def _show(self, k: int, number: float) -> str:
        clock = self.parts[k].clock
        if clock is None:
            return f"{number:.10g}"
        if clock.kind == "m":
            return f"{number:.10g} days"
        return _as_day(clock.moments(np.array([(number - self.origins[k]) / self.units[k]]))[0])


def _quoted(texts: Sequence[str]) -> str:
    """Constraints by their texts, for errors."""
    different = [repr(text) for text in dict.fromkeys(texts)]
    return f"the constraint{'s' * (len(different) > 1)} {', '.join(different)}"


def _as_day(moment: np.datetime64) -> str:
    """A moment as a day, with the time unless it is midnight.

    Example:
        >>> (
        ...     _as_day(np.datetime64("2024-03-01T00:00:00")),
        ...     _as_day(np.datetime64("2024-03-01T12:30")),
        ... )
        ('2024-03-01', '2024-03-01 12:30:00')
    """
    day, _, time = str(moment.astype("M8[us]")).partition("T")
    time = time.removesuffix(".000000")
    return day if time == "00:00:00" else f"{day} {time}"


def bounds_of(constraints: Sequence[Constraint]) -> dict[Label, tuple[float, float]]:
    """The bounds that constraints of single columns are, by column; infinite where there is none.

    Example:
        >>> bounds_of(parse_constraint("0 <= age <= 120", ["age"]))
        {'age': (0.0, 120.0)}
    """
    bounds: dict[Label, tuple[float, float]] = {}
    for form, is_equation, _ in constraints:
        if len(form.terms) != 1:
            continue
        ((label, slope),) = form.terms.items()
        low, high = bounds.get(label, (-np.inf, np.inf))
        end = -form.constant / slope + 0.0
        if is_equation or slope < 0.0:
            low = max(low, end)
        if is_equation or slope > 0.0:
            high = min(high, end)
        bounds[label] = low, high
    return bounds


def tightened_bounds(texts: Any, schema: Schema) -> dict[Label, Any]:
    """Bounds of the columns that constraints of one column bound, within those of a schema."""
    result: dict[Label, Any] = {}
    known = parse_constraints(texts, list(schema))
    for label, (least, greatest) in bounds_of(known).items():
        spec = schema[label]
        if not isinstance(spec, Continuous | Integer | Date):
            continue  # is refused with the constraint's text
        is_date = isinstance(spec, Date)
        own = [_days(end) if isinstance(end, str) else end for end in spec.bounds]
        low = least if own[0] is None else max(least, own[0])
        high = greatest if own[1] is None else min(greatest, own[1])
        if low > high:
            texts_of = [(one.text, bounds_of([one]).get(label, ())) for one in known]
            named = _quoted([text for text, ends in texts_of if low in ends or high in ends])
            more = " and its bounds" * (low != least or high != greatest)
            first, last = (_as_day(_moment(x)) if is_date else f"{x:g}" for x in (low, high))
            raise ValueError(
                f"{named} on column {label!r}{more} leave no value: it would be from {first} to "
                f"{last}; change or leave out one of them"
            )
        ends = [None if np.isinf(end) else end for end in (low, high)]
        result[label] = tuple(
            given if end == number else str(_moment(end)) if is_date and end is not None else end
            for end, given, number in zip(ends, spec.bounds, own, strict=True)
        )
    return result


def _days(moment: str) -> float:
    """Days since 1970 of a moment."""
    return float(np.datetime64(moment, "us").astype(np.int64)) / 86_400e6


def _moment(days: float) -> np.datetime64:
    return np.datetime64(round(days * 86_400_000), "ms")


def _numeric(encoding: Encoding, label: Label, known: Sequence[Constraint]) -> NumericEncoding:
    part = encoding.parts[label]
    text = next(one.text for one in known if label in one.form.terms)
    if not isinstance(part, NumericEncoding):
        raise ValueError(
            f"the constraint {text!r} names column {label!r}, which is "
            f"{encoding.schema[label].name}, but constraints are between numbers or dates"
        )
    if part.empty:
        raise ValueError(
            f"the constraint {text!r} names column {label!r}, which has no observed cell; leave "
            "out the constraint or the column"
        )
    return part


def _unit(part: NumericEncoding) -> tuple[float, float]:
    """The size of a number or tick in the units of constraints, and where numbers begin."""
    if part.clock is None:
        return 1.0, 0.0
    one = np.ones((), f"m8[{part.clock.unit}]")
    unit = float(one / np.timedelta64(1, "D"))
    return unit, unit * part.clock.origin


def _grid(part: NumericEncoding) -> float:
    """The distance of the numbers that a column has; 0 for any numbers."""
    if part.clock is not None:
        return part.clock.step * _unit(part)[0]
    if part.whole:
        return 1.0
    return 0.0 if part.decimals is None else 10.0**-part.decimals
