r"""What one part of an image says about another: a VFG, a VAE and a regressor, on hidden blocks.

Four blocks of static binarized MNIST are hidden in training, alike for all: in every other row each
block is kept with a probability between 0.3 and 1. Then halves are asked given the other halves,
and every block given the other three. The VFG has one leaf, whose blocks `vfg.Masking(groups=)`
hides; masked steps count the hidden blocks by `Masking(conditional=)`, and those of a second VFG
the bound of the visible ones alone. The VAE has the same networks as those of
`experiments.paper.likelihood` and an encoder that sees hidden pixels as grey. It is trained in both
ways, too. The regressor, a masked autoencoder, has the same encoder and decoder without latent
noise, is trained on hidden pixels alone and predicts them one by one. All have the same seconds or
steps, rows, optimiser and batches.

The prediction of hidden pixels is the density that draws of q given the visible part give,
$\int q(h | visible) p(hidden | h) dh$. `conditional` bounds its negative logarithm by draws from q
given the whole image, with weights (`log_likelihood(given=)`); `bound` by the mean over draws from
q given the visible part, which is looser. `weighted` is -log of the mean of the same draws with
importance weights for the visible part, as `infer(importance=)` has them. `nll` is the difference
of the importance-weighted -log p(visible and hidden) and -log p(visible). For the regressor all are
its cross-entropy.

    python -m experiments.benchmarks.conditional_images              on a GPU, 8 minutes
    python -m experiments.benchmarks.conditional_images --draw       the picture of the last run
    python -m experiments.benchmarks.conditional_images --quick      small digits on a CPU
    python -m experiments.benchmarks.conditional_images --merge A B  results of these folders
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vfg
from vfg.sampling import draw_states, log_likelihoods, log_weights
from vfg.sampling.noise import counted_noise

from ..baselines.images import FlowAutoencoder, explain
from ..paper.image_models import Bounded, encoding
from ..paper.image_training import DEVICE, Budget, count, train
from ..paper.images import Images, binary
from ..results import TRIALS, arguments, positive, subplots

KEEP = (0.3, 1.0)
GREY = 0.5
SHOWN, EACH = 6, 3
"""Images in the picture, and draws of each."""
ROWS = 1000
"""Test rows whose parts are asked."""
MEASURES = ("conditional", "bound", "weighted", "nll")
OURS = "VFG"
WEIGHT = 1.0
"""Of the bound of hidden parts in masked steps. In one run of 5,840 steps draws predict halves
better than with 0.25 (bound 40.5 against 43.3), which keeps NLL lower (34.7 against 36.6)."""


def blocks(side: int) -> list[list[int]]:
    """The pixels of the four blocks: left and right above, left and right below."""
    graph = vfg.Graph.blocks(side, side, rows=2, columns=2, arity=4)
    return [[int(pixel) for pixel in graph.node(leaf).columns or ()] for leaf in graph.leaves]


def questions(side: int) -> dict[str, Tensor]:
    """What is hidden, `(pixels,)`, by name; the names of averages before the colon."""
    hidden = {
        "half: left": (0, 2), "half: right": (1, 3), "half: top": (0, 1), "half: bottom": (2, 3),
        **{f"block: {k}": (k,) for k in range(4)},
    }  # fmt: skip
    parts, masks = blocks(side), {}
    for name, chosen in hidden.items():
        masks[name] = torch.zeros(side * side, dtype=torch.bool, device=DEVICE)
        for k in chosen:
            masks[name][parts[k]] = True
    return masks


class _Masked(FlowAutoencoder):
    """What both baselines share: which pixels of a batch are visible."""

    def __init__(self, side: int, **sizes: int) -> None:
        super().__init__("VAE", side=side, **sizes)
        of_pixel = torch.zeros(side * side, dtype=torch.long)
        for k, part in enumerate(blocks(side)):
            of_pixel[part] = k
        self.register_buffer("block_of_pixel", of_pixel)

    block_of_pixel: Tensor

    def draw_visible(self, rows: Tensor, whole: float) -> Tensor:
        """Visible pixels as `vfg.Masking` draws them; all in a share of the rows."""
        low, high = KEEP
        share = low + (high - low) * torch.rand(len(rows), 1, device=rows.device)
        share = torch.where(torch.rand_like(share) < whole, 1.0, share)
        kept = torch.rand(len(rows), 4, device=rows.device) < share
        return kept.index_select(1, self.block_of_pixel)


class MaskedVAE(_Masked):
    """A VAE whose encoder sees hidden pixels as grey, trained on the bound of visible ones.

    With `conditional`, on the bound of all pixels and so many times that of hidden ones given the
    visible ones, as `vfg.Masking` does.
    """

    def __init__(self, side: int, conditional: float = 0.0, **sizes: int) -> None:
        super().__init__(side, **sizes)
        self.conditional = conditional

    def objective(self, rows: Tensor, beta: Tensor) -> Tensor:
        rows, seen = rows.bernoulli(), self.draw_visible(rows, 0.5)
        if self.conditional:
            explained, hidden, divergence, apart = self.whole_parts(rows, seen, 1)
            total = explained - beta * divergence + self.conditional * (hidden - beta * apart)
            return total.mean()
        explained, divergence = self.seen_parts(rows, seen, 1)
        return (explained - beta * divergence).mean()

    def seen_parts(self, rows: Tensor, seen: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        """log p(visible | z) and log q(z) - log p(z), `(draws, rows)`."""
        logits, divergence = self.logits(torch.where(seen, rows, GREY), draws)
        return (_each(logits, rows) * seen).sum(-1), divergence

    def whole_parts(
        self, rows: Tensor, seen: Tensor, draws: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """log p(all | z), log p(hidden | z), log q(z | all) - log p(z) or - log q(z | visible).

        For draws z from q given all pixels, `(draws, rows)` each.
        """
        (centre, log_scale), part = self._normal(rows), self._normal(torch.where(seen, rows, GREY))
        noise = torch.randn(draws, *centre.shape, device=rows.device)
        state = centre + log_scale.exp() * noise
        with self._half(rows):
            logits = self.decoder(state.flatten(0, 1))
        each = _each(logits.float().view(draws, *rows.shape), rows)
        own = 0.5 * noise.square() + log_scale
        other = 0.5 * ((state - part[0]) * (-part[1]).exp()).square() + part[1]
        divergence, apart = (0.5 * state.square() - own).sum(-1), (other - own).sum(-1)
        return each.sum(-1), (each * ~seen).sum(-1), divergence, apart

    def _normal(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Centre and logarithm of the scale of q, as `logits` has them."""
        with self._half(rows):
            features = self.encoder(rows)
        centre, raw = self.normal(features.float()).chunk(2, -1)
        return centre, 6.0 * torch.tanh(raw / 6.0)


