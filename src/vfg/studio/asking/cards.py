"""The Ask page as HTML: cards, evidence, editor, code; the same in a notebook and in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from vfg.inference.variables import Array, Marginal, Variable, format_number, percent
from vfg.studio.markup import Markup, concat, element, png, stretch

if TYPE_CHECKING:
    from vfg.studio.asking.model import Answered, OpenModel


WIDTH, HEIGHT = 240, 60
"""Of a card's drawing, in its own units."""
POINTS = 97
"""Where densities are computed."""
SHOWN_CATEGORIES = 5
"""The most probable ones, which a card has room for."""
MOST_BARS = 24
"""Numbers that take at most so many values are drawn as bars."""
NORMAL_95 = 1.645
"""The 95 % quantile of a standard Normal, for intervals of 90 %."""
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


def card(
    posterior: Marginal, baseline: Marginal, editor: Markup | None = None, word: str = "given"
) -> Markup:
    """The posterior of one variable, beside the distribution to compare it with."""
    variable = posterior.variable
    is_choice = variable.kind == "choice"
    listed = editor is not None and is_choice  # the editor lists all categories
    draw = choice_bars if is_choice else density_drawing
    drawing = None if listed or variable.idle else draw(posterior, baseline)
    states = {"given": posterior.given, "selected": editor is not None, "idle": variable.idle}
    is_button = {"role": "button", "tabindex": "0"} if editor is None else {"role": "group"}
    return element(
        "div",
        element("h3", variable.name, title=variable.name),
        element("span", word, class_=f"badge {word}") if posterior.given else None,
        _headline(posterior, baseline),
        drawing,
        editor,
        class_=" ".join(["card", *(name for name, holds in states.items() if holds)]),
        **is_button,
        aria_label=sentence(posterior, baseline, word),
        data_select=variable.name,
        data_mean=repr(posterior.mean),
        data_low=repr(posterior.low),
        data_high=repr(posterior.high),
        data_value=str(posterior.value),
    )


def sentence(posterior: Marginal, baseline: Marginal, word: str = "given") -> str:
    """What a card shows, in words.

    Example:
        >>> age = Variable("age", "integer", "age", 0.0, 90.0)
        >>> sentence(Marginal(age, 41, mean=41.2, std=3.0, low=36.0, high=46.0), Marginal(age, 40))
        'age: 41.2, 90\u202f% between 36 and 46; without evidence –'
    """
    name = posterior.variable.name
    if posterior.given:
        return f"{name}: {word} {'to' if word == 'set' else 'as'} {posterior.text}"
    comma = "" if posterior.variable.kind == "choice" else ","
    words = f"{guess_text(posterior, baseline)}{comma} {spread_text(posterior)}"
    return f"{name}: {words}; without evidence {baseline.text}"


def guess_text(posterior: Marginal, baseline: Marginal) -> str:
    """The best guess in few characters; the mean of few values with one digit more than they have.

    Example:
        >>> year = Variable("year", "number", "year", 2007.0, 2009.0)
        >>> one = Marginal(
        ...     year, 2008.0, mean=2007.935, draws=np.repeat([2007.0, 2008.0, 2009.0], 4)
        ... )
        >>> one.text, guess_text(one, one)
        ('2007.935', '2007.9')
    """
    values = None if posterior.given else few_values(baseline)
    if values is None:
        return posterior.text
    digits = 1 - math.floor(math.log10(float(np.diff(values).min())))
    return format_number(posterior.mean, min(max(digits, 0), posterior.variable.decimals))


def spread_text(one: Marginal) -> str:
    """The probability of the best guess, or the interval about it, in words."""
    if one.variable.kind == "choice":
        return f"with probability {percent(one.probabilities.max(initial=0.0))}"
    return f"{percent(LEVEL)} between {' and '.join(_ends(one))}"


def _ends(one: Marginal) -> tuple[str, str]:
    return one.variable.show_number(one.low), one.variable.show_number(one.high)


def _headline(posterior: Marginal, baseline: Marginal) -> Markup:
    variable = posterior.variable
    if posterior.given or variable.idle:
        beside = "never varied" if variable.idle and not posterior.given else outside(posterior)
    elif variable.kind == "choice":
        beside = percent(posterior.probabilities.max(initial=0.0))
    else:
        beside = f"{percent(LEVEL)}: {' – '.join(_ends(posterior))}"
    strong = element("strong", guess_text(posterior, baseline))
    return element("p", strong, element("span", beside, title=beside), class_="headline")


