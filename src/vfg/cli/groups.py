"""Options that commands share as groups: dataclasses whose fields are options."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters that are dataclasses stand for the options in them.

    Args:
        command: a function; each of its dataclasses has fields annotated as options are.

    Returns:
        The same function to those who read its signature option by option.

    Example:
        >>> @dataclasses.dataclass
        ... class Size:
        ...     width: int = 1
        ...     height: int = 2
        >>> def area(name: str, size: Size, loud: bool = False) -> None:
        ...     print(name, size.width * size.height)
        >>> inspect.signature(with_groups(area))
        <Signature (*, name: str, width: int = 1, height: int = 2, loud: bool = False) -> None>
        >>> with_groups(area)(name="area", width=5)
        area 10
    """
    known = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in known.parameters.items()
        if dataclasses.is_dataclass(parameter.annotation)
    }

    @functools.wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: kind(**{key: given.pop(key) for key in _options(kind) if key in given})
            for name, kind in groups.items()
        }
        command(**given, **made)

    parameters = [option for one in known.parameters.values() for option in _expanded(one)]
    called.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


def _expanded(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """The options of a group, or a parameter that is none, as keywords: any may have a default."""
    if not dataclasses.is_dataclass(parameter.annotation):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    for name, (kind, default) in _options(parameter.annotation).items():
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default
        )


def _options(group: Any) -> dict[str, tuple[Any, Any]]:
    """Annotation and default of every field of a group."""
    kinds = typing.get_type_hints(group, include_extras=True)
    return {
        field.name: (
            kinds[field.name],
            inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(group)
    }
