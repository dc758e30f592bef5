"""Answers about linear-Gaussian stars are the exact conditionals."""

import math

import pytest
import torch
from inference.asked_models import CLOSE, dag, gaussian_star, star_rows, table_for

from vfg.inference import infer


def conditional(mean, covariance, row):
    """Mean and covariance of the gaps given the rest, by the Schur complement."""
    gap, seen = row.isnan(), ~row.isnan()
    gain = covariance[gap][:, seen] @ torch.linalg.inv(covariance[seen][:, seen])
    centre = mean[gap] + gain @ (row[seen] - mean[seen])
    return centre, covariance[gap][:, gap] - gain @ covariance[seen][:, gap]


@pytest.mark.parametrize("width", [1, 2])
def test_means_and_deviations_are_the_exact_conditionals(width):
    model, mean, covariance = gaussian_star(width)
    table = star_rows(width)
    answer = infer(model, table)
    assert answer.joint
    found = torch.cat([answer.mean[leaf] for leaf in "xyz"], dim=1)
    spread = torch.cat([answer.std[leaf] for leaf in "xyz"], dim=1)
    for b, row in enumerate(table):
        centre, block = conditional(mean, covariance, row)
        torch.testing.assert_close(found[b][row.isnan()], centre, **CLOSE)
        torch.testing.assert_close(spread[b][row.isnan()], block.diagonal().sqrt(), **CLOSE)


@pytest.mark.parametrize("width", [1, 2])
def test_draws_and_quantiles_follow_the_exact_conditionals(width):
    model, mean, covariance = gaussian_star(width)
    table = star_rows(width)
    answer = infer(model, table)
    draws = answer.samples(20_000)
    draws = torch.cat([draws[leaf] for leaf in "xyz"], dim=-1)
    low = torch.cat([answer.quantile(0.1)[leaf] for leaf in "xyz"], dim=-1)
    for b, row in enumerate(table[:-1]):
        if not row.isnan().any():
            continue
        centre, block = conditional(mean, covariance, row)
        own = draws[:, b][:, row.isnan()]
        scale = block.diagonal().sqrt()
        assert ((own.mean(0) - centre).abs() < 4.5 * scale / math.sqrt(20_000)).all()
        torch.testing.assert_close(own.T.cov().view_as(block), block, atol=0.04, rtol=0.04)
        expected = centre - 1.2816 * scale
        assert ((low[b][row.isnan()] - expected).abs() < 5.0 * scale * 1.7 / 16).all()


def test_latent_deviations_are_those_of_the_posterior():
    model, _, _ = gaussian_star(1)
    table = star_rows(1)
    answer = infer(model, table, ["root"])
    states = model.encode(table)
    expected = torch.linalg.inv(states.precision["root"]).diagonal(dim1=1, dim2=2).sqrt()
    torch.testing.assert_close(answer.std["root"], expected, **CLOSE)
    draws = answer.samples(5000)["root"]
    torch.testing.assert_close(draws.std(0), expected, atol=0.03, rtol=0.03)


def test_a_temperature_divides_the_precision_of_the_roots():
    model, _, _ = gaussian_star(1)
    table = star_rows(1)
    plain = infer(model, table, ["root", "x"]).std
    model.spread.log_temperature.fill_(math.log(4.0))
    cold = infer(model, table, ["root", "x"]).std
    torch.testing.assert_close(cold["root"], plain["root"] / 2)
    gap = table[:, 0].isnan()
    decoded, noise = plain["x"][gap] ** 2 - 0.09, cold["x"][gap] ** 2 - 0.09
    torch.testing.assert_close(noise, decoded / 4)


@pytest.mark.parametrize("aggregation", ["precision", "gaussian"])
def test_draws_of_bent_models_are_centred_on_the_mean(aggregation):
    model = dag(aggregation)
    table = table_for(model, rows=4)
    answer = infer(model, table)
    draws = answer.samples(4000)
    for leaf in model.graph.leaves:
        scale = answer.std[leaf].clamp(min=1e-3)
        error = (draws[leaf].mean(0) - answer.mean[leaf]) / scale
        assert error.abs().max() < 0.15
        ratio = draws[leaf].std(0) / scale
        unknown = answer.std[leaf] > 0
        assert ((ratio[unknown] > 0.8) & (ratio[unknown] < 1.25)).all()
