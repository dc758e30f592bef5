"""Any nodes given any others: idioms, fixed points, closed forms, the same bits, bad input."""

import itertools
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import all_masks, by_leaf, models, perturbed, rows_for

import vfg
import vfg.inference.spread
from vfg.inference import classify, embed, infer, label_probabilities, traverse
from vfg.inference.transport import transport

NAN = float("nan")
AGGREGATIONS = ("mean", "precision", "gaussian")
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def small(aggregation="mean", seed=0, **options):
    """A tree with sections of 2, 1 and 2 columns, away from its start, with odd units."""
    graph = vfg.Graph.tree({"a": 2, "b": 1, "c": 2}, arity=2, width=4)
    flow = vfg.Coupling(blocks=2, hidden=8)
    model = vfg.VFG(graph, flow=flow, aggregation=aggregation, **options)
    model = perturbed(model.double(), seed, size=0.2)
    model.scaling.location.copy_(torch.tensor([5.0, -3, 0.1, 2, 1e3]))
    model.scaling.scale.copy_(torch.tensor([2.0, 0.5, 10, 1.7, 3]))
    return model


def dag(aggregation="mean", seed=0):
    """Two roots, a leaf with two parents, a skipped layer."""
    edges = [("a", "h"), ("b", "h"), ("b", "r"), ("h", "r"), ("h", "s"), ("c", "s")]
    graph = vfg.Graph.from_edges(edges, widths={"a": 2, "b": 2, "c": 1, "h": 2, "r": 3, "s": 2})
    flow = vfg.Coupling(blocks=2, hidden=8)
    return perturbed(vfg.VFG(graph, flow=flow, aggregation=aggregation).double(), seed, size=0.2)


def table_for(model, rows=6, seed=0, gaps=0.4):
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, model.sections.columns)
    table = model.scaling.undo(torch.randn(shape, generator=generator, dtype=torch.float64))
    table[torch.rand(shape, generator=generator) < gaps] = NAN
    return table


def named(columns=("p", "q", "u", "v", "w")):
    nodes = [
        vfg.Node("a", 2, columns=columns[:2]),
        vfg.Node("b", 1, columns=columns[2:3]),
        vfg.Node("c", 2, columns=columns[3:]),
        vfg.Node("root", 3),
    ]
    graph = vfg.Graph(nodes, [vfg.Edge(leaf, "root") for leaf in "abc"])
    flow = vfg.Coupling(blocks=2, hidden=8)
    return perturbed(vfg.VFG(graph, flow=flow).double(), 0, size=0.2)


def same(one, two):
    assert list(one) == list(two)
    for name in one:
        assert torch.equal(one[name], two[name]), name


# Three idioms.


def test_names_arrays_and_masks_are_the_same_evidence():
    model = small()
    whole = table_for(model, gaps=0.0)
    gaps = whole.clone()
    gaps[:, [0, 1, 4]] = NAN
    mask = torch.tensor([False, False, True, True, False]).expand(6, 5)
    expected = infer(model, gaps).mean
    same(infer(model, whole, observed=mask).mean, expected)
    same(infer(model, gaps.numpy()).mean, expected)
    same(infer(model, gaps.tolist()).mean, expected)
    same(infer(model, {"c": gaps[:, 3:], "b": whole[:, 2]}).mean, expected)
    names = {"b": True, "c": mask[:, 3:]}
    same(infer(model, whole, observed=names).mean, expected)


def test_columns_can_be_evidence_masks_and_targets():
    model = named()
    whole = table_for(model, gaps=0.0)
    gaps = whole.clone()
    gaps[:, [1, 3]] = NAN
    expected = infer(model, gaps, ["v", "c", "q"]).mean
    assert expected["v"].shape == (6,)
    assert torch.equal(expected["v"], expected["c"][:, 0])
    given = {"p": whole[:, 0], "b": whole[:, 2], "w": whole[:, 4]}
    same(infer(model, given, ["v", "c", "q"]).mean, expected)
    names = {"p": True, "b": True, "w": True}
    same(infer(model, whole, ["v", "c", "q"], observed=names).mean, expected)


def test_columns_without_names_go_by_position():
    graph = vfg.Graph(
        [vfg.Node("x", 2, columns=(2, 0)), vfg.Node("y", 1, columns=(1,)), vfg.Node("r", 2)],
        [vfg.Edge("x", "r"), vfg.Edge("y", "r")],
    )
    model = perturbed(vfg.VFG(graph).double(), 0)
    answer = infer(model, {2: 1.5, 1: 0.5}, [0, "x"])
    assert answer.mean["x"][0, 0] == 1.5
    assert torch.equal(answer.mean[0], answer.mean["x"][:, 1])


def test_numbers_are_repeated_for_all_rows():
    model = small()
    answer = infer(model, {"b": 1.5, "a": [[1.0, 2.0], [3.0, 4.0]]})
    twice = infer(model, {"b": [1.5, 1.5], "a": [[1.0, 2.0], [3.0, 4.0]]})
    same(answer.mean, twice.mean)
    assert infer(model, {}).mean["a"].shape == (1, 2)


FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "objects": lambda columns: pd.DataFrame(columns).astype(object).replace({np.nan: pd.NA}),
    "none": lambda columns: pl.DataFrame(columns).fill_nan(None),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("order", [range(5), [4, 2, 0, 1, 3]])
def test_frames_match_columns_by_name(kind, order):
    model = named()
    table = table_for(model)
    columns = {"pquvw"[k]: table[:, k].numpy() for k in order}
    answer = infer(model, FRAMES[kind](columns))
    same(answer.mean, infer(model, table).mean)
    same(answer.std, infer(model, table).std)


def test_frames_work_without_narwhals(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "narwhals", None)
    model = named()
    table = table_for(model)
    plain = pd.DataFrame(table.numpy(), columns=list("pquvw"))
    for frame in (plain, plain.convert_dtypes(), plain.astype(object).replace({np.nan: pd.NA})):
        same(infer(model, frame).mean, infer(model, table).mean)


def test_frames_for_a_graph_without_names_go_by_order():
    model = small()
    table = table_for(model)
    frame = pd.DataFrame(table.numpy(), columns=list("vwxyz"), index=list("lmnopq"))
    answer = infer(model, frame)
    same(answer.mean, infer(model, table).mean)
    assert list(answer.to_frame().index) == list("lmnopq")


def test_truth_values_and_integers_are_numbers():
    model = named()
    frame = pd.DataFrame({"p": [True, False], "q": [1, 2], "u": [0.5, NAN], "v": 1.0, "w": 2.0})
    assert infer(model, frame).mean["a"].tolist() == [[1.0, 1.0], [0.0, 2.0]]
    mask = pd.DataFrame({name: [True, True] for name in "pqvwu"}).assign(u=[True, False])
    same(infer(model, frame.fillna(7.0), observed=mask).mean, infer(model, frame).mean)


def test_frames_of_single_precision_stay_single():
    model = named()
    frame = pd.DataFrame(table_for(model).float().numpy(), columns=list("pquvw"))
    assert infer(model, frame).mean["a"].dtype == torch.float32


# Observed values come back.


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_observed_values_come_back_bit_for_bit(kind, precision, aggregation):
    model = small(aggregation).to(precision)
    table = table_for(model).to(kind)
    answer = infer(model, table)
    seen = ~table.isnan()
    for found, expected in [
        (answer.mean, table),
        (answer.std, torch.zeros_like(table)),
        (answer.quantile(0.3), table),
        (answer.samples(3), table.expand(3, -1, -1)),
    ]:
        joined = torch.cat([found[leaf] for leaf in "abc"], dim=-1)
        assert joined.dtype == kind
        assert joined.isfinite().all()
        where = seen.expand_as(joined)
        assert torch.equal(joined[where], expected[where])
    assert (torch.cat([answer.std[leaf] for leaf in "abc"], dim=1)[~seen] > 0).all()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_given_latent_states_come_back_and_steer_the_leaves(aggregation):
    model = small(aggregation)
    state = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    answer = infer(model, {"root": state}, ["root", "a", "node1_1"])
    assert torch.equal(answer.mean["root"], state)
    assert (answer.std["root"] == 0).all()
    torch.testing.assert_close(answer.mean["a"], model.decode({"root": state})["a"])
    partly = state.clone()
    partly[:, 1] = NAN
    answer = infer(model, {"node1_1": partly, "c": torch.zeros(4, 2)}, ["node1_1", "a"])
    assert torch.equal(answer.mean["node1_1"][:, [0, 2, 3]], partly[:, [0, 2, 3]])
    assert answer.mean["node1_1"].isfinite().all()
    assert answer.samples(2)["a"].isfinite().all()


# Rows without partly observed states: one pass, as the formulas say.


@settings(max_examples=12)
@given(model=models())
@torch.no_grad()
def test_rows_with_whole_sections_are_one_pass_of_the_formulas(model):
    masks = all_masks(model.sections.columns)
    table = rows_for(model, masks)
    nodes = [node.name for node in model.graph.nodes]
    answer = infer(model, torch.where(masks, table, NAN), nodes, rounds=0)
    whole = infer(model, torch.where(masks, table, NAN), nodes).mean
    for b in range(len(masks)):
        cells = torch.where(masks[b], table[b], 0.0)
        row = reference.passes(model, by_leaf(model, cells), by_leaf(model, masks[b]))
        in_part = any(
            row.o[n].any() and not row.o[n].all() and n not in model.graph.roots
            for n in nodes
            if not reference.carries(model, n)
        )
        assert in_part or answer.converged[b]
        for node in nodes:
            if node not in model.graph.leaves:
                torch.testing.assert_close(answer.mean[node][b], row.hat[node], **CLOSE)
                if not in_part:
                    assert torch.equal(answer.mean[node][b], whole[node][b])


# Partly observed sections: a fixed point of backward and forward messages.


def fixed_point(model, row):
    """Solve for the gaps of one row such that the affine model reconstructs them."""
    gaps = row.isnan().nonzero()[:, 0]
    probes = torch.zeros(len(gaps) + 1, len(gaps), dtype=torch.float64)
    probes[1:] = torch.eye(len(gaps))
    rows = row.expand(len(probes), -1).clone()
    rows[:, gaps] = probes
    images = model.reconstruct(rows)[:, gaps]
    matrix = (images[1:] - images[0]).T
    return torch.linalg.solve(torch.eye(len(gaps)).double() - matrix, images[0])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("seed", range(5))
