r"""Rows unlike the fitted ones: what is filled moves from the ensemble to the linear model.

Mixtures and row mixtures describe the fitted rows; far from these they predict anything. A row lies
$d = \tfrac1{|o|} \sum_{j \in o} (x_j - \bar m_j)^2 / (h_j^2 + \bar v_j)$ from the means $\bar m$
of the fitted rows that a row mixture of noise $h$ finds similar, whose missing cells have the
variances $\bar v$. Columns of categories are not counted. Most rows like the fitted ones lie
within $d_0$, which is at least one.
Let $S$ be the ensemble's mean, $\ell$ the linear model's, clipped to the observed range, and $e$
what the clipping cut off. A cell is filled with

$$S + s\,(\ell + g e - S), \qquad s = \frac{(d - d_0)_+}{(d - d_0)_+ + \kappa \rho^2}.$$

$\rho$ says how many times as large as the ensemble's the squared errors of the linear model are at
held-out cells of the column: where it says little, it is not trusted far out either. $g$ says how
far the cells of a column follow their linear prediction at this end of its range. It is the slope
$b$ of cells on what the linear model predicts from the rest of their rows: of a parabola at its
end, where that describes all cells of the column, else of a line among the outermost predictions.
It is shrunk to 1 by its standard error: $g = b + (1 - b) s_b^2 / (s_b^2 + \sigma^2)$, between 0 and
1. A slope below one half is none: the relation bends, or the column has an end there.
Cells are filled at most some widths of the observed range beyond it, within their bounds: one, or
more where the slope is known to be 1, $0.1 / u$ up to ten for
$u^2 = s_b^2 + (|1 - b| - 2 s_b)_+^2$. Where u is at most 0.05, the column is a line, and may change
a sign that all of its cells have.

Errors of rows unlike the fitted ones are larger, too. With $x = (d - d_0)_+$ the draws of a cell
have the variance $\sigma^2 + 3 v (1 + \log(1 + x / 50)) x / (x + 2)$, where $v$ is the mean squared
error of the linear model at held-out cells of the column. If the linear prediction lies c beyond
the observed range, their deviation grows by $(0.05 + u) c$, too, since no cell tells whether the
slope stays the same; and they reach up to the linear prediction if the fill does not.

Where row mixtures have no say, as in the linear model alone, a cell is filled with $S + g e$.
Elsewhere S has the share of $g e$ that the linear model has in it.

Curves do not turn back to the line at the ends of what was seen. Let $\ell'$ be the linear mean of
the row with its known cells moved into their observed ranges, and $g e'$ its part beyond these.
Where the linear model says much less than the ensemble ($\rho^2$ above 3), and the moved row is
like the fitted ones, $\ell + g e$ is replaced by $S + \ell + g e - (\ell' + g e')$: the level at
the end, and the slope of the line, as far as it is followed.
"""

from __future__ import annotations

import math

import scipy
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.parameters import factors_of
from vfg.training.losses import draw_rows

