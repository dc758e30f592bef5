r"""Linear relations between columns, such as totals, and rows that are copies of others.

Relations are $R x + c = \varepsilon$ with noise of small deviations, 0 for exact ones. They hold
more exactly than the parts of a model can say: what these expect or draw is moved by the Kalman
gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import scipy
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.parameters import factors_of
from vfg.tables.cells import Array, Mask

FEWEST_ROWS = 10
"""Rows more than unknowns that a relation must hold in, so that it is none by chance."""
SMALL, FEWEST_OF_SMALL, DIGITS = 30, 3, 2.3
"""Rows below which a table is small, and the rows more than unknowns that an exact relation of such
a table must hold in, if these are evidence of so many decimal digits: five rows of y = 2x + 1 with
whole numbers up to six have 2.3. Chance has it in one of 200 tables of two such columns."""
MOST_LEVELS = 1e6
"""Levels of columns whose values are not evenly spaced."""
EXACT = 1e-8
"""Largest error of a relation, in deviations: well above rounding, well below any noise."""
NEAR = 0.1
"""Largest noise of a relation, in deviations. Noise of the parts of a model has a floor, which was
0.05 for 500 rows; relations with more noise than this are left to the parts."""
ROWS_PER_COLUMN = 5
"""Rows per column from which a noisy relation is estimated: fewer are small by chance."""
NEW_SHARE = 0.5
"""How much of a noisy relation others must not imply already, as a share of its length."""
CLOSE, LEAST_WEIGHT, MOST_RELATED = 0.2, 0.05, 12
"""Variance left by all others below which a column is searched for relations; weight in its
regression from which on a column matters; the most columns that are searched together."""
FURTHEST = 6.0
"""Deviations of its noise beyond which a relation does not hold in a row."""
MOST_COLUMNS = 300
"""Tables with more columns are not searched, which bounds the time."""
VARIED = 20.0
"""Values of a column, weighted by their frequency, from which on equal cells hint at a copied row:
in columns of few values cells are equal by chance."""
COMMON = 2 / 3
"""Share of the columns that copies must have in common. Rows that agree in fewer may be repeated
measurements of one thing, which help to fill each other: as copies they cost the concrete table,
half of whose cells were missing, 3 % of squared error."""
LAGS = 3
"""How far apart sorted rows are compared: of several copies two may have too little in common."""
SORTED_COLUMNS = 8
"""Columns by which copies are searched, those with the most values, which bounds the time."""


@dataclass(frozen=True)
class Relations:
    """Linear relations between columns that hold exactly or nearly.

    Attributes:
        coefficients: rows `(coefficients, constant)` whose sum is noise, `(relations, columns +
            1)`.
        noise: its standard deviation, 0 for exact relations, `(relations,)`.
    """

    coefficients: Tensor
    noise: Tensor

    def __len__(self) -> int:
        return len(self.noise)

    def to(self, device: torch.device) -> Relations:
        """The relations on a device."""
        return Relations(*(getattr(self, part.name).to(device) for part in fields(self)))

    def select(self, chosen: Tensor) -> Relations:
        """Some of the relations."""
        return Relations(self.coefficients[chosen], self.noise[chosen])

    def gains(self, missing: Tensor) -> tuple[Tensor, Tensor]:
        r"""How far missing columns follow errors of the relations, and which of these matter.

        With $R$ the coefficients of the missing columns and $S$ the noise variances, which are
        small beside the variances 1 of the columns, the gain is $R^\top (R R^\top + S)^{-1}$.
        """
        active = (self.coefficients[:, missing].abs() > EXACT).any(1).nonzero()[:, 0]
        rows = self.coefficients[active][:, missing]
        system = rows @ rows.T + self.noise[active].square().diag()
        return rows.T @ torch.linalg.pinv(system, rtol=1e-9, hermitian=True), active


def find_relations(
    values: Tensor,
    observed: Tensor,
    linear: GaussianVFG,
    unordered: Tensor | None = None,
    weights: Tensor | None = None,
    given: Tensor | None = None,
) -> Relations:
    """Find linear relations that hold in all rows, exactly or up to a small noise.

    Exact ones are searched for among all columns in complete rows; both kinds between pairs of
    columns, and among columns that the linear model relates closely, in the rows that have these.

    Args:
        values: a matrix of standardised columns, `(rows, columns)`.
        observed: which of its entries are known.
        linear: the linear model of the matrix.
        unordered: columns of code points, which have no noisy relations; None means none.
        weights: how often rows count; None for once.
        given: exact relations that are known, `(relations, columns + 1)`.

    Returns:
        Exact relations, orthonormal, and then noisy ones.

    Example:
        >>> from vfg.imputation.mixtures import fit_linear, star
        >>> x = torch.arange(20.0, dtype=torch.float64)
        >>> table, every = torch.stack([x, 2.0 * x, x.sin()], dim=1), torch.ones(20, 3).bool()
        >>> linear = fit_linear(star([1, 1, 1], 3), table, every, seed=0)
        >>> find_relations(table, every, linear).coefficients[0].round(decimals=2).abs()
        tensor([0.8900, 0.4500, 0.0000, 0.0000], dtype=torch.float64)
    """
    columns = values.shape[1]
    precision = _precision(linear)
    empty = Relations(
        values.new_zeros(0, columns + 1, dtype=torch.float64),
        values.new_zeros(0, dtype=torch.float64),
    )
    known = empty.coefficients if given is None else given
    varied = _varied_columns(values, observed) if columns <= MOST_COLUMNS else []
    if not varied:
        known = _orthonormal(known)
        return Relations(known, known.new_zeros(len(known)))
    close = _close_columns(precision)
    exact, noisy = [known / known.norm(dim=1, keepdim=True).clamp(min=1e-300)], []
    for chosen in [varied, *_candidate_pairs(values, observed, 1e-9), *close]:
        exact.append(_relations_among(values, observed, chosen, varied, weights)[0])
    ordered = [k for k in varied if unordered is None or not unordered[k]]
    for chosen in [*_candidate_pairs(values, observed, 2.0 * NEAR**2), *close]:
        noisy.append(_relations_among(values, observed, chosen, ordered, weights)[1:])
    variances = 1.0 / precision.diagonal()
    noisy.append(_sharp_relation(values, observed, ordered, weights, variances))
    kept = _without_contradicted(_orthonormal(torch.cat(exact)), values, observed)
    relations = Relations(kept, torch.zeros(len(kept), dtype=torch.float64))
    return _with_noisy(relations, noisy, variances)


def _without_contradicted(relations: Tensor, values: Tensor, observed: Tensor) -> Tensor:
    """Orthonormal exact relations without the combinations of them that other rows contradict.

    Relations are found in rows that have all of their columns, and which these are may depend on
    the cells: a column that is 10 wherever another one was measured need not be 10 elsewhere. Rows
    with some of the columns show it where a combination of the relations has only these.

    Example:
        >>> relations = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.6, -0.8]]).double()  # x = 0, 3 y = 4
        >>> values = torch.tensor([[0.0, 4 / 3], [2.0, 0.0]]).double()
        >>> observed = torch.tensor([[True, True], [True, False]])
        >>> _without_contradicted(relations, values, observed).abs()
        tensor([[0.0000, 0.6000, 0.8000]], dtype=torch.float64)
    """
    used = (relations[:, :-1].abs() > EXACT).any(0)
    if not bool(used.any()):
        return relations
    values, observed = values[:, used].double(), observed[:, used]
    inner = relations[:, torch.cat([used, used.new_ones(1)])]
    masks, groups = observed.unique(dim=0, return_inverse=True)
    for group, mask in enumerate(masks):
        if not bool(mask.any()) or not len(inner):
            continue
        free = _orthogonal_to(inner[:, :-1][:, ~mask].T)
        if not len(free):
            continue
        rows = values[groups == group][:, mask]
        errors = rows @ inner[:, :-1][:, mask].T + inner[:, -1]
        wrong = (errors @ free.T) @ free
        wrong = wrong[wrong.norm(dim=1) > 100.0 * EXACT]
        if len(wrong):
            left = _orthogonal_to(wrong)
            inner, relations = left @ inner, left @ relations
    return relations


def _orthogonal_to(directions: Tensor) -> Tensor:
    """An orthonormal basis, as rows, of what is orthogonal to the rows of a matrix."""
    number, size = directions.shape
    # At least as many rows as columns, so that the small decomposition has a whole basis.
    square = torch.cat([directions, directions.new_zeros(max(0, size - number), size)])
    _, sizes, basis = torch.linalg.svd(square, full_matrices=False)
    orthogonal: Tensor = basis[sizes <= 1e-6 * sizes[0].clamp(min=1e-6)]
    return orthogonal


def _sharp_relation(
    values: Tensor,
    observed: Tensor,
    chosen: list[int],
    weights: Tensor | None,
    variances: Tensor,
) -> tuple[Tensor, Tensor]:
    """The exactest noisy relation of many columns that says more of each than the linear model.

    Shares of a whole are related so, and the noise of the linear model's leaves can be too large to
    show it. Columns of which a relation says too little are left out, and the others searched
    again.
    """
    while True:
        _, coefficients, noise = _relations_among(values, observed, chosen, chosen, weights)
        if not len(noise):
            return coefficients, noise
        best = int(noise.argmin())
        sharp = _is_sharp(coefficients[best], noise[best], variances)
        if bool(sharp[chosen].all()):
            return coefficients[best : best + 1], noise[best : best + 1]
        chosen = [column for column in chosen if sharp[column]]


def _is_sharp(relation: Tensor, noise: Tensor, variances: Tensor) -> Tensor:
    """Of which columns a relation leaves at most the variance that the linear model leaves."""
    return noise.square() <= relation[:-1].square() * variances


def _relations_among(
    values: Tensor,
    observed: Tensor,
    chosen: list[int],
    allowed: Iterable[int],
    weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Exact relations of some columns; noisy ones, and their noise."""
    columns, none = values.shape[1], values.new_zeros(0, values.shape[1] + 1, dtype=torch.float64)
    rows = observed[:, chosen].all(1)
    number = int(rows.sum())
    few = number < len(chosen) + FEWEST_ROWS
    if few and len(values) < SMALL and number > len(chosen):
        few = _digits(values[rows][:, chosen]) < DIGITS + math.log10(max(1, math.comb(columns, 2)))
    if not set(chosen) <= set(allowed) or few:
        return none, none, none[:, 0]
    own = None if weights is None else weights[rows]
    result, deviations, is_exact = _directions(values[rows][:, chosen], own)
    padded = result.new_zeros(len(result), columns + 1)
    padded[:, [*chosen, columns]] = result
    enough = number >= ROWS_PER_COLUMN * len(chosen) + FEWEST_ROWS
    near = (deviations < NEAR) & ~is_exact & enough
    return padded[is_exact], padded[near], deviations[near]


