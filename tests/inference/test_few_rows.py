"""Without padding, answers about a few rows are those of padded tiles up to rounding."""

import numpy as np
import pytest
import torch

import vfg


def close(found, wanted, tolerance=1e-5):
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


def same(found, wanted, names):
    for name in names:
        close(found.mean[name], wanted.mean[name])
        close(found.std[name], wanted.std[name])
        close(found.samples(40)[name], wanted.samples(40)[name])
        close(found.quantile([0.1, 0.9])[name], wanted.quantile([0.1, 0.9])[name])


@pytest.mark.parametrize("aggregation", ["gaussian", "precision", "mean"])
def test_rows_of_a_deep_model(aggregation):
    graph = vfg.Graph.tree({"a": 2, "b": 1, "c": 1, "d": 1}, arity=2, width=3)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=8), aggregation=aggregation)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    nan = torch.nan
    table = torch.tensor([[0.5, nan, nan, 1.0, nan], [nan, nan, 2.0, nan, nan]]).double()
    targets = [*graph.leaves, *graph.roots]
    wanted = model.infer(table, targets=targets)
    found = model.infer(table, targets=targets, padded=False)
    same(found, wanted, targets)
    same(found.select([1]), wanted.select([1]), targets)
    expected = wanted.expectations()
    for name, values in found.expectations().items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-5)


def test_rows_of_an_exact_model_that_is_fitted_again():
    model = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
    table = torch.tensor([[1.0, torch.nan]], dtype=torch.float64)
    for slope in (1.0, -1.0):
        model.fit([[x, slope * x + 0.1 * (x % 2)] for x in (0.0, 1.0, 2.0, 3.0)])
        same(model.infer(table, padded=False), model.infer(table), ["a", "b"])


def test_columns_of_arrow_are_found_by_name():
    arrow = pytest.importorskip("pyarrow")
    model = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
    model.fit([[0.0, 1.0], [1.0, 2.1], [2.0, 2.9], [3.0, 4.0]])
    found = model.infer(arrow.table({"b": [2.0, None]})).mean["a"]
    wanted = model.infer([{"b": 2.0}, {}]).mean["a"]
    close(found, wanted)
