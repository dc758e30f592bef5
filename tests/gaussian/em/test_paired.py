"""E-steps over pairs of a row and a component: those over whole tables, by another way."""

from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
import torch
from gaussian.test_fitting import GRAPHS
from hypothesis import given, settings
from hypothesis import strategies as st

from vfg.gaussian import GaussianVFG
from vfg.gaussian.em.e_step import (
    ActiveSteps,
    PairedSteps,
    WideStarSteps,
    active_steps,
    expectation,
    is_wide_star,
    root_moments,
)
from vfg.gaussian.em.general import Expected, chunks_of, e_step
from vfg.gaussian.em.paired import (
    ComponentNormals,
    IndexedRows,
    all_scores,
    eliminate,
    invert,
    pack,
    pair_e_step,
    supports_pairs,
    triangle,
    unpack,
)
from vfg.gaussian.parameters import Values, factors_of
from vfg.graph import Graph

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@st.composite
def incomplete_tables(draw, columns: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Values, 0 where unobserved, and masks; one row has everything, another nothing."""
    columns = columns or draw(st.integers(1, 7))
    rows, share = draw(st.integers(3, 40)), draw(st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    values = 1.5 * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    seen = torch.rand(rows, columns, generator=generator) < share
    seen[0], seen[1] = True, False
    return torch.where(seen, values, 0.0), seen


def random_model(graph: Graph, components: int, mixture: str, seed: int = 3) -> GaussianVFG:
    model = GaussianVFG(graph, components, mixture=mixture, noise_floor=0.03, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += 0.5 * noise
    return model


def detached(values: Values) -> Values:
    return Values(*(value.detach() for value in values))


def assert_equal(found: Expected, expected: Expected, shared: bool) -> None:
    torch.testing.assert_close(found.log_likelihood, expected.log_likelihood, **CLOSE)
    torch.testing.assert_close(found.weights, expected.weights, **CLOSE)
    torch.testing.assert_close(found.roots, expected.roots, **CLOSE)
    for one, other in zip(found.nodes, expected.nodes, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    for first, second in zip(found.leaves, expected.leaves, strict=True):
        for one, other in zip(first, second, strict=True):
            whole = other.sum(0, keepdim=True) if shared else other
            torch.testing.assert_close(one, whole, **CLOSE)


@given(size=st.integers(0, 6), systems=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_systems_are_those_of_lapack(size: int, systems: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    roots = random.normal(size=(systems, size, size))
    matrices = roots @ roots.swapaxes(1, 2) + np.eye(size)
    right = random.normal(size=(systems, size))
    inverse = np.linalg.inv(matrices)
    solved = (inverse @ right[..., None])[..., 0]
    bordered = np.zeros((systems, size + 1, size + 1))
    bordered[:, :-1, :-1], bordered[:, -1, :-1], bordered[:, -1, -1] = matrices, right, 2.0
    stack = pack(bordered).T.copy()
    lessened = 2.0 - (solved * right).sum(1)
    inverted, eliminated = stack.copy(), stack.copy()
    for log_determinants in (invert(inverted, size), eliminate(eliminated, size)):
        np.testing.assert_allclose(log_determinants, np.linalg.slogdet(matrices)[1], atol=1e-10)
    np.testing.assert_allclose(eliminated[-1], lessened, atol=1e-10)
    whole = unpack(inverted.T, size + 1)
    np.testing.assert_allclose(whole[:, :-1, :-1], -inverse, atol=1e-10)
    np.testing.assert_allclose(whole[:, -1, :-1], solved, atol=1e-10)
    np.testing.assert_allclose(whole[:, -1, -1], lessened, atol=1e-10)
    assert len(stack) == triangle(size + 1)


@pytest.mark.parametrize("mixture", ["root", "loadings"])
@given(data=st.data())
def test_sums_over_pairs_are_the_expected_moments(data, mixture: str) -> None:
    table, seen = data.draw(incomplete_tables())
    columns, components = table.shape[1], data.draw(st.integers(1, 4))
    graph = Graph.star({str(k): 1 for k in range(columns)}, width=data.draw(st.integers(1, 8)))
    model = random_model(graph, components, mixture)
    values = detached(model.linear.values())
    chunks = chunks_of(model.structure, components, table, seen)
    cells = [IndexedRows.of(chunk) for chunk in chunks]
    found, scores = pair_e_step(model.structure, values, cells)
    shared = components == 1 or mixture == "root"
    assert_equal(found, e_step(model.structure, values, chunks), shared)
    every = all_scores(ComponentNormals.of(factors_of(model.structure, values)), cells[0])
    np.testing.assert_allclose(every, scores[0], **CLOSE)


@given(incomplete_tables())
def test_scores_are_log_densities(drawn) -> None:
    table, seen = drawn
    graph = Graph.star({str(k): 1 for k in range(table.shape[1])}, width=3)
    model = random_model(graph, 3, "root")
    factors = factors_of(model.structure, detached(model.linear.values()))
    covariance = factors.loadings @ factors.loadings.mT + factors.scales.square().diag_embed()
    chunk = chunks_of(model.structure, 3, table, seen)[0]
    found = all_scores(ComponentNormals.of(factors), IndexedRows.of(chunk))
    masks = chunk.masks.distinct[chunk.masks.groups]
    for row, mask, own in zip(chunk.values, masks, found, strict=True):
        for component in range(3):
            expected = factors.log_weights[component]
            if bool(mask.any()):
                expected = expected + torch.distributions.MultivariateNormal(
                    factors.offsets[component, mask], covariance[component][mask][:, mask]
                ).log_prob(row[mask])
            assert own[component] == pytest.approx(float(expected), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_any_graph_has_the_same_moments(graph: Graph, mixture: str) -> None:
    model = random_model(graph, 3, mixture)
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    seen = torch.rand(50, 4, generator=generator) < 0.6
    values = detached(model.linear.values())
    chunks = chunks_of(model.structure, 3, torch.where(seen, table, 0.0), seen)
    found, _ = pair_e_step(model.structure, values, [IndexedRows.of(chunk) for chunk in chunks])
    assert_equal(found, e_step(model.structure, values, chunks), mixture == "root")


@contextmanager
def without_pairs():
    never = {"supports_pairs": lambda parameters: False}
    with (
        mock.patch.multiple(
            "vfg.gaussian.em.e_step", **never, is_wide_star=never["supports_pairs"]
        ),
        mock.patch.multiple("vfg.gaussian.log_prob", **never),
    ):
        yield


@pytest.mark.parametrize(("negligible", "width"), [(0.0, 6), (0.01, 6), (0.01, 2)])
@settings(max_examples=10)
@given(drawn=incomplete_tables(5), seed=st.integers(0, 100))
def test_fits_are_the_same(drawn, seed: int, negligible: float, width: int) -> None:
    table, seen = drawn
    seen[0] = True

    def fitted() -> tuple[GaussianVFG, list[float]]:
        graph = Graph.star({str(k): 1 for k in range(5)}, width=width)
        model = GaussianVFG(graph, 4, noise_floor=0.03, seed=seed)
        history = model.fit(
            table,
            observed=seen,
            finish="none",
            iterations=7,
            restarts=1,
            shrinkage=2.0,
            negligible=negligible,
            seed=seed,
        )
        return model, [*history.log_likelihoods, *history.runs]

    model, trace = fitted()
    with without_pairs():
        other, expected = fitted()
    np.testing.assert_allclose(trace, expected, rtol=1e-8, atol=1e-8)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "width"), [(PairedSteps, 6), (PairedSteps, 11), (WideStarSteps, 4)]
)
def test_what_is_passed_over_is_the_same(kind: type[ActiveSteps], width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    table = 3.0 * torch.randn(200, 9, generator=generator, dtype=torch.float64)
    seen = torch.rand(200, 9, generator=generator) < 0.6
    seen[0], seen[1] = True, False
    model = random_model(Graph.star({str(k): 1 for k in range(9)}, width=width), 12, "root")
    values = detached(model.linear.values())
    chunks = chunks_of(model.structure, 12, torch.where(seen, table, 0.0), seen)
    steps = [way(model.structure, chunks, 0.01) for way in (ActiveSteps, kind)]
    for _ in range(2):
        slow, fast = (step(values) for step in steps)
        assert_equal(fast, slow, shared=True)
    assert torch.equal(steps[0]._active[0], steps[1]._active[0])
    assert steps[1]._active[0].double().mean() < 0.7


@given(incomplete_tables())
def test_wide_stars_have_the_expected_moments(drawn) -> None:
    table, seen = drawn
    graph = Graph.star({str(k): 1 for k in range(table.shape[1])}, width=2)
    model = random_model(graph, 3, "root")
    values = detached(model.linear.values())
    (chunk,) = chunks_of(model.structure, 3, table, seen)
    every = torch.ones(len(table), 3, dtype=torch.bool)
    found, scores = root_moments(values, chunk, every)
    assert_equal(found, e_step(model.structure, values, [chunk]), shared=True)
    normals = ComponentNormals.of(factors_of(model.structure, values))
    np.testing.assert_allclose(scores, all_scores(normals, IndexedRows.of(chunk)), **CLOSE)


def steps_of(graph: Graph, **choices) -> type[ActiveSteps]:
    return type(active_steps(GaussianVFG(graph, 2, **choices).linear, [], 0.1))


def test_every_model_takes_its_fastest_steps() -> None:
    narrow = Graph.star({str(k): 1 for k in range(8)}, width=8)
    wide = Graph.star({str(k): 1 for k in range(40)}, width=16)
    assert steps_of(narrow) is PairedSteps
    assert steps_of(wide) is WideStarSteps
    assert steps_of(wide, mixture="loadings") is ActiveSteps
    assert steps_of(Graph.star({str(k): 1 for k in range(40)}, width=2)) is ActiveSteps
    assert not is_wide_star(GaussianVFG(wide, 2).to("meta").linear)


def test_pairs_are_for_small_systems_with_noise_on_a_cpu() -> None:
    narrow = Graph.star({str(k): 1 for k in range(8)}, width=8)
    assert supports_pairs(GaussianVFG(narrow).linear)
    assert not supports_pairs(GaussianVFG(narrow, noise_floor=1e-5).linear)
    assert not supports_pairs(GaussianVFG(narrow).to("meta").linear)
    wide = Graph.star({str(k): 1 for k in range(40)}, width=16)
    assert not supports_pairs(GaussianVFG(wide).linear)


def test_equal_masks_are_factorised_once() -> None:
    model = random_model(Graph.star({str(k): 1 for k in range(8)}, width=8), 2, "root")
    table = torch.zeros(64, 8, dtype=torch.float64)
    whole = chunks_of(model.structure, 2, table, torch.ones(64, 8, dtype=torch.bool))
    values = detached(model.linear.values())
    with mock.patch("vfg.gaussian.em.e_step.pair_e_step") as paired:
        expectation(model.linear, whole)(values)
    assert not paired.called