def outside(one: Marginal) -> str:
    """A warning if evidence lies outside the range in training."""
    variable = one.variable
    if not one.given or variable.kind == "choice" or variable.low <= one.mean <= variable.high:
        return ""
    ends = variable.show_number(variable.low), variable.show_number(variable.high)
    return f"outside the data, {ends[0]} to {ends[1]}"


def density_drawing(posterior: Marginal, baseline: Marginal) -> Markup:
    """The density over the axis, the one to compare with in grey, the interval below, the mean."""
    box = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "preserveAspectRatio": "none"}
    marks = density_marks(posterior, baseline)
    svg = element("svg", *marks, **box, class_="density", aria_hidden="true", focusable="false")
    variable = posterior.variable
    (low, high), (left, right) = axis(variable, posterior, baseline), _span(posterior, baseline)
    # The first and the last bar stand inside the drawing, and labels in the middle below them.
    room = 200.0 * (low - left) / (right - left)
    style = f"width:{room:.1f}%" if room else None
    ends = [element("span", variable.show_number(end), style=style) for end in (low, high)]
    return concat(svg, element("div", *ends, class_="axis"))


def _span(posterior: Marginal, baseline: Marginal) -> tuple[float, float]:
    """The ends of a drawing: those of the axis, with room for half a bar on both sides."""
    low, high = axis(posterior.variable, posterior, baseline)
    values = few_values(baseline)
    half = 0.0 if values is None else float(np.diff(values).min()) / 2.0
    return low - half, high + half


def density_marks(posterior: Marginal, baseline: Marginal) -> list[Markup | None]:
    """The shapes of `density_drawing`; bars for numbers that take few values."""
    low, high = _span(posterior, baseline)
    values = few_values(baseline)

    def place(number: float) -> float:
        return round((number - low) / (high - low) * WIDTH, 2)

    shown = {"marginal": baseline} | ({} if posterior.given else {"posterior": posterior})
    marks: list[Markup | None] = []
    if values is None:
        heights = {kind: _heights(one, low, high) for kind, one in shown.items()}
        top = max(max(float(one.max()) for one in heights.values()), 1e-300) * 1.05
        marks += [_area(one / top, kind) for kind, one in heights.items()]
    else:
        shares = {kind: value_shares(one, values) for kind, one in shown.items()}
        top = max(max(float(one.max()) for one in shares.values()), 1e-300) * 1.05
        wide = min(0.7 * (place(values[1]) - place(values[0])), 24.0)
        marks += [_value_bars(values, one / top, wide, place, kind) for kind, one in shares.items()]
    if math.isfinite(posterior.low) and not posterior.given:
        ends = {"x1": place(posterior.low), "x2": place(posterior.high)}
        marks.append(element("line", **ends, y1=HEIGHT - 3, y2=HEIGHT - 3, class_="interval"))
    if math.isfinite(posterior.mean):
        x = place(posterior.mean)
        marks.append(element("line", x1=x, x2=x, y1=4, y2=HEIGHT - 1, class_="mean"))
    return marks


