"""The Ask page as a pure function: what somebody did and how things stood, to how they stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .asking import Answered, Question
from .pages import answers, code, editor, evidence_list
from .subjects import Subject
from .variables import Value

Action = Mapping[str, Any]
RowOf = Callable[[int], Mapping[str, Value]]
"""The evidence that a row of the table at hand gives, by its number from 1 on."""


@dataclass(frozen=True)
class State:
    """How the page stands.

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


def act(subject: Subject, state: State, action: Action, row_of: RowOf | None = None) -> State:
    """How things stand after an action; an impossible one changes nothing but the message.

    Args:
        subject: what is asked.
        state: how things stood.
        action: its `kind` is one of `set`, `remove`, `clear`, `undo`, `select`, `leaf`, `find`,
            `row`.
        row_of: where a row of evidence comes from.
    """
    try:
        return replace(_acted(subject, state, action, row_of), error="")
    except ValueError as error:
        return replace(state, error=str(error))


def _acted(subject: Subject, state: State, action: Action, row_of: RowOf | None) -> State:
    kind, question = action["kind"], state.question
    if kind == "set":
        variable = subject.variable(action["name"])
        if variable.idle:
            raise ValueError(f"{variable.name!r} never varied in training, so it tells nothing")
        text = action["value"]
        value = variable.categories[int(text)] if action.get("choice") else variable.parse(text)
        return replace(state, question=question.give(variable.name, value), selected=variable.name)
    if kind == "remove":
        left = question
        for name in _named(subject, action["name"]):
            left = left.take(name)
        return _followed(state, question=left)
    if kind in ("clear", "undo"):
        return _followed(state, question=question.clear() if kind == "clear" else question.undo())
    if kind == "select":
        name = subject.variable(action["name"]).name
        # What is typed into the editor stays, if it is of the same variable.
        return state if name == state.selected else _followed(state, selected=name)
    if kind == "leaf":
        held = subject.variables_of(action["name"])
        return _followed(state, selected=held[0].name) if held else state
    if kind == "find":
        return replace(state, search=str(action["text"]))
    if kind == "row":
        return _from_row(subject, state, action, row_of)
    raise ValueError(f"the page cannot do {kind!r}")


def _followed(state: State, **changes: Any) -> State:
    return replace(state, revision=state.revision + 1, **changes)


def _named(subject: Subject, name: str) -> list[str]:
    """One variable, or all of a leaf."""
    return [name] if name in subject.variables else [v.name for v in subject.variables_of(name)]


def _from_row(subject: Subject, state: State, action: Action, row_of: RowOf | None) -> State:
    if row_of is None:
        raise ValueError("there is no table to take a row from; open one under Fill")
    row = row_of(int(action["row"]))
    question = state.question
    for variable in subject.variables_of(action["leaf"]):
        if variable.name in row:
            question = question.give(variable.name, row[variable.name])
    return _followed(state, question=replace(question, last=None))


def view(subject: Subject, state: State, rows: int = 0) -> dict[str, Any]:
    """What the page shows, as HTML by the place where it belongs.

    Args:
        subject: what is asked.
        state: how things stand.
        rows: of the table at hand.
    """
    given = state.question.given
    findings = subject.answer(given)
    answered = Answered(subject, given, findings)
    selected = state.selected
    target = selected if selected is not None and selected not in given else None
    chosen = "" if selected is None else subject.variables[selected].leaf
    return {
        "answers": answers(subject, findings, selected, state.search),
        "evidence": evidence_list(subject, findings, given),
        "editor": editor(subject, given, selected, rows),
        # Controls stay as they are while somebody holds them.
        "editor_key": f"{selected} {state.revision} {rows}",
        "code": code(answered.python(target), answered.command(target)),
        "error": state.error,
        "given": list(dict.fromkeys(subject.variables[name].leaf for name in given)),
        "chosen": chosen,
        "can_undo": bool(state.question.past),
        "status": f"Answers given {len(given)} value{'' if len(given) == 1 else 's'}",
    }
