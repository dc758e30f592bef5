"""Groups of options: one dataclass, many options, the same help and the same errors."""

import dataclasses
import inspect
import re
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from vfg.cli import app
from vfg.cli.commands.evaluate import evaluate
from vfg.cli.commands.fit import fit
from vfg.cli.commands.impute import impute
from vfg.cli.fitting import FitOptions
from vfg.cli.options import with_groups


@dataclasses.dataclass(frozen=True)
class Shape:
    width: Annotated[int, typer.Option(min=1, help="How wide.")] = 3
    is_round: Annotated[bool, typer.Option("--round", help="Whether round.")] = False


@with_groups
def draw(
    name: Annotated[str, typer.Argument()],
    shape: Shape,
    loud: Annotated[bool, typer.Option("--loud")] = False,
) -> None:
    """Draw something."""
    print(name, shape, loud)


def run(*words):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(draw)
    return CliRunner().invoke(app, words)


def test_options_of_a_group_reach_the_command():
    assert run("box").stdout == "box Shape(width=3, is_round=False) False\n"
    found = run("ball", "--width", "5", "--round", "--loud")
    assert found.stdout == "ball Shape(width=5, is_round=True) True\n"


def test_options_of_a_group_are_checked_and_explained():
    assert run("box", "--width", "0").exit_code == 2
    page = run("--help").stdout
    assert "How wide." in page
    assert "--round" in page
    assert "Draw something." in page


def test_all_commands_that_learn_have_the_same_options():
    wanted = {field.name for field in dataclasses.fields(FitOptions)}
    for command in (fit, impute, evaluate):
        assert wanted <= set(inspect.signature(command).parameters)


@pytest.mark.skipif(
    tuple(map(int, typer.__version__.split(".")[:2])) < (0, 29),
    reason="earlier versions of typer show the types of arguments",
)
@pytest.mark.parametrize("command", sorted(typer.main.get_command(app).commands))
def test_help_shows_no_types_of_python(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "120"}).stdout
    assert "--help" in shown
    assert not re.search(r"<\w|\bBOOLEAN\b|\bINTEGER\b", shown)
