"""Weights of rows: they equal repeated rows, in every E-step and in whole fits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import vfg
from vfg import GaussianVFG, Graph
from vfg.gaussian.em.e_step import active_steps, expectation
from vfg.gaussian.em.general import Expected, chunks_of, e_step
from vfg.gaussian.row_sums import summarise
from vfg.modelfile import dumps, loads


def some_rows(columns: int, rows: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows with missing cells, and how often they count: 0 to 3 times."""
    generator = torch.Generator().manual_seed(seed)
    causes = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    loadings = torch.randn(2, columns, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    table = causes @ loadings + 0.3 * noise
    table[torch.rand(rows, columns, generator=generator) < 0.2] = torch.nan
    return table, torch.randint(0, 4, (rows,), generator=generator)


def numbers(expected: Expected) -> Tensor:
    leaves = [part for moments in expected.leaves for part in moments]
    parts = [expected.log_likelihood, expected.weights, *leaves, *expected.nodes, expected.roots]
    return torch.cat([part.reshape(-1) for part in parts])


@pytest.mark.parametrize(("columns", "components"), [(4, 1), (4, 3), (30, 1), (30, 3)])
@pytest.mark.parametrize("kind", ["general", "fastest", "active"])
def test_an_e_step_with_weights_is_that_of_repeated_rows(
    columns: int, components: int, kind: str
) -> None:
    table, weights = some_rows(columns)
    model = GaussianVFG(Graph.star({f"x{k}": 1 for k in range(columns)}, width=2), components)
    values = model.linear.values()._replace()
    result = []
    for rows, own in ((table, weights.double()), (table.repeat_interleave(weights, 0), None)):
        seen = ~rows.isnan()
        chunks = chunks_of(model.structure, components, rows.nan_to_num(), seen, own)
        with torch.no_grad():
            steps = {
                "general": lambda chunks=chunks: e_step(model.structure, values, chunks),
                "fastest": lambda chunks=chunks: expectation(model.linear, chunks)(values),
                "active": lambda chunks=chunks: active_steps(model.linear, chunks, 1e-9)(values),
            }
            result.append(numbers(steps[kind]()))
    torch.testing.assert_close(*result, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", [
    {}, {"leaf": "spline"}, {"likelihood": {"x3": vfg.Categorical(3), "*": "gaussian"}},
], ids=["affine", "spline", "categories"])  # fmt: skip
@pytest.mark.parametrize("columns", [4, 30])
def test_a_fit_with_weights_is_that_of_repeated_rows(columns: int, options: dict[str, str]) -> None:
    table, weights = some_rows(columns)
    if "likelihood" in options:
        table[:, 3] = (table[:, 3] > 0.0).double() + (table[:, 2] > 0.0)
    graph = Graph.star({f"x{k}": 1 for k in range(columns)}, width=2)
    finish = "none" if "likelihood" in options else "auto"
    models = [GaussianVFG(graph, **options) for _ in range(2)]  # type: ignore[arg-type]
    # Rounding errors grow with every gradient step of a spline.
    models[0].fit(table, sample_weight=weights, finish=finish, steps=5)
    models[1].fit(table.repeat_interleave(weights, 0), finish=finish, steps=5)
    for one, other in zip(*(model.state_dict().values() for model in models), strict=True):
        size = 1e-4 if "leaf" in options else 1e-8
        torch.testing.assert_close(one, other, rtol=size, atol=size)


def test_weights_reach_gradient_steps() -> None:
    """Rows of weight 0.01 hardly matter for the points of categories."""
    table, _ = some_rows(3, rows=200)
    table[:, 2] = (table[:, 1] > 0.0).double()
    table[100:, 2] = 1.0 - table[100:, 2]
    weights = torch.cat([torch.ones(100), torch.full((100,), 0.01)])
    graph = Graph.star({f"x{k}": 1 for k in range(3)}, width=2)
    kinds = {"x2": "bernoulli", "*": "gaussian"}
    models = [GaussianVFG(graph, likelihood=kinds) for _ in range(2)]
    models[0].fit(table, sample_weight=weights, steps=100)
    models[1].fit(table[:100], steps=100)
    asked = {"x0": 0.0, "x1": 1.5}
    weighted, alone = (model.infer(asked, ["x2"]).mean["x2"] for model in models)
    assert abs(float(weighted) - float(alone)) < 0.1
    assert float(weighted) > 0.75


