"""The rivals of the image experiments and the training they share, against independent answers."""

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "experiments"))

from probes import linear_accuracy, nearest_accuracy, prior_accuracy
from rivals.images import POSTERIORS, FlowAutoencoder
from side_by_side import Budget, Run, assign, train


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
    return Run(model, (x,), lambda: model.objective(x, 0.0).item(), budget, 1.0)


def test_training_finds_the_least_squares_line(run):
    train([run], run.budget)
    torch.testing.assert_close(run.model.layer.weight, torch.ones(1, 3), rtol=0, atol=0.02)
    assert run.steps == 300
    assert run.best > -1e-3


def test_a_gradient_that_is_not_finite_changes_nothing(run):
    for _ in range(5):
        run.step()
    before, usual = run.model.layer.weight.clone(), run.norm.clone()
    run.model.factor = math.nan
    run.step()
    assert torch.equal(run.model.layer.weight, before)
    assert torch.equal(run.norm, usual)


def test_a_very_steep_gradient_is_remembered_as_one_of_twice_the_usual_length(run):
    for _ in range(50):
        run.step()
    usual = run.norm.item()
    run.model.factor = 1e6
    run.step()
    assert run.norm.item() <= usual * (1.0 + 0.02 * 1.01)
    assert all(state["exp_avg"].abs().max() < 10 * usual for state in run.optimiser.state.values())


def test_a_run_that_is_lost_goes_back_to_its_best_state_at_half_the_rate(run):
    for _ in range(10):
        run.advance(0.5)
    run.check()
    best, value = [one.clone() for one in run.chosen], run.best
    assign(run.average, [100.0 * one for one in run.average])
    run.check()
    assert run.slowed == 0.5
    assert run.best == value
    for found, kept in zip(run.parameters, best, strict=True):
        assert torch.equal(found, kept)


def test_probes_of_separable_rows_are_perfect_and_of_noise_are_not():
    labels = torch.arange(300) % 3
    means = 10.0 * torch.eye(3)
    rows = means[labels] + draw(300, 3)
    for probe in (nearest_accuracy, linear_accuracy):
        assert probe(rows[:200], labels[:200], rows[200:], labels[200:]) == 1.0
        assert probe(draw(200, 3), labels[:200], draw(100, 3, seed=1), labels[200:]) < 0.6
    assert prior_accuracy(rows, labels, means) == 1.0
    assert prior_accuracy(rows, labels, means.roll(1, 0)) == 0.0
