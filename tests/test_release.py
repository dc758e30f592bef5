"""What a release promises: versions that agree with each other, and files that a reader expects."""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1]
ABOUT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def read_pins(name):
    """The exact versions that a file of constraints names."""
    return dict(re.findall(r"^([\w-]+)==(\S+)", (PROJECT / name).read_text(), re.MULTILINE))


def lower_bounds(*extras):
    """The lower bounds of the dependencies and of some extras."""
    listed = [
        *ABOUT["dependencies"],
        *(x for e in extras for x in ABOUT["optional-dependencies"][e]),
    ]
    return dict(re.fullmatch(r"([\w-]+)>=(\S+)", x).groups() for x in listed if ">=" in x)


def as_numbers(version):
    """A version as a list of numbers without zeros at the end, so that 4.0 is 4."""
    return [int(part) for part in re.sub(r"(\.0)+$", "", version).split(".")]


def test_the_oldest_versions_are_the_lower_bounds():
    oldest, bounds = (
        read_pins("constraints-oldest.txt"),
        lower_bounds("table", "plot", "studio", "dev"),
    )
    users = lower_bounds("table", "plot", "studio")
    assert set(users) - {"torch"} <= set(oldest) <= set(bounds)
    for name, version in oldest.items():
        assert as_numbers(version) == as_numbers(bounds[name]), name


def test_the_pinned_versions_are_not_below_the_lower_bounds():
    pins = read_pins("constraints.txt")
    for name, version in lower_bounds("table", "plot", "studio", "dev").items():
        assert as_numbers(pins[name]) >= as_numbers(version), name
