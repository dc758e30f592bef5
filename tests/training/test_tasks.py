"""What the loop trains: any module, one VFG, or several as one; averages and chosen states."""

import math
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional

import vfg
from vfg.training import RunSettings, maximise
from vfg.training.data import TrainingTable, World
from vfg.training.loop import SLOWDOWN, Run
from vfg.training.losses import ROWS, HeldOutLoss, draw_rows
from vfg.training.model_stack import stack_models
from vfg.training.optimiser import SCHEDULES, Average
from vfg.training.tasks import ModuleTask, TableTask, Task

QUICK = {"progress": False, "device": "cpu", "epochs": 3, "batch": 64}


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def table(rows=256, seed=0):
    z = draw(rows, 1, seed=seed)
    return torch.cat([z, -z, z.square(), z + 1.0], dim=1) + 0.1 * draw(rows, 4, seed=seed + 1)


def small(seed=0, **options):
    graph = vfg.Graph.star({"a": 2, "b": 1, "c": 1}, width=3)
    return vfg.VFG(graph, flow=vfg.Coupling(2, 8), seed=seed, **options)


class Line(nn.Module):
    """Least squares on a line, with a factor to spoil it."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer = nn.Linear(3, 1)
        self.factor, self.betas = 1.0, []

    def objective(self, x, beta):
        self.betas.append(float(beta))
        return -self.factor * (self.layer(x) - x.sum(1, keepdim=True)).square().mean()


# Any module.


def test_any_module_is_trained_by_the_loop_of_fit(untouched_generators):
    model, x = Line(), draw(100, 3)
    history = maximise(
        model, x, validate=lambda: -model.objective(x, 0.0).item(), device="cpu",
        epochs=20, steps=15, batch=32, rate=3e-2, weight_decay=0.0, average=0.05,
    )  # fmt: skip
    torch.testing.assert_close(model.layer.weight, torch.ones(1, 3), rtol=0, atol=0.02)
    assert not model.training
    assert history[history.best].validation < 1e-3
    assert history[-1].kl == 0.0


def test_modules_in_threads_end_in_the_bits_of_one_alone(untouched_generators):
    class Dropping(Line):
        def objective(self, x, beta):
            return super().objective(functional.dropout(x, 0.3), beta)

    models = [Dropping() for _ in range(3)]
    begin = threading.Barrier(2)
    options = {"device": "cpu", "epochs": 5, "batch": 10, "rate": 1e-2}

    def train(model):
        begin.wait()
        maximise(model, draw(100, 3), validate=lambda: float(torch.rand(())), **options)

    maximise(models[0], draw(100, 3), validate=lambda: float(torch.rand(())), **options)
    threads = [threading.Thread(target=train, args=[model]) for model in models[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(models[0].layer.weight, models[1].layer.weight)
    assert torch.equal(models[0].layer.weight, models[2].layer.weight)


def test_convolutions_are_tuned_in_training_alone():
    class Asking(Line):
        def objective(self, x, beta):
            assert torch.backends.cudnn.benchmark
            return super().objective(x, beta)

    maximise(Asking(), draw(50, 3), device="cpu", epochs=1)
    assert not torch.backends.cudnn.benchmark


def test_all_tensors_of_a_module_are_cut_alike():
    class Pairs(Line):
        def objective(self, x, y, beta):
            assert torch.equal(x.sum(1), y)
            return super().objective(x, beta)

    x = torch.randint(9, (50, 3), generator=torch.Generator().manual_seed(0)).float()
    maximise(Pairs(), (x, x.sum(1)), device="cpu", epochs=2, batch=10)
    with pytest.raises(ValueError, match="same number of rows, but they have 50, 49"):
        maximise(Pairs(), (x, x[1:]), device="cpu")
    with pytest.raises(TypeError, match="without an option 'speed'"):
        maximise(Pairs(), (x, x), speed=3)


def test_an_objective_that_stays_broken_leaves_the_best_state():
    model = Line()
    before = model.layer.weight.clone()
    model.factor = math.nan
    with pytest.raises(FloatingPointError, match=r"extreme values in the rows.*best state"):
        maximise(model, draw(100, 3), device="cpu", epochs=2, batch=50)
    assert torch.equal(model.layer.weight, before)


def test_weights_of_linear_layers_decay_and_others_do_not():
    class Still(Line):
        def __init__(self):
            super().__init__()
            self.other = nn.Parameter(torch.ones(2))

        def objective(self, x, beta):
            return 0.0 * (self.layer(x).sum() + self.other.sum())

    model = Still()
    before = model.layer.weight.clone()
    maximise(model, draw(64, 3), device="cpu", epochs=1, steps=20, weight_decay=0.5, rate=1e-2)
    assert (model.layer.weight.abs() < before.abs()).all()
    assert torch.equal(model.other, torch.ones(2))


# Schedules and averages.


def test_a_warm_up_below_one_is_a_share_of_the_run():
    model = Line()
    maximise(model, draw(64, 3), device="cpu", epochs=10, steps=1, batch=64, warmup=0.4)
    assert model.betas == pytest.approx([0.0, 0.25, 0.5, 0.75] + [1.0] * 6)


def test_a_warm_up_below_one_rises_from_step_to_step():
    model = Line()
    maximise(model, draw(64, 3), device="cpu", epochs=2, steps=5, batch=64, warmup=0.4)
    assert model.betas == pytest.approx([0.0, 0.25, 0.5, 0.75] + [1.0] * 6)
    model = Line()
    maximise(model, draw(64, 3), device="cpu", epochs=3, steps=2, batch=64, warmup=2)
    assert model.betas == pytest.approx([0.0, 0.0, 0.5, 0.5, 1.0, 1.0])


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_follow_the_schedule(name):
    history = vfg.fit(small(), table(), schedule=name, rate=0.01, steps=1, **QUICK | {"epochs": 20})
    expected = [0.01 * SCHEDULES[name](step / 20) for step in range(20)]
    assert [epoch.rate for epoch in history] == pytest.approx(expected)


def test_the_kept_state_is_the_average_of_the_last_weights():
    model, x, seen = Line(), draw(64, 3), []
    settings = RunSettings(
        epochs=1, steps=40, batch=16, rate=0.1, average=0.5, weight_decay=0.0, compile=False
    )
    run = Run(ModuleTask(model, [x], None), settings, World())
    update = Average.update

    def spy(self, step):
        seen.append(model.layer.weight.detach().clone())
        update(self, step)

    start = model.layer.weight.detach().clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Average, "update", spy)
        run._epoch(0.0)
    expected = start
    for step in (10, 20, 30, 40):
        weight = min(1.0, 10 / (1 + 0.5 * step))
        expected = expected + weight * (seen[step - 1] - expected)
    torch.testing.assert_close(run.best["layer.weight"], expected)
    assert torch.equal(model.layer.weight, seen[-1])  # training goes on from the weights themselves


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": 1.0}, "average is a share from 0 to below 1, but got 1.0"),
        ({"schedule": "flat"}, "schedule to be one of 'one-cycle', 'cosine', but got 'flat'"),
        ({"free_bits": 0.5}, r"free_bits=0.5 is for sampled states.*leave it out"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        vfg.fit(small(), table(), **QUICK, **options)


# Rows that choose the state, and rows that are changed.


@pytest.mark.parametrize("states", ["deterministic", "sampled"])
def test_rows_of_a_validation_table_choose_the_state(states):
    model, valid = small(states=states), table(100, seed=5)
    options = {"scale": False, "rate": 0.05, "beta": 0.5} | QUICK | {"epochs": 8}
    history = vfg.fit(model, table(), validation=valid, **options)
    total = (
        model.surrogate(valid, beta=0.5) if states == "deterministic" else model.bound(valid)
    ).total
    assert history[history.best].validation == pytest.approx(-total.mean().item() / 4, rel=1e-4)
    assert history[history.best].validation == min(epoch.validation for epoch in history)


def test_rows_of_a_validation_table_may_have_labels():
    model, valid = small(prior=vfg.PerLabel(2)), table(50, seed=5)
    labels = torch.arange(256) % 2
    options = {"labels": labels, "scale": False, "rate": 0.05} | QUICK
    history = vfg.fit(model, table(), validation=(valid, labels[:50]), **options)
    total = model.surrogate(valid, labels=labels[:50], beta=1e-3).total.mean().item()
    assert history[history.best].validation == pytest.approx(-total / 4, rel=1e-4)
    with pytest.raises(ValueError, match="without rows"):
        vfg.fit(small(), table(), validation=valid[:0], **QUICK)


def test_no_cell_is_held_out_beside_a_validation_table():
    settings = RunSettings(validation=0.5)
    data = TrainingTable(table(), torch.ones(256, 4, dtype=torch.bool), None)
    assert TableTask([small()], data, settings).held.any()
    assert not TableTask([small()], data, settings, validation=data).held.any()


def test_cells_are_augmented_afresh_in_every_step():
    graph = vfg.Graph.star({"a": 2, "b": 2}, width=2)
    model, seen = vfg.VFG(graph, likelihood="bernoulli"), []

    def augment(cells):
        seen.append(torch.bernoulli(cells))
        return seen[-1]

    rows = torch.full((64, 4), 0.5)
    vfg.fit(model, rows, augment=augment, **QUICK)
    assert len(seen) == 3
    assert all(set(batch.unique().tolist()) == {0.0, 1.0} for batch in seen)
    assert not torch.equal(seen[0], seen[1])


# Several models at once.


def test_models_that_are_trained_together_learn_as_each_would_alone():
    options = {"masking": None, "clip": 1e9, "rate": 1e-2, "scale": False, "validation": 0.0}
    models, alone = ([small(seed).double() for seed in (0, 1, 2)] for _ in range(2))
    rows = table(64).double()  # one batch has all rows
    history = vfg.fit(models, rows, **QUICK | options)
    for one, other in zip(models, alone, strict=True):
        vfg.fit(other, rows, **QUICK | options)
        for name, value in one.state_dict().items():
            torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-6, atol=1e-8)
        assert bool(one.is_trained)
    assert len(history) == 3


def test_every_model_has_its_own_batches_masks_and_held_out_loss():
    models = [small(seed) for seed in (0, 0)]
    history = vfg.fit(models, table(), beta=1.0, **QUICK)
    weights = [model.state_dict() for model in models]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    for epoch in history:
        assert len(epoch.members) == 2
        assert epoch.validation == pytest.approx(sum(epoch.members) / 2)
    assert vfg.History.from_dict(history.to_dict()) == history
    terms = history[0]
    divergence = terms.kl + terms.edge - terms.root + terms.constants
    assert terms.objective == pytest.approx(terms.reconstruction - divergence, rel=1e-4)
    alone = vfg.fit(small(), table(), beta=1.0, **QUICK)  # terms are means over models, not sums
    assert terms.objective == pytest.approx(alone[0].objective, rel=0.1)


def test_batches_of_a_stack_have_the_rows_of_every_model():
    models = [small(seed) for seed in (0, 1)]
    data = TrainingTable(table(), torch.ones(256, 4, dtype=torch.bool), None)
    task = TableTask(models, data, RunSettings(masking=None, validation=0.0))
    rows = torch.tensor([[3, 5], [8, 9]])
    cells, seen, scored, labels = task.batch(rows, False, torch.Generator())
    assert torch.equal(cells, torch.cat([data.cells[rows[:, 0]], data.cells[rows[:, 1]]], 1))
    assert seen.all()
    assert scored.eq(1).all()
    assert labels is None


class Lines(Task):
    """Copies of a line side by side; the held-out losses are given."""

    copies = 2

    def __init__(self, losses):
        model = nn.Module()
        model.weight = nn.Parameter(torch.zeros(2, 3))
        x = draw(100, 3)
        super().__init__(model, nn.Module(), len(x), x, 1.0)
        self.loss.forward = lambda x, beta: nn.functional.pad(
            -((x * model.weight).sum(-1) - x.sum(-1)).square().mean(0).sum().view(1), (0, 5)
        )
        self.x, self.losses = x, iter(losses)

    def batch(self, rows, masked, generator):
        return (self.x[rows],)

    def validation(self, recorder):
        return lambda: next(self.losses)


def run_lines(losses, **options):
    task = Lines(losses)
    settings = RunSettings(epochs=len(losses), steps=10, batch=20, rate=1e-2, **options)
    return Run(task, settings, World())


def test_every_copy_keeps_its_own_best_state():
    run, states = run_lines([[3.0, 3.0], [2.0, 2.5], [2.1, 2.4]]), []
    for _ in range(3):
        run._epoch(0.0)
        states.append(run.model.weight.detach().clone())
    assert torch.equal(run.best["weight"][0], states[1][0])
    assert torch.equal(run.best["weight"][1], states[2][1])
    assert run.history.restarts == 0


def test_a_copy_that_is_lost_goes_back_alone():
    run = run_lines([[3.0, 3.0], [2.0, 2.0], [1.9, 9.0]], average=0.1)
    run._epoch(0.0)
    run._epoch(0.0)
    best = run.best["weight"].clone()
    with pytest.warns(UserWarning, match=r"model 1 of 2 diverged in epoch 2, .* from 2 to 9"):
        run._epoch(0.0)
    assert torch.equal(run.model.weight[1], best[1])
    assert torch.equal(run.average.values["weight"][1], best[1])
    assert not torch.equal(run.model.weight[0], best[0])
    moments = run.optimiser.inner.state[run.model.weight]["exp_avg"]
    assert moments[1].eq(0).all()
    assert moments[0].ne(0).all()
    assert (run.history.restarts, run.slowdown) == (1, SLOWDOWN)


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        (lambda: [small(), small(states="sampled")], {}, "same graph and configuration"),
        (lambda: [small(), small()], {"labels": [0] * 256}, "labels are for one model"),
        (lambda: [small(), _fitted_elsewhere()], {}, "same location and scale"),
    ],
)
def test_models_that_cannot_be_stacked_are_refused(models, options, message):
    with pytest.raises(ValueError, match=message):
        vfg.fit(models(), table(), **QUICK, **options)


def _fitted_elsewhere():
    model = small()
    vfg.fit(model, 3.0 * table(), **QUICK)
    return model


def test_a_list_of_other_models_is_refused():
    with pytest.raises(TypeError, match="takes a VFG, a GaussianVFG or a TableModel, or a list"):
        vfg.fit([nn.Linear(2, 2)], table())


@pytest.mark.parametrize("count", [1, 2])
def test_runs_with_averages_resume_to_the_bit(tmp_path, monkeypatch, count):
    options = {"average": 0.2, "schedule": "cosine", "warmup": 0.3, "steps": 10}
    options |= QUICK | {"epochs": 6, "batch": 32}
    expected, models = ([small(seed) for seed in range(count)] for _ in range(2))
    vfg.fit(expected, table(), **options)
    decide = Run._decide

    def crash(self):
        decide(self)
        if len(self.history) == 4:
            raise RuntimeError("power failure")

    monkeypatch.setattr(Run, "_decide", crash)
    with pytest.raises(RuntimeError, match="power failure"):
        vfg.fit([small(seed) for seed in range(count)], table(), checkpoint=tmp_path, **options)
    monkeypatch.undo()
    vfg.fit(models, table(), checkpoint=tmp_path, **options)
    for one, other in zip(models, expected, strict=True):
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


# Held-out rows, and layers.


def test_held_out_rows_are_drawn_from_the_whole_table():
    rows = 3 * ROWS
    cells = torch.arange(rows, dtype=torch.float32)[:, None].expand(-1, 4) / rows
    held = torch.zeros(rows, 4, dtype=torch.bool)
    held[:, 0] = True
    loss = HeldOutLoss(small(), TrainingTable(cells, ~held, None), held, None, seed=3)
    assert len(loss.scored) == ROWS
    assert loss.data.cells[:, 0].mean().item() == pytest.approx(0.5, abs=0.02)
    other = draw_rows(held.any(1), ROWS, seed=4)
    assert not torch.equal(loss.data.cells[:, 0], cells[other, 0])
    assert torch.equal(other, other.sort().values)


@pytest.mark.parametrize("leaves", [4, 8])
def test_every_layer_has_masked_and_other_steps(leaves):
    graph = vfg.Graph.tree({f"x{k}": 1 for k in range(leaves)}, arity=2, width=2)
    model = vfg.VFG(graph, flow=vfg.Linear())
    settings = RunSettings(layerwise=True, masking=vfg.Masking(rate=0.5), batch=16, compile=False)
    data = TrainingTable(draw(64, leaves), torch.ones(64, leaves, dtype=torch.bool), None)
    run = Run(TableTask([model], data, settings), settings, World())
    layers = len(run.task.layers)
    kinds = {}
    for step in range(8 * layers):
        run.steps.kind(step)
        (key,) = [k for k, kind in run.steps.kinds.items() if kind is run.steps.kind(step)]
        kinds[key] = kinds.get(key, 0) + 1
    assert kinds == {(masked, layer): 4 for masked in (False, True) for layer in range(layers)}
    assert layers == math.log2(leaves)


def test_stacks_of_normalised_flows_start_from_the_data():
    flow = vfg.Coupling(1, 4, normalise=True)
    models = [vfg.VFG(small().graph, flow=flow, seed=seed) for seed in (0, 1)]
    data = TrainingTable(5.0 + table(), torch.ones(256, 4, dtype=torch.bool), None)
    task = TableTask(models, data, RunSettings(validation=0.0))
    for name, value in stack_models(models).state_dict().items():
        assert torch.equal(value, task.model.state_dict()[name]), name
    assert any(
        layer.log_scale.abs().max() > 0.01
        for layer in models[0].modules()
        if type(layer).__name__ == "ActivationNormalisation"
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("states", ["deterministic", "sampled"])
def test_stacks_and_modules_are_recorded_on_a_gpu(states):
    # A step that cannot be recorded warns, and warnings are errors here.
    options = {"epochs": 6, "batch": 64, "average": 0.1, "schedule": "cosine", "device": "cuda"}
    models = [small(seed, states=states) for seed in (0, 1)]
    history = vfg.fit(models, table(), progress=False, augment=torch.clone, **options)
    alone = [vfg.fit(small(s, states=states), table(), progress=False, **options) for s in (0, 1)]
    expected = sum(run[-1].objective for run in alone) / 2
    assert history[-1].objective == pytest.approx(expected, abs=0.5)
    line, x = Line(), draw(100, 3)
    line.objective = lambda rows, beta: (
        -(line.layer(rows) - rows.sum(1, keepdim=True)).square().mean()
    )
    options |= {"steps": 50, "rate": 3e-2, "precision": "tf32"}
    maximise(line, x, weight_decay=0.0, **options)
    torch.testing.assert_close(line.layer.weight.cpu(), torch.ones(1, 3), rtol=0, atol=0.05)


# What is hidden.

HALVES = ((0, 2), (1, 3))


def hidden_task(models, **options):
    x = table(64)
    seen = torch.ones_like(x, dtype=torch.bool)
    return TableTask(models, TrainingTable(x, seen, None), RunSettings(validation=0.0, **options))


@pytest.mark.parametrize("copies", [1, 2])
def test_groups_of_columns_are_hidden_together_across_leaves(copies):
    masking = vfg.Masking(rate=1.0, keep=(0.5, 0.5), groups=HALVES)
    models = [small(seed, states="sampled") for seed in range(copies)]
    task = hidden_task(models, masking=masking)
    rows = torch.arange(64) if copies == 1 else torch.arange(64)[:, None].expand(-1, 2)
    _, visible, scored, *_ = task.batch(rows, True, torch.Generator().manual_seed(0))
    parts = visible.view(64, copies, 4)
    assert torch.equal(parts[..., [0, 1]], parts[..., [2, 3]])
    assert torch.equal(scored > 0, visible), "the bound is that of what is seen"
    assert 0.3 < visible.float().mean() < 0.7
    assert (parts[..., 0] != parts[..., 1]).any()
    if copies == 2:
        assert (parts[:, 0] != parts[:, 1]).any(), "each copy has masks of its own"


def test_groups_that_do_not_name_every_column_once_are_refused():
    for groups in (((0, 1), (1, 2)), ((1, 2),), ((0,), (2,)), ()):
        with pytest.raises(ValueError, match="name every column once"):
            vfg.Masking(groups=groups)
    with pytest.raises(ValueError, match="groups of 2 columns, but the model has 4"):
        hidden_task([small()], masking=vfg.Masking(groups=((0,), (1,))))


def test_nodes_are_drawn_from_p_only_where_a_section_may_be_hidden():
    wide = vfg.VFG(vfg.Graph.star({"a": 20, "b": 20}, width=20), states="sampled")
    cells = draw(32, 40)
    data = TrainingTable(cells, torch.ones_like(cells, dtype=torch.bool), None)

    def prunes(data=data, **options):
        settings = RunSettings(
            **{"validation": 0.0, "masking": None, "input_dropout": 0.1} | options
        )
        return TableTask([wide], data, settings).loss.prunes

    assert not prunes()
    assert prunes(input_dropout=0.5)
    assert prunes(masking=vfg.Masking())
    assert prunes(data=TrainingTable(cells, cells > -2.0, None))
    task = TableTask([wide], data, RunSettings(validation=0.0, masking=None, input_dropout=0.1))
    batch = task.batch(torch.arange(32), False, torch.Generator().manual_seed(0))
    found = []
    for task.loss.prunes in (True, False):
        task.loss.generator = torch.Generator().manual_seed(1)
        found.append(task.loss(*batch, torch.tensor(1.0)))
    assert torch.equal(*found)
