import numpy as np
import pytest
import torch
from gaussian.brute import all_masks, conditional, joint_normal, log_density, table_normal

import vfg
from vfg.gaussian import GaussianVFG
from vfg.gaussian.em.general import family_moments
from vfg.gaussian.factors import Masks, condition, group_masks
from vfg.gaussian.parameters import factors_of
from vfg.gaussian.structure import Clique
from vfg.gaussian.tree_messages import clique_moments, tree_pass

TREE = vfg.Graph.tree({"a": 1, "b": 2, "c": 1, "d": 1, "e": 1}, arity=2, width=2)
DAG = vfg.Graph.from_edges(
    [
        ("a", "h"),
        ("b", "h"),
        ("b", "k"),
        ("c", "k"),
        ("d", "k"),
        ("e", "l"),
        ("f", "l"),
        ("f", "r"),
        ("h", "r"),
        ("k", "r"),
        ("k", "q"),
        ("l", "q"),
    ],
    widths=dict.fromkeys("abcdef", 1) | {"h": 2, "k": 3, "l": 1, "r": 2, "q": 1},
)
COVER = vfg.Graph.cover(n=7, m=3)
IDENTITY = vfg.Graph(
    [vfg.Node("a", 2), vfg.Node("b", 2), vfg.Node("h", 2), vfg.Node("r", 2)],
    [
        vfg.Edge("a", "h", kind="identity"),
        vfg.Edge("b", "h"),
        vfg.Edge("h", "r", kind="identity"),
    ],
)
GRAPHS = {"tree": TREE, "dag": DAG, "cover": COVER, "identity": IDENTITY}
STAR = vfg.Graph.star({"a": 1, "b": 1, "c": 2}, width=2)


def random_model(graph, **options):
    """A model whose parameters are all away from their start, with a scaling of its own."""
    model = GaussianVFG(graph, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.4 * noise)
    columns = model.sections.columns
    model.scaling.set(torch.linspace(-1, 2, columns), torch.linspace(0.5, 3, columns))
    return model


def random_table(model, rows):
    generator = torch.Generator().manual_seed(2)
    shape = (rows, model.sections.columns)
    return 2.0 * torch.randn(shape, generator=generator, dtype=torch.float64)


def with_every_mask(model):
    masks = all_masks(model.sections.columns)
    table = random_table(model, len(masks))
    return torch.where(torch.from_numpy(masks), table, torch.nan), masks, table.numpy()


