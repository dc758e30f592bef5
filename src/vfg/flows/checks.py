"""Checks of arguments, random starts and the autocast context that flows share."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from vfg.utils.linalg import is_exporting


def check_count(owner: str, name: str, value: int, minimum: int) -> None:
    """Raise unless `value` is an integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{owner} expects an integer for {name}, but got {value!r}")
    if value < minimum:
        raise ValueError(f"{owner} expects {name} to be at least {minimum}, but got {value}")


def check_number(owner: str, name: str, value: float) -> None:
    """Raise unless `value` is a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{owner} expects a number for {name}, but got {value!r}")


def check_positive(owner: str, name: str, value: float) -> None:
    """Raise unless `value` is a positive finite number."""
    check_number(owner, name, value)
    if not 0 < value < float("inf"):
        raise ValueError(f"{owner} expects {name} to be positive and finite, but got {value}")


def check_rate(owner: str, name: str, value: float) -> None:
    """Raise unless `value` is a number in [0, 1)."""
    check_number(owner, name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{owner} expects {name} to be at least 0 and below 1, but got {value}")


def check_flag(owner: str, name: str, value: bool) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{owner} expects True or False for {name}, but got {value!r}")


def check_choice(owner: str, name: str, value: object, choices: Iterable[object]) -> None:
    """Raise unless `value` is one of `choices`."""
    options = list(choices)
    if value not in options:
        listed = ", ".join(map(repr, options))
        raise ValueError(f"{owner} expects {name} to be one of {listed}, but got {value!r}")


def check_image(owner: str, value: tuple[int, int] | None) -> None:
    """Raise unless `value` is None, or rows and columns."""
    if value is None:
        return
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{owner} expects (rows, columns) or None for image, but got {value!r}")
    for name, count in zip(("the rows of image", "the columns of image"), value, strict=True):
        check_count(owner, name, count, 1)


def private_generator(generator: torch.Generator | None) -> torch.Generator:
    """The given generator or a fresh one with seed 0: the global stream stays untouched."""
    return torch.Generator().manual_seed(0) if generator is None else generator


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> Tensor:
    """Draw a tensor uniformly from [-bound, bound]."""
    unit = torch.rand(shape, generator=generator, device=generator.device)
    return (2 * unit - 1) * bound


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """A context in which matrix products keep the dtype of their operands."""
    if is_exporting():  # without autocast; the context would hide what is constant
        return nullcontext()
    return torch.autocast(device_type=x.device.type, enabled=False)
