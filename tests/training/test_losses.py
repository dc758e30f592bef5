"""Training on the bound: what it learns, what it sees, and what it refuses."""

import pytest
import torch

import vfg
from vfg.objectives.bound import lower_bound
from vfg.sampling import generated_noise
from vfg.training.data import TrainingTable
from vfg.training.losses import BoundLoss, RowsLoss, SurrogateLoss, held_out_score

NAN = float("nan")


def table(rows=400, seed=0):
    """Two sections that follow one number, and one that does not."""
    generator = torch.Generator().manual_seed(seed)
    z, noise = torch.randn(rows, 1, generator=generator), torch.randn(rows, 4, generator=generator)
    return torch.cat([z, -z, 2.0 * z, torch.zeros_like(z)], dim=1) + 0.3 * noise


def small(**options):
    graph = vfg.Graph.star({"a": 2, "b": 1, "c": 1}, width=3)
    options = {"latent": "normal", "states": vfg.Sampled(amortised=16), **options}
    flow = vfg.Coupling(blocks=4, hidden=16, activation="silu")
    return vfg.VFG(graph, flow=flow, likelihood=vfg.Gaussian(learn=True), **options)


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["mean", "gaussian"])
def test_training_raises_the_bound_and_teaches_conditional_answers(aggregation):
    model, test = small(aggregation=aggregation), table(200, seed=1)
    before = model.log_likelihood(test, samples=50).mean()
    history = vfg.fit(
        model, table(), epochs=40, batch=40, rate=1e-2, warmup=3, validation=0.05, progress=False
    )
    after = model.log_likelihood(test, samples=50).mean()
    assert after > before + 1.0
    # As if the columns had nothing to do with each other.
    apart = torch.distributions.Normal(table().mean(0), table().std(0))
    assert after > apart.log_prob(test).sum(1).mean() + 1.0
    answer = model.infer(torch.where(torch.tensor([True, True, False, True]), test, NAN))
    error = (answer.mean["b"] - test[:, 2:3]).square().mean()
    assert error < 0.2 * test[:, 2].var()
    assert history[-1].kl > 0.0
    assert history[-1].edge == 0.0


def test_the_weight_of_the_kl_terms_warms_up():
    history = vfg.fit(small(), table(100), epochs=4, warmup=2, batch=50, progress=False)
    assert [epoch.beta for epoch in history] == [0.0, 0.5, 1.0, 1.0]
    first = history[0]
    assert first.objective == pytest.approx(first.reconstruction, rel=1e-4)


def test_free_bits_keep_information_in_the_latent_states():
    settings = {"epochs": 15, "batch": 50, "rate": 5e-3, "progress": False, "masking": None}
    noise = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    kept, lost = small(), small()
    vfg.fit(kept, noise, free_bits=1.0, **settings)
    vfg.fit(lost, noise, **settings)
    assert kept.bound(noise).kl["root"].mean() > lost.bound(noise).kl["root"].mean()
    with pytest.raises(ValueError, match="free_bits must be at least 0"):
        vfg.fit(small(), noise, free_bits=-1.0, **settings)


def test_a_masked_step_bounds_what_it_shows():
    model = small()
    cells, seen = table(8), torch.ones(8, 4, dtype=torch.bool)
    seen[:, 2] = False
    torch.manual_seed(0)
    one = BoundLoss(model, 0.0)(cells, seen, seen.float(), None, None, torch.ones(()))
    torch.manual_seed(0)
    other = BoundLoss(model, 0.0)(
        cells * torch.tensor([1.0, 1.0, 9.0, 1.0]), seen, seen.float(), None, None, torch.ones(())
    )
    assert torch.equal(one, other)


def test_masked_training_never_scores_what_it_hides(monkeypatch):
    shown = []

    def spy(self, cells, seen, scored, labels, given, beta):
        shown.append(torch.equal(seen.float(), scored))
        return plain(self, cells, seen, scored, labels, given, beta)

    plain = BoundLoss.forward
    monkeypatch.setattr(BoundLoss, "forward", spy)
    vfg.fit(small(), table(100), epochs=1, batch=25, progress=False)
    assert shown
    assert all(shown)