def few_values(one: Marginal) -> Array | None:
    """The values of a number that takes few of them, else None.

    Example:
        >>> doors = Variable("doors", "integer", "doors", 2.0, 5.0)
        >>> few_values(Marginal(doors, 3, draws=np.array([2.2, 3.9])))
        array([2., 3., 4., 5.])
    """
    variable = one.variable
    if variable.kind == "integer" and 0.0 < variable.high - variable.low < MOST_BARS:
        return np.arange(variable.low, variable.high + 1.0)
    values = np.unique(one.draws)
    if variable.kind == "choice" or not 0 < len(values) <= min(MOST_BARS, len(one.draws) // 4):
        return None
    # Rare values may be in no draw, but the least and the greatest are known.
    values = np.union1d(values, [variable.low, variable.high])
    return values if len(values) > 1 else None


def value_shares(one: Marginal, values: Array) -> Array:
    """The share of draws nearest to each value.

    Example:
        >>> doors = Variable("doors", "integer", "doors", 2.0, 5.0)
        >>> value_shares(Marginal(doors, 3, draws=np.array([2.2, 3.9])), np.array([2.0, 3.0, 4.0]))
        array([0.5, 0. , 0.5])
    """
    nearest = np.searchsorted((values[1:] + values[:-1]) / 2.0, one.draws)
    return np.bincount(nearest, minlength=len(values)) / max(len(one.draws), 1)


def _value_bars(
    values: Array, heights: Array, wide: float, place: Callable[[float], float], kind: str
) -> Markup:
    wide, base = wide * (1.0 if kind == "marginal" else 0.6), HEIGHT - 6
    bars = []
    for value, share in zip(values, heights * (base - 2), strict=True):
        box = {"x": round(place(value) - wide / 2, 2), "y": round(base - share, 2)}
        box |= {"width": round(wide, 2), "height": round(share, 2)}
        bars.append(element("rect", **box, class_=kind))
    return concat(*bars)


def _heights(one: Marginal, low: float, high: float) -> Array:
    if one.variable.idle or not len(one.draws):
        return np.zeros(POINTS)
    if len(one.draws) <= 2 and math.isfinite(one.std) and one.std > 0.0:
        places = np.linspace(low, high, POINTS)
        bell = np.exp(-0.5 * ((places - one.mean) / one.std) ** 2)
        return np.asarray(bell / (one.std * math.sqrt(2.0 * math.pi)))
    return _cached_density(np.ascontiguousarray(one.draws, np.float64).tobytes(), low, high)


@lru_cache(maxsize=1024)
def _cached_density(draws: bytes, low: float, high: float) -> Array:
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


def choice_bars(posterior: Marginal, baseline: Marginal, most: int = SHOWN_CATEGORIES) -> Markup:
    """Categories by probability, the probabilities to compare with as grey marks."""
    categories, shares = posterior.variable.categories, posterior.probabilities
    if posterior.variable.idle or len(shares) != len(categories):
        return element("div", class_="bars")
    order = np.argsort(-shares, kind="stable")[:most].tolist()
    rows = [element("div", *_bar(posterior, baseline, k), class_="bar") for k in order]
    more = len(categories) - len(order)
    rest = element("p", f"and {more} more", class_="note") if more else None
    return element("div", *rows, rest, class_="bars", aria_hidden="true")


def _bar(posterior: Marginal, baseline: Marginal, k: int) -> tuple[Markup, Markup, Markup]:
    """The name of a category, its two probabilities as bars, and its probability as text."""
    name, share = str(posterior.variable.categories[k]), float(posterior.probabilities[k])
    bars = (("marginal", float(baseline.probabilities[k])), ("posterior", share))
    track = [element("i", style=f"width:{100 * x:.1f}%", class_=kind) for kind, x in bars]
    return (
        element("span", name, class_="name", title=name),
        element("span", *track, class_="track"),
        element("span", percent(share), class_="share"),
    )


def latent_card(posterior: LatentMarginal, baseline: LatentMarginal) -> Markup:
    """The coordinates of a latent node as intervals, those to compare with in grey."""
    count, middle = len(posterior.mean), HEIGHT / 2.0
    reach = [np.abs(x.mean) + NORMAL_95 * np.nan_to_num(x.std) for x in (posterior, baseline)]
    top = max(float(np.max(reach)), 1e-9) * 1.05
    step = WIDTH / count

    def up(value: float) -> float:
        return round(middle - value / top * middle, 2)

    def bar(x: LatentMarginal, k: int, kind: str) -> Markup | None:
        if not np.isfinite(x.std[k]):
            return None
        half = NORMAL_95 * float(x.std[k])
        wide = min(0.6 * step, 10.0) * (1.0 if kind == "marginal" else 0.5)
        ends = up(x.mean[k] + half), up(x.mean[k] - half)
        box = {"x": round((k + 0.5) * step - wide / 2.0, 2), "y": ends[0]}
        box |= {"width": round(wide, 2), "height": round(max(ends[1] - ends[0], 1.0), 2)}
        return element("rect", **box, rx=min(wide / 2.0, 2.0), class_=kind)

    bars = [
        bar(x, k, kind)
        for x, kind in ((baseline, "marginal"), (posterior, "posterior"))
        for k in range(count)
    ]
    dots = [
        element("circle", cx=round((k + 0.5) * step, 2), cy=up(value), r=2, class_="dot")
        for k, value in enumerate(posterior.mean.tolist())
    ]
    zero = element("line", x1=0, x2=WIDTH, y1=middle, y2=middle, class_="zero")
    box = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "class_": "density latent"}
    words = ", ".join(f"{x:.3g}" for x in posterior.mean[:8])
    return element(
        "div",
        element("h3", posterior.node),
        element("p", element("span", f"{count} coordinates"), class_="headline"),
        element("svg", zero, *bars, *dots, **box, aria_hidden="true"),
        class_="card still",
        role="group",
        aria_label=f"latent node {posterior.node}: means {words}",
    )


