"""The section of docs/results.md about speed."""

from __future__ import annotations

from typing import Any

from pages import provenance, rows

Found = dict[str, Any]

TEXT = """## Speed

Medians; libraries take turns, so that all meet the same machine. {devices}

{parts}"""

EDGES = """### Sibling edges, {name}

Milliseconds for four affine couplings (two hidden layers of 64) on every one of K edges: all edges
as one stack, against the fastest other library in a loop over edges.

{table}
"""

STEPS = """### A whole training step, {name}

Gathering rows, masks, both passes, the derivative, clipping and AdamW. The floor is the larger of
three times the forward products at {rate:.2f} TFLOP/s and of parameters, gradients, moments and
inputs once at {band:.0f} GB/s, both measured here.

{table}
"""

FILLING = """### Rows filled per second, {name}

{table}
"""

GROWTH = """### Growth, {name}

Slopes of straight lines through the larger half of the sizes in log-log plots: 1 is proportional.

{table}
"""


def speed(found: Found) -> str:
    """Tables of every device and part."""
    parts = []
    loads = []
    for device in found["devices"].values():
        for part, write in PARTS.items():
            if part in device:
                parts.append(write(device, device[part]["found"]))
                loads.append(f"{device['name']}, {part}: {device[part]['load']}")
    devices = f"Load average before each part: {'; '.join(loads)}."
    return TEXT.format(devices=devices, parts="\n".join(parts)) + "\n" + provenance(found)


def _edges(device: Found, cases: list[Found]) -> str:
    body = []
    for case in cases:
        line = [str(case[key]) for key in ("edges", "width", "batch")]
        for kind in ("forward and backward", "inverse"):
            times = case[kind]
            ours = min(value for name, value in times.items() if name.startswith("vfg"))
            others = {k: v for k, v in times.items() if not k.startswith("vfg")}
            if not others:
                line += [_ms(ours), "", ""]
                continue
            best = min(others, key=lambda name: others[name])
            line += [_ms(ours), f"{_ms(others[best])} ({best})", f"{others[best] / ours:.1f}x"]
        body.append(line)
    header = ["K", "width", "batch", "forward + backward", "next best", "", "inverse", "next best"]
    return EDGES.format(name=device["name"], table=rows([*header, ""], body))


def _steps(device: Found, found: Found) -> str:
    body = [
        [
            case["model"],
            f"{case['batch']:,}",
            _ms(case["step"]),
            _ms(case["floor"]),
            f"{case['over floor']:.1f}x",
            f"{case['step'] / case['products']:.1f}x" if "products" in case else "",
        ]
        for case in found["cases"]
    ]
    header = ["model", "batch", "step, ms", "floor, ms", "over floor", "over plain products"]
    rates = found["rates"]
    return STEPS.format(
        name=device["name"],
        rate=rates["operations per second"] / 1e12,
        band=rates["bytes per second"] / 1e9,
        table=rows(header, body),
    )


def _filling(device: Found, found: Found) -> str:
    rates = found.get("rows per second", {})
    body = [[name, f"{value:,.0f}"] for name, value in rates.items()]
    if "device" in found:
        there = found["device"]
        members = f"{there['members']} members of an imputer of letters"
        body.append([members, f"{there['rows per second']:,.0f}"])
        body.append(["one member", f"{there['rows per second and member']:,.0f}"])
    return FILLING.format(name=device["name"], table=rows(["letter, 30 % missing", "rows/s"], body))


def _growth(device: Found, found: Found) -> str:
    body = []
    for what, series in found.items():
        last = series["points"][-1]
        for measure, value in series["slopes"].items():
            sizes = f"{series['sizes'][0]:,} to {series['sizes'][-1]:,}"
            body.append([what, sizes, measure, f"{last[measure]:.3g}", f"{value:.2f}"])
    header = ["against", "from", "what", "at the largest", "slope"]
    return GROWTH.format(name=device["name"], table=rows(header, body))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"


PARTS = {"edges": _edges, "steps": _steps, "filling": _filling, "growth": _growth}
