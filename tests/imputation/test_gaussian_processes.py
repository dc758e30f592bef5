"""Gaussian process regressions: against the closed form, refits without rows, and by their gain."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import vfg
from vfg.imputation.gaussian_processes import (
    CONSTANT,
    GaussianProcesses,
    _score_gradient,
    choose_rows,
    fit_processes,
    weigh_processes,
)
from vfg.imputation.plan import ProcessPlan
from vfg.imputation.trees import HeldOutRows
from vfg.sklearn import VFGImputer

PLAN = ProcessPlan(60, 40, 5)


def curved(rows=60, columns=3, seed=0):
    """A matrix whose first column is a curve of the second; a fifth of the entries missing."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator).double()
    values[:, 0] = torch.sin(2.0 * values[:, 1])
    observed = torch.rand(rows, columns, generator=generator) > 0.2
    return torch.where(observed, values, 0.0), observed


def fitted(values, observed, rows=None, copies=None):
    every = torch.arange(len(values))
    rows, copies = (every if given is None else given for given in (rows, copies))
    matrix = values[rows], observed[rows], values[rows]
    return fit_processes(rows, matrix, copies, range(values.shape[1]), PLAN, seed=0)


def test_predictions_are_those_of_the_closed_form():
    values, observed = curved()
    left_out = fitted(values, observed)
    model, target = left_out.processes, 0
    known = observed[:, target]
    rows, rate = values[known].numpy(), model.rates[target].numpy()
    assert rate[target] == 0.0
    size, slope = (model.sizes[target] ** 2).tolist()
    new = np.random.default_rng(1).normal(size=(4, 3))
    r = np.sqrt(5.0 * np.square((new[:, None] - rows) * rate).sum(2))
    covariance = size * (1.0 + r + r**2 / 3.0) * np.exp(-r)
    covariance += slope * new[:, 1:] @ rows[:, 1:].T / 2.0 + CONSTANT
    expected = covariance @ model.coefficients[target, known].numpy()
    assert_allclose(model.predict(target, torch.from_numpy(new)), expected, atol=1e-4)


def test_scales_do_not_depend_on_held_out_cells():
    values, observed = curved(rows=200)
    own = torch.zeros_like(observed)
    own[:60, 0] = observed[:60, 0]
    changed = torch.where(own, 2.0 - values, values)
    rows = torch.arange(len(values))

    def scales(truth, held_out):
        matrix = truth, observed, values
        plan = ProcessPlan(200, 200, 5)
        found = fit_processes(rows, matrix, rows, [0], plan, seed=0, held_out=held_out)
        return found.processes.rates

    assert torch.equal(scales(values, own), scales(changed, own))
    assert not torch.equal(scales(values, None), scales(changed, None))


def test_a_row_that_is_left_out_is_predicted_as_by_a_fit_without_it():
    values, observed = curved()
    left_out = fitted(values, observed)
    row = int(observed[:, 0].nonzero()[3])
    inputs = values[[row]].clone()
    inputs[0, 2] = 0.7  # what is filled where another cell of the row is hidden, too
    found = left_out.predict(0, inputs, torch.tensor([row]))
    keep = (observed[:, 0] & (torch.arange(len(values)) != row)).nonzero()[:, 0]
    whole = left_out.inverses[0][keep.new_tensor(sorted([*keep.tolist(), row]))]
    every = torch.tensor(sorted([*keep.tolist(), row]))
    system = torch.linalg.inv(whole[:, every].double())
    inner = torch.tensor([k for k, one in enumerate(every.tolist()) if one != row])
    weights = torch.linalg.solve(system[inner[:, None], inner], values[keep, 0])
    expected = left_out.processes.covariance(0, inputs)[:, keep] @ weights
    assert_allclose(found, expected, atol=1e-3)
    assert abs(float(found - left_out.processes.predict(0, inputs))) > 1e-3


def test_copies_of_a_fitted_row_are_left_out_with_it():
    values, observed = curved()
    copies = torch.arange(len(values))
    copies[7] = 2
    rows = choose_rows(copies, 100, seed=0)
    assert 7 not in rows.tolist()
    left_out = fitted(values, observed, rows, copies)
    assert left_out.places[7] == left_out.places[2] >= 0


