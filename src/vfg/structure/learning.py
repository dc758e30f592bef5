"""vfg.learn_graph: the graph of the columns of a table with missing values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from vfg.graph import Graph, Network
from vfg.graph.checks import suggestion
from vfg.imputation.columns import as_frame
from vfg.structure.completing import AdditiveSampler, draw_gaussian, fit_covariance
from vfg.structure.latent_trees import learn_tree
from vfg.structure.learned import LearnedGraph, Pair, with_positions
from vfg.structure.pdag import (
    apply_meek_rules,
    central_graph,
    edge_matrix,
    equivalence_class,
    topological_order,
)
from vfg.structure.scores import Features, MomentScore, pair_information, pair_penalties
from vfg.structure.search import Families, graph_of_order, sample_orders, search_order
from vfg.tables.cells import Array, Mask
from vfg.tables.encoding import Encoding
from vfg.tables.frames import open_table
from vfg.tables.numeric import NumericEncoding
from vfg.utils.specs import check_choice

MOST_ROWS = 20_000
"""Rows that are used, drawn at random from longer tables: with these, edges that explain 0.1 % of
a variance are found, and the search takes no longer than for 1,000."""
FEWEST_ROWS = 10
"""With fewer rows, any two columns may seem to follow from each other."""
COPIES = 5
"""Completed copies of a table with missing cells, as far as `MOST_ROWS` allows."""
ROUNDS, SWEEPS = 5, 5
"""How often a graph is learned and missing cells are drawn from it, and sweeps of each. On
simulated additive graphs with 30 % missing cells the distance falls until the fourth round."""
LAX = 0.4
"""Factor of the penalty for the graph that cells are drawn from: cells that are drawn without a
true edge hide it from the next round, those drawn with a false one do little harm."""
STARTS = 3
"""Orders from which the search for the best graph starts. With splines the first is that of the
best linear graph, the others are random. What they miss, the walk from the best of them finds."""
WALK, WARM_UP = 100, 15
"""Sweeps of the walk over orders, and how many of the first are left out."""
WEIGHT, SMALL = 1.0, 5
"""Factor of the evidence in the walk, for tables of few columns. Effects that cancel in part look
like edges that are not there, and these make false arrows all around: in linear scale-free graphs
of 20 nodes the true graph was 4 to 9 nats below the best, even in complete tables. The more columns
there are, the more effects may cancel by chance, so that the factor falls with their number."""
FALL = 0.4
"""Exponent of that fall: the factor is 0.57 for 20 columns."""
SUPPORT = 0.75
"""Share of the sampled graphs with an edge that must agree on its arrow. Other weights and shares
are compared by `python -m experiments.benchmarks.structure --groups walks`."""
EVIDENCE = 3.0
"""Nats by which the reverse of an edge must be worse for its direction to be known: odds of 20."""


@dataclass(frozen=True)
class _Columns:
    """The columns that take part, as a matrix."""

    names: tuple[str, ...]
    values: Array
    observed: Mask
    places: tuple[tuple[int, ...], ...]
    numbers: tuple[bool, ...]
    allowed: Mask
    required: Mask

    @property
    def first(self) -> list[int]:
        """One place of every variable."""
        return [own[0] for own in self.places]


def learn_graph(
    table: Any,
    kind: str = "dag",
    *,
    required: Iterable[Pair] = (),
    forbidden: Iterable[Pair] = (),
    tiers: Sequence[Sequence[str]] = (),
    nonlinear: bool = True,
    bootstraps: int = 0,
    schema: Any = None,
    seed: int = 0,
    verbose: bool = False,
) -> LearnedGraph:
    r"""Learn the graph of the columns of a table, which may have missing values and any kinds.

    `kind="dag"` searches for the directed acyclic graph with the highest penalised likelihood
    $\sum_y s(y, pa(y))$. Every column is regressed on its parents, linearly or by splines,
    whichever the extended BIC prefers; the penalty of a pair of columns depends on the number of
    rows in which both are observed. Missing cells are drawn, first from a Gaussian without
    structure, then from the graph learned so far, and the graph is learned again. The search moves
    one column at a time through an order of all of them. Orders are then sampled in proportion to
    how well they fit, and the graph is the one that differs least from all that were sampled.

    Linear Gaussian relations do not determine every direction. `LearnedGraph.undirected` has the
    edges that fit equally well in the other direction, and those on whose direction the sampled
    graphs do not agree. Curved relations between numbers determine the direction, if noise is
    additive. Cells are assumed to be missing at random, given the observed ones.

    `kind="tree"` finds latent nodes over groups of columns: trees by clustering and by neighbour
    joining of correlations, and stars, of several widths. The one that predicts held-out cells best
    is chosen.

    Args:
        table: a frame, an array, columns by name, or rows by name.
        kind: `"dag"` (default), or `"tree"` for latent nodes over groups of columns.
        required: (cause, effect) pairs that the DAG must have (default none).
        forbidden: (cause, effect) pairs that it must not have (default none).
        tiers: groups of columns; later ones cause nothing in earlier ones (default none). Columns
            that are not named may be anywhere.
        nonlinear: whether splines are tried (default True). False is faster and needs fewer rows if
            relations are linear.
        bootstraps: number of samples of rows from which every edge gets a confidence; 0 (default)
            for none, 20 to 100 for confidences. Each takes as long as the graph itself.
        schema: kinds of columns by name, such as `{"code": "categorical"}`; others are inferred.
        seed: of draws, starts and samples (default 0).
        verbose: whether to show a progress bar (default False).

    Returns:
        The edges with their directions as far as they are known, scores and confidences, and a
        `Graph` for models.

    Raises:
        ValueError: for fewer than two columns that vary, unknown names, or requirements that
            contradict each other.

    Example:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> a, b = generator.normal(size=(2, 500))
        >>> table = {"a": a, "b": b, "c": a + b + 0.5 * generator.normal(size=500)}
        >>> learn_graph(table)
        LearnedGraph: 3 columns, 2 edges, 0 of them without a known direction
        a -> c
        b -> c
    """
    check_choice("kind", kind, ("dag", "tree"))
    if bootstraps < 0:
        raise ValueError(f"bootstraps must be 0 or more, but is {bootstraps}")
    opened = open_table(as_frame(table), np.nan)
    encoding = Encoding.fit(schema, opened)
    generator = np.random.default_rng(seed)
    knowledge = _knowledge(list(map(str, encoding.schema)), required, forbidden, tiers)
    if kind == "tree":
        if any(True for group in (required, forbidden, tiers) for _ in group) or bootstraps:
            raise ValueError(
                "required, forbidden, tiers and bootstraps are for DAGs; leave them out for a tree"
            )
        return learn_tree(encoding, opened, seed)
    columns = _read(encoding, opened, knowledge, generator)
    with _progress(verbose, columns, bootstraps, nonlinear) as tick:
        return _learn_dag(encoding, columns, nonlinear, bootstraps, generator, tick)


def _knowledge(
    names: list[str],
    required: Iterable[Pair],
    forbidden: Iterable[Pair],
    tiers: Sequence[Sequence[str]],
) -> tuple[Mask, Mask]:
    """Which edges are allowed and which are required, `(columns, columns)`."""
    if isinstance(tiers, str) or any(isinstance(tier, str) for tier in tiers):
        raise ValueError(f"tiers is a list of lists of columns, but got {tiers!r}")
    pairs = {}
    for word, given in (("required", list(required)), ("forbidden", list(forbidden))):
        for pair in given:
            if isinstance(pair, str) or len(tuple(pair)) != 2:
                raise ValueError(f"{word} has (cause, effect) pairs, but got {pair!r}")
        pairs[word] = [(str(cause), str(effect)) for cause, effect in given]
    named = [name for group in pairs.values() for pair in group for name in pair]
    for name in [*named, *(str(name) for tier in tiers for name in tier)]:
        if name not in names:
            raise ValueError(f"the table has no column {name!r}; {suggestion(name, names)}")
    needed, allowed = edge_matrix(names, pairs["required"]), ~edge_matrix(names, pairs["forbidden"])
    listed = [str(name) for tier in tiers for name in dict.fromkeys(tier)]
    for name in dict.fromkeys(listed):
        if listed.count(name) > 1:
            raise ValueError(f"column {name!r} is in two tiers; name it in one of them")
    tier_of = {str(name): place for place, tier in enumerate(tiers) for name in tier}
    for cause, late in tier_of.items():
        for effect, early in tier_of.items():
            if late > early:
                allowed[names.index(cause), names.index(effect)] = False
    np.fill_diagonal(allowed, False)
    allowed &= ~needed.T
    clash = np.argwhere(needed & ~allowed)
    if len(clash):
        cause, effect = (names[k] for k in clash[0])
        raise ValueError(
            f"the edge {cause} -> {effect} is required and also forbidden, by name, by its tiers "
            "or by the reverse edge; remove one of the two"
        )
    try:
        topological_order(needed)
    except ValueError as error:
        raise ValueError(f"the required edges cannot all hold: {error}") from error
    return allowed, needed


def _read(
    encoding: Encoding, table: Any, knowledge: tuple[Mask, Mask], generator: np.random.Generator
) -> _Columns:
    """The matrix of the columns that vary, of at most `MOST_ROWS` rows."""
    values, observed = (part.numpy() for part in encoding.training_matrix(table))
    labels = [
        label
        for label, part in encoding.parts.items()
        if label not in encoding.idle and part.fillable
    ]
    if len(labels) < 2:
        raise ValueError(
            f"a graph needs at least two columns that vary, but the table has {len(labels)}"
        )
    ends = np.cumsum([0, *(len(encoding.places(label)) for label in labels)])
    chosen = [place for label in labels for place in encoding.places(label)]
    kept = np.flatnonzero(observed[:, chosen].any(1))
    if len(kept) < FEWEST_ROWS:
        raise ValueError(
            f"a graph needs at least {FEWEST_ROWS} rows with observed cells, but the table has "
            f"{len(kept)}"
        )
    if len(kept) > MOST_ROWS:
        kept = np.sort(generator.choice(kept, MOST_ROWS, replace=False))
    rank = [list(encoding.schema).index(label) for label in labels]
    allowed, needed = (matrix[np.ix_(rank, rank)] for matrix in knowledge)
    whole = np.ix_(kept, np.array(chosen))
    return _Columns(
        tuple(map(str, labels)),
        np.where(observed[whole], values[whole], 0.0),
        observed[whole],
        tuple(tuple(range(a, b)) for a, b in pairwise(ends)),
        tuple(isinstance(encoding.parts[label], NumericEncoding) for label in labels),
        allowed,
        needed,
    )


def _progress(verbose: bool, columns: _Columns, bootstraps: int, nonlinear: bool) -> Any:
    """A progress bar that counts searches; silent unless `verbose`."""
    searches = STARTS + 1 + bootstraps
    if nonlinear and not columns.observed.all():
        searches += ROUNDS
    if not verbose:
        return nullcontext(lambda: None)
    return _Bar(searches)


class _Bar:
    """A bar of `rich` on standard error."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self.shown = Progress(console=Console(stderr=True), transient=True)
        self.task = self.shown.add_task("searches", total=total)

    def __enter__(self) -> Callable[[], None]:
        self.shown.start()
        return lambda: self.shown.advance(self.task)

    def __exit__(self, *_: object) -> None:
        self.shown.stop()


