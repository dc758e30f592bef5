import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy.stats import norm

import vfg
from vfg.gaussian import GaussianVFG

STAR = vfg.Graph.star({"a": 1, "b": 1, "c": 2}, width=2)


def bent_model(components=1, mixture="root", leaf="spline", graph=STAR):
    model = GaussianVFG(graph, components, leaf=leaf, mixture=mixture)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.4 * noise)
    columns = model.sections.columns
    model.scaling.set(torch.linspace(-1, 1, columns), torch.linspace(0.5, 2, columns))
    return model


def density_of_a(model, given_b, points):
    """p(a | b) on a grid, from joint densities alone."""
    table = torch.full((len(points), 4), torch.nan, dtype=torch.float64)
    table[:, 0], table[:, 1] = points, given_b
    density = model.log_prob(table).exp()
    return density / torch.trapezoid(density, points)


@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("components", [1, 3])
def test_bent_densities_integrate_to_one(components, mixture):
    model = bent_model(components, mixture)
    points = torch.linspace(-30, 30, 601, dtype=torch.float64)
    table = torch.full((601, 4), torch.nan, dtype=torch.float64)
    table[:, 3] = points
    assert torch.trapezoid(model.log_prob(table).exp(), points).item() == pytest.approx(1, abs=1e-3)
    first, second = torch.meshgrid(points, points, indexing="ij")
    table = torch.full((first.numel(), 4), torch.nan, dtype=torch.float64)
    table[:, 0], table[:, 2] = first.flatten(), second.flatten()
    density = model.log_prob(table).exp().reshape(first.shape)
    whole = torch.trapezoid(torch.trapezoid(density, points), points).item()
    assert whole == pytest.approx(1, abs=5e-3)


def test_the_density_of_a_coupled_section_integrates_to_one():
    model = bent_model(leaf=vfg.Coupling(blocks=2, hidden=4))
    points = torch.linspace(-60, 60, 601, dtype=torch.float64)
    first, second = torch.meshgrid(points, points, indexing="ij")
    table = torch.full((first.numel(), 4), torch.nan, dtype=torch.float64)
    table[:, 2], table[:, 3] = first.flatten(), second.flatten()
    density = model.log_prob(table).exp().reshape(first.shape)
    whole = torch.trapezoid(torch.trapezoid(density, points), points).item()
    assert whole == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("components", [1, 3])
def test_moments_and_quantiles_are_those_of_the_density(components, mixture):
    model = bent_model(components, mixture)
    points = torch.linspace(-30, 30, 60001, dtype=torch.float64)
    density = density_of_a(model, 0.7, points)
    answer = model.infer({"b": torch.tensor([0.7], dtype=torch.float64)}, targets=["a"])
    mean = torch.trapezoid(points * density, points)
    deviation = torch.trapezoid((points - mean).square() * density, points).sqrt()
    assert answer.mean["a"].item() == pytest.approx(mean.item(), abs=1e-5)
    assert answer.std["a"].item() == pytest.approx(deviation.item(), abs=1e-5)
    cumulative = torch.cumulative_trapezoid(density, points)
    for level in (0.05, 0.5, 0.9):
        expected = points[1:][cumulative >= level][0].item()
        assert answer.quantile(level)["a"].item() == pytest.approx(expected, abs=3e-3)


def energy(first, second):
    """The energy distance between two samples."""
    cross = torch.cdist(first, second).mean()
    return (
        2 * cross - torch.cdist(first, first).mean() - torch.cdist(second, second).mean()
    ).item()


