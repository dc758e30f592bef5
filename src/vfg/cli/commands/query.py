"""`vfg query`: infer any variables given any others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vfg.cli.errors import Command, suggest, usage_errors
from vfg.cli.model_files import choose_model, complete_names, complete_pairs
from vfg.cli.options import Level, ModelFile, ModelOption, RunOptions, Seed, with_groups
from vfg.cli.output import bar, format_value, histogram, print_json, print_text

if TYPE_CHECKING:
    from vfg import Model
    from vfg.inference.variables import Marginal, Variable

MOST_PICTURES = 6
"""With more answers than these, none gets a histogram."""
MOST_SHARES = 12
"""How many categories are listed, the most probable first."""


class Query(Command):
    """Takes several values after one option: `--given A=1 B=2 --infer D E`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat `--given`, `--do` and `--infer` before each value, then parse as ever."""
        typed = list(repeat_options(args))
        if ctx.resilient_parsing and typed and typed[-1].startswith("-"):
            # During completion, an option without a value would take the model as its value.
            typed.pop()
        return super().parse_args(ctx, typed)


def repeat_options(arguments: Sequence[str]) -> Iterator[str]:
    """Arguments with `--given`, `--do` and `--infer` repeated before each of their values.

    Example:
        >>> list(repeat_options(["m.vfg", "--given", "A=1", "B=2", "--infer", "C", "--json"]))
        ['m.vfg', '--given', 'A=1', '--given', 'B=2', '--infer', 'C', '--json']
    """
    option, values = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            option, values = argument, 0
            yield argument
            continue
        # Values of --given have an equals sign, so a model may follow; those of --infer are names.
        again = (option in ("--given", "--do") and "=" in argument) or option == "--infer"
        if again and values:
            yield option
        values += 1
        yield argument


def split_pairs(given: Sequence[str], option: str = "--given") -> dict[str, str]:
    """Names and values from `NAME=VALUE`; the name ends at the last equals sign.

    Example:
        >>> split_pairs(["age=3", "a=b=4"])
        {'age': '3', 'a=b': '4'}
    """
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        if not (equals and name and value):
            raise typer.BadParameter(f"{option} takes NAME=VALUE, but got {text!r}")
        if name in pairs:
            raise typer.BadParameter(f"{option} names {name!r} twice; give it once")
        pairs[name] = value
    return pairs


def find_variables(model: Model, name: str) -> list[Variable]:
    """The variables of a column (by position if it has no name), a leaf or a latent node."""
    from vfg.inference.variables import latent_variable
    from vfg.inputs import coordinate_labels

    columns, nodes = model.variables, {node.name: node for node in model.graph.nodes}
    positions = list(map(str, model.graph.columns or ()))
    if name in columns:
        return [columns[name]]
    if name in nodes:
        held = [variable for variable in columns.values() if variable.leaf == name]
        latent = coordinate_labels(name, nodes[name].width)
        return sorted(held, key=lambda variable: variable.place) or [
            latent_variable(label, name) for label in latent
        ]
    if name in positions:
        return [list(columns.values())[positions.index(name)]]
    known = dict.fromkeys([*columns, *nodes])
    raise ValueError(f"there is no column or node {name!r}; {suggest(name, known)}")


def parse_evidence(model: Model, given: Mapping[str, str]) -> dict[str, Any]:
    """Evidence for `Model.infer` from texts by name; values of a wide node are `"1,2,3"`."""
    evidence: dict[str, Any] = {}
    for name, text in given.items():
        variables = find_variables(model, name)
        texts = [text] if len(variables) == 1 else text.split(",")
        if variables[0].name not in model.variables:  # a latent node, whose width infer checks
            evidence[name] = [[variables[0].parse(part) for part in texts]]
            continue
        if len(texts) != len(variables):
            raise ValueError(
                f"{name!r} takes {len(variables)} values with commas between them, but got {text!r}"
            )
        for variable, part in zip(variables, texts, strict=True):
            evidence[variable.name] = variable.parse(part)
    return evidence


def check_effects(model: Model, evidence: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse evidence about effects of what --do sets."""
    from vfg.inference.interventions import Causes

    if not options:
        return
    setting = options["do"]
    changed = Causes.read(options["dag"], map(str, model.variables)).below(map(str, setting))
    for name in evidence:
        if name in changed:
            raise ValueError(
                f"{name!r} is given, but it is an effect of {', '.join(map(repr, setting))} and "
                "changes when --do sets that; leave it out of --given, or give the whole row to "
                "model.counterfactual(row, do) in Python"
            )


