import math

import numpy as np
import pytest
import torch
from gaussian.brute import table_normal

import vfg
from vfg.gaussian import GaussianVFG
from vfg.gaussian.em.general import chunks_of
from vfg.gaussian.em.initialisation import start_values
from vfg.gaussian.fitting import GaussianSettings, run_em
from vfg.gaussian.tree_messages import prefers_tree

NETWORK = [("A", "C"), ("B", "C"), ("B", "D"), ("A", "F"), ("D", "F"), ("E", "F"), ("G", "F")]
DAG = vfg.Graph.from_edges(
    [
        ("a", "h"),
        ("b", "h"),
        ("b", "k"),
        ("c", "k"),
        ("d", "k"),
        ("h", "r"),
        ("k", "r"),
        ("k", "q"),
    ],
    widths=dict.fromkeys("abcd", 1) | {"h": 1, "k": 2, "r": 2, "q": 1},
)
IDENTITY = vfg.Graph(
    [vfg.Node("a", 2), vfg.Node("b", 2), vfg.Node("h", 2), vfg.Node("r", 2)],
    [vfg.Edge("a", "h", kind="identity"), vfg.Edge("b", "h"), vfg.Edge("h", "r")],
)
GRAPHS = {
    "star": vfg.Graph.star(dict.fromkeys("abcd", 1), width=2),
    "tree": vfg.Graph.tree(dict.fromkeys("abcd", 1), width=2),
    "dag": DAG,
    "cover": vfg.Graph.cover(n=4, m=3),
    "identity": IDENTITY,
}