@pytest.mark.parametrize("leaf", ["affine", "spline", vfg.Coupling(blocks=2, hidden=4)])
@pytest.mark.parametrize("mixture", ["root", "loadings"])
def test_draws_follow_the_density(leaf, mixture):
    model = bent_model(2, mixture, leaf)
    value = torch.tensor([0.7], dtype=torch.float64)
    drawn = model.infer({"b": value}, targets=["c"]).samples(1000)["c"][:, 0]
    points = torch.linspace(-25, 25, 251, dtype=torch.float64)
    first, second = torch.meshgrid(points, points, indexing="ij")
    table = torch.full((first.numel(), 4), torch.nan, dtype=torch.float64)
    table[:, 1], table[:, 2], table[:, 3] = value, first.flatten(), second.flatten()
    generator = torch.Generator().manual_seed(5)
    cells = torch.multinomial(model.log_prob(table).exp(), 2000, True, generator=generator)
    jitter = 0.2 * (torch.rand(2000, 2, generator=generator, dtype=torch.float64) - 0.5)
    expected = table[cells][:, 2:] + jitter
    # The expected distance of equal distributions is about the mean distance over the sizes.
    noise = torch.cdist(expected, expected).mean().item() * (1 / 1000 + 1 / 2000)
    assert energy(drawn, expected) < 4 * noise
    assert energy(drawn + 0.5 * drawn.std(0), expected) > 10 * noise


def test_draws_of_all_targets_are_joint():
    model = bent_model(leaf="affine")
    answer = model.infer({"b": 0.7}, targets=["c", "root"])
    assert answer.joint
    assert bool(answer.converged.all())
    draws = torch.cat([answer.samples(4000)[name][:, 0] for name in ("c", "root")], dim=1)
    exact = answer.covariance("root")[0]
    torch.testing.assert_close(torch.cov(draws[:, 2:].mT), exact.to(draws), atol=0.06, rtol=0)
    values = model.linear.values()
    loadings = values.loadings[0, 2:].detach() * model.scaling.scale[2:, None]
    expected = exact.double() @ loadings.mT
    found = torch.cov(draws.mT)[2:, :2].double()
    torch.testing.assert_close(found, expected, atol=0.15, rtol=0)


@pytest.mark.parametrize("leaf", ["affine", "spline", vfg.Coupling(blocks=1, hidden=4)])
def test_draws_depend_on_row_ids_alone(leaf):
    model = bent_model(3, "loadings", leaf)
    table = torch.full((600, 4), torch.nan, dtype=torch.float64)
    table[::3, 1] = torch.linspace(-1, 1, 200).double()
    answer = model.infer(table, seed=2)
    whole = answer.samples(20)["c"]
    again = model.infer(table, targets=["c", "root"], seed=2).samples(17)["c"]
    assert torch.equal(whole[:17], again)
    # Of two tiles, in another order.
    chosen = [597, 90, 7, 596]
    some = model.infer(table[chosen], seed=2, row_ids=chosen)
    assert torch.equal(some.samples(3)["c"], whole[:3, chosen])
    assert torch.equal(some.mean["c"], answer.mean["c"][chosen])
    assert not torch.equal(model.infer(table, seed=3).samples(3)["c"], whole[:3])


def test_observed_values_come_back_bit_for_bit():
    model = bent_model()
    table = torch.tensor([[0.1, math.nan, 1e6, math.nan], [math.nan, 1 / 3, math.nan, 2.0]])
    answer = model.infer(table)
    seen = ~table.isnan()
    for found in (
        answer.mean,
        answer.quantile(0.3),
        {k: v[0] for k, v in answer.samples(1).items()},
    ):
        whole = torch.cat([found[leaf] for leaf in "abc"], dim=1)
        assert torch.equal(whole[seen], table[seen])
    spread = torch.cat([answer.std[leaf] for leaf in "abc"], dim=1)
    assert bool((spread[seen] == 0).all())
    assert bool((spread[~seen] > 0).all())


def test_frames_and_names_of_columns():
    pandas = pytest.importorskip("pandas")
    graph = vfg.Graph.star([vfg.Node("s", 2, columns=["p", "q"]), vfg.Node("t", 1, columns=["r"])])
    model = bent_model(graph=graph)
    frame = pandas.DataFrame(
        {"r": [1.0, None], "p": [None, 2.0], "q": [0.5, 0.5]}, index=["i", "j"]
    )
    found = model.infer(frame, targets=["p", "t"]).to_frame(std=True, quantiles=[0.5])
    assert list(found.columns) == ["p", "r", "p std", "r std", "p q0.5", "r q0.5"]
    assert list(found.index) == ["i", "j"]
    assert found.loc["j", "p"] == 2.0


