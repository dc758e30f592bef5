"""Cards that show what is known: densities, bars of categories, coordinates of latent nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vfg.inference.variables import Array, Marginal, Variable, percent
from vfg.studio.markup import Markup, element, joined

WIDTH, HEIGHT = 240, 60
"""Of a card's drawing, in its own units."""
POINTS = 97
"""Where densities are computed."""
SHOWN_CATEGORIES = 5
LEVEL = 0.9
"""Of the intervals on the page."""


@dataclass(frozen=True)
class LatentMarginal:
    """Mean and deviation of a latent node's coordinates, `(width,)` each; NaN if unknown."""

    node: str
    mean: Array
    std: Array


def axis(variable: Variable, *marginals: Marginal) -> tuple[float, float]:
    """The ends of a variable's axis: its range in training, and whatever lies outside it."""
    places = [variable.low, variable.high]
    for one in marginals:
        places += [one.mean, one.low, one.high]
    known = [place for place in places if math.isfinite(place)]
    low, high = min(known), max(known)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def density(draws: Array, low: float, high: float, points: int = POINTS) -> Array:
    """A smooth density of draws at even points between two ends, `(points,)`.

    A Gaussian kernel with the width of Silverman's rule, at least a sixtieth of the axis where
    draws repeat.

    Example:
        >>> heights = density(np.linspace(-1.0, 1.0, 101), -5.0, 5.0)
        >>> bool(abs(heights.sum() * 10.0 / 96.0 - 1.0) < 0.01)
        True
    """
    ordered, count = np.sort(draws), len(draws)
    deviation = float(draws.std())
    quartiles = float(ordered[(3 * count) // 4] - ordered[count // 4]) / 1.34
    spread = min(deviation, quartiles) or deviation
    different = np.count_nonzero(np.diff(ordered)) > count // 2
    floor = (high - low) / (240.0 if different else 60.0)
    width = max(0.9 * spread * len(draws) ** -0.2, floor)
    places = np.linspace(low, high, points)
    standard = (places[:, None] - draws) / width
    kernel = np.exp(-0.5 * standard**2) / (width * math.sqrt(2.0 * math.pi))
    return np.asarray(kernel.mean(1))


def card(posterior: Marginal, prior: Marginal, *, selected: bool = False) -> Markup:
    """What is known of one variable, against what is known without evidence.

    Args:
        posterior: given the evidence.
        prior: without it.
        selected: whether its value is being set.
    """
    variable = posterior.variable
    is_choice = variable.kind == "choice"
    drawing = choice_bars(posterior, prior) if is_choice else density_drawing(posterior, prior)
    states = {"given": posterior.given, "selected": selected, "idle": variable.idle}
    return element(
        "article",
        element("h3", variable.name, title=variable.name),
        element("span", "given", class_="badge") if posterior.given else None,
        _headline(posterior),
        drawing,
        class_=" ".join(["card", *(name for name, holds in states.items() if holds)]),
        role="button",
        tabindex="0",
        aria_pressed="true" if selected else "false",
        aria_label=sentence(posterior, prior),
        data_select=variable.name,
        data_mean=repr(posterior.mean),
        data_low=repr(posterior.low),
        data_high=repr(posterior.high),
        data_value=str(posterior.value),
    )


def sentence(posterior: Marginal, prior: Marginal) -> str:
    """What a card shows, in words.

    Example:
        >>> age = Variable("age", "integer", "age", 0.0, 90.0)
        >>> sentence(Marginal(age, 41, mean=41.2, std=3.0, low=36.0, high=46.0), Marginal(age, 40))
        'age: 41.2, 90\u202f% between 36 and 46; without evidence –'
    """
    name = posterior.variable.name
    if posterior.given:
        return f"{name}: given as {posterior.text}"
    comma = "" if posterior.variable.kind == "choice" else ","
    words = f"{posterior.text}{comma} {spread_text(posterior)}"
    return f"{name}: {words}; without evidence {prior.text}"


def spread_text(one: Marginal) -> str:
    """The probability of the best guess, or the interval about it, in words."""
    variable = one.variable
    if variable.kind == "choice":
        return f"with probability {percent(one.probabilities.max(initial=0.0))}"
    ends = variable.show_number(one.low), variable.show_number(one.high)
    return f"{percent(LEVEL)} between {ends[0]} and {ends[1]}"


def _headline(posterior: Marginal) -> Markup:
    variable = posterior.variable
    if posterior.given or variable.idle:
        beside = "never varied" if variable.idle and not posterior.given else ""
    elif variable.kind == "choice":
        beside = percent(posterior.probabilities.max(initial=0.0))
    else:
        ends = variable.show_number(posterior.low), variable.show_number(posterior.high)
        beside = f"{ends[0]} – {ends[1]}"
    return element(
        "p", element("strong", posterior.text), element("span", beside), class_="headline"
    )


def density_drawing(posterior: Marginal, prior: Marginal) -> Markup:
    """The density over the axis, the marginal one in grey, the interval below, the mean."""
    variable = posterior.variable
    low, high = axis(variable, posterior, prior)
    grey = _heights(prior, low, high)
    own = np.zeros(POINTS) if posterior.given else _heights(posterior, low, high)
    top = max(float(own.max()), float(grey.max()), 1e-300) * 1.05

    def place(number: float) -> float:
        return round((number - low) / (high - low) * WIDTH, 2)

    marks = [_area(grey / top, "marginal"), _area(own / top, "posterior")]
    if math.isfinite(posterior.low) and not posterior.given:
        ends = {"x1": place(posterior.low), "x2": place(posterior.high)}
        marks.append(element("line", **ends, y1=HEIGHT - 3, y2=HEIGHT - 3, class_="interval"))
    if math.isfinite(posterior.mean):
        x = place(posterior.mean)
        marks.append(element("line", x1=x, x2=x, y1=4, y2=HEIGHT - 1, class_="mean"))
    ends_shown = element(
        "div",
        element("span", variable.show_number(low)),
        element("span", variable.show_number(high)),
        class_="axis",
    )
    return joined(_svg(*marks), ends_shown)


def _heights(one: Marginal, low: float, high: float) -> Array:
    if one.variable.idle or not len(one.draws):
        return np.zeros(POINTS)
    if len(one.draws) <= 2 and math.isfinite(one.std) and one.std > 0.0:
        places = np.linspace(low, high, POINTS)
        bell = np.exp(-0.5 * ((places - one.mean) / one.std) ** 2)
        return np.asarray(bell / (one.std * math.sqrt(2.0 * math.pi)))
    return _kept_density(np.ascontiguousarray(one.draws, np.float64).tobytes(), low, high)


@lru_cache(maxsize=1024)
def _kept_density(draws: bytes, low: float, high: float) -> Array:
    """A density from the bytes of draws; those without evidence are drawn again and again."""
    return density(np.frombuffer(draws), low, high)


def _area(heights: Array, kind: str) -> Markup | None:
    if not heights.any():
        return None
    base = HEIGHT - 6
    xs = np.linspace(0, WIDTH, len(heights))
    ys = base - heights * (base - 2)
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))
    return element("path", d=f"M0 {base}L{line}L{WIDTH} {base}Z", class_=kind)


