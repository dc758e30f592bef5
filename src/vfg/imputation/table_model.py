"""TableModel: the encoding of a table and its ensemble, to be fitted, queried and saved."""

from __future__ import annotations

import json
import math
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
import torch
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import ExactMeans
from vfg.graph import Graph
from vfg.graph.checks import suggestion
from vfg.imputation.answers import Evidence, TableAnswer, read_evidence
from vfg.imputation.categories import (
    SET_LEVELS,
    CategoryColumn,
    SecondStage,
    Section,
    category_columns,
    choose_sets,
)
from vfg.imputation.conditionals import TableFamilies, kept_rows
from vfg.imputation.constraints import Constraints
from vfg.imputation.ensemble import DRAWS, Ensemble, Prediction, quantiles_of_draws
from vfg.imputation.fitting import fit_parts
from vfg.imputation.limits import lift_passed
from vfg.imputation.missing_cells import CHOOSING, MissingCells
from vfg.imputation.missingness import Mechanism, describe_mechanism
from vfg.imputation.mixtures import Mixture, fit_linear_further
from vfg.imputation.parameter_draws import (
    CategoryDraw,
)
from vfg.imputation.relations import EXACT, Relations, holding_relations
from vfg.imputation.row_mixture import RowMixture
from vfg.imputation.settings import ImputerSettings, check_count, to_python
from vfg.imputation.stacking import KINDS, Parts, Stacking
from vfg.imputation.trees import Forest
from vfg.inference.answers import Answer, as_row_ids
from vfg.inference.evidence import is_records
from vfg.inference.interventions import counterfactual, intervene, is_intervention
from vfg.inference.variables import Kind, Variable, days_of
from vfg.inputs import ArrayLike, Name, as_weights
from vfg.model import VFG
from vfg.modelfile.registry import register
from vfg.tables.categorical import CategoricalEncoding
from vfg.tables.cells import Array, Label, Mask, as_objects, format_moments
from vfg.tables.encoding import Arrays, Encoding
from vfg.tables.frames import Table, TableView, as_cell_mask, hide_cells, open_table, quote
from vfg.tables.numeric import NumericEncoding, nearest_values
from vfg.tables.schema import Integer, distinct
from vfg.training.data import choose_device
from vfg.training.history import History
from vfg.utils.extras import needs
from vfg.utils.linalg import mean_in_order
from vfg.utils.random import uniform
from vfg.utils.specs import with_options

if TYPE_CHECKING:
    from vfg.imputation.explanation import Explanation