def test_gaps_inside_sections_solve_the_linear_fixed_point(aggregation, seed):
    graph = vfg.Graph.tree({"a": 2, "b": 3, "c": 2, "d": 2}, arity=2, width=3)
    model = vfg.VFG(graph, flow=vfg.Linear(), aggregation=aggregation).double()
    model = perturbed(model, seed)
    table = torch.randn(3, 9, generator=torch.Generator().manual_seed(seed)).double()
    table[0, [0, 3]] = table[1, [1, 5, 8]] = table[2, [2, 4]] = NAN
    answer = infer(model, table)
    filled = torch.cat([answer.mean[leaf] for leaf in "abcd"], dim=1)
    assert answer.converged.all()
    for found, row in zip(filled, table, strict=True):
        expected = fixed_point(model, row)
        torch.testing.assert_close(found[row.isnan()], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_silent_child_of_a_concatenation_is_filled_to_a_fixed_point(seed):
    nodes = [vfg.Node(name, 1) for name in "abcd"]
    nodes += [vfg.Node("h", 2, aggregation="concatenation"), vfg.Node("r", 2)]
    edges = [("a", "h"), ("b", "h"), ("h", "r"), ("c", "r"), ("d", "r")]
    graph = vfg.Graph(nodes, [vfg.Edge(*edge) for edge in edges])
    model = perturbed(vfg.VFG(graph, flow=vfg.Linear()).double(), seed)
    row = torch.tensor([[0.5, NAN, -1.0, 0.7]], dtype=torch.float64)
    answer = infer(model, row, ["b"])
    assert answer.converged.all()
    torch.testing.assert_close(answer.mean["b"][0], fixed_point(model, row[0]), **CLOSE)


@pytest.mark.parametrize("make", [small, dag])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_gaps_inside_sections_settle_for_bent_edges_too(make, aggregation):
    model = make(aggregation)
    table = table_for(model, rows=64)
    answer = infer(model, table)
    assert answer.converged.double().mean() > 0.75
    leaves = model.graph.leaves
    joined = torch.cat([answer.mean[leaf] for leaf in leaves], dim=1)
    # A section with anything observed counts as observed whole, so its gaps may be written in.
    filled = table.clone()
    for columns in model.sections.positions.values():
        chosen = list(columns)
        some = ~table[:, chosen].isnan().all(1)
        filled[some[:, None] & torch.isin(torch.arange(5), torch.tensor(chosen))] = joined[
            some[:, None] & torch.isin(torch.arange(5), torch.tensor(chosen))
        ]
    again = model.reconstruct(filled)
    gaps = table.isnan() & answer.converged[:, None]
    change = ((again - joined) / model.scaling.scale)[gaps]
    assert change.abs().max() < 1e-7


def test_rows_that_need_more_rounds_are_flagged():
    model = small()
    table = table_for(model, rows=32)
    in_part = torch.stack(
        [table[:, c].isnan().any(1) & ~table[:, c].isnan().all(1) for c in ([0, 1], [3, 4])]
    ).any(0)
    assert in_part.any()
    assert not in_part.all()
    answer = infer(model, table, rounds=1)
    assert answer.converged[~in_part].all()
    assert answer.converged[in_part].double().mean() < 0.2
    assert f"{int((~answer.converged).sum())} rows did not converge" in repr(answer)
    assert infer(model, table).converged.all()


# Closed forms: the linear-Gaussian star.


def gaussian_star(width, seed=0, noise=(0.3, 0.5, 0.7)):
    """A star whose messages are exact: x_j = w_j (h − b_j) + noise, with the matching precisions.

    Returns the model, and the joint mean and covariance of the leaves.
    """
    leaves = dict.fromkeys("xyz", width)
    model = vfg.VFG(
        vfg.Graph.star(leaves, width=2), flow=vfg.Linear(), aggregation="gaussian"
    ).double()
    generator = torch.Generator().manual_seed(seed)
    matrices = torch.randn(3, 2, 2, generator=generator).double() + 1.5 * torch.eye(2)
    shifts = torch.randn(3, 2, generator=generator).double()
    stack = model.passing.group(0)
    stack.flow.set_matrix(matrices, shifts)
    loadings = torch.linalg.inv(matrices)[:, :width]
    with torch.no_grad():
        stack.precision.factor.zero_()
        for j, sigma in enumerate(noise):
            stack.precision.factor[j, :, :width] = loadings[j].T / sigma
        if stack.lifting is not None:
            stack.lifting.constants.normal_(generator=generator)
        model.prior_at(1).location.copy_(torch.tensor([[[0.4, -0.8]]], dtype=torch.float64))
    model.spread = vfg.inference.spread.Spread(3 * width, 3).double()
    for j, sigma in enumerate(noise):
        model.spread.log_noise[j * width : (j + 1) * width] = math.log(sigma)
    mean = torch.cat(
        [
            w @ (torch.tensor([0.4, -0.8], dtype=torch.float64) - b)
            for w, b in zip(loadings, shifts, strict=True)
        ]
    )
    tall = loadings.reshape(-1, 2)
    sigmas = torch.tensor(noise, dtype=torch.float64).repeat_interleave(width)
    return model, mean, tall @ tall.T + torch.diag(sigmas**2)


def conditional(mean, covariance, row):
    """Mean and covariance of the gaps given the rest, by the Schur complement."""
    gap, seen = row.isnan(), ~row.isnan()
    gain = covariance[gap][:, seen] @ torch.linalg.inv(covariance[seen][:, seen])
    centre = mean[gap] + gain @ (row[seen] - mean[seen])
    return centre, covariance[gap][:, gap] - gain @ covariance[seen][:, gap]


def star_rows(width):
    masks = all_masks(3).repeat_interleave(width, dim=1)
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(masks.shape, generator=generator, dtype=torch.float64)
    return torch.where(masks, table, NAN)


@pytest.mark.parametrize("width", [1, 2])
def test_means_and_deviations_are_the_exact_conditionals(width):
    model, mean, covariance = gaussian_star(width)
    table = star_rows(width)
    answer = infer(model, table)
    assert answer.joint
    found = torch.cat([answer.mean[leaf] for leaf in "xyz"], dim=1)
    spread = torch.cat([answer.std[leaf] for leaf in "xyz"], dim=1)
    for b, row in enumerate(table):
        centre, block = conditional(mean, covariance, row)
        torch.testing.assert_close(found[b][row.isnan()], centre, **CLOSE)
        torch.testing.assert_close(spread[b][row.isnan()], block.diagonal().sqrt(), **CLOSE)


@pytest.mark.parametrize("width", [1, 2])
def test_draws_and_quantiles_follow_the_exact_conditionals(width):
    model, mean, covariance = gaussian_star(width)
    table = star_rows(width)
    answer = infer(model, table)
    draws = answer.samples(20_000)
    draws = torch.cat([draws[leaf] for leaf in "xyz"], dim=-1)
    low = torch.cat([answer.quantile(0.1)[leaf] for leaf in "xyz"], dim=-1)
    for b, row in enumerate(table[:-1]):
        if not row.isnan().any():
            continue
        centre, block = conditional(mean, covariance, row)
        own = draws[:, b][:, row.isnan()]
        scale = block.diagonal().sqrt()
        assert ((own.mean(0) - centre).abs() < 4.5 * scale / math.sqrt(20_000)).all()
        torch.testing.assert_close(own.T.cov().view_as(block), block, atol=0.04, rtol=0.04)
        expected = centre - 1.2816 * scale
        assert ((low[b][row.isnan()] - expected).abs() < 5.0 * scale * 1.7 / 16).all()


def test_latent_deviations_are_those_of_the_posterior():
    model, _, _ = gaussian_star(1)
    table = star_rows(1)
    answer = infer(model, table, ["root"])
    states = model.encode(table)
    expected = torch.linalg.inv(states.precision["root"]).diagonal(dim1=1, dim2=2).sqrt()
    torch.testing.assert_close(answer.std["root"], expected, **CLOSE)
    draws = answer.samples(5000)["root"]
    torch.testing.assert_close(draws.std(0), expected, atol=0.03, rtol=0.03)


def test_a_temperature_divides_the_precision_of_the_roots():
    model, _, _ = gaussian_star(1)
    table = star_rows(1)
    plain = infer(model, table, ["root", "x"]).std
    model.spread.log_temperature.fill_(math.log(4.0))
    cold = infer(model, table, ["root", "x"]).std
    torch.testing.assert_close(cold["root"], plain["root"] / 2)
    gap = table[:, 0].isnan()
    decoded, noise = plain["x"][gap] ** 2 - 0.09, cold["x"][gap] ** 2 - 0.09
    torch.testing.assert_close(noise, decoded / 4)


@pytest.mark.parametrize("aggregation", ["precision", "gaussian"])
def test_draws_of_bent_models_are_centred_on_the_mean(aggregation):
    model = dag(aggregation)
    table = table_for(model, rows=4)
    answer = infer(model, table)
    draws = answer.samples(4000)
    for leaf in model.graph.leaves:
        scale = answer.std[leaf].clamp(min=1e-3)
        error = (draws[leaf].mean(0) - answer.mean[leaf]) / scale
        assert error.abs().max() < 0.15
        ratio = draws[leaf].std(0) / scale
        unknown = answer.std[leaf] > 0
        assert ((ratio[unknown] > 0.8) & (ratio[unknown] < 1.25)).all()


# The same bits.


def pieces(model, table, parts, row_ids, **options):
    """Answers about parts of a table, put together again in the order of the table."""
    answers = [infer(model, table[part], row_ids=row_ids[part], **options) for part in parts]
    order = torch.cat(parts).argsort()

    def whole(found, axis):
        joined = {name: torch.cat([part[name] for part in found], axis) for name in found[0]}
        return {name: part.index_select(axis, order) for name, part in joined.items()}

    return (
        whole([answer.mean for answer in answers], 0),
        whole([answer.samples(3) for answer in answers], 1),
        whole([answer.std for answer in answers], 0),
        whole([answer.quantile(0.2) for answer in answers], 0),
    )


@pytest.mark.parametrize(("make", "kind"), [(small, torch.float32), (dag, torch.float64)])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_any_split_and_order_gives_the_same_bits(make, aggregation, kind):
    model = make(aggregation).to(kind)
    table = table_for(model, rows=41).to(kind)
    generator = torch.Generator().manual_seed(3)
    row_ids = 200 + torch.randperm(120, generator=generator)[:41]  # two chunks, five tiles
    targets = [node.name for node in model.graph.nodes]
    options = {"targets": targets, "seed": 11}
    expected = pieces(model, table, [torch.arange(41)], row_ids, **options)
    mixed = torch.randperm(41, generator=generator)
    for parts in [list(mixed.split([1, 7, 33])), [mixed]]:
        for found, whole in zip(
            pieces(model, table, parts, row_ids, **options), expected, strict=True
        ):
            for name in targets:
                assert torch.equal(found[name].nan_to_num(9.0), whole[name].nan_to_num(9.0)), name


@settings(max_examples=6)
@given(model=models(), seed=st.integers(0, 1000))
def test_other_rows_of_a_table_change_nothing(model, seed):
    masks = all_masks(model.sections.columns)
    table = torch.where(masks, rows_for(model, masks, seed), NAN)
    whole = infer(model, table)
    some = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))[:3]
    part = infer(model, table[some], row_ids=some)
    for leaf in model.graph.leaves:
        assert torch.equal(part.mean[leaf], whole.mean[leaf][some])
        assert torch.equal(part.samples(2)[leaf], whole.samples(2)[leaf][:, some])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_rows_elsewhere_agree_up_to_rounding(aggregation):
    model = small(aggregation)
    table = table_for(model, rows=20)
    here = infer(model, table)
    there = infer(model, table, row_ids=1000 + 37 * torch.arange(20))
    for leaf in "abc":
        torch.testing.assert_close(here.mean[leaf], there.mean[leaf], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(here.std[leaf], there.std[leaf], rtol=1e-6, atol=1e-6)
    gap = table[:, 2].isnan()
    assert not torch.equal(here.samples(1)["b"][0, gap], there.samples(1)["b"][0, gap])


def test_dropout_is_off_in_every_mode(untouched_generators):
    graph = vfg.Graph.tree({"a": 2, "b": 1, "c": 2}, arity=2, width=4)
    flow = vfg.Coupling(blocks=2, hidden=8, dropout=0.5)
    model = perturbed(vfg.VFG(graph, flow=flow, aggregation="gaussian"), 0)
    one = infer(model.train(), {"b": 1.0})
    assert model.training
    two = infer(model.eval(), {"b": 1.0})
    assert not model.training
    same(one.mean, two.mean)
    model.train()
    same(one.samples(3), two.samples(3))
    moved = traverse(model.train(), {"b": 1.0}, "root", 0, [1.0])
    assert torch.equal(moved, traverse(model.eval(), {"b": 1.0}, "root", 0, [1.0]))
    there = transport(model.train(), 1.0, "b", "a")
    assert torch.equal(there, transport(model.eval(), 1.0, "b", "a"))


def test_inference_leaves_the_global_generators_alone(untouched_generators):
    answer = infer(small("gaussian"), {"b": 1.0})
    answer.samples(3)
    answer.quantile(0.5)


def test_zero_rows_have_an_empty_answer():
    for aggregation in AGGREGATIONS:
        model = small(aggregation)
        answer = infer(model, torch.zeros(0, 5), ["a", "b", "root"])
        assert answer.mean["a"].shape == (0, 2)
        assert answer.std["b"].shape == (0, 1)
        assert answer.samples(4)["root"].shape == (4, 0, 4)
        assert answer.quantile([0.1, 0.9])["a"].shape == (2, 0, 2)
        assert answer.converged.shape == (0,)
        assert answer.to_frame().shape == (0, 7)
    assert embed(model, torch.zeros(0, 5)).shape == (0, 4)


def test_labels_move_the_answer_of_an_empty_row():
    model = small(prior=vfg.PerLabel(3), aggregation="gaussian")
    empty = torch.full((3, 5), NAN, dtype=torch.float64)
    answer = infer(model, empty, ["root"], labels=torch.tensor([0, 2, -1]))
    means = model.prior_at(len(model.passing.schedule.blocks) - 1).locations[0]
    expected = torch.stack([means[0], means[2], means.mean(0)])
    torch.testing.assert_close(answer.mean["root"], expected.detach())


# Lemma 1 and beyond.


@pytest.mark.parametrize("width", [2, 5])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize(("source", "target"), list(itertools.permutations("abe", 2)))
@torch.no_grad()
def test_transport_composes_the_edges_through_the_common_ancestor(
    aggregation, source, target, width
):
    sections = {"a": 2, "b": 1, "c": 2, "d": 2, "e": 1}
    graph = vfg.Graph.tree(sections, arity=2, width=width)
    flow = vfg.Coupling(blocks=3, hidden=8)
    model = perturbed(vfg.VFG(graph, flow=flow, aggregation=aggregation).double(), 3)
    model.scaling.scale.copy_(torch.arange(1.0, 9.0))
    x = torch.randn(7, sections[source], generator=torch.Generator().manual_seed(0)).double()
    found = transport(model, x, source, target)
    ancestor = graph.common_ancestor(source, target)
    here, there = (list(model.sections.positions[leaf]) for leaf in (source, target))
    for b in range(len(x)):
        state = x[b] / model.scaling.scale[here]
        for edge in graph.path(source, ancestor):
            state = reference.apply(model, edge, state)
        for edge in reversed(graph.path(target, ancestor)):
            state = reference.invert(model, edge, state)
        torch.testing.assert_close(found[b], state * model.scaling.scale[there], **CLOSE)
    if aggregation == "mean":
        answer = infer(model, {source: x}, [target])
        torch.testing.assert_close(answer.mean[target], found, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_transport_reaches_latent_nodes_and_covered_coordinates():
    model = small()
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).double()
    up = transport(model, x, "a", "root")
    torch.testing.assert_close(up, infer(model, {"a": x}, ["root"]).mean["root"], **CLOSE)
    torch.testing.assert_close(transport(model, up, "root", "a"), x, **CLOSE)
    cover = perturbed(vfg.VFG(vfg.Graph.cover(n=7, m=3)).double(), 0)
    found = transport(cover, x, "section2", "section3")
    expected = infer(cover, {"section2": x}, ["section3"]).mean["section3"]
    torch.testing.assert_close(found, expected, **CLOSE)
    side = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2), aggregation="concatenation")
    side = perturbed(side.double(), 0)
    found = transport(side, [0.5, 1.5], "a", "b")
    torch.testing.assert_close(found, infer(side, {"a": [0.5, 1.5]}).mean["b"], **CLOSE)


