"""How Sphinx builds these pages."""

import re
from importlib.metadata import version as installed_version
from itertools import groupby

project = "vfg"
author = "The vfg developers"
copyright = author
version = release = installed_version("vfg")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "results"]
html_theme = "furo"
html_title = f"vfg {release}"

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


def setup(app):
    """Rewrite docstrings before napoleon reads them: it would split a formula at its colon."""
    app.connect("autodoc-process-docstring", rewrite_docstring, priority=400)
