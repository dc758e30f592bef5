"""A table's model answers on a GPU what it answers on a CPU."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch

import vfg
from vfg.imputation.table_model import answering_device
from vfg.sklearn import VFGImputer

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def table(rows=150):
    """Four columns that hang together, one of them skewed, and gaps."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(rows, 1)) + 0.5 * generator.normal(size=(rows, 4))
    values[:, 0] = np.exp(values[:, 0])
    return np.where(generator.random(values.shape) < 0.3, np.nan, values)


@pytest.fixture(scope="module")
def imputer():
    settings = {"members": 2, "mixtures": 2, "steps": 30, "device": "cpu", "random_state": 0}
    fitted = VFGImputer(**settings).fit(table())
    # All have a say.
    fitted.model_.weights.copy_(torch.full((5,), 0.2))
    return fitted


@pytest.fixture
def moved(imputer):
    return pickle.loads(pickle.dumps(imputer)).model_.to("cuda")


def test_row_mixtures_keep_their_dtype_and_drop_cached_values(imputer):
    near = pickle.loads(pickle.dumps(imputer)).model_.row_mixture_models[0]
    values, observed = imputer.model_.encode(table())
    before = near.means(values, observed, torch.arange(len(values)))
    assert "_log_weights" in near.__dict__
    near.double()
    assert near.centres.dtype == torch.float32
    assert "_log_weights" not in near.__dict__
    after = near.means(values, observed, torch.arange(len(values)))
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_a_moved_model_drops_values_cached_from_its_tensors(imputer):
    model = pickle.loads(pickle.dumps(imputer)).model_
    model.means(*model.encode(table()))
    mixture = model.mixture_models[0]
    assert {"stack", "linear_means"} <= set(model.__dict__)
    assert "_mean_function" in mixture.__dict__
    model.to("cpu")
    assert not {"stack", "linear_means"} & set(model.__dict__)
    assert "_mean_function" not in mixture.__dict__


def test_a_loaded_state_is_answered_from(imputer):
    model, other = (pickle.loads(pickle.dumps(imputer)).model_ for _ in range(2))
    values, observed = model.encode(table())
    before = model.means(values, observed)
    for near in other.row_mixture_models:
        near.centres.add_(0.5)
    for mixture in other.mixture_models:
        mixture.ranks.knots.add_(0.5)
    expected = other.means(values, observed)
    assert not torch.equal(before, expected)
    model.load_state_dict(other.state_dict())
    assert torch.equal(model.means(values, observed), expected)


@on_gpu
def test_answers_are_those_of_a_cpu(imputer, moved):
    model, (values, observed) = imputer.model_, imputer.model_.encode(table())
    assert {tensor.device.type for tensor in moved.row_mixture_models[0].buffers()} == {"cuda"}
    for ask in (
        lambda one: one.means(values, observed),
        lambda one: one.draws(values, observed, 12, 0),
        lambda one: one.quantiles(values, observed, [0.1, 0.9], seed=0),
        lambda one: torch.from_numpy(one.log_prob(table())),
        lambda one: torch.from_numpy(one.embed(table())),
    ):
        result = ask(moved)
        assert result.device.type == "cpu"
        assert torch.allclose(result, ask(model).to(result), atol=2e-4)


@on_gpu
def test_rows_of_a_gpu_do_not_influence_each_other(moved):
    values, observed = moved.encode(table())
    whole = moved.means(values, observed)
    rows = torch.tensor([3, 70, 149])
    assert torch.equal(moved.means(values[rows], observed[rows], rows), whole[rows])
    drawn = moved.draws(values, observed, 5, 0)
    assert torch.equal(moved.draws(values[rows], observed[rows], 5, 0, rows), drawn[:, rows])


@on_gpu
def test_files_are_loaded_to_a_gpu(imputer, tmp_path):
    vfg.save(imputer.model_, tmp_path / "model.vfg")
    model = vfg.load(tmp_path / "model.vfg", device="cuda")
    values, observed = model.encode(table())
    expected = imputer.model_.means(values, observed)
    assert torch.allclose(model.means(values, observed), expected, atol=2e-4)


@on_gpu
@pytest.mark.parametrize("bend", [True, False])
def test_an_imputer_learns_and_answers_on_a_gpu(bend):
    sizes = {"members": 2, "mixtures": 2, "steps": 20} if bend else {}
    settings = {**sizes, "random_state": 0, "bend": bend}
    imputer = VFGImputer(device="cuda", warm_start=True, **settings).fit(table())
    assert imputer.model_.weights.device.type == "cuda"
    filled = imputer.transform(table())
    again = pickle.loads(pickle.dumps(imputer))
    assert again.model_.weights.device.type == "cuda"
    assert np.array_equal(again.transform(table()), filled)
    low, high = imputer.predict_interval(table())
    assert (low <= high).all()
    assert np.isfinite(imputer.score_samples(table())).all()
    assert np.isfinite(imputer.fit(table()).transform(table())).all()


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        (None, True, "cuda:0"),
        (None, False, "cpu"),
        ("cuda:1", True, "cuda:1"),
        ("cuda", False, "cpu"),
        ("mps", True, "cpu"),
        ("cpu", True, "cpu"),
    ],
)
def test_answers_come_from_a_gpu_that_is_there_or_from_the_cpu(device, gpus, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    assert str(answering_device(device)) == expected


@on_gpu
@pytest.mark.parametrize("padded", [True, False])
def test_answers_are_on_the_cpu_wherever_the_model_is(imputer, moved, padded):
    given = [{0: 1.0, 2: 0.5}, {1: -0.3}]
    names = ["0", "3", "root"]
    here, there = (model.infer(given, names, padded=padded) for model in (imputer.model_, moved))
    for name in names:
        np.testing.assert_allclose(there.mean[name], here.mean[name], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(there.std[name], here.std[name], rtol=1e-3, atol=1e-3)
    assert there.samples(3)["3"].shape == (3, 2)
    assert there.marginals(row=1)["3"].low < there.marginals(row=1)["3"].high
    alone = VFGImputer(bend=False, device="cuda", random_state=0).fit(table()).model_
    answer = alone.infer(given, names)
    assert answer.covariance(["0", "3"]).shape == (2, 2, 2)
    assert np.isfinite(alone.log_prob(table())).all()
    assert alone.embed(table()).shape[0] == 150
    assert not np.isnan(alone.fill(table())).any()


@on_gpu
@pytest.mark.parametrize("repeats", [1, 2])
def test_many_categories_with_gaps_are_filled_on_a_gpu(repeats):
    """Similar rows vote for categories; rows without one pass on the votes of others."""
    generator = np.random.default_rng(1)
    kinds = generator.integers(12, size=120)
    frame = pd.DataFrame({"x": kinds + generator.normal(size=120), "y": generator.normal(size=120)})
    frame["kind"] = [f"k{kind:02d}" for kind in kinds]
    frame = frame.mask(generator.random(frame.shape) < 0.25)
    frame = pd.concat([frame] * repeats, ignore_index=True)
    settings = {"members": 1, "mixtures": 1, "steps": 20, "random_state": 0}
    shares = [
        VFGImputer(**settings, device=device).fit(frame).predict_proba(frame)["kind"].to_numpy()
        for device in ("cuda", "cpu")
    ]
    assert np.isfinite(shares[0]).all()
    assert np.abs(shares[0] - shares[1]).mean() < 0.05
