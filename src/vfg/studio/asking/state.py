"""The state of the Ask page: what an action changes, and what is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vfg.inference.variables import Value
from vfg.studio.asking.cards import answers, code, evidence_list, introduction
from vfg.studio.asking.graph_drawing import graph_svg, node_details, view_of
from vfg.studio.asking.model import OpenModel

Action = Mapping[str, Any]
RowOf = Callable[[int], Mapping[str, Value]]
"""The evidence that a row of the table at hand gives, by its number from 1 on."""
Pairs = tuple[tuple[str, Value], ...]
MOST_UNDO = 100
"""Steps that can be taken back; the page sends all of them with every action."""
OBSERVING = "Values are observed: they change what is expected of causes and of effects."
SETTING = "Values are set from outside: effects follow, causes stay as they were."
SMALL, NARROW, LARGE = 380.0, 460.0, 1000.0
"""Widths of the small drawing of the graph, and of the large one in narrow and wide windows."""


@dataclass(frozen=True)
class Question:
    """Evidence in the order in which it was given, and what it was before, the latest last.

    Setting the `last` name again is no step of its own: dragging a slider is undone at once.

    Example:
        >>> question = Question().give("age", 40).give("age", 41).give("city", "Bern")
        >>> question.given, question.undo().given
        ({'age': 41, 'city': 'Bern'}, {'age': 41})
    """

    evidence: Pairs = ()
    past: tuple[Pairs, ...] = ()
    last: str | None = None

    @property
    def given(self) -> dict[str, Value]:
        """The evidence by name."""
        return dict(self.evidence)

    def give(self, name: str, value: Value) -> Question:
        """Set the value of a variable."""
        changed = self.replace(self.given | {name: value})
        return replace(changed, past=self.past if self.last == name else changed.past, last=name)

    def take(self, name: str) -> Question:
        """Take evidence back."""
        return self.replace({key: value for key, value in self.evidence if key != name})

    def replace(self, given: Mapping[str, Value]) -> Question:
        """Other evidence, in one step; nothing happens if it is the same."""
        pairs = tuple(given.items())
        past = (*self.past, self.evidence)[-MOST_UNDO:]
        return self if pairs == self.evidence else Question(pairs, past)

    def undo(self) -> Question:
        """The question before the last change."""
        return Question(self.past[-1], self.past[:-1]) if self.past else replace(self, last=None)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {"evidence": self.evidence, "past": self.past, "last": self.last}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Question:
        """The inverse of `to_dict`."""
        past = tuple(_pairs(step) for step in description["past"])
        return cls(_pairs(description["evidence"]), past, description["last"])


def _pairs(listed: Any) -> Pairs:
    return tuple((name, value) for name, value in listed)


@dataclass(frozen=True)
class PageState:
    """The state of the page."""

    question: Question = field(default_factory=Question)
    selected: str | None = None  # the variable whose value is being set
    search: str = ""
    revision: int = 0  # counts changes that controls on the page have to follow
    error: str = ""  # what went wrong last, in a sentence
    node: str = ""  # whose details are shown
    expanded: tuple[str, ...] = ()  # groups that are shown leaf by leaf
    baseline: Pairs | None = None  # evidence to compare with; None for no evidence
    intervening: bool = False  # whether values are set, rather than observed
    baseline_intervenes: bool = False  # the same for what is compared with
    narrow: bool = False  # whether the window is that of a phone

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {**vars(self), "question": self.question.to_dict()}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> PageState:
        """The inverse of `to_dict`."""
        baseline = description["baseline"]
        changed = {
            "question": Question.from_dict(description["question"]),
            "expanded": tuple(description["expanded"]),
            "baseline": None if baseline is None else _pairs(baseline),
        }
        return cls(**{**description, **changed})


def update(
    model: OpenModel, state: PageState, action: Action, row_of: RowOf | None = None
) -> PageState:
    """The state after an action; an impossible one changes nothing but the message."""
    try:
        return replace(_apply(model, state, action, row_of), error="")
    except ValueError as error:
        return replace(state, error=str(error))


def _apply(model: OpenModel, state: PageState, action: Action, row_of: RowOf | None) -> PageState:
    kind, question = action["kind"], state.question
    if kind == "set":
        return _set(model, state, action)
    if kind == "remove":
        name = action["name"]
        names = [name] if name in model.variables else [v.name for v in model.variables_of(name)]
        for name in names:
            question = question.take(name)
        return _advance(state, question=question)
    if kind in ("clear", "undo"):
        return _advance(
            state, question=question.replace({}) if kind == "clear" else question.undo()
        )
    if kind == "select":
        name = "" if not action["name"] else model.variable(action["name"]).name
        # What is typed into the editor stays, if it is of the same variable.
        return state if name == state.selected else _advance(state, selected=name or None)
    if kind == "node":
        return _show_node(model, state, action["name"])
    if kind == "find":
        return replace(state, search=str(action["text"]))
    if kind == "paint":
        return _paint(model, state, action)
    if kind == "row":
        return _from_row(model, state, action, row_of)
    if kind == "load":
        return _load(model, state, action)
    if kind == "compare":
        baseline = None if state.baseline is not None else question.evidence
        return replace(state, baseline=baseline, baseline_intervenes=state.intervening)
    if kind == "window":
        return replace(state, narrow=bool(action["narrow"]))
    if kind in ("observe", "intervene"):
        if kind == "intervene":
            model.check_network()
        return _advance(state, intervening=kind == "intervene")
    raise ValueError(f"the page cannot do {kind!r}")


def _set(model: OpenModel, state: PageState, action: Action) -> PageState:
    variable = model.variable(action["name"])
    if variable.idle:
        raise ValueError(f"{variable.name!r} was constant in training, so it cannot be evidence")
    text, given = action["value"], state.question.given
    value = variable.categories[int(text)] if action.get("choice") else variable.parse(text)
    if action.get("choice") and given.get(variable.name) == value:
        return _advance(state, question=state.question.take(variable.name))
    question = state.question.give(variable.name, value)
    return replace(state, question=question, selected=variable.name)


def _show_node(model: OpenModel, state: PageState, name: str) -> PageState:
    """Show a node; a group of leaves is opened, and so is the one that hides the node."""
    groups = view_of(model.graph, state.expanded).groups
    opened = [group for group, members in groups.items() if name == group or name in members]
    state = replace(state, expanded=(*state.expanded, *opened))
    if name in groups:
        return state
    held = model.variables_of(model.graph.node(name).name)
    chosen = held[0].name if held else state.selected
    return _advance(state, selected=chosen, node=name) if chosen else replace(state, node=name)


def _advance(state: PageState, **changes: Any) -> PageState:
    return replace(state, revision=state.revision + 1, **changes)


def _from_row(
    model: OpenModel, state: PageState, action: Action, row_of: RowOf | None
) -> PageState:
    if row_of is None:
        raise ValueError("there is no table to take a row from; open one under Fill")
    row = row_of(int(action["row"]))
    question = state.question
    for variable in model.variables_of(action["leaf"]):
        if variable.name in row:
            question = question.give(variable.name, row[variable.name])
    return _advance(state, question=replace(question, last=None))


def _paint(model: OpenModel, state: PageState, action: Action) -> PageState:
    """Pixels by position, in one step: white, black or unknown."""
    given, names = state.question.given, list(model.variables)
    for place in action["pixels"]:
        variable = model.variables[names[int(place)]]
        given.pop(variable.name, None)
        if action["ink"] != "unknown" and not variable.idle:
            ends = (
                variable.categories if variable.kind == "choice" else (variable.low, variable.high)
            )
            given[variable.name] = ends[-1] if action["ink"] == "white" else ends[0]
    return _advance(state, question=state.question.replace(given))


def _load(model: OpenModel, state: PageState, action: Action) -> PageState:
    """The evidence of an address or of a saved case."""
    values = action["evidence"].items()
    given = {name: model.variable(name).parse(value) for name, value in values}
    return _advance(state, question=state.question.replace(given), selected=None)


def render(
    model: OpenModel, state: PageState, rows: int = 0, distances: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """What the page shows, as HTML by the place where it belongs."""
    given, selected = state.question.given, state.selected
    answered = model.ask(given, intervene=state.intervening)
    baseline = model.marginal
    if state.baseline is not None:
        baseline = model.ask(dict(state.baseline), intervene=state.baseline_intervenes)
    target = selected if selected is not None and selected not in given else None
    leaf = "" if selected is None else model.variables[selected].leaf
    return {
        "answers": answers(answered, baseline, state.search, selected, state.revision, rows),
        "introduction": "" if given or state.search else introduction(model),
        "evidence": evidence_list(answered, target),
        "code": code(answered.python(target), answered.command(target)),
        "graph": graph_svg(answered, SMALL, leaf, state.expanded, distributions=False),
        "large": graph_svg(answered, NARROW if state.narrow else LARGE, state.node, state.expanded),
        "node": node_details(model, state.node, distances or {}) if state.node else "",
        "error": state.error,
        "values": {name: str(value) for name, value in given.items()},
        "chosen": state.node,
        "baseline": baseline_text(state.baseline, state.baseline_intervenes),
        "mode": "intervene" if state.intervening else "observe",
        "narrow": state.narrow,
        "meaning": SETTING if state.intervening else OBSERVING,
        "compared": state.baseline is not None,
        "can_undo": bool(state.question.past),
        "status": f"Answers {'when setting' if state.intervening else 'given'} {len(given)} "
        f"value{'' if len(given) == 1 else 's'}",
    }


def baseline_text(baseline: Pairs | None, intervenes: bool = False) -> str:
    """What the grey distributions are given.

    Example:
        >>> baseline_text((("age", 40), ("city", "Bern")))
        'given age = 40, city = Bern'
    """
    if not baseline:
        return "without evidence"
    word = "when setting " if intervenes else "given "
    return word + ", ".join(f"{name} = {value}" for name, value in baseline)
