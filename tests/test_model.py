"""The model as users call it: shapes, dtypes, gaps, draws, errors, compilation."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from strategies import models, perturbed

import vfg

NAN = float("nan")


def small(aggregation="mean", **options):
    graph = vfg.Graph.tree({"a": 2, "b": 1, "c": 2}, arity=2, width=4)
    return vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=8), aggregation=aggregation, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_results_keep_the_dtype_of_the_table(dtype, precision):
    model = small().to(precision)
    table = torch.zeros(3, 5, dtype=dtype)
    assert model.reconstruct(table).dtype == dtype
    assert model.encode(table)["root"].dtype == dtype
    assert model.surrogate(table).total.dtype == dtype
    assert model.consistency(table)["a"].dtype == dtype
    assert model.decode({"root": torch.zeros(3, 4, dtype=dtype)})["a"].dtype == dtype


def test_arrays_and_mappings_are_tables_too():
    model = perturbed(small(), 0)
    table = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    expected = model.reconstruct(table)
    assert torch.equal(model.reconstruct(table.numpy()), expected)
    by_name = {"c": table[:, 3:], "a": table[:, :2], "b": table[:, 2:3].numpy()}
    assert torch.equal(model.reconstruct(by_name), expected)
    gaps = table.clone()
    gaps[:, 2] = NAN
    without = {"a": table[:, :2], "c": table[:, 3:]}
    assert torch.equal(model.reconstruct(without), model.reconstruct(gaps))
    hidden = torch.tensor([True, True, False, True, True]).expand(4, 5)
    assert torch.equal(model.reconstruct(table, observed=hidden), model.reconstruct(gaps))


@pytest.mark.parametrize("aggregation", ["mean", "precision", "gaussian"])
def test_an_empty_row_is_answered_by_the_prior(aggregation):
    model = perturbed(small(aggregation), 0)
    empty = model.reconstruct(torch.full((1, 5), NAN))
    prior = model.decode({"root": torch.full((1, 4), NAN)})
    expected = torch.cat([prior[leaf] for leaf in "abc"], dim=1)
    torch.testing.assert_close(empty, expected)


def test_columns_by_position_may_be_scattered():
    graph = vfg.Graph.blocks(4, 4, rows=2, columns=2, arity=2)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=1, hidden=4))
    image = torch.arange(16.0).view(1, 16)
    states = model.encode(image)
    assert states["block0_1"].tolist() == [[2.0, 3.0, 6.0, 7.0]]
    one = vfg.VFG(
        vfg.Graph(
            [vfg.Node("x", 3, columns=(2, 0, 1)), vfg.Node("r", 3)],
            [vfg.Edge("x", "r", "identity")],
        ),
        aggregation="mean",
    )
    table = torch.tensor([[1.0, 2.0, 3.0]])
    assert one.encode(table)["x"].tolist() == [[3.0, 1.0, 2.0]]
    assert torch.equal(one.reconstruct(table), table)


def test_a_partly_observed_section_is_filled_by_its_default():
    model = perturbed(small().double(), 0)
    default = model.passing.defaults["layer0_width2_gaussian"]
    gaps = torch.tensor([[0.5, NAN, NAN, NAN, NAN]], dtype=torch.float64)
    filled = torch.tensor([[0.5, default[0, 0, 1].item(), NAN, NAN, NAN]], dtype=torch.float64)
    torch.testing.assert_close(model.reconstruct(gaps), model.reconstruct(filled))


def test_draws_follow_the_seed_and_leave_the_global_generators_alone(untouched_generators):
    model = perturbed(small(), 0)
    assert torch.equal(model.sample(5, seed=1), model.sample(5, seed=1))
    assert not torch.equal(model.sample(5, seed=1), model.sample(5, seed=2))


def test_draws_of_a_linear_model_have_its_moments():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    model = vfg.VFG(graph, flow=vfg.Linear(), likelihood=vfg.Gaussian(scale=0.5)).double()
    matrices = torch.tensor([[[1.0, 0.5], [0.2, 1.5]], [[0.8, -0.3], [0.4, 1.1]]]).double()
    shift = torch.tensor([[0.3, -0.1], [0.0, 0.2]]).double()
    model.passing.group(0).flow.set_matrix(matrices, shift)
    with torch.no_grad():
        model.priors["layer1_width2_gaussian"].location.copy_(torch.tensor([[[1.0, -2.0]]]))
    drawn = model.sample(200_000, seed=0)
    back = torch.linalg.inv(matrices)
    rows = back[:, 0]
    mean = (rows * (torch.tensor([1.0, -2.0]).double() - shift)).sum(-1)
    covariance = rows @ rows.T + 0.25 * torch.eye(2).double()
    torch.testing.assert_close(drawn.mean(0), mean, atol=0.02, rtol=0.0)
    torch.testing.assert_close(drawn.T.cov(), covariance, atol=0.03, rtol=0.0)


def test_labels_move_the_prior():
    model = small(prior=vfg.PerLabel(3))
    with torch.no_grad():
        prior = model.prior_at(len(model.passing.schedule.blocks) - 1)
        prior.locations.copy_(torch.arange(3.0)[None, :, None].expand_as(prior.locations) * 10)
    assert model.sample(50, label=2)[:, 0].mean() > 15
    assert model.sample(50, label=0)[:, 0].mean() < 5
    table = torch.zeros(2, 5)
    labelled = model.surrogate(table, labels=torch.tensor([0, 2])).root
    assert labelled[0] > labelled[1]
    mixture = model.surrogate(table).root
    unlabelled = model.surrogate(table, labels=torch.tensor([-1, -1])).root
    torch.testing.assert_close(mixture, unlabelled)


def test_categories_are_points_that_come_back():
    graph = vfg.Graph(
        [
            vfg.Node("kind", 3, columns=("kind",)),
            vfg.Node("size", 2, columns=("w", "h")),
            vfg.Node("r", 4),
        ],
        [vfg.Edge("kind", "r"), vfg.Edge("size", "r")],
    )
    model = vfg.VFG(graph, likelihood={"kind": vfg.Categorical(5), "*": "gaussian"})
    table = torch.tensor([[float(k), NAN, NAN] for k in range(5)])
    assert model.reconstruct(table)[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    total = sum(
        model.objective(
            torch.tensor([[float(k), 0.0, 0.0]]),
            torch.tensor([[False, True, True]]),
            torch.tensor([[True, False, False]]),
            None,
            1.0,
        )
        .reconstruction["kind"]
        .exp()
        for k in range(5)
    )
    assert total.item() == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(ValueError, match=r"'kind' has 5 categories coded 0 to 4.*hold 7"):
        model.reconstruct(torch.tensor([[7.0, 0.0, 0.0]]))


@settings(max_examples=15)
@given(model=models())
def test_gradients_are_finite_and_reach_the_parameters_of_every_mask(model):
    generator = torch.Generator().manual_seed(0)
    shape = (16, model.sections.columns)
    table = (torch.rand(shape, generator=generator, dtype=torch.float64) > 0.5).double()
    table[torch.rand(shape, generator=generator) < 0.4] = NAN
    model.surrogate(table).total.sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.grad is not None:
            assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("aggregation", ["mean", "precision", "gaussian"])
def test_gradients_reach_every_parameter(aggregation):
    model = perturbed(small(aggregation, likelihood=vfg.Gaussian(learn=True)), 0)
    table = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    table[torch.rand(64, 5, generator=torch.Generator().manual_seed(1)) < 0.4] = NAN
    model.surrogate(table).total.sum().backward()
    # A default speaks for a partly observed state: here only sections of width 2 can be that,
    # and nodes that weigh their messages lean on it as well.
    idle = [
        f"passing.defaults.{block.name}"
        for block in model.passing.schedule.blocks
        if not block.is_root and (block.width == 1 or not block.is_leaf)
    ]
    for name, parameter in model.named_parameters():
        if name not in idle:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    "aggregation",
    ["mean", *(pytest.param(name, marks=pytest.mark.slow) for name in ("precision", "gaussian"))],
)
def test_a_whole_step_is_one_compiled_graph(aggregation):
    model = perturbed(small(aggregation), 0)

    def step(cells, observed, scored):
        loss = -model.objective(cells, observed, scored, None, 0.5).total.mean()
        return torch.autograd.grad(loss, list(model.passing.parameters()), allow_unused=True), loss

    def loss(cells, observed, scored):
        return -model.objective(cells, observed, scored, None, 0.5).total.mean()

    generator = torch.Generator().manual_seed(0)
    cells = torch.randn(32, 5, generator=generator)
    observed = torch.rand(32, 5, generator=generator) > 0.3
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected, _ = step(cells, observed, ~observed)
    compiled(cells, observed, ~observed).backward()
    for (name, parameter), gradient in zip(model.passing.named_parameters(), expected, strict=True):
        if gradient is not None:
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("aggregation", ["mean", "precision", "gaussian"])
def test_autocast_keeps_states_and_terms_in_float32(aggregation):
    model = perturbed(small(aggregation), 0)
    table = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    exact = model.surrogate(table)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        coarse = model.surrogate(table)
        passes = model(table, torch.ones_like(table, dtype=torch.bool))
    for state in passes.forward:
        assert state.value.dtype == torch.float32
        assert state.precision is None or state.precision.dtype == torch.float32
    assert all(state.dtype == torch.float32 for state in passes.backward)
    assert coarse.total.dtype == torch.float32
    torch.testing.assert_close(coarse.total, exact.total, rtol=0.05, atol=0.5)


def test_to_dict_describes_a_model_completely():
    graph = vfg.Graph.from_edges([("a", "h"), ("b", "h"), vfg.Edge("h", "r", "identity")], widths=2)
    model = vfg.VFG(
        graph,
        flow={"a->h": vfg.Linear(), "*": vfg.Coupling(blocks=2, hidden=8)},
        aggregation="gaussian",
        latent="normal",
        likelihood={"a": vfg.Gaussian(scale=0.5, learn=True), "b": "bernoulli"},
        prior=vfg.PerLabel(3),
        seed=7,
    )
    other = vfg.VFG.from_dict(json.loads(json.dumps(model.to_dict())))
    assert other.to_dict() == model.to_dict()
    other.load_state_dict(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_construction_depends_on_the_seed_alone(untouched_generators):
    one, two, other = small(seed=1), small(seed=1), small(seed=2)
    states = [model.state_dict() for model in (one, two, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], states[2][name]) for name in states[0])


ZEROS = torch.zeros(1, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.reconstruct(torch.zeros(3, 4)), r"\(rows, 5\).*a: 2.*has \(3, 4\)"),
        (lambda m: m.reconstruct(torch.zeros(5)), r"\(rows, 5\)"),
        (lambda m: m.reconstruct(torch.full((1, 5), float("inf"))), r"leaf 'a'.*infinite"),
        (
            lambda m: m.reconstruct({"z": torch.zeros(1, 2)}),
            r"'z', which is not a leaf.*'c'",
        ),
        (
            lambda m: m.reconstruct({"a": torch.zeros(1, 3)}),
            r"'a' must have.*, 2\), but has \(1, 3\)",
        ),
        (lambda m: m.reconstruct({}), r"the mapping is empty"),
        (lambda m: m.encode(ZEROS, evidence={"a": torch.zeros(1, 2)}), r"'a' is not a latent"),
        (lambda m: m.encode(ZEROS, evidence={"root": torch.zeros(1, 2)}), r"shape \(1, 4\)"),
        (lambda m: m.reconstruct(ZEROS, observed=torch.ones(1, 5)), r"boolean mask"),
        (lambda m: m.surrogate(ZEROS, labels=torch.tensor([0])), r"one mean per label.*PerLabel"),
        (lambda m: m.encode(ZEROS)["z"], r"no node 'z'"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, message):
    with pytest.raises((ValueError, KeyError), match=message):
        call(small())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.array([["a"] * 5]), "real numbers"),
        (torch.zeros(1, 5, dtype=torch.float16), "float32 or float64"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(table, message):
    with pytest.raises(TypeError, match=message):
        small().reconstruct(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregation": "median"}, r"no aggregation 'median'; choose one of mean"),
        ({"states": "quantum"}, r"states must be one of deterministic"),
        ({"latent": "cauchy"}, r"latent must be one of laplace, normal"),
        ({"likelihood": "poisson"}, r"no likelihood 'poisson'"),
        ({"likelihood": {"z": "gaussian"}}, r"no leaf 'z'; there are a, b, c"),
        ({"likelihood": {"a": "gaussian"}}, r"nothing is chosen for leaf 'b'"),
        ({"flow": {"a->z": vfg.Linear()}}, r"no flow edge 'a->z'"),
        ({"prior": "cauchy"}, r"no prior 'cauchy'"),
        ({"prior": "laplace", "aggregation": "gaussian"}, r"'root'.*Normal prior.*'laplace'"),
    ],
)
def test_bad_configuration_gets_one_clear_sentence(options, message):
    graph = vfg.Graph.star({"a": 2, "b": 1, "c": 2}, width=4)
    with pytest.raises(ValueError, match=message):
        vfg.VFG(graph, **options)


def test_labels_out_of_range_are_refused():
    model = small(prior=vfg.PerLabel(3))
    with pytest.raises(ValueError, match=r"labels must run from 0 to 2.*to 3"):
        model.surrogate(torch.zeros(2, 5), labels=torch.tensor([0, 3]))
    with pytest.raises(ValueError, match=r"one label per row \(2\)"):
        model.surrogate(torch.zeros(2, 5), labels=torch.tensor([0]))
    with pytest.raises(TypeError, match="integers"):
        model.surrogate(torch.zeros(2, 5), labels=torch.tensor([0.0, 1.0]))


def test_bernoulli_leaves_take_values_between_zero_and_one():
    model = small(likelihood="bernoulli")
    with pytest.raises(ValueError, match=r"leaf 'a' is Bernoulli.*from 0 to 2"):
        model.surrogate(torch.tensor([[0.0, 2.0, 0.0, 0.0, 0.0]]))


def test_scaling_changes_units_and_nothing_else():
    model = perturbed(small().double(), 0)
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    table[torch.rand(6, 5, generator=generator) < 0.3] = NAN
    plain, objective = model.reconstruct(table), model.surrogate(table)
    location, scale = torch.tensor([5.0, -3, 0, 2, 1e6]), torch.tensor([2.0, 0.5, 10, 1, 3])
    model.scaling.location.copy_(location)
    model.scaling.scale.copy_(scale)
    moved = table * scale + location
    torch.testing.assert_close(model.reconstruct(moved), plain * scale + location)
    # A density in other units differs by the volume of the observed cells.
    volume = (scale.log() * ~table.isnan()).sum(1)
    torch.testing.assert_close(model.surrogate(moved).total, objective.total - volume)
    assert model.float().scaling.location.dtype == torch.float64
    assert model.scaling.location[4].item() == 1e6
