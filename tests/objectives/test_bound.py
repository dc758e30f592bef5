"""The bound against quadrature, closed forms and itself; importance weighting; float32 and bf16."""

import math
import warnings

import numpy as np
import pytest
import quadrature
import torch
from strategies import perturbed

import vfg
from vfg.distributions.priors import bound_log_scale
from vfg.objectives.bound import lower_bound
from vfg.sampling import draw_states, log_likelihoods
from vfg.sampling.noise import counted_noise, generated_noise

NAN = float("nan")

GRAPHS = {
    "star, 1 latent": (vfg.Graph.star({"a": 1, "b": 1, "c": 1}, width=1), 801, 14.0),
    "star, 2 latents": (vfg.Graph.star({"a": 1, "b": 1, "c": 1}, width=2), 201, 12.0),
    "tree, 2 latents": (
        vfg.Graph.from_edges([("a", "h"), ("b", "h"), ("h", "r"), ("c", "r")], widths=1),
        201,
        12.0,
    ),
    "DAG, 2 roots": (
        vfg.Graph.from_edges([("a", "r"), ("b", "r"), ("b", "s"), ("c", "s")], widths=1),
        201,
        12.0,
    ),
    "DAG, 3 latents": (
        vfg.Graph.from_edges(
            [("a", "h"), ("b", "h"), ("h", "r"), ("h", "s"), ("c", "s")], widths=1
        ),
        45,
        8.0,
    ),
}
ROWS = torch.tensor([[0.4, 1.0, -1.1], [0.4, 1.0, NAN], [NAN, NAN, 0.7], [NAN, 0.0, NAN]]).double()


def small(name, seed=0, **options):
    """A bent model in float64 away from its start; binary leaf b."""
    binary = {"b": vfg.Bernoulli(steepness=1.5), "*": vfg.Gaussian(scale=0.8, learn=True)}
    options = {"likelihood": binary, "latent": "normal", **options}
    flow = vfg.Coupling(blocks=2, hidden=4, activation="tanh", bins=4)
    return widened(perturbed(vfg.VFG(GRAPHS[name][0], flow=flow, **options).double(), seed, 0.2))


@torch.no_grad()
def widened(model):
    """Widen q: weights have a variance, and few draws suffice, only if its tails reach far."""
    for sampler in model.sampling.samplers.values():
        sampler.log_scale.add_(1.0)
    return model


def truth(name, model, table, labels=None):
    _, points, reach = GRAPHS[name]
    return quadrature.log_density(model, table, points=points, reach=reach, labels=labels)


def draws_of(model, row, count, samples, labels=None):
    """`count` independent estimates for one row."""
    table = row.expand(count, -1)
    given = None if labels is None else torch.full((count,), labels)
    return model.log_likelihood(table, samples=samples, labels=given)


CASES = [
    (name, aggregation, (k + a) % 2 == 1, 4 * (k % 2))
    for k, name in enumerate(GRAPHS)
    for a, aggregation in enumerate(("mean", "precision", "gaussian"))
]


@pytest.mark.parametrize(("name", "aggregation", "ladder", "amortised"), CASES)
def test_the_bound_holds_and_importance_weighting_rises_to_the_truth(
    name, aggregation, ladder, amortised
):
    states = vfg.Sampled(amortised=amortised, ladder=ladder)
    model = small(name, aggregation=aggregation, states=states)
    exact = truth(name, model, ROWS)
    bound = model.bound(ROWS, samples=2000).total
    assert (bound <= exact + 0.03).all()
    assert (bound < exact).any()
    for row, expected in zip(ROWS, exact, strict=True):
        means = [draws_of(model, row, 200, samples).mean() for samples in (1, 10, 200)]
        assert means[0] <= means[1] + 0.02
        assert means[1] <= means[2] + 0.02
        assert means[2] <= expected + 0.02
        assert means[2] == pytest.approx(expected.item(), abs=0.06)


