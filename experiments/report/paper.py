"""The sections on the paper's experiments with tables, and their lines in the opening table."""

from __future__ import annotations

from statistics import mean, median, stdev
from typing import Any

from .render import Found, bold, fill, least, rows, table

MEASURES = ("mse, raw", "mae, raw", "mse, standardised", "mae, standardised")
PARTS = ("all", "draws")
SCALES = ("mse, raw", "variance, raw", "mse, standardised", "variance, standardised")


def synthetic(found: Found) -> str:
    errors = found["mse"]
    baseline, best, paper = synthetic_best(errors)
    ratios = [p / o for p, o in zip(errors[paper], errors[best], strict=True)]
    columns = {
        "method": "{name}",
        "mean": lambda line: f"{mean(line['values']):.3g} ± {stdev(line['values']):.2g}",
        "least": lambda line: f"{min(line['values']):.3g}",
        "most": lambda line: f"{max(line['values']):.3g}",
    }
    lines = [
        [{"name": name, "values": values} for name, values in part.items()]
        for part in (errors, found["patterns"])
    ]
    return fill(
        "synthetic",
        **found,
        table=table(columns, lines[0]),
        pattern_table=table(columns, lines[1]),
        pattern_seeds=len(lines[1][0]["values"]),
        baseline=baseline,
        wins=sum(o < b for o, b in zip(errors[best], errors[baseline], strict=True)),
        neighbours=sum(o < b for o, b in zip(errors[best], errors["kNN, tuned"], strict=True)),
        count=len(ratios),
        ends=(min(ratios), max(ratios)),
        average=mean(errors[paper]) / mean(errors[best]),
    )


def synthetic_line(found: Found) -> str:
    """Paper, its protocol, an honest one, and what it comes to."""
    errors = {name: mean(values) for name, values in found["mse"].items()}
    baseline, best, paper = synthetic_best(found["mse"])
    theirs = {name: errors[name] for name in ("mean", "iterative", "MICE")}
    return fill(
        "opening.synthetic",
        paper=errors[paper],
        best=errors[best],
        baseline=baseline,
        error=errors[baseline],
        theirs=", ".join(f"{name} {error:.1f}" for name, error in theirs.items()),
        confirmed=_confirmed(errors[paper] < min(theirs.values())),
        beats="beats" if errors[baseline] < errors[paper] else "does not beat",
        ours_beats="beats" if errors[best] < errors[baseline] else "does not beat",
    )


def _confirmed(is_so: bool) -> str:
    return "Confirmed" if is_so else "Not confirmed"


def synthetic_best(errors: dict[str, list[float]]) -> tuple[str, ...]:
    """The names of the best baseline, of our best model, and of the paper's model."""
    kinds: dict[str, dict[str, float]] = {"baseline": {}, "ours": {}, "paper": {}}
    for name, values in errors.items():
        kind = "paper" if "paper" in name else "ours" if name.startswith("VFG") else "baseline"
        kinds[kind][name] = mean(values)
    return tuple(least(each) for each in kinds.values())


def california(found: Found) -> str:
    methods = found["methods"]
    columns = []
    for measure in MEASURES:
        values = [method[measure] for method in methods.values()]
        shown = [f"{value['all']:.3f}" for value in values], [_drawn(value) for value in values]
        centres = [value["all"] for value in values], [median(value["draws"]) for value in values]
        columns += [bold(*pair) for pair in zip(shown, centres, strict=True)]
    header = ["method", *(f"{measure}, {part}" for measure in MEASURES for part in PARTS)]
    draws = methods["mean"]["mse, raw"]["draws"]
    return fill(
        "california",
        **found,
        draws=len(draws),
        table=rows(header, list(zip(methods, *columns, strict=True))),
        spread=stdev(draws),
        verdict=_california_verdict(methods),
    )


def california_line(found: Found) -> str:
    """Paper, its protocol, an honest one, and what it comes to."""
    methods = found["methods"]
    paper = next(name for name in methods if "paper" in name)
    names = (paper, *california_best(methods, "mse, raw"))
    return fill(
        "opening.california",
        paper=_drawn(methods[paper]["mse, raw"]),
        mean=_drawn(methods["mean"]["mse, raw"]),
        honest="; ".join(
            f"{n} {methods[n]['mse, raw']['all']:.2f} / {methods[n]['mae, raw']['all']:.3f}"
            for n in names
        ),
        verdict=_california_verdict(methods),
    )