MOST_CARDS, MOST_OPTIONS, MOST_LATENT = 100, 500, 12
"""Cards, categories of a list, and latent nodes that are shown at most, which bounds
the size of the page; other names are found by searching."""


def answers(
    answered: Answered,
    baseline: Answered | None = None,
    search: str = "",
    selected: str | None = None,
    revision: int = 0,
    rows: int = 0,
) -> Markup:
    """Cards of all variables, of latent nodes, and a picture where the columns are pixels.

    They are compared with a baseline, None for the answer without evidence. Controls of the
    selected variable stay as they are within a revision. `rows` is the length of the open table.
    """
    names = choose_names(answered, selected, search)
    before = baseline or answered.marginal
    editors = {} if selected is None else {selected: editor(answered, selected, revision, rows)}
    cards = [card(answered[name], before[name], editors.get(name), answered.word) for name in names]
    columns = len(answered.variables)
    is_part = 0 < len(names) < columns
    note = f"{len(names)} of {columns} columns; search for others" if is_part else None
    return concat(
        picture(answered),
        element("div", *cards, class_="cards"),
        element("p", note, class_="note") if note else None,
        latent_section(answered, before),
    )


def choose_names(answered: Answered, selected: str | None, search: str) -> list[str]:
    """Which variables get a card: those searched for; else as many as fit, the selected leaf's."""
    variables = answered.model.variables
    names = list(variables)
    if answered.model.picture is not None and not search:
        return [] if selected is None else [selected]
    if search:
        return [name for name in names if search.lower() in name.lower()][:MOST_CARDS]
    if len(names) <= MOST_CARDS:
        return names
    leaf = "" if selected is None else variables[selected].leaf
    near = [name for name in names if variables[name].leaf == leaf]
    wanted = list(dict.fromkeys([*near, *answered.evidence, *names]))[:MOST_CARDS]
    return [name for name in names if name in set(wanted)]


def latent_section(answered: Answered, baseline: Answered) -> Markup | None:
    """The states of latent nodes."""
    nodes, before = list(answered.latent), baseline.latent
    # The families of a known network are a means of computing; its users did not name them.
    if not nodes or answered.model.graph.network is not None:
        return None
    cards = [latent_card(answered.latent[node], before[node]) for node in nodes[:MOST_LATENT]]
    more = len(nodes) - MOST_LATENT
    return element(
        "section",
        element("h2", "Latent nodes"),
        element("div", *cards, class_="cards"),
        element("p", f"and {more} more latent nodes", class_="note") if more > 0 else None,
        class_="latent-nodes",
    )


def picture(answered: Answered) -> Markup | None:
    """The image that is expected, and what was given of it, to paint on."""
    shape = answered.model.picture
    if shape is None:
        return None
    expected, known = pixels_of(answered)
    shown = stretch(expected).reshape(shape)
    paper = element("canvas", width=shape[1], height=shape[0], data_paint="yes", role="img",
                    aria_label="given pixels; draw to set them")  # fmt: skip
    image = element("img", src=png(shown, known.reshape(shape)), alt="the given pixels")
    inks = [
        element("label", element("input", type="radio", name="ink", value=ink, checked=not k), ink)
        for k, ink in enumerate(("white", "black", "unknown"))
    ]
    whole = element("img", src=png(shown), alt="the expected image")
    return element(
        "div",
        element("figure", element("div", image, paper, class_="paper"),
                element("figcaption", "draw in ", *inks, class_="inks")),
        element("figure", whole, element("figcaption", "expected by the model")),
        class_="pictures large",
    )  # fmt: skip