@pytest.mark.parametrize("ladder", [False, True])
@pytest.mark.parametrize("aggregation", ["mean", "gaussian"])
def test_couplings_of_q_leave_it_a_bound(ladder, aggregation):
    name = "tree, 2 latents"
    states = vfg.Sampled(4, ladder, children=False, blocks=2)
    model = small(name, aggregation=aggregation, states=states)
    exact = truth(name, model, ROWS)
    assert (model.bound(ROWS, samples=4000).total <= exact + 0.03).all()
    found = model.log_likelihood(ROWS, samples=20_000)
    torch.testing.assert_close(found, exact, rtol=0.0, atol=0.05)


@pytest.mark.parametrize("latent", ["normal", "laplace"])
@pytest.mark.parametrize("prior", ["laplace", vfg.PerLabel(3)])
def test_other_laws_and_labels_are_bounded_too(latent, prior):
    name = "tree, 2 latents"
    model = small(name, states="sampled", latent=latent, prior=prior)
    labels = torch.tensor([0, 2, -1, 1]) if isinstance(prior, vfg.PerLabel) else None
    exact = truth(name, model, ROWS, labels)
    assert (model.bound(ROWS, samples=4000, labels=labels).total <= exact + 0.03).all()
    found = model.log_likelihood(ROWS, samples=20_000, labels=labels)
    torch.testing.assert_close(found, exact, rtol=0.0, atol=0.05)


def test_concatenation_and_covers_have_unheard_coordinates_and_still_a_bound():
    graph = vfg.Graph(
        [vfg.Node("a", 1), vfg.Node("b", 1), vfg.Node("r", 2, aggregation="concatenation")],
        [vfg.Edge("a", "r"), vfg.Edge("b", "r")],
    )
    model = vfg.VFG(graph, states="sampled", latent="normal").double()
    widened(perturbed(model, 1, size=0.3))
    table = torch.tensor([[0.3, -0.5], [0.3, NAN]]).double()
    exact = quadrature.log_density(model, table, points=201, reach=12.0)
    assert (model.bound(table, samples=2000).total <= exact + 0.03).all()
    found = model.log_likelihood(table, samples=20_000)
    torch.testing.assert_close(found, exact, rtol=0.0, atol=0.03)


def tied(model):
    """Set every leaf edge's Λ = Wᵀ diag(σ⁻²) W, W the decoder's matrix; return W, c, σ by leaf."""
    schedule, found = model.passing.schedule, {}
    for g, group in enumerate(schedule.groups):
        stack = model.passing.group(g)
        block = schedule.blocks[group.child]
        inverse = torch.linalg.inv(stack.flow.linear_part())
        shift = -(inverse @ stack.flow.shift[..., None])[..., 0]
        rows, offset = inverse[:, : block.width], shift[:, : block.width]
        if block.is_leaf:
            scale = model.likelihood_at(group.child).scale()[list(group.child_rows), 0]
            factor = torch.zeros_like(stack.precision.factor)
            factor[:, :, : block.width] = (rows / scale[..., None]).mT
            with torch.no_grad():
                stack.precision.factor.copy_(factor)
        else:
            scale = model.sampling.sampler(block.name).expected_log_scale().exp()
            scale = scale[list(group.child_rows), 0, 0]
        for k, edge in enumerate(group.edges):
            found[edge.child] = rows[k].detach(), offset[k].detach(), scale[k].detach()
    return found


def linear(graph, **options):
    model = vfg.VFG(
        graph,
        flow=vfg.Linear(),
        aggregation="gaussian",
        latent="normal",
        likelihood=vfg.Gaussian(scale=0.7, learn=True),
        **options,
    ).double()
    with torch.no_grad():
        for g in range(len(model.passing.schedule.groups)):
            stack = model.passing.group(g)
            perturbed(stack.flow, g, size=0.4)
        for likelihood in model.likelihoods.values():
            perturbed(likelihood, 5, size=0.3)
        for prior in model.priors.values():
            perturbed(prior, 6, size=0.5)
    return model


