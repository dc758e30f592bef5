"""The code of the guides runs, block after block."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
GUIDES = ["imputation.md"]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide_runs(guide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```python\n(.*?)^```", (DOCS / guide).read_text(), re.DOTALL | re.MULTILINE
    )
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, guide, "exec"), names)
