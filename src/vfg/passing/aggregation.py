r"""How a node aggregates the messages of its children: mean, concatenation, precision, gaussian.

Every aggregation is a sum over children followed by one formula per node, so the messages of a
whole group of edges are added at once, and a child that sends nothing adds nothing:

| name            | what adds up                         | state of the node                      |
|-----------------|--------------------------------------|----------------------------------------|
| `mean`          | messages, how many reach a coordinate| sum / count                            |
| `concatenation` | the same, on disjoint coordinates    | the children side by side              |
| `precision`     | η and a diagonal Λ                   | (Λ + ε)⁻¹(η + ε·default), at a root P⁻¹η|
| `gaussian`      | η and a matrix Λ                     | the same                               |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vfg.flows import Flow, LinearStartFlow, times
from vfg.flows.checks import without_autocast
from vfg.utils.linalg import positive_solve

if TYPE_CHECKING:
    from vfg.passing.messages import EdgeGroup

RIDGE = 1e-3
"""ε: precision of an inner node's default, small beside the 1 that edges start with."""
CERTAINTY = 1e6
"""Precision of evidence on a latent node, large beside that of messages."""

Precision = Literal["none", "diagonal", "matrix"]


class State(NamedTuple):
    """Forward states of a block: `(nodes, batch, width)`, for a matrix Λ `(..., width, width)`."""

    value: Tensor
    observed: Tensor
    information: Tensor | None = None
    precision: Tensor | None = None


class Message(NamedTuple):
    """What a group of edges carries upward: `(edges, batch, wide)`, and `(edges, batch, 1)`."""

    source: Tensor
    """The children's states, missing values filled and lifted, before the flow."""
    value: Tensor
    """The same after the flow."""
    sent: Tensor
    """1 where the child has anything observed, else 0."""
    gap: Gap | None = None
    """What is known of the children's missing coordinates; None for filled values that count as if
    they were observed."""


class Gap(NamedTuple):
    """How missing coordinates of a group's children enter their messages, and how sure they are."""

    slopes: Tensor
    """The message's derivative by the coordinates, 0 for observed ones, `(edges, batch, narrow,
    wide)`."""
    certainty: Tensor
    """The precision of the values that fill them, `(..., narrow, narrow)`; 0 is nothing known."""


class Aggregation(ABC):
    """One way of aggregating messages.

    How to write a new one: subclass, set `name` and `carries` (the form of a node's precision:
    `"none"`, `"diagonal"` or `"matrix"`), return from `contribute` the tensors that add up over
    children, make the state from their sums in `resolve`, and add an instance to `AGGREGATIONS`.
    """

    name: ClassVar[str]
    carries: ClassVar[Precision] = "none"

    @abstractmethod
    def contribute(self, group: EdgeGroup, message: Message, child: State) -> tuple[Tensor, ...]:
        """Sums over the edges of one group, each `(parents, batch, ...)`."""

    @abstractmethod
    def resolve(
        self,
        total: tuple[Tensor, ...],
        default: Tensor,
        prior: Tensor | None,
        evidence: Tensor | None,
    ) -> State:
        """The states of a block from the sums over all its groups.

        Args:
            total: the sums.
            default: the nodes' learned default, `(nodes, 1 or batch, width)`.
            prior: at roots the prior's mean, which counts as one more message of unit precision;
                else None.
            evidence: values that fix coordinates, NaN where a coordinate is free; or None.
        """


class Mean(Aggregation):
    r"""$h^{(i)} = \frac{1}{|ch(i) \cap O|} \sum_{j \in ch(i) \cap O} f_{(j,i)}(h^{(j)})$."""

    name = "mean"

    def contribute(self, group: EdgeGroup, message: Message, child: State) -> tuple[Tensor, ...]:
        return group.gather(message.value * message.sent), group.count(message.sent)

    def resolve(
        self,
        total: tuple[Tensor, ...],
        default: Tensor,
        prior: Tensor | None,
        evidence: Tensor | None,
    ) -> State:
        summed, count = total
        value = torch.where(count > 0, summed / count.clamp(min=1), 0.0)
        return _fix(State(value, (count > 0).expand_as(value)), evidence)


class Concatenation(Mean):
    """The parent is its children side by side; the schedule gives each its own coordinates."""

    name = "concatenation"