@pytest.mark.parametrize("coordinate", range(7))
def test_the_gradient_of_the_scores_is_that_of_differences(coordinate):
    values, _ = curved(rows=20)
    inputs, truth, missing = values, values[:, 0] + 0.1, torch.linspace(0.0, 0.5, 20).double()
    often, logs = torch.linspace(0.5, 2.0, 20).double(), torch.linspace(-0.6, 0.6, 7).double()

    def score(logs):
        columns = 3
        size, slope = (2.0 * logs[columns : columns + 2]).exp()
        rates = (-logs[:columns]).exp() * torch.tensor([0.0, 1.0, 1.0])
        r = ((inputs[:, None] - inputs) * rates).square().sum(2).mul(5.0).clamp(min=5e-12).sqrt()
        line = inputs[:, 1:] @ inputs[:, 1:].T / 2.0
        covariance = size * (1.0 + r + r**2 / 3.0) * (-r).exp() + slope * line + CONSTANT
        noise = ((2.0 * logs[-2]).exp() + (2.0 * logs[-1]).exp() * missing + 1e-4) / often
        total = 0.0
        for row in range(20):
            others = [k for k in range(20) if k != row]
            inner = covariance[others][:, others] + noise[others].diag()
            weights = torch.linalg.solve(inner, covariance[others, row])
            mean = weights @ truth[others]
            variance = covariance[row, row] + noise[row] - weights @ covariance[others, row]
            own = 0.5 * variance.log() + 0.5 * (truth[row] - mean) ** 2 / variance
            total = total + often[row] / often.sum() * own
        return total + 0.005 * (logs[:columns] - np.log(2.0)).square().mean()

    step = torch.zeros(7).double()
    step[coordinate] = 1e-5
    expected = (score(logs + step) - score(logs - step)) / 2e-5
    found = _score_gradient(0, inputs, truth, missing, often, logs)[coordinate]
    assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_weights_follow_held_out_cells():
    values, observed = curved(rows=200)
    left_out = fit_processes(
        torch.arange(200), (values, observed, values), torch.arange(200), [0, 2],
        ProcessPlan(200, 100, 15), seed=0,
    )  # fmt: skip
    shown = observed.clone()
    shown[::2, [0, 2]] = False
    counted = (observed & ~shown).double()
    means = torch.where(shown, values, 0.0)
    one = HeldOutRows(torch.arange(200), values, shown, counted, means, [])
    (moved,) = weigh_processes(left_out, [one])
    weights = left_out.processes.weights
    assert weights[0] > 0.6 > weights[2]  # the third column follows from no other
    assert weights[1] == 0.0  # it has no regression
    before, after = (
        ((x.means - values)[:, 0] * counted[:, 0]).square().sum() for x in (one, moved)
    )
    assert after < 0.6 * before


def test_smooth_tables_are_filled_better_and_alike_in_files_and_batches(tmp_path):
    generator = np.random.default_rng(0)
    causes = generator.uniform(-2.0, 2.0, size=(250, 3))
    last = np.sin(causes[:, 0]) * causes[:, 1] + 0.05 * generator.normal(size=250)
    table = np.column_stack([causes, last])
    shown = table.copy()
    hidden = generator.random(250) < 0.3
    shown[hidden, 3] = np.nan
    imputer = VFGImputer(effort="fast", random_state=0).fit(shown)
    model = imputer.model_
    assert model.processes is not None
    filled = imputer.transform(shown)
    assert_allclose(imputer.transform(shown[hidden][:5]), filled[hidden][:5], atol=1e-6)
    vfg.save(model, tmp_path / "model.vfg")
    assert_allclose(vfg.load(tmp_path / "model.vfg").fill(shown), filled, atol=1e-9)
    low, high = imputer.predict_interval(shown)
    assert np.mean((low <= table)[hidden, 3] & (table <= high)[hidden, 3]) > 0.8
    model.processes = None
    without = imputer.transform(shown)
    errors = [np.square(x - table)[hidden, 3].mean() for x in (filled, without)]
    assert errors[0] < 0.8 * errors[1]


def test_models_without_row_mixtures_hold_no_rows():
    table = np.random.default_rng(0).normal(size=(120, 3))
    model = VFGImputer(effort="fast", neighbours=0, random_state=0).fit(table).model_
    assert model.processes is None
    assert GaussianProcesses.from_dict(GaussianProcesses(5, 3).to_dict()).inputs.shape == (5, 3)
