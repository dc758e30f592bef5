"""How latent states come about, as users write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vfg.utils.specs import Spec


class StatesSpec(Spec):
    """How the states of latent nodes come about; frozen, and plain JSON in a model file."""


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
    r"""Every state is drawn from a Normal q around the aggregated messages, so there is a bound.

    The scales of q and of $p(h^{(i)} \mid \text{parents})$ are learned, and always bounded.

    Args:
        amortised: width of a small network per node that moves the centre and the scales of q as
            the messages ask for; 0 for none, so that the scales are the same for all rows.
        ladder: draw from the roots down: messages go up without noise, and q of a node that is no
            root joins what they say with what the parents' draws expect. Siblings are then as
            dependent as their parents make them. Otherwise draws go up from node to node.

    Raises:
        ValueError: if `amortised` is negative.

    Example:
        >>> Sampled(amortised=64).to_dict()
        {'name': 'sampled', 'amortised': 64, 'ladder': False}
    """

    name: ClassVar[str] = "sampled"
    amortised: int = 0
    ladder: bool = False

    def __post_init__(self) -> None:
        if self.amortised < 0:
            raise ValueError(
                f"amortised is the width of a network, 0 for none, but got {self.amortised}"
            )


def states_spec(given: str | StatesSpec) -> StatesSpec:
    """How states come about, by name or as it is.

    Raises:
        ValueError: for a name that is not known.

    Example:
        >>> states_spec("sampled")
        Sampled(amortised=0, ladder=False)
    """
    if isinstance(given, StatesSpec):
        return given
    by_name: dict[str, StatesSpec] = {"deterministic": Deterministic(), "sampled": Sampled()}
    if given not in by_name:
        raise ValueError(
            f"states must be one of {', '.join(by_name)} or vfg.Sampled(...), but got {given!r}"
        )
    return by_name[given]
