"""Answers of table models: evidence in every form, units and categories, and closed forms."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy
import torch
from imputation.mixed_tables import light, linear, mixed, numbers
from optional import polars as pl

import vfg
from vfg.inference import Answer, Model
from vfg.modelfile import dumps, loads


@pytest.fixture(scope="module")
def straight():
    return linear().fit(mixed(rows=200)).model_


@pytest.fixture(scope="module")
def deep():
    return light(members=2, mixtures=2, neighbours=2).fit(mixed(rows=120)).model_


@pytest.fixture(scope="module", params=["straight", "deep"])
def model(request):
    return request.getfixturevalue(request.param)


def same(one, other, rtol=1e-9):
    assert list(one) == list(other)
    for name, cells in one.items():
        if cells.dtype.kind in "fiu":
            np.testing.assert_allclose(cells, other[name], rtol=rtol, err_msg=str(name))
        else:
            np.testing.assert_array_equal(cells, other[name], err_msg=str(name))


def test_every_kind_of_model_fulfils_the_protocol(straight):
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
    for kind in (straight, vfg.VFG(graph), vfg.GaussianVFG(graph)):
        assert isinstance(kind, Model)
        assert isinstance(kind.infer([{}]), Answer)


def test_evidence_is_the_same_in_every_form(model):
    frame = mixed(rows=5, seed=3)[["height", "city", "age"]]
    expected = model.infer(frame)
    records = [
        {name: cell for name, cell in row.items() if not pd.isna(cell)}
        for row in frame.to_dict("records")
    ]
    columns = {name: frame[name].tolist() for name in frame}
    whole = mixed(rows=5, seed=3)
    mask = np.tile([name in frame for name in whole], (5, 1)) & ~whole.isna().to_numpy()
    for given in (records, columns, frame[["age", "height", "city"]]):
        same(model.infer(given).mean, expected.mean)
    same(model.infer(whole, observed=mask).mean, expected.mean)
    by_name = {name: ~whole[name].isna().to_numpy() for name in frame}
    same(model.infer(whole, observed=by_name).mean, expected.mean)
    same(model.infer(pl.from_pandas(frame)).mean, expected.mean)


def test_one_row_with_a_few_known_cells_can_be_asked(model):
    answer = model.infer({"age": 31, "city": "Bern"}, targets=["height", "city"])
    assert answer.targets == ("height", "city")
    assert answer.mean["city"].tolist() == ["Bern"]
    assert answer.std["city"].tolist() == [0.0]
    low, high = answer.interval(0.9)
    assert low["height"] < answer.mean["height"] < high["height"]
    frame = answer.to_frame(std=True, quantiles=[0.5])
    assert list(frame.columns) == [
        "height", "city", "height std", "city std", "height q0.5", "city q0.5",
    ]  # fmt: skip


def test_values_have_the_units_and_categories_of_the_table(model):
    frame = mixed(rows=200)
    answer = model.infer([{}])
    drawn = answer.samples(50)
    for name, variable in model.variables.items():
        cells = drawn[name]
        assert cells.shape == (50, 1)
        if variable.kind == "choice":
            assert set(cells.ravel().tolist()) <= set(variable.categories)
            assert answer.mean[name][0] in variable.categories
            shares = answer.probabilities[name]
            np.testing.assert_allclose(shares.sum(1), 1.0)
            assert answer.categories[name] == variable.categories
        elif variable.kind == "date":
            assert cells.dtype.kind == answer.mean[name].dtype.kind == "M"
            assert answer.std[name].dtype.kind == "m"
        else:
            known = frame[name].dropna().astype(float)
            assert known.min() <= answer.mean[name][0] <= known.max()
            if variable.kind == "integer":
                assert cells.dtype.kind == "i"


def test_given_cells_come_back_as_they_were_given(model):
    frame = mixed(rows=6, seed=9)
    answer = model.infer(frame)
    for name in frame:
        known = ~frame[name].isna().to_numpy()
        result = answer.mean[name][known]
        wanted = frame[name][known].to_numpy()
        if result.dtype.kind == "M":
            wanted = wanted.astype(result.dtype)
        assert result.tolist() == wanted.tolist()
        spread = answer.std[name][known]
        assert not spread.astype(float).any()


def test_linear_answers_are_those_of_the_exact_model_in_data_units():
    table = numbers(rows=300)[1]
    model = linear().fit(table).model_
    rows = table[:20]
    answer = model.infer(rows)
    values, observed = model.encode(rows)
    exact = model.linear.infer(values, observed=observed)
    mean = torch.cat([exact.mean[leaf] for leaf in model.linear.graph.leaves], 1)
    std = torch.cat([exact.std[leaf] for leaf in model.linear.graph.leaves], 1)
    for place, column in enumerate(model.columns):
        part = model.encoding.parts[column]
        low, high = part.lowest, part.highest
        wanted = (mean[:, place].numpy() * part.deviation + part.centre).clip(low, high)
        missing = np.isnan(rows[:, column])
        np.testing.assert_allclose(answer.mean[column][missing], wanted[missing])
        # Draws keep to the limits of a column, so deviations are those of clipped Normal variables.
        low, high = part.least, part.greatest
        levels = scipy.stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)[:, None]
        centre = mean[:, place].numpy() * part.deviation + part.centre
        clipped = (centre + std[:, place].numpy() * part.deviation * levels).clip(
            -np.inf if low is None else low, np.inf if high is None else high
        )
        spread = answer.std[str(column)]
        np.testing.assert_allclose(spread[missing], clipped.std(0)[missing], rtol=1e-3)


def test_covariances_agree_with_deviations_and_draws(model):
    answer = model.infer({"city": "Bern"}, targets=["age", "height", "city"])
    result = answer.covariance(["height", "age", "city"])
    assert result.shape == (1, 3, 3)
    assert not result[0, 2].any(), "the city is given"
    np.testing.assert_allclose(np.sqrt(result[0, 0, 0]), answer.std["height"][0], rtol=1e-6)
    draws = answer.samples(4000)
    pair = np.cov(draws["height"][:, 0], draws["age"][:, 0].astype(float))
    np.testing.assert_allclose(result[0, :2, :2], pair, rtol=0.35, atol=0.15 * np.abs(pair).max())
    free = model.infer([{}], targets=["age", "city"]).covariance(["age", "city"])
    assert np.isnan(free[0, 1]).all()


@pytest.mark.filterwarnings("ignore:the evidence has")
def test_a_few_rows_are_answered_alike_without_padding(model):
    given = [{"age": 40}, {"city": "Bern", "height": 1.7}, {}]
    padded, quick = model.infer(given, seed=3), model.infer(given, seed=3, padded=False)
    same(quick.mean, padded.mean, rtol=1e-4)
    for row in range(3):
        one, other = (answer.select([row]) for answer in (quick, padded))
        # The quick path draws a row by its own id, as the padded one does.
        same(one.samples(20), other.samples(20), rtol=1e-3)
        marginals, others = one.marginals(draws=64), other.marginals(draws=64)
        for name, marginal in marginals.items():
            np.testing.assert_allclose(marginal.mean, others[name].mean, rtol=1e-4)
            np.testing.assert_allclose(
                marginal.probabilities, others[name].probabilities, atol=1e-4
            )


def test_marginals_agree_with_the_answer(model):
    answer = model.infer([{"age": 40}, {"city": "Bern"}])
    result = answer.marginals(row=1, level=0.8)
    assert result["city"].given
    assert result["city"].shares["Bern"] == 1.0
    assert not result["age"].given
    np.testing.assert_allclose(result["age"].mean, answer.mean["age"][1])
    assert result["age"].low < result["age"].mean < result["age"].high
    for name, marginal in result.items():
        if marginal.variable.kind == "choice" and not marginal.given:
            np.testing.assert_allclose(
                marginal.probabilities, answer.probabilities[name][1], atol=0.05
            )
    with pytest.raises(IndexError, match="2 rows, but row 2"):
        answer.marginals(row=2)


def test_latent_nodes_are_answered_by_the_exact_linear_model(model):
    answer = model.infer({"age": 40}, targets=["root", "age"])
    values, observed = model.encode(pd.DataFrame({"age": [40]}).reindex(columns=list(mixed())))
    exact = model.linear.infer(values, ["root"], observed=observed)
    np.testing.assert_allclose(answer.mean["root"], exact.mean["root"])
    np.testing.assert_allclose(answer.std["root"], exact.std["root"])
    assert f"root[{exact.mean['root'].shape[1] - 1}]" in answer.marginals()


def test_filling_is_the_same_by_model_and_imputer():
    frame = mixed(rows=60)
    imputer = linear().fit(frame)
    expected = imputer.transform(frame)
    turned = frame[list(frame)[::-1]].assign(note="kept")
    filled = imputer.model_.fill(turned)
    assert list(filled.columns) == [*list(frame)[::-1], "note"]
    pd.testing.assert_frame_equal(filled[list(frame)], expected)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    assert imputer.model_.fill(arrow).schema == arrow.schema


def test_samples_are_new_rows_of_the_table(model):
    rows = model.sample(500, seed=1)
    frame = mixed(rows=200)
    assert list(rows.columns) == list(frame.columns)
    assert not rows.isna().any().any()
    assert model.sample(3, seed=1).equals(rows.head(3))
    gap = abs(rows["height"].mean() - frame["height"].mean())
    assert gap < 0.3 * frame["height"].std()
    plain = linear().fit(numbers()[1]).model_.sample(4)
    assert isinstance(plain, np.ndarray)
    assert plain.shape == (4, 4)


def test_fitting_in_place_is_what_the_imputer_does():
    frame = mixed(rows=60)
    model = vfg.TableModel(bend=False, seed=0)
    assert not model.is_fitted
    assert vfg.fit(model, frame) is None
    assert dumps(model) == dumps(linear().fit(frame))
    vfg.fit(model, frame.head(30), seed=1)
    assert dumps(model) == dumps(linear().set_params(random_state=1).fit(frame.head(30)))
    assert model.settings.seed == 1


def test_masked_cells_are_not_learned_from():
    table = numbers(rows=80)[0]
    mask = np.random.default_rng(0).random(table.shape) < 0.8
    one, other = vfg.TableModel(bend=False), vfg.TableModel(bend=False)
    vfg.fit(one, table, observed=mask)
    vfg.fit(other, np.where(mask, table, np.nan))
    assert dumps(one) == dumps(other)


def test_a_table_without_informative_columns_has_variables_and_answers():
    model = linear().fit(pd.DataFrame({"a": [1.0, 1.0], "b": [None, None]})).model_
    assert model.variables["a"].idle
    assert model.infer([{}], targets=["a"]).mean["a"].tolist() == [1.0]
    assert model.graph.leaves == ("a", "b")


def test_what_is_not_fitted_refuses_to_answer():
    model = vfg.TableModel(bend=False)
    for ask in (
        lambda: model.infer({"a": 1.0}),
        lambda: model.sample(3),
        lambda: model.fill(np.ones((2, 2))),
        lambda: model.log_prob(np.ones((2, 2))),
        lambda: vfg.save(model, "nowhere.vfg"),
        lambda: model.variables,
    ):
        with pytest.raises(ValueError, match=r"not fitted; fit it with vfg.fit\(model, table\)"):
            ask()


def test_an_imputer_can_be_saved(tmp_path):
    imputer = linear().fit(mixed(rows=40))
    vfg.save(imputer, tmp_path / "m.vfg")
    again = vfg.load(tmp_path / "m.vfg")
    assert isinstance(again, vfg.TableModel)
    assert (
        again.infer({"age": 30}).mean["height"] == imputer.model_.infer({"age": 30}).mean["height"]
    )


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.infer({"agee": 1}), r"no column or node 'agee'; did you mean 'age'"),
        (lambda m: m.infer({"age": 1}, targets=["hight"]), r"did you mean 'height'"),
        (lambda m: m.infer({"age": "old"}), r"'age' must be a number, but is 'old'"),
        (lambda m: m.infer({"age": float("inf")}), r"'age' must be a number, but is inf"),
        (lambda m: m.infer({"city": "Berlin"}), r"'city' is one of .*but got 'Berlin'"),
        (lambda m: m.infer({"since": "soon"}), r"'since' takes a date such as"),
        (lambda m: m.infer({"root": [0.0]}), r"'root' is a latent node.*give values of columns"),
        (lambda m: m.infer(pd.DataFrame({"x": [1.0]})), r"column 'x', which the model does not"),
        (lambda m: m.infer(np.zeros((1, 2))), r"the model knows 6 columns.*but the table has 2"),
        (lambda m: m.infer({"age": [1, 2], "height": [1.0, 2.0, 3.0]}), r"same number of rows"),
        (lambda m: m.infer({"age": 1}, observed=[[True]]), r"masks a table"),
        (lambda m: m.infer({"age": 1}, targets=[]), r"targets is empty"),
        (lambda m: m.infer({"age": 1}).mean["nothing"], r"'nothing' is not among the targets"),
        (lambda m: m.infer({"age": 1}).quantile(0.0), r"strictly between 0 and 1"),
        (lambda m: m.infer({"age": 1}).interval(1.5), r"between 0 and 1, but is 1.5"),
        (lambda m: m.fill(mixed(rows=2).drop(columns=["age"])), r"lacks the column 'age'"),
        (lambda m: vfg.fit(vfg.TableModel(), mixed(), bent=False), r"did you mean 'bend'"),
        (lambda m: vfg.fit(vfg.TableModel(), mixed(), labels=[1]), r"labels= is for a vfg.VFG"),
    ],
)
def test_bad_questions_get_one_clear_sentence(straight, ask, message):
    with pytest.raises((ValueError, KeyError, TypeError), match=message):
        ask(straight)


@pytest.mark.filterwarnings("ignore:the evidence has")
def test_dates_and_durations_are_given_as_people_have_them(straight):
    when = datetime.datetime(2021, 5, 6)
    text, moment, numpy = (
        straight.infer({"since": given}).mean["height"]
        for given in ("2021-05-06", when, np.datetime64("2021-05-06"))
    )
    assert text == moment == numpy
    frame = pd.DataFrame(
        {"spent": pd.to_timedelta(np.arange(60), unit="D"), "x": np.arange(60.0) ** 0.5}
    )
    model = linear().fit(frame).model_
    days, delta = (
        model.infer({"spent": given}).mean["x"] for given in (7.0, datetime.timedelta(days=7))
    )
    assert days == delta
    assert model.infer({"x": 4.0}).std["spent"].dtype.kind == "m"


def test_files_answer_as_before(model):
    again = loads(dumps(model))
    given = {"age": 40, "city": "Bern"}
    same(again.infer(given).mean, model.infer(given).mean)
    same(again.infer(given).samples(4), model.infer(given).samples(4))
    assert again.graph == model.graph
    assert again.variables == model.variables


def test_series_and_missing_values_of_pandas_are_evidence(straight):
    frame = mixed(rows=8, seed=3)
    known = frame["height"].dropna()[::-1]
    by_series = straight.infer({"height": known}).mean["age"]
    by_list = straight.infer({"height": known.tolist()}).mean["age"]
    np.testing.assert_array_equal(by_series, by_list)
    nothing = straight.infer([{}]).mean["age"]
    for missing in (None, float("nan"), pd.NA, pd.NaT):
        assert straight.infer({"height": missing}).mean["age"] == nothing
    row = pd.Series({"height": 180.0, "city": "Oslo"}, dtype=object)
    assert straight.infer(row).mean["age"] == straight.infer(dict(row)).mean["age"]


def test_a_column_of_another_type_is_no_evidence_and_says_so():
    frame = pd.DataFrame({"zip": ["00701", "00702", "00703"] * 20, "y": np.arange(60.0) % 3})
    model = linear().fit(frame).model_
    with pytest.warns(UserWarning, match=r"column 'zip' holds 701, but none of its cells"):
        answer = model.infer(pd.DataFrame({"zip": [701, 703]}), targets=["y", "zip"])
    assert answer.mean["y"][0] == answer.mean["y"][1]
    np.testing.assert_allclose(answer.probabilities["zip"].sum(1), 1.0)
    constant = linear().fit(frame.assign(k="only")).model_
    with pytest.raises(ValueError, match=r"'k' is one of only, but got 'other'"):
        constant.infer({"k": "other"})


def test_tables_may_be_columns_or_rows_by_name():
    columns = {"a": [1.0, 2.0, 3.0, 4.5], "b": ["x", "x", "y", "y"]}
    one, other = vfg.TableModel(bend=False), vfg.TableModel(bend=False)
    vfg.fit(one, columns)
    vfg.fit(other, pd.DataFrame(columns).to_dict("records"))
    assert dumps(one) == dumps(other)
    with pytest.raises(ValueError, match="the evidence has no rows"):
        one.infer([])
    with pytest.raises(ValueError, match="n must be a whole number of at least 1"):
        one.sample(0)


def test_columns_without_names_are_called_by_position():
    model = linear().fit(numbers()[1]).model_
    answer = model.infer({0: 1.0})
    assert list(answer.mean) == [0, 1, 2, 3]
    assert answer.mean["1"] == answer.mean[1]
    assert answer.select(0).rows == 1


def test_an_empty_column_of_dates_has_no_deviation():
    frame = pd.DataFrame({"d": pd.to_datetime([None] * 30), "y": np.arange(30.0)})
    answer = linear(keep_empty_features=True).fit(frame).model_.infer([{"y": 3.0}])
    assert np.isnat(answer.std["d"]).all()


def categories_of_numbers(count, rows=1500, skewed=False):
    """Categories that three numbers depend on."""
    generator = np.random.default_rng(count)
    shares = 1.0 / np.arange(1, count + 1) if skewed else np.ones(count)
    chosen = generator.choice(count, rows, p=shares / shares.sum())
    numbers = generator.normal(size=(count, 3))[chosen] + 0.7 * generator.normal(size=(rows, 3))
    frame = pd.DataFrame(numbers, columns=list("xyz"))
    return frame.assign(kind=[f"k{place:03}" for place in chosen])


def total_variation(one, other):
    return 0.5 * float(np.abs(one - other).sum())


@pytest.mark.parametrize("count", [2, 9, 10, 15, 40, 300])
@pytest.mark.parametrize("skewed", [False, True])
def test_probabilities_agree_with_frequencies_and_draws(count, skewed):
    frame = categories_of_numbers(count, skewed=skewed)
    model = linear().fit(frame).model_
    nothing = model.infer({}, targets=["kind"])
    categories = list(nothing.categories["kind"])
    table = frame["kind"].value_counts(normalize=True).reindex(categories).to_numpy()
    np.testing.assert_allclose(nothing.probabilities["kind"][0], table, atol=1e-9)
    for evidence in ({}, {"x": 1.0, "y": -0.5, "z": 0.3}):
        answer = model.infer(evidence, targets=["kind"])
        expected = answer.probabilities["kind"][0]
        drawn = pd.Series(answer.samples(2000)["kind"][:, 0])
        shares = drawn.value_counts(normalize=True).reindex(categories).fillna(0.0).to_numpy()
        # The shares of so many draws vary by themselves.
        noise = 0.4 * float(np.sqrt(expected * (1.0 - expected) / 2000).sum())
        assert total_variation(expected, shares) < 0.1 + 1.5 * noise
        marginal = answer.marginals()["kind"]
        np.testing.assert_allclose(marginal.probabilities, expected)


@pytest.mark.filterwarnings("ignore:the evidence has")
def test_observed_categories_have_positive_probability():
    frame = categories_of_numbers(4, rows=300)
    model = linear().fit(frame).model_
    answer = model.infer({"x": 50.0, "y": -50.0, "z": 50.0}, targets=["kind"])
    assert (answer.probabilities["kind"] > 0.0).all()
    assert answer.probabilities["kind"].min() < 0.01


def test_draws_of_categories_go_with_the_other_columns():
    generator = np.random.default_rng(0)
    sign = generator.random(800) < 0.5
    x = np.where(sign, 2.0, -2.0) + 0.5 * generator.normal(size=800)
    model = linear().fit(pd.DataFrame({"x": x, "kind": np.where(sign, "plus", "minus")})).model_
    drawn = model.infer({}).samples(2000)
    plus = drawn["kind"][:, 0] == "plus"
    assert drawn["x"][plus, 0].mean() - drawn["x"][~plus, 0].mean() > 2.0
    assert 0.45 < plus.mean() < 0.55


@pytest.mark.filterwarnings("ignore:the evidence has")
def test_deviations_keep_to_the_limits_of_filled_cells(model):
    answer = model.infer([{"age": 90}, {}], targets=["height"])
    drawn = answer.samples(4000)["height"]
    np.testing.assert_allclose(answer.std["height"], drawn.std(0), rtol=0.15)
    for row in range(2):
        covariance = answer.covariance("height")[row, 0, 0]
        np.testing.assert_allclose(np.sqrt(covariance), answer.std["height"][row], rtol=1e-6)
        marginal = answer.marginals(row=row)["height"]
        np.testing.assert_allclose(marginal.std, answer.std["height"][row], rtol=1e-6)


def test_intervals_are_the_same_whatever_the_way_of_asking(model):
    answer = model.infer({"age": 40}, targets=["height"])
    low, high = (float(end["height"][0]) for end in answer.interval(0.8))
    for draws in (0, 50, 300):
        marginal = answer.marginals(level=0.8, draws=draws)["height"]
        np.testing.assert_allclose([marginal.low, marginal.high], [low, high], rtol=1e-6)
    row = pd.DataFrame({"age": [40]}).reindex(columns=list(mixed().columns))
    ends = model.quantiles(*model.encode(row), [0.1, 0.9], seed=0)
    section = model.encoding.sections["height"]
    part = model.encoding.parts["height"]
    np.testing.assert_allclose(part.decode(model.spread_out(ends)[:, 0, section]), [low, high])


def test_levels_beyond_the_draws_are_honoured(deep):
    answer = deep.infer({"age": 40}, targets=["height"])
    widths = []
    for level in (0.9, 0.98, 0.99, 0.999):
        values, observed = answer._given.values, answer._given.observed
        ends = deep.quantiles(values, observed, [(1 - level) / 2, (1 + level) / 2], seed=0)
        place = deep.columns.index(deep.encoding.sections["height"].start)
        widths.append(float(ends[1, 0, place] - ends[0, 0, place]))
    assert (np.diff(widths) > 0.0).all()


def test_columns_must_hold_what_they_held_in_fitting(straight):
    for ask in (straight.infer, straight.log_prob, straight.fill):
        frame = mixed(rows=3).assign(height=[True, False, True])
        with pytest.raises(ValueError, match="column 'height' was continuous in fitting, but now"):
            ask(frame)


def everything_else_missing(frame, dtype):
    lacking = pd.DataFrame(np.nan, index=[0], columns=frame.columns).astype(dtype)
    return lacking.assign(height=180.0)


def test_one_row_with_a_few_known_cells_is_filled_from_every_form():
    frame = mixed(rows=80)
    imputer = linear().fit(frame)
    expected = imputer.model_.infer({"height": 180.0})
    rows = [
        everything_else_missing(frame, float),
        everything_else_missing(frame, object),
        {"height": 180.0},
        {"height": [180.0]},
        [{"height": 180.0}],
    ]
    for row in rows:
        filled = imputer.transform(row)
        assert filled["city"][0] == expected.mean["city"][0]
        assert filled["grade"][0] == expected.mean["grade"][0]
        assert bool(filled["member"][0]) == bool(expected.mean["member"][0])
        assert pd.Timestamp(filled["since"][0]) == pd.Timestamp(expected.mean["since"][0])
        low, high = imputer.predict_interval(row)
        assert low["age"][0] < high["age"][0]
        assert len(imputer.sample(row, 2)) == 2
        pd.testing.assert_frame_equal(imputer.model_.fill(row), filled)


@pytest.mark.parametrize("name", ["Float64", "Null"])
def test_one_row_of_polars_is_filled(name):
    dtype = getattr(pl, name)
    frame = pl.from_pandas(mixed(rows=80).reset_index(drop=True))
    imputer = linear().fit(frame)
    kinds = {label: pl.Float64 if label == "height" else dtype for label in frame.columns}
    row = pl.DataFrame({label: [None] for label in frame.columns}, schema=kinds)
    filled = imputer.transform(row.with_columns(height=pl.lit(180.0)))
    expected = imputer.model_.infer({"height": 180.0})
    assert filled["city"][0] == expected.mean["city"][0]
    assert np.datetime64(filled["since"][0]) == expected.mean["since"][0]


def test_an_array_of_numbers_is_filled_with_texts_where_a_column_had_them():
    whole = mixed(rows=80).to_numpy(dtype=object)
    row = np.full((1, whole.shape[1]), np.nan)
    row[0, 0] = 180.0
    filled = linear().fit(whole).transform(row)
    assert filled.dtype == object
    assert filled[0, 3] in ("Bern", "Oslo", "Rome")
    assert isinstance(filled[0, 5], datetime.datetime)


def test_new_rows_have_the_dtypes_of_the_fitted_frame():
    frame = mixed(rows=80).assign(zoned=lambda x: x["since"].dt.tz_localize("Europe/Berlin"))
    frame["city"] = frame["city"].astype("category")
    frame["height"] = frame["height"].astype("float32")
    model = linear().fit(frame).model_
    assert model.sample(3).dtypes.to_dict() == frame.dtypes.to_dict()
    assert loads(dumps(model)).sample(3).equals(model.sample(3))
    other = pl.from_pandas(frame.drop(columns="zoned").reset_index(drop=True))
    other = other.with_columns(pl.col("age").cast(pl.Int16))
    rows = linear().fit(other).model_.sample(3)
    assert rows.schema == other.schema


@pytest.mark.filterwarnings("ignore:the evidence has")
def test_booleans_have_quantiles_with_false_below_true():
    generator = np.random.default_rng(0)
    x = generator.normal(size=150)
    table = pd.DataFrame({"x": x, "b": x + 0.5 * generator.normal(size=150) > 0.0})
    model = vfg.TableModel(bend=False)
    vfg.fit(model, table)
    answer = model.infer([{"x": -3.0}, {"x": 0.0}, {"x": 3.0}], targets=["b"])
    low, high = (ends["b"].tolist() for ends in answer.interval(0.9))
    assert (low, high) == ([False, False, True], [False, True, True])
    given = model.infer({"b": True}, targets=["b"]).quantile([0.1, 0.9])["b"]
    assert given.ravel().tolist() == [True, True]
