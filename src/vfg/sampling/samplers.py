"""q and p of one block of latent nodes: where draws are centred, and how far they spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from vfg.distributions.priors import bound_log_scale
from vfg.flows import AffineCoupling, Conditioner, ImageNetwork, Network
from vfg.flows.checks import check_count, check_flag, check_rate
from vfg.flows.conditioners import check_residual
from vfg.flows.image_networks import squeeze, unsqueeze
from vfg.passing.aggregation import aggregation
from vfg.passing.schedule import Block
from vfg.sampling.noise import (
    add_diagonal,
    factorise,
    log_density,
    scale_noise,
    solve_factored,
    unscale,
)
from vfg.utils.specs import Spec


class StatesSpec(Spec):
    """How the states of latent nodes are computed; frozen, and plain JSON in a model file."""


@dataclass(frozen=True)
class Deterministic(StatesSpec):
    """Every state is the aggregated messages: the paper's algorithms, which have no bound.

    Example:
        >>> Deterministic().to_dict()
        {'name': 'deterministic'}
    """

    name: ClassVar[str] = "deterministic"


@dataclass(frozen=True)
class Sampled(StatesSpec):
    r"""Every state is drawn from a Normal q around its messages, which gives a likelihood bound.

    The scales of q and of $p(h^{(i)} \mid \text{parents})$ are learned, and always bounded.

    Args:
        amortised: width of a small network per node that moves the centre and the scales of q as
            a function of the messages. 0 (default) for none, so that the scales are the same for
            all rows; 64 or so makes the bound tighter.
        ladder: whether to draw from the roots down (default False): messages go up without noise,
            and q of a node that is no root combines them with the prediction from the draws of its
            parents, so that siblings depend on each other through their parents. This makes bounds
            of trees tighter. Otherwise draws go up from node to node.
        dropout: rate at which hidden units of the networks are dropped in training mode (default
            0).
        image: rows and columns, if all nodes are images; for `residual` above 0 (default None).
        residual: with 0 (default) the networks are fully connected; else gated residual layers of
            convolutions at each of two scales, with `amortised` channels; see `flows.ImageNetwork`.
        children: whether the networks see the children's states beside the messages (default True);
            False suits messages that encode, such as those of `vfg.Bottleneck`.
        blocks: number of coupling layers that transform the draws of q as a function of the
            messages, so that q is not only a Normal (default 0); their networks have width
            `amortised`.

    Raises:
        ValueError: if `amortised` or `blocks` is negative, the image has odd sides, or there are
            coupling layers without networks.

    Example:
        >>> Sampled(amortised=64).ladder
        False
    """

    name: ClassVar[str] = "sampled"
    amortised: int = 0
    ladder: bool = False
    dropout: float = 0.0
    image: tuple[int, int] | None = None
    residual: int = 0
    children: bool = True
    blocks: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.image, list):  # as JSON stores it
            object.__setattr__(self, "image", tuple(self.image))
        check_flag("Sampled", "children", self.children)
        check_count("Sampled", "blocks", self.blocks, 0)
        check_residual("Sampled", self.image, self.residual)
        check_rate("Sampled", "dropout", self.dropout)
        if self.amortised < 0:
            raise ValueError(
                f"amortised is the width of a network, 0 for none, but got {self.amortised}"
            )
        if self.blocks and not self.amortised:
            raise ValueError(
                f"blocks={self.blocks} coupling layers of q need networks; give their width as "
                "amortised, such as 64"
            )
        if self.residual and not self.children:
            raise ValueError("residual networks see the children; set residual=0 or children=True")


def states_spec(given: str | StatesSpec) -> StatesSpec:
    """A spec of states, by name or as it is.

    Raises:
        ValueError: for a name that is not known.

    Example:
        >>> states_spec("sampled").amortised
        0
    """
    if isinstance(given, StatesSpec):
        return given
    by_name: dict[str, StatesSpec] = {"deterministic": Deterministic(), "sampled": Sampled()}
    if given not in by_name:
        raise ValueError(
            f"states must be one of {', '.join(by_name)} or vfg.Sampled(...), but got {given!r}"
        )
    return by_name[given]


class Incoming(NamedTuple):
    """The messages from below to a block; all `(nodes, 1 or draws, rows, ...)`."""

    value: Tensor
    """The aggregated state, with the nodes' default where no message came."""
    observed: Tensor
    """Which coordinates messages reached, or evidence fixed."""
    reached: Tensor
    """How many messages reached each coordinate."""
    information: Tensor | None
    """η, if the aggregation carries a precision."""
    precision: Tensor | None
    """Λ, likewise; at roots with the prior's."""
    apart: Tensor | None
    """The children's states side by side, 0 where one sends nothing, and which do; or None."""


