"""Training: what it learns, what it never looks at, and how it survives trouble."""

import copy
import itertools
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from optional import polars
from torch.utils.data import DataLoader, TensorDataset

import vfg
from vfg.inputs import scale_cells
from vfg.training import loop, steps
from vfg.training.data import TrainingTable, draw_held_out, fit_scaling
from vfg.training.settings import RunSettings
from vfg.training.steps import Steps
from vfg.training.tasks import TableTask

NAN = float("nan")
QUICK = {"progress": False, "epochs": 4, "batch": 64}


def circle(rows=256, seed=0):
    """Three sections that are functions of one angle."""
    angle = 6.28 * torch.rand(rows, generator=torch.Generator().manual_seed(seed))
    return torch.stack([angle.cos(), angle.sin(), angle.cos() + 1, (2 * angle).sin(), angle], 1)


def small(seed=0, **options):
    graph = vfg.Graph.star({"a": 2, "b": 2, "c": 1}, width=4)
    flow = options.pop("flow", vfg.Coupling(blocks=2, hidden=16))
    return vfg.VFG(graph, flow=flow, seed=seed, **options)


def deep(seed=0):
    graph = vfg.Graph.tree({"a": 1, "b": 1, "c": 1, "d": 2}, arity=2, width=3)
    return vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=16), seed=seed)


def settings_of(**changes):
    options = {"masking": None, "layerwise": False, "beta": 1.0, "warmup": 0, "free_bits": 0.0}
    options |= {"epochs": 1, "steps": None, "budget": None, "batch": 64, "rate": 1e-3, "clip": 1.0}
    options |= {"weight_decay": 0.0, "validation": 0.0, "patience": None, "scale": False}
    return RunSettings(**options | {"compile": False, "seed": 0} | changes)


def same_bits(one, two):
    states = one.state_dict(), two.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


# What is learned.


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["mean", "precision", "gaussian"])
def test_hidden_sections_are_predicted_better_than_by_their_mean(aggregation):
    model = small(aggregation=aggregation)
    table = circle(512)
    history = vfg.fit(
        model, table, beta=0.01, masking=vfg.Masking(rate=1.0), epochs=60, batch=64, progress=False
    )
    test = circle(200, seed=1)
    gaps = test.clone()
    gaps[:, 2:4] = NAN
    error = (model.reconstruct(gaps)[:, 2:4] - test[:, 2:4]).square().mean()
    assert error < 0.5 * (test[:, 2:4] - table[:, 2:4].mean(0)).square().mean()
    assert history[history.best].validation < history[0].validation


def test_algorithm_one_raises_the_surrogate():
    model, table = small(), circle()
    before = model.surrogate(table).total.mean()
    vfg.fit(model, table, masking=None, scale=False, validation=0.0, **QUICK | {"epochs": 20})
    assert model.surrogate(table).total.mean() > before + 1.0


def test_labels_move_their_own_priors():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    table = torch.randn(300, 5, generator=generator) + 3 * labels[:, None]
    model = small(prior=vfg.PerLabel(3))
    vfg.fit(model, table, labels=labels, rate=1e-2, **QUICK | {"epochs": 30})
    means = model.prior_at(len(model.passing.schedule.blocks) - 1).locations[0].detach()
    nearest = torch.cdist(model.encode(table)["root"], means).argmin(1)
    assert (nearest == labels).float().mean() > 0.9


def test_training_again_continues():
    model, table = small(), circle()
    vfg.fit(model, table, **QUICK)
    location, state = model.scaling.location.clone(), copy.deepcopy(model.state_dict())
    vfg.fit(model, table + 100.0, rate=1e-9, validation=0.0, **QUICK)
    assert torch.equal(model.scaling.location, location)
    for name, value in model.state_dict().items():
        if value.is_floating_point() and not name.startswith("spread."):
            torch.testing.assert_close(value, state[name], rtol=1e-4, atol=1e-4)


def test_a_new_model_learns_the_scale_of_observed_cells():
    table = circle().double() * torch.tensor([1.0, 10, 1e-3, 1, 1]) + torch.tensor(
        [0.0, 5, 0, 1e9, 0]
    )
    table[::3, 1] = NAN
    model = small()
    vfg.fit(model, table, **QUICK)
    observed = table[:, 1][~table[:, 1].isnan()]
    torch.testing.assert_close(model.scaling.location[1], observed.mean())
    torch.testing.assert_close(model.scaling.scale[1], observed.std(correction=0))
    torch.testing.assert_close(model.scaling.location[3], table[:, 3].mean())
    assert (model.reconstruct(table)[:, 3] - table[:, 3]).abs().max() < 10


