"""Questions to a model: answers with the influence of evidence."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from vfg.studio.asking.cards import LEVEL, LatentMarginal, export_page, spread_text, widget
from vfg.studio.markup import picture_shape
from vfg.tables.frames import quote
from vfg.utils.files import write_atomically

Evidence: TypeAlias = Mapping[str, Value]
"""Values by the names of variables; the order is that in which they were given."""
MOST_ANSWERS = 16
"""How many answers are kept: choosing a card or searching asks the same question again."""
MOST_PIECES = 24
"""Beyond this much evidence, influence is computed by leaf: each piece costs a row of inference."""
DRAWS = 192
"""About how many draws are behind a density."""
EXAMPLES = 4
"""How many variables are tried as an example of a question; each costs one answer."""
MOST_SET = 4
"""Beyond this many values that are set, influence is that of all: each piece costs an answer."""
MANY_COLUMNS = 64
"""Beyond this, densities of models of graphs are normal ones, since drawing others takes long."""


class OpenModel:
    """A model of any kind, open on a page; the file has a made-up name if it lies nowhere."""

    def __init__(self, model: Model, file: str = "model.vfg") -> None:
        self.model, self.file = model, file
        self.graph: Graph = model.graph
        self.variables: Mapping[str, Variable] = model.variables
        self._answers: dict[tuple[bool, tuple[tuple[str, Value], ...]], Answered] = {}
        self.latents = tuple(node for layer in reversed(self.graph.layers[1:]) for node in layer)

    @property
    def summary(self) -> str:
        """The model in half a line."""
        is_table = isinstance(self.model, TableModel)
        kind = "table model" if is_table else type(self.model).__name__
        if self.graph.network is not None:
            arrows = len(self.graph.network.edges)
            return f"{kind} · {len(self.variables)} columns · a network of {arrows} arrows"
        leaves, latent = len(self.graph.leaves), len(self.latents)
        nodes = f"{latent} latent node{'' if latent == 1 else 's'}"
        return f"{kind} · {len(self.variables)} columns · {leaves} leaves · {nodes}"

    @property
    def about_missing_cells(self) -> str:
        """What the model knows about why cells are missing, as the end of a sentence."""
        if not isinstance(self.model, TableModel):
            return ""
        words = self.model.describe_missingness()
        return f". {words[:1].upper()}{words[1:]}."

    @cached_property
    def picture(self) -> tuple[int, int] | None:
        """Height and width of the image that the columns are, or None."""
        return picture_shape(self.graph)

    @cached_property
    def marginal(self) -> Answered:
        """The answer without evidence."""
        return self.ask({})

    @cached_property
    def example(self) -> Answered | None:
        """A question about one variable whose answer moves much; None if there is none."""
        if self.picture is not None:
            return None
        usable = [one for one in self.variables.values() if not one.idle][:EXAMPLES]
        asked = [self.ask({one.name: self._unusual(one)}) for one in usable]
        moves = [
            max((m for by in x.influence.values() for m in by.values()), default=0.0) for x in asked
        ]
        return asked[int(np.argmax(moves))] if max(moves, default=0.0) > 0.0 else None

    def _unusual(self, variable: Variable) -> Value:
        """A value that moves other answers: the upper end of an interval, or a second category."""
        one = self.marginal[variable.name]
        if variable.kind == "choice":
            return variable.categories[int(np.argsort(-one.probabilities)[:2][-1])]
        return variable.value_of(round(one.high, variable.decimals))

    def log_prob(self, evidence: Evidence) -> float | None:
        """log p of evidence, or None where the model does not define it."""
        row: Any = [dict(evidence)]
        if not isinstance(self.model, TableModel):
            row = np.array([[float(evidence.get(name, np.nan)) for name in self.variables]])
        try:
            return float(np.asarray(self.model.log_prob(row)).reshape(-1)[0])
        except ValueError:
            return None

    def expected_pixels(self, answered: Answered) -> Array:
        """The image that is expected given evidence, `(columns,)`.

        Of a deep model it is what `reconstruct` returns. The mean over draws of the roots, which
        `infer` takes, need not look like any image where little is observed.
        """
        if isinstance(self.model, vfg.VFG):
            row = [[float(answered.evidence.get(name, np.nan)) for name in self.variables]]
            expected: Array = self.model.reconstruct(np.array(row))[0].double().numpy()
            return expected
        shown = answered.variables.values()
        means = [x.probabilities[-1] if x.variable.kind == "choice" else x.mean for x in shown]
        return np.array(means, dtype=float)

    def variable(self, name: str) -> Variable:
        """The variable of that name."""
        if name not in self.variables:
            raise ValueError(f"there is no {name!r}; there are {quote(list(self.variables))}")
        return self.variables[name]

    def variables_of(self, leaf: str) -> list[Variable]:
        """The variables that a leaf holds."""
        return [variable for variable in self.variables.values() if variable.leaf == leaf]

    def check_network(self) -> None:
        """Refuse interventions without causes and effects."""
        if self.graph.network is None:
            raise ValueError(
                "interventions need causes and effects, and this model was fitted without; fit it "
                "with vfg fit --learn-graph, or with --graph and what vfg learn wrote"
            )

    def ask(self, evidence: Evidence, *, intervene: bool = False) -> Answered:
        """Infer all variables given evidence, and the influence of each piece of evidence.

        All questions are answered at once: the first row has all evidence, every other row lacks
        one piece of it. With `intervene`, values are set and effects follow along the network.
        """
        given = {name: self.variable(name).parse(value) for name, value in evidence.items()}
        is_set = intervene and bool(given)
        key = is_set, tuple(given.items())
        if key not in self._answers:
            if len(self._answers) >= MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = self._intervene(given) if is_set else self._ask(given)
        return self._answers[key]

    def _intervene(self, given: Evidence) -> Answered:
        """What follows when values are set; without latent nodes, which have no causes."""
        self.check_network()
        names: list[Name] = list(self.variables)
        settings: dict[Name, Any] = {name: value for name, value in given.items()}  # noqa: C416
        with _collect_notes() as notes:
            answer = self.model.infer({}, names, do=settings)
            marginals = answer.marginals(row=0, level=LEVEL, draws=self._draws)
        answered = Answered(self, given, marginals, {}, {}, True, tuple(notes))
        influence = {}
        for name in given:
            others = {key: value for key, value in given.items() if key != name}
            less = self.marginal if not others or len(given) > MOST_SET else None
            influence[name] = self._moves(answered, less or self.ask(others, intervene=True))
        return replace(answered, influence=influence)

    def _moves(self, answered: Answered, less: Answered) -> dict[str, float]:
        """How far answers are from those to a smaller question, by variable."""
        moves = {}
        for name, variable in self.variables.items():
            if name in answered.evidence or variable.idle:
                continue
            both = [np.atleast_1d(self._centre_of(one[name])) for one in (less, answered)]
            moves[name] = self._movement(variable, np.stack(both), 1)
        return moves

    @staticmethod
    def _centre_of(one: Marginal) -> Any:
        return one.probabilities if one.variable.kind == "choice" else one.mean

    def _ask(self, given: Evidence) -> Answered:
        pieces = self._pieces(given)
        rows = [given, *({k: v for k, v in given.items() if k not in p} for p in pieces.values())]
        with _collect_notes() as notes:
            answer = self.model.infer(rows, targets=self._targets, padded=False)
        marginals = answer.marginals(row=0, level=LEVEL, draws=self._draws)
        variables = {
            name: given_marginal(variable, given[name]) if name in given else marginals[name]
            for name, variable in self.variables.items()
        }
        influence = dict(zip(pieces, self._influences(answer, given), strict=True))
        latent = self._latent(marginals)
        return Answered(self, given, variables, latent, influence, notes=tuple(notes))

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
        is_large = len(evidence) > MOST_PIECES or self.picture is not None
        # Such a model refuses sections that are observed in part.
        is_coupled = (
            isinstance(self.model, vfg.GaussianVFG) and not self.model.leaves.is_elementwise
        )
        whole = is_large or is_coupled
        result: dict[str, list[str]] = {}
        for name in evidence:
            result.setdefault(self.variables[name].leaf if whole else name, []).append(name)
        return result

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


def open_model(model: Any) -> OpenModel:
    """A model, or a model file, as something to ask."""
    file = "model.vfg"
    if isinstance(model, str | Path):
        if not Path(model).is_file():
            raise ValueError(f"there is no file {str(model)!r}; name a model that vfg.save wrote")
        file, model = str(model), vfg.load(model)
    model = getattr(model, "model_", model)
    if not isinstance(model, vfg.VFG | vfg.GaussianVFG | TableModel):
        raise TypeError(
            f"the studio shows a model file, a VFG, a GaussianVFG, a TableModel or a fitted "
            f"VFGImputer, but got {type(model).__name__}"
        )
    if isinstance(model, TableModel) and model.weights.device.type != "cpu":
        model = deepcopy(model).cpu()  # single rows are answered fastest on a CPU
    return OpenModel(model.eval(), file)


@contextmanager
def _collect_notes() -> Iterator[dict[str, None]]:
    """Collect warnings as sentences, each once, in place of showing them."""
    notes: dict[str, None] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    notes.update(dict.fromkeys(str(one.message) for one in caught))


@dataclass(frozen=True)
class Answered:
    """A question and a model's answer to it.

    A notebook shows it as the cards of the page.

    Args:
        model: the model that answered.
        evidence: what was given.
        variables: the posterior of every column.
        latent: the posteriors of the latent nodes.
        influence: by the name of evidence, how far the answer about each other variable moves when
            that evidence is taken away: in its standard deviations without evidence, or the share
            of probability.
        intervened: whether values were set rather than observed.
        notes: cautions about the answer, in sentences.
    """

    model: OpenModel
    evidence: Evidence
    variables: Mapping[str, Marginal]
    latent: Mapping[str, LatentMarginal]
    influence: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    intervened: bool = False
    notes: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """How values came about: "given" or "set"."""
        return "set" if self.intervened else "given"

    def __getitem__(self, name: str) -> Marginal:
        """The posterior of one variable."""
        self.model.variable(name)
        return self.variables[name]

    @property
    def marginal(self) -> Answered:
        """The answer without evidence."""
        return self.model.marginal

    def rank_evidence(self, target: str | None = None) -> list[tuple[str, float, str]]:
        """Evidence by how much it moved the answers: name, movement, what it moved most."""
        result = []
        for name, moves in self.influence.items():
            most = max(moves, key=lambda other: moves[other], default="")
            mean = float(np.mean(list(moves.values()) or [0.0]))
            result.append((name, moves.get(target or "", mean), most))
        return sorted(result, key=lambda row: -row[1])

    def python(self, target: str | None = None) -> str:
        """The question as Python."""
        wanted = "" if target is None else f", targets=[{target!r}]"
        values = repr(dict(self.evidence))
        asked = f"{{}}{wanted}, do={values}" if self.intervened else f"{values}{wanted}"
        return (
            f"import vfg\n\nmodel = vfg.load({self.model.file!r})\n"
            f"answer = model.infer({asked})\n"
            "print(answer.to_frame(quantiles=[0.05, 0.95]))"
        )

    def command(self, target: str | None = None) -> str:
        """The question as a line for a shell."""
        words = ["vfg", "query", self.model.file]
        for name, value in self.evidence.items():
            words += ["--do" if self.intervened else "--given", f"{name}={value}"]
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
        lines = [f"{self.word} {given}" if given else "given nothing"]
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
        Posteriors by name (`answer["age"].mean`, `.low`, `.high`, `.probabilities`), and how far
        each value of the evidence moved them. A notebook shows the answer as cards; `save` writes
        them to a file.

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
