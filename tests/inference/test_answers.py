"""What an answer offers: spread of every kind of leaf, quantiles, draws, frames."""

import math
import sys
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
import pytest
import torch
from scipy import stats
from strategies import perturbed

import vfg
import vfg.inference.calibration
from vfg.distributions.likelihoods import Likelihood, LikelihoodSpec
from vfg.inference import draws, infer
from vfg.inference.draws import internal_normals
from vfg.utils.random import normal

NAN = float("nan")


def mixed(aggregation="mean"):
    """Continuous, binary and categorical leaves under one root."""
    nodes = [
        vfg.Node("size", 2, columns=("width", "height")),
        vfg.Node("flag", 1, columns=("flag",)),
        vfg.Node("kind", 2, columns=("code",)),
        vfg.Node("root", 3),
    ]
    graph = vfg.Graph(nodes, [vfg.Edge(leaf, "root") for leaf in ("size", "flag", "kind")])
    likelihood = {"flag": "bernoulli", "kind": vfg.Categorical(4), "*": vfg.Gaussian(scale=0.6)}
    flow = vfg.Coupling(blocks=2, hidden=8)
    model = vfg.VFG(graph, flow=flow, aggregation=aggregation, likelihood=likelihood)
    model = perturbed(model.double(), 1, size=0.2)
    model.scaling.scale[:2] = torch.tensor([3.0, 0.5])
    model.scaling.location[:2] = torch.tensor([10.0, -1.0])
    return model


TABLE = torch.tensor(
    [[11.0, -0.5, NAN, NAN], [NAN, NAN, 1.0, NAN], [NAN, NAN, NAN, 2.0], [NAN, NAN, NAN, NAN]],
    dtype=torch.float64,
)
KINDS = ["mean", "precision", "gaussian"]


@pytest.mark.parametrize("aggregation", KINDS)
def test_answers_have_the_shapes_of_their_targets(aggregation):
    targets = ["size", "height", "flag", "kind", "root"]
    answer = infer(mixed(aggregation), TABLE, targets)
    shapes = {"size": (2,), "height": (), "flag": (1,), "kind": (1,), "root": (3,)}
    assert answer.targets == tuple(targets)
    assert answer.joint == (aggregation != "mean")
    assert answer.converged.tolist() == [True] * 4
    for name, shape in shapes.items():
        assert answer.mean[name].shape == (4, *shape)
        assert answer.std[name].shape == (4, *shape)
        assert answer.samples(3)[name].shape == (3, 4, *shape)
        assert answer.quantile(0.5)[name].shape == (4, *shape)
        assert answer.quantile([0.1, 0.2, 0.3])[name].shape == (3, 4, *shape)
    assert torch.equal(answer.mean["height"], answer.mean["size"][:, 1])
    assert torch.equal(answer.samples(3)["height"], answer.samples(3)["size"][..., 1])


@pytest.mark.parametrize("aggregation", KINDS)
def test_binary_leaves_answer_with_probabilities_and_draw_zeros_and_ones(aggregation):
    answer = infer(mixed(aggregation), TABLE)
    p = answer.mean["flag"][[0, 2, 3]]
    assert ((p > 0) & (p < 1)).all()
    torch.testing.assert_close(answer.std["flag"][[0, 2, 3]], (p * (1 - p)).sqrt())
    draws = answer.samples(2000)["flag"]
    assert set(draws.unique().tolist()) == {0.0, 1.0}
    assert (draws[:, 1] == 1.0).all()
    quantiles = answer.quantile([0.05, 0.5, 0.95])["flag"]
    assert torch.equal(
        quantiles[:, [0, 2, 3]],
        (torch.tensor([0.05, 0.5, 0.95]).double().view(3, 1, 1) > 1 - p).double(),
    )
    if aggregation == "mean":
        tolerance = 4.5 * 0.5 / math.sqrt(2000)
        assert ((draws.mean(0)[[0, 2, 3]] - p).abs() < tolerance).all()


