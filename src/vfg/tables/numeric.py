"""Numbers and dates as standardised real numbers, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from vfg.tables.cells import (
    Array,
    Column,
    ColumnEncoding,
    Mask,
    cast,
    format_moments,
    parse_moments,
)
from vfg.tables.schema import Continuous, Date, FewValued, Integer, Whole

FURTHEST = 10.0
"""Deviations from the mean up to which evidence is never clipped."""
OUTLYING = 100.0
"""Interquartile ranges from the median beyond which cells do not count for mean and deviation."""
CROWD, CROWDED = 5, 0.1
"""The outermost cells of a column, a tenth of them at most, crowd if they lie within so many
deviations: the six greatest of 500 uniform numbers lie within 0.04, of Normal ones within 0.7."""
BEYOND_REACH = 2.0
"""Deviations beyond the reach of filled cells at which draws, and what relations give, end."""
FAR_EVIDENCE, EXACT_EVIDENCE = 100.0, 1e6
"""The same of evidence about lines, and of columns that have exact relations. A line that ten
deviations end would be filled far from the truth beyond them, with a narrow interval."""
SAME = 1e-9
"""Deviations within which a number counts as a value of a few-valued column."""
ROUNDING = 1e-13
"""Rounding errors of numbers that are standardised and come back, in their mean and deviation."""
DECIMALS = range(-6, 7)
"""Decimals that a column may be rounded to: steps from a million to a millionth."""
MOST_DECIMALS = 300
"""Cells are not rounded to more: 10 to that power is no longer a float."""
STEPS = ("D", "h", "m", "s", "ms", "us", "ns")
"""The resolutions that dates can have, from the coarsest."""


@dataclass(frozen=True)
class TimeUnit:
    """Moments `"M"` or durations `"m"` as whole numbers of ticks since an origin.

    The step is the resolution in ticks: the coarsest of day, hour, minute, second and so on that
    every observed moment is a multiple of. Moments with a time zone are counted by the clocks of
    that zone, so that days begin at midnight there; those of other zones are converted to it.
    Moments that were text have a template, see `format_moments`.
    """

    kind: str
    unit: str
    origin: int
    step: int
    zone: str | None = None
    template: str | None = None

    def __post_init__(self) -> None:
        if self.zone is not None:
            from vfg.tables.pandas_frames import is_zone

            if not (isinstance(self.zone, str) and is_zone(self.zone)):
                raise ValueError(f"there is no time zone {self.zone!r} on this machine")

    @classmethod
    def read(cls, moments: Array, zone: str | None = None, template: str | None = None) -> TimeUnit:
        """The clock of a column's observed cells, with its origin near their mean."""
        unit, _ = np.datetime_data(moments.dtype)
        kind = moments.dtype.kind
        ticks = moments.astype(f"{kind}8[{unit}]").astype(np.int64)
        step = _resolution(ticks, unit)
        # The mean of shifted ticks, since a sum of nanoseconds leaves the range of integers.
        first = int(ticks[0]) if len(ticks) else 0
        mean = first + int(np.mean((ticks - first).astype(np.float64))) if len(ticks) else 0
        return cls(kind, unit, mean - mean % step, step, zone, template)

    def ticks(self, moments: Array) -> Array:
        """Ticks since the origin, as float64."""
        whole = moments.astype(f"{self.kind}8[{self.unit}]").astype(np.int64)
        return (whole - self.origin).astype(np.float64)

    def from_zone(self, moments: Array, zone: str | None) -> Array:
        """Local times of another zone in that of the clock; as they are if either is unknown."""
        return self._change(moments, zone, self.zone)

    def to_zone(self, moments: Array, zone: str | None) -> Array:
        """The inverse of `from_zone`."""
        return self._change(moments, self.zone, zone)

    def cells_of(self, moments: Array, column: Column) -> Array:
        """Moments as cells of a column: in its time zone, or text if that is what it holds."""
        if self.template is not None and column.storage in ("text", "empty"):
            return format_moments(moments, self.template)
        return self.to_zone(moments, column.zone)

    @staticmethod
    def _change(moments: Array, source: str | None, target: str | None) -> Array:
        if source is None or target is None or source == target:
            return moments
        from vfg.tables.pandas_frames import change_zone

        return change_zone(moments, source, target)

    def moments(self, ticks: Array) -> Array:
        """The moments nearest to ticks since the origin, at the clock's resolution."""
        room = 9.2e18  # a little less than 64 bits hold
        low, high = max(-room, -room - self.origin), min(room, room - self.origin)
        steps = np.rint(np.clip(ticks, low, high) / self.step)
        whole = steps.astype(np.int64) * self.step + self.origin
        return whole.astype(f"{self.kind}8[{self.unit}]")


