"""Optional dependencies: an error that names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Context of an optional import; its error names the extra to install.

    Example:
        >>> with needs("plot"):
        ...     import no_such_package
        Traceback (most recent call last):
        ImportError: this needs no_such_package; install it with: pip install 'vfg[plot]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"this needs {error.name}; install it with: pip install 'vfg[{extra}]'"
        ) from error