def test_conditional_steps_add_the_bound_of_hidden_cells_to_that_of_all():
    model, cells = small(), table(50)
    seen, given = (
        torch.ones(50, 4, dtype=torch.bool),
        torch.tensor([[True, True, False, True]] * 50),
    )
    rows = (cells, seen, seen.float(), None, given, torch.tensor(0.7))
    torch.manual_seed(0)
    loss = BoundLoss(model, 0.0, conditional=0.5)(*rows)
    objectives = []
    for known in (None, given):
        torch.manual_seed(0)  # the same draws
        bound = lower_bound(model, cells, seen, None, generated_noise(None), given=known)
        objectives.append(bound.objective(0.7, 0.0).item())
    assert loss[0].item() == pytest.approx(objectives[0] + 0.5 * objectives[1], rel=1e-5)
    assert abs(objectives[1]) > 0.1
    torch.manual_seed(0)
    many, *_ = BoundLoss(model, 0.0, samples=20, conditional=0.5)(*rows[:-1], torch.ones(()))
    weighted = model.log_likelihood(cells, samples=2000).mean()
    weighted = weighted + 0.5 * model.log_likelihood(cells, samples=2000, given=given).mean()
    assert many.item() == pytest.approx(weighted.item(), abs=0.3)


def test_conditional_masking_shows_all_cells_to_q_and_gives_some(monkeypatch):
    kinds = []

    def spy(self, cells, seen, scored, labels, given, beta):
        assert seen.all()
        assert (scored == 1.0).all()
        kinds.append(None if given is None else given.float().mean().item())
        return plain(self, cells, seen, scored, labels, given, beta)

    plain = BoundLoss.forward
    monkeypatch.setattr(BoundLoss, "forward", spy)
    options = {"epochs": 1, "batch": 100, "progress": False, "validation": 0.0}
    vfg.fit(small(), table(400), masking=vfg.Masking(conditional=0.5), **options)
    assert [kind is None for kind in kinds] == [True, False] * 2
    assert all(0.3 < kind < 0.95 for kind in kinds[1::2])
    with pytest.raises(ValueError, match="expects conditional to be at least 0, but got -1"):
        vfg.Masking(conditional=-1.0)
    with pytest.raises(ValueError, match=r"conditional=0\.5 is for sampled states"):
        vfg.fit(
            small(states="deterministic"),
            table(400),
            masking=vfg.Masking(conditional=0.5),
            **options,
        )


@pytest.mark.slow
def test_conditional_steps_bring_draws_of_q_nearer_to_the_closed_form():
    loadings = torch.tensor([1.0, -1.0, 2.0, 0.0])
    covariance, known = loadings[:, None] * loadings + 0.09 * torch.eye(4), [0, 1, 3]
    test, given = table(400, seed=1), torch.tensor([True, True, False, True]).expand(400, 4)
    whole, part = (
        torch.distributions.MultivariateNormal(torch.zeros(len(k)), covariance[k][:, k])
        .log_prob(test[:, k])
        .mean()
        for k in ([0, 1, 2, 3], known)
    )
    found = []
    for weight in (0.0, 1.0):
        model, masking = small(), vfg.Masking(conditional=weight)
        options = {"epochs": 40, "batch": 40, "rate": 1e-2, "warmup": 3, "validation": 0.05}
        vfg.fit(model, table(), masking=masking, progress=False, **options)
        found.append(model.log_likelihood(test, given=given, samples=50).mean())
    assert found[0] < found[1] < whole - part + 0.02
    assert found[1] > whole - part - 0.2


@torch.no_grad()
def test_held_out_cells_are_scored_by_their_mean_probability():
    model = small(states="deterministic")
    cells, seen = table(6), torch.ones(6, 4, dtype=torch.bool)
    seen[:, 2] = False
    scored = (~seen).float()
    found = held_out_score(model, cells, seen, scored, None)
    assert found.item() == pytest.approx(
        model.objective(cells, seen, scored, None, 0.0).total.sum().item()
    )
    drawn = held_out_score(small(), cells, seen, scored, None)
    assert torch.equal(drawn, held_out_score(small(), cells, seen, scored, None))
    assert SurrogateLoss(model)(cells, seen, scored, None, torch.ones(())).shape == (6,)


