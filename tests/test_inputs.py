"""Numbers keep their digits, and columns their order, in every kind of input."""

import numpy as np
import pandas
import pytest
import torch

import vfg
from vfg.gaussian import GaussianVFG

BIG = 10**9
PAIR = vfg.Graph.star({"a": 1, "b": 1}, width=1)
NETWORK = [("A", "C"), ("B", "C"), ("C", "D")]


def whole_numbers():
    steps = np.random.default_rng(0).integers(-25, 26, (400, 1))
    return BIG + np.concatenate([steps, 2 * steps], axis=1)


KINDS = {
    "array": lambda table: table,
    "tensor": torch.from_numpy,
    "lists": lambda table: table.tolist(),
    "leaves": lambda table: {"a": table[:, :1], "b": table[:, 1]},
    "frame": lambda table: pandas.DataFrame(table, columns=["a", "b"]),
    "small integers": lambda table: (table - BIG).astype(np.int8),
}


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_large_whole_numbers_are_exact(kind):
    table = whole_numbers()
    model = GaussianVFG(PAIR)
    model.fit(KINDS[kind](table), iterations=5)
    np.testing.assert_allclose(model.scaling.scale, table.std(0), rtol=1e-12)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    "given",
    [
        {"a": BIG + 25},
        {"a": [BIG + 25]},
        {"a": torch.tensor([[BIG + 25]])},
        [{"a": BIG + 25}],
        [{"a": np.int64(BIG + 25)}],
    ],
)
def test_whole_evidence_comes_back_with_every_digit(given, exact):
    model = (GaussianVFG if exact else vfg.VFG)(PAIR)
    assert model.infer(given, ["a"]).mean["a"].item() == BIG + 25


def test_digits_that_float64_cannot_hold_are_announced():
    kept, lost = np.array([[2**53, 0]]), np.array([[2**53 + 1, 0]])
    model = GaussianVFG(PAIR)
    assert model.infer(kept).mean["a"].item() == 2**53
    for table in (lost, torch.from_numpy(lost), -lost, pandas.DataFrame(lost, columns=["a", "b"])):
        with pytest.warns(UserWarning, match="beyond 2\\^53"):
            model.infer(table)


def test_a_mapping_is_a_table_wherever_a_table_is_taken():
    model = GaussianVFG(PAIR)
    expected = model.log_prob([[11.0, float("nan")]])
    for given in ({"a": [11.0]}, {"a": 11.0}, {"a": [[11.0]]}):
        assert torch.equal(model.log_prob(given), expected)
    with pytest.raises(ValueError, match="names the latent node 'root'"):
        model.log_prob({"root": [1.0]})


def test_an_unnamed_array_of_a_network_warns_once_of_its_order():
    """Columns in the order of the edges, A C B D, are not in the order of the alphabet."""
    normals = np.random.default_rng(0).normal(size=(300, 4))
    a, b = normals[:, 0], normals[:, 1]
    c = 3.0 * a - b + 0.1 * normals[:, 2]
    d = 10.0 + c + 0.1 * normals[:, 3]
    graph = vfg.Graph.from_bayesian_network(NETWORK)
    model = GaussianVFG(graph)
    with pytest.warns(UserWarning, match="A, C, B, D"):
        model.fit(np.stack([a, c, b, d], axis=1))
    model.fit(np.stack([a, c, b, d], axis=1))  # once is enough
    with pytest.warns(UserWarning, match="A, C, B, D"):  # but another model is another user
        GaussianVFG(graph).log_prob(np.stack([a, c, b, d], axis=1))
    answer = model.infer({"A": 1.0, "B": 0.0}, ["D"]).mean["D"].item()
    assert answer == pytest.approx(13.0, abs=0.2)
    named = GaussianVFG(vfg.Graph.from_bayesian_network(NETWORK))
    named.fit(np.stack([a, b, c, d], axis=1), columns=["A", "B", "C", "D"])
    assert named.infer({"A": 1.0, "B": 0.0}, ["D"]).mean["D"].item() == pytest.approx(answer)


def test_frames_and_stated_orders_do_not_warn():
    table = np.random.default_rng(0).normal(size=(50, 4))
    model = GaussianVFG(vfg.Graph.from_bayesian_network(NETWORK))
    model.log_prob(pandas.DataFrame(table, columns=list("ABCD")))
    GaussianVFG(vfg.Graph.from_bayesian_network(NETWORK, variables="ABCD")).log_prob(table)


@pytest.mark.parametrize("columns", [["A", "B", "C"], ["A", "B", "C", "C"]])
def test_names_that_do_not_fit_the_array_are_refused(columns):
    model = GaussianVFG(vfg.Graph.from_bayesian_network(NETWORK))
    with pytest.raises(ValueError, match="columns names every column"):
        model.fit(np.zeros((5, 4)), columns=columns)
