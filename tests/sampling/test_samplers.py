"""How users say that states are sampled."""

import pytest
import torch
from strategies import perturbed

import vfg
from vfg.sampling import Deterministic, StatesSpec, draw_states, generated_noise, states_spec
from vfg.sampling.samplers import PosteriorFlow
from vfg.utils.specs import spec_from_dict


def test_names_and_specs_mean_the_same():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    assert states_spec("sampled") == vfg.Sampled()
    assert vfg.VFG(graph).states_spec == Deterministic()
    assert vfg.VFG(graph).to_dict()["states"] == "deterministic"
    model = vfg.VFG(graph, states=vfg.Sampled(ladder=True))
    assert model.states == "sampled"
    assert spec_from_dict(StatesSpec, model.to_dict()["states"]) == vfg.Sampled(ladder=True)


def test_deterministic_models_have_no_more_parameters_than_before():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    assert not [name for name in vfg.VFG(graph).state_dict() if "sampling" in name]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"states must be one of deterministic, sampled or vfg"):
        states_spec("quantum")
    with pytest.raises(ValueError, match="width of a network"):
        vfg.Sampled(amortised=-1)
    with pytest.raises(ValueError, match="need networks; give their width as amortised"):
        vfg.Sampled(blocks=2)
    with pytest.raises(ValueError, match="blocks to be at least 0, but got -1"):
        vfg.Sampled(4, blocks=-1)
    with pytest.raises(TypeError, match="True or False for children"):
        vfg.Sampled(4, children=1)
    with pytest.raises(ValueError, match="residual networks see the children"):
        vfg.Sampled(4, image=(2, 2), residual=1, children=False)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_couplings_of_q_have_the_derivatives_of_what_they_compute(width):
    spec = vfg.Sampled(6, blocks=3)
    flow = PosteriorFlow(2, width, spec, torch.Generator().manual_seed(0)).double()
    drawn, messages = draw(2, 3, 4, width), draw(2, 1, 4, width, seed=1)
    state, slopes = flow(drawn, messages)
    assert torch.equal(state, drawn), "they start as the identity"
    assert (slopes == 0).all()
    perturbed(flow, 2)
    state, slopes = flow(drawn, messages)
    for node, k, row in [(0, 0, 0), (1, 2, 3)]:

        def at(value, node=node, k=k, row=row):
            whole = drawn.clone()
            whole[node, k, row] = value
            return flow(whole, messages)[0][node, k, row]

        matrix = torch.autograd.functional.jacobian(at, drawn[node, k, row])
        expected = torch.linalg.slogdet(matrix).logabsdet
        torch.testing.assert_close(slopes[node, k, row].sum(), expected)
    other = flow(drawn, messages + 1.0)[0]
    assert (other != state).any(), "they read the messages"


def test_evidence_at_a_latent_node_leaves_its_couplings_out():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    options = {"aggregation": "mean", "likelihood": "gaussian"}
    model = vfg.VFG(graph, states=vfg.Sampled(4, blocks=2), **options).double()
    perturbed(model, 4)
    cells, seen = draw(3, 2), torch.ones(3, 2, dtype=torch.bool)
    given = {1: torch.tensor([[[0.5, torch.nan]]]).double().expand(1, 3, 2)}

    def run(evidence):
        noise = generated_noise(torch.Generator().manual_seed(1))
        return draw_states(model, cells, seen, None, evidence, noise, 1)

    free, fixed = run({}), run(given)
    model.sampling.samplers["layer1_width2_mean"].flow = None
    assert (free.states[1] != run({}).states[1]).all()
    plain = run(given)
    assert torch.equal(fixed.states[1], plain.states[1])
    assert torch.equal(fixed.posterior[1], plain.posterior[1])


def test_without_children_the_networks_see_the_messages_alone():
    graph = vfg.Graph.star({"a": 3, "b": 2}, width=4)
    widths = [
        vfg.VFG(graph, states=vfg.Sampled(5, children=children), aggregation="mean")
        .sampling.samplers["layer1_width4_mean"]
        .network.hidden_layers[0]
        .weight.shape[1]
        for children in (True, False)
    ]
    assert widths == [4 + 3 + 1 + 2 + 1, 4]


def test_an_empty_row_under_a_flow_prior_is_expected_at_its_middle():
    graph = vfg.Graph.star({"a": 2, "b": 2}, width=3)
    model = vfg.VFG(
        graph,
        flow=vfg.Coupling(2, 4),
        states=vfg.Sampled(4, ladder=True),
        prior=vfg.FlowPrior(2, 4),
        aggregation="mean",
    ).double()
    perturbed(model, 5)
    middle = model.prior_at(1).flow.inverse(torch.zeros(1, 1, 3).double())[0][0]
    expected = torch.cat(list(model.decode({"root": middle}).values()), dim=1)[:, :4]
    found = model.reconstruct(torch.full((1, 4), torch.nan).double())
    torch.testing.assert_close(found, expected)
