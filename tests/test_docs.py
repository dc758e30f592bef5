"""The code of the handbook runs, page by page, and its numbers are those of the result files."""

import importlib.util
import inspect
import json
import pkgutil
import re
from pathlib import Path
from statistics import fmean

import pytest

DOCS = Path(__file__).parent.parent / "docs"
spec = importlib.util.spec_from_file_location("outputs", DOCS / "outputs.py")
outputs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(outputs)
OPTIONAL = ("pgmpy", "spflow", "zuko")
"""Other libraries that a page compares with; their blocks run where they are installed."""


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


PAGES = sorted(
    page.name for page in DOCS.glob("*.md") if blocks(page) and page.stem not in outputs.PAGES
)
"""Those that show no outputs; the code of the others runs where their outputs are compared."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the pages draw")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(DOCS / page):
        try:
            exec(compile(block, page, "exec"), names)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
        pyplot.close("all")


@pytest.mark.slow
def test_the_start_page_prints_what_it_says(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vfg.plots.hidden_cells", lambda *args, **kwargs: None)
    monkeypatch.setattr("vfg.plots.missingness", lambda *args, **kwargs: None)
    code = "\n".join(blocks(DOCS / "start.md")[:6])
    exec(compile(code, "start.md", "exec"), {})
    said = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(said) == 2
    for line, words in zip(printed, said, strict=True):
        # Numbers differ a little between machines.
        pairs = zip(re.findall(r"[\d.]+", line), re.findall(r"[\d.]+", words), strict=True)
        assert all(abs(float(a) - float(b)) <= max(0.03, 0.03 * float(b)) for a, b in pairs)
        assert re.sub(r"[\d.]+", "", line) == re.sub(r"[\d.]+", "", words)


NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?")


@pytest.mark.slow
@pytest.mark.parametrize("page", outputs.PAGES)
def test_pages_show_what_their_code_prints(page, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib.pyplot", reason="the pages draw").switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    ran = list(outputs.run_page((DOCS / f"{page}.md").read_text(), page))
    assert any(printed for _, printed in ran)
    for block, printed in ran:
        shown = block["printed"] or ""
        # Numbers differ a little between machines, and with them the spaces of tables.
        assert NUMBER.sub("", shown).split() == NUMBER.sub("", printed).split()
        if page == "imputation":  # its scores are of few cells
            continue
        for a, b in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
            a, b = float(a.replace(",", "")), float(b.replace(",", ""))
            assert abs(a - b) <= max(0.05, 0.1 * abs(b)), (shown, printed)


def test_every_page_is_in_the_index():
    listed = (DOCS / "index.md").read_text().split()
    assert [page.stem for page in DOCS.glob("*.md") if page.stem not in ["index", *listed]] == []


@pytest.mark.parametrize("page", sorted(page.name for page in DOCS.glob("*.md")))
def test_every_picture_of_a_page_exists(page):
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (DOCS / page).read_text()):
        assert (DOCS / picture).is_file(), picture


def test_the_errors_quoted_by_the_method_are_those_of_the_experiment():
    errors = json.loads((DOCS / "results" / "synthetic.json").read_text())["mse"]
    quoted = ["VFG, width 2 (the paper's)", "VFG, width 8", "VFG, width 8, gaussian"]
    page = (DOCS / "method.md").read_text()
    assert all(f"{fmean(errors[name]):.3g}" in page for name in quoted)


def test_the_gains_quoted_for_options_are_those_of_the_benchmark():
    models = json.loads((DOCS / "results" / "likelihood_benchmark.json").read_text())["models"]
    ladder, flow = "VFG, tree, ladder", "VFG, tree, ladder, flow prior"
    options = {
        "ladder=True": ("VFG, tree", ladder),
        "FlowPrior": (ladder, flow),
        "Mixture": (ladder, f"{ladder}, mixture prior"),
        "image=": (flow, f"{flow}, convolutions"),
    }
    lines = (DOCS / "images.md").read_text().splitlines()
    for option, (without, with_) in options.items():
        changes = [f"{models[with_][k] - models[without][k]:+.2f}" for k in ("elbo", "nll")]
        assert any(option in line and " / ".join(changes) in line for line in lines), option


def test_the_answers_of_other_libraries_are_those_that_were_found():
    found = json.loads((DOCS / "results" / "one_question.json").read_text())
    page = (DOCS / "coming-from.md").read_text()
    for name, answer in found["answers"].items():
        label = f"{name} {found['versions'][name]}" if name in found["versions"] else name
        assert f"| {label} | {answer['mean']:.2f} | {answer['deviation']:.2f} |" in page


def test_the_paper_to_code_table_names_what_exists():
    """All 27 numbered equations, both algorithms, the lemma and the theorem."""
    row = r"^\| (\(\d.*?|Alg.*?|Lem.*?|The.*?) \| .* \| `(.*?)` \| `(.*?)` \|$"
    rows = re.findall(row, (DOCS / "method.md").read_text(), re.MULTILINE)
    named = [part for paper, _, _ in rows for part in paper.split(", ")]
    statements = ["Algorithm 1", "Algorithm 2", "Lemma 1", "Theorem 1"]
    assert named == [*(f"({number})" for number in range(1, 28)), *statements]
    for _, function, file in rows:
        found = pkgutil.resolve_name(function)
        code = found.fget if isinstance(found, property) else inspect.unwrap(found)
        assert Path(inspect.getsourcefile(code)).as_posix().endswith(f"/vfg/{file}"), function


def test_every_promise_names_a_test_that_exists():
    named = re.findall(
        r"`([a-z_/]+\.py)::(test_[a-z_0-9]+)`", (DOCS / "reliability.md").read_text()
    )
    assert len(named) > 20
    for file, function in named:
        path = Path(__file__).parent / file
        assert path.is_file(), file
        assert f"def {function}(" in path.read_text(), (file, function)


PUBLIC = ("vfg", "vfg.bigtable", "vfg.data", "vfg.plots", "vfg.sklearn", "vfg.studio", "vfg.tables")
INNER = ("vfg.flows", "vfg.gaussian", "vfg.graph", "vfg.inference", "vfg.modelfile",
         "vfg.sampling", "vfg.serving", "vfg.structure", "vfg.training")  # fmt: skip


@pytest.mark.parametrize("module", [*PUBLIC, *INNER])
def test_every_public_name_has_a_page(module):
    """A name of an inner module may have its page under `vfg`; names of choices have none."""
    page = (DOCS / "api.md").read_text()
    pages = set()
    listed = r"currentmodule:: (\S+)\n\n.*?nosignatures:\n\n((?:   \w+\n)+)"
    for where, names in re.findall(listed, page, re.DOTALL):
        pages |= {f"{where}.{name}" for name in names.split()}
    named = importlib.import_module(module)
    for name in named.__all__:
        if isinstance(getattr(named, name), tuple | dict):
            continue
        assert {f"{module}.{name}", f"vfg.{name}"} & pages, f"add {name} to docs/api.md"


def test_pages_are_notebooks_with_the_same_code():
    pytest.importorskip("docutils")
    spec = importlib.util.spec_from_file_location("conf", DOCS / "conf.py")
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    page = DOCS / "networks.md"
    assert page in conf.notebook_pages(DOCS)
    cells = conf.notebook_cells(page.read_text())
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code == [block.strip() for block in blocks(page)]
    prose = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    assert "```text" not in prose
    assert "# " in cells[0]["source"][0]
    json.dumps(cells)


spec = importlib.util.spec_from_file_location("notebooks", DOCS.parent / "tools" / "notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)


def committed(name):
    """The cells of a notebook, and what each cell of code printed."""
    path = DOCS.parent / "notebooks" / f"{name}.ipynb"
    cells = json.loads(path.read_text())["cells"]
    return cells, [
        "".join("".join(out["text"]) for out in cell["outputs"] if "text" in out)
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def sources(cells, kind):
    """The contents of the cells of one kind."""
    return [cell["source"] for cell in cells if cell["cell_type"] == kind]


@pytest.mark.parametrize("name", notebooks.GUIDES)
def test_notebooks_are_their_pages(name):
    pytest.importorskip("docutils")
    path = DOCS.parent / "notebooks" / f"{name}.ipynb"
    assert path.stat().st_size < 100_000
    cells, printed = committed(name)
    wanted = notebooks.cells_of(notebooks.GUIDES[name])
    for kind in ("code", "markdown"):
        same = sources(cells, kind) == sources(wanted, kind)
        assert same, f"the {kind} of the page has changed; run: python tools/notebooks.py {name}"
    assert any(printed)
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")


@pytest.mark.slow
@pytest.mark.parametrize("name", notebooks.GUIDES)
def test_notebooks_print_what_they_show(name, tmp_path, monkeypatch):
    pytest.importorskip("docutils")
    pytest.importorskip("matplotlib.pyplot", reason="they draw").switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    cells, shown = committed(name)
    now = [printed for _, printed, _ in notebooks.run_cells(cells, name)]
    for before, after in zip(shown, now, strict=True):
        assert NUMBER.sub("", before).split() == NUMBER.sub("", after).split()
        for a, b in zip(NUMBER.findall(before), NUMBER.findall(after), strict=True):
            a, b = float(a.replace(",", "")), float(b.replace(",", ""))
            assert abs(a - b) <= max(0.05, 0.1 * abs(b)), (before, after)


def test_the_limits_agree_with_the_readme():
    results = (DOCS / "results.md").read_text()
    line = r"^\| {}, \d+ held-back tables, {} error \|.* (\d+)x"
    squared, absolute, own = (
        re.search(line.format(cells, loss), results, re.MULTILINE)[1]
        for cells, loss in (
            ("missing cells", "squared"),
            ("missing cells", "absolute"),
            ("cells missing by their own value", "squared"),
        )
    )
    words = {
        DOCS / "when-not.md": (
            f"{squared} times as long to fit as the method that is best by squared error, and "
            f"{absolute} times as long as the one that is best by absolute error. Where cells are "
            f"missing because of their own value, the first factor is {own}"
        ),
        DOCS.parent / "README.md": (
            f"takes {squared} times as long as that of the method that is best by squared error "
            f"({own} times where cells are missing because of their own value), and {absolute} "
            "times as long as that of the best by absolute error"
        ),
    }
    for page, told in words.items():
        assert told in " ".join(page.read_text().split()), page.name