TRUST = 2.0
"""κ: the distance beyond d_0 at which the linear model counts half where it predicts as well as the
ensemble. Seven tables for tuning, fitted on the first 70 % of the rows along a principal component
or a column: squared errors of the others are 0.854, 0.857 and 0.864 of those without this rule for
1, 2 and 4; on random rows 1.003, 1.002 and 1.000. With ρ instead of its square, rows on the other
branch of a parabola had one and a half times the error."""
USUAL = 0.95
"""The share of the fitted rows, each without itself, that lie within d_0."""
OUTERMOST = 0.2
"""The share of cells from which the slope at an end is estimated; 0.1 and 0.3 were as good."""
FEWEST = 10
"""The fewest cells for a slope; columns with less than twice as many stay within their range."""
PRIOR = 0.2
"""σ: how far a slope deviates from 1, a priori. Fitted to 70 rows of a straight line, cut off where
most rows lie, fills had a quarter of the error of those within the range; with 0.3 a third."""
HELD = 2.5, 3.5
"""How many times as large as the ensemble's the linear model's squared errors must be, at held-out
cells, for a level to be held outside of ranges, and for all of it: an exponential function has six,
or three with the effort "fast", a parabola twenty. Seven tables, sorted by components and columns
and fitted to the first 70 % of the rows, had 0.5 % larger squared errors (airfoil along one
component 11 %), and 0.2 % larger ones with a limit at 3.4; shares of 1 - ρ⁻⁴ cost 1.2 %."""
LEAST = 0.5
"""Slopes below this count as 0, so that bounded columns keep their ends."""
WIDTHS = 1.0
"""How far beyond the observed range cells are filled at least, in widths of it: half of it cost up
to 50 % on two of the tables above."""
EVIDENCE, MOST_WIDTHS = 0.1, 10.0
"""How uncertain a slope may be for one width, and the most widths."""
LINE, NEARLY_LINE = 0.05, 0.15
"""The uncertainty u up to which a column is a line, and that at both ends up to which cells further
out than ten deviations are seen where they are: seen by all columns, a single far cell made squared
errors of unseen rows of a table of 214 rows 7 % larger."""
FEWEST_OF_PARABOLA, BINS, MISFIT = 60, 10, 0.01
"""The fewest cells for a parabola, and the bins of predictions whose mean errors tell, at that
significance, that it does not describe a column."""
FAR_ERROR, FAR, FARTHER = 3.0, 2.0, 50.0
"""The variance that draws far out gain, in squared errors of the linear model, the distance beyond
d_0 at which they gain half of it, and that from which on they gain more."""
SLOPE_ERROR, MOST_ERROR = 0.05, 0.5
"""By how much slopes change beyond the observed range, which no cell tells, and how uncertain they
are at most."""
PLASTIC = (0.7548776662466927, 0.5698402909980532)
"""Powers of the inverse plastic number: multiples of both modulo 1 fill a square evenly."""
OVERSHOOT = 1.2
"""How far draws reach of the way to a linear prediction beyond what is filled."""
ROWS = 1000
"""The most rows that slopes are estimated from."""
NUMBERS = 2**22
"""Entries of matrices that are inverted at once, about."""


def linear_share(distances: Tensor, usual: Tensor, trust: Tensor) -> Tensor:
    """How much the linear model counts, `(rows, columns)`, from distances `(rows, 1)`.

    `usual` is the distance up to which it does not; `trust` is that in the ensemble, by column,
    and infinite where it alone counts.

    Example:
        >>> distances, trust = torch.tensor([[0.7], [3.0]]), torch.tensor([2.0, torch.inf])
        >>> linear_share(distances, torch.tensor(1.0), trust).tolist()
        [[0.0, 0.0], [0.5, 0.0]]
    """
    beyond = (distances - usual).clamp(min=0.0)
    return beyond / (beyond + trust)


def share_outside(near: Tensor, distances: Tensor, usual: Tensor) -> Tensor:
    """How much of what is unusual about rows is that cells lie outside of their observed ranges.

    `distances` of rows are `near` with these cells moved into the ranges; both are `(rows, 1)`.

    Example:
        >>> near, distances = torch.tensor([[0.7], [3.0], [5.0]]), torch.tensor([[5.0]] * 3)
        >>> share_outside(near, distances, torch.tensor(1.0)).tolist()
        [[1.0], [0.5], [0.0]]
    """
    left, beyond = ((x - usual).clamp(min=0.0) for x in (near, distances))
    return (1.0 - left / beyond.clamp(min=1e-9)).clamp(0.0, 1.0)


def hold_level(means: Tensor, inside: Tensor, outside: Tensor, held: Tensor) -> Tensor:
    """What is added to linear predictions to continue at the level of the ensemble's `means`.

    `inside` are linear predictions within the ranges of the known cells, `outside` how far rows lie
    outside of them, `held` the shares of levels that columns hold.

    Example:
        >>> numbers = torch.tensor([[2.4]]), torch.tensor([[0.1]]), torch.ones(1, 1)
        >>> hold_level(*numbers, torch.tensor([1.0])), hold_level(*numbers, torch.tensor([0.0]))
        (tensor([[2.3000]]), tensor([[0.]]))
    """
    return outside * held * (means - inside)