def pixels_of(answered: Answered) -> tuple[Array, Array]:
    """The expected value of every pixel, of those that are given their value; and which are."""
    names = answered.variables
    given = np.array([one.given for one in names.values()])
    values = [float(answered.evidence.get(name, np.nan)) for name in names]
    return np.where(given, values, answered.model.expected_pixels(answered)), given


def evidence_list(answered: Answered, target: str | None = None) -> Markup:
    """What is given, each with how far it moved the answers or that of one target."""
    if not answered.evidence:
        words = "No evidence yet: the cards show the marginal distributions."
        return element("p", words, class_="note")
    ranked = answered.rank_evidence(target)
    strongest = max((moved for _, moved, _ in ranked), default=0.0) or 1.0
    items = [_evidence_item(answered, *row, row[1] / strongest, target) for row in ranked]
    listed = element("ul", *items, class_="evidence", aria_label="Evidence, the strongest first")
    listed = concat(listed, *(element("p", note, class_="note warning") for note in answered.notes))
    if answered.intervened:
        return listed
    likely = answered.model.log_prob(answered.evidence)
    words = "" if likely is None else f"log p of the evidence: {format_number(likely, 2)}"
    return concat(
        listed,
        element("p", words, class_="note", title="log-density; of categories log-probability"),
    )


def introduction(model: OpenModel) -> Markup:
    """What the page does, in two sentences, and a question that is answered already."""
    words = (
        "Set what you know on any card, and every other card shows what follows from it. "
        "Grey is what is expected without evidence."
    )
    if model.picture is not None:
        words = (
            "Draw the pixels that you know on the first picture. "
            "The second shows what the model expects."
        )
    if model.example is None:
        return element("p", words, class_="introduction")
    name, target = next(iter(model.example.evidence)), model.example.rank_evidence()[0][2]
    answer, before = model.example[target], model.marginal[target].text
    comma = "" if answer.variable.kind == "choice" else ","
    said = f"{answer.text}{comma} {spread_text(answer)} (without evidence {before})"
    evidence = json.dumps({key: str(value) for key, value in model.example.evidence.items()})
    return element(
        "p", words, " For example, if ", element("strong", name),
        f" is {model.example[name].text}, then ", element("strong", target), f" is {said}. ",
        element("button", "Try it", type="button", data_evidence=evidence), class_="introduction",
    )  # fmt: skip


def _evidence_item(
    answered: Answered, name: str, moved: float, most: str, share: float, target: str | None
) -> Markup:
    is_column = name in answered.evidence
    value = answered[name].text if is_column else "its values"
    words = f"moved {most} most" if most else "nothing left to move"
    if target is not None and target not in answered.evidence:
        is_choice = answered[target].variable.kind == "choice"
        by = f"{percent(moved)} of probability" if is_choice else f"{moved:.2g} deviations"
        words = f"moved {target} by {by}"
    warning = outside(answered[name]) if is_column else ""
    select = {"type": "button", "data_select": name if is_column else None}
    remove = {"type": "button", "class_": "quiet", "data_remove": name}
    bar = element("i", style=f"width:{100 * share:.1f}%")
    hint = f"answers moved by {moved:.3g} standard deviations on average"
    return element(
        "li",
        element("button", element("strong", name), f" = {value}", **select),
        element("button", "×", **remove, aria_label=f"Remove {name}"),
        element("span", bar, class_="influence", title=hint),
        element("span", words, class_="note", title=words),
        element("span", warning, class_="note warning") if warning else None,
    )


def editor(answered: Answered, name: str, revision: int = 0, rows: int = 0) -> Markup:
    """Controls that set the value of one variable."""
    model = answered.model
    variable = model.variables[name]
    siblings = model.variables_of(variable.leaf)
    is_choice = variable.kind == "choice"
    if variable.idle:
        control = element(
            "p", "This column was constant in training, so it cannot be evidence.", class_="note"
        )
    else:
        control = (_categories if is_choice else _control)(answered, name)
    return element(
        "div",
        _picker(siblings, name) if len(siblings) > 1 else None,
        control,
        _from_row(variable.leaf, rows) if rows and not variable.idle else None,
        class_="editor",
        # In a list of categories nothing is being typed, so it follows every answer.
        data_key=f"{name} {rows} {revision} {answered[name].value if is_choice else ''}",
    )