@pytest.mark.parametrize("aggregation", KINDS)
def test_categorical_leaves_answer_with_codes_and_probabilities(aggregation):
    answer = infer(mixed(aggregation), TABLE, ["kind", "code", "size"])
    probabilities = answer.probabilities["kind"]
    assert list(answer.probabilities) == ["kind", "code"]
    assert probabilities.shape == (4, 4)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(4).double())
    assert probabilities[2].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert torch.equal(answer.mean["code"], probabilities.argmax(1).double())
    assert answer.std["code"].isnan().tolist() == [True, True, False, True]
    assert answer.quantile(0.5)["code"].isnan().tolist() == [True, True, False, True]
    draws = answer.samples(2000)["code"]
    assert (draws[:, 2] == 2.0).all()
    assert set(draws.unique().tolist()) <= {0.0, 1.0, 2.0, 3.0}
    if aggregation == "mean":
        shares = torch.stack([(draws == code).double().mean(0) for code in range(4)], dim=1)
        assert ((shares - probabilities).abs() < 4.5 * 0.5 / math.sqrt(2000)).all()


def test_without_precision_the_noise_is_that_of_the_likelihood_in_data_units():
    model = mixed("mean")
    answer = infer(model, TABLE)
    block = model.passing.schedule.place["size"][0]
    scale = model.likelihood_at(block).scale()[0, 0].detach() * model.scaling.scale[:2]
    expected = scale.expand(3, 2)
    torch.testing.assert_close(answer.std["size"][1:], expected)
    levels = torch.tensor([0.05, 0.5, 0.9], dtype=torch.float64)
    normal = torch.distributions.Normal(answer.mean["size"][1:], expected)
    found = answer.quantile(levels)["size"][:, 1:]
    torch.testing.assert_close(found, torch.stack([normal.icdf(level) for level in levels]))
    draws = answer.samples(4000)["size"][:, 1:]
    assert ((draws.mean(0) - normal.mean) / expected).abs().max() < 4.5 / math.sqrt(4000)
    correlation = torch.corrcoef(draws.flatten(1).T) - torch.eye(6)
    assert correlation.abs().max() < 4.5 / math.sqrt(4000)


def test_noise_depends_on_which_leaves_were_observed():
    model = mixed("mean")
    model.spread = vfg.inference.calibration.Calibration(4, 3).double()
    plain = infer(model, TABLE).std["size"]
    model.spread.by_observed[0, :3] = torch.tensor([0.0, math.log(0.5), math.log(3.0)])
    found = infer(model, TABLE).std["size"]
    torch.testing.assert_close(found[1:, 0], plain[1:, 0] * torch.tensor([0.5, 3.0, 1.0]))
    assert torch.equal(found[:, 1], plain[:, 1])


def test_latent_nodes_have_unknown_spread_without_precision():
    answer = infer(mixed("mean"), {"size": [[11.0, 0.0]], "root": [[NAN, 1.0, NAN]]}, "root")
    assert answer.std["root"].isnan().tolist() == [[True, False, True]]
    assert answer.samples(2)["root"][:, 0].isnan().tolist() == [[True, False, True]] * 2
    assert answer.quantile(0.5)["root"][0, 1] == 1.0


@pytest.mark.parametrize("aggregation", KINDS)
def test_the_first_draws_are_the_same_for_every_count_and_choice_of_targets(aggregation):
    model = mixed(aggregation)
    answer = infer(model, TABLE, seed=4)
    many, few = answer.samples(100), answer.samples(20)
    for leaf in answer.targets:
        assert torch.equal(many[leaf][:20], few[leaf])
    other = infer(model, TABLE, ["root", "height"], seed=4)
    assert torch.equal(other.samples(7)["height"], many["size"][:7, :, 1])
    assert not torch.equal(infer(model, TABLE, seed=5).samples(20)["size"], few["size"])