def _digits(values: Tensor) -> float:
    """Decimal digits by which chance is unlikely to make rows satisfy one relation exactly.

    Rows count as far as they differ from the most frequent value of every column.
    """
    number, columns = values.shape
    levels, rows = MOST_LEVELS, number
    for column in values.double().unbind(1):
        different, counts = column.unique(return_counts=True)
        rows = min(rows, number - int(counts.max()) + 1)
        gaps = different.diff()
        if len(gaps) == 0:
            return 0.0
        steps = gaps / gaps.min()
        is_even = bool(((steps - steps.round()).abs() < 1e-6 * steps).all())
        levels = min(levels, float(steps.sum()) + 1.0 if is_even else MOST_LEVELS)
    extra = rows - columns
    return extra * math.log10(levels) if extra >= FEWEST_OF_SMALL else 0.0


def _with_noisy(
    relations: Relations, noisy: Sequence[tuple[Tensor, Tensor]], variances: Tensor
) -> Relations:
    """Exact relations and noisy ones that hardly follow from others, the exactest first.

    A relation must leave no column more variance than the linear model does.
    """
    coefficients, noise = relations.coefficients, relations.noise
    if not noisy:
        return relations
    candidates, deviations = (torch.cat(parts) for parts in zip(*noisy, strict=True))
    for place in deviations.argsort(stable=True).tolist():
        directions = _orthonormal(coefficients[:, :-1])
        one = candidates[place]
        left = one[:-1] - directions.T @ (directions @ one[:-1])
        is_sharp = _is_sharp(one, deviations[place], variances) | (one[:-1] == 0.0)
        if left.norm() > NEW_SHARE and bool(is_sharp.all()):
            coefficients = torch.cat([coefficients, one[None]])
            noise = torch.cat([noise, deviations[place : place + 1]])
    return Relations(coefficients, noise)