def test_on_a_tied_linear_star_every_single_draw_is_the_likelihood():
    model = linear(vfg.Graph.star({"a": 2, "b": 1, "c": 1}, width=3), states="sampled")
    maps = tied(model)
    table = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table[1, :2] = table[2, 2] = table[3, 3] = NAN
    table[4, 1:] = NAN
    table[4, 0] = NAN
    weights = torch.cat([maps[leaf][0] for leaf in "abc"])
    offsets, scales = (torch.cat([maps[leaf][k] for leaf in "abc"]) for k in (1, 2))
    mean = weights @ model.prior_at(len(model.passing.schedule.blocks) - 1).location[0, 0] + offsets
    covariance = weights @ weights.T + torch.diag(scales**2)
    for seed in range(3):
        found = model.bound(table, seed=seed).total
        for row, value in zip(table, found, strict=True):
            seen = ~row.isnan()
            expected = torch.zeros(())
            if seen.any():
                expected = torch.distributions.MultivariateNormal(
                    mean[seen], covariance[seen][:, seen]
                ).log_prob(row[seen])
            assert value.item() == pytest.approx(expected.item(), abs=1e-6)


def test_on_a_tied_linear_tree_the_ladder_is_exact_as_well():
    graph = vfg.Graph.tree({"a": 1, "b": 2, "c": 1, "d": 1}, arity=2, width=2)
    model = linear(graph, states=vfg.Sampled(ladder=True))
    for sampler in model.sampling.samplers.values():
        if sampler.log_noise is not None:
            perturbed_noise = torch.randn(
                sampler.log_noise.shape, generator=torch.Generator().manual_seed(3)
            )
            with torch.no_grad():
                sampler.log_noise.copy_(0.3 * perturbed_noise)
    tied(model)
    table = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table[1, :3] = table[2, 3] = NAN
    first, second = model.bound(table, seed=0).total, model.bound(table, seed=1).total
    torch.testing.assert_close(first, second, rtol=0.0, atol=1e-8)
    many = model.sample(200_000, seed=1)
    # The same Normal in closed form, by its moments: a draw is exact only if log p is.
    normal = torch.distributions.MultivariateNormal(many.mean(0), many.T.cov())
    torch.testing.assert_close(first[:1], normal.log_prob(table[:1]), rtol=0.0, atol=0.05)


def test_on_a_tied_linear_star_every_single_draw_is_the_conditional_density():
    model = linear(vfg.Graph.star({"a": 2, "b": 1, "c": 1}, width=3), states="sampled")
    tied(model)
    table = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table[1, 3] = NAN
    given = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]]).bool()
    expected = model.bound(table).total - model.bound(table, observed=given).total
    for seed in range(3):
        found = model.bound(table, given=given, seed=seed)
        torch.testing.assert_close(found.total, expected, rtol=0.0, atol=1e-8)
    weighted = model.log_likelihood(table, given=given, samples=3)
    torch.testing.assert_close(weighted, expected, rtol=0.0, atol=1e-8)
    every = model.effective_sample_size(table, given=given, samples=3)
    torch.testing.assert_close(every, torch.full_like(every, 3.0))
    assert (found.reconstruction["a"][:2] == 0.0).all()


