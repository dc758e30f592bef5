"""The table of a training run: collecting, scaling, holding out, setting up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from vfg.distributions.likelihoods import GaussianLikelihood
from vfg.distributions.priors import PosteriorMixture
from vfg.flows import ActivationNormalisation, Flow, LinearStartFlow, of_kind
from vfg.inputs import ArrayLike, Tabular, by_rows, pairwise_covariance
from vfg.model import VFG
from vfg.passing.aggregation import FramedPrecision
from vfg.passing.messages import EdgeGroup


class TrainingTable(NamedTuple):
    """Cells in the model's units, 0 where unobserved; what is observed; labels if there are any.

    The loss of rows is multiplied by their weights, if there are any.
    """

    cells: Tensor
    seen: Tensor
    labels: Tensor | None
    weights: Tensor | None = None


def collect_rows(table: ArrayLike) -> ArrayLike:
    """The rows of a torch dataset or loader as one tensor; anything else as it is.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> collect_rows(TensorDataset(torch.zeros(3, 2))).shape
        torch.Size([3, 2])
    """
    if isinstance(table, DataLoader):
        return torch.cat([_as_rows(batch) for batch in table])
    if isinstance(table, IterableDataset):
        return torch.stack([_as_rows(row) for row in table])
    if isinstance(table, Dataset):
        return torch.stack([_as_rows(table[k]) for k in range(len(table))])  # type: ignore[arg-type]
    return table


def _as_rows(item: ArrayLike) -> Tensor:
    """The data of an item that may carry more, such as a label."""
    first = item[0] if isinstance(item, tuple | list) else item
    return torch.as_tensor(first)


def fit_scaling(
    model: Tabular, cells: Tensor, seen: Tensor, scale: bool, weights: Tensor | None = None
) -> None:
    """Fit range, location and scale of the columns, unless the model has them already."""
    counts = seen.sum(0)
    if bool((counts == 0).any()):
        column = int((counts == 0).nonzero()[0])
        raise ValueError(
            f"column {column_name(model, column)} has no observed value, so nothing can be learned "
            "about it; leave it out of the table and the graph"
        )
    parts, scaling = by_rows(cells, seen), model.scaling
    if bool(scaling.high.isinf().any()):
        lowest = [torch.where(mask, part.double(), torch.inf).amin(0) for part, mask in parts]
        highest = [torch.where(mask, part.double(), -torch.inf).amax(0) for part, mask in parts]
        scaling.low.copy_(torch.stack(lowest).amin(0))
        scaling.high.copy_(torch.stack(highest).amax(0))
    if not scale or bool(scaling.is_fitted):
        return
    if weights is None:
        sums = [(part.double() * mask).sum(0) for part, mask in parts]
        location = torch.stack(sums).sum(0) / counts
        squares = [(((part.double() - location) * mask) ** 2).sum(0) for part, mask in parts]
        spread = (torch.stack(squares).sum(0) / counts).sqrt()
    else:
        often = seen * weights[:, None]
        location = (cells.double() * often).sum(0) / often.sum(0)
        spread = (((cells.double() - location) ** 2 * often).sum(0) / often.sum(0)).sqrt()
    _check_spread(model, cells, seen, spread)
    usable = (spread > 1e-12 * location.abs().clamp(min=1e-300)) & _is_real(model, cells.device)
    scaling.set(
        torch.where(_is_real(model, cells.device), location, 0.0),
        torch.where(usable, spread, 1.0),
    )


def _check_spread(model: Tabular, cells: Tensor, seen: Tensor, spread: Tensor) -> None:
    """Refuse columns whose numbers are so far apart that their variance overflows."""
    if bool(spread.isfinite().all()):
        return
    column = int((~spread.isfinite()).nonzero()[0])
    known = cells[seen[:, column], column].double()
    raise ValueError(
        f"column {column_name(model, column)} has numbers from {float(known.min()):.3g} to "
        f"{float(known.max()):.3g}, whose variance is beyond float64; divide the column by a large "
        "number, or mark wrong cells as missing"
    )


def _is_real(model: Tabular, device: torch.device) -> Tensor:
    flags = torch.zeros(model.sections.columns, dtype=torch.bool, device=device)
    for leaf, columns in model.sections.positions.items():
        flags[list(columns)] = model.likelihood_specs[leaf].is_real
    return flags


def column_name(model: Tabular, column: int) -> str:
    """A column in an error message: by its name, or by its leaf and position."""
    names = model.graph.columns
    if names is not None and isinstance(names[0], str):
        return repr(names[column])
    for leaf, columns in model.sections.positions.items():
        if column in columns:
            return f"{column} (leaf {leaf!r})"
    raise IndexError(column)


def draw_held_out(model: Tabular, data: TrainingTable, share: float, seed: int) -> Tensor:
    """Draw the observed cells that are held out from training: whole sections, row by row."""
    generator = torch.Generator().manual_seed(seed * 7919 + 17)
    sections = len(model.sections.positions)
    drawn = torch.rand(len(data.cells), sections, generator=generator) < share
    chosen = drawn.to(data.seen.device).index_select(1, model.sections.leaf_of_column)
    # A graph with one leaf has nothing to predict a held-out section from.
    return data.seen & chosen if sections > 1 else torch.zeros_like(data.seen)


@torch.no_grad()
def initialise(model: VFG, data: TrainingTable, rows: int) -> None:
    """Set activation normalisations of a new model from the first rows, pseudo-inputs from any."""
    for prior in () if bool(model.is_trained) else of_kind(model, PosteriorMixture):
        prior.start_at(data.cells)  # type: ignore[operator]
    if bool(model.is_trained) or not any(
        isinstance(layer, ActivationNormalisation) for layer in model.modules()
    ):
        return
    flows = [model.passing.group(g).flow for g in range(len(model.passing.schedule.groups))]

    def initialise_flow(flow: Flow, inputs: tuple[Tensor, ...]) -> None:
        flow.initialise(inputs[0])

    hooks = [flow.register_forward_pre_hook(initialise_flow) for flow in flows if flow is not None]
    labels = None if data.labels is None else data.labels[:rows]
    mode = model.training
    model.eval()  # normalisations are set without dropout
    model(data.cells[:rows], data.seen[:rows], labels)
    model.train(mode)
    for hook in hooks:
        hook.remove()


class Start(NamedTuple):
    """How near a linear start is to the factor analysis; variances and loadings in scaled units."""

    noise: float
    """The least variance that a column has of its own."""
    loading: float
    """The least singular value of the loadings of a leaf."""
    rest: float
    """Precision of the coordinates that no column loads on."""


EXACT = Start(noise=1e-2, loading=0.1, rest=0.0)
"""Of sampled states, whose bound is then the likelihood of the factor analysis."""
SOFT = Start(noise=0.1, loading=0.7, rest=0.5)
"""Of deterministic states. Flows learn to bend faster where no edge begins nearly singular and all
coordinates carry messages: on the paper's synthetic columns the squared error was .026 after 600
steps, with a loading of .3 and no rest .11, and with no least loading 21."""
ITERATIONS = 200
"""Iterations of the factor analysis: a covariance of six columns is then met to 0.002."""


@torch.no_grad()
def start_linear(model: VFG, data: TrainingTable) -> bool:
    """Start the flows of a new model at a factor analysis of the table; whether it has such flows.

    Leaf edges encode by the loadings of their columns; edges between latent nodes start as
    identities, so that what the leaves send adds up at the root on any graph.
    """
    schedule, passing = model.passing.schedule, model.passing
    edges = [
        (group, passing.group(index))
        for index, group in enumerate(schedule.groups)
        if schedule.blocks[group.child].is_leaf
    ]
    widths = {block.width for block in schedule.blocks if not block.is_leaf}
    if bool(model.is_trained) or len(model.graph.roots) != 1 or len(widths) != 1:
        return False
    if not all(_is_framed(stack) for _, stack in edges):
        return False
    settings = SOFT if model.sampling is None else EXACT
    mean, covariance = (part.cpu() for part in pairwise_covariance(data.cells.double(), data.seen))
    loadings, noise = factor_analysis(covariance, widths.pop(), settings.noise)
    for group, stack in edges:
        columns = torch.tensor([model.sections.positions[edge.child] for edge in group.edges])
        _start_edges(stack, loadings[columns], mean[columns], noise[columns], settings)
    for block, part in model.sections.split(noise[None].to(data.cells)).items():
        likelihood = model.likelihood_at(block)
        if model.sampling is not None and isinstance(likelihood, GaussianLikelihood):
            excess = (part - likelihood.floor**2).clamp(min=1e-6)
            likelihood.log_scale.copy_(0.5 * excess.log())
    return True


def _is_framed(stack: EdgeGroup) -> bool:
    is_linear = isinstance(stack.flow, LinearStartFlow) and isinstance(stack.flow.columns, int)
    return is_linear and isinstance(stack.precision, FramedPrecision)


def _start_edges(
    stack: EdgeGroup, loadings: Tensor, mean: Tensor, noise: Tensor, settings: Start
) -> None:
    """Set flow and precision of leaf edges from loadings `(edges, columns, width)`."""
    flow, precision = stack.flow, stack.precision
    assert isinstance(flow, LinearStartFlow)
    assert isinstance(precision, FramedPrecision)
    left, sizes, right = torch.linalg.svd(loadings, full_matrices=False)
    loadings = left * sizes.clamp(min=settings.loading)[:, None] @ right
    like = precision.leading
    if stack.lifting is not None:
        stack.lifting.constants.zero_()
    flow.start_at(loadings.to(like), mean.to(like))
    # Λ = Wᵀ Σ⁻¹ W in the frame: with W = L Qᵀ its leading block is (Lᵀ Σ^-½)(Lᵀ Σ^-½)ᵀ.
    frame = flow.frame.linear_part()[..., : flow.columns]
    like.copy_((loadings.to(like) @ frame).mT / noise.to(like).sqrt()[:, None])
    precision.rest.fill_(settings.rest)


def factor_analysis(covariance: Tensor, width: int, least: float) -> tuple[Tensor, Tensor]:
    r"""Loadings W and noise ψ of $C \approx W W^\top + \mathrm{diag}(\psi)$, by EM.

    Args:
        covariance: C, `(columns, columns)`; made positive where missing cells left it otherwise.
        width: how many factors; those beyond the columns have no loadings.
        least: the least ψ.

    Returns:
        W, `(columns, width)`, and ψ, `(columns,)`.

    Example:
        >>> covariance = torch.tensor([[1.0, -0.9], [-0.9, 1.0]]).double()
        >>> loadings, noise = factor_analysis(covariance, width=1, least=0.01)
        >>> round(float((loadings @ loadings.mT)[0, 1]), 3)
        -0.9
    """
    sizes, vectors = torch.linalg.eigh(covariance)
    covariance = vectors * sizes.clamp(min=1e-3) @ vectors.mT
    # The signs depend on the solver.
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    used, identity = min(width, len(sizes)), torch.eye(width).to(covariance)
    rest = sizes[: len(sizes) - used].sum() / max(len(sizes) - used, 1)
    loadings = covariance.new_zeros(len(sizes), width)
    strengths = (sizes[-used:] - rest).clamp(min=1e-4).sqrt()
    loadings[:, :used] = (vectors[:, -used:] * strengths).flip(-1)
    noise = (covariance.diagonal() - loadings.square().sum(1)).clamp(min=least)
    for _ in range(ITERATIONS):
        weighted = loadings / noise[:, None]
        posterior = torch.linalg.inv(identity + loadings.mT @ weighted)
        regression = posterior @ weighted.mT
        cross = covariance @ regression.mT
        loadings = torch.linalg.solve(posterior + regression @ cross, cross, left=False)
        noise = (covariance.diagonal() - (loadings * cross).sum(1)).clamp(min=least)
    return loadings, noise


def _initialise_flow(flow: Flow, inputs: tuple[Tensor, ...]) -> None:
    flow.initialise(inputs[0])


@dataclass(frozen=True)
class World:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def agree(self, value: float, device: torch.device) -> float:
        """The first process's value, so that all take the same decision."""
        if self.size == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=device)
        dist.broadcast(shared, src=0)
        return float(shared)

    def average(self, terms: Tensor, finite: Tensor) -> None:
        """Replace terms by their mean over all processes, and tell all whether one is not finite.

        Each process sees a part of every batch, and all must take the same decisions.
        """
        if self.size > 1:
            shared = torch.cat([terms / self.size, (~finite).to(terms)[None]])
            dist.all_reduce(shared)
            terms.copy_(shared[:-1])
            finite.copy_(shared[-1] == 0)


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """The processes that torchrun started, or this one alone.

    A process group that exists already is used and left alone; otherwise one is made (gloo on
    CPUs, nccl on GPUs) and taken down again.
    """
    if dist.is_available() and dist.is_initialized():
        yield World(dist.get_rank(), dist.get_world_size())
    elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        try:
            yield World(dist.get_rank(), dist.get_world_size())
        finally:
            dist.destroy_process_group()
    else:
        yield World()


def forked_generators(device: torch.device) -> AbstractContextManager[None]:
    """A context after which torch's global generators are as before.

    On a CPU a run has generators of its own and leaves the global one alone. On a GPU it draws from
    the global one, which recorded steps know.
    """
    if device.type == "cpu":
        return nullcontext()
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def check_device(device: str | int | torch.device) -> torch.device:
    """A device that can be used here.

    Example:
        >>> check_device("cpu")
        device(type='cpu')
    """
    try:
        return torch.empty(0, device=device).device
    except (AssertionError, RuntimeError) as error:  # without CUDA torch raises an AssertionError
        raise ValueError(
            f"device {str(device)!r} cannot be used, because torch finds no such device here; use "
            "'cpu', or leave device out"
        ) from error


def choose_device(device: str | torch.device | None) -> torch.device:
    """The device to train on: the one named, else this process's GPU, else the CPU."""
    if device is not None:
        return check_device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")