def _precision(linear: GaussianVFG) -> Tensor:
    """The precision matrix of the columns of a linear model."""
    with torch.no_grad():
        factors = factors_of(linear.structure, linear.linear.values())
    loadings, scales = factors.loadings[0].double(), factors.scales[0].double()
    size = linear.scaling.scale.double()
    covariance = (loadings @ loadings.T + scales.square().diag()) * size[:, None] * size
    precision: Tensor = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
    return precision


def _close_columns(precision: Tensor) -> list[list[int]]:
    """Every column that others nearly determine, with those that matter for it."""
    sets = set()
    for column in (1.0 / precision.diagonal() < CLOSE).nonzero()[:, 0].tolist():
        weights = (precision[column] / precision[column, column]).abs()
        chosen = tuple((weights > LEAST_WEIGHT).nonzero()[:, 0].tolist())
        if 2 < len(chosen) <= MOST_RELATED:
            sets.add(chosen)
    return [list(chosen) for chosen in sorted(sets)]


def follow_relations(
    relations: Relations, table: Tensor, observed: Tensor, levels: Tensor | None = None
) -> Tensor:
    """Move missing entries so that relations hold as exactly as they do in the fitted table.

    Args:
        relations: as `find_relations` returns them.
        table: what is expected or drawn, `(..., rows, columns)`, with the known entries.
        observed: which entries are known, `(rows, columns)`.
        levels: the noise of the relations, in deviations, `(..., rows, relations)`; None for 0.
    """
    table, before = table.clone(), table
    places = (relations.coefficients[:, :-1].abs() > EXACT).any(0).nonzero()[:, 0]
    masks, groups = observed[:, places].unique(dim=0, return_inverse=True)
    for group, mask in enumerate(masks):
        missing = places[~mask]
        if not len(missing):
            continue
        rows = (groups == group).nonzero()[:, 0]
        gains, active = relations.gains(missing)
        # Sums of columns one by one, since the bits of products depend on the number of rows.
        for place, relation in enumerate(active.tolist()):
            row, noise = relations.coefficients[relation], float(relations.noise[relation])
            error = row[-1].expand(before[..., rows, 0].shape)
            for column in (row[:-1].abs() > EXACT).nonzero()[:, 0].tolist():
                error = error + row[column] * before[..., rows, column]
            if levels is not None:
                error = error - noise * levels[..., rows, relation]
            for k, column in enumerate(missing.tolist()):
                table[..., rows, column] -= gains[k, place] * error
    return table


