"""Leaf likelihoods against torch.distributions, and their draws against their means."""

import pytest
import torch

import vfg
from vfg.distributions.likelihoods import LikelihoodSpec, likelihood_spec
from vfg.utils.specs import spec_from_dict

SPECS = [vfg.Gaussian(scale=0.7), vfg.Bernoulli(steepness=3.0), vfg.Categorical(4)]


def states(nodes=2, rows=5, width=3):
    return torch.randn(nodes, rows, width, generator=torch.Generator().manual_seed(0)).double()


def test_gaussian_is_the_normal_density():
    likelihood = vfg.Gaussian(scale=0.7).build(2, 3).double()
    x, state = states() + 1, states()
    expected = torch.distributions.Normal(state, 0.7).log_prob(x)
    torch.testing.assert_close(likelihood.log_prob(x, state), expected)


def test_gaussian_scale_never_falls_below_its_floor():
    likelihood = vfg.Gaussian(floor=0.1, learn=True).build(1, 1)
    with torch.no_grad():
        likelihood.log_scale.fill_(-100.0)
    assert likelihood.scale().item() == pytest.approx(0.1)
    assert vfg.Gaussian(scale=0.25).build(1, 1).scale().item() == pytest.approx(0.25)


def test_only_a_learned_scale_is_trained():
    assert not vfg.Gaussian().build(1, 1).log_scale.requires_grad
    assert vfg.Gaussian(learn=True).build(1, 1).log_scale.requires_grad


def test_bernoulli_is_its_mass_function():
    likelihood = vfg.Bernoulli(steepness=3.0).build(2, 3).double()
    state = states()
    x = (state > 0.3).double()
    # The parameter is the float32 logarithm of the steepness, hence the tolerance.
    expected = torch.distributions.Bernoulli(logits=3.0 * state).log_prob(x)
    torch.testing.assert_close(likelihood.log_prob(x, state), expected, rtol=1e-6, atol=1e-6)
    assert likelihood.embed(torch.tensor([[[0.0, 1.0]]])).tolist() == [[[-1.0, 1.0]]]


def test_categorical_probabilities_fall_with_the_distance_to_the_points():
    likelihood = vfg.Categorical(4).build(2, 3).double()
    state = states()
    each = [
        likelihood.log_prob(torch.full((2, 5, 1), float(k), dtype=torch.float64), state).exp()
        for k in range(4)
    ]
    torch.testing.assert_close(sum(each), torch.ones(2, 5, 1, dtype=torch.float64))
    distance = torch.stack(
        [(state - likelihood.points[:, k, None]).square().sum(-1) for k in range(4)], dim=-1
    )
    expected = torch.softmax(-0.5 * distance, dim=-1)
    torch.testing.assert_close(torch.cat(each, dim=-1), expected)
    assert torch.equal(likelihood.mean(state)[..., 0], distance.argmin(-1).double())


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("categories", [2, 3, 50])
def test_every_category_comes_back_from_its_own_point(width, categories):
    likelihood = vfg.Categorical(categories).build(1, width)
    codes = torch.arange(categories, dtype=torch.float32).view(1, -1, 1)
    assert torch.equal(likelihood.mean(likelihood.embed(codes)), codes)


@pytest.mark.parametrize("spec", SPECS[:2], ids=lambda spec: spec.name)
def test_draws_have_the_mean(spec):
    likelihood = spec.build(1, 2)
    state = torch.tensor([[[0.4, -0.2]]]).expand(1, 100_000, 2)
    drawn = likelihood.sample(state, torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.mean(1), likelihood.mean(state)[:, 0], atol=0.01, rtol=0.0)


def test_categorical_draws_have_their_probabilities():
    likelihood = vfg.Categorical(3).build(1, 2)
    state = torch.tensor([[[0.4, -0.2]]]).expand(1, 100_000, 2)
    drawn = likelihood.sample(state, torch.Generator().manual_seed(0)).flatten().long()
    expected = likelihood.logits(state)[0, 0].softmax(-1)
    found = torch.bincount(drawn, minlength=3) / len(drawn)
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0.0)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_specs_travel_as_dictionaries(spec):
    assert spec_from_dict(LikelihoodSpec, spec.to_dict()) == spec


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vfg.Gaussian(scale=0.1, floor=0.2), r"0 <= floor < scale"),
        (lambda: vfg.Bernoulli(steepness=0.0), r"steepness > 0"),
        (lambda: vfg.Categorical(1), r"at least 2 categories"),
        (lambda: likelihood_spec("categorical"), r"vfg.Categorical\(categories\)"),
        (lambda: spec_from_dict(LikelihoodSpec, {"name": "poisson"}), r"no LikelihoodSpec called"),
        (
            lambda: spec_from_dict(LikelihoodSpec, {"name": "gaussian", "width": 3}),
            r"no field 'width'",
        ),
    ],
)
def test_bad_specs_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
