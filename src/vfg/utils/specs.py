"""Configuration as frozen dataclasses that are stored as plain JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar


class Spec:
    """Base of frozen dataclasses that describe a part of a model.

    A subclass sets `name`, which together with its fields describes it in a model file. A spec
    defined outside the library is found by `spec_from_dict` as soon as its module is imported.
    """

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Name and fields, ready for JSON."""
        return {"name": self.name, **(asdict(self) if is_dataclass(self) else {})}


SomeSpec = TypeVar("SomeSpec", bound=Spec)
Choice = TypeVar("Choice")


def spec_from_dict(base: type[SomeSpec], description: Mapping[str, Any]) -> SomeSpec:
    """The subclass of `base` that `description` names, built from its fields.

    Args:
        base: the kind of spec that is expected.
        description: what `Spec.to_dict` returned.

    Raises:
        ValueError: for a name or a field that no known subclass has.

    Example:
        >>> from vfg.flows import Coupling, FlowSpec
        >>> spec_from_dict(FlowSpec, Coupling(blocks=2).to_dict()) == Coupling(blocks=2)
        True
    """
    known = {kind.name: kind for kind in _named_subclasses(base)}
    name = description.get("name")
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"there is no {base.__name__} called {name!r}; known: {', '.join(known)}")
    kind = known[name]
    arguments = {key: value for key, value in description.items() if key != "name"}
    legal: list[str] = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    unknown = [key for key in arguments if key not in legal]
    if unknown:
        raise ValueError(f"{base.__name__} {name!r} has no field {unknown[0]!r}; known: {legal}")
    return kind(**arguments)


def _named_subclasses(base: type[SomeSpec]) -> Iterator[type[SomeSpec]]:
    for kind in base.__subclasses__():
        if "name" in vars(kind):
            yield kind
        yield from _named_subclasses(kind)


def for_each(names: list[str], given: dict[str, Choice], what: str) -> dict[str, Choice]:
    """The choice for every name; `"*"` stands for all that are not given.

    Args:
        names: everything that needs a choice.
        given: choices by name.
        what: noun for a name, for errors.

    Raises:
        ValueError: for a name that does not exist, or one without a choice.

    Example:
        >>> for_each(["a", "b"], {"a": 1, "*": 2}, "leaf")
        {'a': 1, 'b': 2}
    """
    known = dict.fromkeys(names)
    for name in given:
        if name != "*" and name not in known:
            raise ValueError(f"there is no {what} {name!r}; there are {', '.join(names)}")
    missing = [name for name in names if name not in given]
    if missing and "*" not in given:
        raise ValueError(f"nothing is chosen for {what} {missing[0]!r}; name it, or give '*'")
    return {name: given[name] if name in given else given["*"] for name in names}


def check_choice(argument: str, given: str, known: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices.

    Example:
        >>> check_choice("latent", "cauchy", ("laplace", "normal"))
        Traceback (most recent call last):
        ValueError: latent must be one of laplace, normal, but got 'cauchy'
    """
    if given not in known:
        raise ValueError(f"{argument} must be one of {', '.join(known)}, but got {given!r}")


Settings = TypeVar("Settings")


def with_options(
    settings: Settings | None, options: Mapping[str, Any], kind: type[Settings], whose: str
) -> Settings:
    """Settings with some fields replaced.

    Args:
        settings: a frozen dataclass; None for the defaults of its kind.
        options: other values of some fields, by name.
        kind: the class of the settings.
        whose: owner of the settings, for errors.

    Raises:
        TypeError: for settings of another kind, or an option that is no field.

    Example:
        >>> from vfg.training import Masking
        >>> with_options(None, {"rate": 0.5}, Masking, "a model").rate
        0.5
    """
    if settings is not None and not isinstance(settings, kind):
        raise TypeError(
            f"the settings of {whose} must be {kind.__name__}, but are {type(settings).__name__}"
        )
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in options:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise TypeError(f"{whose} is fitted without an option {name!r}; {hint}")
    start = kind() if settings is None else settings
    return replace(start, **options) if options else start  # type: ignore[type-var]