def test_transport_of_discrete_leaves_is_in_data_units():
    graph = vfg.Graph.star({"k": 2, "p": 2}, width=2)
    model = vfg.VFG(graph, likelihood={"k": vfg.Categorical(4), "p": "bernoulli"})
    codes = transport(model, [0, 1, 2, 3], "k", "k")
    assert codes.flatten().tolist() == [0.0, 1.0, 2.0, 3.0]
    found = transport(model, [0, 3], "k", "p")
    assert found.shape == (2, 2)
    torch.testing.assert_close(found, infer(model, {"k": [0, 3]}).mean["p"])


@pytest.mark.parametrize("make", [small, dag])
def test_embeddings_are_the_roots_side_by_side(make):
    model = make()
    table = table_for(model, gaps=0.0)
    table[:2] = NAN
    states = model.encode(table)
    roots = model.graph.roots
    found = embed(model, table)
    expected = torch.cat([states[root] for root in roots], dim=1)
    torch.testing.assert_close(found[2:], expected[2:], **CLOSE)
    prior = torch.cat([reference.prior_mean(model, root, None) for root in roots])
    torch.testing.assert_close(found[:2], prior.detach().expand(2, -1), **CLOSE)


def log_evidence(model, row, label):
    """log N of all observed leaves of the linear-Gaussian star, by its joint covariance."""
    stack = model.passing.group(0)
    matrix, shift = stack.flow.linear_part(), stack.flow.shift
    mean, tall, noise = [], [], []
    for j in range(3):
        if row[j].isnan():
            continue
        w = torch.linalg.inv(matrix[j])[:1]
        mean.append(w @ (model.prior_at(1).locations[0, label] - shift[j]))
        tall.append(w)
        noise.append(1.0 / stack.precision()[j].trace() * w.square().sum())
    if not mean:
        return torch.zeros((), dtype=torch.float64)
    tall = torch.cat(tall)
    covariance = tall @ tall.T + torch.diag(torch.stack(noise))
    return torch.distributions.MultivariateNormal(torch.cat(mean), covariance).log_prob(
        row[~row.isnan()]
    )


