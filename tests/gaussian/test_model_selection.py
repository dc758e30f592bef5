"""Width and components by held-out cells."""

import pytest
import torch

import vfg
from vfg.gaussian import select

COLUMNS = {f"x{k}": 1 for k in range(8)}


def stars(*widths):
    return [vfg.Graph.star(COLUMNS, width=width) for width in widths]


def factors(width, rows=600):
    generator = torch.Generator().manual_seed(width)
    loadings = torch.randn(width, 8, generator=generator).double()
    noise = 0.3 * torch.randn(rows, 8, generator=generator).double()
    return torch.randn(rows, width, generator=generator).double() @ loadings + noise


@pytest.mark.parametrize(("width", "rows"), [(1, 60), (3, 600)])
def test_the_true_width_is_found(width, rows):
    found = select(factors(width, rows), stars(1, 3) if width == 3 else stars(1, 6))
    assert found.best.graph.node("root").width == width
    assert found.model.graph == found.best.graph
    assert len(found.candidates) == 2


def test_two_clusters_need_two_components():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(600, 8, generator=generator).double()
    table[:300] += 6.0
    table[:300, ::2] -= 12.0
    found = select(table, stars(1), components=(1, 2), mixture="root")
    assert found.best.components == 2


def test_the_model_is_fitted_to_all_cells():
    table = factors(3)
    found = select(table, stars(3))
    alone = vfg.GaussianVFG(stars(3)[0])
    alone.fit(table)
    torch.testing.assert_close(found.model.log_prob(table), alone.log_prob(table))


@pytest.mark.parametrize("options", [{"graphs": []}, {"components": []}, {"share": 1.0}])
def test_nothing_to_choose_from_is_refused(options):
    arguments = {"graphs": stars(1), "components": (1,), "share": 0.1} | options
    with pytest.raises(ValueError, match="select needs graphs, components and a share"):
        select(factors(1), **arguments)