def _california_verdict(methods: dict[str, Any]) -> str:
    paper = next(name for name in methods if "paper" in name)
    values = [methods[name]["mse, raw"] for name in ("mean", paper)]
    leads = [a - b for a, b in zip(*(value["draws"] for value in values), strict=True)]
    lead = values[0]["all"] - values[1]["all"]
    sentences = [fill("california.lead", lead=lead, ends=(min(leads), max(leads)))]
    if "near" in values[0]:
        near = {name: method["mse, raw"]["near"] for name, method in methods.items()}
        ours, baseline = california_best(methods, "mse, raw", "near")
        fields = {"all": values[0]["all"], "mean": near["mean"], "ours": ours, "baseline": baseline}
        errors = (near[ours], near[baseline])
        sentences.append(fill("california.tail", **fields, errors=errors))
    for measure, title in (("mse, raw", "squared"), ("mae, raw", "absolute")):
        ours, baseline = california_best(methods, measure)
        ratio = methods[ours][measure]["all"] / methods[baseline][measure]["all"]
        sentences.append(
            f"In {title} error our best ({ours}) is {100 * abs(1 - ratio):.1f} % "
            f"{'below' if ratio < 1.0 else 'above'} the best baseline ({baseline})."
        )
    return " ".join(sentence.strip() for sentence in sentences)


def california_best(methods: dict[str, Any], measure: str, part: str = "all") -> tuple[str, str]:
    """The names of our best method and of the best baseline; the paper's model is neither."""
    errors = {n: m[measure][part] for n, m in methods.items() if "paper" not in n}
    ours, baselines = (
        least({name: error for name, error in errors.items() if ("VFG" in name) == is_ours})
        for is_ours in (True, False)
    )
    return ours, baselines


def _drawn(value: Found) -> str:
    draws = value["draws"]
    return f"{median(draws):.2f} ({min(draws):.2f} to {max(draws):.2f})"


def gaussian(found: Found) -> str:
    methods, floor = found["methods"], found["noise of F"]
    body = [
        [name, *(f"{answers['F missing'][scale]:.4f}" for scale in SCALES)]
        for name, answers in methods.items()
    ]
    noise = [f(floor[s]) for s in ("raw", "standardised") for f in (float, lambda v: 2 * v**2)]
    body.append(["*the noise of F, in expectation*", *(f"{value:.4f}" for value in noise)])
    known = methods["least squares"]
    ratios = {
        name: {case: answers[case]["mse, raw"] / known[case]["mse, raw"] for case in known}
        for name, answers in methods.items()
    }
    others = [
        [case, *(f"{methods[n][case]['mse, raw']:.3f} ({ratios[n][case]:.2f})" for n in methods)]
        for case in known
    ]
    return fill(
        "gaussian",
        **found,
        floor=floor,
        table=rows(["method", *SCALES], body),
        absent="".join(f"{name} was not run: {why}.\n\n" for name, why in found["not run"].items()),
        masks=len(found["seeds"]),
        others=rows(["", *methods], others),
        apart=100.0 * max(abs(1.0 - ratio) for ratio in ratios["GaussianVFG"].values()),
    )


def gaussian_line(found: Found) -> str:
    """Paper, its protocol, an honest one, and what it comes to."""
    asked = {name: answers["F missing"] for name, answers in found["methods"].items()}
    noise = found["noise of F"]["raw"]

    def cell(part: str, scale: str) -> str:
        value = next((value for name, value in asked.items() if part in name), None)
        title = "VFG" if part == "paper" else part
        if value is None:
            return f"{title} not run"
        return f"{title} {value[f'mse, {scale}']:.3f} ({value[f'variance, {scale}']:.3f})"

    shown = ["pgmpy", "SPFlow", "paper", "GaussianVFG", "least squares"]
    best = asked["least squares"]["mse, raw"]
    paper = next(value["mse, raw"] for name, value in asked.items() if "paper" in name)
    return fill(
        "opening.gaussian",
        pgmpy=cell("pgmpy", "raw"),
        spflow=cell("SPFlow", "standardised"),
        paper=cell("paper", "standardised"),
        honest=", ".join(cell(part, "raw") for part in shown),
        noise=noise,
        confirmed=_confirmed(paper < 1.01 * best),
        best=best,
        ratio=paper / best,
        ours=asked["GaussianVFG"]["mse, raw"] / best,
    )
