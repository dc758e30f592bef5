"""The results on mechanisms of missing cells, and on pooled intervals."""

from __future__ import annotations

from statistics import geometric_mean, mean

from .render import Found, provenance

NAMES = {
    "logistic": "large values hide, as the model assumes",
    "other_tail": "small values hide",
    "per_column": "another slope for every column",
    "threshold": "60 % of the cells above the median",
    "left_out": "by a column that is not in the table",
    "half": "all cells above the mean, in half of the columns",
    "mcar": "completely at random",
    "mar": "at random given other columns",
}


def mnar(found: Found) -> str:
    """Squared errors and coverage with and without a model of the mechanism."""
    cells = found["cells"]
    tables = sorted({cell["table"] for cell in cells})
    lines = [
        "## Cells that are missing because of their value",
        "",
        f"`VFGImputer(bend=False)` on {', '.join(tables)}, "
        f"{len({cell['seed'] for cell in cells})} seed(s): geometric mean of squared errors of "
        "z-scored cells, and share of the cells in 90 % intervals.",
        "",
        '| mechanism | ignorable | "auto" | covered | covered, "auto" | found in |',
        "|---|---|---|---|---|---|",
    ]
    for name, words in NAMES.items():
        by = {
            method: [c for c in cells if (c["mechanism"], c["method"]) == (name, method)]
            for method in ("ignorable", "auto")
        }
        if not by["auto"]:
            continue
        errors = [geometric_mean(c["mse"] for c in own) for own in by.values()]
        held = [mean(c["coverage"] for c in own) for own in by.values()]
        used = sum(c["slope"] is not None for c in by["auto"])
        lines.append(
            f"| {words} | {errors[0]:.3f} | {errors[1]:.3f} | {held[0]:.2f} | {held[1]:.2f} | "
            f"{used} of {len(by['auto'])} |"
        )
    return "\n".join([*lines, "", provenance(found)])


def multiple_imputation(found: Found) -> str:
    """Coverage of pooled intervals."""
    names = {"linear": "proper", "linear-improper": "not proper", "ridge": "chained ridge"}
    lines = [
        "## Pooled intervals of regression coefficients",
        "",
        "Five columns, 40 % of the cells missing, 20 imputations by `VFGImputer(bend=False)`, 95 % "
        "intervals: share that holds the truth, mean over five coefficients and the lowest; the "
        "estimates of the three slopes that are not 0, from imputed and from complete tables.",
        "",
        "| rows | missing | draws | repetitions | held | lowest | estimates | complete | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found["settings"]:
        slopes, complete = (
            ", ".join(f"{x:.2f}" for x in one[key][1:4]) for key in ("estimate", "complete")
        )
        lines.append(
            f"| {one['rows']} | {one['mechanism'].upper()} | {names[one['method']]} | "
            f"{one['repetitions']} | {one['mean_coverage']:.3f} | {min(one['coverage']):.2f} | "
            f"{slopes} | {complete} | {one['processor_seconds']:.2f} |"
        )
    return "\n".join([*lines, "", provenance(found)])