class Move(NamedTuple):
    """What an amortised network changes about q; nothing without one."""

    shift: Tensor | float = 0.0
    """Of the centre."""
    change: Tensor | float = 0.0
    """Of the logarithms of the scales."""


class LadderPrediction(NamedTuple):
    """What the parents' draws expect in a ladder."""

    mean: Tensor
    precision: Tensor


class ImageMoves(nn.Module):
    """An `ImageNetwork` on whole images and flags of each row, with two numbers per pixel."""

    def __init__(self, nodes: int, images: int, spec: Sampled, generator: torch.Generator) -> None:
        super().__init__()
        assert spec.image is not None
        rows, columns = self.image = spec.image
        self.network = ImageNetwork(
            nodes,
            (rows // 2, columns // 2),
            4 * images + images - 1,
            8,
            channels=spec.amortised,
            residual=spec.residual,
            dropout=spec.dropout,
            generator=generator,
        )
        self.images = images

    def forward(self, x: Tensor) -> Tensor:
        """`(nodes, rows, images · pixels + flags)` to `(nodes, rows, 2 · pixels)`."""
        places = self.image[0] * self.image[1] // 4
        pixels, flags = x.split([4 * places * self.images, self.images - 1], dim=-1)
        by_place = squeeze(pixels, self.image).unflatten(-1, (places, -1))
        everywhere = flags[..., None, :].expand(*by_place.shape[:-1], -1)
        moved: Tensor = self.network(torch.cat([by_place, everywhere], dim=-1).flatten(-2))
        return unsqueeze(moved, self.image)


def _network(
    block: Block, children: list[tuple[int, int]], spec: Sampled, generator: torch.Generator
) -> Conditioner | ImageMoves:
    """What sees the aggregated state, the children's states and a flag for each."""
    nodes, width = len(block.nodes), block.width
    if not spec.residual or spec.image is None:
        beside = sum(fan * (narrow + 1) for fan, narrow in children)
        inputs = width + beside if spec.children else width
        network = Network(spec.amortised, activation="silu", dropout=spec.dropout)
        return Conditioner(nodes, inputs, 2 * width, network=network, generator=generator)
    pixels = spec.image[0] * spec.image[1]
    if len(children) != 1 or not width == children[0][1] == pixels:
        raise ValueError(
            f"Sampled with image={spec.image} expects nodes of width {pixels} with one kind of "
            f"children, of that width too, but node {block.nodes[0]!r} has width {width} and "
            f"children of widths {[narrow for _, narrow in children]}; set residual=0"
        )
    return ImageMoves(nodes, 1 + children[0][0], spec, generator)


class PosteriorFlow(nn.Module):
    """Affine couplings of draws that also read the state of the messages; identities at first."""

    def __init__(self, nodes: int, width: int, spec: Sampled, generator: torch.Generator) -> None:
        super().__init__()
        network = Network(spec.amortised, activation="silu", dropout=spec.dropout)
        options: dict[str, Any] = {"network": network, "context": width, "generator": generator}
        self.layers = nn.ModuleList(
            AffineCoupling(nodes, width, block=block, **options) for block in range(spec.blocks)
        )

    def forward(self, drawn: Tensor, messages: Tensor) -> tuple[Tensor, Tensor]:
        """New draws `(nodes, draws, rows, width)` and logarithms of the derivatives, likewise.

        `messages` have the shape of `drawn`, or 1 draw.
        """
        return self._transform(drawn, messages, inverse=False)

    def inverse(self, drawn: Tensor, messages: Tensor) -> tuple[Tensor, Tensor]:
        """The draws before the layers, and logarithms of the derivatives of this inverse."""
        return self._transform(drawn, messages, inverse=True)

    def _transform(
        self, drawn: Tensor, messages: Tensor, *, inverse: bool
    ) -> tuple[Tensor, Tensor]:
        shape, state = drawn.shape, drawn.flatten(1, 2)
        context = messages.expand(shape).flatten(1, 2)
        total = torch.zeros_like(state)
        layers = list(self.layers)
        for layer in layers[::-1] if inverse else layers:
            assert isinstance(layer, AffineCoupling)
            state, slopes = layer.transform_given(state, context, inverse=inverse)
            total = total + slopes
        return state.view(shape), total.view(shape)


class Proposal(NamedTuple):
    """Draws from q, `(nodes, draws, rows, width)`."""

    state: Tensor
    log_density: Tensor
    """log q in parts that sum over coordinates."""


class Normals(NamedTuple):
    """The Normals of q before its coupling layers: centre + S L⁻ᵀ ε."""

    centre: Tensor
    factor: Tensor
    """L, or its diagonal."""
    log_stretch: Tensor | None
    """log S; None for 0."""


class Sampler(nn.Module):
    r"""How the states of one block are drawn, and at which scale their parents expect them.

    With `mean` or `concatenation`, q is $N(h, s^2)$ around the aggregated messages and
    $\log s = a + b \log(1 + \text{messages})$. With `precision` or `gaussian` it is
    $N((\Lambda + D)^{-1}(\eta + D d), S (\Lambda + D)^{-1} S)$ with a learned positive diagonal D,
    the node's default d and learned scales S, 1 at the start; at roots the prior takes the place
    of D and d. In a ladder what the parents' draws expect takes their place, at all other nodes.
    An amortised network sees the aggregated state and the children's states side by side; it moves
    the centre, in which a learned share of the aggregated state stays, and the logarithms of the
    scales. Coupling layers that read the aggregated state may transform what is drawn. All scales
    are bounded, and computed in the precision of the data under autocast.

    `children` are how many children of which width one node has, for every group of edges.
    """

    def __init__(
        self,
        block: Block,
        children: list[tuple[int, int]],
        spec: Sampled,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        nodes, width = len(block.nodes), block.width
        self.log_scale = nn.Parameter(torch.zeros(nodes, 1, 1, width))
        carries = aggregation(block.treatment).carries != "none"
        # With n messages of unit precision besides a unit prior the scale is (1 + n)^-½.
        self.by_count = None if carries else nn.Parameter(torch.full((nodes, 1, 1, width), -0.5))
        has_lean = carries and not block.is_root and not spec.ladder
        self.log_lean = nn.Parameter(torch.zeros(nodes, 1, 1, width)) if has_lean else None
        self.log_noise = None if block.is_root else nn.Parameter(torch.zeros(nodes, 1, 1, width))
        self.weight = nn.Parameter(torch.ones(nodes, 1, 1, width)) if spec.amortised else None
        self.network = _network(block, children, spec, generator) if spec.amortised else None
        self.flow = PosteriorFlow(nodes, width, spec, generator) if spec.blocks else None

    def expected_log_scale(self) -> Tensor:
        """log of the scale of p(h | parents), `(nodes, 1, 1, width)`; not for roots."""
        if self.log_noise is None:
            raise RuntimeError("these nodes are roots and have a prior instead")
        return bound_log_scale(self.log_noise)

    def move(self, incoming: Incoming) -> Move:
        """The change that the network makes for these messages."""
        if self.network is None or self.weight is None:
            return Move()
        value = incoming.value
        inputs = value if incoming.apart is None else torch.cat([value, incoming.apart], dim=-1)
        output = self.network(inputs.flatten(1, 2)).to(value.dtype).view(*value.shape[:3], -1)
        shift, change = output.chunk(2, dim=-1)
        return Move(shift + (self.weight - 1.0) * value, change)

    def propose(
        self,
        incoming: Incoming,
        move: Move,
        default: Tensor,
        expected: LadderPrediction | None,
        noise: Tensor,
    ) -> Proposal:
        """Draw from the Normal of q with standard numbers `(nodes, draws, rows, width)`."""
        with torch.autocast(noise.device.type, enabled=False):
            centre, factor, stretch = self._normals(incoming, move, default, expected)
            scaled, density = scale_noise(factor, noise), log_density(factor, noise)
            if stretch is None:
                return Proposal(centre + scaled, density)
            return Proposal(centre + stretch.exp() * scaled, density - stretch)

    def judge(
        self,
        incoming: Incoming,
        move: Move,
        default: Tensor,
        expected: LadderPrediction | None,
        state: Tensor,
    ) -> Proposal:
        """The given states `(nodes, draws, rows, width)`, and their density under q."""
        start, slopes = state, torch.zeros_like(state)
        if self.flow is not None:
            start, slopes = self.flow.inverse(state, incoming.value)
        with torch.autocast(state.device.type, enabled=False):
            centre, factor, stretch = self._normals(incoming, move, default, expected)
            scaled = start - centre
            if stretch is not None:
                scaled, slopes = scaled * (-stretch).exp(), slopes - stretch
            noise = unscale(factor, scaled)
            return Proposal(state, log_density(factor, noise) + slopes)

    def _normals(
        self, incoming: Incoming, move: Move, default: Tensor, expected: LadderPrediction | None
    ) -> Normals:
        eta, precision = incoming.information, incoming.precision
        if eta is None or precision is None:
            return self._around(incoming, move, expected)
        if expected is not None:
            precision = add_diagonal(precision, eta, expected.precision)
            eta = eta + expected.precision * expected.mean
        elif self.log_lean is not None:
            lean = bound_log_scale(self.log_lean).exp()
            precision = add_diagonal(precision, eta, lean)
            eta = eta + lean * default
        factor = factorise(precision, incoming.value)
        stretch = bound_log_scale(self.log_scale + move.change)
        return Normals(solve_factored(factor, eta) + move.shift, factor, stretch)

    def transform(self, incoming: Incoming, drawn: Proposal) -> Proposal:
        """Take draws through the coupling layers of q, if it has any."""
        if self.flow is None:
            return drawn
        state, slopes = self.flow(drawn.state, incoming.value)
        return Proposal(state, drawn.log_density - slopes)

    def normal(self, incoming: Incoming, move: Move) -> tuple[Tensor, Tensor]:
        """Centre and logarithm of the scale of q, where messages have no precision."""
        assert self.by_count is not None
        slope = self.by_count * incoming.reached.log1p()
        log_scale = bound_log_scale(self.log_scale + slope + move.change)
        return incoming.value + move.shift, log_scale

    def _around(self, incoming: Incoming, move: Move, expected: LadderPrediction | None) -> Normals:
        """Around the aggregated state, coordinate by coordinate, as messages have no precision."""
        centre, log_scale = self.normal(incoming, move)
        precision = (-2.0 * log_scale).exp()
        if expected is not None:
            known = precision * incoming.observed
            precision = known + expected.precision
            centre = (known * centre + expected.precision * expected.mean) / precision
        return Normals(centre, factorise(precision, precision), None)
