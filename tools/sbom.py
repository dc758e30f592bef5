"""Write the bill of materials of the installed package as CycloneDX 1.6: tools/sbom.py [FILE].

It lists what `pip install vfg[table,plot,studio]` brings along, as found in the environment that
runs this script: names, versions, licences, package addresses and which package needs which.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

EXTRAS = ("table", "plot", "studio")


def normalise(name: str) -> str:
    """The name of a package as package indices write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(name: str, extras: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The packages that a package needs here, with their extras."""
    result: dict[str, tuple[str, ...]] = {}
    for line in metadata.requires(name) or ():
        one = Requirement(line)
        contexts = [{"extra": extra} for extra in ("", *extras)]
        if one.marker is None or any(one.marker.evaluate(context) for context in contexts):
            known = result.get(normalise(one.name), ())
            result[normalise(one.name)] = tuple(sorted({*known, *one.extras}))
    return result


def collect(root: str) -> dict[str, set[str]]:
    """All packages below a root, each with those that it needs."""
    found: dict[str, set[str]] = {}
    waiting = [(root, EXTRAS)]
    while waiting:
        name, extras = waiting.pop()
        below = needs(name, extras)
        own = below.pop(root, ())  # an extra that names other extras
        below |= needs(name, own) if own else {}
        below.pop(root, None)
        if set(below) <= found.setdefault(name, set()) and name != root:
            continue
        found[name] |= set(below)
        waiting += [(each, theirs) for each, theirs in below.items()]
    return found


def component(name: str) -> dict[str, Any]:
    """One package."""
    about = metadata.metadata(name)
    address = f"pkg:pypi/{name}@{about['Version']}"
    result = {"type": "library", "bom-ref": address, "name": name, "version": about["Version"]}
    licence = about.get("License-Expression")
    named = [
        line.split(" :: ")[-1] for line in about.get_all("Classifier") or [] if "License" in line
    ]
    if licence:
        result["licenses"] = [{"expression": licence}]
    elif named:
        result["licenses"] = [{"license": {"name": text}} for text in named]
    return result | {"purl": address}


def bill(root: str = "vfg") -> dict[str, Any]:
    """The bill of materials of a package."""
    found = collect(root)
    parts = {name: component(name) for name in sorted(found)}
    whole = parts.pop(root) | {"type": "application"}
    refs = {root: whole["bom-ref"]} | {name: part["bom-ref"] for name, part in parts.items()}
    listed = "\n".join(refs.values())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, listed)}",
        "version": 1,
        "metadata": {"component": whole},
        "components": list(parts.values()),
        "dependencies": [
            {"ref": refs[name], "dependsOn": sorted(refs[each] for each in below)}
            for name, below in sorted(found.items())
        ],
    }


if __name__ == "__main__":
    made = bill()
    version = made["metadata"]["component"]["version"]
    target = Path(sys.argv[1] if len(sys.argv) > 1 else f"dist/vfg-{version}.cdx.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(made, indent=1) + "\n")
    print(f"{target}: {len(made['components'])} packages")
