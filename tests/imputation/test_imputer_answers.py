"""VFGImputer: draws, intervals, scores, settings and known graphs."""

import numpy as np
import pandas as pd
import pytest
from imputation.mixed_tables import light, linear, mixed, numbers
from sklearn.exceptions import NotFittedError

import vfg
from vfg.imputation.evaluation import hold_out
from vfg.sklearn import VFGImputer
from vfg.tables.frames import open_table

# Draws, intervals, scores, embeddings.


def test_the_first_draws_are_the_same_however_many_there_are(fitted):
    table = numbers()[1]
    many = fitted.sample(table, 6)
    for number in (1, 3):
        np.testing.assert_array_equal(fitted.sample(table, number), many[:number])
    assert not np.array_equal(fitted.sample(table, 6, random_state=1), many)
    seen = ~np.isnan(table)
    np.testing.assert_array_equal(many[:, seen], np.tile(table[seen], (6, 1)))


def test_draws_are_joint():
    generator = np.random.default_rng(0)
    common = generator.normal(size=(400, 1))
    table = np.hstack([common, common]) + 0.1 * generator.normal(size=(400, 2))
    drawn = linear(bounds={0: (-99, 99), 1: (-99, 99)}).fit(table).sample([[np.nan] * 2], 400)
    assert np.corrcoef(drawn[:, 0].T)[0, 1] > 0.9


def test_draws_of_frames_are_frames_in_kind(every_kind):
    frame = mixed()
    drawn = every_kind.sample(frame, 3)
    assert len(drawn) == 3
    assert all(list(one.dtypes) == list(frame.dtypes) for one in drawn)
    assert not any(one.isna().any(axis=None) for one in drawn)
    assert any(not drawn[0][name].equals(drawn[1][name]) for name in frame.columns)
    assert drawn[0].equals(every_kind.sample(frame, 1)[0])


def test_draws_of_a_complete_table_are_the_table(fitted):
    whole = numbers()[0]
    np.testing.assert_array_equal(fitted.sample(whole, 2), np.stack([whole, whole]))


def test_intervals_hold_what_they_should(fitted):
    table = numbers()[1]
    low, high = fitted.predict_interval(table, 0.9)
    narrow_low, narrow_high = fitted.predict_interval(table, 0.5)
    gaps = np.isnan(table)
    np.testing.assert_array_equal(low[~gaps], table[~gaps])
    np.testing.assert_array_equal(high[~gaps], table[~gaps])
    assert (low[gaps] <= narrow_low[gaps]).all()
    assert (narrow_high[gaps] <= high[gaps]).all()
    assert ((high - low)[gaps] > 0.0).mean() > 0.95


def test_intervals_cover_hidden_cells():
    whole, table = numbers(rows=1500)
    low, high = linear().fit(table).predict_interval(table, 0.8)
    gaps = np.isnan(table)
    assert 0.75 < ((low <= whole) & (whole <= high))[gaps].mean() < 0.85


def test_intervals_of_categories_are_what_is_filled(every_kind):
    frame = mixed()
    low, high = every_kind.predict_interval(frame)
    filled = every_kind.transform(frame)
    for name in ("city", "member"):
        assert low[name].equals(filled[name])
        assert high[name].equals(filled[name])
    assert (low["grade"].cat.codes <= high["grade"].cat.codes).all()
    assert list(low.dtypes) == list(frame.dtypes)


def test_scores_are_in_the_units_of_the_table(straight):
    table = numbers()[1]
    scores = straight.score_samples(table)
    scaled = linear().fit(10.0 * table + 3.0).score_samples(10.0 * table + 3.0)
    np.testing.assert_allclose(scaled, scores - np.log(10.0) * (~np.isnan(table)).sum(1), atol=1e-3)
    assert straight.score_samples(np.full((1, 4), np.nan)).tolist() == [0.0]


def test_the_score_is_minus_the_mean_squared_error_of_hidden_cells(straight):
    complete, fitted = numbers(seed=1)[0], numbers()[1]
    hidden = hold_out(open_table(complete), 0.1, 0)
    filled = straight.transform(np.where(hidden, np.nan, complete))
    errors = ((filled - complete) / np.nanstd(fitted, axis=0))[hidden]
    assert straight.score(complete) == pytest.approx(-np.square(errors).mean(), rel=1e-6)


