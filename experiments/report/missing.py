"""The results on mechanisms of missing cells, and on pooled intervals."""

from __future__ import annotations

from statistics import geometric_mean, mean, median

from .render import NONE, Cell, Found, fill, plural, rows, table

NAMES = {
    "logistic": "large values are missing, as the model assumes",
    "other_tail": "small values are missing",
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
    cells, body = found["cells"], []
    for name, words in NAMES.items():
        by = {
            method: [c for c in cells if (c["mechanism"], c["method"]) == (name, method)]
            for method in ("ignorable", "auto", "self")
        }
        if not by["auto"]:
            continue
        errors = [f"{geometric_mean(c['mse'] for c in own):.3f}" for own in by.values() if own]
        held = [f"{mean(c['coverage'] for c in own):.2f}" for own in by.values() if own]
        used = sum(c["slope"] is not None for c in by["auto"])
        body.append([words, *errors, *held, f"{used} of {len(by['auto'])}"])
    known = {cell["method"] for cell in cells}
    methods = ["ignorable", '"auto"', *(['"self"'] if "self" in known else [])]
    header = ["mechanism", *methods, *(f"covered, {method}" for method in methods), "found in"]
    return fill(
        "missing.mnar", table=rows(header, body), worse=_worse(cells), **_counted(found), **found
    )


def _worse(cells: list[Found]) -> str:
    """The mechanisms under which a model of them has larger errors than none."""
    told = []
    for method in ("auto", "self"):
        names = []
        for name, words in NAMES.items():
            own = [c for c in cells if c["mechanism"] == name]
            ours, plain = (
                [c["mse"] for c in own if c["method"] == kind] for kind in (method, "ignorable")
            )
            if ours and plain and geometric_mean(ours) > 1.001 * geometric_mean(plain):
                names.append(words)
        if names:
            told.append(f'- "{method}" has larger errors than "ignorable": {"; ".join(names)}.')
    return "\n".join(told)


def _counted(found: Found) -> dict[str, str]:
    """The names of the tables, and the number of seeds."""
    tables = sorted({cell["table"] for cell in found["cells"]})
    seeds = len({cell["seed"] for cell in found["cells"]})
    few = "With one seed" if seeds == 1 else f"With {seeds} seeds"
    return {"tables": ", ".join(tables), "seeds": plural(seeds, "seed"), "few": few}


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
    body = []
    for name, published in PUBLISHED.items():
        own = {c["method"]: c["mse"] ** 0.5 for c in cells if c["table"] == name}
        numbers = [own[method] for method in methods if method in own]
        if numbers:
            body.append([name, *(f"{x:.2f}" for x in (*numbers, *published))])
    quoted = [f"{name}, published" for name in ("mean", "missForest", "best not-MIWAE")]
    header = ["table", "mean", "ignorable", '"auto"', '"self"', *quoted]
    return fill("missing.protocol", table=rows(header, body), **_counted(found), **found)


FOUND = {
    "mcar": "completely at random",
    "mar": "at random, other columns for every column",
    "by_one_column": "one column, by another one",
    "by_several": "one column, by all others",
    "by_predictor": "the second column, by the first, the third at random",
    "driven": "all columns, by one of them",
    "above_another": "all columns but two, where one of these is above a threshold",
    "by_sum_of_two": "all columns but two, by the sum of these",
    "dropout": "all columns after one in which the row is high",
    "own_of_one": "one column, by its own value",
    "own_beside_random": "the same, other columns at random",
    "threshold_of_one": "one column, 60 % of the cells above the median",
    "beyond": "one column, all cells beyond a threshold",
    "opposite": "all columns by their own value, with slopes 1 and -1",
    "own": "all columns by their own value, with slope 1",
}


def mechanisms(found: Found) -> str:
    """How often slopes are found in simulated tables."""
    cells, body = found["cells"], []
    sizes = sorted({cell["rows"] for cell in cells})
    for name, words in FOUND.items():
        own = [cell for cell in cells if cell["mechanism"] == name]
        if not own:
            continue
        by_size = [[cell["found"] for cell in own if cell["rows"] == size] for size in sizes]
        counts = [f"{sum(some)} of {len(some)}" for some in by_size]
        ratios = [cell["ratio"] for cell in own]
        body.append([words, *counts, f"{geometric_mean(ratios):.2f}", f"{max(ratios):.2f}"])
    header = ["missing", *(f"{size:,} rows" for size in sizes), "error", "largest"]
    return fill("missing.mechanisms", table=rows(header, body), **_counted(found), **found)


DRAWS = {
    "linear": "`bend=False`",
    "linear-improper": "`bend=False`, not proper",
    "fast": '`effort="fast"`',
    "default": "defaults",
    "ridge": "chained ridge",
    "mice": "R's mice",
    "miceforest": "miceforest",
}
CAUSES = {"mcar": "MCAR", "mar": "MAR", "target": "one column, by the last"}
REGRESSIONS = {
    "linear": "least squares",
    "quantile": "upper quartile",
    "logistic": "logistic",
    "parabola": "with a square",
}


def multiple_imputation(found: Found) -> str:
    """Coverage of pooled intervals."""
    columns: dict[str, Cell] = {
        "regression": lambda one: REGRESSIONS[one["analysis"]],
        "rows": "{rows}",
        "missing": lambda one: CAUSES[one["mechanism"]],
        "draws": lambda one: DRAWS[one["method"]],
        "repetitions": "{repetitions}",
        "held": "{mean_coverage:.3f}",
        "lowest": lambda one: f"{min(one['coverage']):.3f}",
        "highest": lambda one: f"{max(one['coverage']):.3f}",
        "complete tables": lambda one: _share(one.get("complete_coverage")),
        "estimates": lambda one: _slopes(one["estimate"]),
        "complete": lambda one: _slopes(one["complete"]),
        "seconds": "{processor_seconds:.2f}",
    }
    reason = found.get("without_mice")
    without = f"R's mice was not measured: {reason}.\n\n" if reason else ""
    body = table(columns, found["settings"])
    remarks = _pooled_remarks(found["settings"])
    return fill("missing.pooled", table=body, without=without, remarks=remarks, **found)


def _pooled_remarks(settings: list[Found]) -> str:
    """How to read coverages of the upper quartile, and means of logistic regressions."""
    told = []
    wide = [one["mean_coverage"] for one in settings if one["analysis"] == "quantile"]
    if wide:
        numbers = {"least": min(wide), "middle": median(wide), "most": max(wide)}
        proper = [one for one in settings if one["analysis"] == "quantile" and _is_proper(one)]
        numbers["proper"] = min(one["mean_coverage"] for one in proper) if proper else min(wide)
        told.append(fill("missing.quartile", **numbers).strip())
    small = [one for one in settings if one["analysis"] == "logistic" and one["rows"] == SMALL]
    if small:
        largest = max(small, key=lambda one: float(one["estimate"][1]))
        numbers = {
            "rows": SMALL,
            "mean": largest["estimate"][1],
            "complete": largest["complete"][1],
        }
        told.append(fill("missing.separable", **numbers).strip())
    return "\n\n".join(told)


def _is_proper(one: Found) -> bool:
    """Whether intervals of least squares hold what they state, too; those of others are narrow."""
    return one["method"] not in ("ridge", "miceforest", "linear-improper")


SMALL = 100
"""Rows of tables that may be separable."""


def _share(number: float | None) -> str:
    return NONE if number is None else f"{number:.3f}"


def _slopes(coefficients: list[float]) -> str:
    """Those that are not 0: three slopes, and the coefficient of a square."""
    return ", ".join(f"{x:.3f}" for x in (*coefficients[1:4], *coefficients[5:]))
