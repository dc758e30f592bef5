"""The package itself: every public name is there, and none is imported before it is used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import vfg


def test_every_public_name_is_found_where_the_table_says():
    listed = [name for names in vfg._NAMES.values() for name in names]
    assert sorted(listed) == sorted(vfg.__all__)
    for module, names in vfg._NAMES.items():
        for name in names:
            assert getattr(vfg, name) is getattr(import_module(f"vfg.{module}"), name)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(vfg.__file__).read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))  # TYPE_CHECKING
    imported = [
        (node.module, alias.name)
        for node in checked.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vfg.")
        for alias in node.names
    ]
    expected = [(f"vfg.{module}", name) for module, names in vfg._NAMES.items() for name in names]
    assert sorted(imported) == sorted(expected)


def test_names_that_are_not_there_are_errors_as_in_any_module():
    with pytest.raises(AttributeError, match="module 'vfg' has no attribute 'VFGG'"):
        _ = vfg.VFGG
    assert set(vfg.__all__) <= set(dir(vfg))
    assert vfg.__version__.count(".") == 2 or vfg.__version__ == "unknown"  # not installed


@pytest.mark.slow
def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, vfg\n"
        "print([name for name in ('numpy', 'torch', 'sklearn', 'scipy') if name in sys.modules])\n"
        "from vfg import *\n"
        "print(Graph.star({'a': 1, 'b': 1}).roots)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["[]", "('root',)"]


@pytest.mark.slow
def test_files_of_every_kind_load_in_a_fresh_process(tmp_path):
    vfg.save(vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1)), tmp_path / "g.vfg")
    code = f"import vfg; print(type(vfg.load({str(tmp_path / 'g.vfg')!r})).__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "GaussianVFG\n"