def _resolution(ticks: Array, unit: str) -> int:
    if unit not in STEPS:
        return 1
    for coarse in STEPS[: STEPS.index(unit)]:
        step = int(np.ones((), f"m8[{coarse}]").astype(f"m8[{unit}]").astype(np.int64))
        if len(ticks) and not (ticks % step).any():
            return step
    return 1


@dataclass(frozen=True)
class NumericEncoding(ColumnEncoding):
    """A column of numbers or dates, standardised by the mean and deviation of its observed cells.

    The map is affine, z = (x − centre) / deviation. A model sees evidence beyond `furthest`
    deviations, ten or those of the observed cells if they lie further, as if it lay there. Cells
    further than a hundred interquartile ranges from the median, if they are at most one in twenty,
    do not count for centre, deviation and what a model sees; for the limits of filled cells, floor
    and ceiling, they do. A constant column has the deviation 1 and is encoded as zeros, whatever
    comes later, and its missing cells are filled with its value. A column without observed cells is
    no evidence, and is not filled. Filled cells are rounded to integers if `whole`, else to
    `decimals` unless None. A clock counts dates.

    Cells are filled within the bounds of a column, or its observed range: from floor to ceiling,
    unless a relation gives them. Draws and intervals end there only at a bound. Where the outermost
    cells crowd, as those of a bounded quantity do, draws end as far beyond these as these lie
    apart; else they do not change a sign that all cells have. None means no end.

    Cells are filled up to the reach where most are missing by their value and expected beyond the
    observed range, and in rows unlike the fitted ones if cells follow the linear model at its end.
    Cells of a line may turn negative or positive there, and those that follow from other columns
    have no ends; draws of other cells then end at `usual_least` and `usual_greatest`.

    A few-valued column has `values`, those that occur; `fills_values` says whether its cells are
    filled with these, rather than with means.
    """

    name: ClassVar[str] = "scale"
    width: ClassVar[int] = 1
    zero: ClassVar[float] = 0.0

    centre: float = 0.0
    deviation: float = 1.0
    lowest: float = 0.0
    highest: float = 0.0
    floor: float | None = None
    ceiling: float | None = None
    empty: bool = False
    whole: bool = False
    clock: TimeUnit | None = None
    furthest: float = FURTHEST
    decimals: int | None = None
    least: float | None = None
    greatest: float | None = None
    values: tuple[float, ...] | None = None
    fills_values: bool = False
    low_reach: float | None = None
    high_reach: float | None = None
    usual_least: float | None = None
    usual_greatest: float | None = None

    @classmethod
    def fit(
        cls, spec: Continuous | Integer | Date, column: Column, weights: Array | None = None
    ) -> NumericEncoding:
        """Standardise a column; filled cells keep to its bounds or else to the observed range."""
        column = parse_moments(column) if isinstance(spec, Date) else column
        is_time = column.values.dtype.kind in "Mm"
        how = column.zone, column.template
        clock = TimeUnit.read(column.observed, *how) if is_time else None
        numbers = read_numbers(column, clock)[~column.missing]
        if not len(numbers):
            return cls(empty=True, whole=isinstance(spec, Integer), clock=clock)
        own = np.ones(len(numbers)) if weights is None else weights[~column.missing]
        lowest, highest = float(numbers.min()), float(numbers.max())
        centre, deviation, furthest = lowest, 1.0, FURTHEST
        if lowest < highest:
            centre, deviation, furthest = _moments(numbers, None if weights is None else own)
        low, high = _bounds(spec, clock)
        floor, ceiling = lowest if low is None else low, highest if high is None else high
        least, greatest = _ends(numbers, own, deviation, clock)
        ends = least if low is None else low, greatest if high is None else high
        whole = isinstance(spec, Integer)
        decimals = None if whole or clock is not None else _decimals(numbers, deviation)
        decimals = 0 if isinstance(spec, Whole) else decimals
        limits = lowest, highest, floor, ceiling
        values = None
        if isinstance(spec, FewValued) and lowest < highest:
            values = tuple(x for x in spec.values or () if floor <= x <= ceiling) or None
        fields = centre, deviation, *limits, False, whole, clock, furthest, decimals, *ends, values
        return cls(*fields)

    @property
    def constant(self) -> bool:
        return not self.empty and self.lowest == self.highest

    @property
    def drawn_least(self) -> float | None:
        """The least value of draws, but for cells that are expected below it."""
        return self.least if self.usual_least is None else self.usual_least

    @property
    def drawn_greatest(self) -> float | None:
        """The greatest value of draws, but for cells that are expected above it."""
        return self.greatest if self.usual_greatest is None else self.usual_greatest

    def encode(self, column: Column) -> tuple[Array, Mask]:
        shape = (1, len(column.missing))
        if self.empty:
            return np.zeros(shape), np.zeros(shape, dtype=bool)
        observed = ~column.missing[None]
        if self.constant:
            return np.zeros(shape), observed
        standard = self.standardise(read_numbers(column, self.clock))
        np.clip(standard, -self.furthest, self.furthest, out=standard)
        standard[column.missing] = 0.0
        return standard[None], observed

    def standardise(self, cells: Array) -> Array:
        """Numbers, dates or ticks of the clock, in deviations from the mean."""
        if self.clock is not None and cells.dtype.kind in "Mm":
            cells = self.clock.ticks(cells)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((cells - self.centre) / self.deviation)

    def decode(self, values: Array) -> Array:
        numbers = self.numbers(values)
        if self.clock is not None:
            empty = np.full(len(numbers), "NaT", "M8[us]")
            return empty if self.empty else self.clock.moments(numbers)
        if self.decimals is not None:
            # Rounding may leave -0.0, which adding 0 turns into 0.
            numbers = self._within_limits(np.round(numbers, self.decimals)) + 0.0
        if self.values is not None:
            # Standardised values come back with rounding errors.
            nearest = nearest_values(values[:, 0] * self.deviation + self.centre, self.values)
            is_value = np.abs(self.standardise(nearest) - values[:, 0]) <= SAME
            numbers = np.where(is_value, nearest, numbers)
        if not self.whole or self.empty:
            return numbers
        return cast(numbers, np.dtype(np.uint64 if self.highest >= 2.0**63 else np.int64))

    def numbers(self, values: Array) -> Array:
        """Numbers, or ticks of the clock, within the limits and before they are rounded."""
        if self.empty:
            return np.full(len(values), np.nan)
        standard = np.zeros(len(values)) if self.constant else values[:, 0]
        numbers = standard * self.deviation + self.centre
        near = ROUNDING * abs(self.centre) + ROUNDING * self.deviation
        for end in (self.drawn_least, self.drawn_greatest):
            if end is not None:
                # Standardised ends come back with rounding errors: 0 as 9e-16 or -0.0.
                numbers = np.where(np.abs(numbers - end) <= near, end, numbers)
        return self._within_limits(numbers) + 0.0

    def _within_limits(self, numbers: Array) -> Array:
        low = -np.inf if self.least is None else self.least
        return np.clip(numbers, low, np.inf if self.greatest is None else self.greatest)

    def reaching(
        self,
        spec: Any,
        low: float,
        high: float,
        turns_positive: bool = False,
        lines: tuple[bool, bool] | None = None,
    ) -> NumericEncoding:
        """The same encoding, filled up to standardised ends beyond the observed range.

        Ends that are nan change nothing, nor do those that pass bounds. Cells of one sign keep it,
        negative ones unless they may turn positive: few quantities end at 0 from below. Draws that
        end near the observed range end further out; others have no end.

        `lines` says that cells follow their linear prediction up to the ends, and at which ends
        they do so as a line does. Draws end there at a sign alone, which lines may change.
        """
        if self.empty or self.constant or self.values is not None:
            return self
        bounds = _bounds(spec, self.clock)
        ends = [end * self.deviation + self.centre for end in (low, high)]
        is_positive = self.clock is None and self.lowest >= 0.0
        is_negative = self.clock is None and self.highest <= 0.0 and not turns_positive
        changes: dict[str, float | None] = {}
        if bounds[0] is None and ends[0] < self.lowest:
            changes |= self._reaching(0, ends[0], is_positive, lines)
        if bounds[1] is None and ends[1] > self.highest:
            changes |= self._reaching(1, ends[1], is_negative, lines)
        return replace(self, **changes) if changes else self  # type: ignore[arg-type]

    def _reaching(
        self, side: int, end: float, has_sign: bool, lines: tuple[bool, bool] | None
    ) -> dict[str, float | None]:
        """The fields that change if cells are filled up to the end of a side."""
        reach, limit = (("low_reach", "least"), ("high_reach", "greatest"))[side]
        passes_sign = has_sign and (end < 0.0 if side == 0 else end > 0.0)
        if getattr(self, limit) is None:
            return {reach: end}
        if lines is None:
            far = end + (-1.0, 1.0)[side] * BEYOND_REACH * self.deviation
            passes = has_sign and (far < 0.0 if side == 0 else far > 0.0)
            return {reach: 0.0 if passes_sign else end, limit: 0.0 if passes else far}
        if lines[side]:
            return {reach: end, limit: None, f"usual_{limit}": 0.0 if has_sign else None}
        return {reach: 0.0 if passes_sign else end, limit: 0.0 if has_sign else None}

    def seeing_further(self, spec: Any, *, line: bool, exact: bool) -> NumericEncoding:
        """The same encoding, which sees evidence about a `line` further out than cells were fitted.

        Columns with far outliers stay as they are. Cells of `exact` columns, which follow from
        others, have no ends but bounds.
        """
        if self.empty or self.constant or self.values is not None:
            return self
        outermost = np.abs(self.standardise(np.array([self.lowest, self.highest]))).max()
        changes: dict[str, Any] = {}
        if outermost <= self.furthest and (line or exact):
            changes["furthest"] = max(self.furthest, EXACT_EVIDENCE if exact else FAR_EVIDENCE)
        bounds = _bounds(spec, self.clock)
        if exact and bounds[0] is None and self.least is not None:
            changes |= {"least": None, "usual_least": self.drawn_least}
        if exact and bounds[1] is None and self.greatest is not None:
            changes |= {"greatest": None, "usual_greatest": self.drawn_greatest}
        return replace(self, **changes) if changes else self

    def rounding_few(self) -> NumericEncoding:
        """The same encoding, whose cells are filled with whole numbers if it has few, all whole."""
        has_whole = self.values is not None and all(value.is_integer() for value in self.values)
        return replace(self, decimals=0) if has_whole else self

    def widened(self, spec: Any, column: Column) -> NumericEncoding:
        """The same encoding with a range that contains the cells of a further column, too."""
        numbers = read_numbers(column, self.clock)[~column.missing]
        if not len(numbers):
            return self
        lowest, highest = min(self.lowest, numbers.min()), max(self.highest, numbers.max())
        furthest = max(self.furthest, float(np.abs(self.standardise(numbers)).max()))
        low, high = _bounds(spec, self.clock)
        changes: dict[str, Any] = {"lowest": float(lowest), "highest": float(highest)}
        if low is None:
            ends = ("least", "usual_least")
            changes |= {end: _further(min, getattr(self, end), float(lowest)) for end in ends}
            changes["floor"] = float(lowest)
        if high is None:
            ends = ("greatest", "usual_greatest")
            changes |= {end: _further(max, getattr(self, end), float(highest)) for end in ends}
            changes["ceiling"] = float(highest)
        decimals = self.decimals
        stays = self.values is not None and decimals == 0 and bool((numbers % 1.0 == 0.0).all())
        if decimals is not None and not (stays or isinstance(spec, Whole)):
            own = _decimals(numbers, self.deviation)
            decimals = None if own is None else max(decimals, own)
        near = furthest if furthest <= OUTLYING else self.furthest
        return replace(self, **changes, decimals=decimals, furthest=near)

    def to_dict(self) -> dict[str, Any]:
        fields = {"name": self.name, **asdict(self)}
        for key in ("zone", "template"):
            if self.clock is not None and fields["clock"][key] is None:
                del fields["clock"][key]  # as in files of earlier versions
        if self.values is None:
            del fields["values"], fields["fills_values"]  # likewise
        for end in ("low_reach", "high_reach", "usual_least", "usual_greatest"):
            if fields[end] is None:
                del fields[end]  # likewise
        return fields

    @classmethod
    def from_dict(cls, description: dict[str, Any], arrays: dict[str, Array]) -> NumericEncoding:
        fields = {key: value for key, value in description.items() if key != "name"}
        clock = fields.pop("clock")
        # Files of earlier versions have the same limits for all answers.
        fields = {"least": fields["floor"], "greatest": fields["ceiling"]} | fields
        values = fields.pop("values", None)
        fields["values"] = None if values is None else tuple(map(float, values))
        return cls(**fields, clock=None if clock is None else TimeUnit(**clock))


