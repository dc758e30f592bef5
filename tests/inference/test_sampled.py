"""Answers from draws of sampled states, against quadrature and closed forms."""

import pytest
import quadrature
import torch
from strategies import perturbed

import vfg

NAN = float("nan")


def tree(aggregation="mean", seed=0, **options):
    graph = vfg.Graph.from_edges([("a", "h"), ("b", "h"), ("h", "r"), ("c", "r")], widths=1)
    flow = vfg.Coupling(blocks=2, hidden=4, bins=4)
    likelihood = options.pop("likelihood", vfg.Gaussian(scale=0.6))
    options = {"states": "sampled", "latent": "normal", **options}
    model = vfg.VFG(graph, flow=flow, aggregation=aggregation, likelihood=likelihood, **options)
    model = perturbed(model.double(), seed, size=0.2)
    with torch.no_grad():
        for sampler in model.sampling.samplers.values():
            sampler.log_scale.add_(0.7)
    return model


def exact_mean(model, row):
    """Conditional means of the leaves and of the root by quadrature."""
    states, _ = quadrature.grid(model, 161, 9.0)
    observed = ~row.isnan()
    with torch.no_grad():
        joint = quadrature.log_joint(model, states, row.nan_to_num(), observed)
        share = joint.softmax(0)[:, None]
        leaves = {leaf: (share * quadrature.expected(model, leaf, states)).sum() for leaf in "abc"}
    return leaves, (share * states["r"]).sum()


ROWS = torch.tensor([[0.4, NAN, -1.1], [0.4, 1.0, NAN], [NAN, NAN, 0.7], [NAN, NAN, NAN]]).double()


@pytest.mark.parametrize("ladder", [False, True])
@pytest.mark.parametrize("aggregation", ["mean", "gaussian"])
def test_weighed_means_are_conditional_means(aggregation, ladder):
    model = tree(aggregation, states=vfg.Sampled(ladder=ladder))
    answer = model.infer(ROWS, targets=["a", "b", "c", "r"], importance=2500)
    for b, row in enumerate(ROWS):
        leaves, root = exact_mean(model, row)
        for leaf in "abc":
            column = "abc".index(leaf)
            expected = leaves[leaf] if row[column].isnan() else row[column]
            assert answer.mean[leaf][b].item() == pytest.approx(expected.item(), abs=0.1)
        assert answer.mean["r"][b].item() == pytest.approx(root.item(), abs=0.1)


def test_draws_that_are_weighed_or_not_differ_and_the_sample_size_says_by_how_much():
    model = tree()
    plain, weighed = model.infer(ROWS), model.infer(ROWS, importance=1000)
    assert (weighed.effective_sample_size[:3] < 1000.0).all()
    assert (weighed.effective_sample_size > 20.0).all()
    assert (plain.effective_sample_size <= 256.0 + 1e-6).all()
    assert "effective sample size" in repr(weighed)
    assert "effective sample size" not in repr(plain)
    # Nothing is observed in the last row: its draws are from p, and all weights are alike.
    assert weighed.effective_sample_size[3].item() == pytest.approx(1000.0)
    assert (plain.mean["b"][0] - weighed.mean["b"][0]).abs() > 1e-3