class MaskedRegressor(_Masked):
    """Pixels that are hidden from those that are not, one by one."""

    def objective(self, rows: Tensor, beta: Tensor) -> Tensor:
        rows, seen = rows.bernoulli(), self.draw_visible(rows, 0.0)
        return (_each(self.predict(rows, seen), rows) * ~seen).sum(-1).mean()

    def predict(self, rows: Tensor, seen: Tensor) -> Tensor:
        """Log-odds of all pixels, `(rows, pixels)`."""
        with self._half(rows):
            features = self.encoder(torch.where(seen, rows, GREY))
            logits = self.decoder(self.normal(features).chunk(2, -1)[0])
        return logits.float()

    @torch.no_grad()
    def bound(self, rows: Tensor, samples: int = 1) -> Tensor:
        """Log-probability of hidden halves, to choose among its states."""
        seen = ~questions(round(rows.shape[1] ** 0.5))["half: right"].expand_as(rows)
        return (_each(self.predict(rows, seen), rows) * ~seen).sum(-1)


def _each(logits: Tensor, rows: Tensor) -> Tensor:
    """log p of every pixel given its log-odds."""
    return explain(logits[..., None], rows[..., None])


@torch.no_grad()
def ask_vfg(model: Bounded, rows: Tensor, hidden: Tensor, draws: int) -> dict[str, Tensor]:
    """Bound and NLL of the hidden part given the other, per row, and its expected pixels."""
    own, seen = model.model, ~hidden.expand_as(rows)
    parts = []
    for chunk in torch.arange(len(rows), device=rows.device).split(100):
        noise = counted_noise(own.passing.schedule, chunk, torch.arange(draws), seed=1)
        x, visible = rows[chunk], seen[chunk]
        drawn = draw_states(own, x, visible, None, {}, noise, draws)
        scores = log_likelihoods(own, drawn, x, ~visible)
        score = torch.stack([part.sum(0) for part in scores.values()]).sum(0)
        parts.append(_predict(score, log_weights(own, drawn, x, visible)))
    whole, given = (own.log_likelihood(rows, samples=draws, observed=o) for o in (None, seen))
    conditional = -own.log_likelihood(rows, samples=draws, given=seen)
    bound, weighted = torch.cat(parts, dim=1)
    return dict(zip(MEASURES, (conditional, bound, weighted, given - whole), strict=True))


