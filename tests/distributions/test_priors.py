"""Root priors against torch.distributions, whole and in part observed."""

import copy
import math

import pytest
import torch
from strategies import perturbed
from torch.distributions import Categorical, Independent, Laplace, MixtureSameFamily, Normal
from torch.distributions import Categorical as Choice

import vfg
from vfg.sampling import draw_states
from vfg.sampling.noise import counted_noise
from vfg.training.model_stack import stack_models

BUILT = {"normal": vfg.Normal(), "laplace": vfg.Laplace(), "per_label": vfg.PerLabel(3)}


def built(name, nodes=2, width=3):
    prior = BUILT[name].build(nodes, width).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return prior


def states(nodes=2, width=3):
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(nodes, 6, width, generator=generator, dtype=torch.float64)
    return h, torch.rand(nodes, 6, width, generator=generator) > 0.4


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


def mixture(nodes=2, width=3, components=4):
    return perturbed(vfg.Mixture(components).build(nodes, width).double(), 0, size=0.7)


def flowed(nodes=1, width=2):
    return perturbed(
        vfg.FlowPrior(2, 4, activation="tanh").build(nodes, width).double(), 0, size=0.3
    )


def test_a_mixture_has_the_density_of_a_mixture_on_the_observed_coordinates():
    prior, (h, observed) = mixture(), states()
    found = prior.log_prob(h, observed, None)
    scale = (6.0 * torch.tanh(prior.log_scales / 6.0)).exp()
    for node in range(2):
        for row in range(6):
            seen = observed[node, row]
            law = MixtureSameFamily(
                Categorical(logits=prior.logits[node]),
                Independent(Normal(prior.locations[node][:, seen], scale[node][:, seen]), 1),
            )
            expected = law.log_prob(h[node, row, seen]) if seen.any() else torch.zeros(())
            value = found.value[node, row] - found.constant[node, row]
            assert value.item() == pytest.approx(expected.item(), abs=1e-9)


def test_draws_of_a_mixture_have_its_moments():
    prior = mixture(nodes=1)
    drawn = prior.sample(200_000, None, torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.mean(1, keepdim=True), prior.mean(None), atol=0.03, rtol=0.0)
    share = prior.logits.softmax(-1)[..., None]
    scale = (6.0 * torch.tanh(prior.log_scales / 6.0)).exp()
    second = (share * (prior.locations.square() + scale.square())).sum(1)
    torch.testing.assert_close(drawn.square().mean(1), second, rtol=0.03, atol=0.0)


@torch.no_grad()
def test_the_density_of_a_flow_integrates_to_one_and_its_draws_follow_it():
    prior = flowed()
    axis = torch.linspace(-9.0, 9.0, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)[None]
    density = prior.log_prob(grid, torch.ones_like(grid, dtype=torch.bool), None)
    mass = (density.value - density.constant).exp() * (axis[1] - axis[0]) ** 2
    assert mass.sum().item() == pytest.approx(1.0, abs=1e-3)
    drawn = prior.sample(100_000, None, torch.Generator().manual_seed(0))
    expected = (mass[..., None] * grid).sum(1)
    torch.testing.assert_close(drawn.mean(1), expected, atol=0.03, rtol=0.0)
    second = (mass[..., None] * grid.square()).sum(1)
    torch.testing.assert_close(drawn.square().mean(1), second, atol=0.0, rtol=0.03)


@pytest.mark.parametrize("prior", [vfg.Mixture(3), vfg.FlowPrior(2, 4)])
def test_the_bound_holds_under_bent_priors(prior):
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    flow = vfg.Coupling(blocks=2, hidden=4, activation="tanh")
    model = vfg.VFG(graph, flow=flow, states="sampled", latent="normal", prior=prior)
    model = perturbed(model.double(), 2, size=0.2)
    with torch.no_grad():
        for sampler in model.sampling.samplers.values():
            sampler.log_scale.add_(1.2)
    table = torch.tensor([[0.4, -0.6], [1.0, torch.nan]]).double()
    axis = torch.linspace(-9.0, 9.0, 161, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    stack, scale = model.passing.group(0), model.likelihood_at(0).scale()[:, 0]
    with torch.no_grad():
        means = stack.flow.inverse(grid.expand(2, -1, -1))[0][..., 0]
        density = model.prior_at(1).log_prob(grid[None], torch.ones(1, len(grid), 2).bool(), None)
        log_prior = (density.value - density.constant)[0]
        for row in table:
            seen = ~row.isnan()
            leaves = Normal(means, scale).log_prob(row.nan_to_num()[:, None])
            joint = log_prior + (leaves * seen[:, None]).sum(0)
            exact = joint.logsumexp(0) + 2.0 * math.log(axis[1] - axis[0])
            found = model.log_likelihood(row[None], samples=20_000)
            assert model.bound(row[None], samples=2000).total.item() <= exact.item() + 0.02
            assert found.item() == pytest.approx(exact.item(), abs=0.03)


@pytest.mark.parametrize("prior", [vfg.Mixture(3), vfg.FlowPrior(2, 4)])
def test_models_with_bent_priors_are_described_answer_and_draw(prior):
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    model = perturbed(vfg.VFG(graph, states="sampled", prior=prior), 0)
    other = vfg.VFG.from_dict(model.to_dict())
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.sample(3), model.sample(3))
    answer = model.infer(torch.tensor([[0.5, torch.nan], [torch.nan, torch.nan]]))
    assert answer.mean["b"].isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": vfg.FlowPrior(2, 4)}, r"'flowed' has no density of single.*states='sampled'"),
        ({"prior": vfg.Mixture(3), "aggregation": "gaussian"}, r"needs a Normal.*'mixture'"),
    ],
)
def test_priors_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2), **options)


