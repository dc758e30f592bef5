"""Test the built wheel with several versions of Python and of the dependencies.

    python tools/matrix.py                      all rows whose interpreter is installed
    python tools/matrix.py 3.11-oldest 3.13     these rows
    python tools/matrix.py --without-torch 3.13 only what works without torch: a small download

A row is a version of Python with the newest dependencies, or the oldest Python with the oldest ones
(constraints-oldest.txt). torch has the version of constraints.txt in all rows. Every row gets an
environment of its own in a temporary folder, which is removed afterwards. The README's code, an
experiment and the tests that touch other packages run there with the installed wheel.
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
ROOMS = ("graph", "tables", "modelfile", "golden", "plots", "cli", "studio", "serving", "structure")
FILES = {
    ".": ("test_init", "test_inputs", "test_model", "test_smoke"),
    "bigtable": ("test_source", "test_text_output", "test_writing"),
    "imputation": ("test_imputer_any_table", "test_categories"),
}
TESTS = (
    *(f"tests/{room}" for room in ROOMS),
    *(f"tests/{room}/{name}.py" for room, names in FILES.items() for name in names),
)
"""What touches the interfaces of other packages; the mathematics is the same in every row."""
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


def pinned_torch() -> str:
    """The requirement of torch in constraints.txt."""
    return re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]


def run_row(python: str, wheel: Path, folder: Path, *, oldest: bool, torch: bool) -> bool:
    """Whether the tests of one row pass."""
    own = folder / "environment"
    subprocess.run([python, "-m", "venv", own], check=True)
    inside = str(own / "bin" / "python")
    install = [inside, "-m", "pip", "install", "-q", "--prefer-binary"]
    if oldest:
        install += ["-c", str(ROOT / "constraints-oldest.txt")]
    if not torch:
        needed = ["networkx", "numpy", "typer", "rich"]
        return _succeeds([*install, *needed], folder) and all(
            _succeeds(command, folder)
            for command in (
                [inside, "-m", "pip", "install", "-q", "--no-deps", str(wheel)],
                [inside, "-W", "error", "-c", IMPORTS],
                [inside, "-m", "vfg", "--help"],
            )
        )
    requirements = [pinned_torch(), f"{wheel}[{EXTRAS}]", *TOOLS]
    # Old packages warn of new ones; the tests of this project's pinned versions see every warning.
    quiet = ["-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"] if oldest else []
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *quiet, *TESTS]
    readme = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *quiet, "tests/test_release.py"]
    experiment = ["-m", "vfg", "reproduce", "gaussian", "--quick", "--seeds", "1"]
    return (
        _succeeds([*install, *requirements], folder)
        and _succeeds([inside, *readme], ROOT)
        and _succeeds([inside, *experiment], folder)
        and _succeeds([inside, *tests], ROOT)
    )


def _succeeds(command: list[str], folder: Path) -> bool:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["OMP_NUM_THREADS"] = "1"
    return subprocess.run(command, cwd=folder, env=environment).returncode == 0


def main() -> None:
    """Run the rows and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"among {', '.join(ROWS)}")
    parser.add_argument("--wheel", type=Path, help="a wheel that is built already")
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
                results[row] = "no interpreter"
                continue
            print(f"=== {row}: {python}", flush=True)
            with tempfile.TemporaryDirectory(dir=name) as folder:
                passed = run_row(
                    python, wheel, Path(folder), oldest=bool(age), torch=not given.without_torch
                )
            results[row] = "passed" if passed else "FAILED"
    print("\n".join(f"{row:<12} {result}" for row, result in results.items()))
    sys.exit("FAILED" in results.values() or "passed" not in results.values())


if __name__ == "__main__":
    main()