@torch.no_grad()
def ask_vae(model: MaskedVAE, rows: Tensor, hidden: Tensor, draws: int) -> dict[str, Tensor]:
    """The same of the VAE."""
    seen, parts = ~hidden.expand_as(rows), []
    for x, visible in zip(rows.split(20), seen.split(20), strict=True):
        logits, divergence = model.logits(torch.where(visible, x, GREY), draws)
        each = _each(logits, x)
        weights = (each * visible).sum(-1) - divergence
        predicted = _predict((each * ~visible).sum(-1), weights)
        explained, unseen, divergence, apart = model.whole_parts(x, visible, draws)
        whole, conditional = _log_mean(explained - divergence), -_log_mean(unseen - apart)
        parts.append(torch.stack([conditional, *predicted, _log_mean(weights) - whole]))
    return dict(zip(MEASURES, torch.cat(parts, dim=1), strict=True))


@torch.no_grad()
def ask_regressor(
    model: MaskedRegressor, rows: Tensor, hidden: Tensor, draws: int
) -> dict[str, Tensor]:
    """The cross-entropy of the hidden part, for each measure."""
    seen = ~hidden.expand_as(rows)
    loss = -(_each(model.predict(rows, seen), rows) * ~seen).sum(-1)
    return dict.fromkeys(MEASURES, loss)


def _predict(scores: Tensor, weights: Tensor) -> Tensor:
    """-log of the mean of exp(scores) over draws, without and with weights, `(2, rows)`."""
    weights = weights.double()
    weighted = (weights + scores).logsumexp(0) - weights.logsumexp(0)
    return -torch.stack([_log_mean(scores), weighted])


def _log_mean(values: Tensor) -> Tensor:
    return values.double().logsumexp(0) - np.log(len(values))


@torch.no_grad()
def fill_in(name: str, model: Any, rows: Tensor, hidden: Tensor) -> Tensor:
    """Some draws of probabilities of all pixels, `(draws, rows, pixels)`; one of the regressor."""
    seen = ~hidden.expand_as(rows)
    if name.startswith(OURS):
        ids = torch.arange(len(rows), device=rows.device)
        noise = counted_noise(model.model.passing.schedule, ids, torch.arange(EACH), seed=2)
        drawn = draw_states(model.model, rows, seen, None, {}, noise, EACH)
        leaf = model.model._blocks_of(model.model.likelihoods)[0]
        return (
            model.model.likelihood_at(leaf)
            .mean(drawn.states[leaf].flatten(1, 2))
            .view(EACH, *rows.shape)
        )
    if name == "regressor":
        return model.predict(rows, seen).sigmoid()[None]
    torch.manual_seed(2)
    return model.logits(torch.where(seen, rows, GREY), EACH)[0].sigmoid()


Ask = Callable[..., dict[str, Tensor]]


def model_makers(side: int, weight: float) -> dict[str, tuple[Callable[[int], Any], Ask]]:
    """What makes the models by name, given a seed, with what asks them."""
    sizes = {} if side == 28 else {"width": 16, "channels": 8, "features": 64}

    def ours(conditional: float) -> Callable[[int], Any]:
        groups = tuple(map(tuple, blocks(side)))
        masking = vfg.Masking(rate=0.5, keep=KEEP, groups=groups, conditional=conditional)
        options = {"input_dropout": 0.0, "masking": masking}
        return lambda seed: encoding(side, 64 if side == 28 else 8, seed, **options)

    def other(make: Callable[..., Any], **options: Any) -> Callable[[int], Any]:
        def build(seed: int) -> Any:
            torch.manual_seed(seed)
            return make(side, **sizes, **options)

        return build

    return {
        OURS: (ours(weight), ask_vfg),
        "VFG, weight 0.25": (ours(0.25), ask_vfg),
        "VFG, visible part only": (ours(0.0), ask_vfg),
        "masked VAE": (other(MaskedVAE), ask_vae),
        "masked VAE, hidden part too": (other(MaskedVAE, conditional=weight), ask_vae),
        "masked VAE, weight 0.25": (other(MaskedVAE, conditional=0.25), ask_vae),
        "regressor": (other(MaskedRegressor), ask_regressor),
    }


