"""VFGImputer where users of scikit-learn put it: pipelines, searches, files, warm starts."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from imputation.mixed_tables import light, linear, mixed, numbers
from optional import polars as pl
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vfg
from vfg.modelfile import dumps
from vfg.sklearn import VFGImputer

# What users of scikit-learn do.


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize(
    "make",
    [np.asarray, lambda f: f, lambda f: pl.from_pandas(f)],
    ids=["array", "pandas", "polars"],
)
def test_set_output(kind, make):
    pytest.importorskip(kind)
    frame = pd.DataFrame(numbers()[1], columns=list("abcd"))
    imputer = linear(add_indicator=True).set_output(transform=kind)
    filled = imputer.fit_transform(make(frame))
    assert type(filled).__module__.startswith(kind)
    assert list(filled.columns) == imputer.get_feature_names_out().tolist()
    np.testing.assert_array_equal(
        np.asarray(filled, dtype=float)[:, :4], linear().fit_transform(frame).to_numpy()
    )
    with config_context(transform_output=kind):
        assert type(linear().fit_transform(make(frame))).__module__.startswith(kind)


def test_pipelines():
    whole, table = numbers(rows=120)
    target = whole @ np.array([1.0, 0.1, 0.01, 0.001])
    model = make_pipeline(StandardScaler(), linear(), LinearRegression()).fit(table, target)
    assert model.score(table, target) > 0.7


def test_column_transformers():
    frame = mixed()
    numeric = ["height", "age"]
    joined = ColumnTransformer(
        [("numbers", linear(add_indicator=True), numeric), ("rest", linear(), ["city", "grade"])]
    ).set_output(transform="pandas")
    filled = joined.fit_transform(frame)
    assert list(filled.columns)[:4] == [
        "numbers__height",
        "numbers__age",
        "numbers__missingindicator_height",
        "numbers__missingindicator_age",
    ]
    assert not filled.isna().any(axis=None)
    assert filled["rest__grade"].dtype == frame["grade"].dtype


def test_grid_searches():
    table = numbers(rows=120)[1]
    search = GridSearchCV(linear(), {"width": [1, 2, 6]}, cv=3, error_score="raise").fit(table)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_params_["width"] >= 2, "the table has two factors"
    assert not np.isnan(search.transform(table)).any()


def test_clones_are_equal_and_not_fitted(curved):
    copy = clone(curved)
    assert copy.get_params() == curved.get_params()
    assert not hasattr(copy, "model_")
    np.testing.assert_array_equal(copy.fit_transform(numbers()[1]), curved.transform(numbers()[1]))


def test_tags():
    tags = VFGImputer().__sklearn_tags__()
    assert tags.input_tags.allow_nan
    assert tags.input_tags.categorical
    assert tags.input_tags.string
    assert not tags.input_tags.sparse
    assert tags.transformer_tags.preserves_dtype == ["float64", "float32"]


def test_feature_names_are_checked(every_kind):
    frame = mixed()
    with pytest.raises(ValueError, match="feature names"):
        every_kind.transform(frame.rename(columns={"age": "years"}))
    with pytest.raises(ValueError, match="same order"):
        every_kind.transform(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match="now missing"):
        every_kind.transform(frame.iloc[:, :3])
    assert every_kind.n_features_in_ == 6
    assert every_kind.feature_names_in_.tolist() == list(frame.columns)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        every_kind.transform(frame.to_numpy(dtype=object))


@pytest.mark.parametrize("which", ["straight", "curved", "every_kind"])
def test_pickles_hold_the_bytes_of_a_model_file_and_nothing_of_torch(which, request):
    imputer = request.getfixturevalue(which)
    table = mixed() if which == "every_kind" else numbers()[1]
    data = pickle.dumps(imputer)
    assert dumps(imputer.model_) in data
    assert b"torch._" not in data
    assert b"torch.nn" not in data
    assert b"ctorch" not in data
    again = pickle.loads(data)
    same = again.transform(table) == imputer.transform(table)
    assert np.asarray(same).all()
    drawn, first = again.sample(table, 2), imputer.sample(table, 2)
    assert all(np.asarray(a == b).all() for a, b in zip(drawn, first, strict=True))
    assert dumps(again.model_) == dumps(imputer.model_)


def test_an_imputer_that_is_not_fitted_can_be_pickled():
    assert not hasattr(pickle.loads(pickle.dumps(VFGImputer(width=3))), "model_")


def test_files_of_the_model(curved, tmp_path):
    vfg.save(curved.model_, tmp_path / "table.vfg")
    other = VFGImputer()
    other.model_ = vfg.load(tmp_path / "table.vfg")
    values = other.model_.encode(numbers()[1])
    assert torch.equal(other.model_.means(*values), curved.model_.means(*values))


def test_random_states_decide_everything(untouched_generators):
    table = numbers(rows=40)[1]
    first, again = (light().fit(table) for _ in range(2))
    assert dumps(first.model_) == dumps(again.model_)
    other = light(random_state=np.random.RandomState(0)).fit(table)
    assert dumps(other.model_) != dumps(first.model_)


def test_warm_starts_go_on():
    table = numbers()[1]
    imputer = light(warm_start=True).fit(table)
    first = imputer.model_
    bits = dumps(first)
    imputer.fit(table)
    assert imputer.model_ is not first
    assert dumps(first) == bits
    assert dumps(imputer.model_) != bits
    with pytest.raises(ValueError, match="5 features, but VFGImputer is expecting 4"):
        imputer.fit(np.ones((30, 5)))
    assert imputer.n_features_in_ == 4
    imputer.transform(table)


def test_without_a_warm_start_every_fit_begins_anew():
    table = numbers()[1]
    imputer = linear().fit(numbers(seed=4)[1])
    imputer.fit(table)
    assert dumps(imputer.model_) == dumps(linear().fit(table).model_)