def far_variances(
    distances: Tensor, usual: Tensor, linear_errors: Tensor, farther: float = FARTHER
) -> Tensor:
    """The variances `(rows, columns)` that draws gain in rows unlike the fitted ones.

    Example:
        >>> distances = torch.tensor([[0.7], [3.0]])
        >>> far_variances(distances, torch.tensor(1.0), torch.tensor([2.0]))
        tensor([[0.0000],
                [3.1177]])
    """
    beyond = (distances - usual).clamp(min=0.0)
    return FAR_ERROR * linear_errors * beyond / (beyond + FAR) * (1.0 + (beyond / farther).log1p())


def slope_deviations(beyond: Tensor, slope_errors: Tensor) -> Tensor:
    """Deviations of cells whose linear prediction lies beyond the observed range, by their slope.

    `slope_errors` is `(2, columns)`, for predictions below and above the range.

    Example:
        >>> slope_deviations(torch.tensor([[-2.0], [0.0], [4.0]]), torch.tensor([[0.2], [0.05]]))
        tensor([[0.5000],
                [0.0000],
                [0.4000]])
    """
    below, above = slope_errors
    uncertain = torch.where(beyond < 0.0, below, above)
    return (SLOPE_ERROR + uncertain) * beyond.abs()


def even_levels(number: int, columns: int) -> Tensor:
    """Levels in (0, 1) of draws, evenly spread for any number of them, `(number, 1, columns)`.

    Example:
        >>> levels = even_levels(100, 2)
        >>> levels.mean(0).round(decimals=1).tolist()
        [[0.5, 0.5]]
    """
    draws, places = torch.arange(number).double(), torch.arange(columns).double()
    return (0.5 + draws[:, None, None] * PLASTIC[0] + places * PLASTIC[1]) % 1.0


def beyond_range(means: Tensor, inner: Tensor, following: Tensor) -> Tensor:
    """The part of what clipping cut off that is followed: $g e$; `following` is `(2, columns)`."""
    cut = means - inner
    return torch.where(cut < 0.0, following[0], following[1]) * cut


def follow_line(means: Tensor, ends: Tensor, following: Tensor) -> Tensor:
    r"""Linear means as far as they are followed, $\ell + g e$, for the `ends` of the range.

    Example:
        >>> ends, following = torch.tensor([[-1.0], [1.0]]), torch.tensor([[0.0], [0.5]])
        >>> follow_line(torch.tensor([[-3.0], [0.5], [3.0]]), ends, following).flatten().tolist()
        [-1.0, 0.5, 2.0]
    """
    inner = means.clamp(*ends)
    return inner + beyond_range(means, inner, following)


