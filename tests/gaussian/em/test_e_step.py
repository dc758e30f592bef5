"""EM over some components of every row: the whole E-step where nothing is negligible."""

import pytest
import torch

from vfg.gaussian import GaussianVFG
from vfg.gaussian.em.e_step import ActiveSteps, active_moments, component_of
from vfg.gaussian.em.general import chunks_of, e_step
from vfg.graph import Graph


def clustered(rows: int, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = 6.0 * torch.randn(5, columns, generator=generator, dtype=torch.float64)
    which = torch.randint(5, (rows,), generator=generator)
    noise = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    seen = torch.rand(rows, columns, generator=generator) < 0.7
    return torch.where(seen, centres[which] + noise, 0.0), seen


def mixture(columns: int, mixture: str = "root", components: int = 5) -> GaussianVFG:
    graph = Graph.star({str(k): 1 for k in range(columns)}, width=columns)
    return GaussianVFG(graph, components, mixture=mixture, seed=3)


def tensors_of(expected) -> list[torch.Tensor]:
    found = [expected.log_likelihood, expected.weights, expected.roots, *expected.nodes]
    return found + [part for moments in expected.leaves for part in moments]


@pytest.mark.parametrize("kind", ["root", "loadings"])
def test_all_components_give_the_whole_expectation(kind):
    model = mixture(9, kind)
    table, seen = clustered(80, 9, seed=0)
    values = model.linear.values()
    chunks = chunks_of(model.structure, 5, table, seen)
    whole = e_step(model.structure, values, chunks)
    every = torch.ones(len(table), 5, dtype=torch.bool)
    some, _ = active_moments(model.structure, values, chunks[0], every)
    for a, b in zip(tensors_of(whole), tensors_of(some), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_what_is_passed_over_is_missing_from_the_likelihood_and_no_more_than_that():
    model = mixture(9)
    table, seen = clustered(80, 9, seed=1)
    model.fit(table, observed=seen, iterations=5, restarts=1, finish="none")
    values = model.linear.values()
    chunks = chunks_of(model.structure, 5, table, seen)
    whole = float(e_step(model.structure, values, chunks).log_likelihood)
    some = float(ActiveSteps(model.structure, chunks, 1e-2)(values).log_likelihood)
    # At most four components of a hundredth each are passed over in a row.
    assert whole + 80 * torch.log(torch.tensor(0.96)) < some <= whole + 1e-9


def test_a_component_keeps_its_own_values():
    values = mixture(4, "loadings").linear.values()
    alone = component_of(values, 2)
    assert torch.equal(alone.loadings, values.loadings[2:3])
    assert torch.equal(alone.offsets, values.offsets[2:3])
    assert torch.equal(alone.edges, values.edges)


@pytest.mark.parametrize("columns", [4, 12])
def test_fits_reach_the_same_likelihood_as_with_all_components(columns):
    table, seen = clustered(400, columns, seed=2)
    reached = []
    for negligible in (0.0, 1e-3):
        model = mixture(columns)
        model.fit(
            table, observed=seen, iterations=15, restarts=1, shrinkage=1.0, negligible=negligible
        )
        reached.append(float(model.log_prob(table, observed=seen).mean()))
    assert reached[1] == pytest.approx(reached[0], abs=0.02)


def test_components_of_no_weight_stay_finite():
    table, seen = clustered(60, 6, seed=4)
    model = mixture(6, components=20)
    model.fit(table, observed=seen, iterations=12, restarts=1, shrinkage=1.0, negligible=0.05)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_every_component_keeps_its_most_probable_row():
    steps = ActiveSteps(mixture(3).structure, [], 0.1)
    scores = torch.tensor([[0.0, -20.0], [0.0, -10.0], [0.0, -30.0]])
    assert steps._not_negligible(scores).tolist() == [[True, False], [True, True], [True, False]]


def test_a_probability_above_one_is_refused():
    with pytest.raises(ValueError, match="negligible is a probability below 1, but got"):
        mixture(3).fit([[1.0, 2.0, 3.0]] * 4, negligible=1.5)
