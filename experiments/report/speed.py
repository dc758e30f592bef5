"""The section on speed: a table for every part and device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .growth import picture_name
from .render import Found, fill, folded, plural, rows, table


def speed(found: Found) -> str:
    parts = []
    for part in found["parts"]:
        name, took = part["part"], part["seconds"]
        told = fill(
            "speed.origin",
            **{**part, "threads": plural(part["threads"], "thread")},
            took="" if took is None else f", {took:.0f} s",
        )
        parts.append(f"{PARTS[name](part['found'], part['name'])}\n{told}")
    return fill("speed", parts="\n".join(parts))


def ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _ms(key: str) -> Callable[[Found], str]:
    """A cell with the milliseconds of a field, empty if it is not there."""
    return lambda case: ms(case[key]) if key in case else ""


STACKS = ("baddbmm", "vmap")
"""Stacks of edges in plain torch."""


def _edges(cases: list[Found], device: str) -> str:
    header = ["K", "width", "batch", "forward + backward", "next best", ""]
    header += ["inverse", "next best", ""]
    kept = all("kept" in case for case in cases)
    header += ["kept, MB", "by baddbmm"] if kept else []
    body = []
    for case in cases:
        line = [str(case[key]) for key in ("edges", "width", "batch")]
        for kind in ("forward and backward", "inverse"):
            times = case[kind]
            ours = min(value for name, value in times.items() if name.startswith("vfg"))
            others = {value: name for name, value in times.items() if not name.startswith("vfg")}
            line.append(ms(ours))
            best = min(others, default=0.0)
            line += [f"{ms(best)} ({others[best]})", f"{best / ours:.1f}x"] if others else ["", ""]
        line += [f"{case['kept'][name] / 2**20:.3g}" for name in ("vfg", "baddbmm")] if kept else []
        body.append(line)
    told = fill("speed.loops")
    if kept:
        inverse = _slower(cases, "inverse")
        slower = _slower(cases, "forward and backward")
        told = fill("speed.stacks", slower=slower, inverse=inverse, kept=_kept(cases))
    return fill(
        "speed.edges",
        name=device,
        table=rows(header, body),
        compiled=_compiled(cases),
        stacks=told,
    )


def _slower(cases: list[Found], kind: str) -> str:
    """In how many sizes a plain stack is faster, and which."""
    sizes = []
    for case in cases:
        times = case[kind]
        ours = min(value for name, value in times.items() if name.startswith("vfg"))
        if any(times.get(name, ours) < ours for name in STACKS):
            sizes.append(_size(case))
    listed = f": {', '.join(sizes)}" if sizes else ""
    return f"in {len(sizes)} of {len(cases)} sizes{listed}"


def _kept(cases: list[Found]) -> str:
    """What ours keeps between the passes next to a plain stack, by size."""
    ratios = {_size(case): case["kept"]["vfg"] / case["kept"]["baddbmm"] for case in cases}
    less = [f"{ratio:.0%} at {size}" for size, ratio in ratios.items() if ratio < 1]
    more = [ratio for ratio in ratios.values() if ratio >= 1]
    told = f"Of what baddbmm keeps this is {', '.join(less)}" if less else "None is less here"
    return told + (f"; in the other {len(more)} sizes up to {max(more):.0%}." if more else ".")


def _size(case: Found) -> str:
    return f"{case['edges']} edges of width {case['width']}"


def _compiled(cases: list[Found]) -> str:
    """Where other libraries were compiled as well, and what kept some from it."""
    errors: dict[str, None] = {}
    sizes = set()
    for case in cases:
        failed = {n: why for kind in case.get("errors", {}).values() for n, why in kind.items()}
        errors |= dict.fromkeys(f" {name}: {why}." for name, why in failed.items())
        if any("compiled" in name for name in (*case["inverse"], *failed)):
            sizes.add((case["edges"], case["width"], case["batch"]))
    if not sizes:
        return ""
    told = ", ".join(str(size) for size in sorted(sizes))
    return fill("speed.compiled", sizes=told, failed="".join(errors)).removesuffix("\n")


def _steps(found: Found, device: str) -> str:
    rates = found["rates"]
    by_precision = dict(rates.get("operations per second by precision", {}))
    by_precision.pop("float32", None)
    columns: dict[str, Any] = {
        "model": "{model}",
        "batch": "{batch:,}",
        "conditioners": lambda case: case.get("precision", "float32"),
        "step, ms": _ms("step"),
        "floor, ms": _ms("floor"),
        "over floor": "{over floor:.1f}x",
    }
    if by_precision:
        columns["floor of the precision, ms"] = _ms("floor of the precision")
        columns["over it"] = "{over floor of the precision:.1f}x"
        named = " and ".join(f"{p} ({r / 1e12:.0f} TFLOP/s)" for p, r in by_precision.items())
        more = fill("speed.rounded", rates=named)
    else:
        columns["over plain products"] = lambda case: (
            f"{case['step'] / case['products']:.1f}x" if "products" in case else ""
        )
        more = fill("speed.plain")
    return fill(
        "speed.steps",
        name=device,
        rate=rates["operations per second"] / 1e12,
        band=rates["bytes per second"] / 1e9,
        rounded=more.removesuffix("\n"),
        table=table(columns, found["cases"]),
    )


def _filling(found: Found, device: str) -> str:
    """Rows per second; on a GPU of the members alone, and of a whole imputer."""
    if "device" not in found:
        body = [[name, f"{value:,.0f}"] for name, value in found["rows per second"].items()]
        shown = rows(["letter, 30 % missing", "rows/s"], body)
        return fill("speed.filling", name=device, what="", table=shown)
    columns = {
        "conditioners": "{manner}",
        "rows/s": "{rows per second:,.0f}",
        "and member": "{rows per second and member:,.0f}",
        "differs from the first by, at most": "{mean difference:.1g}, {largest difference:.1g}",
    }
    members = found["device"]
    records = [{"manner": manner, **rate} for manner, rate in members["manners"].items()]
    what = fill("speed.filling_on_gpu", **members) + "\n"
    return fill("speed.filling", name=device, what=what, table=table(columns, records))


def _growth(found: Found, device: str) -> str:
    body = [
        [
            what,
            f"{series['sizes'][0]:,} to {series['sizes'][-1]:,}",
            measure,
            f"{series['points'][-1][measure]:.3g}",
            f"{slope:.2f}",
        ]
        for what, series in found.items()
        for measure, slope in series["slopes"].items()
    ]
    shown = rows(["against", "from", "what", "at the largest", "slope"], body)
    return fill("speed.growth", name=device, picture=picture_name(device), table=shown)


def _precision(found: list[Found], device: str) -> str:
    def loss(case: Found) -> str:
        values = case["losses"]
        return f"{sum(values) / len(values):.4f} ± {(max(values) - min(values)) / 2:.4f}"

    columns = {
        "model": "{model}",
        "precision": "{precision}",
        "held-out loss": loss,
        "step, ms (batch)": lambda case: "; ".join(
            f"{ms(time)} ({int(batch):,})" for batch, time in case["step"].items()
        ),
    }
    seeds = len(found[0]["losses"])
    return fill("speed.precision", name=device, seeds=seeds, table=table(columns, found))


def _compile(found: list[Found], device: str) -> str:
    is_model = bool(found) and "model" in found[0]
    subject = {"model": "{model}", "batch": "{batch:,}", "conditioners": "{precision}"}
    columns = {
        **(subject if is_model else {"flow": "{flow}"}),
        "as it is, ms": _ms("as it is"),
        "compiled, ms": _ms("compiled"),
        "compiling, s": "{seconds to compile:.0f}",
        "pays after steps": lambda case: (
            "never" if case["steps until it pays"] is None else f"{case['steps until it pays']:,}"
        ),
    }
    what = "of whole models" if is_model else "of a star over 16 leaves, batch 256"
    return fill("speed.compile", name=device, what=what, table=table(columns, found))


def _kernels(found: list[Found], device: str) -> str:
    columns = {"kernel": "`{name}`", "calls": "{calls}", "share": "{share:.2f}"}
    parts = [
        folded(
            f"{case['model']} ({case['precision']}), batch {case['batch']:,}",
            table(columns, case["kernels"]),
        )
        for case in found
    ]
    return fill("speed.kernels", name=device, tables="\n\n".join(parts))


def _starting(found: Found, device: str) -> str:
    columns = {"what": "`{name}`"}
    columns |= {key: f"{{{key}:.2f}}" for key in ("wall", "processor", "fastest")}
    records = [{"name": name, **times} for name, times in found["seconds"].items()]
    return fill(
        "speed.starting", name=device, starts=found["starts"], table=table(columns, records)
    )


PLAIN: dict[str, dict[str, Any]] = {
    "fused": {
        "model": "{model}",
        "batch": "{batch:,}",
        "precision": "{precision}",
        "layer by layer": _ms("layer by layer"),
        "one kernel": _ms("one kernel"),
        "difference": lambda case: case.get("error") or f"{case['difference']:.1g}",
    },
    "masks": {
        "columns": "{columns}",
        "width": "{innovations}",
        "components": "{components}",
        "distinct": "{share:.2f}",
        "grouped, ms": _ms("grouped"),
        "row by row, ms": _ms("row by row"),
    },
}
"""Tables with a line per case and nothing else."""


def _plain(part: str, found: list[Found], device: str) -> str:
    first = found[0] if found else {}
    return fill(f"speed.{part}", **{**first, "name": device}, table=table(PLAIN[part], found))


PARTS: dict[str, Callable[[Any, str], str]] = {
    "edges": _edges,
    "steps": _steps,
    "filling": _filling,
    "growth": _growth,
    "precision": _precision,
    "fused": partial(_plain, "fused"),
    "compile": _compile,
    "masks": partial(_plain, "masks"),
    "kernels": _kernels,
    "starting": _starting,
}


def bigtable(found: Found) -> str:
    """How fast tables larger than memory are filled by the linear model and an ensemble."""
    names = {"linear": "linear", "bent": "ensemble of the size for large tables"}
    records = [{"model": names[name], **one} for name, one in found["models"].items()]
    columns: dict[str, Any] = {
        "model": "{model}",
        "rows": "{rows:,}",
        "seconds": "{seconds:,.0f}",
        "rows a second": "{rows_per_second:,}",
        "a processor second": "{rows_per_processor_second:,}",
        "load": "{load:.1f}",
        "memory, MB": "{resident_megabytes[first]:,} to {resident_megabytes[most]:,}",
    }
    return fill("bigtable", **found, share=_percent(found), table=table(columns, records))


def engines(found: Found) -> str:
    """How fast engines fill Parquet files, and what the calling process holds."""
    names = {"local": "local", "ray": "Ray Data"}
    records = [
        {"engine": names[name], **one, **one["first_process_megabytes"]}
        for name, one in found["engines"].items()
    ]
    columns: dict[str, Any] = {
        "engine": "{engine}",
        "seconds": "{seconds:,.0f}",
        "rows a second": "{rows_per_second:,}",
        "processor seconds": "{processor_seconds:,.0f}",
        "a processor second": "{rows_per_processor_second:,}",
        "others": "{cores_of_others:.1f}",
        "memory, MB": lambda one: (
            f"{one['start']} / {min(one['by_tenths'])} to {max(one['by_tenths'])} / {one['end']}"
        ),
    }
    return fill("bigtable.engines", **found, share=_percent(found), table=table(columns, records))


def _percent(found: Found) -> str:
    """The share of missing cells."""
    return f"{100 * found['missing']:.0f}"