def test_on_a_tied_linear_tree_conditional_bounds_of_ladders_are_exact_and_nodes_are_pruned():
    graph = vfg.Graph.tree({"a": 1, "b": 2, "c": 1, "d": 1}, arity=2, width=2)
    model = linear(graph, states=vfg.Sampled(ladder=True))
    tied(model)
    table = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table[3, :3] = NAN
    # Nothing beneath one of the inner nodes is given; nothing at all; and only a part of a row.
    given = torch.tensor(
        [[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 1], [0, 0, 0, 1, 0]]
    ).bool()
    expected = model.bound(table).total - model.bound(table, observed=given).total
    found = model.bound(table, given=given, seed=1).total
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize(("name", "aggregation", "ladder", "amortised"), CASES)
def test_conditional_bounds_are_of_the_density_that_draws_of_q_give(
    name, aggregation, ladder, amortised
):
    blocks = 2 if amortised else 0
    states = vfg.Sampled(amortised, ladder, children=not blocks, blocks=blocks)
    model = small(name, aggregation=aggregation, states=states)
    table = ROWS[:2]
    given = torch.tensor([[True, False, True], [False, True, False]])
    ids, draws = torch.arange(2), torch.arange(40_000)
    noise = counted_noise(model.passing.schedule, ids, draws, seed=5)
    cells = table.nan_to_num(0.0)
    drawn = draw_states(model, cells, given, None, {}, noise, len(draws))
    asked = ~given & ~table.isnan()
    scores = log_likelihoods(model, drawn, cells, asked).values()
    score = torch.stack([part.sum(0) for part in scores]).sum(0)
    exact = score.logsumexp(0) - math.log(len(draws))
    found = model.log_likelihood(table, given=given, samples=20_000)
    torch.testing.assert_close(found, exact, rtol=0.0, atol=0.05)
    bound = model.bound(table, given=given, samples=2000).total
    assert (bound <= exact + 0.03).all()


def test_draws_go_up_from_node_to_node_and_cannot_be_exact_on_a_tree():
    graph = vfg.Graph.tree({"a": 1, "b": 2, "c": 1, "d": 1}, arity=2, width=2)
    model = linear(graph, states="sampled")
    tied(model)
    table = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, second = model.bound(table, seed=0).total, model.bound(table, seed=1).total
    assert (first - second).abs().max() > 1e-2


# Parts, units and bits.


def test_parts_add_up_and_pruned_nodes_have_none():
    model = small("tree, 2 latents", states="sampled")
    found = model.bound(ROWS, samples=3)
    total = found.reconstruction.sum() - found.kl.sum()
    torch.testing.assert_close(found.total, total)
    assert found.kl["h"][2].item() == 0.0  # neither a nor b is observed
    assert found.kl["h"][0].item() != 0.0
    assert found.reconstruction["c"][1].item() == 0.0
    empty = model.bound(torch.full((1, 3), NAN).double())
    assert empty.total.item() == 0.0
    assert "kl=" in repr(found)


def test_units_change_a_density_by_their_volume():
    model = small("star, 1 latent", states="sampled", likelihood="gaussian")
    plain, weighed = model.bound(ROWS).total, model.log_likelihood(ROWS, samples=20)
    location, scale = torch.tensor([5.0, -3.0, 1.0]), torch.tensor([2.0, 0.5, 10.0])
    model.scaling.set(location, scale)
    moved = ROWS * scale + location
    volume = (scale.log() * ~ROWS.isnan()).sum(1)
    torch.testing.assert_close(model.bound(moved).total, plain - volume)
    torch.testing.assert_close(model.log_likelihood(moved, samples=20), weighed - volume)


def test_numbers_follow_the_seed_and_leave_the_global_generators_alone(untouched_generators):
    model = small("tree, 2 latents", states="sampled")
    assert torch.equal(model.bound(ROWS).total, model.bound(ROWS).total)
    assert not torch.equal(model.bound(ROWS).total, model.bound(ROWS, seed=1).total)
    one, other = (model.log_likelihood(ROWS, samples=40, seed=seed) for seed in (0, 1))
    assert not torch.equal(one, other)
    assert torch.equal(model.sample(4, seed=1), model.sample(4, seed=1))


def test_chunks_do_not_change_the_result(monkeypatch):
    model = small("tree, 2 latents", states="sampled")
    whole = model.log_likelihood(ROWS, samples=50)
    monkeypatch.setattr("vfg.objectives.bound.AT_ONCE", {"cpu": 16})
    torch.testing.assert_close(model.log_likelihood(ROWS, samples=50), whole)


@pytest.mark.parametrize("aggregation", ["mean", "gaussian"])
def test_a_single_row_is_as_good_as_many(aggregation):
    states = vfg.Sampled(amortised=4)
    model = small("tree, 2 latents", aggregation=aggregation, states=states)
    many = model.log_likelihood(ROWS, samples=30)
    torch.testing.assert_close(model.log_likelihood(ROWS[:1], samples=30), many[:1])


