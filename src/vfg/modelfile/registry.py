"""The classes of models that files can hold, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, Self, TypeVar

from vfg.model import VFG


class Storable(Protocol):
    """What can be saved: an `nn.Module` with `to_dict` and `from_dict`.

    `from_dict` makes a model whose `state_dict()` has the same names and shapes, and reads no
    value of a tensor: loading runs it first on the meta device, where tensors have none.
    """

    def to_dict(self) -> dict[str, Any]:
        """Everything about the model that is not in its state, ready for JSON."""

    @classmethod
    def from_dict(cls, description: Mapping[str, Any], /) -> Self:
        """A model with that description, in any state."""


Kind = TypeVar("Kind", bound=Storable)

_KINDS: dict[str, type[Storable]] = {}
_ELSEWHERE = {"GaussianVFG": "vfg.gaussian.model", "TableModel": "vfg.imputation.table_model"}
"""Modules that register a kind when they are imported, which loading a file does."""


def register(kind: str) -> Callable[[type[Kind]], type[Kind]]:
    """Let files hold models of another class.

    Args:
        kind: what files call the class; never to be changed afterwards.

    Returns:
        A decorator for the class, which must be `Storable`.

    Raises:
        ValueError: if another class has that name.

    Example:
        >>> register("VFG")(VFG) is VFG  # as it is already
        True
    """

    def enter(model: type[Kind]) -> type[Kind]:
        known = _KINDS.setdefault(kind, model)
        if known is not model:
            raise ValueError(
                f"the kind {kind!r} belongs to {known.__qualname__} already; choose another name"
            )
        return model

    return enter


def known_kinds() -> list[str]:
    """The names of all classes that files may hold, in the order of their registration."""
    return list(dict.fromkeys([*_KINDS, *_ELSEWHERE]))


def class_of(kind: str) -> type[Storable]:
    """The class that files call `kind`, which must be a known one."""
    if kind not in _KINDS:
        import_module(_ELSEWHERE[kind])
    return _KINDS[kind]


def kind_of(model: Storable) -> str:
    """What files call the class of a model."""
    kind = next((name for name, known in _KINDS.items() if known is type(model)), None)
    if kind is None:
        raise TypeError(
            f"only {', '.join(known_kinds())} models can be saved, but got "
            f"{type(model).__name__}; unwrap the model, or register its class with "
            "vfg.modelfile.register"
        )
    return kind


register("VFG")(VFG)
