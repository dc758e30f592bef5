"""Questions: evidence that is given, taken back and undone, and what a model answers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vfg.files import write_atomically

from .findings import LEVEL, Finding, Findings
from .pages import export_page, widget
from .subjects import Subject, open_subject
from .variables import Value, percent

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
class Answered:
    """A question and what a model answers to it.

    In a notebook it shows itself as the cards of the page.

    Args:
        subject: what was asked.
        evidence: what was given.
        findings: what is known.
    """

    subject: Subject
    evidence: Mapping[str, Value]
    findings: Findings

    def __getitem__(self, name: str) -> Finding:
        """What is known of one variable."""
        self.subject.variable(name)
        return self.findings.variables[name]

    @cached_property
    def marginal(self) -> Findings:
        """What is known without evidence."""
        return self.subject.marginal

    def python(self, target: str | None = None) -> str:
        """The question as Python."""
        return self.subject.python(self.evidence, target)

    def command(self, target: str | None = None) -> str:
        """The question as a line for a shell."""
        return command_line(self.subject, self.evidence, target)

    def to_html(self) -> str:
        """A page of its own that needs nothing else, and no network."""
        return export_page(self)

    def save(self, path: str | Path) -> None:
        """Write `to_html` to a file."""
        write_atomically(path, self.to_html().encode())

    def _repr_html_(self) -> str:
        return widget(self)

    def __str__(self) -> str:
        given = ", ".join(f"{name} = {value}" for name, value in self.evidence.items())
        lines = [f"given {given}" if given else "given nothing"]
        for name, finding in self.findings.variables.items():
            if finding.given:
                continue
            variable = finding.variable
            if variable.kind == "choice":
                beside = percent(finding.probabilities.max(initial=0.0))
            else:
                ends = variable.show_number(finding.low), variable.show_number(finding.high)
                beside = f"{percent(LEVEL)} between {ends[0]} and {ends[1]}"
            lines.append(f"{name:<20}{finding.text:>12}   {beside}")
        return "\n".join(lines)


def command_line(subject: Subject, evidence: Mapping[str, Value], target: str | None) -> str:
    """A question as `vfg query` takes it."""
    words = ["vfg", "query", subject.file]
    for name, value in evidence.items():
        words += ["--given", f"{name}={value}"]
    names = [target] if target is not None else [k for k in subject.variables if k not in evidence]
    for name in names if target is not None or len(names) <= 8 else names[:8]:
        words += ["--infer", name]
    return shlex.join(words)


def ask(model: Any, evidence: Mapping[str, Value] | None = None) -> Answered:
    """Ask a model what it knows given evidence.

    Args:
        model: a path, a fitted `VFGImputer`, its model, a `vfg.VFG` or a `vfg.GaussianVFG`.
        evidence: values by the names of columns; dates as ISO texts.

    Returns:
        Findings by name (`answer["age"].mean`, `.low`, `.high`, `.probabilities`), which evidence
        moved them, and pages: a notebook shows the answer as cards, `save` writes them to a file.

    Raises:
        ValueError: for a name or a value that the model does not know.

    Example:
        >>> import vfg
        >>> model = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
        >>> history = model.fit([[1.0, 2.0], [2.0, 4.1], [3.0, 5.9], [4.0, 8.0]])
        >>> answer = ask(model, {"a": 2.5})
        >>> print(answer["b"].text, list(answer.findings.influence))
        5 ['a']
    """
    subject = open_subject(model)
    return answered(subject, evidence or {})


def answered(subject: Subject, evidence: Mapping[str, Value]) -> Answered:
    """What a subject answers to evidence."""
    checked = subject.checked(evidence)
    return Answered(subject, checked, subject.answer(checked))
