"""How Sphinx builds these pages."""

import json
import re
from importlib.metadata import version as installed_version
from itertools import groupby
from pathlib import Path

from docutils import nodes

project = "vfg"
author = "The vfg developers"
copyright = author
version = release = installed_version("vfg")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",  # formulas are drawn without a network
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "_static", "_templates", "results"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"vfg {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False

# Docstrings are written with markdown backticks; reStructuredText calls that the default role.
default_role = "code"

# Code comes first: whatever stands inside backticks is left as it is.
MARKUP = re.compile(
    r"""
    (?P<code> ``.+?`` | `[^`]+` )
    | ^(?P<indent>[ ]*) \$\$ (?P<display>.+?) \$\$
    | (?<!\\) \$ (?P<inline>(?: [^$\n] | \n(?!\s*\n) )+) \$
    | (?P<bar>\|)
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


def translate(match):
    """Turn `$...$` and `$$...$$` into math, and escape `|`, which would start a substitution."""
    if match["code"]:
        return match["code"]
    if match["bar"]:
        return r"\|"
    # Napoleon reads line by line, so a formula has to stand on one.
    formula = " ".join((match["display"] or match["inline"]).split())
    if match["display"]:
        return f"\n{match['indent']}.. math::\n\n{match['indent']}   {formula}\n"
    # A role must not touch a letter, as in "the $k$th edge"; an escaped space keeps them apart.
    before = "\\ " if match.string[: match.start()][-1:].isalnum() else ""
    after = "\\ " if match.string[match.end() :][:1].isalnum() else ""
    return f"{before}:math:`{formula}`{after}"


def inside_doctest(lines):
    """Say of every line whether it belongs to a doctest, which ends at the next blank line."""
    inside = False
    for line in lines:
        inside = bool(line.strip()) and (inside or line.lstrip().startswith(">>>"))
        yield inside


def rewrite_docstring(app, what, name, obj, options, lines):
    """Rewrite the prose of a docstring in place, and leave its examples alone."""
    marked = list(zip(inside_doctest(lines), lines, strict=True))
    rewritten = []
    for is_doctest, run in groupby(marked, key=lambda pair: pair[0]):
        block = "\n".join(line for _, line in run)
        rewritten += (block if is_doctest else MARKUP.sub(translate, block)).split("\n")
    lines[:] = rewritten


PLACES = ("", "vfg.", "vfg.sklearn.", "vfg.sklearn.VFGImputer.", "vfg.bigtable.", "vfg.data.")
"""Where a name in the prose may be defined."""


def link_names(app, doctree, page):
    """Make code in the guides that names a documented object, such as `vfg.fit`, a link to it."""
    if page.startswith("api/"):
        return
    known = app.env.domains["py"].data["objects"]
    for literal in list(doctree.findall(nodes.literal)):
        name = re.match(r"[A-Za-z_][\w.]*", literal.astext())
        places = [place + name[0] for place in PLACES] if name else []
        found = next((place for place in places if place in known), None)
        # Words of few letters in the prose are columns and arguments more often than functions.
        short = found and "." not in name[0] and not name[0][0].isupper()
        if not found or short or isinstance(literal.parent, nodes.reference | nodes.title):
            continue
        entry = known[found]
        address = app.builder.get_relative_uri(page, entry.docname) + f"#{entry.node_id}"
        link = nodes.reference("", "", refuri=address, internal=True, classes=["api"])
        literal.replace_self(link)
        link += literal


def skip_generated(app, what, name, thing, skip, options):
    """Leave out the methods that scikit-learn adds to route `sample_weight`; it documents them."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def write_notebooks(app, failure):
    """Write every guide with code as a notebook beside the pages, under `notebooks/`."""
    if failure or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "notebooks"
    folder.mkdir(exist_ok=True)
    for page in notebook_pages(Path(app.srcdir)):
        cells = notebook_cells(page.read_text())
        notebook = {"cells": cells, "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5}
        (folder / f"{page.stem}.ipynb").write_text(json.dumps(notebook, indent=1) + "\n")


KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def notebook_pages(folder):
    """The pages with Python code."""
    return [page for page in sorted(folder.glob("*.md")) if "```python\n" in page.read_text()]


def notebook_cells(text):
    """The cells of a page: code without what it printed, and the prose between."""
    cells = []
    # A block of text right below code is what the code prints, which running it shows.
    printed = re.compile(r"(^```python\n.*?^```\n)\n```text\n.*?^```\n", re.DOTALL | re.MULTILINE)
    code_block = re.compile(r"(^```python\n.*?^```\n)", re.DOTALL | re.MULTILINE)
    for part in code_block.split(printed.sub(r"\1", text)):
        code = re.fullmatch(r"```python\n(.*?)```\n", part, re.DOTALL)
        lines = (code[1] if code else part).strip().splitlines(keepends=True)
        cell = {"cell_type": "code" if code else "markdown", "id": f"cell-{len(cells)}"}
        more = {"execution_count": None, "outputs": []} if code else {}
        cells += [{**cell, "metadata": {}, "source": lines, **more}] if lines else []
    return cells


def offer_notebook(app, page, template, context, doctree):
    """Put a link to its notebook above a page that has one."""
    if (Path(app.srcdir) / f"{page}.md") in notebook_pages(Path(app.srcdir)):
        link = f'<p class="notebook"><a href="notebooks/{page}.ipynb" download>Notebook</a></p>'
        context["body"] = link + context["body"]


def setup(app):
    """Connect what is above."""
    # Before napoleon, which would split a formula at its colon.
    app.connect("autodoc-process-docstring", rewrite_docstring, priority=400)
    app.connect("autodoc-skip-member", skip_generated)
    app.connect("doctree-resolved", link_names)
    app.connect("html-page-context", offer_notebook)
    app.connect("build-finished", write_notebooks)
