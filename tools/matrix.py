"""Test the built wheel with several versions of Python and of the dependencies.

    python tools/matrix.py                      all rows
    python tools/matrix.py 3.11-oldest 3.13     these rows
    python tools/matrix.py --every-test 3.11    all fast tests instead of a part of them
    python tools/matrix.py --cuda 3.13          with torch for CUDA where there is none for CPUs
    python tools/matrix.py --without-torch 3.13 only what works without torch: a small download

A row is a version of Python with the newest dependencies, or the oldest Python with the oldest ones
(constraints-oldest.txt). torch has the version of constraints.txt in all rows. Every row gets an
environment of its own in a temporary folder, which is removed afterwards. The README's code, an
experiment and tests run there with the installed wheel. A row is skipped, with the reason, where
its interpreter or a build of torch for CPUs is not at hand; torch for CUDA is gigabytes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ROWS = (f"{PYTHONS[0]}-oldest", *PYTHONS)
TOOLS = ("polars", "pytest", "pytest-xdist", "hypothesis")
EXTRAS = "table,plot,studio"
TESTS = (
    "tests/golden",
    "tests/modelfile",
    "tests/tables",
    "tests/cli/test_impute.py",
    "tests/imputation/test_imputer_any_table.py",
    "tests/imputation/test_imputer_battery.py",
    "tests/imputation/test_imputer_sklearn.py",
    "tests/plots",
    "tests/test_docs.py",
    "tests/test_smoke.py",
)
"""What touches the interfaces of other packages; the mathematics is the same in every row."""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where torch is published for CPUs alone."""
READER = (
    "tests/test_release.py",
    "tests/test_docs.py::test_the_code_of_a_page_runs[choosing.md]",
    "tests/test_docs.py::test_the_code_of_a_page_runs[start.md]",
)
"""The code that a newcomer types; some of these tests are slow."""
IMPORTS = """
import compileall, pathlib
import vfg, vfg.graph, vfg.cli.app
assert compileall.compile_dir(pathlib.Path(vfg.__file__).parent, quiet=1, force=True)
graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
assert vfg.Graph.from_dict(graph.to_dict()) == graph
"""


def find_python(version: str) -> str | None:
    """An interpreter of that version on the path, or among those of pyenv."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for name in (f"python{version}", *map(str, sorted(folder.glob(f"{version}.*/bin/python")))):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run([name, "-c", code], capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if done.stdout.strip() == version:
            return name
    return None


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def torch_requirement(cuda: bool) -> str:
    """The torch of constraints.txt: on Linux its build for CPUs, unless CUDA is welcome."""
    pin = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]
    return pin if cuda or sys.platform != "linux" else f"{pin}+cpu"


def run_row(python: str, wheel: Path, folder: Path, given: argparse.Namespace, oldest: bool) -> str:
    """What came of one row."""
    own = folder / "environment"
    subprocess.run([python, "-m", "venv", own], check=True)
    inside = str(own / "bin" / "python")
    pip = [inside, "-m", "pip", "install", "-q", "--prefer-binary"]
    install = [*pip, "-c", str(ROOT / "constraints-oldest.txt")] if oldest else pip
    if given.without_torch:
        return _run_all(
            ([*install, "networkx", "numpy", "typer", "rich"], folder),
            ([*pip, "--no-deps", str(wheel)], folder),
            ([inside, "-W", "error", "-c", IMPORTS], folder),
            ([inside, "-m", "vfg", "--help"], folder),
        )
    torch = torch_requirement(given.cuda)
    if not is_offered(inside, torch):
        return f"skipped: pip finds no {torch}; set PIP_EXTRA_INDEX_URL={CPU_INDEX}, or use --cuda"
    # Old packages warn of new ones; the tests of this project's pinned versions see every warning.
    quiet = ["-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"] if oldest else []
    pytest = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "auto", *quiet]
    return _run_all(
        ([*install, torch, f"{wheel}[{EXTRAS}]", *TOOLS], folder),
        ([*pytest, *READER], ROOT),
        ([inside, "-m", "vfg", "reproduce", "gaussian", "--quick", "--seeds", "1"], folder),
        ([*pytest, "-m", "not slow", *(["tests"] if given.every_test else TESTS)], ROOT),
    )


def is_offered(python: str, requirement: str) -> bool:
    """Whether pip can get a package for an interpreter: nothing is downloaded where it cannot."""
    command = [python, "-m", "pip", "install", "-q", "--no-deps", requirement]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    if done.returncode and "No matching distribution" not in done.stderr:
        sys.exit(done.stderr)
    return done.returncode == 0


def _run_all(*commands: tuple[list[str], Path]) -> str:
    passed = all(
        subprocess.run(command, cwd=folder, env=_environment()).returncode == 0
        for command, folder in commands
    )
    return "passed" if passed else "FAILED"


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}


def main() -> None:
    """Run the rows and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"among {', '.join(ROWS)}")
    parser.add_argument("--wheel", type=Path, help="a wheel that is built already")
    parser.add_argument("--every-test", action="store_true", help="run all fast tests")
    parser.add_argument("--cuda", action="store_true", help="take any build of torch")
    parser.add_argument("--without-torch", action="store_true", help="check imports alone")
    given = parser.parse_args()
    unknown = set(given.rows) - set(ROWS)
    if unknown:
        parser.error(
            f"there is no row {', '.join(sorted(unknown))}; choose among {', '.join(ROWS)}"
        )
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="vfg-matrix-") as name:
        wheel = given.wheel.resolve() if given.wheel else build_wheel(Path(name))
        for row in given.rows or ROWS:
            version, _, age = row.partition("-")
            python = find_python(version)
            if python is None:
                results[row] = f"skipped: there is no Python {version} here"
                continue
            print(f"=== {row}: {python}", flush=True)
            with tempfile.TemporaryDirectory(dir=name) as folder:
                results[row] = run_row(python, wheel, Path(folder), given, oldest=bool(age))
    print("\n".join(f"{row:<12} {result}" for row, result in results.items()))
    sys.exit("FAILED" in results.values() or "passed" not in results.values())


if __name__ == "__main__":
    main()
