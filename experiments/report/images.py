"""The sections on likelihoods and representations of images, and their lines in the opening."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from statistics import mean
from typing import Any

from ..benchmarks.image_ablation import VARIANTS as ALL_VARIANTS
from ..paper.likelihood import ENCODING, SAME_SIZE, checked_steps, first_steps, stride
from ..results import FOLDER
from .render import NONE, TEMPLATES, Found, apart, fill, filled, least, plural, rows, spread, table

PUBLISHED: Found = json.loads((TEMPLATES / "published.json").read_text())
"""-ELBO and NLL as printed in the paper; those of the baselines are from the Sylvester paper."""
TITLES = {"mnist": "static MNIST", "caltech": "Caltech 101", "omniglot": "Omniglot"}
GOOD_VAE = 88.0
"""A VAE whose -ELBO on MNIST is above this had too little training to speak for VAEs."""
TERMS = 9
"""How many terms of width 196 have a constant on the tree: 2 nodes, 6 edges, the root."""
MEASURES = ("elbo", "nll")
LONGER = ", longer"
"""How the names of models end that had more seconds than the baselines."""
REPLACED = {"elbo": 83.01, "nll": 79.90}
"""Of the second seed of the longer run, before it was run again alone on the GPU."""
MODELS = {
    "model": "{name}",
    "-ELBO": lambda row: spread(row["elbo"]),
    "NLL": lambda row: spread(row["nll"]),
    "-ELBO, training rows": lambda row: spread(row["train"]),
    "million parameters": lambda row: f"{row['parameters'] / 1e6:.2f}",
    "steps": "{steps:,.0f}",
}
RUNS = {
    **MODELS,
    "batch": "{batch}",
    "million images, first seed": lambda row: f"{_images(row) / 1e6:.1f}",
    "seconds per seed": lambda row: f"{_seconds_per_seed(row):.0f}",
    "processes": lambda row: str(row.get("together", 1)),
    "draws": "{draws:,}",
    "effective draws of 500": lambda row: (
        spread(row["effective"], 1) if "effective" in row else NONE
    ),
}
SURROGATE = {
    "data": "{source}",
    "β": "{beta}",
    "reconstruction": lambda row: spread(row["reconstruction"]),
    "distances": lambda row: spread(row["distances"]),
    "constants": lambda row: spread(row["constants"]),
    "negative surrogate": lambda row: spread(row["sum"]),
}
PROBES = {
    "nearest": "5 nearest neighbours, %",
    "linear": "linear classifier, %",
    "silhouette": "silhouette",
    "prior": "nearest prior mean, %",
}
COMPARED = (
    ("half: bound", "half", "conditional"),
    ("half: by draws of q", "half", "bound"),
    ("half: NLL", "half", "nll"),
    ("block: bound", "block", "conditional"),
    ("block: by draws of q", "block", "bound"),
    ("block: NLL", "block", "nll"),
)
VFG, FLOW = "VFG", "coupling flow"
OPTIONS = {
    "wider conditioners, SiLU, dropout": ("VFG, the paper's tree", "VFG, tree"),
    "`Sampled(ladder=True)`": ("VFG, tree", "VFG, tree, ladder"),
    "`prior=Mixture(128)`": ("VFG, tree, ladder", "VFG, tree, ladder, mixture prior"),
    "`prior=FlowPrior(4, 288)`": ("VFG, tree, ladder", "VFG, tree, ladder, flow prior"),
    "`Coupling(image=...)`": (
        "VFG, tree, ladder, flow prior",
        "VFG, tree, ladder, flow prior, convolutions",
    ),
    "`Sampled(amortised=...)`": (
        "VFG, tree, ladder, scales not amortised",
        "VFG, tree, ladder",
    ),
}
"""The models without and with an option."""


def likelihood(found: Found) -> str:
    sets = found["data"]
    vae = sets.get("mnist", {}).get("models", {}).get("VAE")
    parts = [
        {**row, "source": one["source"], "beta": beta}
        for one in sets.values()
        for beta, row in one["surrogate"].items()
    ]
    arithmetic = "\n".join(_arithmetic(name, one) for name, one in sets.items())
    surrogates = fill("likelihood.surrogates", parts=table(SURROGATE, parts), arithmetic=arithmetic)
    note = f" {found['note']}" if found.get("note") else ""
    return fill(
        "likelihood",
        **{**found, "note": note},
        effective=_effective(sets),
        replaced=REPLACED,
        surrogates=surrogates if parts else "",
        short=", short budget" if vae and mean(vae["elbo"]) > GOOD_VAE else "",
        sections="\n".join(_section(name, one) for name, one in sets.items()),
    )


def _section(name: str, found: Found) -> str:
    source, models = found["source"], found["models"]
    lines = [
        f"### {_capital(source)}, {plural(len(found['seeds']), 'seed')}",
        rows(list(RUNS), [*_measured(models), *_published(name)]),
        *([fill("likelihood.published").strip()] if name in PUBLISHED else []),
        " ".join(filter(None, (_verdict(models), _sooner(models)))),
        *_underfitted(name, models),
        *_longer(models),
        *_tried(models),
    ]
    if name == "omniglot":
        lines.append(fill("likelihood.omniglot").strip())
    if found["skipped"]:
        lines.append(f"Not measured: {', '.join(found['skipped'])}.")
    return "\n\n".join(lines) + "\n"


def _measured(models: dict[str, Any]) -> Iterator[list[str]]:
    """The cells of every model that was run."""
    for name, row in models.items():
        yield [filled(cell, {**row, "name": name}) for cell in RUNS.values()]


def _published(name: str) -> Iterator[list[str]]:
    """The numbers of the literature as cells of the same columns, with no more than is printed."""
    for model, (elbo, nll) in PUBLISHED.get(name, {}).items():
        mark = "*published, other images:*" if name == "omniglot" else "*published:*"
        told = [f"{mark} {model}", f"{elbo:.2f}", f"{nll:.2f}"]
        yield told + [NONE] * (len(RUNS) - len(told))


def _images(row: Found) -> int:
    """Rows that the first seed has seen."""
    return int(row.get("images", first_steps(row) * row["batch"]))


def _effective(sets: dict[str, Found]) -> str:
    """The fewest effective draws of the encoding edge, and the data set."""
    fewest = {
        one["source"]: mean(one["models"][ENCODING]["effective"])
        for one in sets.values()
        if ENCODING in one["models"]
    }
    if not fewest:
        return ""
    return f" ({fewest[least(fewest)]:.1f} of the encoding edge on {least(fewest)})"


def _seconds_per_seed(row: Found) -> float:
    return float(row["train_seconds"] / len(row["elbo"]))


def weighted_rows(part: Found) -> int:
    """The number of test rows whose NLL was estimated; the others have their -ELBO alone."""
    rows = part["rows"][2]
    return len(range(0, rows, stride(rows)))


def best_models(models: dict[str, Any]) -> tuple[str | None, str | None]:
    """Our best model by NLL and the best baseline, of those with the same seconds."""
    nll = {n: mean(row["nll"]) for n, row in models.items() if not n.endswith(LONGER)}
    ours = {name: value for name, value in nll.items() if name.startswith("VFG")}
    others = {name: value for name, value in nll.items() if name not in ours}
    return least(ours) if ours else None, least(others) if others else None


def _gain(models: dict[str, Any], before: str, after: str) -> list[float]:
    """By how much -ELBO and NLL of one model are below those of another."""
    return [mean(models[before][what]) - mean(models[after][what]) for what in MEASURES]


def _verdict(models: dict[str, Any]) -> str:
    """Our best model against the best baseline."""
    ours, other = best_models(models)
    if not ours or not other:
        return ""
    elbo, nll = (apart(gain) for gain in _gain(models, other, ours))
    return f"*{ours}* is {elbo} the best baseline by NLL, *{other}*, in -ELBO and {nll} it in NLL."


def _sooner(models: dict[str, Any]) -> str:
    """Whether our best model is ahead after as many steps as each baseline had, by first seeds."""
    ours, _ = best_models(models)
    others = [n for n, row in models.items() if not n.startswith("VFG") and "validation" in row]
    if ours is None or not others:
        return ""
    behind = [name for name in others if not _is_sooner(models[ours], models[name])]
    but = f" but {', '.join(behind)}" if behind else ""
    return fill("likelihood.sooner", but=but).strip()


def _is_sooner(ours: Found, other: Found) -> bool:
    curve = zip(checked_steps(ours), ours["validation"], strict=True)
    reached = [bound for steps, bound in curve if steps <= checked_steps(other)[-1]]
    return bool(min(reached, default=math.inf) < min(other["validation"]))


def _underfitted(name: str, models: dict[str, Any]) -> Iterator[str]:
    """A note where no baseline of our size is better on training rows than on test rows."""
    others = {n.removesuffix(SAME_SIZE): row for n, row in models.items() if n.endswith(SAME_SIZE)}
    if not others or any(mean(row["train"]) < mean(row["elbo"]) for row in others.values()):
        return
    shown = [
        f"{other} {mean(row['train']):.1f} and {mean(row['elbo']):.1f}"
        for other, row in others.items()
    ]
    rates = {_rate(how) for row in others.values() for how in row["rates"]}
    chosen = {_rate(min(row["rates"], key=row["rates"].__getitem__)) for row in others.values()}
    tried = f"The highest rate tried, {max(rates):g}, was the best for each. "
    published = PUBLISHED.get(name, {}).get("orthogonal Sylvester")
    yield fill(
        "likelihood.underfitted",
        shown="; ".join(shown),
        tried=tried if chosen == {max(rates)} else "",
        published=f" Published orthogonal Sylvester flows have an NLL of {published[1]:.2f}."
        if published
        else "",
    ).strip()


def _rate(settings: str) -> float:
    """The learning rate of settings such as `0.001, dropout 0.1`."""
    return float(settings.partition(",")[0])


def _longer(models: dict[str, Any]) -> Iterator[str]:
    """What the models with more steps reach, without a comparison."""
    for name, row in models.items():
        if name.endswith(LONGER):
            yield fill(
                "likelihood.longer",
                name=name,
                steps=row["steps"],
                usual_steps=models[name.removesuffix(LONGER)]["steps"],
                seeds=plural(len(row["elbo"]), "seed"),
                elbo=spread(row["elbo"]),
                nll=spread(row["nll"]),
                shared=fill("likelihood.shared", **row).strip() if row["together"] > 1 else "",
            ).strip()


def _tried(models: dict[str, Any]) -> Iterator[str]:
    """The settings of the models that were trained with several, with their validation bounds."""
    lines = [
        [name, "; ".join(f"{how}: {bound:.2f}" for how, bound in row["rates"].items())]
        for name, row in models.items()
        if len(row.get("rates", {})) > 1
    ]
    if lines:
        yield fill("likelihood.tried").strip()
        yield rows(["model", "learning rate and dropout: -ELBO of validation rows"], lines)


def _arithmetic(name: str, found: Found) -> str:
    """Which bookkeeping comes near to the printed number."""
    row = found["surrogate"].get("0.1")
    if row is None or name not in PUBLISHED:
        return ""
    printed, nll = PUBLISHED[name]["VFG (the paper's claim)"]
    each = 0.1 * 196 * math.log(2.0)
    without = mean(row["reconstruction"]) + 0.1 * mean(row["distances"])
    count = min(range(TERMS + 1), key=lambda k: abs(without + k * each - printed))
    said = "below even that, so it counts none of them"
    if count:
        said = (
            f"nearest with {count} of them ({without + count * each:.1f}): what is counted decides"
        )
    return fill(
        "likelihood.arithmetic",
        source=found["source"],
        terms=TERMS,
        sums=(without + TERMS * each, without),
        printed=(printed, nll),
        said=said,
    ).strip()


def likelihood_lines(found: Found) -> str:
    """A line per set of images on which a VFG and a baseline were measured."""
    return "\n".join(
        _likelihood_line(name, part)
        for name, part in found["data"].items()
        if name in TITLES and None not in best_models(part["models"])
    )


def _likelihood_line(name: str, part: Found) -> str:
    models = part["models"]
    ours, other = best_models(models)
    again = []
    for beta, row in part["surrogate"].items():
        fields = {key: mean(row[key]) for key in ("sum", "reconstruction", "constants")}
        again.append(fill("opening.surrogate", beta=beta, **fields).strip())
    return fill(
        "opening.likelihood",
        title=TITLES[name],
        printed=PUBLISHED[name],
        again="; ".join(again) or NONE,
        honest="; ".join(
            f"{model} {mean(models[model]['elbo']):.2f} / {mean(models[model]['nll']):.2f}"
            for model in (ours, other)
        ),
        apart=apart(_gain(models, other, ours)[1]),
        other=other,
        note=" Omniglot here is not the file of the literature." if name == "omniglot" else "",
    ).strip()


def likelihood_benchmark(found: Found) -> str:
    """Bounds and likelihoods by model, what options bring, and the surrogate's parts."""
    models = {
        name: {**row, **{key: [row[key]] for key in (*MEASURES, "train")}}
        for name, row in found["models"].items()
    }
    ours, vae = best_models(models)
    verdict = f"The best by NLL is *{ours}*."
    if vae:
        elbo, nll = (apart(gain) for gain in _gain(models, vae, ours))
        verdict = f"The best by NLL, *{ours}*, is {elbo} the {vae} in -ELBO and {nll} it in NLL."
    gains = [
        [option, before, *(f"{-gain:+.2f}" for gain in _gain(models, before, after))]
        for option, (before, after) in OPTIONS.items()
        if {before, after} <= set(models) and models[before]["steps"] == models[after]["steps"]
    ]
    header = ["option", "added to", "change of -ELBO", "change of NLL"]
    return fill(
        "likelihood_benchmark",
        **{**found, "data": _capital(found["data"])},
        title=", short budget" if vae and models[vae]["elbo"][0] > GOOD_VAE else "",
        table=table(MODELS, [{**row, "name": name} for name, row in models.items()]),
        verdict=verdict,
        gains=fill("likelihood_benchmark.gains", table=rows(header, gains)) if gains else "",
        parts=rows(
            ["part of the surrogate", "nats"],
            [[name, f"{value:.2f}"] for name, value in found["surrogate"].items()],
        ),
    )