def nearest_values(numbers: Array, values: Array | Sequence[float]) -> Array:
    """The nearest of some rising values to every number.

    Example:
        >>> nearest_values(np.array([1999.2, 2007.0]), (1999.0, 2008.0))
        array([1999., 2008.])
    """
    known = np.asarray(values, dtype=np.float64)
    return np.asarray(known[np.searchsorted((known[1:] + known[:-1]) / 2.0, numbers)])


def outer_values(ends: Tensor, values: Tensor, side: int) -> Tensor:
    """The nearest of some rising values that is not above (side 0) or not below (1) every end.

    Example:
        >>> values = torch.tensor([1.0, 2.0, 4.0])
        >>> [outer_values(torch.tensor([2.5, 9.0]), values, side).tolist() for side in (0, 1)]
        [[2.0, 4.0], [4.0, 4.0]]
    """
    apart = ends[..., None] - values
    if side == 0:
        return torch.where(apart >= -SAME, values, values[0]).amax(-1)
    return torch.where(apart <= SAME, values, values[-1]).amin(-1)


def read_numbers(column: Column, clock: TimeUnit | None) -> Array:
    """The cells as float64, anything where they are missing."""
    column = column if clock is None else parse_moments(column, clock.template)
    kind = column.values.dtype.kind
    if clock is not None and kind in "Mm":
        return clock.ticks(clock.from_zone(column.values, column.zone))
    if clock is not None or kind not in "fiub":
        if column.missing.all():
            return np.zeros(len(column.missing))
        wanted = "numbers" if clock is None else "dates"
        raise ValueError(
            f"column {column.label!r} must hold {wanted}, but holds {column.storage} cells; "
            "convert it"
        )
    return column.values.astype(np.float64, copy=False)


