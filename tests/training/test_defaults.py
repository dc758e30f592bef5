"""What `vfg.VFG(graph)` and `vfg.fit(model, table)` choose, and how good it is."""

import pytest
import torch

import vfg
from vfg.data import synthetic
from vfg.training.data import EXACT, factor_analysis
from vfg.training.settings import ALWAYS_HIDE, BOTH_ALGORITHMS, RunSettings

STAR = vfg.Graph.star({"a": 1, "b": 1, "c": 1})
TREE = vfg.Graph.tree({"a": 1, "b": 1, "c": 1})
MIXING = torch.tensor([[1.0, 0.0, 0.0], [-0.8, 0.6, 0.0], [0.5, 0.5, 0.7]])


def gaussian_rows(rows, seed):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed)) @ MIXING.T


def chosen(rows=1000, is_sampled=False, is_wide=False, **given):
    return vfg.FitSettings(**given).choose(rows, is_sampled=is_sampled, is_wide=is_wide)


@pytest.mark.parametrize(
    ("options", "aggregation", "flow"),
    [
        ({}, "gaussian", vfg.LinearStart(columns=1)),
        ({"aggregation": "mean"}, "mean", vfg.Coupling()),
        ({"prior": "laplace"}, "mean", vfg.Coupling()),
        ({"likelihood": {"a": "bernoulli", "*": "gaussian"}}, "gaussian", vfg.Coupling()),
        ({"flow": vfg.Coupling(blocks=2)}, "gaussian", vfg.Coupling(blocks=2)),
    ],
)
def test_a_model_chooses_what_is_not_given(options, aggregation, flow):
    model = vfg.VFG(STAR, **options)
    assert model.aggregation == aggregation
    assert model.flow_specs["b->root"] == flow
    assert vfg.VFG.from_dict(model.to_dict()).to_dict() == model.to_dict()


def test_wide_nodes_carry_no_matrices_by_default():
    assert vfg.VFG(vfg.Graph.star({"a": 33, "b": 33})).aggregation == "mean"


def test_several_roots_have_no_linear_start():
    graph = vfg.Graph.from_edges([("a", "h"), ("b", "h"), ("b", "k")], widths=2)
    assert vfg.VFG(graph).flow_specs["a->h"] == vfg.Coupling()


def test_sampled_states_are_normal_given_their_parents_by_default():
    assert vfg.VFG(STAR).latent == "laplace"
    assert vfg.VFG(STAR, states="sampled").latent == "normal"
    assert vfg.VFG(STAR, states="sampled", latent="laplace").latent == "laplace"


def test_settings_follow_from_rows_and_states():
    small, large = chosen(100), chosen(80_000)
    assert (small.batch, small.steps, small.epochs) == (32, 25, 60)
    assert (large.batch, large.steps, large.epochs) == (256, 50, 60)
    assert (small.beta, small.masking, small.rate) == (1e-3, ALWAYS_HIDE, 5e-3)
    drawn = chosen(is_sampled=True)
    assert (drawn.beta, drawn.masking, drawn.rate) == (1.0, BOTH_ALGORITHMS, 2e-3)
    wide = chosen(is_wide=True)
    assert (wide.epochs, wide.steps, wide.patience, wide.batch) == (200, None, None, 256)


def test_settings_that_are_given_are_kept():
    given = {"masking": None, "beta": 0.0, "epochs": 7, "batch": 11, "rate": 0.5, "patience": 3}
    settings = chosen(**given)
    assert isinstance(settings, RunSettings)
    assert {name: getattr(settings, name) for name in given} == given
    assert settings.steps is None
    assert chosen(epochs=7).patience is None
    assert chosen(steps=3).steps == 3


def test_masking_by_another_word_is_refused():
    with pytest.raises(ValueError, match=r"masking is vfg\.Masking"):
        vfg.FitSettings(masking="all")


def test_the_papers_settings_are_those_of_its_text():
    paper = vfg.paper_settings()
    flow = paper.model["flow"]
    assert (flow.blocks, flow.layers, flow.hidden, flow.activation) == (4, 3, 64, "relu")
    assert flow.kind == "affine"
    assert paper.model["aggregation"] == "mean"
    assert paper.fit.beta == 0.1
    assert paper.fit.masking == BOTH_ALGORITHMS
    assert vfg.paper_settings(blocks=3).model["flow"].blocks == 3