VARIANTS = {
    "change": "{name}",
    "-ELBO": "{elbo:.2f}",
    "NLL": "{nll:.2f}",
    "-ELBO, training rows": "{train:.2f}",
    "change of -ELBO": "{by_elbo:+.2f}",
    "change of NLL": "{by_nll:+.2f}",
    "million parameters": lambda row: f"{row['parameters'] / 1e6:.2f}",
}


def image_ablation(found: Found) -> str:
    """What single changes of the encoding edge bring in short runs."""
    variants = found["variants"]
    chosen = variants["as chosen"]
    records = [
        {**row, "name": name, **{f"by_{what}": row[what] - chosen[what] for what in MEASURES}}
        for name, row in variants.items()
    ]
    fields: dict[str, Any] = {"data": _capital(found["data"]), "steps": chosen["steps"]}
    fields["missing"] = "".join(f"{name}, " for name in ALL_VARIANTS if name not in variants)
    return fill("image_ablation", **{**found, **fields}, table=table(VARIANTS, records))


STAGES = {
    "run": "{run}",
    "stage": "{stage}",
    **{name: VARIANTS[name] for name in ("-ELBO", "NLL", "-ELBO, training rows")},
    "change of -ELBO": "{by_elbo}",
    "change of NLL": "{by_nll}",
    "million parameters": VARIANTS["million parameters"],
    "steps": "{steps:,}",
    "seconds": "{seconds:.0f}",
}