def _moments(numbers: Array, weights: Array | None) -> tuple[float, float, float]:
    """Mean, standard deviation, and how far cells are seen: far outliers aside, no overflow."""
    peak = float(np.abs(numbers).max())
    unit = 1.0 if 1e-100 < peak < 1e100 else 2.0 ** math.floor(math.log2(peak))
    scaled = numbers / unit if unit != 1.0 else numbers
    counted = _are_no_outliers(scaled)
    kept = scaled if counted.all() else scaled[counted]
    if weights is None:
        centre = float(kept.mean())
        deviation = float(np.sqrt(np.mean((kept - centre) ** 2)))
    else:
        centre = float(np.average(kept, weights=weights[counted]))
        deviation = float(np.sqrt(np.average((kept - centre) ** 2, weights=weights[counted])))
    # A range below the resolution of floats at that distance rounds to no deviation at all.
    deviation = deviation or float(np.ptp(scaled))
    far = float(np.abs(kept - centre).max()) / deviation if deviation > 0.0 else 0.0
    return centre * unit, deviation * unit or math.ulp(0.0), max(FURTHEST, far)


def _decimals(numbers: Array, deviation: float) -> int | None:
    """The decimals that observed cells have, or more if rounding to them would lose accuracy.

    Rounding to a step h adds h² / 12 to the squared error, which is below a thousandth of the
    variance for steps up to a tenth of the deviation.
    """
    peak = float(np.abs(numbers).max())
    for decimals in DECIMALS if 0.0 < peak < 2.0**53 else ():
        scaled = numbers * 10.0**decimals
        if (np.abs(scaled - np.rint(scaled)) <= np.minimum(1e-3, 1e-7 * np.abs(scaled))).all():
            needed = max(decimals, math.ceil(1.0 - math.log10(deviation)))
            return needed if needed <= MOST_DECIMALS else None
    return None


