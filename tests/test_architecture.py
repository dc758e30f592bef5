"""The folders of the package: every import follows their order in docs/architecture.md."""

import ast
import re
from pathlib import Path

import pytest

import vfg

PACKAGE = Path(vfg.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "architecture.md"


def folders_in_order():
    """The folders, and single files, in the order in which they may import from each other."""
    block = re.search(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [line.split()[0] for line in block.group(1).splitlines()]


def name_of(path):
    parts = ("vfg", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def is_for_types(node):
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def imports(node):
    """All modules that code imports, inside functions too, but not for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if is_for_types(child):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from imports(child)


def own_imports(path):
    found = imports(ast.parse(path.read_text()))
    return [name for name in found if name.split(".")[0] == "vfg"]


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)
TOP = [PACKAGE / f"{name}.py" for name in ("model", "inputs", "sklearn", "dask", "spark")]


def test_the_page_lists_every_folder_once():
    folders = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    files = [path.stem for path in TOP]
    assert sorted(folders_in_order()) == sorted([*folders, *files])


def test_the_page_is_short_and_names_every_module():
    text = PAGE.read_text()
    assert len(text.splitlines()) <= 250
    lacking = [
        name_of(path)
        for path in MODULES
        if path.stem not in ("__init__",)
        and not re.search(rf"\b{path.stem}\b", text)
        and not re.search(rf"`{path.stem.split('_')[0]}_\*`", text)
        and path.parent.name not in ("commands", "graph", "data", "plots", "distributions")
    ]
    assert not lacking


@pytest.mark.parametrize("path", [*MODULES, *TOP], ids=name_of)
def test_folders_import_only_from_folders_above_them(path):
    order = folders_in_order()
    own = name_of(path).split(".")[1]
    allowed = order[: order.index(own) + 1]
    found = [(f"{name}." if name == "vfg" else name) for name in own_imports(path)]
    wrong = [name for name in found if name.split(".")[1] in order[len(allowed) :]]
    assert not wrong
    public = [name for name in found if name.split(".")[1] not in [*order, "__version__"]]
    # The names of `vfg` itself are those of all folders: only for front ends.
    assert own in ("plots", "studio", "cli") or not public


@pytest.mark.parametrize("path", [*MODULES, *TOP], ids=name_of)
def test_speed_work_is_the_business_of_flows(path):
    if not name_of(path).startswith("vfg.flows"):
        assert not [name for name in own_imports(path) if name.startswith("vfg.flows.fast")]


@pytest.mark.parametrize("path", [*MODULES, *TOP], ids=name_of)
def test_parts_of_scipy_are_imported_when_they_are_used(path):
    # `import scipy` hands them out. Loading a model does without them, which saves .2 s and more.
    top = ast.Module([n for n in ast.parse(path.read_text()).body if "Import" in type(n).__name__])
    assert not [name for name in imports(top) if name.startswith("scipy.")]