def test_a_factor_analysis_finds_loadings_and_noise():
    generator = torch.Generator().manual_seed(0)
    loadings = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    noise = 0.2 + torch.rand(6, generator=generator, dtype=torch.float64)
    covariance = loadings @ loadings.mT + noise.diag()
    found, left = factor_analysis(covariance, width=2, least=1e-3)
    assert torch.allclose(found @ found.mT + left.diag(), covariance, atol=2e-3)


def test_factors_beyond_the_columns_load_on_none():
    loadings, noise = factor_analysis(torch.eye(2).double(), width=5, least=0.1)
    assert loadings.shape == (2, 5)
    assert torch.allclose(loadings @ loadings.mT + noise.diag(), torch.eye(2).double(), atol=0.1)


@pytest.mark.parametrize("graph", [STAR, TREE], ids=["star", "tree"])
def test_training_starts_at_the_conditional_means_of_a_gaussian(graph, monkeypatch):
    monkeypatch.setattr("vfg.training.data.SOFT", EXACT)
    rows = gaussian_rows(4000, seed=0)
    model = vfg.VFG(graph).double()
    vfg.fit(model, rows.double(), epochs=1, steps=1, rate=1e-9, device="cpu", progress=False)
    asked = gaussian_rows(50, seed=1).double()
    filled = model.reconstruct(torch.where(torch.tensor([False, False, True]), torch.nan, asked))
    covariance = torch.cov(rows.double().T)
    weights = torch.linalg.solve(covariance[:2, :2], covariance[:2, 2])
    assert torch.allclose(filled[:, 2], asked[:, :2] @ weights, atol=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_fall_while_others_rise_are_filled_with_the_right_sign(seed):
    cause = torch.randn(300, 1, generator=torch.Generator().manual_seed(seed))
    table = cause * torch.tensor([1.0, -1.0, 1.0, -1.0])
    model = vfg.VFG(vfg.Graph.star(dict.fromkeys("abcd", 1)), seed=seed)
    vfg.fit(model, table, epochs=2, seed=seed, device="cpu", progress=False)
    asked = torch.full((1, 4), torch.nan)
    asked[0, 0] = 1.5
    filled = model.reconstruct(asked)[0]
    assert (filled * torch.tensor([1.0, -1.0, 1.0, -1.0]) > 0.7).all()


def test_the_bound_of_sampled_states_is_near_the_likelihood_of_a_gaussian():
    model = vfg.VFG(STAR, states="sampled")
    vfg.fit(model, gaussian_rows(3000, seed=0), epochs=6, device="cpu", progress=False)
    rows = gaussian_rows(4000, seed=1)
    truth = torch.distributions.MultivariateNormal(torch.zeros(3), MIXING @ MIXING.T)
    with torch.no_grad():
        bound = model.bound(rows, samples=4).total.mean()
    gap = float(truth.log_prob(rows).mean() - bound)
    assert -0.02 < gap < 0.05


def test_a_linear_start_that_nothing_beats_is_kept():
    model = vfg.VFG(STAR, states="sampled")
    history = vfg.fit(
        model, gaussian_rows(400, seed=0), epochs=2, rate=0.5, device="cpu", progress=False
    )
    assert history.start is not None
    assert history.best is None or history[history.best].validation < history.start
    assert vfg.History.from_dict(history.to_dict()).start == history.start


def test_defaults_fill_the_papers_synthetic_columns():
    # With the former defaults the error is 7.9, and 16 with the columns' means.
    table = synthetic(800, seed=0)
    model = vfg.VFG(vfg.Graph.star({"z1": 2, "sine": 2, "z2": 2, "square": 2}))
    vfg.fit(model, table[:600], steps=20, epochs=15, device="cpu", progress=False)
    shown = table[600:].clone()
    shown[:, [2, 3, 6, 7]] = torch.nan
    error = (model.reconstruct(shown) - table[600:])[:, [2, 3, 6, 7]].square().mean()
    assert error < 1.0
