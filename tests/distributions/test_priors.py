"""Root priors against torch.distributions, whole and in part observed."""

import pytest
import torch
from torch.distributions import Categorical as Choice
from torch.distributions import Independent, Laplace, MixtureSameFamily, Normal

import vfg

BUILT = {"normal": vfg.Normal(), "laplace": vfg.Laplace(), "per_label": vfg.PerLabel(3)}


def built(name, nodes=2, width=3):
    prior = BUILT[name].build(nodes, width).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return prior


def states():
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    return h, torch.rand(2, 6, 3, generator=generator) > 0.4


@pytest.mark.parametrize(("name", "family"), [("normal", Normal), ("laplace", Laplace)])
def test_densities_of_the_observed_coordinates(name, family):
    prior, (h, observed) = built(name), states()
    density = prior.log_prob(h, observed, None)
    expected = (family(prior.location, 1.0).log_prob(h) * observed).sum(-1)
    torch.testing.assert_close(density.value - density.constant, expected)


def test_a_label_chooses_its_normal_and_none_their_mixture():
    prior, (h, observed) = built("per_label"), states()
    labels = torch.tensor([0, 1, 2, -1, 1, -1])
    density = prior.log_prob(h, observed, labels)
    found = density.value - density.constant
    every = (Normal(prior.locations[:, None], 1.0).log_prob(h[:, :, None])
             * observed[:, :, None]).sum(-1)  # fmt: skip
    for b, label in enumerate(labels.tolist()):
        expected = every[:, b].logsumexp(-1) - torch.tensor(3.0).log()
        if label >= 0:
            expected = every[:, b, label]
        torch.testing.assert_close(found[:, b], expected)


def test_the_mixture_is_torchs_mixture():
    prior, (h, _) = built("per_label"), states()
    everything = torch.ones_like(h, dtype=torch.bool)
    density = prior.log_prob(h, everything, None)
    for node in range(2):
        mixture = MixtureSameFamily(
            Choice(torch.ones(3, dtype=torch.float64)),
            Independent(Normal(prior.locations[node], 1.0), 1),
        )
        expected = mixture.log_prob(h[node])
        torch.testing.assert_close((density.value - density.constant)[node], expected)


def test_the_mean_without_a_label_is_the_mean_of_the_means():
    prior = built("per_label")
    overall = prior.locations.mean(1, keepdim=True)
    torch.testing.assert_close(prior.mean(None), overall)
    found = prior.mean(torch.tensor([2, -1]))
    torch.testing.assert_close(found[:, 0], prior.locations[:, 2])
    torch.testing.assert_close(found[:, 1], overall[:, 0])


@pytest.mark.parametrize("name", BUILT)
def test_draws_have_mean_and_variance(name):
    prior = built(name)
    labels = torch.full((100_000,), 1) if name == "per_label" else None
    drawn = prior.sample(100_000, labels, torch.Generator().manual_seed(0))
    centre = prior.mean(None if labels is None else labels[:1])[:, 0]
    torch.testing.assert_close(drawn.mean(1), centre, atol=0.02, rtol=0.0)
    variance = 2.0 if name == "laplace" else 1.0
    assert drawn.var(1).sub(variance).abs().max() < 0.05


def test_a_prior_needs_a_label():
    with pytest.raises(ValueError, match="at least one label"):
        vfg.PerLabel(0)
