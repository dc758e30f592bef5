"""The state of the Ask page: what an action changes, and what is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vfg.inference.variables import Value
from vfg.studio.asking.cards import answers, code, editor, evidence_list
from vfg.studio.asking.model import OpenModel

Action = Mapping[str, Any]
RowOf = Callable[[int], Mapping[str, Value]]
"""The evidence that a row of the table at hand gives, by its number from 1 on."""
Pairs = tuple[tuple[str, Value], ...]
MOST_UNDO = 100


@dataclass(frozen=True)
class Question:
    """Evidence in the order in which it was given, and what it was before.

    Args:
        evidence: names and values.
        past: earlier evidence, the latest last.
        last: the name whose value was set last; setting it again is no step of its own, so that
            dragging a slider is undone at once.

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
        changed = tuple((self.given | {name: value}).items())
        past = self.past if self.last == name else self._remembered
        return Question(changed, past, name)

    def take(self, name: str) -> Question:
        """Take evidence back; nothing happens if there was none."""
        left = tuple((key, value) for key, value in self.evidence if key != name)
        return self if left == self.evidence else Question(left, self._remembered)

    def clear(self) -> Question:
        """Take all evidence back."""
        return Question((), self._remembered) if self.evidence else self

    def undo(self) -> Question:
        """The question before the last change."""
        return Question(self.past[-1], self.past[:-1]) if self.past else replace(self, last=None)

    @property
    def _remembered(self) -> tuple[Pairs, ...]:
        return (*self.past, self.evidence)[-MOST_UNDO:]

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
class State:
    """The state of the page.

    Args:
        question: the evidence.
        selected: the variable whose value is being set.
        search: what the cards are searched for.
        revision: counts changes that controls on the page have to follow.
        error: what went wrong last, in a sentence.
    """

    question: Question = field(default_factory=Question)
    selected: str | None = None
    search: str = ""
    revision: int = 0
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {**vars(self), "question": self.question.to_dict()}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> State:
        """The inverse of `to_dict`."""
        return cls(**{**description, "question": Question.from_dict(description["question"])})


def update(model: OpenModel, state: State, action: Action, row_of: RowOf | None = None) -> State:
    """The state after an action; an impossible one changes nothing but the message.

    Args:
        model: the model.
        state: before the action.
        action: its `kind` is one of `set`, `remove`, `clear`, `undo`, `select`, `leaf`, `find`,
            `row`.
        row_of: where a row of evidence comes from.
    """
    try:
        return replace(_apply(model, state, action, row_of), error="")
    except ValueError as error:
        return replace(state, error=str(error))


def _apply(model: OpenModel, state: State, action: Action, row_of: RowOf | None) -> State:
    kind, question = action["kind"], state.question
    if kind == "set":
        variable = model.variable(action["name"])
        if variable.idle:
            raise ValueError(
                f"{variable.name!r} never varied in training, so it carries no information"
            )
        text = action["value"]
        value = variable.categories[int(text)] if action.get("choice") else variable.parse(text)
        return replace(state, question=question.give(variable.name, value), selected=variable.name)
    if kind == "remove":
        left = question
        for name in _variable_names(model, action["name"]):
            left = left.take(name)
        return _advance(state, question=left)
    if kind in ("clear", "undo"):
        return _advance(state, question=question.clear() if kind == "clear" else question.undo())
    if kind == "select":
        name = model.variable(action["name"]).name
        # What is typed into the editor stays, if it is of the same variable.
        return state if name == state.selected else _advance(state, selected=name)
    if kind == "leaf":
        held = model.variables_of(action["name"])
        return _advance(state, selected=held[0].name) if held else state
    if kind == "find":
        return replace(state, search=str(action["text"]))
    if kind == "row":
        return _from_row(model, state, action, row_of)
    raise ValueError(f"the page cannot do {kind!r}")


def _advance(state: State, **changes: Any) -> State:
    return replace(state, revision=state.revision + 1, **changes)


def _variable_names(model: OpenModel, name: str) -> list[str]:
    """One variable, or all of a leaf."""
    return [name] if name in model.variables else [v.name for v in model.variables_of(name)]


def _from_row(model: OpenModel, state: State, action: Action, row_of: RowOf | None) -> State:
    if row_of is None:
        raise ValueError("there is no table to take a row from; open one under Fill")
    row = row_of(int(action["row"]))
    question = state.question
    for variable in model.variables_of(action["leaf"]):
        if variable.name in row:
            question = question.give(variable.name, row[variable.name])
    return _advance(state, question=replace(question, last=None))


def render(model: OpenModel, state: State, rows: int = 0) -> dict[str, Any]:
    """What the page shows, as HTML by the place where it belongs.

    Args:
        model: the model.
        state: of the page.
        rows: of the table at hand.
    """
    given = state.question.given
    answered = model.ask(given)
    selected = state.selected
    target = selected if selected is not None and selected not in given else None
    chosen = "" if selected is None else model.variables[selected].leaf
    return {
        "answers": answers(answered, selected, state.search),
        "evidence": evidence_list(answered),
        "editor": editor(model, given, selected, rows),
        # Controls are not replaced while in use.
        "editor_key": f"{selected} {state.revision} {rows}",
        "code": code(answered.python(target), answered.command(target)),
        "error": state.error,
        "given": list(dict.fromkeys(model.variables[name].leaf for name in given)),
        "chosen": chosen,
        "can_undo": bool(state.question.past),
        "status": f"Answers given {len(given)} value{'' if len(given) == 1 else 's'}",
    }