@pytest.mark.parametrize("aggregation", KINDS)
def test_quantiles_rise_with_their_level(aggregation):
    answer = infer(mixed(aggregation), TABLE, ["size", "flag"])
    for value in answer.quantile([0.01, 0.2, 0.5, 0.8, 0.99]).values():
        assert (value.diff(dim=0) >= 0).all()


def test_quantiles_of_joint_answers_are_those_of_their_first_draws():
    answer = infer(mixed("gaussian"), TABLE, "size")
    draws = answer.samples(256)["size"]
    expected = torch.quantile(draws, torch.tensor([0.1, 0.77]).double(), dim=0)
    torch.testing.assert_close(answer.quantile([0.1, 0.77])["size"], expected)


def test_frames_have_one_column_per_target_column():
    answer = infer(mixed(), TABLE, ["size", "code", "root"])
    frame = answer.to_frame(std=True, quantiles=[0.05, 0.5])
    names = ["width", "height", "code", "root[0]", "root[1]", "root[2]"]
    expected = [name + suffix for suffix in ("", " std", " q0.05", " q0.5") for name in names]
    assert list(frame.columns) == expected
    assert frame["height"].tolist() == answer.mean["size"][:, 1].tolist()
    assert frame["width std"].tolist() == answer.std["size"][:, 0].tolist()
    assert list(answer.to_frame().columns) == names
    unnamed = vfg.VFG(vfg.Graph.star({"a": 2, "b": 1}))
    assert list(infer(unnamed, {"b": 1.0}).to_frame().columns) == ["a[0]", "a[1]", "b"]


def test_frames_keep_the_index_of_the_input():
    frame = pd.DataFrame(
        TABLE.numpy(), columns=["width", "height", "flag", "code"], index=list("abcd")
    )
    filled = infer(mixed(), frame).to_frame()
    assert list(filled.index) == list("abcd")
    seen = frame.notna()
    assert filled[seen].equals(frame[seen])


def test_frames_name_the_extra_that_is_missing(monkeypatch):
    answer = infer(mixed(), TABLE)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"vfg\[table\]"):
        answer.to_frame()


def test_answers_describe_themselves():
    shown = repr(infer(mixed("gaussian"), TABLE, ["size", "root"]))
    assert shown == "Answer: 4 rows, targets 'size', 'root'; joint draws; all rows converged"


def test_answers_need_no_gradients():
    answer = infer(mixed("gaussian"), TABLE)
    for found in (answer.mean, answer.std, answer.samples(2), answer.quantile(0.5)):
        assert not any(value.requires_grad for value in found.values())


def test_draws_are_decoded_roots_shifted_to_the_mean_plus_noise():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=3)
    flow = vfg.Coupling(blocks=2, hidden=8)
    model = perturbed(vfg.VFG(graph, flow=flow, aggregation="gaussian").double(), 2, size=0.7)
    model.spread = vfg.inference.calibration.Calibration(2, 2).double()
    model.spread.log_temperature.fill_(math.log(0.5))
    model.spread.log_noise.copy_(torch.tensor([0.3, 0.4]).log())
    row = torch.tensor([[NAN, 1.2]], dtype=torch.float64)
    answer = infer(model, row, ["a"], seed=9, row_ids=[40])
    draws = answer.samples(50)["a"][:, 0]

    precision = model.encode(row).precision["root"][0] * 0.5
    factor = torch.linalg.inv(torch.linalg.cholesky(precision)).T
    root = model.encode(row)["root"]

    def decoded(normals):
        return model.decode({"root": root + normals @ factor.T})["a"]

    names = [node.name for node in graph.nodes]
    where, count = torch.tensor([40]), torch.arange(50)
    normals = normal(9, where, count, names.index("root"), torch.arange(3))[:, 0]
    noise = normal(9, where, count, names.index("a"), torch.arange(1))[:, 0]
    inside = decoded(internal_normals(model)[1][:, 0, 0])
    shift = decoded(torch.zeros(1, 3).double()) - inside.mean(0)
    assert shift.abs().item() > 0.02
    scale = model.likelihood_at(0).scale()[0, 0].detach() * 0.3
    torch.testing.assert_close(draws, decoded(normals) + shift + scale * noise)
    variance = inside.var(0, correction=0) + scale**2
    torch.testing.assert_close(answer.std["a"][0], variance.sqrt())