def test_deterministic_states_have_no_bound():
    model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
    for call in (model.bound, model.log_likelihood):
        with pytest.raises(ValueError, match=r"states='sampled', or use model\.surrogate"):
            call(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="importance is a number of draws"):
        model.infer({"a": 0.0}, importance=5)


@pytest.mark.parametrize("states", ["sampled", vfg.Sampled(amortised=8, ladder=True)])
def test_files_keep_sampled_states(tmp_path, states):
    model = small("tree, 2 latents", aggregation="gaussian", states=states)
    vfg.save(model, tmp_path / "model.vfg")
    found = vfg.load(tmp_path / "model.vfg")
    assert found.to_dict() == model.to_dict()
    assert found.states_spec == model.states_spec
    assert torch.equal(found.bound(ROWS).total, model.bound(ROWS).total)


def test_an_empty_table_has_no_rows():
    model = small("tree, 2 latents", states="sampled")
    none = torch.zeros(0, 3).double()
    assert model.bound(none).total.shape == (0,)
    assert model.log_likelihood(none).shape == (0,)
    assert model.sample(0).shape == (0, 3)


# Draws follow the density.


def energy(one, other):
    """Székely's energy distance of two samples."""
    across = torch.cdist(one, other).mean()
    return (2.0 * across - torch.cdist(one, one).mean() - torch.cdist(other, other).mean()).item()


def energy_level(one, other, rounds=99):
    """The share of random relabellings whose energy distance is at least that of the samples."""
    pooled, count = torch.cat([one, other]), len(one)
    found = energy(one, other)
    generator = torch.Generator().manual_seed(0)
    worse = 0
    for _ in range(rounds):
        order = torch.randperm(len(pooled), generator=generator)
        worse += energy(pooled[order[:count]], pooled[order[count:]]) >= found
    return (1 + worse) / (1 + rounds)


@pytest.mark.parametrize("name", ["star, 2 latents", "tree, 2 latents", "DAG, 3 latents"])
@pytest.mark.parametrize("latent", ["normal", "laplace"])
def test_draws_follow_the_density(name, latent):
    """Against states drawn from the joint density on a grid, decoded edge by edge, with noise."""
    model = small(name, 3, states="sampled", latent=latent, likelihood=vfg.Gaussian(scale=0.5))
    states, log_cell = quadrature.grid(model, 41 if "3" in name else 161, 7.0)
    nothing = torch.zeros(3, dtype=torch.bool)
    with torch.no_grad():
        density = (quadrature.log_joint(model, states, torch.zeros(3), nothing) + log_cell).exp()
    assert density.sum().item() == pytest.approx(1.0, abs=0.02)
    generator = torch.Generator().manual_seed(1)
    chosen = torch.multinomial(density, 600, replacement=True, generator=generator)
    picked = {node: state[chosen] for node, state in states.items()}
    with torch.no_grad():
        leaves = [quadrature.expected(model, leaf, picked) for leaf in "abc"]
    noise = torch.randn(600, 3, generator=generator, dtype=torch.float64)
    expected = torch.cat(leaves, dim=1) + 0.5 * noise
    drawn = model.sample(600, seed=2)
    assert energy_level(drawn, expected) > 0.01
    assert energy_level(drawn * 1.3 + 0.2, expected) < 0.05


# Numbers that stay numbers.


def wide(**options):
    graph = vfg.Graph.blocks(28, 28, rows=2, columns=2, arity=2)
    flow = vfg.Coupling(blocks=2, hidden=512)
    states = options.pop("states", vfg.Sampled(amortised=64))
    return vfg.VFG(graph, flow=flow, likelihood="bernoulli", states=states, **options)