def test_on_a_tied_linear_star_weights_are_alike_and_answers_exact():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
    model = vfg.VFG(
        graph,
        flow=vfg.Linear("affine"),
        aggregation="gaussian",
        states="sampled",
        latent="normal",
        likelihood=vfg.Gaussian(scale=0.5),
    ).double()
    with torch.no_grad():
        model.passing.group(0).precision.factor.fill_(2.0)  # Λ = σ⁻² = 4
    answer = model.infer({"a": torch.tensor([1.0, -2.0]).double()}, targets=["b", "root"])
    torch.testing.assert_close(answer.effective_sample_size, torch.full((2,), 256.0).double())
    expected = torch.tensor([[0.8], [-1.6]]).double()
    torch.testing.assert_close(answer.mean["root"], expected, rtol=0.0, atol=0.1)
    torch.testing.assert_close(answer.mean["b"], expected, rtol=0.0, atol=0.1)
    deviation = torch.full((2, 1), (0.2 + 0.25) ** 0.5).double()
    torch.testing.assert_close(answer.std["b"], deviation, rtol=0.1, atol=0.0)
    drawn = answer.samples(4000)["b"]
    torch.testing.assert_close(drawn.mean(0), expected, rtol=0.0, atol=0.05)
    torch.testing.assert_close(drawn.std(0), deviation, rtol=0.05, atol=0.0)
    ends = answer.quantile([0.1, 0.9])["b"]
    torch.testing.assert_close(ends[1] - ends[0], 2 * 1.2816 * deviation, rtol=0.2, atol=0.0)


def test_latent_evidence_fixes_a_node_and_counts_in_the_weights():
    model = tree("gaussian")
    given = torch.tensor([[0.5]]).double()
    answer = model.infer({"a": 0.3, "h": given}, targets=["b", "r", "h"], importance=2000)
    assert answer.mean["h"].item() == 0.5
    axis = torch.linspace(-9.0, 9.0, 2001, dtype=torch.float64)[:, None]
    pinned = {"r": axis, "h": torch.full_like(axis, 0.5)}
    seen = torch.tensor([True, False, False])
    with torch.no_grad():
        joint = quadrature.log_joint(model, pinned, torch.tensor([0.3, 0.0, 0.0]), seen)
    expected = (joint.softmax(0) * axis[:, 0]).sum()
    assert answer.mean["r"].item() == pytest.approx(expected.item(), abs=0.08)
    leaf = quadrature.expected(model, "b", {"h": torch.tensor([[0.5]]).double()})
    assert answer.mean["b"].item() == pytest.approx(leaf.item(), abs=1e-9)


def test_bits_depend_on_the_row_id_alone():
    model = tree()
    answer = model.infer(ROWS, importance=64)
    order = torch.tensor([2, 0, 3])
    other = model.infer(ROWS[order], row_ids=order, importance=64)
    assert torch.equal(other.mean["b"], answer.mean["b"][order])
    assert torch.equal(other.samples(5)["c"], answer.samples(5)["c"][:, order])
    assert torch.equal(answer.samples(40)["c"][:7], answer.samples(7)["c"])
    assert torch.equal(model.infer(ROWS, targets=["c"]).mean["c"], model.infer(ROWS).mean["c"])


def test_binary_and_categorical_leaves_have_their_own_moments():
    graph = vfg.Graph.star({"kind": 2, "flag": 1, "size": 1}, width=3)
    likelihood = {"kind": vfg.Categorical(3), "flag": "bernoulli", "size": "gaussian"}
    model = perturbed(vfg.VFG(graph, likelihood=likelihood, states="sampled"), 0)
    table = torch.tensor([[NAN, NAN, 0.5], [2.0, 1.0, NAN]])
    answer = model.infer(table)
    shares = answer.probabilities["kind"]
    torch.testing.assert_close(shares.sum(1), torch.ones(2))
    assert shares[1].tolist() == [0.0, 0.0, 1.0]
    assert answer.mean["kind"][0, 0] == shares[0].argmax()
    p = answer.mean["flag"][0, 0]
    torch.testing.assert_close(answer.std["flag"][0, 0], (p * (1 - p)).sqrt())
    assert answer.std["kind"][0].isnan().all()
    assert answer.quantile(0.999)["flag"][0].item() in (0.0, 1.0)
    drawn = answer.samples(300)
    assert set(drawn["kind"][:, 0].flatten().tolist()) <= {0.0, 1.0, 2.0}
    assert drawn["flag"][:, 0].mean().item() == pytest.approx(p.item(), abs=0.12)
    assert "joint draws" in repr(answer)