def holding_relations(relations: Relations, values: Tensor, observed: Tensor) -> Tensor:
    """Which relations hold in all further rows that have their columns, `(relations,)`.

    Noisy ones may be out by `FURTHEST` deviations of their noise.
    """
    coefficients = relations.coefficients
    used = coefficients[:, :-1].abs() > EXACT
    errors = (values @ coefficients[:, :-1].T + coefficients[:, -1]).abs()
    known = (~observed).double() @ used.double().T == 0.0
    limits = (FURTHEST * relations.noise).clamp(min=100.0 * EXACT)
    return ~(known & (errors > limits)).any(0)


def deviations_given(relations: Relations, deviations: Tensor, observed: Tensor) -> Tensor:
    """Deviations of missing entries, `(rows, columns)`, that are smaller given relations."""
    result = deviations.clone()
    places = (relations.coefficients[:, :-1].abs() > EXACT).any(0).nonzero()[:, 0]
    masks, groups = observed[:, places].unique(dim=0, return_inverse=True)
    for group, mask in enumerate(masks):
        missing, rows = places[~mask], (groups == group).nonzero()[:, 0]
        if not len(missing):
            continue
        gains, active = relations.gains(missing)
        here = relations.coefficients[active][:, missing]
        kept = torch.eye(len(missing), dtype=gains.dtype, device=gains.device) - gains @ here
        variances = deviations[rows][:, missing].square() @ kept.square().T
        variances = variances + (gains * relations.noise[active]).square().sum(1)
        result[rows[:, None], missing] = torch.minimum(
            variances.sqrt(), deviations[rows][:, missing]
        )
    return result


