"""The section of docs/results.md about the benchmark of likelihoods on a short budget."""

from __future__ import annotations

from typing import Any

from .pages import provenance, rows

Models = dict[str, dict[str, float]]
_MEASURES = ("elbo", "nll")
LADDER, FLOW = "VFG, tree, ladder", "VFG, tree, ladder, flow prior"
OPTIONS = {
    "wider conditioners, SiLU, dropout": ("VFG, the paper's tree", "VFG, tree"),
    "`Sampled(ladder=True)`": ("VFG, tree", LADDER),
    "`prior=Mixture(128)`": (LADDER, f"{LADDER}, mixture prior"),
    "`prior=Flowed(4, 288)`": (LADDER, FLOW),
    "`Coupling(image=...)`": (FLOW, f"{FLOW}, convolutions"),
    "`Sampled(amortised=...)`": (f"{LADDER}, scales not amortised", LADDER),
}
"""The models without and with an option."""
GOOD_RIVAL = 88.0
"""A VAE whose -ELBO is above this had too little training to speak for VAEs."""

BENCHMARK = """## The sampled models on one seed{title}

{data}, in nats per image. Every model had the same rows and optimiser and {budget}, and the state
with the best bound on the validation rows is the one shown. -ELBO is `model.bound`, a bound that
holds; NLL is `model.log_likelihood` with {draws} importance samples.
Published for convolutional models trained in full on static binarized MNIST: VAE 86.55 / 82.14,
orthogonal Sylvester flows 83.32 / 80.22.

{table}

{verdict}
{gains}
The paper's deterministic states have no q, so its objective is a surrogate and **not** a bound. Its
parts on the same test rows, β included, for the paper's tree trained on it:

{parts}
"""


def likelihood_benchmark(found: dict[str, Any]) -> str:
    """Bounds and likelihoods by model, and the surrogate's parts."""
    models = found["models"]
    body = [
        [
            name,
            f"{model['elbo']:.2f}",
            f"{model['nll']:.2f}",
            f"{model['train']:.2f}",
            f"{model['parameters'] / 1e6:.2f}",
            f"{model['steps']:,.0f}",
        ]
        for name, model in models.items()
    ]
    header = ["model", "-ELBO", "NLL", "-ELBO, training rows", "million parameters", "steps"]
    parts = [[name, f"{value:.2f}"] for name, value in found["surrogate"].items()]
    vae = _rival(models)
    short = vae is not None and vae["elbo"] > GOOD_RIVAL
    text = BENCHMARK.format(
        title=", short budget" if short else "",
        data=found["data"][0].upper() + found["data"][1:],
        budget=found["budget"],
        draws=found["draws"],
        table=rows(header, body),
        verdict=_verdict(models),
        gains=_gains(models),
        parts=rows(["part of the surrogate", "nats"], parts),
    )
    return text + "\n" + provenance(found)


def _gains(models: Models) -> str:
    """What each option brings, alone, between models of equally many steps."""
    body = [
        [option, without, *(f"{models[with_][k] - models[without][k]:+.2f}" for k in _MEASURES)]
        for option, (without, with_) in OPTIONS.items()
        if {without, with_} <= set(models) and models[without]["steps"] == models[with_]["steps"]
    ]
    if not body:
        return ""
    header = ["option", "added to", "change of -ELBO", "change of NLL"]
    title = "What each option of sampled states changes by itself; less is better:"
    return f"\n{title}\n\n{rows(header, body)}\n"


def _rival(models: Models) -> dict[str, float] | None:
    """The VAE, the better one of several by NLL."""
    found = [model for name, model in models.items() if name.startswith("VAE")]
    return min(found, key=lambda model: model["nll"]) if found else None


def _verdict(models: Models) -> str:
    """Who is ahead of the VAE, and by how much."""
    ours = {name: model for name, model in models.items() if not name.startswith("VAE")}
    best = min(ours, key=lambda name: ours[name]["nll"])
    vae = _rival(models)
    if vae is None:
        return f"The best by NLL is *{best}*."
    ahead = {what: vae[what] - ours[best][what] for what in ("elbo", "nll")}
    return (
        f"The best by NLL, *{best}*, is {_apart(ahead['elbo'])} the better VAE in -ELBO and "
        f"{_apart(ahead['nll'])} it in NLL."
    )


def _apart(ahead: float) -> str:
    return f"{abs(ahead):.2f} nats {'ahead of' if ahead > 0 else 'behind'}"