def _categories(answered: Answered, name: str) -> Markup:
    """All categories by probability, each a button that gives it."""
    posterior, before = answered[name], answered.marginal[name]
    # A category that is given has all probability, which says nothing about the others.
    ranked = before if name in answered.evidence else posterior
    order = np.argsort(-ranked.probabilities, kind="stable")[:MOST_OPTIONS].tolist()
    options = [
        element(
            "button", *_bar(posterior, before, k), type="button", class_="bar",
            aria_pressed=str(posterior.given and posterior.probabilities[k] == 1.0).lower(),
            data_set=name, data_value=k,
        )
        for k in order
    ]  # fmt: skip
    return element("div", *options, class_="bars options")


def _control(answered: Answered, name: str) -> Markup:
    """A slider over the range in training, and a field that takes any value."""
    variable, evidence = answered.model.variables[name], answered.evidence
    value = evidence.get(name, variable.value_of(answered.marginal[name].mean))
    text = f"{float(value):.6g}" if variable.kind == "number" else str(value)
    is_date = variable.kind == "date"
    slider = element(
        "input", type="range", min=variable.low, max=variable.high,
        step="any" if variable.kind == "number" else 1,
        # A slider cannot show what lies outside its range, the field beside it can.
        value=min(max(variable.number_of(value), variable.low), variable.high),
        aria_label=f"{name}, slider", data_slide=name, data_step=variable.step,
        data_kind=variable.kind,
    )  # fmt: skip
    field = element(
        "input", type="text", inputmode="text" if is_date else "decimal",
        value=text if name in evidence else "", placeholder=text, aria_label=f"{name}, value",
        autocomplete="off", data_type=name,
    )  # fmt: skip
    return element("div", slider, field, class_="control")


def _picker(siblings: Sequence[Variable], selected: str) -> Markup:
    options = [
        element("option", v.name, value=v.name, selected=v.name == selected)
        for v in siblings[:MOST_OPTIONS]
    ]
    return element("label", element("span", "Column"), element("select", *options, data_pick="yes"))


def _from_row(leaf: str, rows: int) -> Markup:
    row = element("input", type="number", min=1, max=rows, value=1, class_="row-of-table")
    return element(
        "div",
        element("label", element("span", "Row of the table"), row),
        element("button", f"Take {leaf} from it", type="button", data_row_leaf=leaf),
        class_="from-row",
    )


def code(python: str, command: str) -> Markup:
    """The question as Python and as a line for a shell, each with a button that copies it."""
    return concat(*[
        element(
            "div",
            element(
                "div",
                element("span", what),
                element("button", "Copy", type="button", data_copy=key, aria_label=f"Copy {what}"),
                class_="code-head",
            ),
            element("pre", element("code", text, id=f"code-{key}")),
            class_="code",
        )
        for what, key, text in (("Python", "python", python), ("Command line", "shell", command))
    ])  # fmt: skip


def style(*names: str) -> Markup:
    """Style sheets of the page, as they lie in the package."""
    folder = files("vfg.studio") / "assets"
    return Markup("\n".join((folder / name).read_text(encoding="utf-8") for name in names))


def widget(answered: Answered) -> str:
    """The cards for a notebook."""
    sheet = element("style", style("cards.css"))
    return element("div", sheet, answers(answered), class_="vfg-cards")


def export_page(answered: Answered) -> str:
    """A whole page with a question, its answer and the code for it."""
    model = answered.model
    body = element(
        "main",
        element("h1", "What the model answers"),
        element("p", f"{model.file} · {model.summary}", class_="note"),
        element("h2", "When setting" if answered.intervened else "Given"),
        evidence_list(answered),
        element("h2", "Then"),
        answers(answered),
        element("h2", "The same question as code"),
        code(answered.python(), answered.command()),
        class_="vfg-cards export",
    )
    # Buttons have no effect in a file.
    quiet = Markup(
        ".export button{pointer-events:none}.export [data-copy],.export [data-remove]{display:none}"
    )
    return "<!doctype html>" + element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", "An answered question"),
            element("style", style("cards.css"), quiet),
        ),
        element("body", body, class_="export-body"),
        lang="en",
    )