def factor_table(rows, columns, width, *, seed=0, missing=0.0):
    """A table from a factor model, its mean and covariance."""
    generator = torch.Generator().manual_seed(seed)
    loadings = torch.randn(columns, width, generator=generator, dtype=torch.float64)
    latent = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    table = latent @ loadings.mT + 0.5 * noise + 3.0
    hidden = torch.rand(rows, columns, generator=generator) < missing
    covariance = loadings @ loadings.mT + 0.25 * torch.eye(columns)
    return torch.where(hidden, torch.nan, table), covariance


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("mixture", ["root", "loadings"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_em_never_lowers_the_likelihood(graph, mixture, components):
    if components == 1 and mixture == "loadings":
        pytest.skip("one component is the same in both")
    table, _ = factor_table(150, 4, 2, missing=0.3)
    model = GaussianVFG(graph, components, mixture=mixture)
    seen = ~table.isnan()
    table = torch.nan_to_num(table - 3.0)
    values = start_values(model.linear, table, seen, torch.Generator().manual_seed(0))
    chunks = chunks_of(model.structure, components, table, seen)
    with torch.no_grad():
        plan = GaussianSettings(iterations=40, tolerance=-math.inf)
        _, trace, _ = run_em(model.linear, values, chunks, plan)
    gains = np.diff(trace)
    assert gains.min() > -1e-7
    assert trace[-1] > trace[0] + 0.02


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_em_recovers_the_covariance_of_a_known_model(missing):
    table, covariance = factor_table(6000, 6, 2, missing=missing)
    model = GaussianVFG(vfg.Graph.star({f"x{k}": 1 for k in range(6)}, width=2))
    history = model.fit(table)
    assert history.converged
    mean, found = table_normal(model)
    deviation = np.sqrt(np.diag(covariance))
    difference = (found - covariance.numpy()) / np.outer(deviation, deviation)
    np.testing.assert_allclose(difference, 0.0, atol=0.06)
    np.testing.assert_allclose((mean - 3.0) / deviation, 0.0, atol=0.06)


def test_history_ends_at_the_likelihood_of_the_model_in_data_units():
    table, _ = factor_table(300, 5, 2, missing=0.3)
    model = GaussianVFG(vfg.Graph.star({f"x{k}": 1 for k in range(5)}, width=2))
    history = model.fit(100.0 * table, iterations=5)
    expected = model.log_prob(100.0 * table).mean().item()
    assert history.log_likelihoods[-1] == pytest.approx(expected, abs=1e-9)
    assert len(history.log_likelihoods) == 6


def test_a_mixture_finds_clusters_that_one_component_cannot():
    generator = torch.Generator().manual_seed(0)
    centres = 4.0 * torch.randn(3, 4, generator=generator, dtype=torch.float64)
    which = torch.randint(3, (600,), generator=generator)
    table = centres[which] + torch.randn(600, 4, generator=generator, dtype=torch.float64)
    table = torch.where(torch.rand(600, 4, generator=generator) < 0.2, torch.nan, table)
    graph = vfg.Graph.star(dict.fromkeys("abcd", 1), width=2)
    single = GaussianVFG(graph)
    single.fit(table)
    for mixture in ("root", "loadings"):
        model = GaussianVFG(graph, 3, mixture=mixture)
        history = model.fit(table, restarts=2)
        assert len(history.runs) == 2
        assert max(history.runs) == pytest.approx(model.log_prob(table).mean().item())
        assert model.log_prob(table).mean() > single.log_prob(table).mean() + 0.3
        found = model.infer(table).responsibilities.argmax(1)
        purity = sum(torch.bincount(which[found == c], minlength=3).max().item() for c in range(3))
        assert purity / 600 > 0.9


def test_held_out_cells_are_scored_given_the_rest():
    table, _ = factor_table(400, 5, 2)
    model = GaussianVFG(vfg.Graph.star({f"x{k}": 1 for k in range(5)}, width=2))
    history = model.fit(table, validation=0.1)
    marginal = -0.5 * math.log(2 * math.pi * math.e) - math.log(table.std(0).mean())
    assert history.held_out > marginal + 0.3


def test_a_deep_tree_is_fitted_by_message_passing():
    table, _ = factor_table(1500, 12, 2, missing=0.2)
    graph = vfg.Graph.tree({f"x{k}": 1 for k in range(12)}, arity=2, width=2)
    model = GaussianVFG(graph)
    assert prefers_tree(model.structure)
    model.fit(table, iterations=60)
    star = GaussianVFG(vfg.Graph.star({f"x{k}": 1 for k in range(12)}, width=2))
    star.fit(table)
    assert model.log_prob(table).mean() > star.log_prob(table).mean() - 0.1


def test_noise_free_trees_start_as_stars():
    table, _ = factor_table(300, 4, 2, missing=0.2)
    tree = GaussianVFG(GRAPHS["tree"], inner_noise=False)
    tree.fit(table, finish="none")
    star = GaussianVFG(GRAPHS["star"])
    star.fit(table)
    span = tree.structure.spans["node1_1"]
    edge = tree.linear.values().edges[span.start : span.stop, :2]
    torch.testing.assert_close(edge, torch.eye(2, dtype=torch.float64))
    expected = star.log_prob(table).mean().item()
    assert tree.log_prob(table).mean().item() == pytest.approx(expected, abs=0.01)


def network_table(rows, seed):
    random = np.random.default_rng(seed)
    a, b = random.normal(1, 1, rows), random.normal(2, 3, rows)
    e, g = random.normal(3.5, 2, rows), random.normal(5, 2, rows)
    c = 2 + 2 * a + 2 * b + random.normal(0, 0.5, rows)
    d = 6 + 1.5 * b + random.normal(0, 0.33, rows)
    f = 2 * a + d + e + 1.5 * g + random.normal(0, 1, rows)
    return {"A": a, "B": b, "C": c, "D": d, "E": e, "F": f, "G": g}


def test_a_known_network_predicts_as_least_squares_does():
    graph = vfg.Graph.from_bayesian_network(NETWORK, width=4, variables="ABCDEFG")
    train, test = (
        np.stack([part[name] for name in graph.columns], axis=1)
        for part in (network_table(2000, 0), network_table(2000, 1))
    )
    model = GaussianVFG(graph)
    model.fit(train)
    for column, name in enumerate(graph.columns):
        gaps = test.copy()
        gaps[:, column] = np.nan
        found = model.infer(gaps, targets=[name]).mean[name][:, 0].numpy()
        others = np.c_[np.delete(train, column, 1), np.ones(len(train))]
        best = np.linalg.lstsq(others, train[:, column], rcond=None)[0]
        expected = np.c_[np.delete(test, column, 1), np.ones(len(test))] @ best
        error, floor = (((guess - test[:, column]) ** 2).mean() for guess in (found, expected))
        assert error < 1.025 * floor, name


@pytest.mark.parametrize("graph", [GRAPHS["star"], GRAPHS["dag"]], ids=["star", "dag"])
@pytest.mark.parametrize("components", [1, 2])
def test_degenerate_tables_stay_finite_in_single_precision(graph, components):
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(60, 1, generator=generator)
    # Exact copies, a constant column, and one with next to no spread around a large value.
    table = torch.cat([first, 2 * first, torch.full((60, 1), 7.0), 1e4 + 1e-2 * first], dim=1)
    model = GaussianVFG(graph, components).float()
    history = model.fit(table, iterations=50, restarts=1)
    assert np.isfinite(history.log_likelihoods).all()
    assert model.log_prob(table).isfinite().all()
    gaps = table.clone()
    gaps[::2, 0] = torch.nan
    gaps[1::2, 2] = torch.nan
    answer = model.infer(gaps)
    for found in (answer.mean, answer.std, answer.quantile(0.9), answer.samples(2)):
        assert all(value.isfinite().all() for value in found.values())
    close = (answer.mean["a"] - table[:, :1]).abs().max()
    assert close < 0.05


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"finish": "maybe"}, "finish must be one of"),
        ({"iterations": 0}, "iterations >= 1"),
        ({"validation": 1.5}, "validation is a share"),
    ],
)
def test_unusable_plans_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        GaussianVFG(GRAPHS["star"]).fit(torch.zeros(3, 4), **options)