def _learn_dag(
    encoding: Encoding,
    columns: _Columns,
    nonlinear: bool,
    bootstraps: int,
    generator: np.random.Generator,
    tick: Callable[[], None],
) -> LearnedGraph:
    features = Features.fit(columns.values, columns.observed, columns.places)
    if not nonlinear:
        features = replace_knots(features)
    completed, moments = _complete(columns, features, nonlinear, generator, tick)
    score = _score(columns, features, moments)
    starts = [_start(columns, generator) for _ in range(STARTS)]
    if nonlinear:
        linear = MomentScore(moments, score.rows, score.own, features.widths, score.penalty)
        starts[0] = topological_order(_search(_families(columns, linear), starts[:1], lambda: None))
    families = _families(columns, score)
    best = _search(families, starts, tick)
    sampled = _sample(columns, families, best, generator)
    tick()
    dag, directed = _summarise(columns, score, sampled)
    result = _describe(encoding, columns, score, dag, directed)
    if not bootstraps:
        return result
    samples = []
    for _ in range(bootstraps):
        own = _resample(columns, completed, features, generator)
        samples.append(_search(_families(columns, own), [_start(columns, generator)], tick))
    confidences, directions = _confidences(columns.names, result.edges, samples)
    return replace(result, confidences=confidences, directions=directions)