def test_scales_of_large_tables_are_found_by_parts(monkeypatch):
    monkeypatch.setattr("vfg.inputs.CELLS_AT_ONCE", 5 * 7)
    table = circle(100).double() * 3.0 + 1e6
    table[::3, 1] = NAN
    model = small()
    fit_scaling(model, torch.nan_to_num(table), ~table.isnan(), True)
    for column, values in enumerate(table.T):
        observed = values[~values.isnan()]
        torch.testing.assert_close(model.scaling.location[column], observed.mean())
        torch.testing.assert_close(model.scaling.scale[column], observed.std(correction=0))
        assert model.scaling.low[column] == observed.min()
        assert model.scaling.high[column] == observed.max()
    cells, _ = scale_cells(model, torch.nan_to_num(table), ~table.isnan())
    expected = (table - model.scaling.location) / model.scaling.scale
    torch.testing.assert_close(cells, torch.nan_to_num(expected).float())


def test_scales_of_bits_and_constants_are_left_alone():
    graph = vfg.Graph.star({"bit": 1, "same": 1, "real": 1}, width=2)
    model = vfg.VFG(graph, likelihood={"bit": "bernoulli", "*": "gaussian"})
    generator = torch.Generator().manual_seed(0)
    bits = (torch.rand(50, 1, generator=generator) > 0.5).float()
    table = torch.cat([bits, torch.full((50, 1), 7.0), torch.randn(50, 1, generator=generator)], 1)
    vfg.fit(model, table, **QUICK)
    assert model.scaling.scale[:2].tolist() == [1.0, 1.0]
    assert model.scaling.location[:2].tolist() == [0.0, 7.0]


def test_normalisation_layers_start_from_the_data():
    model = small(flow=vfg.Coupling(blocks=1, hidden=4, normalise=True))
    vfg.fit(model, circle(), rate=1e-9, scale=False, **QUICK)
    scales = [
        layer.log_scale.abs().max()
        for layer in model.modules()
        if type(layer).__name__ == "ActivationNormalisation"
    ]
    assert max(scales) > 0.01


# What training never looks at.


def test_unobserved_cells_change_nothing():
    table = circle()
    seen = torch.rand(table.shape, generator=torch.Generator().manual_seed(3)) > 0.3
    one, two, three = small(), small(), small()
    vfg.fit(one, torch.where(seen, table, NAN), **QUICK)
    vfg.fit(two, table, observed=seen, **QUICK)
    vfg.fit(three, torch.where(seen, table, 1e6), observed=seen, **QUICK)
    assert same_bits(one, two)
    assert same_bits(one, three)


def test_held_out_cells_are_scored_and_never_learned_from():
    table, model = circle(), small()
    data = TrainingTable(table, torch.ones_like(table, dtype=torch.bool), None)
    held = draw_held_out(model, data, 0.1, seed=0)
    other = torch.where(held, table + 5.0, table)
    first = vfg.fit(small(), table, scale=False, **QUICK)
    second = vfg.fit(small(), other, scale=False, **QUICK)
    assert [epoch.objective for epoch in first] == [epoch.objective for epoch in second]
    assert first[0].validation != second[0].validation
    assert 0.05 < held.float().mean() < 0.15


def test_sections_are_held_out_whole():
    table, model = circle(), small()
    data = TrainingTable(table, torch.ones_like(table, dtype=torch.bool), None)
    held = draw_held_out(model, data, 0.3, seed=0)
    assert torch.equal(held[:, 0], held[:, 1])
    assert torch.equal(held[:, 2], held[:, 3])
    assert not torch.equal(held[:, 0], held[:, 2])


@pytest.mark.parametrize("column", [[1e308, -1e308, 0.0, 1.0], [1e308] * 4, [1e200, 1.0, 2.0, 3.0]])
@pytest.mark.parametrize("kind", [vfg.VFG, vfg.GaussianVFG])
def test_columns_whose_variance_overflows_are_refused_by_name(kind, column):
    table = pandas.DataFrame({"a": [1.0, 2.0, 3.0, 5.0], "b": column})
    model = kind(vfg.Graph.star({"a": 1, "b": 1}, width=1))
    with pytest.raises(
        ValueError, match=r"column 1 \(leaf 'b'\) has numbers from .* to 1e\+.*missing"
    ):
        vfg.fit(model, table)


# Same seed, same bits.