ROWS_AT_ONCE = 8192
"""Rows that are answered together: enough to be fast, few enough to bound memory."""
FEW_ROWS = 32
"""Up to how many rows by name are computed without padding: tiles of members have 32 rows, so that
padding fewer costs more than it computes."""
MEDIAN_DRAWS = 240
"""Draws whose median is taken. On six tables of the benchmark 60 have 1.0 % more absolute error and
960 have 0.4 % less; 240 take 1.3 to 1.8 times as long as 60."""
ROWS_OF_DRAWS = 1024
"""Rows that are drawn together where every row has many draws, which bounds memory."""
LEAST_WEIGHT = 0.1
"""Sum of the weights per row below which they are likely shares, not counts."""
WARNED_OF_CATEGORIES: weakref.WeakKeyDictionary[Any, set[Label]] = weakref.WeakKeyDictionary()
"""Models, and the columns that their users know to have new categories."""


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
class TableModel(Ensemble):
    """A model of a table with columns of any kind: what `vfg fit` writes and `VFGImputer` wraps.

    Every column is encoded as one to eight standardised numbers, a leaf of the graph. An exact
    linear-Gaussian model, nonlinear members that start there, exact mixtures and mixtures with a
    component at every row answer together; see `vfg.sklearn.VFGImputer`. `vfg.fit(model, table)`
    fits it in place; `vfg.save` and `vfg.load` write and read it. Arrays that it returns are on the
    CPU, wherever it computes, in the units, categories and dtypes of the table that was fitted.

    Args:
        settings: how it is fitted; None for the defaults. Files do not keep it.
        options: fields of `ImputerSettings` that differ from `settings`.

    Attributes:
        history: of the training of the members, if it was in this process.
        mechanism: evidence about why cells of the fitted table are missing, as logarithms of Bayes
            factors: because of their own value, and because of other columns (`rival`).
        constraints: of filled cells, as texts.
        origin: how the files of the fit were read, and digests of some rows; see `bigtable.fit`.

    Example:
        >>> import vfg
        >>> model = vfg.TableModel(bend=False)
        >>> history = vfg.fit(model, {"a": [1.0, 2.0, 3.0, 4.0], "b": ["x", "x", "y", "y"]})
        >>> model.infer({"a": 4.0}, targets=["b"]).mean["b"].tolist()
        ['y']
    """

    cached = (
        *Ensemble.cached, "encoding", "unordered", "labels", "leaves", "graph", "variables",
        "_held", "_leaf_names", "category_sections", "priors", "limits", "open_limits",
        "usual_range", "widest_range", "has_soft_limits",
        "few_valued", "constraint_set", "_families", "_kept_rows",
    )  # fmt: skip
    history: History | None = None

    def __init__(self, settings: ImputerSettings | None = None, **options: Any) -> None:
        super().__init__()
        self.settings = with_options(settings, options, ImputerSettings, "a TableModel")
        self.columns: list[int] = []
        self.described: dict[str, Any] | None = None
        self.mechanism: dict[str, float] = {}
        self.constraints: tuple[str, ...] = ()
        self.origin: dict[str, Any] = {}
        self.arrays = Arrays({})
        self.eval()

    def _assemble(self, encoding: Encoding, columns: list[int], parts: Parts) -> None:
        """Replace the encoding, the modelled columns of its matrix, and the parts over them."""
        self.set_parts(len(columns), parts)
        self.described, self.columns = encoding.to_dict(), columns
        self.arrays = Arrays.of(encoding.state())
        self.__dict__["encoding"] = encoding  # need not be read from its description
        self.history, self.mechanism = parts.history, parts.mechanism.to_dict()
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
            settings: how; None for those that the model was made with.
            observed: which cells may be used; as for `infer`.
            sample_weight: how often every row counts; see `VFGImputer.fit`.
            options: fields of `ImputerSettings` that differ from `settings`.

        Returns:
            The history of the members' training; None for the linear model alone.

        Raises:
            ValueError: for infinite cells, no rows or columns, or invalid settings.
            TypeError: for cells of unknown kinds.
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
        self.described, self.arrays = encoding.to_dict(), Arrays.of(encoding.state())
        self.forget()
        self.__dict__["encoding"] = encoding

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
            seed: of the draws.
            row_ids: distinct integers from 0 on that draws depend on; None means the position.
            padded: whether rows are computed in padded tiles, so that a row has the same bits in
                every batch. False is faster for a few rows; numbers are the same up to rounding.
                None pads tables, and more than 32 rows by name.
            do: values by column that an intervention sets; see `VFG.infer`.
            dag: (cause, effect) pairs of columns, or a `LearnedGraph`; None for the one that the
                model was fitted with.

        Returns:
            Means, deviations, quantiles, probabilities and joint draws, in the units and categories
            of the table.

        Raises:
            ValueError: for unknown names, categories or values, or a model that is not fitted.
        """
        if is_intervention(do, dag):
            return intervene(self, given, targets, do or {}, dag, observed=observed, seed=seed)
        evidence = read_evidence(self, given, observed)
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
            n: how many.
            seed: of the draws.

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
        """A copy of a table whose missing cells are filled with the model's means.

        Observed cells come back bit for bit. Missing cells of columns without any observed cell in
        fitting stay missing. Other columns of a frame are not changed.

        Args:
            table: with the columns that were fitted; of a frame in any order.
            row_ids: distinct integers from 0 on; None means the position.

        Returns:
            A table of the same kind and dtypes.

        Raises:
            ValueError: for a table without the columns of the model.
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
            evaluations: about how often the model may be asked.
            seed: of the orders.

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

        `fill`, and `transform`, `sample` and `predict_interval` of `VFGImputer`, take missing cells
        as missing in the same way. `infer` and `evaluate` do not, because there a cell is missing
        only because it was not given.
        """
        return describe_mechanism(self.slopes, self.mechanism)

    # Properties.

    @property
    def is_fitted(self) -> bool:
        """Whether it is fitted."""
        return self.described is not None

    @cached_property
    def encoding(self) -> Encoding:
        """How the table becomes a matrix of real numbers."""
        if self.described is None:
            raise ValueError("this TableModel is not fitted; fit it with vfg.fit(model, table)")
        return Encoding.from_dict(self.described, self.arrays.read())

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
            own, layout = _variable(self.encoding, name, label, leaf), layouts.get(name, "")
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
        known = list(self.encoding.schema)
        counted = known == list(range(len(known)))
        if counted or list(labels) == list(range(len(labels))):
            if len(labels) != len(known):
                raise ValueError(
                    f"the model knows {len(known)} columns{' without names' if counted else ''}, "
                    f"but the table has {len(labels)}; select those that it was fitted to, in the "
                    "same order"
                )
            return list(range(len(known)))
        order: dict[Label, int] = {str(label): place for place, label in enumerate(labels)}
        order |= {label: place for place, label in enumerate(labels)}
        positions = {label: order.get(label, order.get(str(label))) for label in known}
        missing = [label for label, place in positions.items() if place is None]
        if missing:
            raise ValueError(
                f"the table lacks the column {quote(missing)} that the model knows; there are "
                f"{quote(list(labels))}"
            )
        return [place for place in positions.values() if place is not None]

    def rows_of(self, columns: Mapping[Name, Array], draw: int) -> Any:
        """One draw of all columns as a table: a frame if columns have names, else an array."""
        rows = {
            label: self._as_written(label, columns[name][draw])
            for name, label in self.labels.items()
        }
        if list(rows) == list(range(len(rows))):
            kinds = {cells.dtype for cells in rows.values()}
            plain = len(kinds) == 1 and next(iter(kinds)).kind in "fiub"
            cells = [part if plain else as_objects(part) for part in rows.values()]
            return np.stack(cells, axis=1)
        with needs("table"):
            import pandas
        fitted = self.encoding.frame
        if fitted is None:
            return pandas.DataFrame(rows)
        dtypes = dict(zip(rows, fitted["dtypes"], strict=True))
        if fitted["library"] != "pandas":
            from vfg.tables.narwhals_frames import frame_of

            clocks = {
                label: part.clock
                for label, part in self.encoding.parts.items()
                if isinstance(part, NumericEncoding) and part.clock is not None
            }
            zones = {label: clock.zone for label, clock in clocks.items() if clock.zone}
            return frame_of(fitted["library"], rows, dtypes, zones)
        from vfg.tables.pandas_frames import with_dtypes

        return with_dtypes(pandas.DataFrame(rows), dtypes, self.encoding.schema)

    def _as_written(self, label: Label, cells: Array) -> Array:
        """Cells as the fitted table held them, where it held dates as text."""
        part = self.encoding.parts[label]
        clock = part.clock if isinstance(part, NumericEncoding) else None
        if clock is None or clock.template is None:
            return cells
        return format_moments(cells, clock.template)

    # Matrices in, matrices out: entries of idle columns are 0.

    def encode(self, table: Any) -> tuple[Tensor, Tensor]:
        """The modelled columns of a table's matrix, and which entries are evidence.

        Warns once of columns with categories that did not occur in fitting.
        """
        opened = open_table(table, self.encoding.missing_values)
        values, observed = self.encoding.evidence(opened, self.columns)
        self._warn_of_new_categories(opened, observed)
        return values, observed

    def _warn_of_new_categories(self, table: Table, observed: Tensor) -> None:
        warned = WARNED_OF_CATEGORIES.setdefault(self, set())
        schema = self.encoding.schema
        position = {label: place for place, label in enumerate(schema)}
        for label, column in self.category_sections.items():
            cells = table.column(position[label])
            unknown = ~cells.missing & ~observed[:, column.places[0]].numpy()
            if label in warned or not unknown.any():
                continue
            # Rows that a model was fitted to may have been drawn from a table with more categories.
            known = set(getattr(schema[label], "categories", None) or ())
            new = [cell for cell in distinct(cells.values[unknown]) if cell not in known]
            if new:
                warned.add(label)
                warnings.warn(
                    f"the column {label!r} holds categories that did not occur in fitting, such as "
                    f"{new[0]!r}; these cells stay as they are, and nothing is inferred from them",
                    stacklevel=2,
                )

    def fitted_matrix(self, table: Table) -> tuple[Tensor, Tensor]:
        """The same of rows that were fitted, whose code points do not come from their own row."""
        values, observed = self.encoding.training_matrix(table)
        return values[:, self.columns], observed[:, self.columns]

    def spread_out(self, values: Tensor) -> Array:
        """A matrix of all columns from one `(..., modelled columns)`."""
        whole = np.zeros((*values.shape[:-1], self.encoding.width))
        whole[..., self.columns] = values.numpy()
        return whole

    def means(self, values: Tensor, observed: Tensor, ids: Tensor | None = None) -> Tensor:
        """Stacked means of every entry, `(rows, columns)`; `ids` default to positions."""
        return self.predictions(values, observed, ids).means

    @torch.no_grad()
    def predictions(
        self, values: Tensor, observed: Tensor, ids: Tensor | None = None
    ) -> Prediction:
        """Stacked means and votes; arguments as of `means`."""
        if self.linear is None or not len(values):
            return Prediction(torch.zeros(values.shape, dtype=torch.float64))
        chunks = self._chunks(values, observed, ids)
        return Prediction.concat([self.joint_means(*chunk).cpu() for chunk in chunks])

    @torch.no_grad()
    def point_estimates(self, values: Tensor, observed: Tensor, prediction: Prediction) -> Tensor:
        """What cells are filled with: means, and code points of the most probable categories."""
        estimates = prediction.means.clone()
        for label, column in self.category_sections.items():
            rows = (~observed[:, column.places].any(1)).nonzero()[:, 0]
            if len(rows) and isinstance(column.part, CategoricalEncoding):
                section = self.category_section(
                    label, values[rows], observed[rows], prediction.select(rows)
                )
                chosen = torch.from_numpy(section.most_probable)
                estimates[rows[:, None], torch.tensor(column.places)] = chosen
        return estimates

    def fills(
        self,
        values: Tensor,
        observed: Tensor,
        ids: Tensor | None = None,
        prediction: Prediction | None = None,
    ) -> Tensor:
        """What tables are filled with: point estimates, or the nearest values of columns.

        The prediction is made if it is not known.
        """
        known = self.predictions(values, observed, ids) if prediction is None else prediction
        estimates = self.point_estimates(values, observed, known)
        return self.at_values(estimates, observed, fills=True)

    @cached_property
    def few_valued(self) -> dict[int, Array]:
        """The values, standardised, of few-valued columns by their places among the modelled.

        Columns of relations between three or more numbers are left out, since sums of values need
        not be values.
        """
        few = self.encoding.few_valued(self.columns)
        if self.relations is None:
            return few
        nonzero = self.relations[:, :-1].abs() > EXACT
        of_numbers = ~(nonzero & self.unordered.to(nonzero.device)).any(1) & (nonzero.sum(1) > 2)
        involved = nonzero[of_numbers].any(0).tolist()
        return {at: values for at, values in few.items() if not involved[at]}

    def at_values(self, table: Tensor, observed: Tensor, *, fills: bool = False) -> Tensor:
        """Entries `(..., rows, columns)` with the nearest values in few-valued columns.

        As `fills`, only in those whose cells are filled with values.
        """
        chosen = self.few_valued
        if fills:
            owner = {self.encoding.sections[k].start: p for k, p in self.encoding.parts.items()}
            chosen = {
                at: values
                for at, values in chosen.items()
                if getattr(owner[self.columns[at]], "fills_values", False)
            }
        if not chosen:
            return table
        moved = table.clone()
        for at, values in chosen.items():
            nearest = nearest_values(table[..., at].numpy(), values)
            moved[..., at] = torch.where(observed[:, at], table[..., at], torch.from_numpy(nearest))
        return moved

    def _chunks(
        self, values: Tensor, observed: Tensor, ids: Tensor | None
    ) -> Iterator[tuple[Tensor, ...]]:
        """Rows that are answered together, on the device of the model."""
        parts = values, observed, torch.arange(len(values)) if ids is None else ids
        for some in zip(*(part.split(ROWS_AT_ONCE) for part in parts), strict=True):
            yield tuple(part.to(self.weights.device) for part in some)

    def draws(
        self,
        values: Tensor,
        observed: Tensor,
        number: int,
        seed: int,
        ids: Tensor | None = None,
        *,
        categories: bool = True,
    ) -> Tensor:
        """Joint draws of what is not observed given what is, `(number, rows, columns)`.

        Sections of categories are code points, unless `categories` is False.
        """
        drawn, prediction = self.draws_and_prediction(values, observed, number, seed, ids)
        if not categories or self.linear is None or not len(values):
            return drawn
        ids = torch.arange(len(values)) if ids is None else ids
        return self.with_categories(drawn, values, observed, prediction, ids, seed)

    @torch.no_grad()
    def draws_and_prediction(
        self, values: Tensor, observed: Tensor, number: int, seed: int, ids: Tensor | None = None
    ) -> tuple[Tensor, Prediction]:
        """Draws without categories, and what `predictions` returns; arguments as of `draws`."""
        if self.linear is None or not len(values):
            nothing = torch.zeros(number, *values.shape, dtype=torch.float64)
            return nothing, self.predictions(values, observed, ids)
        chunks = self._chunks(values, observed, ids)
        drawn, predicted = zip(
            *(self.joint_draws(x, seen, at, number, seed) for x, seen, at in chunks), strict=True
        )
        whole = Prediction.concat([one.cpu() for one in predicted])
        return torch.cat([one.cpu() for one in drawn], dim=1), whole

    @cached_property
    def category_sections(self) -> dict[Label, CategoryColumn]:
        """The columns of categories, by label."""
        return category_columns(self.encoding, self.columns)

    @torch.no_grad()
    def with_categories(
        self,
        draws: Tensor,
        values: Tensor,
        observed: Tensor,
        prediction: Prediction,
        ids: Tensor,
        seed: int,
    ) -> Tensor:
        """Draws `(number, rows, columns)` of code points, and of values of few-valued columns."""
        drawn = self.at_values(draws, observed).numpy().copy()
        for label, column in self.category_sections.items():
            rows = np.flatnonzero(~observed[:, column.places].any(1).numpy())
            if not len(rows):
                continue
            some = values[rows], observed[rows], prediction.select(rows)
            expected = self.category_section(label, *some, drawing=True)
            every, first = torch.arange(len(drawn)), torch.tensor(column.places[:1])
            numbers = uniform(seed, ids[rows], every, CHOOSING, first)
            section = np.ix_(every.numpy(), rows, np.array(column.places))
            drawn[section] = expected.choose(drawn[section], numbers[..., 0].numpy())
        return torch.from_numpy(drawn)

    def category_section(
        self,
        label: Label,
        values: Tensor,
        observed: Tensor,
        prediction: Prediction,
        *,
        drawing: bool = False,
        prior: bool = True,
    ) -> Section:
        """What is expected in the section of a column of categories.

        `drawing` computes the covariances that draws need; `prior` compares with no evidence.
        """
        column = self.category_sections[label]
        means = prediction.means[:, column.places].numpy()
        covariances = None
        if drawing or not column.part.is_simplex:
            assert self.linear is not None
            names: list[Name] = list(self.linear.variables)
            chosen = [names[place] for place in column.places]
            answer = self.linear.infer(values, chosen, observed=observed)
            covariances = answer.covariance(chosen).cpu().numpy()
        place = list(self.category_sections).index(label)
        votes, weights = None, (1.0, 0.0)
        if self.pooling is not None and prediction.votes is not None:
            sizes = [len(own.part.categories) for own in self.category_sections.values()]
            votes = prediction.votes.split(sizes, dim=1)[place].numpy()
            first, second = self.pooling[place].tolist()
            weights = first, second
        second = self._second_stage(place, prediction)
        needed = prior and (covariances is not None or votes is not None)
        start = self.priors[label] if needed else None
        return Section(column, means, covariances, start, votes, weights, second=second)

    def _second_stage(self, place: int, prediction: Prediction) -> SecondStage | None:
        """What trees and regressions predict for a column of categories."""
        forest = self.forest
        if forest is None or prediction.trees is None or place not in forest.categories:
            return None
        assert prediction.trust is not None
        shares = prediction.trees.split(forest.sizes, dim=1)[place].numpy()
        regression = None
        if prediction.regressions is not None and place in forest.regressed:
            regression = prediction.regressions.split(forest.sizes, dim=1)[place].numpy()
        weights = tuple(forest.class_weights[place].reshape(-1).tolist())
        return SecondStage(shares, prediction.trust.numpy(), weights, regression)

    def category_sets(self, label: Label, probabilities: Array, level: float) -> Mask:
        """Which categories are in the sets of a level, `(rows, categories)`.

        Args:
            label: of a column of categories.
            probabilities: of its categories, `(rows, categories)`.
            level: the share of cells whose category is in its set.
        """
        place = list(self.category_sections).index(label)
        thresholds = (
            None if self.set_thresholds is None else self.set_thresholds[place].cpu().numpy()
        )
        return choose_sets(probabilities, level, thresholds)

    @property
    def category_draws(self) -> list[CategoryDraw]:
        """The columns of two to nine categories, as a Normal model draws them."""
        return [
            CategoryDraw(
                list(column.places),
                torch.from_numpy(column.part.points),
                torch.from_numpy(column.part.counts / column.part.counts.sum()),
            )
            for column in self.category_sections.values()
            if column.part.is_simplex
        ]

    def probabilities_where_missing(
        self, values: Tensor, observed: Tensor, prediction: Prediction
    ) -> list[Tensor]:
        """Those of the columns of `category_draws`, `(rows where it is missing, categories)`."""
        found = []
        labels = [k for k, column in self.category_sections.items() if column.part.is_simplex]
        for label, column in zip(labels, self.category_draws, strict=True):
            rows = column.missing_rows(observed)
            some = values[rows], observed[rows], prediction.select(rows)
            found.append(torch.from_numpy(self.category_section(label, *some).probabilities))
        return found

    @cached_property
    def priors(self) -> dict[Label, Section]:
        """What is expected in the sections of categories without evidence, by label."""
        nothing = torch.zeros(1, len(self.columns), dtype=torch.float64)
        observed = torch.zeros_like(nothing, dtype=torch.bool)
        row = nothing, observed, self.predictions(nothing, observed)
        return {
            label: self.category_section(label, *row, drawing=True, prior=False)
            for label in self.category_sections
        }

    def quantiles(
        self,
        values: Tensor,
        observed: Tensor,
        levels: Sequence[float],
        *,
        seed: int,
        ids: Tensor | None = None,
    ) -> Tensor:
        """Quantiles of every entry, `(levels, rows, columns)`; the most probable of categories."""
        return self.quantiles_and_prediction(values, observed, levels, seed=seed, ids=ids)[0]

    def quantiles_and_prediction(
        self,
        values: Tensor,
        observed: Tensor,
        levels: Sequence[float],
        *,
        seed: int,
        ids: Tensor | None = None,
    ) -> tuple[Tensor, Prediction]:
        """Quantiles, and what `predictions` returns; arguments as of `quantiles`."""
        ids = torch.arange(len(values)) if ids is None else ids
        alone = self.linear is not None and not self.is_stacked
        normal = self.linear_means if alone else None
        if isinstance(normal, ExactMeans):
            prediction = self.predictions(values, observed, ids)
            spread = torch.where(self.unordered, 0.0, normal.deviations(values, observed))
            spread = self.deviations_with_relations(spread, observed)
            steps = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64))[:, None, None]
            centre = self.with_relations(normal(values, observed), values, observed)
            quantiles = self.within_limits(centre + steps * spread, prediction.means)
        else:
            quantiles = torch.empty(len(levels), *values.shape, dtype=torch.float64)
            predicted = []
            for rows in torch.arange(len(values)).split(ROWS_OF_DRAWS):
                part = values[rows], observed[rows]
                drawn, own = self.draws_and_prediction(*part, DRAWS, seed, ids[rows])
                quantiles[:, rows] = torch.from_numpy(quantiles_of_draws(drawn.numpy(), levels))
                predicted.append(own)
            prediction = Prediction.concat(predicted)
        quantiles = self._with_categories(quantiles, values, observed, prediction)
        quantiles = self.at_values(quantiles, observed)
        ends = self.quantiles_with_relations(quantiles, levels, values, observed)
        return ends, prediction

    def _with_categories(
        self, ends: Tensor, values: Tensor, observed: Tensor, prediction: Prediction
    ) -> Tensor:
        """Quantiles with the most probable category in columns without order."""
        if not bool(self.unordered.any()):
            return ends
        estimates = self.point_estimates(values, observed, prediction)
        return torch.where(self.unordered, estimates, ends)

    def medians(
        self, values: Tensor, observed: Tensor, estimates: Tensor, *, seed: int, ids: Tensor
    ) -> Tensor:
        r"""Medians of every entry, `(rows, columns)`; those of categories are the estimates.

        The median is estimated by $\hat\mu + m - \bar x$ for the mean $\hat\mu$ of the ensemble and
        the median m and mean $\bar x$ of n draws. The variance of $m - \bar x$ is 0.57 / n of that
        of Normal draws, and that of m is 1.57 / n.
        """
        if self.linear is None or not self.is_stacked:
            # Means of Normal variables are their medians.
            return self.at_values(estimates, observed)
        medians = estimates.clone()
        for rows in torch.arange(len(values)).split(ROWS_OF_DRAWS):
            part = values[rows], observed[rows]
            drawn = self.draws(*part, MEDIAN_DRAWS, seed, ids[rows], categories=False)
            shift = torch.from_numpy(np.median(drawn.numpy(), axis=0)) - mean_in_order(drawn)
            moved = self._within_reach(estimates[rows] + shift, estimates[rows])
            moved = self.with_relations(moved, *part)
            medians[rows] = torch.where(self.unordered | part[1], estimates[rows], moved)
        return self.at_values(medians, observed)

    def _within_reach(self, medians: Tensor, means: Tensor) -> Tensor:
        """Medians within the range of means, or as far beyond it as these are."""
        low, high = self.usual_range
        return medians.maximum(torch.minimum(means, low)).minimum(torch.maximum(means, high))

    @cached_property
    def limits(self) -> Tensor:
        """The least and the greatest value of draws, `(2, columns)`, if means are not beyond."""
        return self._ends("drawn_least", "drawn_greatest")

    @cached_property
    def has_soft_limits(self) -> bool:
        """Whether cells of some column may be expected beyond the limits of draws."""
        return bool((self.limits != self._ends("least", "greatest")).any())

    def within_limits(self, draws: Tensor, means: Tensor) -> Tensor:
        if not self.has_soft_limits:
            return draws  # whose limits are those of decoding
        low, high = lift_passed(self.limits.to(draws.device), means)
        return draws.maximum(low).minimum(high)

    @cached_property
    def open_limits(self) -> Tensor:
        """The same where it is 0 or a bound, the only one of its column, and no cell attains it."""
        ends, reached, bounds = self.limits, self._ends("lowest", "highest"), self.usual_range
        zero = self._ends("zero", "zero")
        is_open = ends.isfinite() & (ends != reached) & ((ends == zero) | (ends == bounds))
        is_open &= ~ends.isfinite().all(0)
        is_open[:, list(self.few_valued)] = False
        infinite = torch.tensor([[-torch.inf], [torch.inf]], dtype=ends.dtype)
        return torch.where(is_open, ends, infinite)

    @cached_property
    def usual_range(self) -> Tensor:
        """The least and the greatest value that means have, relations aside, `(2, columns)`."""
        return self._ends("floor", "ceiling")

    @cached_property
    def widest_range(self) -> Tensor:
        """The same of cells missing by their value, and of rows unlike the fitted ones."""
        ends = self._ends("low_reach", "high_reach")
        low, high = torch.where(ends.isinf(), self.usual_range, ends)
        # Ranges that were widened later may contain these.
        return torch.stack([low.minimum(self.usual_range[0]), high.maximum(self.usual_range[1])])

    def within_range(self, means: Tensor) -> Tensor:
        return means.clamp(*self.usual_range.to(means.device))

    def within_widest_range(self, means: Tensor) -> Tensor:
        return means.clamp(*self.widest_range.to(means.device))

    def _ends(self, *names: str) -> Tensor:
        """Two attributes of every column of numbers, standardised, `(2, columns)`."""
        none = -np.inf, np.inf
        ends = torch.tensor(none, dtype=torch.float64)[:, None].repeat(1, self.encoding.width)
        for label, part in self.encoding.parts.items():
            if isinstance(part, NumericEncoding) and not (part.empty or part.constant):
                own = [getattr(part, name) for name in names]
                own = [other if end is None else end for end, other in zip(own, none, strict=True)]
                both = torch.from_numpy(part.standardise(np.array(own)))
                ends[:, self.encoding.sections[label].start] = both
        return ends[:, self.columns]

    @cached_property
    def unordered(self) -> Tensor:
        """Which modelled columns belong to code points, which have no order."""
        return self.encoding.unordered[self.columns]

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
            "linear": None if self.linear is None else self.linear.to_dict(),
            "members": [member.to_dict() for member in self.member_models],
            "mixtures": [mixture.to_dict() for mixture in self.mixture_models],
            "neighbours": [one.to_dict() for one in self.row_mixture_models],
            **({} if self.relations is None else {"relations": len(self.relations)}),
            **({} if self.relation_noise is None else {"noisy": True}),
            **({} if self.departures is None else {"departures": True}),
            **({} if self.drawing is None else {"drawing": True}),
            **({} if self.sharpness is None else {"sharpness": True}),
            **({} if self.widths is None else {"widths": True}),
            **({} if self.tree_widths is None else {"tree_widths": True}),
            **({} if self.linear_errors is None else {"linear_errors": True}),
            **({} if self.targeted is None else {"targeted": True}),
            **({} if self.trust is None else {"trust": True}),
            **({} if self.usual_distance is None else {"usual_distance": True}),
            **({} if self.following is None else {"following": True}),
            **({} if self.slope_errors is None else {"slope_errors": True}),
            **({} if self.pooling is None else {"pooling": len(self.pooling)}),
            **({} if self.slopes is None else {"slopes": True}),
            **({} if self.selection is None else {"selection": True}),
            **({} if self.set_thresholds is None else {"sets": len(self.set_thresholds)}),
            **({"mechanism": json.dumps(self.mechanism)} if self.mechanism else {}),
            **({} if self.forest is None else {"forest": self.forest.to_dict()}),
            **({"constraints": list(self.constraints)} if self.constraints else {}),
            **({"origin": json.dumps(self.origin)} if self.origin else {}),
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> TableModel:
        """A new model with the configuration that `to_dict` returned."""
        model = cls()
        columns, linear = list(description["columns"]), description["linear"]
        slopes, both_ends = (torch.zeros(*k, len(columns)).double() for k in ((), (2,)))
        sets = torch.zeros(description.get("sets", 0), len(SET_LEVELS), dtype=torch.float64)
        parts = Parts(
            members=[VFG.from_dict(member) for member in description["members"]],
            mixtures=[Mixture.from_dict(mixture) for mixture in description["mixtures"]],
            neighbours=[RowMixture.from_dict(one) for one in description["neighbours"]],
            linear=None if linear is None else GaussianVFG.from_dict(linear),
            forest=Forest.from_dict(description["forest"]) if "forest" in description else None,
            relations=_empty_relations(description.get("relations", 0), len(columns)),
            combination=_empty_stacking(description, len(columns)),
            following=both_ends if "following" in description else None,
            slope_errors=both_ends.clone() if "slope_errors" in description else None,
            mechanism=Mechanism(
                slopes if description.get("slopes") else None,
                selection=slopes.new_zeros(len(columns) + 3, len(columns))
                if description.get("selection")
                else None,
            ),
            set_thresholds=sets if "sets" in description else None,
        )
        model.set_parts(len(columns), parts)
        if not description.get("noisy"):
            model.relation_noise = None  # a file of an earlier version, with exact relations alone
        model.described = json.loads(description["encoding"])
        model.arrays, model.columns = Arrays(description["arrays"]), columns
        model.mechanism = dict(json.loads(description.get("mechanism", "{}")))
        model.constraints = tuple(map(str, description.get("constraints", ())))
        model.origin = dict(json.loads(description.get("origin", "{}")))
        return model


def without_rows(table: Table, weights: Tensor | None) -> Table:
    """A table whose rows of weight 0 have no cells; warns of weights that add up to few rows."""
    if weights is None:
        return table
    total = float(weights.sum())
    if total < LEAST_WEIGHT * table.rows:
        warnings.warn(
            f"the weights of {table.rows} rows add up to {total:.3g}, and the fit is that of so "
            "many rows; multiply them, so that they add up to the number of rows",
            stacklevel=4,
        )
    left_out = (weights == 0.0).numpy()
    hidden = np.repeat(left_out[:, None], len(table.labels), axis=1)
    return hide_cells(table, hidden) if left_out.any() else table


def as_frame(table: Any, columns: Sequence[Label] | None = None) -> Any:
    """Columns or rows by name as a frame of pandas; anything else as it is.

    A frame has the `columns` that are given, missing where the table lacks them.
    """
    # Sparse matrices of keys are dictionaries too.
    if scipy.sparse.issparse(table) or not (isinstance(table, Mapping) or is_records(table)):
        return table
    with needs("table"):
        import pandas
    if isinstance(table, Mapping) and all(map(np.isscalar, table.values())):
        table = [table]
    frame = pandas.DataFrame(table)
    if columns is None or not set(frame.columns) <= set(columns):
        return frame  # unknown names are refused where columns are matched
    for label in columns:
        if label not in frame.columns:
            frame[label] = None  # of no dtype, so that it takes that of what is filled in
    return frame[list(columns)]


def _empty_stacking(description: Mapping[str, Any], columns: int) -> Stacking:
    """A stacking with the optional tensors that a model file has."""
    shapes: dict[str, tuple[int, ...]] = {
        "departures": (len(KINDS), columns),
        "drawing": (4,),
        "sharpness": (columns,),
        "pooling": (description.get("pooling", 0), 2),
        "widths": (2, columns),
        "tree_widths": (2, columns),
        "targeted": (columns,),
        "trust": (columns,),
        "linear_errors": (columns,),
        "usual_distance": (),
    }
    optional: dict[str, Any] = {
        name: torch.zeros(shape, dtype=torch.float64)
        for name, shape in shapes.items()
        if name in description
    }
    return replace(Stacking.of_members(columns), **optional)


def _empty_relations(number: int, columns: int) -> Relations:
    zeros = torch.zeros(number, columns + 1, dtype=torch.float64)
    return Relations(zeros, zeros[:, 0].clone())


def _free_name(name: str, taken: Sequence[str]) -> str:
    """The name, changed where another node has it or where it is not allowed."""
    name = name.replace("->", "→") or "column"
    while name in taken:
        name += "′"
    return name


def _variable(encoding: Encoding, name: str, label: Label, leaf: str) -> Variable:
    part, spec = encoding.parts[label], encoding.schema[label]
    idle = label in encoding.idle
    if not isinstance(part, NumericEncoding):
        categories = tuple(to_python(c) for c in getattr(part, "categories", ()))
        if part.empty or (len(categories) > 1 and idle):
            categories = categories[:1]
        return Variable(name, "choice", leaf, categories=categories, idle=idle)
    kind: Kind
    if part.clock is not None:
        ends = days_of(part.clock.moments(np.array([part.lowest, part.highest])))
        kind = "date" if part.clock.kind == "M" else "number"
        return Variable(name, kind, leaf, float(ends[0]), float(ends[1]), idle=idle)
    kind = "integer" if isinstance(spec, Integer) else "number"
    return Variable(name, kind, leaf, part.lowest, part.highest, idle=idle)
