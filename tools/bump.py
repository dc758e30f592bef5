"""Set the version of the next release in all files: tools/bump.py VERSION DATE [ADDRESS]."""

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


def publish(folder: Path, version: str, address: str) -> None:
    """Let the README's links lead to the tagged release at an address, and add it to the metadata.

    A package index shows the README without the files beside it, so that relative links are dead
    there. `address` is that of the repository, with pages at `blob/TAG` and files at `raw/TAG`.
    """
    if not re.fullmatch(r"https://\S+[^/]", address):
        sys.exit(f"the address must look like https://host/owner/vfg, but is {address!r}")
    readme, project = folder / "README.md", folder / "pyproject.toml"
    text = re.sub(rf"\]\({re.escape(address)}/(blob|raw)/v[^/]+/", "](", readme.read_text())

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}[{link['words']}]({address}/{kind}/v{version}/{link['path']})"

    link = r"(?P<image>!?)\[(?P<words>[^\]]*)\]\((?P<path>(?!\w+:|#)[^)]+)\)"
    readme.write_text(re.sub(link, absolute, text))
    about = re.sub(r"\n\[project\.urls\]\n(.+\n)*", "", project.read_text())
    urls = {
        "Repository": address,
        "Documentation": f"{address}/blob/v{version}/docs/index.md",
        "Changelog": f"{address}/blob/v{version}/CHANGELOG.md",
    }
    lines = "".join(f'{name} = "{place}"\n' for name, place in urls.items())
    project.write_text(f"{about.rstrip()}\n\n[project.urls]\n{lines}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    bump(ROOT, *sys.argv[1:3])
    if len(sys.argv) == 4:
        publish(ROOT, sys.argv[1], sys.argv[3])