def test_a_column_without_values_is_refused():
    table = torch.zeros(3, 4)
    table[:, 1] = torch.nan
    with pytest.raises(ValueError, match="no observed value"):
        GaussianVFG(GRAPHS["star"]).fit(table)


def test_fitting_uses_no_global_generator(untouched_generators):
    table, _ = factor_table(60, 4, 1)
    first, second = (GaussianVFG(GRAPHS["star"], 2, leaf="spline") for _ in range(2))
    for model in (first, second):
        model.fit(table, iterations=3, steps=5, restarts=2, seed=4)
    assert torch.equal(first.log_prob(table), second.log_prob(table))


def test_other_rows_choose_when_to_stop():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(240, 4, generator=generator, dtype=torch.float64)
    train, judges, test = rows.split(80)
    scores = {}
    for name, validation in {"alone": 0.0, "judged": judges}.items():
        model = GaussianVFG(GRAPHS["star"], 12, mixture="loadings")
        history = model.fit(train, restarts=1, validation=validation)
        scores[name] = model.log_prob(test).mean().item()
    assert scores["judged"] > scores["alone"] + 0.3
    assert history.held_out == pytest.approx(model.log_prob(judges).mean().item())
    assert len(history.log_likelihoods) < 100


def test_held_out_cells_choose_when_to_stop():
    table, _ = factor_table(120, 4, 2)
    model = GaussianVFG(GRAPHS["star"], 12, mixture="loadings")
    free = model.fit(table, restarts=1)
    stopped = model.fit(table, restarts=1, validation=0.2)
    assert len(stopped.log_likelihoods) < len(free.log_likelihoods)
    assert stopped.held_out > -5.0


def test_shrinkage_draws_the_covariances_of_mixed_roots_together():
    table, _ = factor_table(80, 4, 3)
    spreads = []
    for shrinkage in (0.0, 30.0):
        model = GaussianVFG(GRAPHS["star"], 4)
        model.fit(table, restarts=1, shrinkage=shrinkage)
        factors = model.linear.values().root_factors.detach()
        covariances = factors @ factors.mT
        weights = model.linear.values().log_weights.detach().exp()
        average = (weights[:, None, None] * covariances).sum(0)
        spreads.append(float((covariances - average).norm() / average.norm()))
    assert spreads[1] < 0.5 * spreads[0]


def test_exact_linear_relations_come_out_exact():
    """A twin, a sum, and a sum beside a noisy column; a fifth of the cells is missing."""
    random = np.random.default_rng(0)
    a, b, noise = random.normal(size=(3, 400))
    tables = [([a, 2 * a + 3], 1), ([a, b, a + b], 2), ([a, b, a + b, a - b + 0.1 * noise], 3)]
    for columns, width in tables:
        table = np.stack(columns, axis=1)
        names = [str(place) for place in range(table.shape[1])]
        gaps = np.where(random.random(table.shape) < 0.2, np.nan, table)
        model = GaussianVFG(vfg.Graph.star(dict.fromkeys(names, 1), width=width))
        model.fit(gaps)
        for place, name in enumerate(names[:3]):
            asked = table.copy()
            asked[:, place] = np.nan
            found = model.infer(asked, targets=[name]).mean[name][:, 0].numpy()
            error = np.abs(found - table[:, place]).max() / table[:, place].std()
            assert error < 1e-6, (width, name)


def test_dropout_of_leaf_maps_follows_the_seed(untouched_generators):
    first = torch.randn(60, 1, generator=torch.Generator().manual_seed(0))
    table = torch.cat([first, first.square(), -first, first + 1.0], dim=1)
    models = []
    for seed in (1, 2):
        leaf = vfg.Coupling(2, 8, dropout=0.3)
        model = vfg.GaussianVFG(vfg.Graph.star({"a": 2, "b": 2}, width=2), leaf=leaf)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            model.fit(table, steps=20)
            assert torch.equal(torch.get_rng_state(), before)
        models.append(model.state_dict())
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())
