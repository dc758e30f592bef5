"""`vfg query`: anything given anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .asking import Belief, Question, respondent
from .completing import offered_names, offered_pairs
from .options import AsJson, Debug, Level, ModelFile, Seed, Threads
from .output import bar, console, histogram, print_json, shown

MOST_PICTURES = 6
"""With more answers than these, none gets a histogram."""
MOST_SHARES = 12
"""How many categories are listed, the likeliest first."""


class Query(TyperCommand):
    """Takes several values after one option: `--given A=1 B=2 --infer C D`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat `--given` and `--infer` before each of their values, then parse as ever."""
        typed = list(repeated(args))
        if ctx.resilient_parsing and typed and typed[-1].startswith("-"):
            # The shell asks what may follow: an option without a value would hide the model.
            typed.pop()
        return super().parse_args(ctx, typed)


def repeated(arguments: Sequence[str]) -> Iterator[str]:
    """Arguments in which `--given` and `--infer` stand before each of their values.

    Example:
        >>> list(repeated(["m.vfg", "--given", "A=1", "B=2", "--infer", "C", "--json"]))
        ['m.vfg', '--given', 'A=1', '--given', 'B=2', '--infer', 'C', '--json']
    """
    option, values = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            option, values = argument, 0
            yield argument
            continue
        # A value of --given has an equals sign, so a model may follow; one of --infer is any name.
        again = (option == "--given" and "=" in argument) or option == "--infer"
        if again and values:
            yield option
        values += 1
        yield argument


def pairs(given: Sequence[str]) -> dict[str, str]:
    """Names and values from `NAME=VALUE`; the name ends at the last equals sign.

    Raises:
        typer.BadParameter: for anything else, or a name that comes twice.

    Example:
        >>> pairs(["age=3", "a=b=4"])
        {'age': '3', 'a=b': '4'}
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        if not (equals and name and value):
            raise typer.BadParameter(f"--given takes NAME=VALUE, but got {text!r}")
        if name in found:
            raise typer.BadParameter(f"--given names {name!r} twice; give it once")
        found[name] = value
    return found


GivenPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--given",
        metavar="NAME=VALUE...",
        autocompletion=offered_pairs,
        help="What is known, by column or latent node.",
    ),
]


def query(
    model: ModelFile,
    given: GivenPairs = None,
    infer: Annotated[
        list[str] | None,
        typer.Option(
            "--infer",
            metavar="NAME...",
            autocompletion=offered_names,
            help="What to ask for; by default all that is not given.",
        ),
    ] = None,
    level: Level = 0.9,
    draws: Annotated[int, typer.Option(min=10, help="How many draws intervals are from.")] = 1000,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Ask a model for anything given anything: mean, interval and histogram.

    vfg query model.vfg --given MedInc=5 HouseAge=20 --infer AveRooms
    """
    known = pairs(given or [])
    how = Question(level, draws, seed)
    beliefs = respondent(model).ask(known, infer or [], how)
    if as_json:
        answers = [belief.to_dict() for belief in beliefs]
        print_json({"given": known, "level": level, "answers": answers})
        return
    if known:
        evidence = ", ".join(f"{name} = {value}" for name, value in known.items())
        console().print(f"given {evidence}\n", markup=False)
    pictures = len(beliefs) <= MOST_PICTURES
    for belief in beliefs:
        console().print("\n".join(lines_of(belief, level, pictures=pictures)), markup=False)


def lines_of(belief: Belief, level: float, *, pictures: bool) -> list[str]:
    """A belief in lines of text.

    Args:
        belief: to show.
        level: of its interval.
        pictures: whether to draw a histogram.

    Example:
        >>> lines_of(Belief("age", 41.25, 2.0, (38.0, 44.5)), 0.9, pictures=True)
        ['age  41.25 ± 2, 90 % within 38 and 44.5']
    """
    words = f"{belief.name}  {shown(belief.value)}"
    if belief.value is None:
        words += "(nothing was seen of it)"
    if belief.deviation is not None:
        words += f" ± {shown(belief.deviation)}"
    if belief.interval is not None:
        low, high = map(shown, belief.interval)
        words += f", {shown(100 * level)} % within {low} and {high}"
    lines = [words]
    if pictures and belief.draws is not None:
        lines += ["  " + line for line in histogram(belief.draws, ends=belief.ends)] + [""]
    if belief.shares is not None:
        lines += _shares(belief.shares)
    return lines


def _shares(shares: dict[str, float]) -> list[str]:
    shown_shares = list(shares.items())[:MOST_SHARES]
    broad = max(len(name) for name, _ in shown_shares)
    lines = [f"  {name:<{broad}} {100 * p:5.1f} % {bar(p)}".rstrip() for name, p in shown_shares]
    left_out = len(shares) - len(shown_shares)
    return [*lines, *([f"  and {left_out} more"] if left_out else []), ""]
