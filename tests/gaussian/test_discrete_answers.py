"""Draws and answers of exact models with discrete leaves."""

import math

import numpy as np
import pytest
import torch
from gaussian.discrete_models import every_row, example_rows, random_model

import vfg
from vfg.distributions.likelihoods import Categorical


def test_draws_of_one_missing_cell_follow_its_probabilities():
    model = random_model()
    table = example_rows(3).repeat(20, 1)
    table[:, 1] = torch.nan
    answer = model.infer(table, targets="c", seed=3)
    drawn = answer.samples(200)["c"][..., 0]
    for row in range(3):
        shares = np.bincount(drawn[:, row::3].long().flatten(), minlength=3) / 4000
        expected = answer.probabilities["c"][row].numpy()
        error = np.sqrt(expected * (1 - expected) / 4000)
        assert (np.abs(shares - expected) < 4 * error + 1e-3).all()


def test_joint_draws_follow_the_chain():
    model = random_model(
        vfg.Graph.star({"c": 1, "b": 1}, width=2), {"c": Categorical(3), "b": "bernoulli"}
    )
    table = every_row(model)
    expected = model.log_prob(table).exp().numpy()
    empty = torch.full((64, 2), torch.nan, dtype=torch.float64)
    drawn = torch.cat(list(model.infer(empty, seed=1).samples(160).values()), dim=-1)
    shares = np.array([(drawn == row).all(-1).double().mean().item() for row in table])
    assert np.abs(shares - expected).max() < 4 * math.sqrt(0.25 / 10240)
    assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("components", [1, 2])
def test_real_draws_come_from_the_normal_given_the_evidence(components):
    model = random_model(components=components)
    answer = model.infer({"c": [2.0] * 60}, targets=["x", "y", "root"], seed=2)
    drawn = answer.samples(100)
    for name in ("x", "y"):
        deviation = answer.std[name][0].item()
        assert drawn[name].mean().item() == pytest.approx(
            answer.mean[name][0].item(), abs=0.06 * deviation
        )
        assert drawn[name].std().item() == pytest.approx(deviation, rel=0.06)


def test_drawn_latent_nodes_are_posteriors_given_the_drawn_row():
    model = random_model()
    evidence = torch.full((64, 4), torch.nan, dtype=torch.float64)
    evidence[:, 0] = 1.0
    drawn = model.infer(evidence, targets=["x", "c", "y", "b", "root"]).samples(64)
    rows = torch.cat([drawn[name].flatten(0, 1) for name in ("x", "c", "y", "b")], dim=1)
    found = model.posterior(rows)
    left = drawn["root"].flatten(0, 1) - found.mean["root"]
    factor = torch.linalg.cholesky(found.covariance["root"])
    white = torch.linalg.solve_triangular(factor, left[..., None], upper=False)[..., 0]
    np.testing.assert_allclose(white.mean(0), 0.0, atol=0.07)
    np.testing.assert_allclose(white.T.cov(), np.eye(2), atol=0.08)


def test_draws_do_not_depend_on_the_batch_or_their_number():
    model = random_model()
    table = torch.where(torch.rand(70, 4) < 0.5, torch.nan, example_rows(70))
    whole = model.infer(table, seed=5).samples(20)
    part = model.infer(table[65:], row_ids=torch.arange(65, 70), seed=5).samples(7)
    for leaf in "xcyb":
        assert torch.equal(whole[leaf][:7, 65:], part[leaf])


def test_latent_evidence_moves_probabilities():
    model = random_model()
    ends = [model.infer({"root": [[s, s]]}, targets="c").probabilities["c"] for s in (-2.0, 2.0)]
    assert not torch.allclose(*ends, atol=0.05)
    assert model.infer({"root": [[1.0, 1.0]]}).samples(3)["c"].shape == (3, 1, 1)


# Answers.


def test_answers_of_discrete_leaves_are_those_of_a_vfg():
    model = random_model()
    table = example_rows(6)
    table[:3, [1, 3]] = torch.nan
    answer = model.infer(table)
    chance = answer.mean["b"]
    torch.testing.assert_close(answer.std["b"][:3], (chance * (1 - chance)).sqrt()[:3])
    assert answer.std["c"][:3].isnan().all()
    assert answer.std["c"][3:].eq(0.0).all()
    assert torch.equal(answer.mean["c"][3:, 0], table[3:, 1])
    levels = [0.01, 0.99]
    expected = torch.stack([(chance > 1 - level).double() for level in levels])
    assert torch.equal(answer.quantile(levels)["b"][:, :3], expected[:, :3])
    assert answer.quantile(0.5)["c"][:3].isnan().all()
    assert list(answer.probabilities) == ["c"]
    torch.testing.assert_close(answer.probabilities["c"].sum(1), torch.ones(6).double())
    assert torch.equal(answer.probabilities["c"][3:].argmax(1).double(), table[3:, 1])
    assert answer.covariance("c")[:3].isnan().all()
    assert answer.covariance("x").shape == (6, 1, 1)


@pytest.mark.parametrize("leaf", ["affine", "spline", vfg.Coupling(blocks=1, hidden=4)])
def test_real_targets_beside_discrete_ones_have_the_moments_of_their_draws(leaf):
    graph = vfg.Graph.star({"c": 1, "s": 2, "x": 1}, width=2)
    model = random_model(graph, {"c": Categorical(4), "*": "gaussian"}, leaf=leaf)
    answer = model.infer({"c": [1.0] * 60}, seed=1)
    drawn = answer.samples(80)
    for name in ("s", "x"):
        deviation = answer.std[name].numpy()
        error = (drawn[name].mean((0, 1)) - answer.mean[name]).numpy() / deviation
        np.testing.assert_allclose(error, 0.0, atol=0.3 if isinstance(leaf, vfg.Coupling) else 0.06)
        spread = drawn[name].flatten(0, 1).std(0).numpy()
        np.testing.assert_allclose(spread / deviation, 1.0, atol=0.15)