def choose_targets(model: Model, names: Sequence[str], evidence: Mapping[str, Any]) -> list[str]:
    """The targets: columns and latent nodes by name, by default all columns without evidence."""
    if not names:
        return [name for name in model.variables if name not in evidence] or list(model.variables)
    targets: list[str] = []
    for name in _split_names(model, names):
        variables = find_variables(model, name)
        is_latent = variables[0].name not in model.variables
        targets += [name] if is_latent else [variable.name for variable in variables]
    return targets


def _split_names(model: Model, names: Sequence[str]) -> Iterator[str]:
    """Names that were typed with commas between them; a name may have a comma itself."""
    known = dict.fromkeys([*model.variables, *(node.name for node in model.graph.nodes)])
    for name in names:
        yield from [name] if name in known else filter(None, map(str.strip, name.split(",")))


GivenPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--given",
        metavar="NAME=VALUE...",
        autocompletion=complete_pairs,
        help="Evidence: values of columns or latent nodes.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class InterventionOptions:
    """What an intervention sets, and along which DAG effects follow."""

    do: Annotated[
        list[str] | None,
        typer.Option(
            "--do",
            metavar="NAME=VALUE...",
            autocompletion=complete_pairs,
            help="Values that an intervention sets, rather than observes.",
        ),
    ] = None
    dag: Annotated[
        Path | None,
        typer.Option(
            metavar="GRAPH",
            exists=True,
            dir_okay=False,
            help="Causes and effects for --do: what `vfg learn` wrote, or a CSV file with "
            "cause,effect; by default those that the model was fitted with.",
        ),
    ] = None

    def parse(self, model: Model, evidence: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of `Model.infer` for an intervention; none without one."""
        import vfg

        setting = parse_evidence(model, split_pairs(self.do or [], "--do"))
        for name in setting:
            if name in evidence:
                raise ValueError(
                    f"{name!r} is both given and set; name it in --given or in --do, not in both"
                )
        if not setting:
            return {}
        dag: Any = model.graph.network
        if self.dag is not None:
            dag = vfg.LearnedGraph.load(self.dag)
            if dag.kind != "dag":
                raise ValueError(
                    f"{str(self.dag)!r} holds a tree with latent nodes, but --dag needs a DAG"
                )
        elif dag is None:
            raise ValueError(
                "--do needs --dag GRAPH, since the model was fitted without causes and effects; "
                "write them with vfg learn, or fit with --learn-graph"
            )
        return {"do": setting, "dag": dag}


@with_groups
def query(
    run: RunOptions,
    intervention: InterventionOptions,
    file: ModelFile = None,
    model: ModelOption = None,
    given: GivenPairs = None,
    infer: Annotated[
        list[str] | None,
        typer.Option(
            "--infer",
            metavar="NAME...",
            autocompletion=complete_names,
            help="Targets: columns or nodes, also with commas between them; by default all columns "
            "without evidence.",
        ),
    ] = None,
    level: Level = 0.9,
    draws: Annotated[int, typer.Option(min=10, help="Number of draws behind a histogram.")] = 1000,
    seed: Seed = 0,
) -> None:
    """Infer variables given others: mean, interval and histogram.

    vfg query -m model.vfg --given MedInc=5 HouseAge=20 --infer AveRooms,Population

    vfg query -m model.vfg --do dose=2 --dag graph.json --infer effect
    """
    import vfg

    known = split_pairs(given or [])
    if intervention.dag is not None and not intervention.do:
        raise typer.BadParameter(
            "--dag says what an intervention changes; give --do too, or leave --dag out"
        )
    loaded: Model = vfg.load(choose_model(file, model))
    with usage_errors():
        evidence = parse_evidence(loaded, known)
        options = intervention.parse(loaded, evidence)
        setting = options.get("do", {})
        targets = choose_targets(loaded, infer or [], {**evidence, **setting})
        check_effects(loaded, evidence, options)
    answer = loaded.infer(evidence, targets, seed=seed, padded=False, **options)
    marginals = answer.marginals(level=level, draws=draws).values()
    if run.as_json:
        answers = [describe(marginal) for marginal in marginals]
        settings = {"do": setting} if setting else {}
        print_json({"given": known, **settings, "level": level, "answers": answers})
        return
    for word, pairs in (("given", known), ("when setting", setting)):
        if pairs:
            listed = ", ".join(f"{name} = {value}" for name, value in pairs.items())
            print_text(f"{word} {listed}\n", bold=word)
    pictures = len(marginals) <= MOST_PICTURES
    for marginal in marginals:
        lines = format_marginal(marginal, level, pictures=pictures)
        print_text("\n".join(lines), bold=str(marginal.variable.name))


def describe(marginal: Marginal) -> dict[str, Any]:
    """The posterior of one variable, ready for JSON; dates are ISO text.

    Example:
        >>> from vfg.inference.variables import Marginal, Variable
        >>> age = Variable("age", "number", "age")
        >>> describe(Marginal(age, 41.2, mean=41.25, std=2.0, low=38.0, high=44.5))
        {'name': 'age', 'value': 41.25, 'deviation': 2.0, 'interval': [38.0, 44.5]}
    """
    variable, value = marginal.variable, marginal.value
    is_date = variable.kind == "date"
    if math.isfinite(marginal.mean):
        value = variable.value_of(marginal.mean) if is_date else marginal.mean  # not rounded
    description: dict[str, Any] = {"name": variable.name, "value": value}
    if math.isfinite(marginal.std) and not is_date:
        description["deviation"] = marginal.std
    if math.isfinite(marginal.low):
        ends = marginal.low, marginal.high
        description["interval"] = [variable.value_of(end) if is_date else end for end in ends]
    if marginal.shares:
        description["probabilities"] = marginal.shares
    return description


def format_marginal(marginal: Marginal, level: float, *, pictures: bool) -> list[str]:
    """The posterior of one variable, in lines of text.

    Example:
        >>> from vfg.inference.variables import Marginal, Variable
        >>> age = Variable("age", "number", "age")
        >>> known = Marginal(age, 41.25, mean=41.25, std=2.0, low=38.0, high=44.5)
        >>> format_marginal(known, 0.9, pictures=True)
        ['age  41.25 ± 2, 90 % within 38 and 44.5']
    """
    description = describe(marginal)
    words = f"{description['name']}  {format_value(description['value'])}"
    if description["value"] is None:
        words += "(never observed)"
    if "deviation" in description:
        words += f" ± {format_value(description['deviation'])}"
    if "interval" in description:
        low, high = map(format_value, description["interval"])
        words += f", {format_value(100 * level)} % within {low} and {high}"
    lines = [words]
    if pictures and marginal.draws.size and math.isfinite(marginal.draws.sum()):
        lines += ["  " + line for line in histogram(marginal.draws, ends=_ends(marginal))] + [""]
    return lines + (_shares(marginal.shares) if marginal.shares else [])


def _ends(marginal: Marginal) -> tuple[str, str] | None:
    """The least and the greatest draw of dates; numbers show themselves."""
    if marginal.variable.kind != "date":
        return None
    least, greatest = float(marginal.draws.min()), float(marginal.draws.max())
    return marginal.variable.value_of(least), marginal.variable.value_of(greatest)


def _shares(shares: dict[str, float]) -> list[str]:
    shown_shares = list(shares.items())[:MOST_SHARES]
    broad = max(len(name) for name, _ in shown_shares)
    lines = [f"  {name:<{broad}} {100 * p:5.1f} % {bar(p)}".rstrip() for name, p in shown_shares]
    left_out = len(shares) - len(shown_shares)
    return [*lines, *([f"  and {left_out} more"] if left_out else []), ""]
