"""The baselines of the image experiments and their training, against independent answers."""

import json
import math
from argparse import Namespace

import pytest
import torch
from strategies import perturbed

from experiments.baselines.images import POSTERIORS, FlowAutoencoder, HierarchicalAutoencoder
from experiments.benchmarks import conditional_images
from experiments.cells import Cells
from experiments.paper import likelihood
from experiments.paper.image_models import encoding, papers, papers_sampled, residual
from experiments.paper.image_training import Budget, Part, Trained, count, train
from experiments.paper.probes import linear_accuracy, nearest_accuracy, prior_accuracy
from experiments.results import FOLDER
from vfg.training.data import choose_device


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def bent(name, width=4):
    """A posterior in double precision, away from its start."""
    torch.manual_seed(0)
    found = POSTERIORS[name](3, width, 2).double().eval()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(0.3 * draw(*parameter.shape, seed=1))
    return found


@pytest.mark.parametrize("name", POSTERIORS)
def test_log_determinants_are_those_of_the_jacobian(name):
    posterior, features, state = bent(name), draw(1, 3).double(), draw(1, 1, 4).double()
    jacobian = torch.autograd.functional.jacobian(
        lambda z: posterior(z.view(1, 1, 4), features)[0].flatten(), state.flatten()
    )
    expected = torch.linalg.slogdet(jacobian).logabsdet
    torch.testing.assert_close(posterior(state, features)[1][0, 0], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", POSTERIORS)
def test_rows_and_draws_are_bent_one_by_one(name):
    posterior, features, states = bent(name), draw(5, 3).double(), draw(2, 5, 4).double()
    together, log_det = posterior(states, features)
    alone, log_det_alone = posterior(states[1:, 3:4], features[3:4])
    torch.testing.assert_close(alone[0, 0], together[1, 3])
    torch.testing.assert_close(log_det_alone[0, 0], log_det[1, 3])


def test_frames_are_orthonormal():
    posterior = POSTERIORS["orthogonal Sylvester"](3, 6, 2, bottleneck=4).double().eval()
    frames = posterior.frames(draw(7, 3).double(), 6)
    unit = torch.eye(4, dtype=torch.float64).expand(7, 2, 4, 4)
    torch.testing.assert_close(frames.mT @ frames, unit, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", POSTERIORS)
def test_importance_weighting_of_one_draw_is_the_bound_and_more_draws_raise_it(name):
    torch.manual_seed(0)
    model = FlowAutoencoder(name, side=8, width=4, flows=2, channels=2, features=8).eval()
    rows = (draw(20, 64) > 0).float()
    torch.manual_seed(1)
    bound = model.bound(rows)
    torch.manual_seed(1)
    torch.testing.assert_close(model.log_likelihood(rows, 1).float(), bound)
    assert model.log_likelihood(rows, 200).mean() > model.bound(rows, 200).mean()


def test_the_bound_is_exact_where_the_image_does_not_depend_on_the_state():
    torch.manual_seed(0)
    model = FlowAutoencoder("VAE", side=8, width=4, channels=2, features=8).eval()
    with torch.no_grad():
        model.decoder.layers[-1].weight.zero_()
        model.decoder.layers[-1].bias.fill_(math.log(3.0))
        model.normal.weight.zero_()
        model.normal.bias.zero_()  # so q is the prior
    rows = (draw(5, 64) > 0).float()
    expected = (rows * math.log(0.75) + (1 - rows) * math.log(0.25)).sum(1)
    torch.testing.assert_close(model.bound(rows), expected)
    torch.testing.assert_close(model.log_likelihood(rows, 10).float(), expected)


def rows(count=64, seed=3):
    """Images that are mostly black on the left and mostly white on the right."""
    lean = torch.where(torch.arange(64) % 8 < 4, -1.0, 1.0)
    return (draw(count, 64, seed=seed) + lean > 0).float()


BUDGET = Budget(0.0, steps=40, batch=16, rate=1e-2)


KINDS = {
    "sampled": lambda seed: papers_sampled(8, 8, seed),
    "deterministic": lambda seed: papers(8, 0.1, 8, seed),
    "residual": lambda seed: residual(8, 4, seed),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_vfgs_of_several_seeds_are_trained_together_and_the_best_state_is_kept(kind):
    members = [KINDS[kind](seed) for seed in range(2)]
    valid = rows(20, seed=4)
    before = [member.bound(valid).mean() for member in members]
    run = train(members, rows(), valid, BUDGET)
    assert run.steps == 40
    assert run.captured
    assert len(run.histories) == 1
    losses = zip(*(epoch.members for epoch in run.histories[0]), strict=True)
    for member, old, own in zip(members, before, losses, strict=True):
        after = member.bound(valid).mean()
        assert after > old
        assert after.item() == pytest.approx(-64 * min(own), rel=1e-3)


def test_a_run_finishes_with_settings_of_its_own():
    shape = {"dropout": 0.1, "finish": {"share": 0.25, "samples": 2, "batch": 10, "warmup": 0}}
    member, valid = encoding(8, 2, seed=0, **shape), rows(20, seed=4)
    run = train([member], rows(), valid, BUDGET)
    ((first, last),) = run.runs
    assert (first.steps, last.steps) == (30, 10)
    assert (run.first_steps, run.images) == (40, 30 * BUDGET.batch + 10 * 10)
    weighted = member.log_likelihood(valid, 2).mean().item()
    best = min(epoch.validation for epoch in last.history)
    assert weighted == pytest.approx(-64 * best, rel=1e-3)


def test_baselines_are_trained_one_by_one_by_the_same_loop():
    members = []
    for seed in range(2):
        torch.manual_seed(seed)
        members.append(FlowAutoencoder("planar flow", side=8, width=4, channels=2, features=8))
    valid = rows(20, seed=4).to(choose_device(None))
    run = train(members, rows(), valid, BUDGET)
    assert [len(history) for history in run.histories] == [20, 20]
    assert run.setbacks == 0
    assert run.histories[0][-1].validation != run.histories[1][-1].validation
    assert all(history[-1].validation < history[0].validation for history in run.histories)
    assert count(members[0]) == sum(p.numel() for p in members[0].parameters())


def test_a_budget_of_seconds_is_shared_and_validated_often():
    options = Budget(30.0, batch=10).options(rows=5000, share=0.5)
    assert (options["budget"], options["steps"]) == (15.0, 2500)  # five passes over the rows
    assert Budget(30.0, batch=256).options(rows=5000)["steps"] == 100
    assert Budget(1.0, steps=7).options(rows=50)["epochs"] == 7


def test_models_survive_a_run_that_is_cut_off(tmp_path):
    cells = Cells(tmp_path / "cells.jsonl")
    cells.add({"data": "mnist", "model": "VFG, the paper's tree"}, {"nll": [1.0]})
    cells.add({"data": "mnist", "model": "IAF"}, {"error": "no luck"})
    again = Cells(tmp_path / "cells.jsonl")
    assert likelihood.finished(again, "mnist", "VFG, the paper's tree") == {"nll": [1.0]}
    assert likelihood.finished(again, "mnist", "IAF") is None
    assert likelihood.finished(again, "mnist", "VAE") is None
    again.add({"data": "mnist", "model": "IAF"}, {"nll": [2.0]})
    last = Cells(tmp_path / "cells.jsonl")
    assert likelihood.finished(last, "mnist", "IAF") == {"nll": [2.0]}


def test_results_say_what_is_missing_and_what_went_wrong(monkeypatch):
    monkeypatch.setattr(likelihood, "DEVICE", torch.device("cuda"))
    parts = Cells(None)
    about = {"captured": True, "alone": True, "train_seconds": 2.0, "test_seconds": 0.5}
    rows = {
        "data": {"source": "MNIST", "rows": [3, 2, 1], "seeds": [0]},
        "VAE": about | {"nll": [90.0]},
        "VFG": about | {"alone": False, "nll": [88.0]},
        "surrogate, beta 0.1": about | {"sum": [7.0]},
        "IAF": {"error": "illegal memory access"},
    }
    for model, row in rows.items():
        parts.add({"data": "mnist", "model": model}, row)
    found = likelihood.collected(["mnist", "caltech"], Namespace(draws=5), parts)
    assert found["seconds"] == 7.5
    assert found["note"] == (
        "Other work was on the GPU, so that fewer steps fitted into the seconds of mnist: VFG. "
        "An error ended mnist: IAF."
    )
    assert list(found["data"]) == ["mnist"]
    assert list(found["data"]["mnist"]["models"]) == ["VFG", "VAE"]
    assert list(found["data"]["mnist"]["surrogate"]) == ["0.1"]
    assert "IAF" in found["data"]["mnist"]["skipped"]


def test_probes_of_separable_rows_are_perfect_and_of_noise_are_not():
    labels = torch.arange(300) % 3
    means = 10.0 * torch.eye(3)
    rows = means[labels] + draw(300, 3)
    for probe in (nearest_accuracy, linear_accuracy):
        assert probe(rows[:200], labels[:200], rows[200:], labels[200:]) == 1.0
        assert probe(draw(200, 3), labels[:200], draw(100, 3, seed=1), labels[200:]) < 0.6
    assert prior_accuracy(rows, labels, means) == 1.0
    assert prior_accuracy(rows, labels, means.roll(1, 0)) == 0.0


def masked(kind):
    torch.manual_seed(0)
    model = kind(8, width=3, channels=2, features=6).eval()
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            parameter.add_(0.2 * draw(*parameter.shape, seed=seed))
    return model


def test_masked_baselines_see_nothing_of_hidden_pixels():
    rows, hidden = (draw(5, 64) > 0).float(), conditional_images.questions(8)["half: right"].cpu()
    other = torch.where(hidden, 1.0 - rows, rows)
    vae = masked(conditional_images.MaskedVAE)

    def parts(rows, seen):
        torch.manual_seed(1)
        return vae.seen_parts(rows, seen.expand_as(rows), 3)

    for one, two in zip(parts(rows, ~hidden), parts(other, ~hidden), strict=True):
        assert torch.equal(one, two)
    whole = parts(rows, hidden | ~hidden)
    torch.manual_seed(1)
    for one, two in zip(whole, vae.parts(rows, 3), strict=True):
        torch.testing.assert_close(one, two)
    regressor = masked(conditional_images.MaskedRegressor)
    found = [regressor.predict(x, ~hidden.expand_as(x)) for x in (rows, other)]
    assert torch.equal(*found)
    assert not torch.equal(found[0], regressor.predict(rows, torch.ones_like(rows) > 0))


def test_questions_hide_halves_and_quarters():
    masks = {name: mask.view(8, 8).cpu() for name, mask in conditional_images.questions(8).items()}
    assert masks["half: left"][:, :4].all()
    assert not masks["half: left"][:, 4:].any()
    assert torch.equal(masks["half: top"], ~masks["half: bottom"])
    quarters = [mask for name, mask in masks.items() if name.startswith("block")]
    assert torch.stack(quarters).sum(0).eq(1).all()
    assert [int(mask.sum()) for mask in quarters] == [16] * 4


def test_the_vae_is_asked_for_what_many_draws_of_its_prior_say():
    # A posterior that equals the prior makes all weights p(x | z), which plain averages check.
    vae = masked(conditional_images.MaskedVAE)
    with torch.no_grad():
        vae.normal.weight.zero_()
        vae.normal.bias.zero_()
    rows, hidden = (draw(4, 64) > 0).float(), conditional_images.questions(8)["block: 0"].cpu()
    torch.manual_seed(2)
    found = conditional_images.ask_vae(vae, rows, hidden, 20_000)
    z = draw(20_000, 3, seed=5)
    with torch.no_grad():
        logits = vae.decoder(z)
    each = torch.distributions.Bernoulli(logits=logits[:, None]).log_prob(rows).double()
    log_p = [part.logsumexp(0) for part in (each.sum(-1), (each * ~hidden).sum(-1))]
    torch.testing.assert_close(found["nll"], log_p[1] - log_p[0], rtol=0.0, atol=0.3)
    torch.testing.assert_close(found["weighted"], log_p[1] - log_p[0], rtol=0.0, atol=0.3)
    predicted = (each * hidden).sum(-1).logsumexp(0) - math.log(20_000)
    torch.testing.assert_close(found["bound"], -predicted, rtol=0.0, atol=0.3)


def two_levels():
    torch.manual_seed(0)
    model = HierarchicalAutoencoder(side=8, width=2, channels=2, features=6).eval()
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            parameter.add_(0.2 * draw(*parameter.shape, seed=seed))
    return model


def test_two_levels_weigh_their_draws_by_normal_densities(monkeypatch):
    model, rows = two_levels(), (draw(5, 64) > 0).float()
    numbers = iter([draw(3, 5, 2, seed=7), draw(3, 5, 2, seed=8)])
    monkeypatch.setattr(torch, "randn_like", lambda like: next(numbers))
    explained, divergence = model.parts(rows, 3)

    def normal(numbers):
        centre, raw = numbers.chunk(2, -1)
        return torch.distributions.Normal(centre, (6.0 * (raw / 6.0).tanh()).exp())

    features = model.encoder(rows).expand(3, -1, -1)
    q_top = normal(model.top(features))
    top = q_top.mean + q_top.stddev * draw(3, 5, 2, seed=7)
    q = normal(model.posterior(torch.cat([features, top], -1)))
    state = q.mean + q.stddev * draw(3, 5, 2, seed=8)
    standard = torch.distributions.Normal(0.0, 1.0)
    expected = q_top.log_prob(top) - standard.log_prob(top)
    expected = expected + q.log_prob(state) - normal(model.prior(top)).log_prob(state)
    torch.testing.assert_close(divergence, expected.sum(-1))
    logits = model.decoder(torch.cat([state, top], -1).flatten(0, 1)).view(3, 5, 64)
    pixels = torch.distributions.Bernoulli(logits=logits).log_prob(rows).sum(-1)
    torch.testing.assert_close(explained, pixels)


def test_merged_runs_have_all_seeds_of_the_best_rate():
    def row(seed, rate, bound, elbo, **more):
        about = {"train_seconds": 2.0, "test_seconds": 1.0, "steps": 10 * (seed + 1)}
        return {"rate": rate, "seeds": [seed], "validation": [99.0, bound], "elbo": [elbo], **about}

    def run(**models):
        return {"draws": 50, "data": {"mnist": {"models": models}}}

    old = {"train_seconds": 5.0, "test_seconds": 1.0, "elbo": [88.0]}
    data = {"models": {"IAF": old}, "surrogate": {}, "skipped": ["VAE", "VFG"], "seeds": [0]}
    before = {"draws": 5, "seconds": 6.0, "note": "", "data": {"mnist": data}}
    runs = [run(VAE=row(1, 1e-3, 85.0, 81.0)), run(VAE=row(0, 1e-3, 84.0, 80.0))]
    runs.append(run(VAE=row(0, 3e-4, 86.0, 79.0)))  # better on test rows, which do not decide
    found = likelihood.merge(runs, before)
    mnist = found["data"]["mnist"]
    assert mnist["models"]["VAE"]["elbo"] == [80.0, 81.0]
    assert mnist["models"]["VAE"]["rates"] == {"0.0003": 86.0, "0.001": 84.0}
    assert (mnist["models"]["VAE"]["steps"], mnist["models"]["VAE"]["train_seconds"]) == (15, 4.0)
    assert mnist["models"]["IAF"] == old
    assert (mnist["skipped"], mnist["seeds"], found["draws"]) == (["VFG"], [0, 1], 50)
    assert found["seconds"] == 12.0


def test_runs_are_added_to_a_row_and_untested_settings_count_as_tried():
    seconds = {"train_seconds": 2.0, "test_seconds": 1.0}
    old = {"validation": [84.0], "elbo": [83.0], "steps": 10, **seconds}
    seed = {
        "rate": 1e-3,
        "seeds": [1],
        "validation": [85.0],
        "elbo": [84.0],
        "steps": 20,
        **seconds,
    }
    behind = {"rate": 2e-3, "seeds": [0], "validation": [86.0], "steps": 10, **seconds}
    data = {"models": {"VAE": old}, "surrogate": {}, "skipped": [], "seeds": [0]}
    before = {"draws": 5, "seconds": 3.0, "data": {"mnist": data}}
    runs = [{"draws": 5, "data": {"mnist": {"models": {"VAE": row}}}} for row in (seed, behind)]
    row = likelihood.merge(runs, before, add=True)["data"]["mnist"]["models"]["VAE"]
    assert (row["elbo"], row["seeds"], row["steps"]) == ([83.0, 84.0], [0, 1], 15)
    assert row["rates"] == {"0.001": 84.0, "0.002": 86.0}
    key = {"data": "mnist", "model": "VAE"}
    assert likelihood.is_behind(behind, before, key)
    assert not likelihood.is_behind(seed, before, key)  # a further seed is always tested
    assert not likelihood.is_behind(behind | {"validation": [83.0]}, before, key)
    assert not likelihood.is_behind(behind, before, {"data": "mnist", "model": "IAF"})


def test_first_seeds_keep_their_steps_and_images_where_others_have_more_or_fewer():
    history = [Namespace(validation=1.0)]
    runs = [[Part(history * length, each=10, batch=4)] for length in (2, 5)]
    run = Trained(runs, seconds=1.0, captured=True)
    assert (run.steps, run.first_steps, run.images) == (50, 20, 80)
    seconds = {"train_seconds": 2.0, "test_seconds": 1.0}
    rows = [
        {"seeds": [seed], "validation": [85.0], "elbo": [84.0], "steps": steps, **seconds}
        for seed, steps in ((0, 90), (1, 30))
    ]
    row = likelihood.merge_rows(rows)
    assert (row["steps"], row["first_steps"]) == (60, 90)
    again = likelihood.merge_rows([row, rows[1] | {"seeds": [2], "steps": 15}])
    assert (again["steps"], again["first_steps"]) == (45, 90)


def test_curves_end_at_the_steps_of_the_first_seed_and_show_every_best_bound():
    pytest.importorskip("matplotlib.pyplot", reason="a picture").switch_backend("Agg")
    data = json.loads((FOLDER / "likelihood.json").read_text())["data"]
    figure = likelihood.draw_validation({"data": data})
    for axis, part in zip(figure.axes, data.values(), strict=True):
        rows = [row for row in part["models"].values() if "validation" in row]
        low, high = axis.get_ylim()
        assert all(low < min(row["validation"]) < high for row in rows)
        drawn = {tuple(line.get_ydata()): line.get_xdata() for line in axis.lines}
        for row in rows:
            steps = drawn[tuple(row["validation"])]
            last = row.get("finish", {"steps": 0})["steps"]
            assert steps[-1] == row.get("first_steps", row["steps"]) - last
            assert steps[0] % 1 == 0  # a whole number of steps between two validations


def test_the_documented_minutes_are_those_of_all_jobs():
    seconds = sum(job.seconds for name in likelihood.SECONDS for job in likelihood.jobs(name))
    assert f" {seconds / 60:.0f} minutes of training" in likelihood.__doc__


def test_conditional_bounds_of_the_masked_vae_and_of_many_draws_agree():
    torch.manual_seed(0)
    model = conditional_images.MaskedVAE(8, width=2, channels=2, features=8).eval()
    rows, hidden = (draw(5, 64) > 0).float(), conditional_images.questions(8)["half: left"].cpu()
    found = conditional_images.ask_vae(model, rows, hidden, 4000)
    torch.testing.assert_close(found["conditional"], found["bound"], rtol=0.0, atol=0.05)


def test_weighted_draws_of_a_vfg_predict_what_many_draws_of_its_prior_say():
    model = perturbed(encoding(8, 4, 0, root=2, blocks=2), 1, 0.03).eval()
    rows, hidden = (draw(5, 64) > 0).float(), conditional_images.questions(8)["half: right"].cpu()
    found = conditional_images.ask_vfg(model, rows, hidden, 4000)
    own = model.model
    prior, group = next(iter(own.priors.values())), own.passing.group(0)
    with torch.no_grad():
        h = prior.sample(40_000, None, torch.Generator().manual_seed(5))
        logits = own.likelihood_at(0).logits(group.return_(group.arrive(h)))[0]
    each = torch.distributions.Bernoulli(logits=logits[:, None]).log_prob(rows).double()
    log_p = [part.logsumexp(0) for part in (each.sum(-1), (each * ~hidden).sum(-1))]
    torch.testing.assert_close(found["weighted"], log_p[1] - log_p[0], rtol=0.0, atol=0.08)
    assert (found["bound"] - found["weighted"]).abs().max() > 0.2, "weights matter"


@pytest.mark.parametrize("data", likelihood.SIZES)
def test_baselines_of_the_same_size_have_the_parameters_of_ours(data):
    models = likelihood.sampled_models(28, data, dropout=0.5)
    ours = count(models[likelihood.ENCODING](0))
    for name in likelihood.SIZES[data]:
        assert 0.8 < count(models[name + likelihood.SAME_SIZE](0)) / ours < 1.2, name


def test_dropout_is_for_training_alone():
    model = FlowAutoencoder("VAE", side=8, width=4, channels=2, features=8, dropout=0.5)
    rows = torch.ones(3, 64)
    first, second = (model.encoder(rows) for _ in range(2))
    assert not torch.equal(first, second)
    model.eval()
    torch.testing.assert_close(model.encoder(rows), model.encoder(rows))


def test_merging_keeps_the_best_dropout_and_puts_its_seeds_together():
    def row(seed, dropout, bound):
        found = {"rate": 0.001, "dropout": dropout, "seeds": [seed], "validation": [bound]}
        seconds = {"train_seconds": 1.0, "test_seconds": 1.0, "steps": 5}
        return found | seconds | {"elbo": [bound], "nll": [bound - 1.0], "train": [bound]}

    merged = likelihood.merge_rows([row(1, 0.1, 83.0), row(0, 0.3, 84.0), row(0, 0.1, 82.0)])
    assert (merged["seeds"], merged["elbo"], merged["dropout"]) == ([0, 1], [82.0, 83.0], 0.1)
    assert merged["rates"] == {"0.001, dropout 0.1": 82.0, "0.001, dropout 0.3": 84.0}
