"""HTML and SVG from plain functions; every text is escaped unless it is markup already."""

from __future__ import annotations

from html import escape
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: Any, **attributes: Any) -> Markup:
    """An element of HTML or SVG.

    Args:
        tag: its name.
        children: markup as it is, anything else as escaped text; None is left out.
        attributes: with `_` for `-`, and `_` at the end of Python's own words; None and False are
            left out, True stands without a value.

    Example:
        >>> element("p", "1 < 2", class_="note", aria_hidden="true", hidden=False)
        '<p class="note" aria-hidden="true">1 &lt; 2</p>'
    """
    words = [f" {_attribute(key, value)}" for key, value in attributes.items() if _stands(value)]
    opening = f"<{tag}{''.join(words)}"
    if tag in ("path", "line", "rect", "circle", "input", "img", "br"):
        return Markup(f"{opening}/>")
    return Markup(f"{opening}>{joined(*children)}</{tag}>")


def joined(*children: Any) -> Markup:
    """Pieces of markup and texts, one after the other."""
    parts = (child for child in children if child is not None)
    return Markup("".join(c if isinstance(c, Markup) else escape(str(c)) for c in parts))


def _stands(value: Any) -> bool:
    return value is not None and value is not False


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    return name if value is True else f'{name}="{escape(str(value))}"'
