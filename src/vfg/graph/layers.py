"""The layers of a directed graph, and the cycle that stands in their way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Arrow = tuple[str, str]


def layer_numbers(names: Iterable[str], arrows: Sequence[Arrow]) -> dict[str, int]:
    """Number every name by its longest path from the names that no arrow enters.

    Args:
        names: All names, in the order that decides ties.
        arrows: Pairs (tail, head); a head lies above its tail.

    Returns:
        The layer of each name; names on a cycle or above one are left out.

    Example:
        >>> layer_numbers(["a", "b", "h"], [("a", "h"), ("b", "a")])
        {'b': 0, 'a': 1, 'h': 2}
    """
    waiting = dict.fromkeys(names, 0)
    above: dict[str, list[str]] = {name: [] for name in waiting}
    for tail, head in arrows:
        waiting[head] += 1
        above[tail].append(head)
    layers = {name: 0 for name, count in waiting.items() if count == 0}
    queue = list(layers)
    for name in queue:  # grows while it is read, layer by layer, so the last tail is the highest
        for head in above[name]:
            waiting[head] -= 1
            if waiting[head] == 0:
                layers[head] = layers[name] + 1
                queue.append(head)
    return layers


def find_cycle(names: Iterable[str], arrows: Sequence[Arrow]) -> tuple[str, ...] | None:
    """Find a cycle along the arrows.

    Args:
        names: All names; the cycle starts at the one that comes first here.
        arrows: Pairs (tail, head).

    Returns:
        The names along the cycle, the first repeated at the end; None if there is none.

    Example:
        >>> find_cycle(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "b")])
        ('b', 'c', 'b')
    """
    order = list(names)
    placed = layer_numbers(order, arrows)
    below: dict[str, str] = {}
    for tail, head in arrows:
        if tail not in placed:
            below.setdefault(head, tail)
    if not below:
        return None
    # Every name without a layer has a tail without one, so walking down must return.
    walk = {next(name for name in order if name not in placed): None}
    name = below[next(iter(walk))]
    while name not in walk:
        walk[name] = None
        name = below[name]
    return _upward(list(walk), name, order)


def _upward(walk: list[str], start: str, order: list[str]) -> tuple[str, ...]:
    """Turn the end of a downward walk into an upward cycle that starts at its earliest name."""
    cycle = walk[walk.index(start) :][::-1]
    first = cycle.index(min(cycle, key=order.index))
    return (*cycle[first:], *cycle[: first + 1])