@torch.no_grad()
def test_label_probabilities_are_exact_for_the_linear_gaussian_star():
    plain, _, _ = gaussian_star(1)
    model = vfg.VFG(
        plain.graph, flow=vfg.Linear(), aggregation="gaussian", prior=vfg.PerLabel(4)
    ).double()
    model.passing.load_state_dict(plain.passing.state_dict())
    prior = model.prior_at(1)
    prior.locations.copy_(torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(8)))
    table = star_rows(1)
    found = label_probabilities(model, table)
    for b, row in enumerate(table):
        scores = torch.stack([log_evidence(model, row, label) for label in range(4)])
        torch.testing.assert_close(found[b], scores.softmax(0), rtol=1e-8, atol=1e-8)
    assert torch.equal(classify(model, table), found.argmax(1))


@pytest.mark.parametrize("aggregation", ["mean", "precision"])
@torch.no_grad()
def test_label_probabilities_compare_the_roots_with_the_means_of_the_labels(aggregation):
    model = dag(aggregation)
    model = vfg.VFG(model.graph, aggregation=aggregation, prior=vfg.PerLabel(3)).double()
    model = perturbed(model, 0)
    table = table_for(model, gaps=0.0)
    table[0] = NAN
    found = label_probabilities(model, table)
    states = model.encode(table)
    scores = torch.zeros(len(table), 3, dtype=torch.float64)
    for root in model.graph.roots:
        block, row = model.passing.schedule.place[root]
        means = model.prior_at(block).locations[row]
        for b in range(len(table)):
            for label in range(3):
                if aggregation == "mean":
                    far = (states[root][b] - means[label]) * states.observed[root][b]
                    scores[b, label] -= 0.5 * far.square().sum()
                    continue
                # What the children say, without the prior: N(x; m, Λ⁻¹) against N(λ, I).
                total = states.precision[root][b]
                own = total - 1.0
                eta = total * states[root][b] - means.mean(0)
                for k in torch.nonzero(own > 0)[:, 0]:
                    normal = torch.distributions.Normal(means[label, k], (1 + 1 / own[k]).sqrt())
                    scores[b, label] += normal.log_prob(eta[k] / own[k])
    torch.testing.assert_close(found, scores.softmax(1), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(found[0], torch.full((3,), 1 / 3).double())


def test_classes_are_told_apart():
    model = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=1), prior=vfg.PerLabel(2))
    with torch.no_grad():
        model.prior_at(1).locations.copy_(torch.tensor([[[-2.0], [2.0]]]))
    assert classify(model, {"a": [-1.0, 3.0]}).tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"one mean per label.*PerLabel"):
        classify(small(), torch.zeros(1, 5))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@torch.no_grad()
