"""TableModel: the encoding of a table and its ensemble, to be fitted, queried and saved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vfg.graph import Graph
from vfg.graph.checks import suggestion
from vfg.imputation.answers import Evidence, TableAnswer, as_mapping, read_evidence
from vfg.imputation.columns import as_frame, match_columns, rows_of_draw, variable_of, without_rows
from vfg.imputation.conditionals import TableFamilies, kept_rows
from vfg.imputation.constraints import Constraints
from vfg.imputation.description import describe_parts, empty_parts
from vfg.imputation.encoded_ensemble import EncodedEnsemble
from vfg.imputation.fitting import fit_parts
from vfg.imputation.missing_cells import MissingCells
from vfg.imputation.missingness import describe_mechanism
from vfg.imputation.mixtures import fit_linear_further
from vfg.imputation.parts import KINDS, Parts
from vfg.imputation.relations import Relations, holding_relations
from vfg.imputation.settings import ImputerSettings, check_count
from vfg.inference.answers import Answer, as_row_ids
from vfg.inference.evidence import warn_of_extrapolation
from vfg.inference.interventions import FEW_ROWS, counterfactual, intervene, is_intervention
from vfg.inference.variables import Variable
from vfg.inputs import ArrayLike, Name, as_weights
from vfg.modelfile.registry import register
from vfg.tables.cells import Array, Label
from vfg.tables.encoding import Arrays, Encoding
from vfg.tables.frames import Table, TableView, as_cell_mask, hide_cells, open_table
from vfg.tables.numeric import NumericEncoding
from vfg.training.data import choose_device
from vfg.training.history import History
from vfg.utils.specs import with_options

if TYPE_CHECKING:
    from vfg.imputation.explanation import Explanation


def answering_device(device: str | torch.device | None) -> torch.device:
    """The device on which a table's model answers: the GPU if it is available, else the CPU.

    Other devices, on which members may be trained, lack double precision.

    Example:
        >>> answering_device("mps")
        device(type='cpu')
    """
    wanted = choose_device(None) if device is None else torch.device(device)
    is_there = wanted.type == "cuda" and torch.cuda.is_available()
    return wanted if is_there else torch.device("cpu")


@register("TableModel")
class TableModel(EncodedEnsemble):
    """A model of a table with columns of any kind: what `vfg fit` writes and `VFGImputer` wraps.

    Every column is encoded as one to eight standardised numbers, a leaf of the graph. Answers
    combine those of an exact linear-Gaussian model, nonlinear members that start from it, exact
    mixtures, row mixtures, trees and Gaussian processes; see `vfg.sklearn.VFGImputer`.
    `vfg.fit(model, table)` fits it in place; `vfg.save` and `vfg.load` write and read it. Arrays
    that it returns are on the CPU, wherever it computes, in the units, categories and dtypes of the
    table that was fitted.

    Args:
        settings: how it is fitted; None for the defaults. They are not stored in files.
        options: fields of `ImputerSettings` that differ from `settings`.

    Attributes:
        history: of the training of the members, if they were trained in this process.
        mechanism: evidence about why cells of the fitted table are missing, as logarithms of Bayes
            factors: because of their own value, and because of other columns (`rival`).
        constraints: of filled cells, as texts.
        origin: how the files of the fit were read, and digests of some rows; see `bigtable.fit`.
        left_out: parts for which `budget` left no time in this process, such as `("trees",)`.

    Example:
        >>> import vfg
        >>> model = vfg.TableModel(bend=False)
        >>> history = vfg.fit(model, {"a": [1.0, 2.0, 3.0, 4.0], "b": ["x", "x", "y", "y"]})
        >>> model.infer({"a": 4.0}, targets=["b"]).mean["b"].tolist()
        ['y']
    """

    cached = (
        *EncodedEnsemble.cached, "labels", "leaves", "graph", "variables", "_held", "_leaf_names",
        "constraint_set", "_families", "_kept_rows",
    )  # fmt: skip
    history: History | None = None
    left_out: tuple[str, ...] = ()

    def __init__(self, settings: ImputerSettings | None = None, **options: Any) -> None:
        super().__init__()
        self.settings = with_options(settings, options, ImputerSettings, "a TableModel")
        self.mechanism: dict[str, float] = {}
        self.constraints: tuple[str, ...] = ()
        self.origin: dict[str, Any] = {}
        self.eval()

    def _assemble(self, encoding: Encoding, columns: list[int], parts: Parts) -> None:
        """Replace the encoding, the modelled columns of its matrix, and the parts over them."""
        self.set_parts(len(columns), parts)
        self.set_encoding(encoding)
        self.columns = columns
        self.history, self.mechanism = parts.history, parts.mechanism.to_dict()
        self.left_out = parts.left_out
        self.eval()

    # What users call.

    def fit(
        self,
        table: Any,
        settings: ImputerSettings | None = None,
        *,
        observed: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        **options: Any,
    ) -> History | None:
        """Fit the model in place to the observed cells of a table.

        Args:
            table: a frame, an array, nested sequences, columns by name, or a list of rows by name.
            settings: how; None (default) for those that the model was made with.
            observed: which cells may be used, as for `infer`; None (default) for all.
            sample_weight: how often every row counts; None (default) for once. See
                `VFGImputer.fit`.
            options: fields of `ImputerSettings` that differ from `settings`.

        Returns:
            The history of the members' training; None for the linear model alone.

        Raises:
            ValueError: for infinite cells, no rows or columns, or invalid settings.
            TypeError: for cells of unknown kinds.

        Example:
            >>> model = TableModel(bend=False)
            >>> history = model.fit([[1.0, 2.0], [2.0, 4.1], [3.0, None], [4.0, 7.9]])
            >>> list(model.variables)
            ['0', '1']
        """
        start = self.settings if settings is None else settings
        chosen = with_options(start, options, ImputerSettings, "a TableModel")
        opened = open_table(as_frame(table), chosen.missing_values)
        if observed is not None:
            opened = hide_cells(opened, ~as_cell_mask(observed, opened))
        self._fit(opened, chosen, weights=as_weights(sample_weight, opened.rows))
        return self.history

    def refit(
        self, table: Any, settings: ImputerSettings, sample_weight: ArrayLike | None = None
    ) -> None:
        """Continue from a fitted model, with more steps or other rows of the same columns.

        Encoding and graph are kept and members are trained further. All other parts are fitted
        again from the beginning.

        Args:
            table: with the columns that were fitted.
            settings: of the fit.
            sample_weight: how often every row counts.
        """
        opened = open_table(table, settings.missing_values)
        self._fit(opened, settings, self, as_weights(sample_weight, opened.rows))

    def partial_fit(self, table: Any, *, sample_weight: ArrayLike | None = None) -> None:
        """Fit the linear model to further rows, besides all that were given before.

        The first call fits as `fit` does, and decides kinds, categories, scales and which columns
        vary; see `VFGImputer.partial_fit`.

        Args:
            table: further rows, with the same columns.
            sample_weight: how often every row counts; None for once.

        Raises:
            ValueError: for a model with nonlinear parts, or one that was fitted by `fit`.
        """
        if self.settings.bend or self.is_stacked:
            raise ValueError(
                "partial_fit adds sums over rows, which exist for the linear model alone; use "
                "bend=False, or fit with all rows"
            )
        if not self.is_fitted:
            self.fit(table, sample_weight=sample_weight)
            first = True
        else:
            first = False
            if self.linear is not None and self.linear.summary is None:
                raise ValueError(
                    "this model was fitted by fit, which keeps no sums over rows; call partial_fit "
                    "from the first rows on"
                )
        opened = open_table(as_frame(table), self.encoding.missing_values)
        weights = as_weights(sample_weight, opened.rows)
        if not first:
            self._widen(opened)
        if self.linear is None:
            return
        values, observed = self.encode(self.view(without_rows(opened, weights)))
        used = observed.any(1)
        if not bool(used.any()):
            return
        own = None if weights is None else weights[used]
        rows = values[used], observed[used], own
        if first:
            self.linear.remember(*rows)
        else:
            fit_linear_further(self.linear, *rows)
            self._drop_broken_relations(*rows[:2])
        self.load_state_dict(self.state_dict())  # what followed from the state is forgotten

    def _widen(self, table: Table) -> None:
        """Let ranges of columns contain the cells of further rows."""
        encoding = self.encoding.widened(self.view(table))
        self.forget()
        self.set_encoding(encoding)

    def _drop_broken_relations(self, values: Tensor, observed: Tensor) -> None:
        """Keep the relations that hold in further rows, too."""
        if self.relations is None:
            return
        noise = self.relation_noise
        known = Relations(self.relations, self.relations[:, 0] * 0.0 if noise is None else noise)
        kept = holding_relations(known, values, observed)
        if not bool(kept.any()):
            self.relations = self.relation_noise = None
        elif not bool(kept.all()):
            self.relations = known.coefficients[kept]
            self.relation_noise = None if noise is None else noise[kept]

    def _fit(
        self,
        table: Table,
        settings: ImputerSettings,
        start: TableModel | None = None,
        weights: Tensor | None = None,
    ) -> None:
        table = without_rows(table, weights)
        self._assemble(*fit_parts(table, settings, start, weights))
        texts = settings.constraints or ()
        self.settings, self.constraints = (
            settings,
            (texts,) if isinstance(texts, str) else (*texts,),
        )
        device = answering_device(settings.device)
        if device != self.weights.device:
            self.to(device)

    @torch.no_grad()
    def infer(
        self,
        given: Any,
        targets: Name | Sequence[Name] | None = None,
        *,
        observed: Any = None,
        seed: int = 0,
        row_ids: ArrayLike | None = None,
        padded: bool | None = None,
        do: Mapping[Name, Any] | None = None,
        dag: Any = None,
    ) -> Answer:
        """Any columns given any others.

        Args:
            given: values by the names of columns; a list of such mappings, one per row; a frame
                with some of the columns; or an array with all of them. Missing cells are unknown.
            targets: columns, leaves or latent nodes by name; None means all columns.
            observed: which cells may be used: a boolean mask of the table's shape, or truth values
                by column, where columns that are not named may not be used.
            seed: of the draws (default 0).
            row_ids: distinct integers from 0 on that draws depend on; None (default) means the
                position. Give them if a table is divided into parts.
            padded: whether rows are computed in padded tiles, so that a row has the same bits in
                every batch. False is faster for a few rows; numbers are the same up to rounding.
                None (default) pads tables, and more than 32 rows by name.
            do: values by column that an intervention sets; see `VFG.infer`.
            dag: (cause, effect) pairs of columns, or a `LearnedGraph`; None for the one that the
                model was fitted with.

        Returns:
            Means, deviations, quantiles, probabilities and joint draws, in the units and categories
            of the table.

        Raises:
            ValueError: for unknown names, categories or values, or a model that is not fitted.

        Example:
            >>> model = TableModel(bend=False)
            >>> history = model.fit({"a": [1.0, 2.0, 3.0, 4.0], "b": ["x", "x", "y", "y"]})
            >>> answer = model.infer([{"a": 1.0}, {"a": 4.0}], targets=["b"])
            >>> answer.mean["b"].tolist(), answer.probabilities["b"].shape
            (['x', 'y'], (2, 2))
        """
        if is_intervention(do, dag):
            return intervene(self, given, targets, do or {}, dag, observed=observed, seed=seed)
        evidence = read_evidence(self, given, observed)
        warn_of_extrapolation(self, as_mapping(given), stacklevel=4)  # above torch's no_grad
        ids = as_row_ids(self, row_ids, evidence.rows).cpu()
        names: Any = list(self.encoding.schema) if targets is None else targets
        chosen = [names] if isinstance(names, str | int) else list(dict.fromkeys(names))
        if not chosen:
            raise ValueError("targets is empty; name columns or latent nodes, or leave it out")
        resolved = {name: self.resolve(name) for name in chosen}
        if padded is None:
            padded = not evidence.by_name or evidence.rows > FEW_ROWS
        return TableAnswer(self, evidence, resolved, ids, seed, padded)

    counterfactual = counterfactual

    def family_models(self, parents: Mapping[str, Sequence[str]]) -> TableFamilies | None:
        """Models of columns given their causes, for interventions; None for the model itself.

        They are fitted to the rows that row mixtures keep, once for every set of families.
        """
        if self._kept_rows is None or not parents:
            return None
        families = tuple((child, tuple(causes)) for child, causes in parents.items())
        if families not in self._families:
            self._families[families] = TableFamilies(self, parents)
        return self._families[families]

    @cached_property
    def _families(self) -> dict[tuple[Any, ...], TableFamilies]:
        """Models of families that interventions asked for."""
        return {}

    @property
    def rows_for_families(self) -> tuple[Tensor, Tensor]:
        """The rows that the model keeps, and which cells are observed."""
        assert self._kept_rows is not None
        return self._kept_rows

    @cached_property
    def _kept_rows(self) -> tuple[Tensor, Tensor] | None:
        """The rows that the model keeps, and which cells are observed; None if it keeps none."""
        return kept_rows(self.row_mixture_models[0]) if len(self.neighbours) else None

    def draw_kept_rows(
        self, names: Sequence[str], count: int, seed: int
    ) -> dict[str, Array] | None:
        """Draws `(count,)` of columns: rows that the model keeps, with missing cells drawn.

        None if it keeps none. The first draws are the same for every count.
        """
        if self._kept_rows is None:
            return None
        values, observed = self._kept_rows
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(values)))
        drawn: dict[str, list[Array]] = {name: [] for name in names}
        for turn, start in enumerate(range(0, count, len(order))):
            rows = order[: count - start]
            evidence = Evidence(values[rows], observed[rows], {})
            chosen: dict[Name, Any] = {name: self.resolve(name) for name in names}
            answer = TableAnswer(self, evidence, chosen, rows, seed + turn, True)
            for name, own in answer.samples(1).items():
                drawn[str(name)].append(own[0])
        return {name: np.concatenate(own) for name, own in drawn.items()}

    def sample(self, n: int, *, seed: int = 0) -> Any:
        """New rows from the model.

        Args:
            n: number of rows.
            seed: of the draws (default 0).

        Returns:
            A frame of the library and dtypes that were fitted; of pandas if only the columns have
            names, and an array if they have none.

        Raises:
            ImportError: for columns with names, without pandas.
        """
        check_count("n", n)
        rows = self.infer([{}] * int(n), seed=seed, padded=True)
        return self.rows_of(rows.samples(1), 0)

    def fill(self, table: Any, *, row_ids: ArrayLike | None = None) -> Any:
        """A copy of a table whose missing cells are filled with expected values.

        Observed cells are returned unchanged. Missing cells of columns without any observed cell in
        fitting stay missing. Other columns of a frame are not changed.

        Args:
            table: with the columns that were fitted; of a frame in any order.
            row_ids: distinct integers from 0 on; None (default) means the position.

        Returns:
            A table of the same kind and dtypes.

        Raises:
            ValueError: for a table without the columns of the model.

        Example:
            >>> model = TableModel(bend=False)
            >>> history = model.fit([[1.0, 2.0], [2.0, 4.0], [3.0, 6.1], [4.0, 7.9]])
            >>> bool(4.0 < model.fill([[3.0, float("nan")]])[0, 1] < 8.0)
            True
        """
        cells = MissingCells(self, self.view(table), row_ids=row_ids)
        return cells.fill(cells.means())

    def explain(
        self, table: Any, row: int, column: Label, *, evaluations: int = 512, seed: int = 0
    ) -> Explanation:
        """Why a cell is filled as it is: what every observed cell of its row contributes.

        Contributions add up to the difference between the answer and the answer without evidence.
        Those of a linear model are coefficients times distances from the mean. Those of an ensemble
        are Shapley values of the answer as a function of which cells are known: exact for a few
        observed cells, else averages over random orders of the cells.

        Args:
            table: with the columns that were fitted.
            row: position of the row.
            column: whose cell to explain; an observed one is explained as if it were missing.
            evaluations: about how many predictions an ensemble may compute (default 512).
            seed: of the orders (default 0).

        Returns:
            Contributions by column, the most similar training rows where the model keeps rows, and
            a sentence.

        Raises:
            IndexError: for a row that the table does not have.
            ValueError: for a column that the model does not have or that has one value only.
        """
        from vfg.imputation.explanation import explain

        return explain(self, table, row, column, evaluations=evaluations, seed=seed)

    def log_prob(self, table: Any, *, observed: Any = None) -> Array:
        """log p of the observed cells of every row under the exact linear model.

        Densities of numbers are in the units of the table. Categories count as the density of their
        code points, so values compare rows with the same columns observed.

        Args:
            table: evidence in any form that `infer` takes.
            observed: which cells count.

        Returns:
            `(rows,)`; 0 for a row without observed cells.
        """
        given = read_evidence(self, table, observed)
        if self.linear is None:
            return np.zeros(given.rows)
        volumes = np.zeros(self.encoding.width)
        for label, part in self.encoding.parts.items():
            if isinstance(part, NumericEncoding):
                volumes[self.encoding.sections[label]] = math.log(part.deviation)
        taken = given.observed.double() @ torch.from_numpy(volumes[self.columns])
        log_probs = self.linear.log_prob(given.values, observed=given.observed)
        return (log_probs - taken).numpy()

    def embed(self, table: Any, *, observed: Any = None) -> Array:
        """The states of the root of the first member, or of the linear model, `(rows, width)`.

        Args:
            table: evidence in any form that `infer` takes.
            observed: which cells may be used.
        """
        given = read_evidence(self, table, observed)
        if self.linear is None:
            return np.zeros((given.rows, 0))
        chosen: Any = self.members[0] if len(self.members) else self.linear
        states: Tensor = chosen.embed(given.values, observed=given.observed)
        return states.double().cpu().numpy()

    def describe_missingness(self) -> str:
        """A sentence about why cells of the fitted table are missing.

        `fill`, and `transform`, `sample` and `predict_interval` of `VFGImputer`, assume that cells
        are missing for the same reason. `infer` and `evaluate` do not, because there a cell is
        missing only because it was not given.
        """
        return describe_mechanism(self.slopes, self.mechanism)

    # Properties.

    @cached_property
    def constraint_set(self) -> Constraints | None:
        """The constraints that filled cells satisfy; None without any."""
        return Constraints.of(self.constraints, self.encoding)

    @cached_property
    def labels(self) -> dict[str, Label]:
        """The labels of the columns by name, as the schema has them."""
        return {str(label): label for label in self.encoding.schema}

    @cached_property
    def leaves(self) -> dict[str, tuple[Label, ...]]:
        """The columns of the table that every leaf of `graph` holds."""
        names = self._leaf_names
        return {names[leaf]: labels for leaf, labels in self._held.items()}

    @cached_property
    def graph(self) -> Graph:
        """The graph, whose leaves are called like their columns; a star if no column varies."""
        if self.linear is None:
            return Graph.star(dict.fromkeys(self.labels, 1))
        graph, names = self.linear.graph, self._leaf_names
        nodes = [replace(n, name=names.get(n.name, n.name), columns=None) for n in graph.nodes]
        edges = [replace(e, child=names.get(e.child, e.child)) for e in graph.edges]
        return Graph(nodes, edges, graph.causes)

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """The columns of the table by name: their kinds, ranges and categories."""
        holder = {
            label: (leaf, place)
            for leaf, labels in self.leaves.items()
            for place, label in enumerate(labels)
        }
        variables, layouts = {}, self.origin.get("layouts", {})
        for name, label in self.labels.items():
            leaf, place = holder.get(label, ("", 0))
            own, layout = variable_of(self.encoding, label, leaf), layouts.get(name, "")
            variables[name] = replace(own, place=place, layout=layout)
        return variables

    @property
    def part_weights(self) -> dict[str, float]:
        """The weights of the parts in answers."""
        weights = self.weights.tolist() if self.is_stacked else [0.0, 0.0, 1.0, 0.0, 0.0]
        return dict(zip(KINDS, weights, strict=True))

    @cached_property
    def _held(self) -> dict[str, tuple[Label, ...]]:
        """The columns of the table that every leaf of the linear model holds."""
        if self.linear is None:
            return {}
        encoding = self.encoding
        owner = {place: label for label in encoding.sections for place in encoding.places(label)}
        return {
            leaf: tuple(dict.fromkeys(owner[self.columns[k]] for k in places))
            for leaf, places in self.linear.sections.positions.items()
        }

    @cached_property
    def _leaf_names(self) -> dict[str, str]:
        """Public names of the leaves of the linear model."""
        held = self._held
        nodes = [] if self.linear is None else self.linear.graph.nodes
        taken = [node.name for node in nodes if node.name not in held]
        names: dict[str, str] = {}
        for leaf, labels in held.items():
            names[leaf] = _free_name(str(labels[0]) if len(labels) == 1 else leaf, taken)
            taken.append(names[leaf])
        return names

    # Tables in.

    def resolve(self, name: Name) -> tuple[Label, ...] | str:
        """The columns that a name denotes, or a latent node."""
        if name in self.encoding.schema:
            return (name,)
        if str(name) in self.labels:
            return (self.labels[str(name)],)
        if name in self.leaves:
            return self.leaves[str(name)]
        if name in [node.name for node in self.graph.nodes] and self.linear is not None:
            return str(name)
        known = suggestion(str(name), self.labels)
        raise ValueError(f"there is no column or node {name!r}; {known}")

    def view(self, table: Any) -> Table:
        """The model's columns of a table, in the model's order."""
        named = as_frame(table, list(self.encoding.schema))
        opened = open_table(named, self.encoding.missing_values)
        places = self.places(opened.labels)
        known, every = list(self.encoding.schema), list(range(len(opened.labels)))
        if places == every and list(opened.labels) in (known, every):
            return opened
        return TableView(opened, places, labels=known)

    def places(self, labels: Sequence[Label]) -> list[int]:
        """Positions of the model's columns among those of a table.

        A model that was fitted to a table without names takes columns by position. Other labels
        are matched by their text, too, since files and tables of Arrow name columns by text.
        """
        return match_columns(list(self.encoding.schema), labels)

    def rows_of(self, columns: Mapping[Name, Array], draw: int) -> Any:
        """One draw of all columns as a table: a frame if columns have names, else an array."""
        return rows_of_draw(self.encoding, columns, draw)

    # Serialisation.

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """As in `nn.Module`; values derived from the state are recomputed."""
        result = super().load_state_dict(state_dict, strict, assign)
        for member in self.member_models:
            # Tensors outside the state get the dtype of the parameters.
            member.to(next(member.parameters()).dtype)
        return result

    def to_dict(self) -> dict[str, Any]:
        """Everything but tensors, ready for JSON; `from_dict` builds an equal model."""
        if self.described is None:
            raise ValueError("this TableModel is not fitted; fit it with vfg.fit(model, table)")
        return {
            # As text, since its numbers describe a table and are no sizes of the model.
            "encoding": json.dumps(self.described),
            "arrays": self.arrays.shapes,
            "columns": self.columns,
            **describe_parts(self),
            **({"mechanism": json.dumps(self.mechanism)} if self.mechanism else {}),
            **({} if self.forest is None else {"forest": self.forest.to_dict()}),
            **({} if self.processes is None else {"processes": self.processes.to_dict()}),
            **({"constraints": list(self.constraints)} if self.constraints else {}),
            **({"origin": json.dumps(self.origin)} if self.origin else {}),
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> TableModel:
        """A new model with the configuration that `to_dict` returned."""
        model = cls()
        columns = list(description["columns"])
        model.set_parts(len(columns), empty_parts(description, len(columns)))
        if not description.get("noisy"):
            model.relation_noise = None  # a file of an earlier version, with exact relations alone
        model.described = json.loads(description["encoding"])
        model.arrays, model.columns = Arrays(description["arrays"]), columns
        model.mechanism = dict(json.loads(description.get("mechanism", "{}")))
        model.constraints = tuple(map(str, description.get("constraints", ())))
        model.origin = dict(json.loads(description.get("origin", "{}")))
        return model


def _free_name(name: str, taken: Sequence[str]) -> str:
    """The name, changed where another node has it or where it is not allowed."""
    name = name.replace("->", "→") or "column"
    while name in taken:
        name += "′"
    return name
