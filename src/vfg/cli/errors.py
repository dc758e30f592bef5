"""Errors of commands: one sentence on standard error, and an exit code."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

FAILED, USAGE_ERROR, DEFECT, INTERRUPTED, CLOSED_PIPE, TERMINATED = 1, 2, 3, 130, 141, 143
"""Exit codes. The last three are what shells expect after Ctrl-C, a closed pipe and SIGTERM."""

EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError, RuntimeError)
"""Errors that input can cause; any other is a defect."""


CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All control characters but tabs and new lines."""


VALUES = {"int": "N", "float": "X", "str": "TEXT", "Path": "FILE"}
"""What help shows for a value of a type of Python, where an option gives no name for it."""


def name_values(params: list[Any]) -> list[Any]:
    """Parameters whose help shows no type of Python; flags take no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None  # the name of an argument says what it is
        elif param.metavar is None:
            # Versions of typer differ in how they describe a type.
            described = getattr(param, "type_descriptor", None) or getattr(param, "type", None)
            kind = getattr(described, "annotation", None)
            name = getattr(kind, "__name__", "") or str(getattr(described, "name", ""))
            param.metavar = VALUES.get(name)
    return params


class Command(TyperCommand):
    """A command whose help shows no types of Python."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters as help shows them."""
        return name_values(super().get_params(ctx))


class Commands(TyperGroup):
    """The commands, with errors and exit codes that they share."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters as help shows them."""
        return name_values(super().get_params(ctx))

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command and leave the process; as in `typer`, except for the report of errors."""
        try:
            code = super().main(*args, **{**settings, "standalone_mode": False})
            sys.stdout.flush()
        except typer.Abort:
            code = INTERRUPTED
        except KeyboardInterrupt:  # before or after the command itself
            print_line("interrupted")
            code = INTERRUPTED
        except BrokenPipeError:
            _discard_stdout()
            code = CLOSED_PIPE
        except OSError as error:  # of help and the like, which no command writes
            _discard_stdout()
            print_line(explain(error))
            code = FAILED
        except Exception as error:
            if not _is_usage_error(error):
                raise
            print_line(_sentence(_usage_message(error)) + _help_hint(error))
            code = getattr(error, "exit_code", USAGE_ERROR)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; what it raises becomes a sentence and an exit code."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warnings_once()
                # Readers of text files name marks of missing values and the option that reads them.
                mark = "the text column .* looks like numbers, with cells such as '[^0-9]*',"
                warnings.filterwarnings("ignore", mark)
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
        except KeyboardInterrupt as error:
            print_line("interrupted")
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            _discard_stdout()
            raise typer.Exit(CLOSED_PIPE) from error
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if ctx.meta.get("vfg.debug"):
                traceback.print_exception(error)
            if _is_usage_error(error):
                raise
            print_line(explain(error))
            if isinstance(error, OSError):
                _discard_stdout()  # where it is full, the rest would fail again at the exit
            code = FAILED if isinstance(error, EXPECTED) else DEFECT
            raise typer.Exit(code) from error


@contextmanager
def usage_errors() -> Iterator[None]:
    """Around what reads options: a value that cannot be is an error of usage."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


class ClosedOutput(io.TextIOBase):
    """Stands for standard output that is closed: to write to it is an error."""

    def write(self, text: str) -> int:
        """Refuse to lose what is written."""
        raise OSError("standard output is closed; name a file, as in -o FILE")

    @property
    def buffer(self) -> Any:
        """The same for bytes."""
        return self.write("")


def prepare_process() -> None:
    """Make standard streams and SIGTERM of this process safe for commands.

    Closed streams are replaced, since the next file that is opened would become the stream.
    Standard output without a buffer gets one, since short writes would lose what they do not take.
    SIGTERM ends the command as an error does, so that temporary files are removed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    elif isinstance(sys.stdout.buffer, io.RawIOBase):
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        stream = io.BufferedWriter(sys.stdout.detach())
        sys.stdout = io.TextIOWrapper(stream, encoding, errors, line_buffering=True)
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: Any) -> None:
    raise SystemExit(TERMINATED)


def explain(error: Exception) -> str:
    r"""The message of an error, in one line.

    Example:
        >>> explain(ValueError("the table\n  is empty"))
        'the table is empty'
        >>> explain(KeyError("a"))
        "this is a defect in vfg (KeyError: 'a'); run it again with --debug and report the output"
    """
    if isinstance(error, OSError) and error.strerror:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return _sentence(": ".join([*names, error.strerror.lower()]))
    if isinstance(error, MemoryError):
        return "there is not enough memory; use fewer rows, or --shard-rows"
    if isinstance(error, EXPECTED):
        return _sentence(str(error)) or type(error).__name__
    name = f"{type(error).__name__}: {_sentence(str(error))}"
    return f"this is a defect in vfg ({name}); run it again with --debug and report the output"


def suggest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant; imports graphs lazily."""
    from vfg.graph.checks import suggestion

    return suggestion(name, known)


def print_line(words: str) -> None:
    """Print one line to standard error, under the name of the program."""
    print(f"vfg: {show_controls(words)}", file=sys.stderr, flush=True)


def show_controls(text: str) -> str:
    r"""Text in which control characters, which could steer a terminal, are visible.

    Example:
        >>> print(show_controls("a\x1b[31mb"))
        a\x1b[31mb
    """
    return CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _sentence(words: str) -> str:
    line = " ".join(words.split())
    return line if line.endswith("...") else line.removesuffix(".")


def _is_usage_error(error: Exception) -> bool:
    """Whether an error is about the arguments; typer has its own click in some versions only."""
    return callable(getattr(error, "format_message", None))


def _usage_message(error: Any) -> str:
    """What is wrong with the arguments, without a preface if it names the option itself."""
    named = getattr(error, "param", None) or getattr(error, "param_hint", None)
    return str(error.format_message() if named else error.message)


def _help_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return "" if context is None else f" (see: {context.command_path} --help)"


def _show_warnings_once() -> Callable[..., None]:
    """What shows warnings, each sentence once: a table is read for fitting and for filling."""
    shown = set[str]()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        sentence = _sentence(str(message))
        if sentence not in shown:
            shown.add(sentence)
            print_line(f"warning: {sentence}")

    return show


def _discard_stdout() -> None:
    """Discard the rest of standard output, whose reader has closed it."""
    with suppress(OSError, ValueError):  # standard output that is no file needs nothing
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