def test_the_seed_decides_everything_and_global_generators_are_left_alone(untouched_generators):
    flow = vfg.Coupling(blocks=2, hidden=16, dropout=0.2)
    models = [small(flow=flow) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        vfg.fit(model, circle(), seed=seed, **QUICK)
    assert same_bits(models[0], models[1])
    assert not same_bits(models[0], models[2])


DRAWING = {
    "relu": ({"flow": vfg.Coupling(2, 16, dropout=0.2)}, {}),
    "silu": ({"flow": vfg.Coupling(2, 16, activation="silu", dropout=0.2)}, {}),
    "tiles": ({"flow": vfg.Coupling(2, 512, dropout=0.2)}, {}),
    "recompute": ({"flow": vfg.Coupling(2, 16, dropout=0.2)}, {"memory": "recompute"}),
    "sampled": ({"states": "sampled"}, {}),
    "augment": ({}, {"augment": lambda cells: cells + 0.1 * torch.randn_like(cells)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWING)
def test_fits_in_threads_end_in_the_bits_of_one_alone(kind, untouched_generators):
    arguments, options = DRAWING[kind]
    models = [small(**arguments) for _ in range(4)]
    begin = threading.Barrier(2)

    def fit(model):
        begin.wait()
        vfg.fit(model, circle(), **QUICK, **options)

    vfg.fit(models[0], circle(), **QUICK, **options)
    threads = [threading.Thread(target=fit, args=[model]) for model in models[1:3]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same_bits(models[0], models[1])
    assert same_bits(models[0], models[2])
    assert not same_bits(models[0], models[3])


@pytest.mark.parametrize("kind", ["relu", "silu", "recompute", "sampled"])
def test_a_fit_never_reads_or_moves_the_global_generator(kind, monkeypatch):
    arguments, options = DRAWING[kind]
    alone, disturbed = small(**arguments), small(**arguments)
    vfg.fit(alone, circle(), **QUICK, **options)
    states, original = [], TableTask.batch

    def disturb():
        states.append(torch.get_rng_state())
        torch.manual_seed(len(states))  # as another thread may, at any time

    def batch(*arguments):
        disturb()
        return original(*arguments)

    disturb()
    monkeypatch.setattr(TableTask, "batch", batch)
    vfg.fit(disturbed, circle(), **QUICK, **options)
    assert same_bits(alone, disturbed)
    for seed, state in enumerate(states[1:], start=1):
        assert torch.equal(state, torch.Generator().manual_seed(seed).get_state())
    assert len(states) > 10


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x.numpy(),
        lambda x: x.double(),
        lambda x: {"c": x[:, 4:], "a": x[:, :2], "b": x[:, 2:4]},
        lambda x: pandas.DataFrame(x.numpy()),
        lambda x: polars.DataFrame(x.numpy()),
        lambda x: TensorDataset(x, torch.zeros(len(x))),
        lambda x: DataLoader(TensorDataset(x), batch_size=100),
    ],
    ids=["array", "double", "mapping", "pandas", "polars", "dataset", "loader"],
)
def test_every_kind_of_table_trains_the_same(wrap):
    one, two = small(), small()
    vfg.fit(one, circle(), **QUICK)
    vfg.fit(two, wrap(circle()), **QUICK)
    torch.testing.assert_close(one.state_dict(), two.state_dict(), rtol=1e-5, atol=1e-6)


# Schedules and stopping.


def test_beta_warms_up():
    history = vfg.fit(small(), circle(), beta=0.5, warmup=2, **QUICK)
    assert [epoch.beta for epoch in history] == [0.0, 0.25, 0.5, 0.5]


def test_patience_stops_and_the_best_state_is_kept():
    model, table = small(), circle(64)
    history = vfg.fit(
        model, table, rate=0.3, clip=100.0, patience=3, progress=False, epochs=200, batch=16
    )
    assert history.stopped == "patience"
    assert len(history) == history.best + 4
    best = min(epoch.validation for epoch in history)
    assert history[history.best].validation == best


def test_the_restored_state_has_the_best_held_out_loss():
    model, table = small(), circle()
    history = vfg.fit(model, table, scale=False, rate=0.05, **QUICK | {"epochs": 12})
    held = draw_held_out(model, TrainingTable(table, torch.ones_like(table).bool(), None), 0.1, 0)
    rows = held.any(1)
    with torch.no_grad():
        found = (
            model.objective(table[rows], ~held[rows], held[rows].float(), None, 0.0).total.sum()
            / -held.sum()
        )
    assert found.item() == pytest.approx(history[history.best].validation, rel=1e-5)


def test_a_budget_stops(monkeypatch):
    """By a clock that goes on by a millisecond whenever it is looked at."""
    looks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 1e-3 * next(looks))
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(steps, "time", clock)
    history = vfg.fit(small(), circle(), budget=0.3, progress=False, epochs=100_000)
    assert history.stopped == "budget"
    epoch = history[-1].seconds - history[-2].seconds
    assert 0.3 <= history[-1].seconds < 0.3 + epoch
    assert history[-1].rate < 0.1 * max(epoch.rate for epoch in history)


@pytest.mark.slow
def test_what_compiling_takes_of_a_budget_is_not_taken_from_the_rise_of_rate_and_beta(monkeypatch):
    """By a clock on which the first step takes half of the budget, and others a thousandth."""
    now, seen = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(steps, "time", clock)

    def pass_time(rows):
        now[0] += 1e-3 if now[0] else 0.5
        return rows

    class Watched(loop.Run):
        def _rate(self, step, begun):
            seen.append((super()._rate(step, begun), self._beta(step, begun)))
            return seen[-1][0]

    monkeypatch.setattr(loop, "Run", Watched)
    options = {"states": "sampled", "aggregation": "mean"}
    settings = {"budget": 1.0, "epochs": 10_000, "warmup": 0.1, "schedule": "cosine", "rate": 1e-2}
    vfg.fit(small(**options), circle(), augment=pass_time, progress=False, **settings)
    rates, betas = zip(*seen, strict=True)
    assert rates[3] < 0.3e-2, "the rate rises from almost nothing after the preparation"
    assert max(rates) > 0.98e-2
    assert rates[-1] < 1e-3
    assert betas[3] < 0.1
    assert betas[-1] == 1.0


def test_layerwise_steps_touch_one_layer_of_edges():
    model, table = deep(), circle()
    before = copy.deepcopy(model)
    vfg.fit(model, table, layerwise=True, epochs=1, batch=256, validation=0.0, progress=False)
    schedule = model.passing.schedule
    for index, group in enumerate(schedule.groups):
        pairs = zip(
            model.passing.group(index).parameters(),
            before.passing.group(index).parameters(),
            strict=True,
        )
        moved = any(not torch.equal(one, two) for one, two in pairs)
        assert moved == (schedule.blocks[group.parent].layer == 1), group.name


def test_layerwise_training_reaches_every_layer():
    model = deep()
    before = copy.deepcopy(model)
    vfg.fit(model, circle(), layerwise=True, **QUICK)
    for index in range(len(model.passing.schedule.groups)):
        pairs = zip(
            model.passing.group(index).parameters(),
            before.passing.group(index).parameters(),
            strict=True,
        )
        assert any(not torch.equal(one, two) for one, two in pairs)


def test_a_compiled_step_learns_the_same():
    one, two = small(), small()
    vfg.fit(one, circle(), **QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda loss: _captured(loss))
        vfg.fit(two, circle(), compile=True, **QUICK)
    torch.testing.assert_close(one.state_dict(), two.state_dict(), rtol=1e-4, atol=1e-5)


def _captured(loss):
    """Capture only: a real back end would take minutes to build."""
    torch._dynamo.reset()
    return torch._dynamo.optimize("eager", nopython=True)(loss)


# Trouble.


def test_an_interrupt_returns_the_best_model_so_far(monkeypatch):
    model, calls = small(), []
    step = Steps.step

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) > 10:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Steps, "step", interrupted)
    history = vfg.fit(model, circle(), progress=False, epochs=100, batch=64)
    assert history.stopped == "interrupted"
    assert len(history) == 2
    assert all(value.isfinite().all() for value in model.state_dict().values())