def _are_no_outliers(numbers: Array) -> Mask:
    centre, deviation = float(numbers.mean()), float(numbers.std())
    # At most one outlier in twenty cells lies at least four deviations from the mean.
    if np.abs(numbers - centre).max() <= 4.0 * deviation:
        return np.ones(len(numbers), dtype=bool)
    low, median, high = np.quantile(numbers, [0.25, 0.5, 0.75])
    far = np.abs(numbers - median) > OUTLYING * (high - low)
    few = low < high and 0 < far.sum() <= len(numbers) / 20
    return np.asarray(~(far & few))


def _ends(
    numbers: Array, weights: Array, deviation: float, clock: TimeUnit | None
) -> tuple[float | None, float | None]:
    """The least and the greatest possible value, as far as the observed cells tell; None if not."""
    order = np.argsort(numbers, kind="stable")
    total = float(weights.sum())
    place = min(max(1.0, total // 10), CROWD, total - 1.0)
    ends: list[float | None] = []
    for side, some in ((-1.0, order), (1.0, order[::-1])):
        # The cell at that place if every cell stood there as often as it counts.
        at = np.searchsorted(np.cumsum(weights[some]), place, side="right")
        end, inner = numbers[some[0]], numbers[some[min(int(at), len(some) - 1)]]
        step = side * float(end - inner)
        crowds = step <= CROWDED * deviation
        # Nothing tells an origin of dates from other dates.
        has_sign = clock is None and side * end <= 0.0
        limit = float(end) + side * step if crowds else math.inf * side
        limit = side * min(0.0, side * limit) if has_sign else limit
        ends.append(limit if math.isfinite(limit) else None)
    return ends[0], ends[1]


def _further(
    outermost: Callable[[float, float], float], end: float | None, other: float
) -> float | None:
    return None if end is None else outermost(end, other)


def _bounds(
    spec: Continuous | Integer | Date, clock: TimeUnit | None
) -> tuple[float | None, float | None]:
    if not isinstance(spec, Date):
        return spec.bounds
    if clock is None or clock.kind == "m":
        return None, None
    low, high = (
        None if bound is None else float(clock.ticks(np.array([bound], "M8"))[0])
        for bound in spec.bounds
    )
    return low, high


KNOTS = 128
"""How many knots a map has."""
SCORE_LIMIT = 1e4
"""Scores are clipped here, far beyond any that occur, so that one search serves all columns."""
SHARE = 0.5
"""How far a column goes from its own values, 0, to its normal scores, 1."""


class NormalScores(nn.Module):
    r"""Piecewise linear maps $x \mapsto (1 - a) x + a \Phi^{-1}(F(x))$, one per column.

    F is the distribution of a column's known cells. Beyond them slopes are 1.

    Example:
        >>> values = torch.tensor([[1.0], [2.0], [100.0]], dtype=torch.float64)
        >>> ranks = NormalScores.of(values, torch.ones(3, 1, dtype=torch.bool), torch.tensor([1.0]))
        >>> [round(score, 2) for score in ranks(values)[:, 0].tolist()]
        [-0.97, 0.0, 0.97]
        >>> ranks.inverse(ranks(values))[:, 0].tolist()
        [1.0, 2.0, 100.0]
    """

    knots: Tensor
    scores: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        line = torch.linspace(-1.0, 1.0, KNOTS, dtype=torch.float64).repeat(columns, 1)
        self.register_buffer("knots", line)
        self.register_buffer("scores", line.clone())

    @classmethod
    def of(cls, values: Tensor, observed: Tensor, shares: Tensor) -> NormalScores:
        """Maps by the known cells of a matrix; a share of 0 leaves its column as it is."""
        made = cls(values.shape[1])
        for column, share in enumerate(shares.tolist()):
            knots = _knots(values[observed[:, column], column].double(), share)
            if knots is not None:
                made.knots[column], made.scores[column] = knots
        return made

    def forward(self, values: Tensor) -> Tensor:
        """Scores of values `(rows, columns)`."""
        return _interpolate(values, self.knots, self.scores)

    def inverse(self, scores: Tensor) -> Tensor:
        """Values of scores `(..., columns)`."""
        flat = scores.reshape(-1, scores.shape[-1])
        return _interpolate(flat, self.scores, self.knots).view(scores.shape)

    def inverse_at(self, scores: Tensor, columns: Tensor) -> Tensor:
        """Values of scores, each of a column of its own; both of the same shape."""
        # One search in all columns at once, each moved to a place of its own.
        lines = torch.arange(len(self.scores), dtype=torch.float64) * (2.0 * SCORE_LIMIT)
        ends = self.scores.clamp(-SCORE_LIMIT, SCORE_LIMIT) + lines[:, None]
        keys = (scores.clamp(-SCORE_LIMIT, SCORE_LIMIT) + lines[columns]).contiguous()
        right = torch.searchsorted(ends.view(-1), keys) - columns * KNOTS
        place = right.clamp(1, KNOTS - 1) + columns * KNOTS
        start, end = self.scores.view(-1)[place - 1], self.scores.view(-1)[place]
        low, high = self.knots.view(-1)[place - 1], self.knots.view(-1)[place]
        share = (scores - start) / (end - start)
        return (1.0 - share) * low + share * high


def _knots(cells: Tensor, share: float) -> tuple[Tensor, Tensor] | None:
    """Values and scores of one column; nothing if it has a single value or stays as it is."""
    values, counts = cells.unique(return_counts=True)
    if len(values) < 2 or share == 0.0:
        return None
    numbers = counts.double()
    below = (numbers.cumsum(0) - 0.5 * numbers) / numbers.sum()
    scores = (1.0 - share) * values + share * torch.special.ndtri(below)
    inner = KNOTS - 2
    if len(values) > inner:
        chosen = torch.linspace(0.0, len(values) - 1.0, inner, dtype=torch.float64).round().long()
        values, scores = values[chosen], scores[chosen]
    # The outer knots are a deviation apart: two nearly equal cells must not set the outer slope.
    steps = torch.arange(1.0, KNOTS - len(values), dtype=torch.float64)
    ends = [torch.cat([part[:1] - 1.0, part, part[-1] + steps]) for part in (values, scores)]
    return ends[0], ends[1]


def _interpolate(values: Tensor, knots: Tensor, scores: Tensor) -> Tensor:
    columns = values.T.contiguous()
    right = torch.searchsorted(knots, columns).clamp(1, knots.shape[1] - 1)
    left = right - 1
    start, end = knots.gather(1, left), knots.gather(1, right)
    low, high = scores.gather(1, left), scores.gather(1, right)
    # As a sum of both ends, so that a knot has exactly its score.
    share = (columns - start) / (end - start)
    return ((1.0 - share) * low + share * high).T.contiguous()
