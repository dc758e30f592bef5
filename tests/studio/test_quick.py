"""Fast answers about single rows are those of the library."""

import time

import numpy as np
import pytest
import torch
from tabular.mixed_tables import light, numbers

import vfg
from vfg.studio.conversation import State, act, view
from vfg.studio.quick import quick_exact, quick_infer, quick_table
from vfg.studio.subjects import open_subject


def close(found, wanted, tolerance=1e-5):
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("aggregation", ["gaussian", "precision", "mean"])
def test_quick_answers_of_a_deep_model_are_those_of_infer(aggregation):
    graph = vfg.Graph.tree({"a": 2, "b": 1, "c": 1, "d": 1}, arity=2, width=3)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=8), aggregation=aggregation)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    nan = torch.nan
    table = torch.tensor([[0.5, nan, nan, 1.0, nan], [nan, nan, 2.0, nan, nan]]).double()
    targets = [*graph.leaves, *graph.roots]
    means, answer = quick_infer(model, table, targets)
    exact = model.infer(table, targets=targets)
    close(means, torch.cat([exact.mean[leaf] for leaf in graph.leaves], dim=1))
    for name in targets:
        close(answer.mean[name], exact.mean[name][:1])
        close(answer.std[name], exact.std[name][:1])
        close(answer.samples(40)[name], exact.samples(40)[name][:, :1])
        close(answer.quantile([0.1, 0.9])[name], exact.quantile([0.1, 0.9])[name][:, :1])


def test_quick_answers_follow_a_model_that_is_fitted_again():
    model = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}, width=1))
    table = torch.tensor([[1.0, torch.nan]], dtype=torch.float64)
    for slope in (1.0, -1.0):
        model.fit([[x, slope * x + 0.1 * (x % 2)] for x in (0.0, 1.0, 2.0, 3.0)])
        exact = model.infer(table)
        quick = quick_exact(model, table)
        close(quick.mean["b"], exact.mean["b"])
        close(quick.samples(20)["b"], exact.samples(20)["b"])


def test_quick_answers_of_a_table_are_those_of_its_model(mixed_imputer):
    model = mixed_imputer.model_
    rows = np.full((3, 6), None, dtype=object)
    rows[0, :2] = 171.0, 30
    rows[1, 3] = "Oslo"
    values, observed = model.encode(rows)
    means, draws = quick_table(model, values, observed, draws=30, seed=3)
    close(means, model.means(values, observed))
    close(draws, model.draws(values[:1], observed[:1], 30, 3)[:, 0])


@pytest.mark.slow
def test_the_page_of_sixteen_columns_takes_less_than_a_tenth_of_a_second():
    names = [f"x{k}" for k in range(16)]
    import pandas as pd

    frame = pd.DataFrame(numbers(rows=60, columns=16)[1] / 10.0 ** np.arange(16), columns=names)
    flow = vfg.Coupling(blocks=4, hidden=32)
    subject = open_subject(light(width=12, members=3, mixtures=3, flow=flow).fit(frame))
    state = State()
    for name in names[:4]:
        state = act(subject, state, {"kind": "set", "name": name, "value": 0.5})
    view(subject, state)
    spent = []
    for value in np.linspace(-1.0, 1.0, 12):
        # Time of this process, so that a busy machine does not count.
        begun = time.process_time()
        view(subject, act(subject, state, {"kind": "set", "name": "x0", "value": value}))
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.1