@torch.no_grad()
def fit_following(
    linear: GaussianVFG,
    values: Tensor,
    observed: Tensor,
    unordered: Tensor,
    weights: Tensor | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """How far cells follow the linear model at the ends of their columns, g, `(2, columns)`.

    Also how uncertain their slopes are, u; 0.5 in columns without enough cells.
    """
    most = min(ROWS, max(2 * FEWEST, NUMBERS // values.shape[1] ** 2))
    rows = draw_rows(observed.any(1), most, seed)
    cells, known = values[rows].double(), observed[rows]
    often = torch.ones(len(rows)).double() if weights is None else weights[rows].double()
    predicted = predict_from_others(linear, cells, known)
    following = torch.zeros(2, values.shape[1], dtype=torch.float64)
    uncertain = torch.full_like(following, MOST_ERROR)
    for column in (~unordered).nonzero()[:, 0].tolist():
        own = known[:, column] & (often > 0.0)
        x, y, w = predicted[own, column], cells[own, column], often[own]
        if float(w.sum()) >= 2 * FEWEST:
            for side, (slope, variance) in enumerate(end_slopes(x, y, w)):
                following[side, column] = shrunk_slope(slope, variance)
                uncertain[side, column] = slope_error(slope, variance)
    return following, uncertain


def end_slopes(x: Tensor, y: Tensor, weights: Tensor) -> list[tuple[float, float]]:
    """The slopes of y on x at its two ends, and their squared standard errors.

    Example:
        >>> x = torch.linspace(0.0, 1.0, 100).double()
        >>> [round(slope, 2) for slope, _ in end_slopes(x, x + x**2, torch.ones(100).double())]
        [1.0, 3.0]
    """
    whole = parabola_slopes(x, y, weights)
    if whole is not None:
        return whole
    total = float(weights.sum())
    number = max(float(FEWEST), OUTERMOST * total)
    parts = (0.0, number), (total - number, total)
    return [end_slope(x, y, weights_between(x, weights, *part)) for part in parts]


def weights_between(x: Tensor, weights: Tensor, low: float, high: float) -> Tensor:
    """The part of the weights, added up in the order of x, that lies between two sums.

    Rows count as often as their weights say, so that they equal repeated rows.

    Example:
        >>> weights_between(torch.tensor([3.0, 1.0, 2.0]), torch.ones(3), 0.0, 1.5).tolist()
        [0.0, 1.0, 0.5]
    """
    order = x.argsort(stable=True)
    ends = weights[order].cumsum(0)
    overlap = ends.clamp(max=high) - (ends - weights[order]).clamp(min=low)
    return torch.zeros_like(weights).index_copy(0, order, overlap.clamp(min=0.0))


def parabola_slopes(x: Tensor, y: Tensor, weights: Tensor) -> list[tuple[float, float]] | None:
    """The same of a parabola; None for few cells, or if it does not describe them."""
    low, high, total = float(x.min()), float(x.max()), float(weights.sum())
    if total < FEWEST_OF_PARABOLA or high - low < 1e-6:
        return None
    half = 0.5 * (high - low)
    line = (x - low) / half - 1.0
    powers = torch.stack([torch.ones_like(line), line, line.square()], dim=1)
    inverse = torch.linalg.pinv(powers.mT @ (weights[:, None] * powers))
    found = inverse @ (powers.mT @ (weights * y))
    left = y - powers @ found
    misfit = 0.0
    for k in range(BINS):
        share = weights_between(x, weights, total * k / BINS, total * (k + 1) / BINS)
        misfit += float((share @ left) ** 2 / (share @ left.square()).clamp(min=1e-18))
    if misfit > scipy.stats.chi2.isf(MISFIT, BINS - 3):
        return None
    # Errors may differ in size from cell to cell.
    inner = powers.mT @ ((weights * left.square())[:, None] * powers)
    covariance = inverse @ inner @ inverse * (total / (total - 3.0))
    ends = powers.new_tensor([[0.0, 1.0, -2.0], [0.0, 1.0, 2.0]]) / half
    return [(float(end @ found), float(end @ covariance @ end)) for end in ends]


def slope_error(slope: float, variance: float) -> float:
    """How uncertain it is that a column follows its linear prediction: u.

    Example:
        >>> slope_error(1.03, 0.02**2), slope_error(0.25, 0.0), round(slope_error(0.8, 0.0), 1)
        (0.02, 0.5, 0.2)
    """
    error = math.sqrt(variance)
    # Chance alone makes slopes deviate by two standard errors.
    return min(math.hypot(error, max(abs(1.0 - slope) - 2.0 * error, 0.0)), MOST_ERROR)


def followed_widths(uncertain: Tensor) -> Tensor:
    """For how many widths of their range columns follow their linear prediction.

    Example:
        >>> followed_widths(torch.tensor([0.02, 0.2, 0.0])).tolist()
        [5.0, 1.0, 10.0]
    """
    return (EVIDENCE / uncertain.clamp(min=1e-9)).clamp(WIDTHS, MOST_WIDTHS)


def shrunk_slope(slope: float, variance: float) -> float:
    """A slope nearer to 1 the less certain it is; 0 below `LEAST`, at most 1.

    Example:
        >>> shrunk_slope(2.0, 0.0), shrunk_slope(0.1, 0.0), round(shrunk_slope(0.6, 0.04), 3)
        (1.0, 0.0, 0.8)
    """
    shrunk = slope + (1.0 - slope) * variance / (variance + PRIOR**2)
    return min(shrunk, 1.0) if shrunk >= LEAST else 0.0


def end_slope(x: Tensor, y: Tensor, weights: Tensor) -> tuple[float, float]:
    """The slope of y on x, and its squared standard error.

    Example:
        >>> x = torch.linspace(0.0, 1.0, 11)
        >>> [round(number, 3) for number in end_slope(x, 2.0 * x, torch.ones(11))]
        [2.0, 0.0]
    """
    share = weights / weights.sum()
    left, right = x - share @ x, y - share @ y
    square = float(share @ left.square())
    if square < 1e-12:
        return 1.0, 1.0
    slope = float(share @ (left * right)) / square
    rest = float(share @ (right - slope * left).square())
    return slope, rest / square / (float(weights.sum()) - 2.0)


def predict_from_others(linear: GaussianVFG, values: Tensor, observed: Tensor) -> Tensor:
    """What a linear model predicts for observed cells from the others of their rows.

    With the precision matrix $Q$ of the observed cells it is $x_j - (Q (x - m))_j / Q_{jj}$. Other
    entries are means.
    """
    factors = factors_of(linear.structure, linear.linear.values())
    loadings, offsets, scales = (part[0].detach().cpu().double() for part in factors[1:])
    location, scale = (x.cpu() for x in (linear.scaling.location, linear.scaling.scale))
    covariance = loadings @ loadings.mT + torch.diag(scales.square())
    left = torch.where(observed, (values - location) / scale - offsets, 0.0)
    change = torch.zeros_like(left)
    for rows in torch.arange(len(left)).split(max(1, NUMBERS // left.shape[1] ** 2)):
        known = observed[rows].double()
        both = known[:, :, None] * known[:, None, :]
        # Missing cells are independent ones, which change nothing.
        inverse = torch.linalg.inv(covariance * both + torch.diag_embed(1.0 - known))
        pulls = (inverse @ left[rows][..., None])[..., 0]
        change[rows] = pulls / inverse.diagonal(dim1=1, dim2=2)
    return (left - change + offsets) * scale + location


def furthest_ends(following: Tensor, widths: Tensor, observed_range: Tensor) -> Tensor:
    """The ends `(2, columns)` of what is filled; nan where that is the observed range.

    Example:
        >>> following, observed = torch.tensor([[0.0], [1.0]]), torch.tensor([[-1.0], [3.0]])
        >>> furthest_ends(following, torch.ones(2, 1), observed).tolist()
        [[nan], [7.0]]
    """
    width = widths * (observed_range[1] - observed_range[0])
    ends = observed_range + width * torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    return torch.where(following > 0.0, ends, math.nan)


def usual_distance(distances: Tensor) -> Tensor:
    """$d_0$ from the distances of fitted rows, each without itself.

    Example:
        >>> usual_distance(torch.linspace(0.0, 4.0, 101, dtype=torch.float64))
        tensor(3.8000, dtype=torch.float64)
    """
    return distances.quantile(USUAL).clamp(min=1.0)


def ensemble_trust(linear: Tensor, ensemble: Tensor, prior: float) -> Tensor:
    """Trust in the ensemble, $κ ρ^2$ by column, from sums of squared errors at held-out cells.

    The ratio of all columns together counts like errors of the size `prior`.

    Example:
        >>> errors = torch.tensor([1e6, 1e6]), torch.tensor([1e6, 5e5])
        >>> [round(x, 2) for x in ensemble_trust(*errors, prior=1.0).tolist()]
        [2.0, 8.0]
    """
    linear, ensemble = linear.clamp(min=0.0), ensemble.clamp(min=0.0)
    common = linear.sum() / ensemble.sum().clamp(min=1e-9)
    ratio = (linear + prior * common) / (ensemble + prior).clamp(min=1e-9)
    return TRUST * ratio.clamp(min=1.0).square()


def held_levels(trust: Tensor) -> Tensor:
    """The shares of the ensemble's level that columns hold outside of ranges, from `HELD`.

    Example:
        >>> held_levels(TRUST * torch.tensor([1.0, 3.0, 20.0, torch.inf]))
        tensor([0.0000, 0.5000, 1.0000, 0.0000])
    """
    none, whole = HELD
    shares = ((trust / TRUST - none) / (whole - none)).clamp(0.0, 1.0)
    return torch.where(trust.isfinite(), shares, 0.0)  # the ensemble alone fills the others
