"""Set the version of the next release wherever it stands: tools/bump.py VERSION DATE."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {
    "pyproject.toml": (r'^version = ".*"$', 'version = "{version}"'),
    "CITATION.cff": (r"^version: .*$", "version: {version}"),
    "conda/meta.yaml": (r'^{{% set version = ".*" %}}$', '{{% set version = "{version}" %}}'),
    "CHANGELOG.md": (r"^## \[Unreleased\]$", "## [Unreleased]\n\n## [{version}] - {date}"),
}
"""By file, the one line that is replaced, and by what."""


def bump(folder: Path, version: str, date: str) -> None:
    """Rewrite the files below a folder."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        sys.exit(f"the version must look like 1.2.3 or 1.2.3rc1, but is {version!r}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        sys.exit(f"the date must look like 2030-12-31, but is {date!r}")
    for name, (old, new) in PLACES.items():
        path = folder / name
        pattern = old.replace("{{", "{").replace("}}", "}")
        text, count = re.subn(
            pattern, new.format(version=version, date=date), path.read_text(), flags=re.MULTILINE
        )
        if count != 1:
            sys.exit(f"{name} has {count} lines for the version instead of one")
        path.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    bump(ROOT, *sys.argv[1:])
