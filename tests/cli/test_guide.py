"""The console blocks of the guide, command after command in one folder."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

GUIDE = Path(__file__).parent.parent.parent / "docs" / "command-line.md"


def blocks(text):
    """Pairs of a command and what it should print."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, without_pictures(output)


def without_pictures(text):
    """Text without the lines of histograms, in which single marks may differ."""
    return re.sub(r"^[ ▁▂▃▄▅▆▇█]+\n", "", text, flags=re.MULTILINE)


@pytest.mark.slow
def test_the_guide_says_what_commands_print(here, commands):
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = list(blocks(GUIDE.read_text()))
    assert len(found) > 8
    for command, expected in found:
        program, *arguments = shlex.split(command)
        assert program == "vfg"
        printed = without_pictures(commands.succeed(*arguments))
        assert checker.check_output(expected, printed, flags), f"{command}\n{printed}"


def test_the_guide_names_every_command(commands):
    listed = re.findall(r"^\| `vfg (\w+)", GUIDE.read_text(), re.MULTILINE)
    help_text = commands.succeed("--help")
    known = re.findall(r"^│ (\w+)  ", help_text, re.MULTILINE)
    assert sorted(listed) == sorted(known)
