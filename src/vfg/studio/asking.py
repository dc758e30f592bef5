"""Questions to a model: answers with the influence of evidence, and the state of the Ask page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import vfg
from vfg.graph import Graph
from vfg.imputation.table_model import TableModel
from vfg.inference.answers import Answer
from vfg.inference.variables import Array, Marginal, Model, Value, Variable, given_marginal
from vfg.inputs import Name
from vfg.studio.ask_html import (
    LEVEL,
    LatentMarginal,
    answers,
    code,
    editor,
    evidence_list,
    export_page,
    spread_text,
    widget,
)
from vfg.studio.markup import picture_shape
from vfg.tables.frames import quote
from vfg.utils.files import write_atomically

Evidence: TypeAlias = Mapping[str, Value]
"""Values by the names of variables; the order is that in which they were given."""
MOST_PIECES = 24
"""Beyond this much evidence, influence is computed by leaf: each piece costs a row of inference."""
DRAWS = 192
"""About how many draws are behind a density."""
MANY_COLUMNS = 64
"""Beyond this, densities of models of graphs are normal ones, since drawing others takes long."""


class OpenModel:
    """A model of any kind, open on a page.

    Args:
        model: a `vfg.Model`.
        file: where it lies; a made-up name if it lies nowhere.

    Attributes:
        model: the model.
        file: where it lies.
        graph: its graph.
        variables: its columns by name.
        latents: its latent nodes, roots first.
    """

    def __init__(self, model: Model, file: str = "model.vfg") -> None:
        self.model, self.file = model, file
        self.graph: Graph = model.graph
        self.variables: Mapping[str, Variable] = model.variables
        self.latents = tuple(node for layer in reversed(self.graph.layers[1:]) for node in layer)

    @property
    def summary(self) -> str:
        """The model in half a line."""
        is_table = isinstance(self.model, TableModel)
        kind = "table model" if is_table else type(self.model).__name__
        leaves, latent = len(self.graph.leaves), len(self.latents)
        nodes = f"{latent} latent node{'' if latent == 1 else 's'}"
        return f"{kind} · {len(self.variables)} columns · {leaves} leaves · {nodes}"

    @cached_property
    def picture(self) -> tuple[int, int] | None:
        """Height and width of the image that the columns are, or None."""
        return picture_shape(self.graph)

    @cached_property
    def marginal(self) -> Answered:
        """The answer without evidence."""
        return self.ask({})

    def variable(self, name: str) -> Variable:
        """The variable of that name.

        Raises:
            ValueError: if there is none.
        """
        if name not in self.variables:
            raise ValueError(f"there is no {name!r}; there are {quote(list(self.variables))}")
        return self.variables[name]

    def variables_of(self, leaf: str) -> list[Variable]:
        """The variables that a leaf holds."""
        return [variable for variable in self.variables.values() if variable.leaf == leaf]

    def ask(self, evidence: Evidence) -> Answered:
        """Infer all variables given evidence, and the influence of each piece of evidence.

        All questions are answered at once: the first row has all evidence, every other row lacks
        one piece of it.

        Raises:
            ValueError: for evidence that names no variable, or a value that it cannot have.
        """
        given = {name: self.variable(name).parse(value) for name, value in evidence.items()}
        pieces = self._pieces(given)
        rows = [given, *({k: v for k, v in given.items() if k not in p} for p in pieces.values())]
        answer = self.model.infer(rows, targets=self._targets, padded=False)
        marginals = answer.marginals(row=0, level=LEVEL, draws=self._draws)
        variables = {
            name: given_marginal(variable, given[name]) if name in given else marginals[name]
            for name, variable in self.variables.items()
        }
        influence = dict(zip(pieces, self._influences(answer, given), strict=True))
        return Answered(self, given, variables, self._latent(marginals), influence)

    @property
    def _draws(self) -> int:
        is_large = len(self.variables) > MANY_COLUMNS and not isinstance(self.model, TableModel)
        return 0 if is_large else DRAWS

    @cached_property
    def _targets(self) -> list[Name]:
        """All columns, of models of graphs leaf by leaf, and the latent nodes."""
        is_table = isinstance(self.model, TableModel)
        columns = self.variables if is_table else self.graph.leaves
        return [*columns, *(node for node in self.latents if node not in self.variables)]

    def _pieces(self, evidence: Evidence) -> dict[str, list[str]]:
        """Pieces of evidence with an influence each: single variables, or whole leaves."""
        whole = len(evidence) > MOST_PIECES or _needs_whole_sections(self.model)
        found: dict[str, list[str]] = {}
        for name in evidence:
            found.setdefault(self.variables[name].leaf if whole else name, []).append(name)
        return found

    def _influences(self, answer: Answer, given: Evidence) -> Iterator[dict[str, float]]:
        """How far answers move without one piece of evidence, by variable, for every piece."""
        expected = answer.expectations() if answer.rows > 1 else {}
        for row in range(1, answer.rows):
            yield {
                name: self._movement(variable, expected[name], row)
                for name, variable in self.variables.items()
                if not (name in given or variable.idle)
            }

    def _movement(self, variable: Variable, expected: Array, row: int) -> float:
        """The share of probability that moved, or the distance in deviations without evidence."""
        distance = float(np.abs(expected[row] - expected[0]).sum())
        if variable.kind == "choice":
            return distance / 2.0
        spread = self.marginal.variables[variable.name].std
        return distance / spread if spread > 0.0 else 0.0

    def _latent(self, marginals: Mapping[str, Marginal]) -> dict[str, LatentMarginal]:
        coordinates: dict[str, list[Marginal]] = {}
        for name, one in marginals.items():
            if name not in self.variables:
                coordinates.setdefault(one.variable.leaf, []).append(one)
        return {
            node: LatentMarginal(
                node, np.array([x.mean for x in held]), np.array([x.std for x in held])
            )
            for node, held in coordinates.items()
        }


def _needs_whole_sections(model: Model) -> bool:
    """Whether a model refuses sections that are observed in part."""
    return isinstance(model, vfg.GaussianVFG) and not model.leaves.is_elementwise


def open_model(model: Any) -> OpenModel:
    """A model, or a model file, as something to ask.

    Args:
        model: a path, a fitted `VFGImputer`, or any `vfg.Model`.

    Raises:
        ValueError: for a file that cannot be read as a model.
        TypeError: for anything else.
    """
    file = "model.vfg"
    if isinstance(model, str | Path):
        file, model = str(model), _load(Path(model))
    model = getattr(model, "model_", model)
    if not isinstance(model, vfg.VFG | vfg.GaussianVFG | TableModel):
        raise TypeError(
            f"the studio shows a model file, a VFG, a GaussianVFG, a TableModel or a fitted "
            f"VFGImputer, but got {type(model).__name__}"
        )
    if isinstance(model, TableModel) and model.weights.device.type != "cpu":
        model = deepcopy(model).cpu()  # single rows are answered fastest on a CPU
    return OpenModel(model.eval(), file)


def _load(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}; name a model that vfg.save wrote")
    return vfg.load(path)


@dataclass(frozen=True)
class Answered:
    """A question and what a model answers to it.

    In a notebook it shows itself as the cards of the page.

    Args:
        model: that answered.
        evidence: what was given.
        variables: the posterior of every column.
        latent: the posteriors of the latent nodes.
        influence: by the name of evidence, how far the answer about each other variable moves when
            that evidence is taken away: in its standard deviations without evidence, or the share
            of probability.
    """

    model: OpenModel
    evidence: Evidence
    variables: Mapping[str, Marginal]
    latent: Mapping[str, LatentMarginal]
    influence: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Marginal:
        """The posterior of one variable."""
        self.model.variable(name)
        return self.variables[name]

    @property
    def marginal(self) -> Answered:
        """The answer without evidence."""
        return self.model.marginal

    def ranked(self) -> list[tuple[str, float, str]]:
        """Evidence by how much it moved the answers: name, mean movement, what it moved most."""
        found = []
        for name, moves in self.influence.items():
            most = max(moves, key=lambda other: moves[other], default="")
            found.append((name, float(np.mean(list(moves.values()) or [0.0])), most))
        return sorted(found, key=lambda row: -row[1])

    def python(self, target: str | None = None) -> str:
        """The question as Python."""
        wanted = "" if target is None else f", targets=[{target!r}]"
        return (
            f"import vfg\n\nmodel = vfg.load({self.model.file!r})\n"
            f"answer = model.infer({dict(self.evidence)!r}{wanted})\n"
            "print(answer.to_frame(quantiles=[0.05, 0.95]))"
        )

    def command(self, target: str | None = None) -> str:
        """The question as a line for a shell."""
        words = ["vfg", "query", self.model.file]
        for name, value in self.evidence.items():
            words += ["--given", f"{name}={value}"]
        unknown = [name for name in self.variables if name not in self.evidence]
        for name in unknown[:8] if target is None else [target]:
            words += ["--infer", name]
        return shlex.join(words)

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
        for name, marginal in self.variables.items():
            if not marginal.given:
                lines.append(f"{name:<20}{marginal.text:>12}   {spread_text(marginal)}")
        return "\n".join(lines)


def ask(model: Any, evidence: Evidence | None = None) -> Answered:
    """Infer all variables of a model given evidence.

    Args:
        model: a path, a fitted `VFGImputer`, or any `vfg.Model`.
        evidence: values by the names of columns; dates as ISO texts.

    Returns:
        Posteriors by name (`answer["age"].mean`, `.low`, `.high`, `.probabilities`), which
        evidence moved it, and pages: a notebook shows the answer as cards, `save` writes them to a
        file.

    Raises:
        ValueError: for a name or a value that is not in the model.

    Example:
        >>> import vfg
        >>> model = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
        >>> history = model.fit([[1.0, 2.0], [2.0, 4.1], [3.0, 5.9], [4.0, 8.0]])
        >>> answer = ask(model, {"a": 2.5})
        >>> print(answer["b"].text, list(answer.influence))
        5 ['a']
    """
    return open_model(model).ask(evidence or {})


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