def test_a_mixture_needs_components():
    with pytest.raises(ValueError, match="at least one component"):
        vfg.Mixture(0)


# Mixed posteriors.


def vamp(likelihood="bernoulli", ladder=True, **options):
    graph = vfg.Graph.from_edges(
        [("a", "middle"), ("b", "middle"), ("middle", "root")],
        widths={"a": 3, "b": 3, "middle": 3, "root": 3},
    )
    states = vfg.Sampled(amortised=8, ladder=ladder)
    settings = {"aggregation": "mean", "prior": vfg.VampPrior(5), "states": states} | options
    return perturbed(vfg.VFG(graph, likelihood=likelihood, **settings), 4, 0.1).double().eval()


def mixed_posteriors(model, rows):
    """The mixture of q at the root given rows, from the first two moments of many draws of it."""
    ids = torch.arange(len(rows))
    noise = counted_noise(model.passing.schedule, ids, torch.arange(40_000), seed=3)
    seen = torch.ones_like(rows, dtype=torch.bool)
    with torch.no_grad():
        drawn = draw_states(model, rows, seen, None, {}, noise, 40_000)
    root = next(k for k, b in enumerate(model.passing.schedule.blocks) if b.is_root)
    states = drawn.states[root][0]
    normals = Independent(Normal(states.mean(0), states.std(0)), 1)
    return MixtureSameFamily(Categorical(torch.ones(len(rows)).double()), normals)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_vamp_priors_mix_the_posteriors_of_their_inputs(likelihood):
    model = vamp(likelihood)
    prior = next(iter(model.priors.values()))
    rows = prior.inputs.detach().mT
    rows = rows.sigmoid() if likelihood == "bernoulli" else rows
    h, _ = states(nodes=1)
    density = prior.log_prob(h, torch.ones_like(h, dtype=torch.bool), None)
    expected = mixed_posteriors(model, rows)
    found = (density.value - density.constant)[0]
    torch.testing.assert_close(found, expected.log_prob(h[0]), rtol=0.0, atol=0.1)
    torch.testing.assert_close(prior.mean(None)[0, 0], expected.mean, rtol=0.0, atol=0.02)
    drawn = prior.sample(100_000, None, torch.Generator().manual_seed(0))[0]
    torch.testing.assert_close(drawn.mean(0), expected.mean, rtol=0.0, atol=0.02)
    torch.testing.assert_close(drawn.var(0), expected.variance, rtol=0.03, atol=0.0)


def test_vamp_priors_start_at_rows_learn_and_travel(tmp_path):
    table = (torch.rand(40, 6, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    model = vamp().float()
    prior = next(iter(model.priors.values()))
    prior.start_at(table)
    assert torch.equal((prior.inputs.mT > 0).float(), table[::8])
    vfg.fit(model, table, epochs=2, masking=None, progress=False)
    moved = prior.inputs.detach().clone()
    assert not torch.equal(moved.abs(), torch.full_like(moved, 2.0)), "the inputs are trained"
    vfg.save(model, tmp_path / "model.vfg")
    again, copied = vfg.load(tmp_path / "model.vfg"), copy.deepcopy(model)
    with torch.no_grad():
        prior.inputs.zero_()  # a copy has inputs of its own, and a posterior of its own
    for other in (again, copied):
        assert torch.equal(next(iter(other.priors.values())).inputs, moved)
    torch.testing.assert_close(again.bound(table).total, copied.bound(table).total)
    assert not torch.allclose(model.bound(table).total, copied.bound(table).total)


def test_models_with_vamp_priors_train_side_by_side_as_alone():
    table = (torch.rand(40, 6, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    members = [vamp(seed=seed).float() for seed in (0, 1)]
    stacked = stack_models(members)
    together = next(iter(stacked.priors.values())).components()
    for k, member in enumerate(members):
        alone = next(iter(member.priors.values())).components()
        for both, own in zip(together, alone, strict=True):
            torch.testing.assert_close(both[k], own[0])
    vfg.fit(members, table, epochs=2, masking=None, progress=False)
    assert all(member.bound(table).total.isfinite().all() for member in members)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": vfg.Categorical(3)}, "cannot have categories, but leaf 'a' is categorical"),
        ({"states": vfg.Sampled(amortised=4, blocks=2)}, "q has 2 coupling layers"),
        ({"states": "deterministic"}, "build the model with states='sampled'"),
        ({"aggregation": "gaussian"}, "needs a Normal prior, but the prior is 'vamp'"),
    ],
)
def test_vamp_priors_refuse_what_they_cannot_mix(options, message):
    with pytest.raises(ValueError, match=message):
        vamp(**options)
    with pytest.raises(ValueError, match="components to be at least 1, but got 0"):
        vfg.VampPrior(0)