@pytest.mark.parametrize("inner_noise", [True, False])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_log_prob_of_every_mask_is_that_of_the_brute_force_normal(graph, inner_noise):
    model = random_model(graph, inner_noise=inner_noise)
    table, masks, full = with_every_mask(model)
    normal = table_normal(model)
    expected = [log_density(*normal, *pair) for pair in zip(masks, full, strict=True)]
    np.testing.assert_allclose(model.log_prob(table), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_conditionals_of_every_mask_are_those_of_the_brute_force_normal(graph):
    model = random_model(graph)
    table, masks, full = with_every_mask(model)
    answer = model.infer(table)
    normal = table_normal(model)
    pairs = [conditional(*normal, *pair) for pair in zip(masks, full, strict=True)]
    for leaf, columns in model.sections.positions.items():
        chosen = list(columns)
        mean = np.array([pair[0][chosen] for pair in pairs])
        covariance = np.array([pair[1][np.ix_(chosen, chosen)] for pair in pairs])
        np.testing.assert_allclose(answer.mean[leaf], mean, atol=1e-9)
        np.testing.assert_allclose(answer.covariance(leaf), covariance, atol=1e-9)
        deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        np.testing.assert_allclose(answer.std[leaf], deviation, atol=1e-7)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_posteriors_of_every_latent_node_are_those_of_the_brute_force_normal(graph):
    model = random_model(graph)
    table, masks, _ = with_every_mask(model)
    mean, covariance, places = joint_normal(model)
    scaled = model.scaling.apply_to(torch.nan_to_num(table)).numpy()
    found = model.posterior(table)
    for row, mask in enumerate(masks):
        seen, value = np.zeros(len(mean), dtype=bool), np.zeros(len(mean))
        for leaf, columns in model.structure.positions.items():
            seen[places[leaf]], value[places[leaf]] = mask[list(columns)], scaled[row, columns]
        expected, spread = conditional(mean, covariance, seen, value)
        for node in model.structure.nodes:
            here = places[node]
            np.testing.assert_allclose(found.mean[node][row], expected[here], atol=1e-9)
            np.testing.assert_allclose(
                found.covariance[node][row], spread[np.ix_(here, here)], atol=1e-9
            )


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_conditional_density_is_joint_over_marginal(graph):
    model = random_model(graph)
    masks = all_masks(model.sections.columns)
    table = random_table(model, len(masks))
    mean, covariance = table_normal(model)
    found = model.conditional_log_prob(table, torch.from_numpy(masks))
    for row, mask in enumerate(masks):
        expected, spread = conditional(mean, covariance, mask, table[row].numpy())
        direct = log_density(expected, spread, ~mask, table[row].numpy())
        assert found[row].item() == pytest.approx(direct, abs=1e-8)


def test_what_is_given_can_be_named():
    model = random_model(TREE)
    table = random_table(model, 3)
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[:, :3] = True
    by_name = model.conditional_log_prob(table, ["a", "b"])
    torch.testing.assert_close(by_name, model.conditional_log_prob(table, mask))


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("graph", [TREE, DAG], ids=["tree", "dag"])
def test_both_sides_and_any_grouping_agree(graph, mixture, components):
    model = random_model(graph, components=components, mixture=mixture)
    table, masks, _ = with_every_mask(model)
    table, seen = torch.nan_to_num(table).repeat(3, 1), torch.from_numpy(masks).repeat(3, 1)
    factors = factors_of(model.structure, model.linear.values())
    grouped = group_masks(seen)
    assert len(grouped.distinct) == len(masks)
    found = [
        condition(factors, table, kind, side)
        for side in ("latent", "leaf")
        for kind in (grouped, Masks(seen, torch.arange(len(seen))))
    ]
    for other in found[1:]:
        torch.testing.assert_close(other.log_probs, found[0].log_probs, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(other.mean, found[0].mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(
            other.covariance[other.groups],
            found[0].covariance[found[0].groups],
            rtol=1e-10,
            atol=1e-10,
        )


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("inner_noise", [True, False])
def test_message_passing_agrees_with_the_joint_factorisation(
    monkeypatch, inner_noise, mixture, components
):
    model = random_model(TREE, components=components, mixture=mixture, inner_noise=inner_noise)
    structure, values = model.structure, model.linear.values()
    table, masks, _ = with_every_mask(model)
    table, seen = torch.nan_to_num(table).repeat(3, 1), torch.from_numpy(masks).repeat(3, 1)
    grouped = group_masks(seen)
    cliques = [Clique(tuple(span), (), (), name) for name, span in structure.spans.items()]
    cliques += structure.node_cliques
    monkeypatch.setattr("vfg.gaussian.em.general.prefers_tree", lambda structure: False)
    log_probs, moments = family_moments(structure, values, table, grouped, cliques)
    found = tree_pass(structure, values, table, grouped)
    torch.testing.assert_close(found.log_probs, log_probs, rtol=1e-10, atol=1e-10)
    for clique, (mean, covariance) in zip(cliques, moments, strict=True):
        own_mean, own_covariance = clique_moments(structure, found, clique)
        torch.testing.assert_close(own_mean, mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(
            own_covariance.expand_as(covariance), covariance, rtol=1e-10, atol=1e-10
        )


def component_models(model):
    """Every component of a mixture as a model of its own, roots made standard by substitution."""
    values = model.linear.values()
    roots = model.structure.root_width
    found = []
    for component in range(model.components):
        root = component if model.linear.mixes_roots else 0
        leaf = component if model.mixture == "loadings" else 0
        factor, centre = values.root_factors[root], values.root_means[root]
        edges, loadings = values.edges.clone(), values.loadings[leaf].clone()
        shifts = values.shifts + edges[:, :roots] @ centre
        offsets = values.offsets[leaf] + loadings[:, :roots] @ centre
        edges[:, :roots] = edges[:, :roots] @ factor
        loadings[:, :roots] = loadings[:, :roots] @ factor
        single = GaussianVFG(model.graph)
        single.scaling.set(model.scaling.location, model.scaling.scale)
        single.linear.assign(
            single.linear.values()._replace(
                edges=edges,
                shifts=shifts,
                noises=values.noises,
                loadings=loadings[None],
                offsets=offsets[None],
                scales=values.scales[leaf][None],
            )
        )
        found.append(single)
    return values.log_weights.exp().detach().numpy(), found


@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("graph", [TREE, DAG, STAR], ids=["tree", "dag", "star"])
def test_mixtures_are_the_enumeration_of_their_components(graph, mixture):
    model = random_model(graph, components=3, mixture=mixture)
    table, masks, full = with_every_mask(model)
    weights, singles = component_models(model)
    normals = [table_normal(single) for single in singles]
    answer, columns = model.infer(table), model.sections.columns
    leaf_of = {c: leaf for leaf, found in model.sections.positions.items() for c in found}
    log_probs = model.log_prob(table).detach().numpy()
    for row, mask in enumerate(masks):
        logs = [log_density(*normal, mask, full[row]) for normal in normals]
        joint = weights * np.exp(logs)
        assert log_probs[row] == pytest.approx(np.log(joint.sum()), abs=1e-8)
        shares = joint / joint.sum()
        np.testing.assert_allclose(answer.responsibilities[row], shares, atol=1e-8)
        parts = [conditional(*normal, mask, full[row]) for normal in normals]
        mean = sum(s * part[0] for s, part in zip(shares, parts, strict=True))
        second = sum(
            s * (np.diag(part[1]) + part[0] ** 2) for s, part in zip(shares, parts, strict=True)
        )
        for column in range(columns):
            leaf = leaf_of[column]
            place = model.sections.positions[leaf].index(column)
            assert answer.mean[leaf][row, place].item() == pytest.approx(mean[column], abs=1e-7)
            deviation = np.sqrt(max(second[column] - mean[column] ** 2, 0.0))
            assert answer.std[leaf][row, place].item() == pytest.approx(deviation, abs=1e-6)


def test_posterior_of_a_mixture_is_the_enumeration_of_its_components():
    model = random_model(STAR, components=3, mixture="loadings")
    table = random_table(model, 5)
    _, singles = component_models(model)
    found = model.posterior(table)
    for component, single in enumerate(singles):
        own = single.posterior(table)
        torch.testing.assert_close(found.component_mean["root"][:, component], own.mean["root"])
        torch.testing.assert_close(
            found.component_covariance["root"][:, component], own.covariance["root"]
        )
    mean = (found.responsibilities[..., None] * found.component_mean["root"]).sum(1)
    torch.testing.assert_close(found.mean["root"], mean)


@pytest.mark.parametrize("graph", [TREE, DAG], ids=["tree", "dag"])
def test_latent_evidence_conditions_exactly(graph):
    model = random_model(graph)
    mean, covariance, places = joint_normal(model)
    node, leaf = model.structure.inner[0], model.graph.leaves[-1]
    state = np.linspace(-1.0, 1.0, len(places[node]))
    seen, value = np.zeros(len(mean), dtype=bool), np.zeros(len(mean))
    seen[places[node]], value[places[node]] = True, state
    expected, spread = conditional(mean, covariance, seen, value)
    answer = model.infer({node: state[None]}, targets=[leaf, node, *model.graph.roots])
    column = model.sections.positions[leaf][0]
    scale, location = (
        float(part[column]) for part in (model.scaling.scale, model.scaling.location)
    )
    here = places[leaf][0]
    assert answer.mean[leaf].item() == pytest.approx(expected[here] * scale + location, abs=1e-6)
    deviation = np.sqrt(spread[here, here]) * scale
    assert answer.std[leaf].item() == pytest.approx(deviation, abs=1e-6)
    np.testing.assert_array_equal(answer.mean[node][0], state)
    for root in model.graph.roots:
        np.testing.assert_allclose(answer.mean[root][0], expected[places[root]], atol=1e-6)


@pytest.mark.parametrize("leaf", ["affine", "spline", vfg.Coupling(blocks=1, hidden=4)])
@pytest.mark.parametrize("mixture", ["root", "loadings"])
def test_models_come_back_from_files(tmp_path, leaf, mixture):
    model = random_model(STAR, components=2, mixture=mixture, leaf=leaf)
    vfg.save(model, tmp_path / "model.vfg")
    again = vfg.load(tmp_path / "model.vfg")
    table = random_table(model, 4)
    assert isinstance(again, GaussianVFG)
    assert torch.equal(again.log_prob(table), model.log_prob(table))
    assert again.to_dict() == model.to_dict()


def test_results_have_the_dtype_of_the_table():
    model = random_model(TREE)
    table = random_table(model, 2).float()
    assert model.log_prob(table).dtype == torch.float32
    assert model.infer(table, targets="node1_1").mean["node1_1"].dtype == torch.float32
    assert model.float().log_prob(table.double()).dtype == torch.float64


def test_samples_of_rows_have_the_moments_of_the_model():
    model = random_model(DAG)
    mean, covariance = table_normal(model)
    drawn = model.sample(20000, seed=3)
    deviation = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((drawn.mean(0).numpy() - mean) / deviation, 0.0, atol=0.03)
    difference = (np.cov(drawn.numpy().T) - covariance) / np.outer(deviation, deviation)
    np.testing.assert_allclose(difference, 0.0, atol=0.03)


def test_embedding_is_the_posterior_mean_of_the_roots():
    model = random_model(DAG)
    table = random_table(model, 3)
    posterior = model.posterior(table).mean
    expected = torch.cat([posterior["r"], posterior["q"]], dim=1)
    torch.testing.assert_close(model.embed(table), expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"leaf": "cubic"}, "leaf must be one of"),
        ({"leaf": vfg.Spline(decreasing=True)}, "increasing"),
        ({"leaf": vfg.Linear()}, "leaf must be"),
        ({"mixture": "leaves"}, "mixture must be one of"),
        ({"components": 0}, "components >= 1"),
        ({"noise_floor": 0.0}, "noise_floor > 0"),
    ],
)
def test_unknown_choices_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        GaussianVFG(STAR, **options)


def test_a_coupled_section_observed_in_part_is_refused():
    model = GaussianVFG(STAR, leaf=vfg.Coupling(blocks=1, hidden=4))
    table = torch.tensor([[0.0, 0.0, 1.0, torch.nan]])
    for ask in (model.log_prob, model.infer, model.posterior):
        with pytest.raises(ValueError, match="leaf 'c' is observed in part"):
            ask(table)
    assert model.log_prob(torch.tensor([[0.0, torch.nan, 1.0, 2.0]])).isfinite().all()
