"""Errors: one sentence on standard error, nothing on standard output, an exit code."""

import pytest
import typer
from typer.testing import CliRunner

from vfg.cli import app
from vfg.cli.errors import Commands, explain


def boom(error):
    """An application whose only command raises an error."""
    failing = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @failing.callback()
    def settings():
        """Without it, typer makes the only command the application."""

    @failing.command()
    def raising(debug: bool = False):
        raise error

    return CliRunner().invoke(failing, ["raising"])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ValueError("the table\n is odd."), 1, "vfg: the table is odd\n"),
        (FileNotFoundError(2, "No such file", "a.csv"), 1, "vfg: a.csv: no such file\n"),
        (ImportError("this needs dash"), 1, "vfg: this needs dash\n"),
        (MemoryError(), 1, "vfg: there is not enough memory; use fewer rows, or --shard-rows\n"),
        (KeyboardInterrupt(), 130, "vfg: interrupted\n"),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_every_error_has_its_exit_code_and_one_line(error, code, words):
    found = boom(error)
    assert (found.exit_code, found.stdout, found.stderr) == (code, "", words)


def test_an_interrupt_outside_the_command_is_one_line_too(monkeypatch):
    def interrupted(*args, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.core.TyperGroup.main", interrupted)
    found = boom(ValueError("not reached"))
    assert (found.exit_code, found.stdout, found.stderr) == (130, "", "vfg: interrupted\n")


def test_defects_are_called_so():
    found = boom(IndexError("list index out of range"))
    assert found.exit_code == 3
    assert found.stderr.count("\n") == 1
    assert "defect in vfg (IndexError: list index out of range)" in found.stderr


def test_dots_that_say_and_so_on_stay():
    assert explain(ValueError("choose one of 'a', ...")) == "choose one of 'a', ..."


def test_tracebacks_come_with_debug_only(store, commands):
    wrong = ["query", store.model, "--given", "x=1"]
    assert "Traceback" not in commands.invoke(*wrong).output
    found = commands.invoke(*wrong, "--debug")
    assert "Traceback" in found.stderr
    assert found.stderr.splitlines()[-1].startswith("vfg: there is no column or node 'x'")
    assert found.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["imput"], "Did you mean 'impute'?"),
        (["impute"], "Missing argument 'TABLE' (see: vfg impute --help)"),
        (["impute", "a.csv", "--drws", "3"], "--drws (see: vfg impute --help)"),
        (["sample", "m.vfg", "-n", "0"], "'--rows' / '-n'"),
        (["fit", "a.csv"], "Missing option '--output' / '-o'"),
        (
            ["evaluate", "a.csv", "--rivals", "best"],
            "--baselines takes mean, knn, ridge, extratrees, missforest, boosting",
        ),
        (["data", "nothing"], "there is no table 'nothing'"),
        (["reproduce", "nothing"], "there is no experiment 'nothing'"),
        (["data", "iris", "-o", "x.odd"], "the format of 'x.odd' is not known from its name"),
    ],
)
def test_wrong_arguments_leave_with_2(arguments, words, commands):
    assert words in commands.fail(*arguments, code=2)


@pytest.mark.parametrize("command", ["query", "show", "sample", "score", "embed", "impute"])
def test_models_that_are_none(command, here, commands):
    (here / "table.csv").write_text("a,b\n1,2\n3,\n")
    (here / "noise.vfg").write_bytes(bytes(range(256)) * 20)
    for model in ("none.vfg", "noise.vfg"):
        tables = {"score": ["table.csv", "-m", model], "embed": ["table.csv", "-m", model]}
        arguments = (
            ["table.csv", "-m", model] if command == "impute" else tables.get(command, [model])
        )
        assert model in commands.fail(command, *arguments)


def test_help_of_every_command_names_its_options():
    for command in (
        "fit",
        "impute",
        "evaluate",
        "query",
        "score",
        "embed",
        "sample",
        "show",
        "data",
    ):
        found = CliRunner().invoke(app, [command, "--help"])
        assert found.exit_code == 0
        assert "--json" in found.stdout
        assert "--debug" in found.stdout


def test_the_version_is_that_of_the_package(commands):
    import vfg

    assert commands.succeed("--version") == f"vfg {vfg.__version__}\n"