def _svg(*marks: Markup | None) -> Markup:
    box = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "preserveAspectRatio": "none"}
    return element("svg", *marks, **box, class_="density", aria_hidden="true", focusable="false")


def choice_bars(posterior: Marginal, prior: Marginal) -> Markup:
    """The likeliest categories with their probabilities, the marginal ones as grey marks."""
    categories = posterior.variable.categories
    chances, before = posterior.probabilities, prior.probabilities
    if posterior.variable.idle or len(chances) != len(categories):
        return element("div", class_="bars")
    order = np.argsort(-chances, kind="stable")[:SHOWN_CATEGORIES]
    shown = sorted(order.tolist())
    rows = [
        element(
            "div",
            element("span", str(categories[k]), class_="name"),
            element(
                "span",
                element("i", style=f"width:{100 * before[k]:.1f}%", class_="marginal"),
                element("i", style=f"width:{100 * chances[k]:.1f}%", class_="posterior"),
                class_="track",
            ),
            element("span", percent(chances[k]), class_="share"),
            class_="bar",
        )
        for k in shown
    ]
    more = len(categories) - len(shown)
    rest = element("p", f"and {more} more", class_="note") if more else None
    return element("div", *rows, rest, class_="bars", aria_hidden="true")


def latent_card(posterior: LatentMarginal, prior: LatentMarginal) -> Markup:
    """The coordinates of a latent node as intervals, the marginal ones in grey."""
    count = len(posterior.mean)
    known = [x for x in (posterior, prior) if np.isfinite(x.std).any()]
    ends = [np.abs(x.mean) + 1.645 * np.nan_to_num(x.std) for x in known] or [
        np.abs(posterior.mean)
    ]
    top = max(float(np.max(ends)), 1e-9) * 1.05
    step = WIDTH / count
    middle = HEIGHT / 2.0

    def bar(x: LatentMarginal, k: int, kind: str) -> Markup | None:
        if not np.isfinite(x.std[k]):
            return None
        half = 1.645 * float(x.std[k]) / top * middle
        place = middle - float(x.mean[k]) / top * middle
        width = min(0.6 * step, 10.0) * (1.0 if kind == "marginal" else 0.5)
        left = round((k + 0.5) * step - width / 2.0, 2)
        return element(
            "rect",
            x=left,
            y=round(place - half, 2),
            width=round(width, 2),
            height=round(max(2.0 * half, 1.0), 2),
            rx=min(width / 2.0, 2.0),
            class_=kind,
        )

    marks: list[Markup | None] = [
        element("line", x1=0, x2=WIDTH, y1=middle, y2=middle, class_="zero")
    ]
    marks += [bar(prior, k, "marginal") for k in range(count)]
    marks += [bar(posterior, k, "posterior") for k in range(count)]
    for k in range(count):
        y = middle - float(posterior.mean[k]) / top * middle
        x = (k + 0.5) * step
        marks.append(element("circle", cx=round(x, 2), cy=round(y, 2), r=2, class_="dot"))
    words = ", ".join(f"{x:.3g}" for x in posterior.mean[:8])
    return element(
        "article",
        element("h3", posterior.node),
        element("p", element("span", f"{count} coordinates"), class_="headline"),
        element("svg", *marks, viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="density latent"),
        class_="card still",
        aria_label=f"latent node {posterior.node}: means {words}",
    )
