"""A row gets the same bits whatever else is asked with it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inference.asked_models import AGGREGATIONS, NAN, dag, same, small, table_for
from strategies import all_masks, models, perturbed, rows_for

import vfg
import vfg.inference.calibration
from vfg.inference import embed, infer, traverse
from vfg.inference.queries import transport


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