def test_rows_of_another_distribution_score_low(straight):
    table = numbers()[0]
    strange = table * np.array([1.0, -1.0, 1.0, -1.0])
    assert straight.score(strange) < straight.score(table) - 1.0


def test_embeddings_are_as_wide_as_the_root(curved, straight):
    table = numbers()[1]
    assert curved.embed(table).shape == (80, 4)
    assert straight.embed(table).shape == (80, straight.model_.linear.graph.node("root").width)
    assert np.isfinite(curved.embed(np.full((1, 4), np.nan))).all()


def test_an_evaluation_beats_the_mean(every_kind):
    result = linear().fit(mixed(rows=200)).evaluate(mixed(rows=200, seed=1), share=0.2)
    assert [score.column for score in result.columns] == list(mixed().columns)
    assert result.rmse < result.baseline
    assert len(every_kind.evaluate(mixed()).columns) == 6


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("sample", {"n": 0}, "n must be a whole number of at least 1"),
        ("sample", {"n": 2.0}, "n must be a whole number"),
        ("predict_interval", {"level": 90}, "level must be a number between 0 and 1"),
        ("evaluate", {"share": 0.0}, "share must be a number between 0 and 1"),
    ],
)
def test_impossible_requests_are_refused(straight, method, settings, message):
    with pytest.raises(ValueError, match=message):
        getattr(straight, method)(numbers()[1], **settings)


@pytest.mark.parametrize(
    "method", ["transform", "sample", "predict_interval", "score_samples", "embed", "evaluate"]
)
def test_nothing_works_before_fitting(method):
    with pytest.raises(NotFittedError):
        getattr(VFGImputer(), method)(numbers()[1])


@pytest.mark.parametrize(
    "settings", [{"members": 0}, {"steps": -1}, {"budget": 0}, {"graph": "star"}, {"bounds": 3}]
)
def test_impossible_settings_are_refused_when_fitting(settings):
    (name,) = settings
    with pytest.raises((ValueError, TypeError), match=f"{name} must be"):
        VFGImputer(**settings).fit(numbers()[1])


# Settings.


def test_without_nonlinear_members_there_is_the_linear_model_alone(straight, curved):
    assert len(straight.model_.member_models) == 0
    assert len(curved.model_.member_models) == 2
    table = numbers()[1]
    np.testing.assert_allclose(
        straight.score_samples(table),
        linear(width=straight.model_.linear.graph.node("root").width)
        .fit(table)
        .score_samples(table),
    )


def test_progress_is_shown_if_asked_for(capsys):
    light(verbose=True).fit(numbers(rows=30)[1])
    shown = "".join(capsys.readouterr())
    light().fit(numbers(rows=30)[1])
    assert shown
    assert not "".join(capsys.readouterr())


# Known graphs.


def test_known_sections():
    frame = mixed()
    graph = vfg.Graph.star(
        [
            vfg.Node("person", 3, ("age", "height", "member")),
            vfg.Node("place", 2, ("since", "city")),
            vfg.Node("grade", 1, ("grade",)),
        ],
        width=6,
    )
    for imputer in (linear(graph=graph), light(graph=graph, width=None)):
        filled = imputer.fit(frame).transform(frame)
        assert not filled.isna().any(axis=None)
        assert filled.where(frame.notna()).equals(frame.where(frame.notna()))
        assert imputer.model_.linear.graph.sections == {"person": 3, "place": 3, "grade": 1}


def test_sections_and_order_of_leaves_do_not_matter_to_the_linear_model():
    frame = pd.DataFrame(numbers()[1], columns=list("abcd"))
    one = vfg.Graph.star(dict.fromkeys("abcd", 1), width=3)
    two = vfg.Graph.star([vfg.Node("s", 2, ("d", "b")), vfg.Node("t", 2, ("a", "c"))], width=3)
    first, second = (linear(graph=graph).fit_transform(frame) / frame.std() for graph in (one, two))
    np.testing.assert_allclose(first, second, atol=1e-3)