def fill_determined(relations: Tensor, values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Fill entries that follow from known ones by exact relations; and which of them do."""
    filled, determined = values.double().clone(), torch.zeros_like(observed)
    if not len(relations):
        return filled, determined
    involved = (relations[:, :-1].abs() > EXACT).any(0)
    masks, groups = observed[:, involved].unique(dim=0, return_inverse=True)
    places = involved.nonzero()[:, 0]
    for group, mask in enumerate(masks):
        missing, known = places[~mask], places[mask]
        if not len(missing) or not len(known):
            continue
        inverse = torch.linalg.pinv(relations[:, missing], rtol=1e-9)
        follows = missing[(inverse @ relations[:, missing]).diagonal() > 1.0 - 1e-9]
        if not len(follows):
            continue
        rows = (groups == group).nonzero()[:, 0]
        right = -(filled[rows][:, known] @ relations[:, known].T + relations[:, -1])
        solved = right @ inverse.T
        chosen = torch.isin(missing, follows)
        filled[rows[:, None], follows] = solved[:, chosen]
        determined[rows[:, None], follows] = True
    return filled, determined


def find_copies(values: Array, observed: Mask) -> Array:
    """For every row the first row that it is a copy of; itself if there is none.

    Copies agree in all cells that both have: in two thirds of the columns at least, and in two of
    many values.

    Args:
        values: a matrix of numbers or codes, `(rows, columns)`.
        observed: which of its entries are known.

    Example:
        >>> table = np.random.default_rng(0).normal(size=(40, 3))
        >>> table = np.concatenate([table, table[:2]])
        >>> find_copies(table, np.ones(table.shape, dtype=bool))[[0, 1, 2, 40, 41]].tolist()
        [0, 1, 2, 0, 1]
    """
    numbers = np.array([_number_of_values(x[o]) for x, o in zip(values.T, observed.T, strict=True)])
    varied = np.flatnonzero(numbers >= VARIED)
    searched = varied[np.argsort(-numbers[varied], kind="stable")][:SORTED_COLUMNS]
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for column in searched:
        seen = np.flatnonzero(observed[:, column])
        order = seen[np.argsort(values[seen, column], kind="stable")]
        near = np.concatenate(
            [np.stack([order[:-lag], order[lag:]], axis=1) for lag in range(1, LAGS + 1)]
        )
        # First by a few columns, which leaves few pairs to compare in all.
        most = math.ceil(COMMON * values.shape[1])
        for columns, least in ((searched, 1), (varied, 2), (slice(None), most)):
            near = near[_agree(values[:, columns], observed[:, columns], near, least)]
        pairs.append(near)
    first, second = np.concatenate(pairs).T
    links = scipy.sparse.coo_array((np.ones(len(first)), (first, second)), shape=(len(values),) * 2)
    groups = scipy.sparse.csgraph.connected_components(links, directed=False)[1]
    return np.asarray(np.unique(groups, return_index=True)[1][groups])


def _agree(values: Array, observed: Mask, pairs: Array, least: int) -> Mask:
    """Which pairs of rows agree where both are known, in at least so many cells."""
    first, second = pairs.T
    both = observed[first] & observed[second]
    equal = values[first] == values[second]
    return np.asarray((equal | ~both).all(1) & ((equal & both).sum(1) >= least))


def _number_of_values(cells: Array) -> float:
    """The number of different values, of which frequent ones count more."""
    counts = np.unique(cells, return_counts=True)[1]
    return float(counts.sum() ** 2 / np.square(counts).sum()) if len(counts) else 0.0


def _directions(values: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Directions of complete rows, `(directions, columns + 1)`; deviations, and which are exact."""
    table, count = values.double(), float(len(values))
    middle = table.mean(0)
    if weights is not None:
        # Rows of small weights are still so many.
        weights = weights * max(1.0, len(table) / float(weights.sum()))
        count, middle = float(weights.sum()), weights @ table / weights.sum()
    centred = table - middle
    scaled = centred if weights is None else weights.sqrt()[:, None] * centred
    _, sizes, directions = torch.linalg.svd(scaled, full_matrices=False)
    held = (centred @ directions.T).abs().amax(0) < EXACT
    exact = (sizes < EXACT * count**0.5) & held
    relations = torch.cat([directions, -(directions @ middle)[:, None]], dim=1)
    return relations, sizes / (count - table.shape[1]) ** 0.5, exact


def _varied_columns(values: Tensor, observed: Tensor) -> list[int]:
    """Columns with enough cells besides their most frequent one: two rare marks agree by chance."""
    varied, fewest = [], FEWEST_ROWS if len(values) >= SMALL else FEWEST_OF_SMALL
    for column in range(values.shape[1]):
        counts = values[observed[:, column], column].unique(return_counts=True)[1]
        if len(counts) > 1 and int(counts.sum() - counts.max()) >= fewest:
            varied.append(column)
    return varied


def _candidate_pairs(values: Tensor, observed: Tensor, left: float) -> list[list[int]]:
    """Pairs of columns that leave at most a share of each other's variance, in common rows."""
    known = observed.double()
    cells = torch.where(observed, values.double(), 0.0)
    count = (known.T @ known).clamp(min=1.0)
    mean = cells.T @ known / count
    square = cells.square().T @ known / count - mean.square()
    product = cells.T @ cells / count - mean * mean.T
    close = product.square() > (1.0 - left) * square * square.T
    fewest = FEWEST_ROWS if len(values) >= SMALL else FEWEST_OF_SMALL
    enough = (count >= 2 + fewest) & (square > 1e-12) & (square.T > 1e-12)
    pairs: list[list[int]] = (close & enough).triu(1).nonzero().tolist()
    return pairs


def _orthonormal(relations: Tensor) -> Tensor:
    """The same relations without those that follow from others."""
    if not len(relations):
        return relations
    _, sizes, directions = torch.linalg.svd(relations, full_matrices=False)
    kept: Tensor = directions[sizes > 1e-6 * sizes[0]]
    return kept
