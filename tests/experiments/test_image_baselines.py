"""The baselines of the image experiments and their training, against independent answers."""

import math
from argparse import Namespace

import pytest
import torch
from torch import nn

from experiments.baselines.images import POSTERIORS, FlowAutoencoder
from experiments.paper import likelihood
from experiments.paper.image_models import Forest, papers, papers_sampled
from experiments.paper.parts import Parts
from experiments.paper.probes import linear_accuracy, nearest_accuracy, prior_accuracy
from experiments.side_by_side import Budget, Run, assign, train


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


class Line(nn.Module):
    """Least squares on a line, with a factor to spoil it."""

    def __init__(self):
        super().__init__()
        self.layer, self.factor = nn.Linear(3, 1), 1.0

    def objective(self, x, beta):
        return -self.factor * (self.layer(x) - x.sum(1, keepdim=True)).square().mean()


@pytest.fixture
def run():
    torch.manual_seed(0)
    model, x = Line(), draw(100, 3)
    budget = Budget(1.0, steps=300, batch=32, rate=3e-2)
    return Run(model, (x,), lambda: [model.objective(x, 0.0).item()], budget, 1.0)


def test_training_finds_the_least_squares_line(run):
    train([run], run.budget)
    torch.testing.assert_close(run.model.layer.weight, torch.ones(1, 3), rtol=0, atol=0.02)
    assert run.steps == 300
    assert run.best[0] > -1e-3


def test_a_gradient_that_is_not_finite_changes_nothing(run):
    for _ in range(5):
        run.step()
    before, usual = run.model.layer.weight.clone(), run.usual.value.clone()
    run.model.factor = math.nan
    run.step()
    assert torch.equal(run.model.layer.weight, before)
    assert torch.equal(run.usual.value, usual)


def test_a_very_steep_gradient_is_remembered_as_one_of_twice_the_usual_length(run):
    for _ in range(50):
        run.step()
    usual = run.usual.value.item()
    run.model.factor = 1e6
    run.step()
    assert run.usual.value.item() <= usual * (1.0 + 0.02 * 1.01)
    assert all(state["exp_avg"].abs().max() < 10 * usual for state in run.optimiser.state.values())


def test_a_run_that_is_lost_goes_back_to_its_best_state_at_half_the_rate(run):
    for _ in range(10):
        run.advance(0.5)
    run.check()
    best, value = [one.clone() for one in run.chosen], list(run.best)
    assign(run.average, [100.0 * one for one in run.average])
    run.check()
    assert run.slowed == 0.5
    assert run.setbacks == 1
    assert run.best == value
    for found, kept in zip(run.parameters, best, strict=True):
        assert torch.equal(found, kept)


class Lines(nn.Module):
    """Copies of a line side by side, each on rows of its own."""

    copies = 2

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 3))

    def objective(self, x, beta):
        apart = x.view(-1, 2, 3)
        return -((apart * self.weight).sum(-1) - apart.sum(-1)).square().mean(0).sum()


def test_copies_are_chosen_and_sent_back_one_by_one():
    torch.manual_seed(0)
    model, x = Lines(), draw(100, 3)

    def score():
        return [-(x @ weight - x.sum(1)).square().mean().item() for weight in model.weight]

    run = Run(model, (x,), score, Budget(1.0, steps=300, batch=32, rate=3e-2), 1.0)
    for _ in range(10):
        run.advance(0.5)
    run.check()
    best, values = run.chosen[0].clone(), list(run.best)
    memory = run.optimiser.state[model.weight]["exp_avg"]
    run.average[0][1] += 100.0
    before = model.weight.detach().clone()
    run.check()
    assert run.best == values
    assert torch.equal(model.weight[0], before[0])
    assert torch.equal(model.weight[1], best[1])
    assert torch.equal(run.average[0][1], best[1])
    assert memory[1].eq(0).all()
    assert memory[0].ne(0).all()


@pytest.mark.parametrize("kind", ["sampled", "deterministic"])
def test_a_forest_asks_for_what_its_members_ask_for(kind):
    members = [
        papers_sampled(8, 8, seed) if kind == "sampled" else papers(8, 0.1, 8, seed)
        for seed in range(3)
    ]
    forest = Forest(members)
    rows = (draw(12, 64) > 0).float()
    if kind == "deterministic":
        parts = rows.view(4, 3, 64).unbind(1)
        beta = torch.ones(())
        alone = sum(m.objective(part, beta) for m, part in zip(members, parts, strict=True))
        torch.testing.assert_close(forest.objective(rows, beta), alone)
    with torch.no_grad():
        for parameter in forest.parameters():
            parameter.chunk(3)[1].add_(0.01)
    before = [p.detach().clone() for member in members for p in member.parameters()]
    forest.apart()
    after = [p.detach() for member in members for p in member.parameters()]
    size = len(before) // 3
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        moved = 0.01 if place // size == 1 else 0.0
        torch.testing.assert_close(new, old + moved)


def test_parts_survive_a_run_that_is_cut_off(tmp_path):
    parts = Parts(tmp_path, resume=False)
    parts.keep("mnist", "VFG, the paper's tree", row={"nll": [1.0]})
    parts.fail("mnist", "IAF", message="no luck")
    again = Parts(tmp_path, resume=True)
    assert again.done("mnist", "VFG, the paper's tree") == {"nll": [1.0]}
    assert again.done("mnist", "IAF") is None
    assert again.is_open("mnist", "IAF")
    again.fail("mnist", "IAF", message="none again")
    assert again.failures("mnist", "IAF") == ["no luck", "none again"]
    assert not again.is_open("mnist", "IAF")
    assert not again.is_open("mnist", "VFG, the paper's tree")
    assert Parts(tmp_path, resume=False).done("mnist", "VFG, the paper's tree") is None


def test_results_say_what_is_missing_and_what_went_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(likelihood, "DEVICE", torch.device("cuda"))
    parts = Parts(tmp_path, resume=False)
    about = {"captured": True, "alone": True, "train_seconds": 2.0, "test_seconds": 0.5}
    parts.keep("mnist", "data", row={"source": "MNIST", "rows": [3, 2, 1], "seeds": [0]})
    parts.keep("mnist", "VAE", row=about | {"nll": [90.0]})
    parts.keep("mnist", "VFG", row=about | {"alone": False, "nll": [88.0]})
    parts.keep("mnist", "surrogate, beta 0.1", row=about | {"sum": [7.0]})
    parts.fail("mnist", "IAF", message="illegal memory access")
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