def test_traverse_moves_one_coordinate(aggregation):
    model = small(aggregation)
    table = table_for(model, gaps=0.0)
    steps = [-1.0, 0.0, 2.0]
    found = traverse(model, table, "root", 1, steps)
    assert found.shape == (6, 3, 5)
    torch.testing.assert_close(found[:, 1], model.reconstruct(table), **CLOSE)
    root = model.encode(table)["root"]
    root[:, 1] += 2.0
    decoded = model.decode({"root": root})
    expected = torch.cat([decoded[leaf] for leaf in "abc"], dim=1)
    torch.testing.assert_close(found[:, 2], expected, **CLOSE)
    inner = traverse(model, table, "node1_1", 0, steps)
    torch.testing.assert_close(inner[:, 1], model.reconstruct(table), **CLOSE)
    assert torch.equal(inner[:, 0, 3:], inner[:, 2, 3:])
    assert (inner[:, 0, :3] != inner[:, 2, :3]).any()
    assert traverse(model, table, "root", 0, []).shape == (6, 0, 5)


# Bad input.


def frame(**columns):
    return pd.DataFrame({**{name: [1.0] for name in "pquvw"}, **columns})


NAMED = [
    (lambda m: infer(m, frame().drop(columns=["u", "w"])), r"lacks 'u', 'w'; "),
    (lambda m: infer(m, frame(z=[1.0])), r"has unknown 'z'; "),
    (lambda m: infer(m, frame().rename(columns={"u": "z"})), r"lacks 'u' and has unknown 'z'"),
    (lambda m: infer(m, frame().rename(columns={"u": "p"})), r"lacks 'u' and repeats 'p'"),
    (lambda m: infer(m, pl.DataFrame({"p": [1.0]})), r"lacks 'q', 'u', 'v', 'w'"),
    (lambda m: infer(m, frame(u=["x"])), r"column 'u' must hold numbers, but has 'x'"),
    (lambda m: infer(m, frame(u=pd.to_datetime(["2020-01-01"]))), r"column 'u' must hold numbers"),
    (lambda m: infer(m, frame(u=np.array([1], np.float16))), r"column 'u' is float16"),
    (lambda m: infer(m, frame(u=[np.inf])), r"leaf 'b' has infinite values \(column 'u'"),
    (lambda m: infer(m, {"a": [[1.0, 2.0]], "p": 1.0}), r"'p' twice, as 'a' and as 'p'"),
    (lambda m: infer(m, {"rot": 1.0}), r"names 'rot'.*did you mean 'root'"),
    (lambda m: infer(m, {"zzz": 1.0}), r"names 'zzz', which is not a leaf.*choose one of 'a', 'b'"),
    (lambda m: infer(m, {"a": 1.0}), r"'a' must have shape \(rows, 2\), but has \(\)"),
    (lambda m: infer(m, {"b": [[1.0, 2.0]]}), r"'b' must have shape \(rows,\).*has \(1, 2\)"),
    (lambda m: infer(m, {"b": [1.0, 2.0], "p": [1.0, 2.0, 3.0]}), r"'b' has 2 and 'p' has 3"),
    (lambda m: infer(m, {"root": [[1.0, np.inf, 0.0]]}), r"'root' has infinite"),
    (lambda m: infer(m, {"b": "x"}), r"evidence for 'b' must hold real numbers"),
    (lambda m: infer(m, {"b": [1.0, [2.0]]}), r"evidence for 'b' must be rectangular"),
    (lambda m: infer(m, {"b": None}), r"evidence for 'b' must hold real numbers"),
    (lambda m: infer(m, {"b": torch.zeros(1, dtype=torch.float16)}), r"'b' is torch.float16"),
    (lambda m: infer(m, torch.zeros(1, 5, dtype=torch.cfloat)), r"real numbers.*complex"),
    (lambda m: infer(m, torch.zeros(1, 5), "rot"), r"target 'rot'.*did you mean 'root'"),
    (lambda m: infer(m, torch.zeros(1, 5), []), r"targets is empty"),
    (
        lambda m: infer(m, {"b": [NAN]}, observed={"b": [True]}),
        r"column 'u' of row 0 is observed, but it is NaN",
    ),
    (
        lambda m: infer(m, {"root": torch.zeros(1, 3)}, observed={"root": [True]}),
        r"names 'root', which is not a leaf but a latent node",
    ),
    (lambda m: infer(m, torch.zeros(2, 5), observed={"z": True}), r"the mask names 'z'"),
    (lambda m: infer(m, torch.zeros(2, 5), observed={"a": [True]}), r"mask of 'a' must be boolean"),
    (lambda m: infer(m, torch.zeros(2, 5), observed=torch.ones(2, 4).bool()), r"shape \(2, 5\)"),
    (lambda m: infer(m, torch.zeros(2, 5), row_ids=[0, 0]), r"row_ids must differ, but 0"),
    (lambda m: infer(m, torch.zeros(2, 5), row_ids=[0, -1]), r"0 or more, but one is -1"),
    (lambda m: infer(m, torch.zeros(2, 5), row_ids=[0]), r"one row id per row \(2\)"),
    (lambda m: infer(m, torch.zeros(2, 5), row_ids=[0.0, 1.0]), r"row_ids must be integers"),
    (lambda m: infer(m, torch.zeros(2, 5), rounds=-1), r"rounds must be 0 or more"),
    (lambda m: infer(m, torch.zeros(2, 5), labels=[0, 1]), r"one mean per label"),
    (
        lambda m: infer(m.float(), torch.full((1, 5), 1e300, dtype=torch.float64)),
        r"too large for a model",
    ),
    (lambda m: infer(m, torch.zeros(2, 4)), r"\(rows, 5\).*has \(2, 4\)"),
    (lambda m: transport(m, [1.0, NAN], "b", "a"), r"all of 'b', but its value has NaN"),
    (lambda m: transport(m, [1.0], "b", "z"), r"no node 'z'"),
    (lambda m: traverse(m, torch.zeros(1, 5), "a", 0, [1.0]), r"'a' is a leaf"),
    (lambda m: traverse(m, torch.zeros(1, 5), "root", 3, [1.0]), r"coordinates 0 to 2, but got 3"),
    (lambda m: traverse(m, torch.zeros(1, 5), "rot", 0, [1.0]), r"no node 'rot'"),
    (lambda m: infer(m, torch.zeros(1, 5)).quantile(1.0), r"strictly between 0 and 1"),
    (lambda m: infer(m, torch.zeros(1, 5)).samples(0), r"must be positive, but is 0"),
    (lambda m: infer(m, torch.zeros(1, 5), "a").mean["b"], r"'b' is not among the targets 'a'"),
]