@pytest.mark.parametrize("ladder", [False, True])
@pytest.mark.parametrize("aggregation", ["mean", "precision", "gaussian"])
def test_gradients_of_every_term_are_finite_in_bfloat16(aggregation, ladder):
    graph = vfg.Graph.tree({"a": 2, "b": 1, "c": 2}, arity=2, width=4)
    model = perturbed(
        vfg.VFG(
            graph,
            flow=vfg.Coupling(blocks=2, hidden=8),
            aggregation=aggregation,
            states=vfg.Sampled(amortised=8, ladder=ladder),
        ),
        0,
    )
    table = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    table[torch.rand(8, 5, generator=torch.Generator().manual_seed(1)) < 0.3] = NAN
    exact = model.bound(table)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.bound(table)
    assert found.total.dtype == torch.float32
    torch.testing.assert_close(found.total, exact.total, rtol=0.05, atol=0.5)
    for part in (found.reconstruction, found.prior, found.posterior):
        for name, term in part.items():
            model.zero_grad()
            term.sum().backward(retain_graph=True)
            assert term.isfinite().all(), name
            for owner, parameter in model.named_parameters():
                if parameter.grad is not None:
                    assert parameter.grad.isfinite().all(), (name, owner)


@pytest.mark.parametrize("aggregation", ["mean", "gaussian"])
def test_wide_models_stay_finite_far_from_their_start(aggregation):
    model = wide(aggregation=aggregation)
    perturbed(model, 0, size=0.05)
    with torch.no_grad():
        for sampler in model.sampling.samplers.values():
            sampler.log_scale.fill_(1e6)
            if sampler.log_noise is not None:
                sampler.log_noise.fill_(-1e6)
    image = (torch.rand(4, 784, generator=torch.Generator().manual_seed(0)) > 0.8).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.bound(image)
    assert found.total.isfinite().all()
    found.total.mean().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("ladder", [False, True])
def test_wide_models_train_at_a_high_rate_without_breaking(ladder):
    model = wide(states=vfg.Sampled(amortised=32, ladder=ladder))
    images = (torch.rand(16, 784, generator=torch.Generator().manual_seed(0)) > 0.8).float()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for seed in range(4):
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = -model.bound(images, seed=seed).total.mean()
        loss.backward()
        optimiser.step()
        assert loss.isfinite()
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "options", [{}, {"prior": vfg.FlowPrior(2, 64)}, {"prior": vfg.Mixture(8)}]
)
def test_wide_models_learn_at_a_high_rate_in_every_precision(precision, options):
    model = wide(states=vfg.Sampled(amortised=64, ladder=True), **options)
    generator = torch.Generator().manual_seed(0)
    ink = torch.rand(4, 784, generator=generator) ** 4
    images = ink[torch.arange(64) % 4].bernoulli(generator=generator)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for seed in range(30):
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            loss = -model.bound(images, seed=seed).total.mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    assert model.log_likelihood(images, samples=5).isfinite().all()


@pytest.mark.slow
def test_a_wide_model_is_fitted_at_a_high_rate():
    model = wide(states=vfg.Sampled(amortised=64, ladder=True), prior=vfg.FlowPrior(2, 64))
    generator = torch.Generator().manual_seed(0)
    ink = torch.rand(4, 784, generator=generator) ** 4
    images = ink[torch.arange(128) % 4].bernoulli(generator=generator)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "training diverged")
        history = vfg.fit(model, images, epochs=6, batch=32, rate=2e-2, progress=False)
    assert history.stopped == "epochs"
    assert np.isfinite([epoch.objective for epoch in history]).all()
    assert history[history.best].validation < history[0].validation
    assert all(value.isfinite().all() for value in model.state_dict().values())


def test_scales_are_bounded_and_zero_stays_zero():
    assert bound_log_scale(torch.tensor([-1e9, 0.0, 1e9])).tolist() == [-6.0, 0.0, 6.0]
    slope = torch.tensor(0.0, requires_grad=True)
    bound_log_scale(slope).backward()
    assert slope.grad.item() == pytest.approx(1.0)


