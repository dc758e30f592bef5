"""The settings of a training run; `Masking`, which makes Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vfg.flows import MEMORIES, PRECISIONS, Coupling, check_choice
from vfg.training.optimiser import SCHEDULES


@dataclass(frozen=True)
class Masking:
    """How training hides sections.

    In a masked step a share of sections to keep is drawn for every row, and then which sections
    these are. Messages come from the kept sections only. The likelihood counts the hidden ones,
    plus `visible` times the kept ones. Steps of the two algorithms alternate as evenly as `rate`
    allows.

    Args:
        rate: share of steps that use Algorithm 2 (default 0.5); the others use Algorithm 1. Use 1
            if the model is only asked about missing cells.
        keep: range of the share of sections that a row keeps (default 0.3 to 1). Choose the range
            of the share of sections that will be observed in later questions.
        visible: weight of the kept sections in the likelihood of a masked step (default 0.2).
        conditional: with sampled states (default 0). At 0 a masked step maximises the bound of the
            kept sections, from which q learns to be narrow. Above 0 it maximises the bound of all
            sections and, with this weight, the bound of the hidden sections given the kept ones,
            so that draws of q given a part of a row vary as much as the rest of the row. Try 0.25.
        groups: positions of columns that are hidden together, every column in one of them; None
            (default) for those of each leaf. With groups, parts of one leaf can be hidden, such as
            blocks of an image.

    Raises:
        ValueError: if a share is not between 0 and 1, `visible` is negative, or a column is in no
            group or in several.

    Example:
        >>> [Masking(rate=0.5).is_masked(step) for step in range(4)]
        [False, True, False, True]
    """

    rate: float = 0.5
    keep: tuple[float, float] = (0.3, 1.0)
    visible: float = 0.2
    groups: tuple[tuple[int, ...], ...] | None = None
    conditional: float = 0.0

    def __post_init__(self) -> None:
        low, high = self.keep
        if not 0.0 <= self.rate <= 1.0:
            raise ValueError(f"Masking expects a rate from 0 to 1, but got {self.rate}")
        if not 0.0 <= low <= high <= 1.0:
            raise ValueError(
                f"Masking expects keep as a range (low, high) within 0 and 1, but got {self.keep}"
            )
        for name in ("visible", "conditional"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(
                    f"Masking expects {name} to be at least 0, but got {getattr(self, name)}"
                )
        if self.groups is not None:
            groups = tuple(tuple(int(column) for column in group) for group in self.groups)
            object.__setattr__(self, "groups", groups)
            columns = sorted(column for group in groups for column in group)
            if columns != list(range(len(columns))) or not columns:
                raise ValueError(
                    "Masking expects groups to name every column once, by its position from 0, but "
                    f"got the columns {columns[:8]}{' ...' if len(columns) > 8 else ''}"
                )

    def is_masked(self, step: int) -> bool:
        """Whether the step with this number uses Algorithm 2."""
        return int((step + 1) * self.rate) > int(step * self.rate)

    def group_of_column(self, columns: int, leaf_of_column: Tensor) -> Tensor:
        """Which group each of so many columns is in; without groups, which leaf."""
        if self.groups is None:
            return leaf_of_column
        named = sum(map(len, self.groups))
        if named != columns:
            raise ValueError(
                f"Masking has groups of {named} columns, but the model has {columns}; name every "
                "column once"
            )
        places = {column: k for k, group in enumerate(self.groups) for column in group}
        return torch.tensor([places[k] for k in range(columns)], device=leaf_of_column.device)

    def draw(self, rows: int, sections: int, generator: torch.Generator) -> Tensor:
        """Which sections each row keeps, `(rows, sections)`."""
        low, high = self.keep
        device = generator.device
        share = low + (high - low) * torch.rand(rows, 1, generator=generator, device=device)
        return torch.rand(rows, sections, generator=generator, device=device) < share


BOTH_ALGORITHMS = Masking()
"""Algorithms 1 and 2 alternate."""
ALWAYS_HIDE = Masking(rate=1.0)
"""Algorithm 2 alone: a model is asked about cells that it does not see."""
EPOCHS, STEPS = 60, 25
"""Epochs of a run whose length is not given, and steps of each: 1,500 in all, half a minute on one
core. On a table of 1,030 rows 800 steps left 4 % more squared error."""
USUAL_ROWS = 20_000
"""Rows above which epochs have more steps, by the square root of the rows."""
FEW_ROWS, FEW_EPOCHS = 10, 2
"""Rows below which nothing can be learned of how columns depend on each other, and the epochs of
such a run: one row took 71 s at the usual length."""
PATIENCE = 25
"""Epochs without a better held-out loss after which such a run stops: most of its falling rates."""


@dataclass(frozen=True)
class FitSettings:
    """How a `vfg.VFG` is trained.

    Settings that are None, and `masking="auto"`, are chosen from the model and the number of
    rows; see `choose`.

    Args:
        masking: `vfg.Masking` for Algorithm 2, or None for Algorithm 1 alone, which suits
            reconstructions and embeddings of complete rows. `"auto"` (default) is Algorithm 2 in
            every step, and with sampled states in every other one.
        layerwise: whether a step updates the edges of one layer only, cycling through the layers,
            as in the paper (default False: all edges at once, which had smaller errors).
        beta: weight of the KL and prior terms. None (default) is 0.001, and 1 with sampled states,
            where only 1 is a bound. Larger weights make messages more consistent and
            reconstructions worse.
        warmup: epochs during which that weight rises from 0 (default 0). Values below 1 are a share
            of the run, during which it rises from step to step. Try 0.2 if nodes of a model with
            sampled states stay unused.
        free_bits: with sampled states, nats per latent node below which its KL term does not
            count, so that no node collapses to its prior early (default 0).
        input_dropout: with sampled states, share of the cells that a step hides from the messages
            at random while the bound still counts them (default 0). Try 0.1 if q overfits.
        samples: with sampled states, draws per row of a step (default 1). Above 1 their
            importance-weighted bound is maximised, which is nearer to log p(x) but trains q less;
            steps take longer. Use about 3 at the end of a run.
        epochs: number of epochs; after each the held-out loss is computed. None (default) is 60
            epochs of 25 steps, or of more steps above 20,000 rows, and stops after 25 epochs
            without a better loss; with latent nodes wider than 32 it is 200 passes over the table.
            Take more if the held-out loss still falls at the end.
        steps: number of steps of an epoch. None (default), if `epochs` is given, means one pass
            over the table.
        budget: seconds after which training stops; the schedule of the rate shrinks to fit. None
            (default) for no limit.
        batch: rows per step. None (default) is a tenth of the rows, at least 32 and at most 256,
            and 256 with latent nodes wider than 32.
        rate: the highest learning rate of the schedule. None (default) is 0.005, and 0.002 with
            sampled states or latent nodes wider than 32. Lower it if the loss becomes non-finite.
        schedule: of the rate: `"one-cycle"` (default) rises for 30 % of the run, then falls to
            almost 0; `"cosine"` rises for 2 %.
        average: weights are averaged over this last share of the steps so far, and the averages
            are validated and kept. 0 (default) averages nothing; 0.05 suits noisy objectives such
            as the bound of sampled states.
        weight_decay: of the conditioners (default 0.01). Raise it if the held-out loss rises early.
        clip: largest norm of a gradient (default 1); `"running"` limits it to twice the usual norm
            of the run, which suits sampled states.
        validation: share of the observed sections that is held out to choose the best state
            (default 0.1); 0 keeps the last state.
        patience: stop after this many epochs without a better held-out loss. None (default) is 25
            if `epochs` is None and no latent node is wider than 32, else no limit.
        scale: whether a new model learns location and scale of real-valued columns (default True).
        compile: whether to compile the step with `torch.compile`; `"auto"` (default) does so after
            the first epochs if compiled steps were measured to be faster and enough steps are left
            to save more time than compiling takes. Compiled steps are the same up to rounding.
        seed: of all random numbers (default 0); global generators are not used.
        precision: of the products inside conditioners while training: `"float32"` (default) keeps
            the precision of the model; `"tf32"` rounds products, for the tensor cores of a GPU;
            `"bf16"` rounds products and hidden layers. States, log-determinants, sums, solves and
            the held-out loss always keep the precision of the model.
        memory: what flows store for the derivative: `"store"` (default), all that it needs;
            `"recompute"`, the states between their layers, from which the rest is computed again;
            `"invert"`, only their output, which is inverted layer by layer, so that deep flows need
            hardly more memory than shallow ones. Both take longer.

    Raises:
        ValueError: for invalid values.

    Example:
        >>> FitSettings(seed=1).choose(1000, is_sampled=False, is_wide=False).batch
        100
    """

    masking: Masking | str | None = "auto"
    layerwise: bool = False
    beta: float | None = None
    warmup: float = 0
    free_bits: float = 0.0
    input_dropout: float = 0.0
    samples: int = 1
    epochs: int | None = None
    steps: int | None = None
    budget: float | None = None
    batch: int | None = None
    rate: float | None = None
    schedule: str = "one-cycle"
    average: float = 0.0
    weight_decay: float = 1e-2
    clip: float | str = 1.0
    validation: float = 0.1
    patience: int | None = None
    scale: bool = True
    compile: bool | str = "auto"
    seed: int = 0
    precision: str = "float32"
    memory: str = "store"

    def __post_init__(self) -> None:
        least: dict[str, float] = dict.fromkeys(
            ("epochs", "batch", "steps", "patience", "samples"), 1
        )
        for name, bound in {**least, "warmup": 0, "beta": 0.0, "free_bits": 0.0}.items():
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise ValueError(f"{name} must be at least {bound}, but got {value}")
        if isinstance(self.masking, str) and self.masking != "auto":
            raise ValueError(f"masking is vfg.Masking(...), None or 'auto', not {self.masking!r}")
        for name, choices in {
            "compile": (True, False, "auto"),
            "precision": PRECISIONS,
            "memory": MEMORIES,
            "schedule": SCHEDULES,
        }.items():
            check_choice("FitSettings", name, getattr(self, name), choices)
        if not 0.0 <= self.validation < 1.0:
            raise ValueError(
                f"validation is the share of cells held out, from 0 to below 1, but got "
                f"{self.validation}"
            )
        for name in ("average", "input_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(
                    f"{name} is a share from 0 to below 1, but got {getattr(self, name)}"
                )
        if self.samples > 1 and self.free_bits:
            raise ValueError(
                f"free_bits={self.free_bits:g} counts KL terms, which the weighted bound of "
                f"samples={self.samples} draws does not have; leave one of them out"
            )
        if isinstance(self.clip, str) and self.clip != "running":
            raise ValueError(f"clip is a positive norm or 'running', but got {self.clip!r}")
        for name in ("rate", "clip", "budget"):
            value = getattr(self, name)
            if not isinstance(value, str | None) and not value > 0.0:
                raise ValueError(f"{name} must be positive, but got {value}")

    def choose(self, rows: int, *, is_sampled: bool, is_wide: bool) -> RunSettings:
        """The same settings with a value for everything that was None.

        Args:
            rows: of the table.
            is_sampled: whether the states of the model are sampled.
            is_wide: whether it has latent nodes wider than 32, such as blocks of an image. They
                learn in one pass per epoch, for 200 epochs.
        """
        given = {field.name: getattr(self, field.name) for field in fields(FitSettings)}
        masking = BOTH_ALGORITHMS if is_sampled else ALWAYS_HIDE
        chosen: dict[str, Any] = {
            "beta": 1.0 if is_sampled else 1e-3,
            "batch": 256 if is_wide else min(max(rows // 10, 32), 256),
            "rate": 2e-3 if is_sampled or is_wide else 5e-3,
            "epochs": 200 if is_wide else EPOCHS,
        }
        if self.epochs is None and not is_wide:
            longer = max(1.0, rows / USUAL_ROWS) ** 0.5
            chosen |= {"steps": round(STEPS * longer), "patience": PATIENCE}
            if rows < FEW_ROWS:
                chosen |= {"epochs": FEW_EPOCHS}
        if self.masking == "auto":
            given["masking"] = masking
        kept = {name: value for name, value in given.items() if value is not None}
        return RunSettings(**{"masking": None} | chosen | kept)


@dataclass(frozen=True)
class RunSettings(FitSettings):
    """Settings of which everything is chosen: what a run is made of."""

    masking: Masking | None = BOTH_ALGORITHMS
    beta: float = 1.0
    epochs: int = 200
    batch: int = 256
    rate: float = 2e-3


class PaperSettings(NamedTuple):
    """How the paper builds and trains its models."""

    model: dict[str, Any]
    """Arguments of `vfg.VFG` beside the graph."""
    fit: FitSettings
    """Settings of `vfg.fit`."""


def paper_settings(blocks: int = 4) -> PaperSettings:
    """The paper's own choices, in place of the defaults.

    Every edge has coupling blocks with three fully connected layers of dimension 64 and ReLU
    between them. Nodes average their children, latent states are Laplace distributed, the KL terms
    weigh 0.1, and Algorithms 1 and 2 alternate. The paper does not say how long it trains and at
    which rate: here 200 epochs at 0.002.

    Args:
        blocks: coupling blocks per edge; 4, but 3 for the paper's synthetic columns.

    Example:
        >>> import vfg
        >>> paper = vfg.paper_settings(blocks=3)
        >>> model = vfg.VFG(vfg.Graph.star({"a": 2, "b": 2}, width=2), **paper.model)
        >>> history = vfg.fit(model, torch.randn(50, 4), paper.fit, epochs=2, progress=False)
    """
    flow = Coupling(blocks=blocks, hidden=64, layers=3, activation="relu")
    return PaperSettings(
        {"flow": flow, "aggregation": "mean", "latent": "laplace"},
        FitSettings(masking=BOTH_ALGORITHMS, beta=0.1, epochs=200, batch=256, rate=2e-3),
    )