def measure(
    images: Images, budget: Budget, draws: int, names: Sequence[str] | None, weight: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Models by name, trained and asked; and the pixels of the picture."""
    rows = images.test[:: max(1, len(images.test) // ROWS)]
    masks, shown = questions(images.side), rows[:: max(1, len(rows) // SHOWN)][:SHOWN]
    hidden = masks["half: right"]
    found, pixels = {}, {"truth": shown, "visible": torch.where(hidden, GREY, shown)}
    for name, (make, ask) in model_makers(images.side, weight).items():
        if names and name not in names:
            continue
        model = make(budget.seed)
        run = train([model], images.train, images.valid, budget)
        about = {"parameters": count(model), "steps": run.steps, "train_seconds": [run.seconds]}
        about["whole"] = [-model.bound(rows, 8).mean().item()]
        answers = {q: ask(model, rows, mask, draws) for q, mask in masks.items()}
        for kind in ("half", "block"):
            for what in MEASURES:
                parts = [answers[q][what] for q in answers if q.startswith(kind)]
                about[f"{kind}, {what}"] = [torch.stack(parts).mean().item()]
        found[name] = about | {"seeds": [budget.seed]}
        print(name, found[name], flush=True)
        for k, one in enumerate(fill_in(name, model, shown, hidden)):
            pixels[f"{name} {k + 1}"] = torch.where(hidden, one, shown)
    return found, {name: part.cpu().numpy() for name, part in pixels.items()}


def merge(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Results of several runs as one, with the seeds of a model side by side."""
    models: dict[str, Any] = {}
    for run in sorted(runs, key=lambda run: run["seeds"]):
        for name, row in run["models"].items():
            before = models.get(name, {})
            models[name] = row | {
                key: before.get(key, []) + value
                for key, value in row.items()
                if isinstance(value, list)
            }
    order = [name for name in model_makers(28, 1.0) if name in models]
    seeds = sorted({seed for row in models.values() for seed in row["seeds"]})
    together = {"seconds": round(sum(run["seconds"] for run in runs), 1), "seeds": seeds}
    if len(runs) > 1:
        draws = runs[0]["draws"]
        together["command"] = f"python -m {__spec__.name} --draws {draws}"
    return runs[0] | together | {"models": {name: models[name] for name in order}}


def draw(file: Path) -> Any:
    """The picture: a row per method, a column per image."""
    with np.load(file) as stored:
        pixels = {name: stored[name] for name in stored.files}
    figure, axes = subplots(len(pixels), SHOWN, figsize=(SHOWN, len(pixels)), squeeze=False)
    for line, (name, images) in zip(axes, pixels.items(), strict=True):
        side = round(images.shape[1] ** 0.5)
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image.reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return figure


def main() -> None:
    given = arguments(
        __doc__,
        seconds={"type": float, "default": 30.0, "help": "of training per model"},
        steps={"type": positive, "help": "of training per model, in place of seconds"},
        draws={"type": int, "default": 500, "help": "per row"},
        models={"nargs": "*", "help": "names of models; all by default"},
        weight={"type": float, "default": WEIGHT, "help": "of hidden parts in masked steps"},
        first_seed={"type": int, "default": 0},
        merge={"nargs": "*", "type": Path, "help": "folders of runs, put together into one file"},
        draw={"action": "store_true", "help": "only the picture of the last run"},
    )
    file = (given.output or TRIALS) / "conditional_images.npz"
    if given.draw:
        given.save(draw(file), "conditional_images")
        return
    if given.merge:
        found = [json.loads((one / "conditional_images.json").read_text()) for one in given.merge]
        print(given.write("conditional_images", merge(found)))
        return
    images = binary("digits" if given.quick else "mnist")
    steps, batch = (given.steps or 60, 64) if given.quick else (given.steps, 256)
    first, draws = given.first_seed, 20 if given.quick else given.draws
    runs = []
    for seed in range(first, first + (given.seeds or 1)):
        budget = Budget(given.seconds, steps, batch, seed=seed)
        found, pixels = measure(images, budget, draws, given.models, given.weight)
        about = {"seconds": 0.0, "seeds": [seed], "models": found}
        runs.append(about | {"data": images.source, "rows": ROWS, "draws": draws})
        if seed == first:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(file, **pixels)
        merged = merge(runs)
        spent = sum(sum(row["train_seconds"]) for row in merged["models"].values())
        print(given.write("conditional_images", merged | {"seconds": round(spent, 1)}))


if __name__ == "__main__":
    main()
