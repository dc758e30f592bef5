import pytest
import torch
from gaussian.test_fitting import GRAPHS, factor_table
from torch import Tensor

from vfg.gaussian import GaussianVFG
from vfg.gaussian.em import general as em
from vfg.gaussian.em.general import LatentMoments, chunks_of, e_step, e_step_with_pulls, mask_order
from vfg.gaussian.parameters import Values
from vfg.inputs import pairwise_covariance


def model_and_table(graph, components, mixture, missing):
    table, _ = factor_table(60, 4, 2, missing=missing)
    model = GaussianVFG(graph, components, mixture=mixture, seed=3)
    seen = ~table.isnan()
    order = mask_order(seen)
    return model, torch.nan_to_num(table - 3.0)[order], seen[order]


def detached(values: Values) -> Values:
    return Values(*(value.detach() for value in values))


def test_equal_masks_lie_side_by_side_within_blocks(monkeypatch):
    monkeypatch.setattr(em, "BLOCK", 64)
    seen = torch.rand(192, 3, generator=torch.Generator().manual_seed(0)) < 0.5
    order = mask_order(seen)
    assert order.sort().values.tolist() == list(range(192))
    for rows in order.split(64):
        assert bool((rows // 64 == rows[0] // 64).all())
        masks = seen[rows].long() @ torch.tensor([4, 2, 1])
        assert len(masks.unique_consecutive()) == len(masks.unique())
    assert mask_order(seen[:0]).shape == (0,)


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_pulls_are_the_derivatives_of_log_p_by_the_leaves(graph, mixture, missing):
    model, table, seen = model_and_table(graph, 2, mixture, missing)
    values = detached(model.linear.values())
    chunks = chunks_of(model.structure, 2, table, seen)
    _, found = e_step_with_pulls(model.structure, values, chunks)
    leaves = table.clone().requires_grad_(True)
    total: Tensor = model.score(leaves, seen).sum()
    (expected,) = torch.autograd.grad(total, leaves)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_moments_of_complete_rows_are_those_of_the_general_formula(graph, mixture):
    model, table, seen = model_and_table(graph, 2, mixture, 0.0)
    values = detached(model.linear.values())
    whole = e_step(model.structure, values, chunks_of(model.structure, 2, table, seen))
    # A row without any observed cell sends the others through the general formula.
    longer = torch.cat([table, torch.zeros(1, 4, dtype=table.dtype)])
    mask = torch.cat([seen, torch.zeros(1, 4, dtype=torch.bool)])
    general = e_step(model.structure, values, chunks_of(model.structure, 2, longer, mask))
    for first, second in zip(whole.leaves, general.leaves, strict=True):
        for name, one, other in zip(LatentMoments._fields, first, second, strict=True):
            torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


def test_pairwise_covariances_of_large_tables_are_found_by_parts(monkeypatch):
    monkeypatch.setattr("vfg.inputs.CELLS_AT_ONCE", 4 * 7)
    table, _ = factor_table(60, 4, 2, missing=0.4)
    seen = ~table.isnan()
    mean, covariance = pairwise_covariance(torch.nan_to_num(table), seen)
    torch.testing.assert_close(mean, table.nanmean(0))
    for i in range(4):
        for j in range(4):
            both = seen[:, i] & seen[:, j]
            products = (table[both, i] - mean[i]) * (table[both, j] - mean[j])
            torch.testing.assert_close(covariance[i, j], products.mean())