def test_high_levels_of_intervals_are_honoured():
    """Ends of 256 draws stop at .99; on Normal data tails go on as the Normal quantiles do."""
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    model = vfg.VFG(graph, aggregation="gaussian", seed=1).double()
    answer = model.infer({"a": torch.linspace(-1.0, 1.0, 200)}, targets=["b"])
    centre, std = answer.mean["b"], answer.std["b"]
    for level in (0.9, 0.98, 0.99, 0.999):
        low, high = (end["b"] for end in answer.interval(level))
        reach = std * torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=torch.float64))
        assert ((high - centre) / reach).mean().item() == pytest.approx(1.0, abs=0.05)
        assert ((centre - low) / reach).mean().item() == pytest.approx(1.0, abs=0.05)
    with pytest.raises(ValueError, match=r"up to a level of 0\.999"):
        answer.interval(0.9999)
    for level in ("x", None, True, 1.0):
        with pytest.raises(ValueError, match="level must be a number between 0 and 1, but is"):
            answer.interval(level)


def test_closed_forms_have_every_level():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    for model in (vfg.GaussianVFG(graph), vfg.VFG(graph, aggregation="mean")):
        answer = model.infer({"a": 0.5}, targets=["b"])
        _, high = answer.interval(1.0 - 2e-9)
        expected = answer.mean["b"] + 5.9978 * answer.std["b"]
        torch.testing.assert_close(high["b"], expected.to(high["b"]), rtol=1e-4, atol=1e-4)


class PoissonLikelihood(Likelihood):
    """Counts, whose states are the logarithms of rates."""

    def embed(self, data):
        return (data + 0.5).log()

    def mean(self, state):
        return state.clamp(max=6.0).exp()

    def log_prob(self, data, state):
        return data * state - self.mean(state) - torch.lgamma(data + 1.0)

    def sample(self, state, generator):
        return torch.poisson(self.mean(state), generator=generator)


@dataclass(frozen=True)
class Poisson(LikelihoodSpec):
    """Counts 0, 1, 2, ..."""

    name: ClassVar[str] = "poisson-of-this-test"

    def build(self, nodes, width):
        return PoissonLikelihood()


@draws.quantile.register
def _(likelihood: PoissonLikelihood, state, level, noise):
    rate = likelihood.mean(state).numpy()
    return torch.from_numpy(stats.poisson.ppf(level.numpy(), rate)).to(state)


@draws.deviation.register
def _(likelihood: PoissonLikelihood, state, variance, noise):
    return likelihood.mean(state).sqrt()


@pytest.mark.parametrize("states", ["deterministic", "sampled"])
@torch.no_grad()
def test_quantiles_of_a_likelihood_of_ones_own_are_those_of_its_draws(states):
    torch.manual_seed(0)
    graph = vfg.Graph.star({"size": 1, "visits": 1}, width=2)
    likelihood = {"visits": Poisson(), "*": "gaussian"}
    model = vfg.VFG(graph, likelihood=likelihood, aggregation="gaussian", states=states)
    answer = model.infer({"size": [-1.0, 0.0, 1.5]}, targets=["visits"])
    drawn = answer.samples(4000)["visits"].double()
    quantiles = answer.quantile(0.8)["visits"].double()
    assert (quantiles != quantiles.clamp(0.0, 1.0)).any(), "counts, not probabilities"
    below = [(drawn < quantiles).double().mean(0), (drawn <= quantiles).double().mean(0)]
    assert (below[0] <= 0.86).all()
    assert (below[1] >= 0.74).all()
    if states == "sampled":
        torch.testing.assert_close(answer.std["visits"].double(), drawn.std(0), rtol=0.25, atol=0.1)