def replace_knots(features: Features) -> Features:
    """The features without splines."""
    own = np.concatenate(
        [block[:width] for block, width in zip(features.blocks, features.widths, strict=True)]
    )
    none = tuple(None for _ in features.knots)
    return Features(features.places, none, features.location[own], features.scale[own])


def _complete(
    columns: _Columns,
    features: Features,
    nonlinear: bool,
    generator: np.random.Generator,
    tick: Callable[[], None],
) -> tuple[Array, Array]:
    """Completed copies of the matrix, and the moments of their features."""
    values, observed = columns.values, columns.observed
    if observed.all():
        return values, _moments(features.of(values))
    copies = max(1, min(COPIES, MOST_ROWS // len(values)))
    drawn = draw_gaussian(values, observed, copies, generator)
    if not nonlinear:  # exact moments rather than those of draws
        covariance = fit_covariance(values, observed)[1]
        return drawn, covariance / np.outer(features.scale, features.scale)
    missing = np.tile(~observed, (copies, 1))
    order = _start(columns, generator)
    for _ in range(ROUNDS):
        matrix = features.of(drawn)
        score = _score(columns, features, _moments(matrix), LAX)
        dag = _search(_families(columns, score), [order], tick)
        order = topological_order(dag)
        sampler = AdditiveSampler(
            dag, score, features, matrix.mean(0), values, observed, columns.numbers
        )
        for _ in range(SWEEPS):
            sampler.sweep(drawn, missing, generator)
    return drawn, _moments(features.of(drawn))


def _moments(features: Array) -> Array:
    return np.cov(features, rowvar=False, bias=True)


def _score(
    columns: _Columns, features: Features, moments: Array, factor: float = 1.0
) -> MomentScore:
    penalty = pair_penalties(columns.observed, columns.first, factor)
    return MomentScore(moments, len(columns.values), features.blocks, features.widths, penalty)


def _families(columns: _Columns, score: MomentScore) -> Families:
    return Families(score, columns.allowed, columns.required)


def _search(families: Families, orders: Sequence[Sequence[int]], tick: Callable[[], None]) -> Mask:
    """The best DAG of searches that start at several orders."""
    best: tuple[Mask, float] | None = None
    for order in orders:
        found = search_order(families, order)
        tick()
        if best is None or found[1] > best[1]:
            best = found
    assert best is not None
    return best[0]


def _sample(
    columns: _Columns, families: Families, dag: Mask, generator: np.random.Generator
) -> list[Mask]:
    """DAGs that explain the table about as well as a given one, which is the first of them."""
    fall = min(1.0, SMALL / len(columns.names)) ** FALL
    weight = WEIGHT * fall * pair_information(columns.observed, columns.first)
    walk = sample_orders(families, topological_order(dag), WALK, weight, generator)
    return [graph_of_order(families, order) for order in walk][WARM_UP:]


def _summarise(columns: _Columns, score: MomentScore, sampled: Sequence[Mask]) -> tuple[Mask, Mask]:
    """A DAG of the most central class, and those of its edges whose direction is known.

    A direction is known by the class, if `SUPPORT` of the samples with the edge agree on it, or by
    what user and curves say about this DAG.
    """
    fixed = _one_way_edges(columns)
    known = {dag.tobytes(): equivalence_class(dag, fixed & dag) for dag in sampled}
    classes = [known[dag.tobytes()] for dag in sampled]
    central = classes[central_graph(classes)]
    members = [dag for dag, own in zip(sampled, classes, strict=True) if (own == central).all()]
    dag = max(members, key=lambda member: _total(score, member))
    directed = equivalence_class(dag, _known_directions(columns, score, dag))
    directed &= ~directed.T
    beyond = directed & central & central.T  # by curves alone
    arrows = sum(own & ~own.T | own & own.T & beyond for own in map(np.asarray, classes))
    joined = sum((own | own.T).astype(np.float64) for own in classes)
    return dag, directed & (np.asarray(arrows) >= SUPPORT * joined)


def _start(columns: _Columns, generator: np.random.Generator) -> list[int]:
    """A random order in which the causes of required edges come first."""
    shuffled = generator.permutation(len(columns.names))
    order = topological_order(columns.required[np.ix_(shuffled, shuffled)])
    return [int(shuffled[k]) for k in order]


def _one_way_edges(columns: _Columns) -> Mask:
    """Edges whose reverse is not allowed."""
    return columns.required | (columns.allowed & ~columns.allowed.T)


def _known_directions(columns: _Columns, score: MomentScore, dag: Mask) -> Mask:
    """The edges that user or data direct beyond the equivalence class.

    The reverse of an edge is tried in the member of the class that differs least from the DAG. Its
    direction is known if that member is worse by `EVIDENCE`, counted in rows with both cells.
    """
    known = _one_way_edges(columns) & dag
    total = _total(score, dag)
    seen = columns.observed[:, columns.first].astype(np.float64)
    shares = seen.T @ seen / len(seen)
    pdag = equivalence_class(dag, known)
    for i, j in np.argwhere(pdag & pdag.T & dag):
        if not (columns.numbers[i] and columns.numbers[j]):
            continue
        member = _member_with(pdag, dag, int(j), int(i))
        if (total - _total(score, member)) * shares[i, j] > EVIDENCE:
            known[i, j] = True
    return known


def _member_with(pdag: Mask, dag: Mask, cause: int, effect: int) -> Mask:
    """A DAG of a class with an edge, whose other edges are those of a given DAG where possible."""
    pdag = pdag.copy()
    pdag[effect, cause] = False
    pdag = apply_meek_rules(pdag)
    for i, j in np.argwhere(pdag & pdag.T & dag):
        if pdag[i, j] and pdag[j, i]:
            pdag[j, i] = False
            pdag = apply_meek_rules(pdag)
    return pdag


def _total(score: MomentScore, dag: Mask) -> float:
    return sum(
        score.family(node, tuple(np.flatnonzero(dag[:, node]).tolist())) for node in range(len(dag))
    )


def _describe(
    encoding: Encoding, columns: _Columns, score: MomentScore, dag: Mask, directed: Mask
) -> LearnedGraph:
    names = columns.names
    edges, gains = [], {}
    for i, j in np.argwhere(dag):
        parents = tuple(np.flatnonzero(dag[:, j]).tolist())
        fewer = tuple(k for k in parents if k != i)
        pair = names[i], names[j]
        edges.append(pair)
        gains[pair] = score.family(int(j), parents) - score.family(int(j), fewer)
    every = tuple(map(str, encoding.schema))
    known = {(names[i], names[j]) for i, j in np.argwhere(directed)}
    unknown = tuple(pair for pair in edges if pair not in known)
    families = Graph.from_bayesian_network(edges, variables=every)
    if unknown:
        families = Graph(families.nodes, families.edges, Network(tuple(edges), unknown))
    return LearnedGraph(
        "dag",
        every,
        with_positions(families, [*encoding.schema]),
        tuple(edges),
        tuple(pair for pair in edges if pair in known),
        unknown,
        _total(score, dag),
        gains,
    )


def _resample(
    columns: _Columns, completed: Array, features: Features, generator: np.random.Generator
) -> MomentScore:
    """The score of a bootstrap sample of rows, each from one of the completed copies."""
    rows = len(columns.values)
    copies = len(completed) // rows
    chosen = generator.integers(rows, size=rows) + rows * generator.integers(copies, size=rows)
    return _score(columns, features, _moments(features.of(completed[chosen])))


def _confidences(
    names: Sequence[str], edges: Sequence[Pair], samples: Sequence[Mask]
) -> tuple[dict[Pair, float], dict[Pair, float]]:
    """Shares of the samples that have every edge, and of those that have it in this direction."""
    place = {name: k for k, name in enumerate(names)}
    confidences, directions = {}, {}
    for pair in edges:
        i, j = place[pair[0]], place[pair[1]]
        ahead = sum(float(sample[i, j]) for sample in samples)
        back = sum(float(sample[j, i]) for sample in samples)
        confidences[pair] = (ahead + back) / len(samples)
        directions[pair] = ahead / (ahead + back) if ahead + back else 0.0
    return confidences, directions