def broken_gradient(model, when):
    """Make one parameter's gradient NaN whenever `when(call)` says so."""
    calls = []

    def hook(gradient):
        calls.append(1)
        return gradient * NAN if when(len(calls)) else gradient

    next(model.passing.groups.parameters()).register_hook(hook)


def test_a_broken_step_is_taken_back_and_training_goes_on():
    model = small()
    broken_gradient(model, lambda call: call == 6)
    history = vfg.fit(model, circle(), **QUICK)
    assert history.restarts == 1
    assert len(history) == 4
    assert all(value.isfinite().all() for value in model.state_dict().values())
    assert history[-1].rate < history[0].rate


def test_training_that_cannot_go_on_says_where_and_leaves_the_model_whole():
    model = small()
    broken_gradient(model, lambda call: call > 5)
    with pytest.raises(FloatingPointError, match=r"first at node '(a|b|c|root)'.*best state"):
        vfg.fit(model, circle(), **QUICK)
    assert all(value.isfinite().all() for value in model.state_dict().values())
    assert model.reconstruct(circle()).isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"table": x[:0]}, r"without rows"),
        (lambda x: {"table": torch.where(torch.arange(5) == 3, NAN, x)}, r"3 \(leaf 'b'\).*no obs"),
        (lambda x: {"table": torch.full_like(x, torch.inf)}, r"leaf 'a' has infinite"),
        (lambda x: {"table": x[:, :4]}, r"\(rows, 5\)"),
        (lambda x: {"labels": torch.zeros(len(x)).long()}, r"one mean per label"),
        (lambda x: {"epochs": 0}, r"epochs must be at least 1"),
        (lambda x: {"validation": 1.0}, r"validation is the share"),
        (lambda x: {"rate": 0.0}, r"rate must be positive"),
        (lambda x: {"budget": -1.0}, r"budget must be positive"),
        (lambda x: {"device": "cuda:99"}, r"device 'cuda:99' cannot be used.*leave device out"),
        (lambda x: {"device": "gpu"}, r"device 'gpu' cannot be used"),
    ],
)
def test_bad_input_gets_one_clear_sentence(change, message):
    arguments = {"table": circle(), "progress": False} | change(circle())
    with pytest.raises(ValueError, match=message):
        vfg.fit(small(), arguments.pop("table"), **arguments)


