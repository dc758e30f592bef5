"""Edges from images to narrower parents: messages by hand, bounds by quadrature, files, errors."""

from dataclasses import replace

import pytest
import quadrature
import reference
import torch
from strategies import perturbed

import vfg
from vfg.flows import Bottleneck, BottleneckFlow

EDGE = Bottleneck((2, 2), channels=2, residual=1)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def narrow(parents=1, leaves=("image",), **options):
    """Images of four pixels under a root of few numbers, away from the start."""
    graph = vfg.Graph.star(dict.fromkeys(leaves, 4), width=parents)
    options = {"aggregation": "mean", "likelihood": "bernoulli", **options}
    return perturbed(vfg.VFG(graph, flow=EDGE, **options).double(), 3, 0.4)


def test_the_two_couplings_are_an_encoder_and_a_decoder():
    flow = perturbed(BottleneckFlow(2, (2, 4), 3, channels=2, residual=1).double(), 1)
    x = draw(2, 5, 11)
    pixels, constants = x.split([8, 3], dim=-1)
    y, log_det = flow(x)
    z = constants + flow.encoder(pixels)
    torch.testing.assert_close(y, torch.cat([z, pixels - flow.decoder(z)], dim=-1))
    assert (log_det == 0).all()


def test_a_message_up_encodes_and_a_message_down_decodes():
    model, table = narrow(2), torch.tensor([[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0]]).double()
    group = model.passing.group(0)
    flow, rest = group.flow, group.lowering.constants
    code = group.lifting.constants + flow.encoder(2.0 * table[None] - 1.0)
    states = model.encode(table)
    torch.testing.assert_close(states["root"], code[0])
    steepness = model.likelihood_at(0).log_steepness.exp()
    expected = (steepness * (rest + flow.decoder(code))).sigmoid()[0]
    torch.testing.assert_close(model.reconstruct(table), expected)
    torch.testing.assert_close(model.transport(table, "image", "root"), code[0])


@pytest.mark.parametrize("leaves", [("image",), ("left", "right")])
def test_both_passes_are_those_of_the_reference(leaves):
    model = narrow(3, leaves, likelihood="gaussian")
    x, seen = draw(6, 4 * len(leaves)), draw(6, 4 * len(leaves), seed=1) > -0.5
    passes = model(torch.where(seen, x, 0.0), seen)
    for b in range(6):
        parts = {leaf: slice(4 * k, 4 * k + 4) for k, leaf in enumerate(leaves)}
        row = reference.passes(
            model,
            {leaf: torch.where(seen, x, 0.0)[b, part] for leaf, part in parts.items()},
            {leaf: seen[b, part] for leaf, part in parts.items()},
        )
        for node in model.graph.nodes:
            block, place = model.passing.schedule.place[node.name]
            torch.testing.assert_close(passes.backward[block][place, b], row.hat[node.name])


@pytest.mark.parametrize("states", [vfg.Sampled(), vfg.Sampled(4, children=False, blocks=2)])
@pytest.mark.parametrize("ladder", [False, True])
def test_the_bound_of_a_narrow_root_holds_and_rises_to_the_truth(states, ladder):
    model = narrow(states=replace(states, ladder=ladder))
    with torch.no_grad():  # few draws suffice only if the tails of q reach far
        model.sampling.samplers["layer1_width1_mean"].log_scale.add_(1.5)
    rows = torch.tensor([[1.0, 0.0, 1.0, 1.0], [0.0, torch.nan, torch.nan, 1.0]]).double()
    exact = quadrature.log_density(model, rows, points=801, reach=14.0)
    assert (model.bound(rows, samples=2000).total <= exact + 0.03).all()
    found = model.log_likelihood(rows, samples=20_000)
    torch.testing.assert_close(found, exact, rtol=0.0, atol=0.05)


def test_two_levels_narrow_one_after_the_other():
    graph = vfg.Graph.from_edges(
        [("image", "middle"), ("middle", "root")], widths={"image": 16, "middle": 4, "root": 2}
    )
    flow = {
        "image->middle": Bottleneck((4, 4), channels=2, residual=1),
        "middle->root": Bottleneck((2, 2), channels=2, residual=1),
    }
    model = vfg.VFG(
        graph,
        flow=flow,
        aggregation="mean",
        states=vfg.Sampled(ladder=True),
        likelihood="bernoulli",
    )
    table = torch.ones(3, 16)
    assert model.embed(table).shape == (3, 2)
    assert list(model.bound(table).kl) == ["middle", "root"]
    assert model.sample(5).shape == (5, 16)


def test_training_learns_and_a_file_keeps_everything(tmp_path):
    table = torch.eye(4).repeat(16, 1)
    graph = vfg.Graph.star({"image": 4}, width=2)
    model = vfg.VFG(
        graph,
        flow=Bottleneck((2, 2), channels=4, residual=1),
        aggregation="mean",
        states=vfg.Sampled(8, children=False, blocks=2),
        likelihood="bernoulli",
    )
    before = model.bound(table).total.mean()
    vfg.fit(model, table, masking=None, epochs=20, steps=10, batch=32, progress=False, rate=1e-2)
    assert model.bound(table).total.mean() > before + 0.5
    vfg.save(model, tmp_path / "model.vfg")
    again = vfg.load(tmp_path / "model.vfg")
    assert again.to_dict() == model.to_dict()
    assert torch.equal(again.bound(table).total, model.bound(table).total)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": (3, 4)}, "even rows and columns"),
        ({"residual": 0}, "residual to be at least 1"),
        ({"channels": 0}, "channels to be at least 1"),
        ({"dropout": 1.0}, "below 1"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        Bottleneck(**arguments)


def test_models_of_several_seeds_are_trained_as_one_and_answer_any_part():
    table = torch.eye(4).repeat(16, 1)
    graph = vfg.Graph.star({"image": 4}, width=2)
    models = [
        vfg.VFG(graph, flow=EDGE, states=vfg.Sampled(4), likelihood="bernoulli", seed=seed)
        for seed in range(2)
    ]
    assert models[0].aggregation == "mean"
    masking = vfg.Masking(rate=0.5, groups=((0, 1), (2, 3)))
    vfg.fit(models, table, masking=masking, epochs=2, batch=16, progress=False)
    given = torch.tensor([[1.0, 0.0, torch.nan, torch.nan]])
    for model in models:
        answer = model.infer(given, importance=50)
        assert answer.mean["image"].isfinite().all()
        assert torch.equal(model.fill(given)[:, :2], given[:, :2])


def test_children_of_another_size_and_precisions_are_refused():
    with pytest.raises(ValueError, match=r"children of width 4, but got a child of width 6"):
        vfg.VFG(vfg.Graph.star({"image": 6}, width=2), flow=EDGE, aggregation="mean")
    with pytest.raises(ValueError, match=r"'image->root' leads from width 4 to 2.*'mean'"):
        vfg.VFG(vfg.Graph.star({"image": 4}, width=2), flow=EDGE, aggregation="gaussian")