def network_data(rows=400):
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, rows))
    c = a + b + 0.3 * generator.normal(size=rows)
    frame = pd.DataFrame({"a": a, "b": b, "c": c, "d": 2.0 * c + 0.3 * generator.normal(size=rows)})
    return frame, frame.mask(generator.random(frame.shape) < 0.2)


def test_a_known_bayesian_network_is_answered_by_the_exact_model_alone():
    whole, frame = network_data()
    graph = vfg.Graph.from_bayesian_network([("a", "c"), ("b", "c"), ("c", "d")])
    imputer = VFGImputer(graph, random_state=0).fit(frame)
    assert len(imputer.model_.member_models) == 0
    errors = ((imputer.transform(frame) - whole) / whole.std())[frame.isna()].to_numpy()
    assert np.sqrt(np.nanmean(errors**2)) < 0.6
    asked = pd.DataFrame({"a": [1.0], "b": [-0.5], "c": [np.nan], "d": [np.nan]})
    filled = imputer.transform(asked).iloc[0]
    assert filled["c"] == pytest.approx(0.5, abs=0.25)
    assert filled["d"] == pytest.approx(1.0, abs=0.5)
    nothing = asked.assign(a=np.nan, b=np.nan)
    assert imputer.transform(nothing).notna().all(axis=None)
    assert imputer.score_samples(nothing).tolist() == [0.0]


def test_a_known_graph_may_have_uninformative_columns():
    _, frame = network_data()
    frame = frame.assign(a=np.nan, b=1.0)
    graph = vfg.Graph.from_bayesian_network([("a", "c"), ("b", "c"), ("c", "d")])
    filled = VFGImputer(graph, keep_empty_features=True, random_state=0).fit_transform(frame)
    assert filled.notna().all(axis=None)
    assert (filled["a"] == 0.0).all()


def test_lookup_tables_are_filled_from_similar_rows():
    generator = np.random.default_rng(0)
    looked_up = generator.normal(size=(8, 8))
    keys = generator.integers(0, 8, size=(800, 2))
    whole = np.column_stack([keys, looked_up[tuple(keys.T)]]).astype(float)
    gappy = whole.copy()
    gappy[:200, 2] = np.nan
    errors = []
    for neighbours in (2, 0):
        filled = light(neighbours=neighbours).fit_transform(gappy)
        errors.append(np.sqrt(np.mean((filled - whole)[:200, 2] ** 2)) / whole[:, 2].std())
    assert errors[0] < 0.4
    assert errors[0] < 0.5 * errors[1]


def test_intervals_have_their_nominal_coverage():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 2))
    bowl = x[:, 0] + 0.5 * x[:, 0] ** 2
    whole = np.column_stack([x, x.sum(1), bowl, x[:, 0] - x[:, 1]])
    whole = whole + 0.5 * generator.normal(size=(500, 5))
    gap = generator.random(whole.shape) < 0.2
    gappy = np.where(gap, np.nan, whole)
    imputer = light(members=6, mixtures=6).fit(gappy)
    spread, widths = imputer.model_.spread.clone(), imputer.model_.widths[0].clone()
    covered = []
    for factor in (0.5, 1.0, 2.0):
        imputer.model_.spread.copy_(factor * spread)
        imputer.model_.widths[0].copy_(factor * widths)
        low, high = imputer.predict_interval(gappy, 0.9)
        covered.append(((low <= whole) & (whole <= high))[gap].mean())
    assert covered[0] < 0.75
    assert 0.86 < covered[1] < 0.94
    assert covered[2] > 0.96


def test_evaluating_fitted_rows_refits_the_model():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(60, 3))
    imputer = light(neighbours=2, mixtures=0, members=1).fit(table)
    result = imputer.evaluate(table, share=0.3)
    assert result.rmse > 0.9 * result.baseline, "there is nothing to learn"
    with pytest.raises(ValueError, match="60 of the 60 rows were fitted, so their errors"):
        imputer.evaluate(table, refit=False)
    fresh = generator.normal(size=(200, 3))
    kept = imputer.evaluate(fresh, refit=False)
    assert str(imputer.evaluate(fresh)) == str(kept)
    assert str(imputer.evaluate(fresh, refit=True)) != str(kept)