def image_finishing(found: Found) -> str:
    """What stages at the end of longer runs of the encoding edge bring."""
    runs, earlier = found["runs"], found["earlier"]
    curve = earlier["validation"]
    beside = [f"*{name}*" for name, run in runs.items() if run["together"] > 1]
    return fill(
        "image_finishing",
        **{**found, "data": _capital(found["data"])},
        table=table(STAGES, [row for name, run in runs.items() for row in _stages(name, run)]),
        beside=" and ".join(beside),
        old={key: mean(value) for key, value in earlier.items() if key in (*MEASURES, "train")},
        best=min(curve),
        last=curve[-1],
        at=curve.index(min(curve)) + 1,
        epochs=len(curve),
    )


def _stages(name: str, run: Found) -> Iterator[dict[str, Any]]:
    """The stages of a run, with what each changes."""
    before: Found | None = None
    for row in run["stages"]:
        changes = {
            f"by_{what}": NONE if before is None else f"{row[what] - before[what]:+.2f}"
            for what in MEASURES
        }
        yield {**row, "run": name, **changes}
        before = row


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


ASKED = {
    "model": "{name}",
    "half: bound": lambda row: spread(row["half, conditional"]),
    "half: by draws of q": lambda row: spread(row["half, bound"]),
    "half: NLL": lambda row: spread(row["half, nll"]),
    "block: bound": lambda row: spread(row["block, conditional"]),
    "block: by draws of q": lambda row: spread(row["block, bound"]),
    "block: NLL": lambda row: spread(row["block, nll"]),
    "-ELBO of whole images": lambda row: (
        NONE if row["name"] == "regressor" else spread(row["whole"])
    ),
    "million parameters": lambda row: f"{row['parameters'] / 1e6:.2f}",
    "steps": "{steps:,}",
    "seeds": lambda row: str(len(row["seeds"])),
}


