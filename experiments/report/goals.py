"""The goals that pages open with, and how near the results are to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from ..paper.likelihood import ENCODING, LONGER
from .images import MEASURES, REPLACED, TITLES, change
from .imputation import GOAL, by_case, geometric_mean, is_plain, setting_of
from .mixed import ABOVE, SETS, above, contests, ratios, sets_of
from .render import Found, fill, plural, rows, spread

NAMES = {"elbo": "-ELBO", "nll": "NLL"}
MNIST = (("elbo", 83.0), ("nll", 80.0), ("nll", 78.5))
"""The last is a distant goal."""
CALTECH = 96.0
HALVES = 5.0
"""Per cent by which bounds of halves are to be better than those of the masked VAE."""


ERRORS = {"contests": ("squared error", GOAL), "contests_mae": ("absolute error", 0.95)}
"""What ratios to the best other method of each contest should be, as geometric means."""
SECONDS = {"vfg-fast": 0.2, "vfg-balanced": 1.0}
"""What the time of an effort should be, relative to chained ExtraTrees of 100 trees."""
MIXED = {"mse": ("squared error", 0.92), "error": ("error rate", 0.95)}
"""The same ratios on mixed tables."""
AHEAD = 9
"""On how many mixed tables the log score should be below that of the best other method."""
HEADER = ("goal", "model", "where", "reached", "met")


def imputation(found: Found, effort: Found) -> str:
    """Goals on missing cells: errors, no lost contest, time."""
    body = [
        *(line for key in ERRORS for line in _errors(found, key)),
        *_lost(found),
        *_seconds(effort["cost"]),
    ]
    return fill("goals.imputation", table=rows(HEADER, body))


def _errors(found: Found, key: str) -> Iterator[list[str]]:
    name, goal = ERRORS[key]
    asked = f"{name} at most {goal:.2f} of the best other method's"
    for method in ("vfg", "vfg-best"):
        every = {group: held[method] for group, held in found[key].items() if method in held}
        plain = {
            group: own
            for group, own in every.items()
            if is_plain(group) and group.split()[0] in found["held_back"]
        }
        scopes = {"held-back tables, without MNAR": plain, "all tables, MNAR included": every}
        for where, groups in scopes.items():
            if not groups or (groups is every and groups == plain):
                continue
            reached = geometric_mean(own["ratio"] for own in groups.values())
            default = [own["default"] for own in groups.values() if "default" in own]
            beside = f" (defaults there {geometric_mean(default):.3f})" if default else ""
            seeds = {own["seeds"] for own in groups.values()}
            of_one = " of one seed" if seeds == {1} else ""
            yield [
                asked,
                setting_of(method),
                f"{where}: {plural(len(groups), 'contest')}{of_one}",
                f"{reached:.3f}{beside}",
                verdict(reached, goal),
            ]


def verdict(value: float, goal: float) -> str:
    """Whether a value is at most as large as a goal.

    Example:
        >>> verdict(0.9, 0.9), verdict(0.95, 0.9)
        ('yes', 'no, by 0.050')
    """
    return "yes" if value <= goal else f"no, by {value - goal:.3f}"


def _lost(found: Found) -> Iterator[list[str]]:
    for key, (name, _) in ERRORS.items():
        own = [held["vfg"] for held in found[key].values() if "vfg" in held]
        lost = sum(contest["outcome"] == "loss" for contest in own)
        where = f"all tables, MNAR included: {plural(len(own), 'contest')}"
        said = "no" if lost else "yes"
        yield [f"{name}: no contest lost", "defaults", where, f"{lost} lost", said]


def _seconds(records: list[Found]) -> Iterator[list[str]]:
    cases = by_case(records, "table", "seed").values()
    for method, goal in SECONDS.items():
        pairs = [(c[method], c["trees100"]) for c in cases if {method, "trees100"} <= set(c)]
        if not pairs:
            continue
        seconds, errors = (
            geometric_mean(ours[what] / theirs[what] for ours, theirs in pairs)
            for what in ("seconds", "mse")
        )
        yield [
            f"time at most {goal:.1f} of that of chained ExtraTrees with 100 trees",
            setting_of(method),
            f"half of the cells missing: {plural(len(pairs), 'table')}",
            f"{seconds:.3g}, at {errors:.3f} of their squared error",
            verdict(seconds, goal),
        ]


def mixed(found: Found) -> str:
    """Goals on mixed tables that are kept back, a quarter of the cells missing at random."""
    of_tables = contests(found, "held_back", "mcar25")
    body = []
    for key, (name, goal) in MIXED.items():
        reached = geometric_mean(ratios(of_tables, key))
        asked = f"{name} at most {goal:.2f} of the best baseline's"
        body.append([asked, f"{reached:.3f}", verdict(reached, goal)])
    high, most = above(found), max(r for key in MIXED for r in ratios(of_tables, key))
    asked = f"squared error and error rate of no table above {ABOVE} of the best baseline's"
    body.append([asked, f"{len(high)} above, the highest {most:.2f}", "no" if high else "yes"])
    scores = ratios(of_tables, "log")
    ahead = sum(ratio < 1.0 for ratio in scores)
    asked = f"log score below the best baseline's on at least {AHEAD} tables"
    body.append([asked, f"{ahead} of {len(scores)}", "yes" if ahead >= AHEAD else "no"])
    held = sets_of(found)
    near = sum(SETS[0] <= share <= SETS[1] for share in held)
    asked = f"90 % sets hold {SETS[0]} to {SETS[1]} of the cells on every table"
    shown = f"{min(held):.2f} to {max(held):.2f}; within on {near} of {len(held)}"
    body.append([asked, shown, "yes" if near == len(held) else "no"])
    table = rows(["goal", "reached", "met"], body)
    return fill("goals.mixed", tables=len(of_tables), table=table)


def images(likelihood: Found, finishing: Found, conditional: Found) -> str:
    """Every goal with what was reached, and what is in the way of the distant one."""
    sets = likelihood["data"]
    models = sets["mnist"]["models"]
    longer, usual = models[LONGER], models[ENCODING]
    before = [longer["elbo"][0], REPLACED["elbo"], *longer["elbo"][2:]]
    bound, weighted = finishing["runs"]["as shown above"]["stages"]
    body = [*_likelihoods(sets), *_ahead(sets), _halves(conditional["models"])]
    pairs = zip(longer["elbo"], longer["nll"], strict=True)
    return fill(
        "goals.images",
        table=rows(["goal", "reached", "met"], body),
        seeds="; ".join(f"{elbo:.2f} / {nll:.2f}" for elbo, nll in pairs),
        replaced=REPLACED["elbo"],
        before=mean(before),
        usual=f"{mean(usual['elbo']):.2f} / {mean(usual['nll']):.2f}",
        miss=mean(usual["nll"]) - MNIST[1][1],
        overfit=mean(longer["elbo"]) - mean(longer["train"]),
        gap=mean(longer["elbo"]) - mean(longer["nll"]),
        trade=[weighted[what] - bound[what] for what in MEASURES],
    )


def _likelihoods(sets: Found) -> Iterator[list[str]]:
    wanted = [("mnist", LONGER, what, goal) for what, goal in MNIST]
    for name, model, what, goal in (*wanted, ("caltech", ENCODING, "nll", CALTECH)):
        values = sets[name]["models"][model][what]
        asked = f"{TITLES[name]}: {NAMES[what]} at most {goal:.1f}"
        yield [asked, f"*{model}* {spread(values)}", met(values, goal)]


def met(values: Sequence[float], goal: float) -> str:
    """Whether values are at most as large as a goal: each of them, or their mean.

    Example:
        >>> met([1.0, 2.0], 2.5), met([1.0, 3.0], 2.5), met([3.0, 3.0], 2.5)
        ('yes, by every seed', 'in the mean, by 0.50; not by every seed', 'no, by 0.50')
    """
    away = mean(values) - goal
    if max(values) <= goal:
        return "yes, by every seed"
    return (
        f"in the mean, by {-away:.2f}; not by every seed" if away <= 0.0 else f"no, by {away:.2f}"
    )


def _ahead(sets: Found) -> Iterator[list[str]]:
    """Our model of the comparison against the best baseline in each measure."""
    for name, title in TITLES.items():
        models = sets[name]["models"]
        leads = {what: lead(models, what) for what in MEASURES}
        shown = ", ".join(f"{gain:+.2f} nats in {NAMES[what]}" for what, gain in leads.items())
        said = "yes" if max(leads.values()) < 0.0 else "no"
        yield [f"{title}: both measures below those of every baseline", shown, said]


def lead(models: dict[str, Any], what: str) -> float:
    """The mean of our model of the comparison less the least one of the baselines."""
    others = [mean(row[what]) for name, row in models.items() if not name.startswith("VFG")]
    return float(mean(models[ENCODING][what]) - min(others))


def _halves(models: dict[str, Any]) -> list[str]:
    ours, vae, alike = (
        models[name]["half, conditional"]
        for name in ("VFG", "masked VAE", "masked VAE, hidden part too")
    )
    asked = f"halves of MNIST: bound at least {HALVES:.0f} % less than that of the masked VAE"
    shown = f"{change(ours, vae)}; {change(ours, alike)} than a masked VAE with our objective"
    return [asked, shown, "yes" if mean(ours) <= (1.0 - HALVES / 100.0) * mean(vae) else "no"]
