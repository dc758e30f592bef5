"""A model fitted to a table in files, by one process or several, or loaded from a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vfg.cli.errors import print_line, suggest, usage_errors
from vfg.cli.options import (
    COMMON,
    FILES,
    FITTING,
    GRAPH,
    LARGE,
    Arrows,
    EngineOptions,
    Overwrite,
    Quiet,
    Seed,
    option,
)
from vfg.cli.progress import is_watched, watch_training
from vfg.cli.table_files import choose_columns, parse_columns
from vfg.utils.remote import is_remote
from vfg.utils.specs import check_choice

if TYPE_CHECKING:
    from vfg.bigtable import Source
    from vfg.graph import Graph
    from vfg.imputation.settings import ImputerSettings
    from vfg.imputation.table_model import TableModel
    from vfg.structure import LearnedGraph

PAIR = "CAUSE,EFFECT"


def parse_edges(
    texts: Sequence[str] | None, names: Sequence[str], option: str
) -> list[tuple[str, str]]:
    """Edges that were typed as `CAUSE,EFFECT`.

    Example:
        >>> parse_edges(["a,b"], ["a", "b"], "--require")
        [('a', 'b')]
    """
    edges = []
    for text in texts or ():
        pair = parse_columns(text, names, option)
        if len(pair) != 2:
            raise typer.BadParameter(f"{option} takes {PAIR}, but got {text!r}")
        edges.append((pair[0], pair[1]))
    return edges


@dataclass(frozen=True, kw_only=True)
class KnowledgeOptions:
    """Edges and orders that a graph that is learned must keep to."""

    require: list[str] | None = option(
        None, GRAPH, "An edge that the learned graph must have. May be repeated.", metavar=PAIR
    )
    forbid: list[str] | None = option(
        None, GRAPH, "An edge that it must not have. May be repeated.", metavar=PAIR
    )
    tier: list[str] | None = option(
        None,
        GRAPH,
        "Columns of a tier, which cause nothing in earlier tiers. May be repeated.",
        metavar="A,B,...",
    )

    @property
    def given(self) -> str | None:
        """The first of these options that was used."""
        used = {"--require": self.require, "--forbid": self.forbid, "--tier": self.tier}
        return next((name for name, texts in used.items() if texts), None)

    def learn(
        self, table: Any, columns: Sequence[str], kind: str = "dag", **options: Any
    ) -> LearnedGraph:
        """The graph of some columns of a table; errors of the options are errors of usage."""
        import vfg

        with usage_errors():
            return vfg.learn_graph(
                table,
                kind,
                required=parse_edges(self.require, columns, "--require"),
                forbidden=parse_edges(self.forbid, columns, "--forbid"),
                tiers=[parse_columns(text, columns, "--tier") for text in self.tier or ()],
                **options,
            )


def choose_graph(
    file: Path | None,
    sections: str | None,
    width: int | None,
    columns: Sequence[str],
    arrows: str | None = None,
) -> Graph | LearnedGraph | None:
    """The graph over some columns; None leaves the choice to the imputer."""
    if file is not None and sections is not None:
        raise typer.BadParameter("--graph and --sections exclude each other; choose one")
    if file is not None:
        from vfg.graph.files import READERS, holds_learned_graph, read_graph, states_arrows

        if holds_learned_graph(file):
            from vfg.structure import LearnedGraph

            return LearnedGraph.load(file)
        is_known = file.suffix.lower() in READERS
        with nullcontext() if is_known else usage_errors():
            graph = read_graph(file, width=width, arrows=arrows)
        inner = [node.name for node in graph.nodes if node.name in columns]
        inner = [name for name in inner if name not in graph.leaves]
        if inner and arrows is None and not states_arrows(file):
            raise ValueError(
                f"{inner[0]!r} is a column of the table, but no leaf of the graph, since the "
                f"arrows of {file} are read as child -> parent; if they lead from causes to "
                "effects, add --arrows cause-effect"
            )
        return graph
    return None if sections is None else sections_graph(sections, columns, width)


def sections_graph(text: str, columns: Sequence[str], width: int | None = None) -> Graph:
    """One root over sections of columns; columns that are not named are sections of their own.

    Example:
        >>> sections_graph("a,b", ["a", "b", "c"], width=4)
        Graph: 2 leaves, 1 latent node, 2 edges
        root (4)
        ├── a+b (2), columns a b
        └── c (1), column c
    """
    from vfg.graph import Graph, Node

    parts = [[name.strip() for name in part.split(",")] for part in text.split(":")]
    named = [name for part in parts for name in part]
    for place, name in enumerate(named):
        if name not in columns:
            raise typer.BadParameter(
                f"--sections names {name!r}, which is no column of the fit; "
                f"{suggest(name, columns)}"
            )
        if name in named[:place]:
            raise typer.BadParameter(
                f"--sections names {name!r} twice; a column is in one section only"
            )
    parts += [[name] for name in columns if name not in named]
    leaves = [Node("+".join(part), len(part), columns=tuple(part)) for part in parts]
    if width is None:
        from vfg.imputation.plan import make_plan

        width = max(make_plan(1000, len(columns)).width, *(leaf.width for leaf in leaves))
    root = "root"
    while root in [leaf.name for leaf in leaves]:
        root += "_"
    return Graph.star(leaves, width, root)


NAMES, BY_SIZE = "A,B,...", "by default from the size of the table"


@dataclass(frozen=True)
class FitOptions:
    """How a model is fitted; None leaves a choice to the table."""

    columns: str | None = option(
        None, FILES, "Use only these columns; `vfg impute` copies the others.", metavar=NAMES
    )
    exclude: str | None = option(
        None,
        FILES,
        "Columns to leave out, such as identifiers; `vfg impute` copies them.",
        metavar=NAMES,
    )
    kinds: list[str] | None = option(
        None,
        FILES,
        "Kind of a column if it is inferred wrongly: continuous, integer, few valued, "
        "boolean, categorical, ordinal, date or identifier. May be repeated.",
        "--kind",
        metavar="COLUMN=KIND",
    )
    bounds: list[str] | None = option(
        None,
        FILES,
        "Range of the imputed values of a column; either end may be left out. May be repeated.",
        metavar="COLUMN=LOW:HIGH",
    )
    constraints: list[str] | None = option(
        None,
        FILES,
        "What imputed values must satisfy, such as '0 <= age <= 120', 'a + b == total' or "
        "'start <= end'. May be repeated.",
        "--constraint",
        metavar="TEXT",
    )
    graph: Path | None = option(
        None,
        GRAPH,
        "A graph over the columns: .json, .graphml, .bif (structure only), or an edge list in "
        ".txt, .edges, .csv, .tsv.",
        metavar="FILE",
    )
    arrows: Arrows = None
    sections: str | None = option(
        None, GRAPH, "Groups of columns, each a leaf under one root.", metavar="A,B:C,D"
    )
    width: int | None = option(
        None, GRAPH, "Width of the latent nodes; by default from the number of columns.", min=1
    )
    bend: bool = option(
        True,
        FITTING,
        "Fit nonlinear models, too, or only the exact linear model, which takes seconds.",
        "--bend/--linear",
    )
    effort: str = option(
        "balanced",
        FITTING,
        "Number and size of the models that are fitted: more take longer and have smaller errors.",
        metavar="fast|balanced|best",
    )
    missingness: str = option(
        "auto",
        FITTING,
        "Why cells are missing: what the table gives evidence for (auto), at random given the "
        "other cells (ignorable), or because of their own value (self).",
        metavar="auto|ignorable|self",
    )
    members: int | None = option(None, FITTING, f"Number of nonlinear members; {BY_SIZE}.", min=1)
    mixtures: int | None = option(None, FITTING, f"Number of exact mixtures; {BY_SIZE}.", min=0)
    neighbours: int | None = option(
        None,
        FITTING,
        f"Number of row mixtures, with a component at every row; {BY_SIZE}. They store rows of the "
        "table in the model; 0 stores none.",
        min=0,
    )
    trees: int | None = option(
        None,
        FITTING,
        f"Number of trees of every column; {BY_SIZE}. They store values of the table in the model; "
        "0 stores none.",
        min=0,
    )
    steps: int | None = option(
        None, FITTING, f"Number of training steps of each member; {BY_SIZE}.", min=1
    )
    budget: float | None = option(
        None, FITTING, "Time limit of fitting; by default none.", metavar="SECONDS"
    )
    device: str | None = option(
        None,
        COMMON,
        "Device to compute on: cpu, cuda, cuda:1, mps; by default a GPU if any.",
        metavar="NAME",
    )
    seed: Seed = 0
    quiet: Quiet = False

    def select(self, source: Source) -> list[str]:
        """The columns to fit, among those of a table."""
        index = source.index_columns
        chosen = choose_columns(self.columns, self.exclude, source.names, index)
        left_out = [name for name in index if name not in chosen]
        if left_out and not self.quiet:
            print_line(
                f"the pandas index {', '.join(map(repr, left_out))} is left out of the fit; to fit "
                "it, name all columns in --columns"
            )
        return chosen

    def describe(self) -> dict[str, Any]:
        """What was chosen rather than left to the table, by name, for people; and the seed."""
        chosen = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("quiet", "seed") and getattr(self, field.name) != field.default
        }
        shown = {
            name: ", ".join(value) if isinstance(value, list) else value
            for name, value in chosen.items()
        }
        return {**shown, "seed": self.seed}

    def settings(self, columns: Sequence[str]) -> ImputerSettings:
        """The settings of a fit to some columns."""
        from vfg.imputation.constraints import parse_constraints
        from vfg.imputation.settings import ImputerSettings
        from vfg.tables.schema import Continuous, Schema

        watched = is_watched(self.quiet)
        if watched:
            watch_training()
        known = [field.name for field in fields(ImputerSettings)]
        plain = {name: value for name, value in vars(self).items() if name in known}
        graph = choose_graph(self.graph, self.sections, self.width, columns, self.arrows)
        parsed: dict[str, Any] = {
            "graph": graph,
            "width": self.width if graph is None else None,  # else the graph has it
            "schema": parse_kinds(self.kinds or (), columns),
            "bounds": parse_bounds(self.bounds or (), columns),
            "device": check_device(self.device),
            "progress": watched,
        }
        with usage_errors():
            Schema(parsed["schema"] or {})
            parse_constraints(self.constraints or (), columns)
            for ends in (parsed["bounds"] or {}).values():
                if str not in map(type, ends):  # dates are checked with their column
                    Continuous(ends)
            return ImputerSettings(**{**plain, **parsed})


def load_table_model(path: str | Path, device: str | None = None) -> TableModel:
    """A model of a table from a file, on the device where it is to answer."""
    import vfg
    from vfg.imputation.table_model import answering_device

    model = vfg.load(path)
    if not isinstance(model, vfg.TableModel):
        raise ValueError(
            f"this needs a model of a table, as vfg fit writes it, but the file holds a "
            f"{type(model).__name__}"
        )
    return model.to(answering_device(check_device(device)))


def check_device(name: str | None) -> str | None:
    """The name of a device that is there."""
    if name is None:
        return None
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        result = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        raise typer.BadParameter(
            f"the device {name!r} is not available; choose one of {', '.join(result)}"
        ) from error
    return name


def parse_kinds(texts: Sequence[str], columns: Sequence[str]) -> dict[str, str] | None:
    """Kinds of columns from `COLUMN=KIND`; None for none.

    Example:
        >>> parse_kinds(["age=integer"], ["age", "name"])
        {'age': 'integer'}
    """
    return dict(_split_pair(text, "--kind", "COLUMN=KIND", columns) for text in texts) or None


def parse_bounds(texts: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[Any, Any]] | None:
    """Ranges of columns from `COLUMN=LOW:HIGH`; None for none.

    Ends are numbers, or dates in ISO form; an end that is left out is the one that was observed.

    Example:
        >>> parse_bounds(["age=0:"], ["age"])
        {'age': (0.0, None)}
    """
    result = {}
    for text in texts:
        name, value = _split_pair(text, "--bounds", "COLUMN=LOW:HIGH", columns)
        low, colon, high = value.partition(":")
        if not colon:
            raise typer.BadParameter(f"--bounds takes COLUMN=LOW:HIGH, but got {text!r}")
        result[name] = _parse_end(low), _parse_end(high)
    return result or None


def _split_pair(text: str, option: str, form: str, columns: Sequence[str]) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (equals and value):
        raise typer.BadParameter(f"{option} takes {form}, but got {text!r}")
    if name not in columns:
        raise typer.BadParameter(
            f"{option} names {name!r}, which is no column of the fit; {suggest(name, columns)}"
        )
    return name, value


def _parse_end(text: str) -> float | str | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return text.strip()


@dataclass(frozen=True, kw_only=True)
class WorkOptions(KnowledgeOptions, EngineOptions):
    """Who fits the model, to which rows, and from where on."""

    every_row: bool = option(
        False,
        LARGE,
        "Fit the linear model to all rows; by default to a sample of at most 200,000.",
        "--every-row",
    )
    checkpoint: Path | None = option(
        None,
        None,
        "Keep the state of training in this folder, to continue with --resume after a crash.",
        metavar="FOLDER",
    )
    resume: bool = option(False, None, "Continue the training that --checkpoint keeps.", "--resume")
    overwrite: Overwrite = False
    learn_graph: bool = option(
        False,
        GRAPH,
        "Learn causes and effects among the columns, as `vfg learn` does, and keep them in the "
        "model for `vfg query --do`.",
        "--learn-graph",
    )


def fit_settings(
    source: Source, columns: list[str], options: FitOptions, work: WorkOptions
) -> ImputerSettings:
    """The settings of a fit, with the DAG that `--learn-graph` asks for."""
    if work.given is not None and not work.learn_graph:
        raise typer.BadParameter(
            f"{work.given} restricts --learn-graph; add --learn-graph, or leave it out"
        )
    settings = options.settings(columns)
    if not work.learn_graph:
        return settings
    if settings.graph is not None:
        raise typer.BadParameter("--learn-graph excludes --graph and --sections; choose one")
    from vfg.bigtable.fitting import draw_sample
    from vfg.structure.learning import MOST_ROWS

    learned = work.learn(
        draw_sample(source, columns, MOST_ROWS, settings.seed),
        columns,
        schema=settings.schema,
        seed=settings.seed,
        verbose=settings.progress,
    )
    if not options.quiet:
        count = len(learned.edges)
        print_line(
            f"learned {count} edge{'' if count == 1 else 's'}, {len(learned.undirected)} of them "
            "without a known direction; vfg show lists them"
        )
    return replace(settings, graph=learned)


def fit_model(
    source: Source, columns: list[str], options: FitOptions, work: WorkOptions
) -> TableModel:
    """Fit a model to some columns of a table, in this process."""
    from vfg.bigtable.fitting import fit
    from vfg.sklearn import VFGImputer

    settings = fit_settings(source, columns, options, work)
    settings = replace(settings, checkpoint=work.checkpoint)
    imputer = VFGImputer.from_settings(settings)
    model: TableModel = fit(source, imputer, columns=columns, every_row=work.every_row).model_
    return model


def fit_by_engine(
    source: Source, columns: list[str], options: FitOptions, work: WorkOptions
) -> TableModel | None:
    """Fit a model by an engine, or by torchrun: None in all but the first of its processes."""
    from vfg.bigtable.engines import ENGINES, process_group

    engine, processes = work.engine, work.processes
    with usage_errors():
        check_choice("--engine", engine, ENGINES)
    size = max(processes, int(os.environ.get("WORLD_SIZE", "1")))
    if size > 1 and options.budget is not None:
        raise typer.BadParameter(
            "--budget is for one process, as several would run out of time at different points; "
            "limit --steps instead"
        )
    if size > 1 and source.is_piped:
        raise typer.BadParameter("a table from a pipe can be read by one process only; name a file")
    if engine == "ray":
        if work.checkpoint is not None:
            raise typer.BadParameter("--checkpoint is for this process or torchrun, not for Ray")
        return _fit_by_ray(source, columns, options, work)
    if processes > 1:
        raise typer.BadParameter(
            f"--processes {processes} needs --engine ray, or: torchrun --nproc-per-node "
            f"{processes} -m vfg fit ..."
        )
    with process_group() as world:
        model = fit_model(source, columns, options, work)
    return model if world.is_first else None


def _fit_by_ray(
    source: Source, columns: list[str], options: FitOptions, work: WorkOptions
) -> TableModel:
    from vfg.bigtable.engines.ray import Ray
    from vfg.bigtable.fitting import fit_files
    from vfg.modelfile import loads
    from vfg.sklearn import VFGImputer
    from vfg.training.history import History

    settings = fit_settings(source, columns, options, work)
    imputer = VFGImputer.from_settings(replace(settings, progress=False))
    paths = [str(p) if is_remote(p := file.path) else os.path.abspath(p) for file in source.files]
    files = [(path, file.kind.format) for path, file in zip(paths, source.files, strict=True)]
    data, history = Ray(work.processes).together(
        fit_files, files, imputer, columns, work.every_row, source.dialect
    )
    model: Any = loads(data)
    model.history = None if history is None else History.from_dict(history)
    return model  # type: ignore[no-any-return]