@pytest.mark.parametrize(("call", "message"), NAMED)
def test_bad_input_gets_one_clear_sentence(call, message):
    with pytest.raises((ValueError, TypeError, KeyError), match=message):
        call(named())


def test_a_frame_without_names_needs_the_right_number_of_columns():
    with pytest.raises(ValueError, match=r"must have 5 columns.*but has 4"):
        infer(small(), pd.DataFrame(np.zeros((2, 4))))


def test_transport_names_what_keeps_a_graph_from_being_a_tree():
    with pytest.raises(ValueError, match=r"node 'h' has the parents 'r', 's'"):
        transport(dag(), [[1.0, 2.0]], "a", "b")
    two = vfg.VFG(vfg.Graph.from_edges([("a", "r"), ("b", "s")], widths=1))
    with pytest.raises(ValueError, match=r"several roots: 'r', 's'"):
        transport(two, [1.0], "a", "b")


def test_fills_of_partly_observed_sections_stay_in_the_range_of_the_data():
    """A bent model's fixed points may lie anywhere; what was never seen is no answer."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(800, 2, generator=generator)
    whole = torch.cat([z, z.sin(), z[:, :1] * z[:, 1:], z.square()], dim=1)
    table = torch.where(torch.rand(whole.shape, generator=generator) < 0.25, torch.nan, whole)
    graph = vfg.Graph.tree({"a": 2, "b": 2, "c": 1, "d": 2}, arity=2, width=6)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=3, hidden=32))
    vfg.fit(model, table, epochs=15, batch=64, beta=0.01, rate=5e-3, progress=False)
    answer = model.infer(table)
    filled = torch.cat([answer.mean[leaf] for leaf in "abcd"], dim=1)
    missing = table.isnan()
    settled = (filled - whole)[missing].square().mean()
    single = (model.reconstruct(table) - whole)[missing].square().mean()
    assert settled < 1.05 * single
    deviation = torch.cat([answer.std[leaf] for leaf in "abcd"], dim=1)[missing]
    assert deviation.max() < 3 * whole.std(0).max()
