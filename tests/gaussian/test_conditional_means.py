"""Means of exact models by the fast way, against the slow one and against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vfg.gaussian import GaussianVFG
from vfg.gaussian.conditional_means import ExactMeans, exact_means, group_rows, mean_function
from vfg.graph import Graph

ROWS = 200


def exact_model(components: int, columns: int, width: int) -> GaussianVFG:
    sections = {f"c{k}": 1 for k in range(columns)}
    model = GaussianVFG(Graph.star(sections, width=width), components, seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += 0.5 * noise
        model.scaling.location.copy_(torch.arange(columns))
        model.scaling.scale.copy_(1.0 + 0.1 * torch.arange(columns))
    return model


def table(columns: int, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    values = 2.0 * torch.randn(ROWS, columns, generator=generator, dtype=torch.float64)
    observed = torch.rand(ROWS, columns, generator=generator) < share
    observed[0], observed[1] = False, True
    return values, observed


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize(("columns", "width"), [(7, 3), (4, 6), (12, 12)])
@pytest.mark.parametrize("share", [0.2, 0.8])
def test_means_are_those_of_the_model(
    components: int, columns: int, width: int, share: float
) -> None:
    model = exact_model(components, columns, width)
    values, observed = table(columns, share)
    slow = torch.where(observed, values, exact_means(model, values, observed))
    torch.testing.assert_close(ExactMeans(model)(values, observed), slow, rtol=1e-9, atol=1e-9)


def test_one_component_conditions_a_normal() -> None:
    model = exact_model(1, 5, 3)
    values, observed = table(5, 0.6)
    loadings, offsets, scales = (part[0].detach().numpy() for part in model.linear.values()[-3:])
    covariance = loadings @ loadings.T + np.diag(scales**2)
    location, scale = model.scaling.location.numpy(), model.scaling.scale.numpy()
    for row, seen, found in zip(
        values.numpy(), observed.numpy(), ExactMeans(model)(values, observed).numpy(), strict=True
    ):
        known = (row - location) / scale - offsets
        across = covariance[np.ix_(~seen, seen)]
        gaps = offsets[~seen] + across @ np.linalg.solve(
            covariance[np.ix_(seen, seen)], known[seen]
        )
        np.testing.assert_allclose(found[~seen], gaps * scale[~seen] + location[~seen], atol=1e-9)


@pytest.mark.parametrize("components", [1, 4])
def test_bits_of_a_row_do_not_depend_on_others(components: int) -> None:
    ask = ExactMeans(exact_model(components, 9, 4))
    values, observed = table(9, 0.6)
    ids = torch.arange(ROWS)
    whole = ask(values, observed, ids)
    rows = [(values[k : k + 1], observed[k : k + 1], ids[k : k + 1]) for k in range(ROWS)]
    assert torch.equal(torch.cat([ask(*row) for row in rows]), whole)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(5))
    assert torch.equal(ask(values[order], observed[order], order), whole[order])
    if components > 1:
        drawn = ask.samples(values, observed, 5, seed=1, ids=ids)
        alone = [ask.samples(*row[:2], 5, seed=1, ids=row[2]) for row in rows]
        assert torch.equal(torch.cat(alone, dim=1), drawn)


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_draws_of_a_mixture_have_its_moments(share: float) -> None:
    model = exact_model(3, 6, 3)
    values, observed = table(6, share)
    values, observed = values[:8], observed[:8]
    drawn = ExactMeans(model).samples(values, observed, 20_000, seed=4, ids=torch.arange(8))
    answer = model.infer(values, observed=observed)
    mean, deviation = (torch.cat(list(x.values()), dim=1) for x in (answer.mean, answer.std))
    assert torch.equal(drawn[:, observed], values[observed].expand(len(drawn), -1))
    error = (drawn.mean(0) - mean)[~observed] / deviation[~observed]
    assert float(error.abs().max()) < 4.5 / 20_000**0.5
    torch.testing.assert_close(drawn.std(0)[~observed], deviation[~observed], rtol=0.05, atol=0.0)
    names = list(model.variables)
    covariance = answer.covariance(names)
    left = drawn - drawn.mean(0)
    empirical = torch.einsum("dni,dnj->nij", left, left) / len(drawn)
    scale = torch.where(observed, 1.0, drawn.std(0))
    correlation = (empirical - covariance) / (scale[:, :, None] * scale[:, None, :])
    assert float(correlation.abs().max()) < 0.05


def test_known_cells_and_arguments_stay() -> None:
    ask = ExactMeans(exact_model(2, 6, 3))
    values, observed = table(6, 0.5)
    before = values.clone()
    found = ask(values, observed)
    assert torch.equal(values, before)
    assert torch.equal(found[observed], values[observed])


def test_groups_hold_every_row_with_gaps_once() -> None:
    mask = np.random.default_rng(0).random((500, 6)) < 0.7
    groups = list(group_rows(mask, 100))
    rows = np.sort(np.concatenate([group.rows for group in groups]))
    np.testing.assert_array_equal(rows, np.flatnonzero(~mask.all(1)))
    for group in groups:
        assert not np.take_along_axis(mask[group.rows].T, group.missing, axis=0).any()
        np.testing.assert_array_equal(group.seen, mask[group.rows].T)


def test_models_of_other_kinds_are_asked_the_slow_way() -> None:
    graph = Graph.star({"a": 1, "b": 1}, width=2)
    assert not ExactMeans.suits(GaussianVFG(graph, leaf="spline"))
    assert not isinstance(mean_function(GaussianVFG(graph, leaf="spline")), ExactMeans)
    wide = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=60))
    assert not ExactMeans.suits(wide)


@pytest.mark.parametrize(("columns", "width"), [(7, 3), (4, 6)])
@pytest.mark.parametrize("share", [0.2, 0.8])
def test_deviations_are_those_of_the_model(columns: int, width: int, share: float) -> None:
    model = exact_model(1, columns, width)
    values, observed = table(columns, share)
    slow = torch.cat(list(model.infer(values, observed=observed).std.values()), dim=1).double()
    found = ExactMeans(model).deviations(values, observed)
    torch.testing.assert_close(found, slow, rtol=1e-8, atol=1e-9)


def test_mixtures_have_no_deviations_of_that_kind() -> None:
    values, observed = table(4, 0.5)
    with pytest.raises(ValueError, match="deviations of a mixture"):
        ExactMeans(exact_model(2, 4, 2)).deviations(values, observed)