@pytest.mark.parametrize(("weights", "message"), [
    ([1.0, 2.0], "one number for each of the 3 rows, but has the shape \\(2,\\)"),
    ([1.0, -1.0, 1.0], "row 1 has -1.0"),
    ([1.0, float("nan"), 1.0], "row 1 has nan"),
    ([1.0, float("inf"), 1.0], "row 1 has inf"),
    ([0.0, 0.0, 0.0], "zero for all rows"),
    ([[1.0], [1.0], [1.0]], "shape \\(3, 1\\)"),
])  # fmt: skip
def test_wrong_weights_are_refused(weights: list[float], message: str) -> None:
    model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
    with pytest.raises(ValueError, match=message):
        model.fit([[1.0, 2.0], [2.0, 4.1], [3.0, 5.9]], sample_weight=weights)


def test_words_are_no_weights() -> None:
    model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1))
    with pytest.raises(TypeError, match="sample_weight must hold real numbers"):
        model.fit([[1.0, 2.0]], sample_weight=["a"])


@pytest.mark.parametrize("kind", ["star", "network", "tree"])
def test_rows_in_parts_give_the_model_of_all_rows(kind: str) -> None:
    table, weights = some_rows(5, rows=300)
    weights = weights + 0.5
    graph = {
        "star": Graph.star({f"x{k}": 1 for k in range(5)}, width=2),
        "network": Graph.from_bayesian_network(
            [("a", "c"), ("b", "c"), ("a", "d"), ("d", "e")], variables=list("abcde")
        ),
        "tree": Graph.tree(dict.fromkeys("abcde", 1), arity=3, width=2),
    }[kind]
    whole, parts = GaussianVFG(graph), GaussianVFG(graph)
    whole.fit(table, sample_weight=weights)
    for rows in torch.arange(300).split(70):
        parts.partial_fit(table[rows], sample_weight=weights[rows])
        assert parts.summary is not None
    assert len(parts.summary) < 150  # 2 rows per observed column of every mask, at most
    torch.testing.assert_close(whole.log_prob(table), parts.log_prob(table), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(whole.scaling.low, parts.scaling.low)
    torch.testing.assert_close(whole.scaling.high, parts.scaling.high)


def test_sums_are_kept_in_files_and_forgotten_by_fit() -> None:
    table, _ = some_rows(4, rows=200)
    graph = Graph.star({f"x{k}": 1 for k in range(4)}, width=2)
    model, whole = GaussianVFG(graph), GaussianVFG(graph)
    model.partial_fit(table[:100])
    loaded = loads(dumps(model))
    assert isinstance(loaded, GaussianVFG)
    loaded.partial_fit(table[100:])
    whole.fit(table)
    torch.testing.assert_close(whole.log_prob(table), loaded.log_prob(table), rtol=1e-7, atol=1e-7)
    loaded.fit(table[:50])
    assert loaded.summary is None


def test_a_summary_of_many_masks_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfg.gaussian.row_sums.MOST_ROWS", 200)
    table, _ = some_rows(12, rows=2000)
    seen = ~table.isnan()
    short = summarise(table, seen, torch.ones(2000, dtype=torch.float64))
    assert len(short.cells) <= 200
    assert float(short.weights.sum()) == pytest.approx(2000.0)
    means = [(w[:, None] * c).sum(0) / (w[:, None] * s).sum(0) for c, s, w in (
        short, (table.nan_to_num(), seen, torch.ones(2000)))]  # fmt: skip
    assert float((means[0] - means[1]).abs().max()) < 0.3


@pytest.mark.parametrize(("options", "fit", "reason"), [
    ({"components": 2}, {}, "several components"),
    ({"leaf": "spline"}, {}, "not affine"),
    ({"likelihood": "bernoulli"}, {}, "discrete leaves"),
    ({}, {"validation": 0.1}, "validation= holds out cells"),
    ({}, {"finish": "gradient"}, "needs rows"),
])  # fmt: skip
def test_partial_fits_of_other_models_are_refused(
    options: dict[str, str], fit: dict[str, str], reason: str
) -> None:
    model = GaussianVFG(Graph.star({"a": 1, "b": 1}, width=1), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"do not suffice here: .*{reason}"):
        model.partial_fit([[1.0, 0.0], [0.0, 1.0]], **fit)
