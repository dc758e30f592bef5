"""The Ask page as HTML: cards, evidence, editor, code; the same in a notebook and in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from vfg.inference.variables import Array, Marginal, Value, Variable, percent
from vfg.studio.markup import Markup, concat, element, png, stretch

if TYPE_CHECKING:
    from vfg.studio.asking.model import Answered, OpenModel


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
    """The posterior of one variable, beside its marginal distribution.

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
    return concat(_svg(*marks), ends_shown)


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


MOST_CARDS = 60
MOST_OPTIONS = 500
MOST_LATENT = 12


def answers(answered: Answered, selected: str | None = None, search: str = "") -> Markup:
    """Cards of all variables, of latent nodes, and a picture where the columns are pixels."""
    names = choose_names(answered, selected, search)
    before = answered.marginal.variables
    cards = [
        card(answered.variables[name], before[name], selected=name == selected) for name in names
    ]
    columns = len(answered.variables)
    note = f"{len(names)} of {columns} columns; search for others" if len(names) < columns else None
    return concat(
        picture(answered),
        element("div", *cards, class_="cards"),
        element("p", note, class_="note") if note else None,
        latent_section(answered),
    )


def choose_names(answered: Answered, selected: str | None, search: str) -> list[str]:
    """Which variables get a card: those searched for; else as many as fit, the selected leaf's."""
    variables = answered.model.variables
    names = list(variables)
    if search:
        return [name for name in names if search.lower() in name.lower()][:MOST_CARDS]
    if len(names) <= MOST_CARDS:
        return names
    leaf = "" if selected is None else variables[selected].leaf
    near = [name for name in names if variables[name].leaf == leaf]
    wanted = dict.fromkeys([*near, *answered.evidence, *names][:MOST_CARDS])
    return [name for name in names if name in wanted]


def latent_section(answered: Answered) -> Markup | None:
    """The states of latent nodes."""
    nodes, before = list(answered.latent), answered.marginal.latent
    if not nodes:
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
    """The image that is expected, and what was given of it."""
    shape = answered.model.picture
    if shape is None:
        return None
    expected, known = pixels_of(answered)
    shown = known * (0.25 + 0.75 * stretch(expected))
    pictures = [("given", shown), ("expected", stretch(expected))]
    return element(
        "div",
        *[
            element(
                "figure",
                element("img", src=png(values.reshape(shape)), alt=f"the {what} image"),
                element("figcaption", what),
            )
            for what, values in pictures
        ],
        class_="pictures",
    )


def pixels_of(answered: Answered) -> tuple[Array, Array]:
    """The expected value of every pixel, and which are given."""
    expected, known = [], []
    for one in answered.variables.values():
        is_choice = one.variable.kind == "choice"
        expected.append(one.probabilities[-1] if is_choice else one.mean)
        known.append(one.given)
    return np.array(expected, dtype=float), np.array(known, dtype=float)


def evidence_list(answered: Answered) -> Markup:
    """What is given, each with how far it moved the answers, the strongest marked."""
    if not answered.evidence:
        return element(
            "p", "No evidence yet: the cards show the marginal distributions.",
            class_="note",
        )  # fmt: skip
    ranked = answered.ranked()
    strongest = max((moved for _, moved, _ in ranked), default=0.0) or 1.0
    items = [
        _evidence_item(answered, name, moved, moved / strongest, most)
        for name, moved, most in ranked
    ]
    return element("ul", *items, class_="evidence", aria_label="Evidence, the strongest first")


def _evidence_item(answered: Answered, name: str, moved: float, share: float, most: str) -> Markup:
    is_column = name in answered.evidence
    value = answered[name].text if is_column else "its values"
    words = f"moved {most} most" if most else "nothing left to move"
    return element(
        "li",
        element(
            "button",
            element("strong", name),
            f" = {value}",
            type="button",
            data_select=name if is_column else None,
        ),
        element(
            "button", "×", type="button", class_="quiet", data_remove=name,
            aria_label=f"Remove {name}",
        ),
        element(
            "span",
            element("i", style=f"width:{100 * share:.1f}%"),
            class_="influence",
            title=f"answers moved by {moved:.3g} deviations on average",
        ),
        element("span", words, class_="note", title=words),
    )  # fmt: skip


def editor(
    model: OpenModel, evidence: Mapping[str, Value], selected: str | None, rows: int = 0
) -> Markup:
    """Controls that set the value of one variable.

    Args:
        model: the model.
        evidence: what is given already.
        selected: the variable.
        rows: of the table at hand, from which a leaf's values can be taken.
    """
    if selected is None:
        return element(
            "p", "Choose a leaf of the graph, or a card, to set its value.", class_="note"
        )
    variable = model.variables[selected]
    siblings = model.variables_of(variable.leaf)
    pick = _picker(siblings, selected) if len(siblings) > 1 else None
    control = (
        element("p", "This column never varied, so it carries no information.", class_="note")
        if variable.idle
        else _control(model, variable, evidence)
    )
    return concat(
        element("h2", "Set ", element("em", selected)),
        pick,
        control,
        _from_row(variable.leaf, rows) if rows and not variable.idle else None,
    )


def _control(model: OpenModel, variable: Variable, evidence: Mapping[str, Value]) -> Markup:
    name = variable.name
    if variable.kind == "choice":
        options = [element("option", "not given", value="")]
        for k, category in enumerate(variable.categories[:MOST_OPTIONS]):
            chosen = name in evidence and evidence[name] == category
            options.append(element("option", str(category), value=k, selected=chosen))
        return element(
            "label", element("span", "Value"), element("select", *options, data_choice=name)
        )
    value = evidence.get(name, variable.value_of(model.marginal[name].mean))
    place = variable.number_of(value)
    # A slider cannot show what lies outside its range, the field beside it can.
    slider = element(
        "input",
        type="range",
        min=variable.low,
        max=variable.high,
        step="any" if variable.kind == "number" else 1,
        value=min(max(place, variable.low), variable.high),
        aria_label=f"{name}, slider",
        data_slide=name,
        data_step=variable.step,
        data_kind=variable.kind,
    )
    field = element(
        "input",
        type="text",
        inputmode="text" if variable.kind == "date" else "decimal",
        value=_plain(variable, value) if name in evidence else "",
        placeholder=_plain(variable, value),
        aria_label=f"{name}, value",
        autocomplete="off",
        data_type=name,
    )
    ends = element(
        "div",
        element("span", variable.show_number(variable.low)),
        element("span", variable.show_number(variable.high)),
        class_="axis",
    )
    return element("div", element("div", slider, ends, class_="slider"), field, class_="control")


def _plain(variable: Variable, value: Value) -> str:
    if variable.kind == "number":
        return f"{float(value):.6g}"
    return str(value)


def _picker(siblings: Sequence[Variable], selected: str) -> Markup:
    options = [
        element("option", v.name, value=v.name, selected=v.name == selected)
        for v in siblings[:MOST_OPTIONS]
    ]
    return element("label", element("span", "Column"), element("select", *options, data_pick="yes"))


def _from_row(leaf: str, rows: int) -> Markup:
    return element(
        "div",
        element(
            "label",
            element("span", "Row of the table"),
            element("input", type="number", min=1, max=rows, value=1, id="row-of-table"),
        ),
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
        element("h2", "Given"),
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