def test_runs_with_sampled_states_resume_to_the_bit(tmp_path):
    settings = {"batch": 50, "progress": False, "validation": 0.1}
    whole, again = small(), small()
    vfg.fit(whole, table(100), epochs=3, checkpoint=tmp_path / "one", **settings)
    vfg.fit(again, table(100), epochs=3, checkpoint=tmp_path / "two", **settings)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_input_dropout_hides_cells_from_messages_and_scores_them(monkeypatch):
    shares = []

    def spy(self, cells, seen, scored, labels, given, beta):
        assert torch.equal(scored, torch.ones_like(scored))
        shares.append(seen.float().mean().item())
        return plain(self, cells, seen, scored, labels, given, beta)

    plain = BoundLoss.forward
    monkeypatch.setattr(BoundLoss, "forward", spy)
    options = {"epochs": 1, "batch": 100, "progress": False, "masking": None, "validation": 0.0}
    vfg.fit(small(), table(400), input_dropout=0.25, **options)
    assert sum(shares) / len(shares) == pytest.approx(0.75, abs=0.05)
    with pytest.raises(ValueError, match=r"input_dropout=0\.2 is for sampled states"):
        vfg.fit(small(states="deterministic"), table(400), input_dropout=0.2, **options)
    with pytest.raises(ValueError, match="input_dropout is a share from 0 to below 1"):
        vfg.fit(small(), table(400), input_dropout=1.0, **options)


def test_rows_are_scored_by_the_weighted_bound_of_as_many_samples():
    model, cells = small().eval(), table(30)
    data = TrainingTable(cells, torch.ones_like(cells, dtype=torch.bool), None)
    for samples in (2, 5):
        weighted = model.log_likelihood(cells, samples=samples).mean().item()
        loss = RowsLoss(model, data, 1.0, samples)()
        assert -cells.shape[1] * loss == pytest.approx(weighted, rel=1e-5)
    assert -cells.shape[1] * RowsLoss(model, data, 1.0)() < weighted


def test_steps_with_several_samples_ascend_their_weighted_bound():
    model, cells = small(), table(100)
    given = (cells, torch.ones_like(cells, dtype=torch.bool), torch.ones_like(cells), None, None)
    losses = [BoundLoss(model, 0.0, samples=samples) for samples in (1, 64)]
    torch.manual_seed(0)
    (one, *_), (many, explained, kl, *rest) = (
        loss(*given, torch.ones(())).tolist() for loss in losses
    )
    exact = model.log_likelihood(cells, samples=2000).mean().item()
    assert one < many < exact + 0.05  # the bound rises to the likelihood
    assert explained - kl < many  # a mean over draws, as the bound of one
    assert rest == [0.0, 0.0, 0.0]
    # With the KL terms weighted by 0, weights are those of the likelihood alone.
    alone, explained, *_ = losses[1](*given, torch.zeros(())).tolist()
    assert alone > explained
    gradient = torch.autograd.grad(losses[1](*given, torch.ones(()))[0], model.parameters())
    assert all(part.isfinite().all() for part in gradient)


def test_training_with_samples_lowers_the_negative_log_likelihood():
    options = {"epochs": 8, "batch": 100, "rate": 1e-2, "progress": False, "masking": None}
    model, test = small(), table(200, seed=1)
    before = model.log_likelihood(test, samples=100).mean()
    history = vfg.fit(model, table(), validation=test, samples=3, **options)
    assert model.log_likelihood(test, samples=100).mean() > before + 0.5
    weighted = model.log_likelihood(test, samples=3).mean().item()
    scale = model.scaling.scale.log().sum().item()
    assert -4 * history[history.best].validation == pytest.approx(weighted + scale, abs=1e-3)


def test_samples_that_cannot_be_are_refused():
    options = {"epochs": 1, "progress": False, "masking": None}
    with pytest.raises(ValueError, match="samples must be at least 1"):
        vfg.fit(small(), table(50), samples=0, **options)
    with pytest.raises(ValueError, match="samples=2 is for sampled states"):
        vfg.fit(small(states="deterministic"), table(50), samples=2, **options)
    with pytest.raises(ValueError, match="samples=2 are for one model"):
        vfg.fit([small(seed=0), small(seed=1)], table(50), samples=2, **options)
    with pytest.raises(ValueError, match=r"free_bits=0\.5 counts KL terms"):
        vfg.fit(small(), table(50), samples=2, free_bits=0.5, **options)
