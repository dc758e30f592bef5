"""The section of docs/results.md about speed."""

from __future__ import annotations

from typing import Any

from .pages import rows
from .speed_figures import picture_name

Found = dict[str, Any]

TEXT = """## Speed

Medians of five calls at least; what is compared takes turns, so that all meet the same machine.
Every part says where it was measured, and how many processes wanted to run there just before.

{parts}
"""

EDGES = """### Sibling edges, {name}

Milliseconds for four affine couplings (two hidden layers of 64) on every one of K edges: all edges
as one stack, against the fastest other library in a loop over edges.{compiled}

{table}
"""

STEPS = """### A whole training step, {name}

Gathering rows, masks, both passes, the derivative, clipping and AdamW. The floor is the larger of
three times the forward products at {rate:.2f} TFLOP/s and of parameters, gradients, moments and
inputs once at {band:.0f} GB/s, both measured here; it is that of float32, whatever the precision of
the conditioners.{rounded}

{table}
"""

FILLING = """### Rows filled per second, {name}

{what}{table}
"""

PRECISION = """### Rounded conditioners, {name}

Held-out loss per cell, in float32, after the same training with conditioners in each precision,
mean and spread over {seeds} seeds; and milliseconds of one step.

{table}
"""

FUSED = """### Conditioners as one kernel, {name}

Milliseconds of a training step, layer by layer and with kernels that keep hidden layers in
registers; the difference is that of gradients, relative to the largest.

{table}
"""

ROUNDED = """ Large products in {rates} have a lower floor of their own."""
PLAIN = """ Plain products are those of all conditioners and of their derivatives, layer after layer
and nothing else."""

COMPILE = """### Compiled steps, {name}

A training step {what}, as it is and compiled by `torch.compile`.

{table}
"""

MASKS = """### Rows grouped by equal masks, {name}

Milliseconds of a Gaussian model's conditioning for {rows:,} rows, covariances included, by the
share of masks that are distinct: every distinct mask once, or every row by itself.

{table}
"""

KERNELS = """### Where a step's time goes, {name}

The largest shares of {model}, batch {batch:,}, by kernel.

{table}
"""

STARTING = """### Starting, {name}

Seconds until a process of its own has ended, medians of {starts} starts.

{table}
"""

GROWTH = """### Growth, {name}

Slopes of straight lines through the larger half of the sizes in log-log plots: 1 is proportional,
as the dashed lines are. Memory is what is needed at most beyond the table and the model. Where rows
grow, the table has 8 columns: a VFG fills it in chunks; GaussianVFG learns from all rows, in three
iterations of EM, and fills all; VFGImputer without bent members learns from 200,000 rows at most
and fills all; the fastest of several calls counts if they take less than ten seconds. Where columns
grow, a step has 256 rows and GaussianVFG learns from 1,000.

![time and memory against rows, columns and depth](images/{picture}.png)

{table}
"""


def speed(found: Found) -> str:
    """Tables of every part and device."""
    parts = [
        f"{PARTS[part['part']](part, part['found'])}\n{_origin(part)}" for part in found["parts"]
    ]
    return TEXT.format(parts="\n".join(parts))


def _origin(part: Found) -> str:
    """Command and circumstances of a part."""
    threads = f"{part['threads']} thread{'s' if part['threads'] > 1 else ''}"
    took = "" if part["seconds"] is None else f", {part['seconds']:.0f} s"
    return (
        f"`python -m experiments.benchmarks.speed --only {part['part']}`: {threads}, load {part['load']}, "
        f"torch {part['machine']['torch']}, {part['measured'][:10]}{took}.\n"
    )


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
    table = rows([*header, ""], body)
    return EDGES.format(name=device["name"], table=table, compiled=_compiled(cases))


