"""The parts of the Ask page as HTML, the same for the page, a notebook and a file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from vfg.inference.variables import Array, Value, Variable
from vfg.studio.cards import card, latent_card
from vfg.studio.markup import Markup, element, joined
from vfg.studio.pictures import levelled, png

if TYPE_CHECKING:
    from vfg.studio.asking import Answered, OpenModel

MOST_CARDS = 60
MOST_OPTIONS = 500
MOST_LATENT = 12


def answers(answered: Answered, selected: str | None = None, search: str = "") -> Markup:
    """Cards of all variables, of latent nodes, and a picture where the columns are pixels."""
    names = shown_names(answered, selected, search)
    before = answered.marginal.variables
    cards = [
        card(answered.variables[name], before[name], selected=name == selected) for name in names
    ]
    columns = len(answered.variables)
    note = f"{len(names)} of {columns} columns; search for others" if len(names) < columns else None
    return joined(
        picture(answered),
        element("div", *cards, class_="cards"),
        element("p", note, class_="note") if note else None,
        latent_section(answered),
    )


def shown_names(answered: Answered, selected: str | None, search: str) -> list[str]:
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
    shown = known * (0.25 + 0.75 * levelled(expected))
    pictures = [("given", shown), ("expected", levelled(expected))]
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
            "p", "Nothing is given yet: the cards show what the model knows beforehand.",
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
        model: what is asked.
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
        element("p", "This column never varied, so that it tells nothing.", class_="note")
        if variable.idle
        else _control(model, variable, evidence)
    )
    return joined(
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
    return joined(*[
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
    # The buttons of the page have nobody to talk to in a file.
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
