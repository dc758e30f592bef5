"""From node to node, embeddings, labels and traversals."""

import itertools

import pytest
import reference
import torch
from inference.asked_models import (
    AGGREGATIONS,
    CLOSE,
    NAN,
    dag,
    gaussian_star,
    small,
    star_rows,
    table_for,
)
from strategies import perturbed

import vfg
import vfg.inference.calibration
from vfg.inference import classify, embed, infer, label_probabilities, traverse
from vfg.inference.queries import transport


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
    cover = perturbed(vfg.VFG(vfg.Graph.cover(n=7, m=3), aggregation="mean").double(), 0)
    found = transport(cover, x, "section2", "section3")
    expected = infer(cover, {"section2": x}, ["section3"]).mean["section3"]
    torch.testing.assert_close(found, expected, **CLOSE)
    side = vfg.VFG(vfg.Graph.star({"a": 1, "b": 1}, width=2), aggregation="concatenation")
    side = perturbed(side.double(), 0)
    found = transport(side, [0.5, 1.5], "a", "b")
    torch.testing.assert_close(found, infer(side, {"a": [0.5, 1.5]}).mean["b"], **CLOSE)


def test_transport_of_discrete_leaves_is_in_data_units():
    graph = vfg.Graph.star({"k": 2, "p": 2}, width=2)
    likelihood = {"k": vfg.Categorical(4), "p": "bernoulli"}
    model = vfg.VFG(graph, likelihood=likelihood, aggregation="mean")
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