class GaussianWeighted(Aggregation):
    """Messages weighted by precision matrices: pairs (η, Λ) that add up.

    A node needs one small Cholesky factor per row.
    """

    name = "gaussian"
    carries: ClassVar[Precision] = "matrix"

    def contribute(self, group: EdgeGroup, message: Message, child: State) -> tuple[Tensor, ...]:
        with without_autocast(message.value):
            learned = group.precision is not None
            eta, precision = (
                self._learned_terms(group, message)
                if learned
                else self._carried_terms(group, message, child)
            )
            return eta, precision, group.count(message.sent)

    def resolve(
        self,
        total: tuple[Tensor, ...],
        default: Tensor,
        prior: Tensor | None,
        evidence: Tensor | None,
    ) -> State:
        eta, precision, count = total
        with without_autocast(eta):
            if evidence is not None:
                eta, precision = self._condition(eta, precision, evidence)
            if prior is not None:
                eta, precision = eta + prior, self._add_diagonal(precision, 1.0)
                value = self._solve(precision, eta)
            else:
                ridged = self._add_diagonal(precision, RIDGE)
                value = self._solve(ridged, eta + RIDGE * default)
        return _fix(State(value, (count > 0).expand_as(value), eta, precision), evidence)

    def _learned_terms(self, group: EdgeGroup, message: Message) -> tuple[Tensor, Tensor]:
        """From children without a precision: the edge has a Λ of its own."""
        matrix = group.share * group.learned_precision()
        if message.gap is not None:
            marginal = message.sent[..., None] * marginal_precision(matrix, message.gap)
            eta = (marginal @ message.value[..., None])[..., 0]
            return group.gather(eta), group.gather_matrix(marginal)
        eta = group.gather(times(message.value * message.sent, matrix))
        return eta, group.gather_constant(message.sent[..., 0], matrix)

    def _carried_terms(
        self, group: EdgeGroup, message: Message, child: State
    ) -> tuple[Tensor, Tensor]:
        """From children that carry (η, Λ): Λ' = A⁻ᵀΛA⁻¹, η' = A⁻ᵀ(η + Λ(A⁻¹f(h) − h))."""
        eta, matrix = group.carry(message, child)
        return group.gather(eta), group.gather_matrix(matrix)

    def _condition(self, eta: Tensor, precision: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        """Evidence, with precision 10⁶, replaces the children's messages on its coordinates."""
        fixed = ~evidence.isnan()
        given = torch.where(fixed, evidence, 0.0)
        # The children's η of the free coordinates, given the fixed ones.
        conditioned = eta - (precision @ given[..., None])[..., 0]
        certain = torch.diag_embed(CERTAINTY * fixed.to(eta.dtype))
        either = fixed[..., :, None] | fixed[..., None, :]
        return (
            torch.where(fixed, CERTAINTY * given, conditioned),
            torch.where(either, certain, precision),
        )

    def _add_diagonal(self, precision: Tensor, amount: float) -> Tensor:
        identity = torch.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
        return precision + amount * identity

    def _solve(self, precision: Tensor, eta: Tensor) -> Tensor:
        return positive_solve(precision, eta)


class PrecisionWeighted(GaussianWeighted):
    r"""The same with diagonal Λ: $h = (\sum_j \Lambda_j)^{-1} \sum_j \Lambda_j m_j$."""

    name = "precision"
    carries = "diagonal"

    def _learned_terms(self, group: EdgeGroup, message: Message) -> tuple[Tensor, Tensor]:
        if message.gap is not None:
            matrix = (group.share[..., 0] * group.learned_precision()).diag_embed()
            marginal = message.sent[..., None] * marginal_precision(matrix, message.gap)
            eta = (marginal @ message.value[..., None])[..., 0]
            return group.gather(eta), group.gather(marginal.diagonal(dim1=-2, dim2=-1))
        weight = group.share * group.learned_precision()[:, None] * message.sent
        return group.gather(weight * message.value), group.gather(weight)

    def _carried_terms(
        self, group: EdgeGroup, message: Message, child: State
    ) -> tuple[Tensor, Tensor]:
        eta, matrix = group.carry(message, child)
        return group.gather(eta), group.gather(matrix.diagonal(dim1=-2, dim2=-1))

    def _condition(self, eta: Tensor, precision: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        fixed = ~evidence.isnan()
        eta = torch.where(fixed, CERTAINTY * evidence, eta)
        return eta, torch.where(fixed, CERTAINTY, precision)

    def _add_diagonal(self, precision: Tensor, amount: float) -> Tensor:
        return precision + amount

    def _solve(self, precision: Tensor, eta: Tensor) -> Tensor:
        return eta / precision


AGGREGATIONS: dict[str, Aggregation] = {
    kind.name: kind() for kind in (Mean, Concatenation, PrecisionWeighted, GaussianWeighted)
}


def aggregation(name: str) -> Aggregation:
    """The aggregation called `name`.

    Raises:
        ValueError: if there is none of that name.

    Example:
        >>> aggregation("gaussian").carries
        'matrix'
    """
    if name not in AGGREGATIONS:
        raise ValueError(
            f"there is no aggregation {name!r}; choose one of {', '.join(AGGREGATIONS)}"
        )
    return AGGREGATIONS[name]


def _fix(state: State, evidence: Tensor | None) -> State:
    if evidence is None:
        return state
    fixed = ~evidence.isnan()
    value = torch.where(fixed, evidence, state.value)
    return state._replace(value=value, observed=state.observed | fixed)


class DiagonalPrecision(nn.Module):
    """A learned diagonal Λ per edge, positive as the exponential of its parameter."""

    def __init__(self, edges: int, width: int) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.zeros(edges, width))

    def forward(self) -> Tensor:
        """`(edges, width)`."""
        return self.logarithm.exp()


class MatrixPrecision(nn.Module):
    """A learned Λ per edge, positive semidefinite as R Rᵀ; any such matrix can be set."""

    def __init__(self, edges: int, width: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.eye(width).repeat(edges, 1, 1))

    def forward(self) -> Tensor:
        """`(edges, width, width)`."""
        return self.factor @ self.factor.mT


class FramedPrecision(nn.Module):
    r"""A learned Λ per edge in the frame of its flow, $H\,\mathrm{diag}(C C^\top, d) H^\top$.

    The block of the data's own coordinates is positive as a square. The others have precision 0 at
    a linear start. `project` keeps them at or above 0; a square would have no slope there.
    """

    def __init__(self, flow: LinearStartFlow) -> None:
        super().__init__()
        edges, width, columns = flow.edges, flow.width, flow.columns
        self.leading = nn.Parameter(torch.eye(columns).repeat(edges, 1, 1))
        self.rest = nn.Parameter(torch.zeros(edges, width - columns))
        # In a tuple, so that the flow's parameters are not registered a second time.
        self._flow = (flow,)

    def forward(self) -> Tensor:
        """`(edges, width, width)`."""
        frame = self._flow[0].frame.linear_part()
        columns = self.leading.shape[-1]
        data, free = frame[..., :columns] @ self.leading, frame[..., columns:]
        return data @ data.mT + (free * self.rest.clamp(min=0.0)[:, None]) @ free.mT

    @torch.no_grad()
    def project(self) -> None:
        """Take entries that a step made negative back to 0."""
        self.rest.clamp_(min=0.0)


def marginal_precision(precision: Tensor, gap: Gap) -> Tensor:
    r"""What is left of Λ when missing coordinates, known with precision Q, are integrated out.

    $\Lambda - \Lambda G (Q + G^\top \Lambda G)^{-1} G^\top \Lambda$ with the slopes G, for Λ
    `(edges, wide, wide)`; that is $(\Lambda^{-1} + G Q^{-1} G^\top)^{-1}$.

    Example:
        >>> gap = Gap(torch.tensor([[[[2.0, 0.0], [0.0, 0.0]]]]), torch.zeros(1, 1, 2, 2))
        >>> marginal_precision(torch.eye(2)[None], gap)
        tensor([[[[0., 0.],
                  [0., 1.]]]])
    """
    wide, slopes = precision[:, None].double(), gap.slopes.double()
    turned = slopes @ wide
    gram = turned @ slopes.mT + gap.certainty.double()
    size = gram.diagonal(dim1=-2, dim2=-1)
    # Observed coordinates, which have no slope, are left alone.
    ridge = torch.where(size > 0, 1e-12 * size, 1.0).diag_embed()
    factor, _ = torch.linalg.cholesky_ex(gram + ridge)
    half = torch.linalg.solve_triangular(factor, turned, upper=False)
    left = wide - half.mT @ half
    result: Tensor = (0.5 * (left + left.mT)).to(precision)
    return result


def learned_precision(
    kind: Precision, edges: int, width: int, flow: Flow | None
) -> nn.Module | None:
    """The learned Λ of edges into nodes that carry `kind`; starts as the identity."""
    if kind == "none":
        return None
    if kind == "matrix" and isinstance(flow, LinearStartFlow):
        return FramedPrecision(flow)
    return (DiagonalPrecision if kind == "diagonal" else MatrixPrecision)(edges, width)