def _compiled(cases: list[Found]) -> str:
    """Where other libraries were compiled as well, and what kept some from it."""
    errors = [
        (case, name, why)
        for case in cases
        for failed in case.get("errors", {}).values()
        for name, why in failed.items()
    ]
    tried = [case for case in cases if any("compiled" in name for name in case["inverse"])]
    tried += [case for case, name, _ in errors if "compiled" in name]
    if not tried:
        return ""
    sizes = sorted({(case["edges"], case["width"], case["batch"]) for case in tried})
    told = ", ".join(str(size) for size in sizes)
    failed = "".join(f" {text}." for text in dict.fromkeys(f"{n}: {why}" for _, n, why in errors))
    return (
        f" For (K, width, batch) =\n{told} all were also compiled by `torch.compile`, and the "
        f"faster way of each counts; for other sizes they were not.{failed}"
    )


def _steps(device: Found, found: Found) -> str:
    rates = found["rates"]
    by_precision = dict(rates.get("operations per second by precision", {}))
    by_precision.pop("float32", None)
    body = []
    for case in found["cases"]:
        line = [case["model"], f"{case['batch']:,}", case.get("precision", "float32")]
        line += [_ms(case["step"]), _ms(case["floor"]), f"{case['over floor']:.1f}x"]
        if by_precision:
            own = case["floor of the precision"], case["over floor of the precision"]
            body.append([*line, _ms(own[0]), f"{own[1]:.1f}x"])
        else:
            times = case["step"] / case["products"] if "products" in case else None
            body.append([*line, "" if times is None else f"{times:.1f}x"])
    header = ["model", "batch", "conditioners", "step, ms", "floor, ms", "over floor"]
    header += ["floor of the precision, ms", "over it"] if by_precision else ["over plain products"]
    named = " and ".join(f"{p} ({r / 1e12:.0f} TFLOP/s)" for p, r in by_precision.items())
    return STEPS.format(
        name=device["name"],
        rate=rates["operations per second"] / 1e12,
        band=rates["bytes per second"] / 1e9,
        rounded=ROUNDED.format(rates=named) if by_precision else PLAIN,
        table=rows(header, body),
    )


def _filling(device: Found, found: Found) -> str:
    if "device" in found:
        return _filling_on(device, found["device"])
    body = [[name, f"{value:,.0f}"] for name, value in found["rows per second"].items()]
    header = ["letter, 30 % missing", "rows/s"]
    return FILLING.format(name=device["name"], what="", table=rows(header, body))


def _filling_on(device: Found, found: Found) -> str:
    """On a GPU: members alone, by the precision of their conditioners, and a whole imputer."""
    body = [
        [
            manner,
            f"{rate['rows per second']:,.0f}",
            f"{rate['rows per second and member']:,.0f}",
            f"{rate['mean difference']:.1g}, {rate['largest difference']:.1g}",
        ]
        for manner, rate in found["manners"].items()
    ]
    header = ["conditioners", "rows/s", "and member", "differs from the first by, at most"]
    whole = found["imputer"]
    members, mixtures, neighbours = whole["parts"]
    what = (
        f"The {found['members']} members of an imputer of letters, 30 % missing, as one call. A "
        f"whole imputer with {members} members, {mixtures} mixtures and {neighbours} sets of "
        f"neighbours fills {whole['rows per second']:,.0f} rows/s, arrays in and out, and differs "
        f"from one on a CPU by at most {whole['largest difference to a CPU']:.1g}.\n\n"
    )
    return FILLING.format(name=device["name"], what=what, table=rows(header, body))


def _growth(device: Found, found: Found) -> str:
    body = []
    for what, series in found.items():
        last = series["points"][-1]
        for measure, value in series["slopes"].items():
            sizes = f"{series['sizes'][0]:,} to {series['sizes'][-1]:,}"
            body.append([what, sizes, measure, f"{last[measure]:.3g}", f"{value:.2f}"])
    header = ["against", "from", "what", "at the largest", "slope"]
    picture = picture_name(device)
    return GROWTH.format(name=device["name"], picture=picture, table=rows(header, body))


