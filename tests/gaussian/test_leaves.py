import math

import numpy as np
import pytest
import torch
from gaussian.test_fitting import GRAPHS, factor_table

import vfg
from vfg.gaussian import GaussianVFG
from vfg.gaussian.leaves import Adam, fit_maps, make_normal

SIX = {f"x{k}": 1 for k in range(6)}


def skewed_table(rows=1500, missing=0.3):
    """Exponentials of a factor model, so that logarithms are the best maps."""
    table, covariance = factor_table(rows, 6, 2, missing=missing)
    return (0.4 * (table - 3.0)).exp(), covariance


def test_adam_makes_the_steps_of_torch():
    ours, theirs = (torch.linspace(-1, 2, 7, dtype=torch.float64) for _ in range(2))
    ours.requires_grad_(True)
    theirs.requires_grad_(True)
    mine = Adam([ours])
    reference = torch.optim.Adam([theirs], lr=0.1, betas=(0.9, 0.99), eps=1e-10)
    for _ in range(30):
        for values in (ours, theirs):
            (values.square().sum() + values.exp().sum()).backward()
        mine.step(0.1)
        reference.step()
        reference.zero_grad()
    torch.testing.assert_close(ours, theirs)


def moments(values):
    """Mean, deviation and skewness."""
    deviation, mean = torch.std_mean(values)
    return mean.item(), deviation.item(), ((values - mean) / deviation).pow(3).mean().item()


def test_make_normal_gives_every_leaf_the_moments_of_a_normal():
    table, _ = skewed_table()
    seen = ~table.isnan()
    cells = (table - table.nanmean(0)) / table[seen].std()
    cells = torch.where(seen, cells, 0.0)
    model = GaussianVFG(vfg.Graph.star(SIX, width=2), leaf="spline")
    make_normal(model, cells, seen)
    with torch.no_grad():
        values, _ = model.leaves(cells, seen)
    for column in range(6):
        known = seen[:, column]
        mean, deviation, skewness = moments(values[known, column])
        assert mean == pytest.approx(0.0, abs=0.1)
        assert deviation == pytest.approx(1.0, abs=0.1)
        assert abs(skewness) < 0.2 * abs(moments(cells[known, column])[2])


def test_bending_reaches_the_likelihood_of_the_true_map():
    table, _ = skewed_table()
    graph = vfg.Graph.star(SIX, width=2)
    bent, straight, truth = (
        GaussianVFG(graph, leaf="spline"),
        GaussianVFG(graph),
        GaussianVFG(graph),
    )
    history = bent.fit(table)
    straight.fit(table)
    truth.fit(table.log())
    known = truth.log_prob(table.log()) - table.log().nan_to_num(0.0).sum(1)
    reached = bent.log_prob(table).mean()
    assert straight.log_prob(table).mean() < known.mean() - 0.5
    assert reached > known.mean() - 0.1
    assert max(history.steps) == pytest.approx(reached.item(), abs=1e-9)


@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_bending_never_ends_below_its_start(graph, mixture):
    table, _ = factor_table(150, 4, 2, missing=0.3)
    table = (0.3 * table).sinh()
    model = GaussianVFG(graph, 2, mixture=mixture, leaf="spline")
    model.fit(table, iterations=10, restarts=1, finish="none")
    start = model.log_prob(table).mean().item()
    seen = ~table.isnan()
    scaling = model.scaling
    cells = torch.where(seen, (table - scaling.location) / scaling.scale, 0.0)
    trace = fit_maps(model, cells, seen, steps=20, tolerance=1e-5, shrinkage=0.0, score=None)
    assert trace[0] == pytest.approx(start, abs=1e-9)
    assert max(trace) > start + 1e-3
    assert model.log_prob(table).mean().item() == pytest.approx(max(trace), abs=1e-9)


def test_a_score_decides_which_state_is_kept():
    table, _ = factor_table(200, 4, 2)
    model = GaussianVFG(GRAPHS["star"], leaf="spline")
    model.fit(table, finish="none")
    seen = torch.ones_like(table, dtype=torch.bool)
    cells = (table - model.scaling.location) / model.scaling.scale
    before = {name: value.clone() for name, value in model.state_dict().items()}
    falling = iter(np.linspace(1.0, 0.0, 100))
    fit_maps(
        model, cells, seen, steps=100, tolerance=1e-5, shrinkage=0.0, score=lambda: next(falling)
    )
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=1e-6, atol=1e-6)


def test_tails_stay_gentle_on_a_handful_of_rows():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    model = GaussianVFG(vfg.Graph.star(dict.fromkeys("abc", 1), width=1), leaf="spline")
    model.fit(table)
    far = torch.full((1, 3), 6.0, dtype=torch.float64)
    normal = -0.5 * 3 * (36.0 + math.log(2 * math.pi))
    assert model.log_prob(far).item() > 2.0 * normal