def test_free_bits_leave_silent_nodes_alone():
    model = small("tree, 2 latents", states="sampled")
    found = model.bound(ROWS)
    plain, free = found.objective(1.0, 0.0), found.objective(1.0, 100.0)
    assert free.item() == pytest.approx(found.reconstruction.sum().mean().item() - 200.0)
    kl = sum(max(found.kl[node].mean().item(), 0.0) for node in ("h", "r"))
    assert plain.item() == pytest.approx(found.reconstruction.sum().mean().item() - kl)
    assert math.isfinite(found.objective(0.3, 0.0).item())


@pytest.mark.parametrize("name", ["tree, 2 latents", "DAG, 2 roots"])
@pytest.mark.parametrize("ladder", [False, True])
def test_a_q_that_sees_less_bounds_all_that_is_scored(name, ladder):
    model = small(name, states=vfg.Sampled(ladder=ladder))
    row, many = ROWS[:1], 20_000
    exact = truth(name, model, row).item()
    everything = torch.ones(many, 3, dtype=torch.bool)
    # In the second case a whole branch is hidden, so that its nodes are pruned.
    for hidden in ([1], [2], [0, 1]):
        seen = everything.clone()
        seen[:, hidden] = False
        noise = generated_noise(torch.Generator().manual_seed(0))
        with torch.no_grad():
            weights = lower_bound(
                model, row.expand(many, -1), seen, None, noise, scored=everything.double()
            ).total
        assert weights.mean() < exact
        assert (weights.logsumexp(0) - math.log(many)).item() == pytest.approx(exact, abs=0.1)


def test_the_effective_sample_size_is_that_of_the_weights():
    model = small("tree, 2 latents", states="sampled")
    many = 500
    # With one draw per row the likelihood is the weight itself.
    weights = draws_of(model, ROWS[0], many, 1).exp()
    expected = (weights.sum().square() / weights.square().sum()).item()
    found = model.effective_sample_size(ROWS[:1].expand(20, -1), samples=many).mean().item()
    assert found == pytest.approx(expected, rel=0.2)
    assert model.effective_sample_size(ROWS, samples=1).tolist() == pytest.approx([1.0] * 4)


def image_chain(amortised):
    """Images of 2 x 2 pixels over two levels, with gated residual convolutions in every part."""
    shape = {"image": (2, 2), "residual": 1}
    options = {**shape, "amortised": amortised} if amortised else {}
    return vfg.VFG(
        vfg.Graph.from_edges([("image", "h"), ("h", "r")], widths=4),
        flow=vfg.Coupling(2, channels=2, **shape),
        states=vfg.Sampled(ladder=True, **options),
        prior=vfg.FlowPrior(2, channels=2, **shape),
        latent="normal",
        likelihood="bernoulli",
    ).double()


def test_files_keep_convolutions(tmp_path):
    model = perturbed(image_chain(4), 0, 0.1)
    vfg.save(model, tmp_path / "model.vfg")
    rows = torch.tensor([[0.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    again = vfg.load(tmp_path / "model.vfg")
    assert again.to_dict() == model.to_dict()
    assert torch.equal(again.bound(rows).total, model.bound(rows).total)


@torch.no_grad()
def test_convolutions_change_q_and_not_the_likelihood():
    moved = widened(perturbed(image_chain(4), 0, 0.1))
    plain = image_chain(0)
    own = plain.state_dict()
    plain.load_state_dict({name: moved.state_dict()[name] for name in own})
    rows = torch.tensor([[0.0, 1.0, 1.0, 0.0], [1.0, NAN, 0.0, NAN]], dtype=torch.float64)
    assert not torch.allclose(moved.bound(rows).total, plain.bound(rows).total)
    found, expected = (one.log_likelihood(rows, samples=40_000) for one in (moved, plain))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.03)


def test_convolutions_of_q_need_images_all_the_way():
    graph = vfg.Graph.blocks(4, 4, rows=2, columns=2, arity=4)
    with pytest.raises(ValueError, match=r"expects nodes of width 16 .* has width 4"):
        vfg.VFG(graph, states=vfg.Sampled(amortised=4, image=(4, 4), residual=1))
    with pytest.raises(ValueError, match="even rows and columns"):
        vfg.Sampled(amortised=4, image=(3, 4), residual=1)
