"""Observed values come back, and gaps inside sections are fixed points of the messages."""

import pytest
import reference
import torch
from hypothesis import given, settings
from inference.asked_models import AGGREGATIONS, CLOSE, NAN, dag, small, table_for
from strategies import all_masks, by_leaf, models, perturbed, rows_for

import vfg
import vfg.inference.calibration
from vfg.inference import infer


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
