"""The results on mechanisms of missing cells, and on pooled intervals."""

from __future__ import annotations

from statistics import geometric_mean, mean

from .render import Found, provenance

NAMES = {
    "logistic": "large values hide, as the model assumes",
    "other_tail": "small values hide",
    "per_column": "another slope for every column",
    "threshold": "60 % of the cells above the median",
    "one_column": "large values of the first column alone",
    "opposite": "slopes of 1 and -1 by turns",
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


PUBLISHED = {
    "banknote": (1.73, 1.28, 0.57),
    "concrete": (1.85, 1.76, 1.12),
    "wine_red": (1.83, 1.64, 1.07),
    "wine_white": (1.74, 1.63, 0.99),
    "yeast": (1.69, 1.66, 0.77),
    "breast_wdbc": (1.82, 1.57, 0.72),
}
"""RMSE that the paper of not-MIWAE states: mean imputation, missForest, its best variant."""


def protocol(found: Found) -> str:
    """Every value above the mean is missing, in half of the columns."""
    cells, methods = found["cells"], ("mean", "ignorable", "auto", "self")
    lines = [
        "## Every value above the mean is missing",
        "",
        "The protocol of the not-MIWAE paper: in the first half of the columns every value above "
        "the mean is missing. Root mean squared errors of z-scored cells by "
        "`VFGImputer(bend=False)`, 1 seed; the last three columns are quoted from that paper.",
        "",
        '| table | mean | ignorable | "auto" | "self" | mean, published | missForest, published | '
        "best not-MIWAE, published |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for table, published in PUBLISHED.items():
        own = {c["method"]: c["mse"] ** 0.5 for c in cells if c["table"] == table}
        numbers = [own[method] for method in methods if method in own]
        if numbers:
            lines.append(
                f"| {table} | " + " | ".join(f"{x:.2f}" for x in (*numbers, *published)) + " |"
            )
    lines += [
        "",
        "The model falls short of not-MIWAE here: slopes are bounded, and the parts are fitted to "
        "the observed cells alone, not together with the mechanism.",
    ]
    return "\n".join([*lines, "", provenance(found)])


FOUND = {
    "mcar": "completely at random",
    "mar": "at random, other columns for every column",
    "by_one_column": "one column, by another one",
    "by_several": "one column, by all others",
    "driven": "all columns, by one of them",
    "own_of_one": "one column, by its own value",
    "own_beside_random": "the same, other columns at random",
    "threshold_of_one": "one column, 60 % of the cells above the median",
    "opposite": "all columns by their own value, with slopes 1 and -1",
    "own": "all columns by their own value, with slope 1",
}


def mechanisms(found: Found) -> str:
    """How often slopes are found in simulated tables."""
    cells = found["cells"]
    sizes = sorted({cell["rows"] for cell in cells})
    tables = sorted({cell["table"] for cell in cells})
    lines = [
        "## What is found in simulated tables",
        "",
        f"Tables of Normal columns ({', '.join(tables)}), "
        f"{len({cell['seed'] for cell in cells})} seeds each, `VFGImputer(bend=False)`: in how "
        'many slopes were found by `missingness="auto"`, and the geometric mean of squared errors '
        'relative to `"ignorable"`, with the largest. In the first five rows every finding is '
        "false. In tables of two columns of which one has missing cells none can be found.",
        "",
        "| missing | " + " | ".join(f"{rows:,} rows" for rows in sizes) + " | error | largest |",
        "|---" * (len(sizes) + 3) + "|",
    ]
    for name, words in FOUND.items():
        own = [cell for cell in cells if cell["mechanism"] == name]
        if not own:
            continue
        by_size = [[cell["found"] for cell in own if cell["rows"] == rows] for rows in sizes]
        counts = " | ".join(f"{sum(some)} of {len(some)}" for some in by_size)
        ratios = [cell["ratio"] for cell in own]
        lines.append(f"| {words} | {counts} | {geometric_mean(ratios):.2f} | {max(ratios):.2f} |")
    return "\n".join([*lines, "", provenance(found)])


def multiple_imputation(found: Found) -> str:
    """Coverage of pooled intervals."""
    names = {
        "linear": "proper",
        "linear-improper": "not proper",
        "fast": 'proper, `effort="fast"`',
        "ridge": "chained ridge",
        "mice": "R's mice",
    }
    kinds = {"linear": "least squares", "quantile": "upper quartile", "logistic": "logistic"}
    lines = [
        "## Pooled intervals of regression coefficients",
        "",
        "Five columns, 40 % of the cells missing, 20 imputations, 95 % intervals: share that holds "
        "the truth, mean over five coefficients and the lowest; the estimates of the three slopes "
        "that are not 0, from imputed and from complete tables. Proper draws are those of "
        "`VFGImputer(bend=False)`. For a coverage of 0.95, 100 repetitions have a standard error "
        "of 0.02 for one coefficient. A run that was stopped lists the settings that it finished.",
        "",
        "| regression | rows | missing | draws | repetitions | held | lowest | estimates | "
        "complete | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found["settings"]:
        slopes, complete = (
            ", ".join(f"{x:.2f}" for x in one[key][1:4]) for key in ("estimate", "complete")
        )
        lines.append(
            f"| {kinds[one['analysis']]} | {one['rows']} | {one['mechanism'].upper()} | "
            f"{names[one['method']]} | {one['repetitions']} | {one['mean_coverage']:.3f} | "
            f"{min(one['coverage']):.2f} | {slopes} | {complete} | "
            f"{one['processor_seconds']:.2f} |"
        )
    if found.get("without_mice"):
        lines += ["", f"R's mice was not measured: {found['without_mice']}."]
    return "\n".join([*lines, "", provenance(found)])