def test_answers_of_untrained_models_warn_and_those_of_trained_ones_do_not():
    model, table = small(), circle()
    for ask in (
        lambda: model.infer(table[:3]),
        lambda: model.sample(3),
        lambda: model.fill(torch.where(torch.arange(5) == 3, NAN, table[:3])),
    ):
        with pytest.warns(UserWarning, match=r"model is not trained.*vfg\.fit\(model, table\)"):
            ask()
    with pytest.warns(UserWarning, match="not trained") as caught:
        model.infer(table[:3])
    assert caught[0].filename == __file__
    vfg.fit(model, table, **QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.infer(table[:3])
        model.sample(3)


def test_deep_models_that_start_at_a_fitted_linear_one_answer_without_a_warning():
    linear = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1, "c": 1}, width=2))
    linear.fit(circle()[:, [0, 1, 4]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vfg.VFG.from_gaussian(linear).infer({"a": [0.5]})


def test_text_is_refused():
    with pytest.raises((TypeError, ValueError), match="number"):
        vfg.fit(small(), np.array([["a"] * 5] * 3), progress=False)


def test_the_terms_of_an_epoch_add_up():
    history = vfg.fit(small(), circle(), beta=0.3, **QUICK)
    for epoch in history:
        divergence = epoch.kl + epoch.edge - epoch.root + epoch.constants
        assert epoch.objective == pytest.approx(
            epoch.reconstruction - 0.3 * divergence, rel=1e-4, abs=1e-4
        )


def test_a_masked_step_scores_what_it_hides_and_a_little_of_what_it_shows():
    table = circle()
    seen = torch.rand(table.shape, generator=torch.Generator().manual_seed(3)) > 0.3
    model = small()
    settings = settings_of(masking=vfg.Masking(rate=0.5, visible=0.25), epochs=1, batch=64)
    task, rows = TableTask([model], TrainingTable(table, seen, None), settings), torch.arange(64)
    generator = torch.Generator().manual_seed(0)
    _, shown, scored, _ = task.batch(rows, False, generator)  # Algorithm 1
    assert torch.equal(shown, seen[rows])
    assert torch.equal(scored, seen[rows].float())
    _, shown, scored, _ = task.batch(rows, True, generator)  # Algorithm 2
    hidden = seen[rows] & ~shown
    assert (shown & ~seen[rows]).sum() == 0
    assert 0 < hidden.sum() < seen[rows].sum()
    assert torch.equal(scored, hidden.float() + 0.25 * shown.float())
    assert torch.equal(hidden[:, 0] & seen[rows][:, 1], hidden[:, 1] & seen[rows][:, 0])


def test_epochs_of_some_steps_see_every_row_equally_often():
    model, table = small(), circle(100)
    seen = torch.ones(100, 5, dtype=torch.bool)
    settings = settings_of(epochs=2, steps=7, batch=50)
    task = TableTask([model], TrainingTable(table, seen, None), settings)
    run = loop.Run(task, settings, loop.World())
    order = run.steps._order()
    assert len(order) == 8 * 50
    assert order.bincount().tolist() == [4] * 100
    history = vfg.fit(small(), table, epochs=3, steps=5, batch=50, progress=False)
    assert len(history) == 3
