"""Names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, tuple[str, ...]], into: dict[str, Any]
) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names come from its modules.

    torch takes seconds to import, and some modules of its packages do without.

    Args:
        package: its name.
        modules: the public names of every module.
        into: `globals()` of the package, where a name stays once it is imported.

    Example:
        >>> find = lazy_names("vfg.graph", {"nodes": ("Node",)}, {})
        >>> find("Node").__module__
        'vfg.graph.nodes'
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        result = into[name] = getattr(import_module(f"{package}.{homes[name]}"), name)
        return result

    return find