def test_evaluations_score_what_is_returned():
    generator = np.random.default_rng(1)
    x = generator.normal(size=300)
    frame = pd.DataFrame(
        {"x": x, "count": np.round(2.0 * x + generator.normal(size=300)).astype(int)}
    )
    imputer = linear().fit(frame[:200])
    rows = frame[200:].reset_index(drop=True)
    hidden = hold_out(open_table(rows), 0.3, 5)
    result = imputer.evaluate(rows, share=0.3, random_state=5)
    filled = imputer.transform(rows.mask(hidden))
    errors = (filled["count"] - rows["count"])[hidden[:, 1]] / frame["count"][:200].std(ddof=0)
    score = next(score for score in result.columns if score.column == "count")
    assert score.rmse == pytest.approx(float(np.sqrt((errors**2).mean())))
    assert score.hidden == hidden[:, 1].sum()


def test_scores_prefer_the_model_that_fills_better():
    generator = np.random.default_rng(2)
    u = generator.normal(size=(400, 1))
    table = np.hstack([u, u, u]) + 0.3 * generator.normal(size=(400, 3))
    frame = pd.DataFrame(table, columns=list("abc")).assign(
        kind=np.where(u[:, 0] + 0.3 * generator.normal(size=400) > 0.0, "up", "down")
    )
    shuffled = frame.apply(lambda x: x.sample(frac=1.0, random_state=ord(x.name[0])).to_numpy())
    good, bad = linear().fit(frame[:300]), linear().fit(shuffled[:300])
    assert good.score(frame[300:]) == good.score(frame[300:])
    assert -0.5 < good.score(frame[300:]) < 0.0
    assert -1.5 < bad.score(frame[300:]) < -0.7


def test_probabilities_of_every_cell():
    frame = mixed(rows=100)
    imputer = linear().fit(frame)
    result = imputer.predict_proba(frame[:10])
    assert list(result) == ["member", "city", "grade"]
    assert result["city"].columns.tolist() == ["Bern", "Oslo", "Rome"]
    assert result["city"].index.equals(frame.index[:10])
    np.testing.assert_allclose(result["city"].sum(axis=1), 1.0)
    known = frame["city"][:10].notna()
    assert (result["city"].idxmax(axis=1)[known] == frame["city"][:10][known]).all()
    assert (result["city"].max(axis=1)[known] == 1.0).all()
    assert (result["city"].max(axis=1)[~known] < 1.0).all()
    assert not hasattr(linear().fit(numbers()[1]), "predict_proba")
    assert not hasattr(linear(), "predict_proba")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bend": False, "members": 3, "neighbours": 0}, "members, neighbours have no effect"),
        ({"bend": False, "mixtures": 2}, "mixtures has no effect with bend=False"),
        ({"graph": vfg.Graph.star({"0": 1, "1": 1}), "width": 3, "bend": False}, "width has no"),
    ],
)
def test_settings_without_effect_are_warned_about(settings, message):
    table = numbers(rows=30, columns=2)[1]
    with pytest.warns(UserWarning, match=message):
        VFGImputer(random_state=0, **settings).fit(pd.DataFrame(table, columns=["0", "1"]))


def test_noise_with_rare_categories_is_covered_as_often_as_it_should():
    """A category of two rows must not tell what is in them."""
    generator = np.random.default_rng(0)
    rows = 400
    kinds = generator.permutation(np.repeat(np.arange(rows // 2), 2))
    whole = pd.DataFrame(generator.normal(size=(rows, 4)), columns=list("abcd"))
    frame = whole.assign(kind=[f"k{kind}" for kind in kinds])
    gaps = generator.random(frame.shape) < 0.2
    imputer = linear().fit(frame.mask(gaps))
    low, high = imputer.predict_interval(frame.mask(gaps))
    inside = (low[list("abcd")] <= whole) & (whole <= high[list("abcd")])
    assert 0.86 < inside.to_numpy()[gaps[:, :4]].mean() < 0.94
    assert 0.95 < imputer.evaluate(frame.mask(gaps)).rmse < 1.15
