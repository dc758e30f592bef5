"""Ask five libraries the same question with the code of docs/coming-from.md, and write the answers.

    python -m experiments.benchmarks.one_question

Needs pgmpy, spflow and zuko; a library that is not installed is left out.
"""

from __future__ import annotations

import json
import re
import time
from importlib.metadata import version
from typing import Any

import torch

from ..results import FOLDER, PROJECT

PAGE = PROJECT / "docs" / "coming-from.md"
PACKAGES = {"scikit-learn": "scikit-learn", "pgmpy": "pgmpy", "SPFlow": "spflow", "zuko": "zuko"}


def sections(text: str) -> dict[str, list[str]]:
    """Blocks of Python by the heading above them; the first ones have none."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE):
        heading = part.splitlines()[0] if found else ""
        found[heading] = re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
    return found


def ask(blocks: list[str], names: dict[str, Any]) -> dict[str, float]:
    """Mean, deviation and seconds of the first block, which sets the first two."""
    start = time.perf_counter()
    exec(compile(blocks[0], PAGE.name, "exec"), names)
    seconds = time.perf_counter() - start
    return {"mean": names["mean"], "deviation": names["deviation"], "seconds": seconds}


def table(answers: dict[str, dict[str, float]], versions: dict[str, str]) -> str:
    lines = ["| library | mean of F | standard deviation |", "| --- | --- | --- |"]
    for name, found in answers.items():
        label = f"{name} {versions[name]}" if name in versions else name
        lines.append(f"| {label} | {found['mean']:.2f} | {found['deviation']:.2f} |")
    return "\n".join([*lines, "| the equations | 30.00 | 3.74 |"])


def main() -> None:
    torch.set_num_threads(1)
    text = PAGE.read_text()
    common, *rest = sections(text).items()
    names: dict[str, Any] = {}
    exec(compile(common[1][0], PAGE.name, "exec"), names)
    answers = {}
    for heading, blocks in rest:
        try:
            answers[heading] = ask(blocks, names)
        except ModuleNotFoundError as error:
            print(f"{heading}: {error}")
    versions = {name: version(package) for name, package in PACKAGES.items() if name in answers}
    (FOLDER / "one_question.json").write_text(
        json.dumps({"answers": answers, "versions": versions}, indent=1) + "\n"
    )
    marked = re.compile(r"(<!-- answers -->\n)(\n\|.*?\n)?(?=\n## vfg)", re.DOTALL)
    PAGE.write_text(marked.sub(lambda m: f"{m[1]}\n{table(answers, versions)}\n", text))
    print(table(answers, versions))


if __name__ == "__main__":
    main()