def conditional_images(found: Found) -> str:
    """What a part of an image says about the rest."""
    models = found["models"]
    ours = models["VFG"]
    keys = {column: f"{kind}, {what}" for column, kind, what in COMPARED}
    body = [
        [name, *(change(ours[key], models[name][key]) for key in keys.values())]
        for name in models
        if name not in ("VFG", "regressor")
    ]
    records = [{**row, "name": name} for name, row in models.items()]
    changes = rows(["VFG against", *keys], body)
    vae, alike = models["masked VAE"], models["masked VAE, hidden part too"]
    return fill(
        "conditional_images",
        **found,
        table=table(ASKED, records),
        changes=changes,
        smaller=vae["parameters"] / ours["parameters"],
        whole=mean(vae["whole"]) - mean(ours["whole"]),
        half=change(ours[keys["half: bound"]], alike[keys["half: bound"]]),
        block=change(ours[keys["block: bound"]], alike[keys["block: bound"]]),
    )


def change(ours: list[float], other: list[float]) -> str:
    """By how many per cent the mean of one is below or above that of another."""
    share = 100.0 * (1.0 - mean(ours) / mean(other))
    return f"{abs(share):.1f} % {'less' if share > 0 else 'more'}"


def representation(found: Found) -> str:
    models = found["models"]
    body = [
        [name, *(_probe(row, what) for what in PROBES), _million(row)]
        for name, row in models.items()
    ]
    behind = _behind(models, VFG, FLOW)
    paper = next((name for name in models if "paper" in name), None)
    lost = _behind(models, paper, FLOW) if paper else []
    share = 100.0 * mean(models[VFG]["nearest"])
    return fill(
        "representation",
        **{**found, "seeds": len(found["seeds"])},
        table=rows(["embedding", *PROBES.values(), "million parameters"], body),
        where=f"but on {', '.join(behind)}" if behind else "on all four measures",
        share=share,
        goal="above" if share > 97.0 else "below",
        lost=f" *{paper}* is behind the flow by {', '.join(lost)}." if lost else "",
        neighbourhoods=_neighbourhoods(),
    )


