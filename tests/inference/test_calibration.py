"""The fitted spread against known residual scales, and the coverage of its intervals."""

import math

import pytest
import torch
from strategies import perturbed

import vfg
import vfg.inference.calibration
from vfg.inference import infer
from vfg.inference.calibration import Calibration, fit_calibration, noise_scale

SIGMAS = (0.2, 0.5, 1.0)


def mean_model(sigmas=SIGMAS, rows=4000, seed=0):
    """Identity edges on a star of scalars, and data around one truth per row."""
    graph = vfg.Graph.star(dict.fromkeys("abc", 1), width=1)
    model = vfg.VFG(graph, aggregation="mean").double()
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    return model, truth + noise * torch.tensor(sigmas, dtype=torch.float64)


def one_held_out(rows, seed=1):
    """One hidden cell per row."""
    hidden = torch.randint(3, (rows,), generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.one_hot(hidden, 3).bool()


def test_a_fresh_spread_is_that_of_the_likelihood():
    graph = vfg.Graph.star({"a": 2, "b": 1}, width=2)
    likelihood = {"a": vfg.Gaussian(scale=0.3), "b": vfg.Gaussian(scale=2.0)}
    model = vfg.VFG(graph, likelihood=likelihood)
    mask = torch.tensor([[True, False, True]])
    torch.testing.assert_close(noise_scale(model, mask), torch.tensor([[0.3, 0.3, 2.0]]))


def test_a_spread_is_kept_with_the_model_but_not_trained():
    spread = Calibration(columns=3, leaves=2)
    names = ["log_temperature", "log_noise", "by_observed", "log_softness", "knows_roots"]
    assert list(spread.state_dict()) == names
    assert not list(spread.parameters())


def test_noise_is_right_for_every_mask():
    model, table = mean_model(rows=8000)
    held_out = one_held_out(len(table))
    fit_calibration(model, table, ~held_out, held_out, most_rows=8000)
    a, b, c = SIGMAS
    # The prediction of a from b and c is their mean, so its error is theirs and a's own.
    cases = {
        (False, True, True): math.sqrt(a**2 + (b**2 + c**2) / 4),
        (False, True, False): math.sqrt(a**2 + b**2),
        (False, False, True): math.sqrt(a**2 + c**2),
        (False, False, False): math.sqrt(1 + a**2),
    }
    for mask, expected in cases.items():
        found = noise_scale(model, torch.tensor([mask]))[0, 0].item()
        assert found == pytest.approx(expected, rel=0.06), mask


def test_noise_is_right_within_sampling_error_when_the_family_holds():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
    model = vfg.VFG(graph, aggregation="mean").double()
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(6000, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(6000, 2, generator=generator, dtype=torch.float64)
    table = torch.cat([truth, truth], 1) + noise * torch.tensor([0.1, 0.4]).double()
    held_out = torch.tensor([True, False]).expand(6000, 2)
    fit_calibration(model, table, ~held_out, held_out, most_rows=6000)
    for seen, variance in ((True, 0.01 + 0.16), (False, 1.0 + 0.01)):
        found = noise_scale(model, torch.tensor([[False, seen]]))[0, 0].item()
        # 4.5 standard errors of a standard deviation from 6000 residuals.
        assert found == pytest.approx(math.sqrt(variance), rel=4.5 / math.sqrt(2 * 6000))


@pytest.mark.parametrize("mask", [(False, True, True), (True, False, False), (False, False, False)])
def test_intervals_without_precision_cover(mask):
    model, table = mean_model(rows=4000)
    held_out = one_held_out(len(table))
    fit_calibration(model, table, ~held_out, held_out, most_rows=4000)
    _, fresh = mean_model(rows=3000, seed=77)
    observed = torch.tensor(mask).expand_as(fresh)
    answer = infer(model, fresh, observed=observed)
    assert_cover(answer, fresh, observed)


def assert_cover(answer, fresh, observed, low=0.87, high=0.93):
    ends = answer.quantile([0.05, 0.95])
    ends = torch.cat([ends[leaf] for leaf in answer.targets], dim=-1)
    inside = (fresh >= ends[0]) & (fresh <= ends[1])
    for column in range(fresh.shape[1]):
        hidden = ~observed[:, column]
        if hidden.any():
            assert low < inside[hidden, column].double().mean() < high, column


def factor_model(temperature=1.0):
    """Four scalars that load on two factors: messages are exact but for a wrong temperature."""
    graph = vfg.Graph.star(dict.fromkeys("abcd", 1), width=2)
    model = vfg.VFG(graph, flow=vfg.Linear(), aggregation="gaussian").double()
    angles = torch.tensor([0.0, 0.6, 1.1, 1.9], dtype=torch.float64)
    rows = [
        torch.stack([angles.cos(), angles.sin()], 1),
        torch.stack([-angles.sin(), angles.cos()], 1),
    ]
    matrices = torch.stack(rows, dim=1)
    stack = model.passing.group(0)
    stack.flow.set_matrix(matrices, torch.zeros(4, 2).double())
    loadings = torch.linalg.inv(matrices)[:, :1]
    sigmas = torch.tensor([0.3, 0.4, 0.5, 0.6], dtype=torch.float64)
    with torch.no_grad():
        stack.precision.factor.zero_()
        for j in range(4):
            stack.precision.factor[j, :, :1] = loadings[j].T / sigmas[j]
    return model, loadings[:, 0] / math.sqrt(temperature), sigmas / math.sqrt(temperature)


def factor_rows(loadings, sigmas, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    return factors @ loadings.T + noise * sigmas


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_temperature_and_noise_of_an_exact_model_are_found(temperature):
    # All variances divided by the temperature: the gains stay, the posterior narrows.
    model, loadings, sigmas = factor_model(temperature)
    table = factor_rows(loadings, sigmas, 6000, seed=1)
    generator = torch.Generator().manual_seed(2)
    held_out = torch.rand(table.shape, generator=generator) < 0.25
    spread = fit_calibration(model, table, ~held_out, held_out, most_rows=3000)
    assert spread.log_temperature.exp().item() == pytest.approx(temperature, rel=0.12)
    found = noise_scale(model, held_out[:1])[0]
    torch.testing.assert_close(found, sigmas, rtol=0.15, atol=0.0)
    fresh = factor_rows(loadings, sigmas, 1500, seed=3)
    observed = torch.rand(fresh.shape, generator=generator) < 0.5
    assert_cover(infer(model, fresh, observed=observed), fresh, observed)


def test_intervals_of_a_bent_model_cover_after_the_fit():
    graph = vfg.Graph.star({"a": 1, "b": 1, "c": 2}, width=3)
    flow = vfg.Coupling(blocks=2, hidden=8)
    model = perturbed(vfg.VFG(graph, flow=flow, aggregation="gaussian").double(), 0, size=0.2)
    table = model.sample(3000, seed=1).double()
    generator = torch.Generator().manual_seed(2)
    held_out = torch.rand(table.shape, generator=generator) < 0.3
    fit_calibration(model, table, ~held_out, held_out, most_rows=1000)
    fresh = model.sample(1500, seed=9).double()
    observed = torch.rand(fresh.shape, generator=generator) < 0.6
    assert_cover(infer(model, fresh, observed=observed), fresh, observed, 0.86, 0.94)


@pytest.mark.parametrize("aggregation", ["mean", "gaussian"])
def test_the_fit_depends_on_its_seed_alone(aggregation, untouched_generators):
    graph = vfg.Graph.star({"a": 1, "b": 2}, width=2)
    model = perturbed(vfg.VFG(graph, aggregation=aggregation), 0)
    table = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    held_out = torch.rand(300, 3, generator=torch.Generator().manual_seed(1)) < 0.2
    one, two, other = (
        fit_calibration(model, table, ~held_out, held_out, seed=seed).state_dict()
        for seed in (3, 3, 4)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert all(value.isfinite().all() for value in one.values())


@pytest.mark.parametrize("aggregation", ["mean", "gaussian"])
def test_the_fit_survives_odd_tables(aggregation):
    graph = vfg.Graph.star({"a": 1, "b": 1, "flag": 1}, width=2)
    likelihood = {"flag": "bernoulli", "*": "gaussian"}
    model = vfg.VFG(graph, aggregation=aggregation, likelihood=likelihood)
    table = torch.zeros(20, 3)
    nothing = torch.zeros(20, 3, dtype=torch.bool)
    held_out = nothing.clone()
    held_out[:, 0] = True
    for seen, hidden in ((~nothing, nothing), (nothing, nothing), (~held_out, held_out)):
        spread = fit_calibration(model, table, seen, hidden)
        assert all(value.isfinite().all() for value in spread.state_dict().values())
        assert (noise_scale(model, seen) > 0).all()
    assert model.spread is spread


def discrete_pair(aggregation, seed=0):
    """Edges are identities: the state of b is a, its log-odds are 4 a before calibration."""
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
    likelihood = {"a": "gaussian", "b": "bernoulli"}
    return vfg.VFG(graph, aggregation=aggregation, likelihood=likelihood, seed=seed)


def test_chances_of_discrete_leaves_are_fitted_by_log_score():
    """Where log-odds are a in truth, the softness is 4."""
    model, generator = discrete_pair("mean"), torch.Generator().manual_seed(0)
    a = 2.0 * torch.randn(2000, 1, generator=generator)
    b = (torch.rand(2000, 1, generator=generator) < a.sigmoid()).float()
    seen = torch.tensor([True, False]).expand(2000, 2)
    fit_calibration(model, torch.cat([a, b], dim=1), seen, ~seen)
    assert model.spread.log_softness[1].exp().item() == pytest.approx(4.0, rel=0.25)
    points = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])
    found = model.infer({"a": points}, ["b"]).mean["b"][:, 0]
    torch.testing.assert_close(found, points.sigmoid(), atol=0.06, rtol=0.0)


@pytest.mark.parametrize("aggregation", ["mean", "gaussian"])
def test_draws_of_discrete_leaves_agree_with_mean_and_probabilities(aggregation):
    graph = vfg.Graph.star({"a": 1, "b": 1, "c": 1}, width=2)
    likelihood = {"a": "gaussian", "b": "bernoulli", "c": vfg.Categorical(3)}
    model = perturbed(vfg.VFG(graph, aggregation=aggregation, likelihood=likelihood), 3)
    model.spread.log_softness[1] = 0.5
    answer = model.infer({"a": [-1.0, 0.5, 2.0]}, ["b", "c"])
    draws = answer.samples(8000)
    shares = torch.stack([(draws["c"][..., 0] == code).double().mean(0) for code in range(3)], 1)
    ones = draws["b"].double().mean(0)
    torch.testing.assert_close(ones, answer.mean["b"].double(), atol=0.025, rtol=0.0)
    torch.testing.assert_close(shares, answer.probabilities["c"].double(), atol=0.025, rtol=0.0)
    spread = answer.mean["b"] * (1.0 - answer.mean["b"])
    torch.testing.assert_close(answer.std["b"], spread.sqrt())


def test_samples_of_a_trained_model_spread_as_the_table_does():
    generator = torch.Generator().manual_seed(0)
    cause = torch.randn(500, 1, generator=generator)
    table = torch.cat([cause, 0.5 * cause, 3.0 + 2.0 * cause], dim=1)
    table = table + 0.3 * torch.randn(500, 3, generator=generator)
    graph = vfg.Graph.star({"a": 1, "b": 1, "c": 1}, width=2)
    for aggregation in ("mean", "gaussian"):
        model = vfg.VFG(graph, aggregation=aggregation, flow=vfg.Coupling(blocks=2, hidden=8))
        vfg.fit(model, table, epochs=5, progress=False)
        drawn = model.sample(4000)
        torch.testing.assert_close(drawn.std(0), table.std(0), rtol=0.25, atol=0.0)
        torch.testing.assert_close(drawn.mean(0), table.mean(0), rtol=0.0, atol=0.5)


@pytest.mark.parametrize("widest", [64, 1])  # factors of roots: matrices, and deviations alone
@pytest.mark.parametrize("aggregation", ["precision", "gaussian"])
def test_answers_without_evidence_are_distributed_as_samples(aggregation, widest, monkeypatch):
    """Far from the prior: the data are narrow and lie off the centre."""
    monkeypatch.setattr(vfg.inference.calibration, "WIDEST_ROOT", widest)
    graph = vfg.Graph.star({"a": 2, "b": 2}, width=2)
    model = perturbed(
        vfg.VFG(graph, flow=vfg.Coupling(blocks=1, hidden=4), aggregation=aggregation), 1
    ).double()
    generator = torch.Generator().manual_seed(0)
    cells = 0.5 + 0.1 * torch.randn(300, 4, generator=generator, dtype=torch.float64)
    every = torch.ones_like(cells).bool()
    model.spread = fit_calibration(model, cells, every, ~every)
    model.is_trained.fill_(True)
    drawn = model.sample(2_000)
    rows = torch.full((3, 4), torch.nan, dtype=torch.float64)
    rows[1] = cells[0]
    rows[1, 3] = torch.nan
    answer = model.infer(rows, padded=False)
    alone = torch.cat([answer.samples(2_000)[leaf][:, 0] for leaf in "ab"], dim=1)
    torch.testing.assert_close(alone.mean(0), drawn.mean(0), rtol=0.0, atol=0.05)
    torch.testing.assert_close(alone.std(0), drawn.std(0), rtol=0.1, atol=0.0)
    stated = torch.cat([answer.std[leaf][0] for leaf in "ab"])
    torch.testing.assert_close(stated, drawn.std(0), rtol=0.1, atol=0.0)
    # Evidence about a latent node is evidence too, and other rows stay as they were.
    states = model.infer({"root": [[0.0, 0.0]]}).mean["a"]
    torch.testing.assert_close(states[0], model.decode({"root": [[0.0, 0.0]]})["a"][0])
    monkeypatch.setattr(vfg.inference.calibration, "knows_roots", lambda _: False)
    before = model.infer(rows, padded=False)
    assert torch.equal(before.std["b"][1], answer.std["b"][1])
    assert not torch.allclose(before.mean["b"][0], answer.mean["b"][0], atol=0.1)


@pytest.mark.parametrize("aggregation", ["mean", "precision", "gaussian"])
def test_the_roots_have_the_moments_that_they_had_in_training(aggregation, monkeypatch):
    """Covariance of the states, and the mean of what is uncertain about each."""
    graph = vfg.Graph.star({"a": 2, "b": 2}, width=2)
    model = perturbed(vfg.VFG(graph, aggregation=aggregation), 1).double()
    cells = torch.randn(300, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    states = model.encode(cells)
    expected = torch.cov(states["root"].T, correction=0)
    if aggregation == "precision":
        expected = expected + (1.0 / states.precision["root"]).mean(0).diag()
    if aggregation == "gaussian":
        expected = expected + states.precision["root"].inverse().mean(0)
    for widest in (64, 1):
        monkeypatch.setattr(vfg.inference.calibration, "WIDEST_ROOT", widest)
        every = torch.ones_like(cells).bool()
        spread = fit_calibration(model, cells, every, ~every)
        tau = 1.0 if aggregation == "mean" else spread.log_temperature.exp()
        own = torch.cov(states["root"].T, correction=0)
        wanted = own + (expected - own) / tau
        factor = spread.root_factor0[0]
        found = factor @ factor.T if widest == 64 else factor.square().diag()
        wanted = wanted if widest == 64 else wanted.diag().diag()
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(spread.root_mean0[0], states["root"].mean(0))