def test_intervals_cover_as_often_as_they_say():
    generator = torch.Generator().manual_seed(0)
    loadings = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    shape = (4000, 5)
    latent = torch.randn(4000, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    table = (0.5 * (latent @ loadings.mT + 0.6 * noise)).sinh()
    hidden = torch.rand(shape, generator=generator) < 0.3
    gaps = torch.where(hidden, torch.nan, table)
    model = GaussianVFG(vfg.Graph.star({f"x{k}": 1 for k in range(5)}, width=2), leaf="spline")
    model.fit(gaps[:2000], steps=100)
    answer = model.infer(gaps[2000:])
    truth, unseen = table[2000:], hidden[2000:]
    for level in (0.5, 0.8, 0.9, 0.95):
        low, high = (
            torch.cat(list(answer.quantile(q).values()), dim=1)
            for q in (0.5 - level / 2, 0.5 + level / 2)
        )
        inside = ((truth > low) & (truth < high))[unseen].double().mean().item()
        error = math.sqrt(level * (1 - level) / unseen.sum().item())
        assert inside == pytest.approx(level, abs=4 * error)


def test_quantiles_of_affine_leaves_are_normal_ones():
    model = bent_model(leaf="affine")
    answer = model.infer({"b": np.array([0.7])})
    levels = [0.1, 0.5, 0.99]
    found = answer.quantile(levels)["c"][:, 0]
    expected = norm.ppf(levels)[:, None] * answer.std["c"].numpy() + answer.mean["c"].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5])
def test_levels_outside_of_zero_and_one_are_refused(level):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        bent_model().infer({"a": 0.0}).quantile(level)


def test_a_number_of_draws_must_be_positive():
    with pytest.raises(ValueError, match="must be a positive whole number"):
        bent_model().infer({"a": 0.0}).samples(0)


@pytest.mark.parametrize("mixture", ["root", "loadings"])
def test_a_function_of_the_mean_is_taken_at_every_component(mixture):
    model = bent_model(3, mixture, leaf="affine")
    table = torch.randn(40, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    table[:, 0], table[::2, 3] = torch.nan, torch.nan
    answer = model.infer(table)
    straight = answer.mean_through(lambda values: 2.0 * values + 1.0)
    for leaf, mean in answer.mean.items():
        torch.testing.assert_close(straight[leaf], 2.0 * mean + 1.0, rtol=1e-9, atol=1e-9)
    # One component after the other, each as a model of its own.
    shares, total = answer.responsibilities, 0.0
    for component in range(3):
        alone = deepcopy(model)
        with torch.no_grad():
            weights = torch.full((3,), -1e3, dtype=torch.float64)
            weights[component] = 0.0
            alone.linear.log_weights.copy_(weights)
        total = total + shares[:, component, None] * alone.infer(table).mean["a"].exp()
    torch.testing.assert_close(answer.mean_through(torch.exp)["a"], total, rtol=1e-9, atol=1e-9)
    known = ~table[:, 3].isnan()
    found = answer.mean_through(torch.exp)["c"][known, 1]
    torch.testing.assert_close(found, table[known, 3].exp(), rtol=1e-12, atol=1e-12)


def test_functions_of_the_mean_need_affine_leaves():
    with pytest.raises(ValueError, match="need affine leaves"):
        bent_model().infer({"b": 0.0}).mean_through(torch.exp)


def test_answers_follow_parameters_that_are_changed_moved_or_loaded():
    model = GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
    model.fit([[1.0, 2.0], [2.0, 4.1], [3.0, 5.9], [4.0, 8.2]])
    before = model.infer({"a": 2.0}).mean["b"].clone()
    with torch.no_grad():
        model.linear.offsets.add_(1.0)
    assert not torch.allclose(model.infer({"a": 2.0}).mean["b"], before)
    other = GaussianVFG.from_dict(model.to_dict())
    other.infer({"a": 2.0})
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.infer({"a": 2.0}).mean["b"], model.infer({"a": 2.0}).mean["b"])
    rounded = model.infer({"a": 2.0}).mean["b"].clone()
    model.float().double()
    assert torch.allclose(model.infer({"a": 2.0}).mean["b"], rounded, atol=1e-4)
    assert not torch.equal(model.infer({"a": 2.0}).mean["b"], rounded)