def _neighbourhoods() -> str:
    """The picture of embeddings, and how good the models are that it shows."""
    file = FOLDER / "representation_picture.json"
    if not file.is_file():
        return fill("representation.no_tsne")
    drawn = json.loads(file.read_text())
    shares = [
        f"{100.0 * row['nearest'][0]:.1f} % ({name})"
        for name, row in drawn["models"].items()
        if name != "pixels"
    ]
    return fill("representation.tsne", **drawn, nearest=", ".join(shares))


def _probe(row: dict[str, list[float]], what: str) -> str:
    if what not in row:
        return ""
    factor, digits = (1.0, 3) if what == "silhouette" else (100.0, 2)
    return spread([factor * value for value in row[what]], digits)


def _million(row: dict[str, list[float]]) -> str:
    return f"{row['parameters'][0] / 1e6:.2f}" if "parameters" in row else ""


def representation_line(found: Found) -> str:
    """What can be read from the embeddings."""
    models = found["models"]
    paper = next((name for name in models if "paper" in name), None)
    flow = next(name for name in models if "flow" in name)
    ours = [name for name in models if name.startswith("VFG") and name != paper]
    best = max(ours or [paper], key=lambda name: mean(models[name]["nearest"]))
    ahead = mean(models[best]["nearest"]) > mean(models[flow]["nearest"])
    lost = _behind(models, paper or best, flow)
    shown = {
        name: f"{name} "
        + " / ".join(f"{100 * mean(models[name][what]):.1f} %" for what in ("nearest", "linear"))
        for name in (paper or best, flow, best)
    }
    return fill(
        "opening.representation",
        paper=shown[paper or best],
        flow=shown[flow],
        best=shown[best],
        confirmed="Confirmed" if ahead else "Not confirmed",
        lost=f" The paper's model is behind the flow by {', '.join(lost)}." if lost else "",
    )


def _behind(models: dict[str, Any], name: str, other: str) -> list[str]:
    """The measures by which one embedding is not ahead of another."""
    return [
        title.removesuffix(", %")
        for what, title in PROBES.items()
        if mean(models[name][what]) <= mean(models[other][what])
    ]