def _ms(seconds: float) -> str:
    found = 1e3 * seconds
    return f"{found:,.0f}" if found >= 1000 else f"{found:.3g}"


def _precision(device: Found, found: list[Found]) -> str:
    body = []
    for case in found:
        losses = case["losses"]
        spread = (max(losses) - min(losses)) / 2
        steps = "; ".join(f"{_ms(t)} ({int(batch):,})" for batch, t in case["step"].items())
        loss = f"{sum(losses) / len(losses):.4f} ± {spread:.4f}"
        body.append([case["model"], case["precision"], loss, steps])
    header = ["model", "precision", "held-out loss", "step, ms (batch)"]
    seeds = len(found[0]["losses"])
    return PRECISION.format(name=device["name"], seeds=seeds, table=rows(header, body))


def _fused(device: Found, found: list[Found]) -> str:
    body = []
    for case in found:
        line = [case["model"], f"{case['batch']:,}", case["precision"]]
        if "error" in case:
            body.append([*line, "", "", case["error"]])
            continue
        times = [_ms(case[manner]) for manner in ("layer by layer", "one kernel")]
        body.append([*line, *times, f"{case['difference']:.1g}"])
    header = ["model", "batch", "precision", "layer by layer", "one kernel", "difference"]
    return FUSED.format(name=device["name"], table=rows(header, body))


def _compile(device: Found, found: list[Found]) -> str:
    is_real = bool(found) and "model" in found[0]
    body = []
    for case in found:
        pays = case["steps until it pays"]
        times = [_ms(case[manner]) for manner in ("as it is", "compiled")]
        compiling = f"{case['seconds to compile']:.0f}"
        subject = (case["model"], f"{case['batch']:,}", case["precision"]) if is_real else ()
        line = [*(subject or (case["flow"],)), *times, compiling]
        body.append([*line, "never" if pays is None else f"{pays:,}"])
    named = ["model", "batch", "conditioners"] if is_real else ["flow"]
    what = "of whole models" if is_real else "of a star over 16 leaves, batch 256"
    header = [*named, "as it is, ms", "compiled, ms", "compiling, s", "pays after steps"]
    return COMPILE.format(name=device["name"], what=what, table=rows(header, body))


def _masks(device: Found, found: list[Found]) -> str:
    body = [
        [
            *[str(case[key]) for key in ("columns", "innovations", "components")],
            f"{case['share']:.2f}",
            _ms(case["grouped"]),
            _ms(case["row by row"]),
        ]
        for case in found
    ]
    header = ["columns", "width", "components", "distinct", "grouped, ms", "row by row, ms"]
    return MASKS.format(name=device["name"], rows=found[0]["rows"], table=rows(header, body))


def _kernels(device: Found, found: list[Found]) -> str:
    parts = []
    for case in found:
        model = f"{case['model']} ({case['precision']})"
        body = [[f"`{k['name']}`", str(k["calls"]), f"{k['share']:.2f}"] for k in case["kernels"]]
        table = rows(["kernel", "calls", "share"], body)
        text = {"name": device["name"], "model": model, "batch": case["batch"], "table": table}
        parts.append(KERNELS.format(**text))
    return "\n".join(parts)


def _starting(device: Found, found: Found) -> str:
    body = [
        [f"`{name}`", *[f"{times[key]:.2f}" for key in ("wall", "processor", "fastest")]]
        for name, times in found["seconds"].items()
    ]
    table = rows(["what", "wall", "processor", "fastest"], body)
    return STARTING.format(name=device["name"], starts=found["starts"], table=table)


PARTS = {
    "edges": _edges,
    "steps": _steps,
    "filling": _filling,
    "growth": _growth,
    "precision": _precision,
    "fused": _fused,
    "compile": _compile,
    "masks": _masks,
    "kernels": _kernels,
    "starting": _starting,
}
