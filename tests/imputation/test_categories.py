"""Probabilities of categories: fills, draws and probabilities of one model agree."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import special
from scipy.optimize import check_grad

import vfg
from vfg.imputation.categories import (
    SET_LEVELS,
    CategoryColumn,
    HeldOutCategories,
    Section,
    category_columns,
    choose_sets,
    fit_pooling,
    fit_set_thresholds,
    without_own,
)
from vfg.imputation.missing_cells import MissingCells
from vfg.imputation.plan import RowMixtureKind
from vfg.imputation.row_mixture import Labels, RowMixture, fit_row_mixture
from vfg.tables.categorical import CategoricalEncoding, OrdinalEncoding
from vfg.tables.frames import open_table

QUICK = {"members": 1, "mixtures": 1, "neighbours": 1, "steps": 5, "effort": "fast"}
NOISE = 0.8


def centres(categories):
    return 2.0 * np.random.default_rng(0).normal(size=(categories, 2))


def clusters(categories, rows, seed):
    """A category and two numbers that depend on it."""
    generator = np.random.default_rng(seed)
    chosen = generator.integers(categories, size=rows)
    numbers = centres(categories)[chosen] + NOISE * generator.normal(size=(rows, 2))
    names = [f"k{k:03d}" for k in chosen]
    return pd.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1], "c": names})


def true_log_probs(table, categories):
    away = table[["a", "b"]].to_numpy()[:, None] - centres(categories)
    return special.log_softmax(-0.5 * (away**2).sum(2) / NOISE**2, axis=1)


def fitted(categories, **settings):
    model = vfg.TableModel(**settings)
    vfg.fit(model, clusters(categories, max(300, 8 * categories), seed=1))
    return model


@pytest.mark.parametrize("settings", [{"bend": False}, QUICK], ids=["linear", "ensemble"])
@pytest.mark.parametrize("categories", [2, 9, 10, 15, 40, 300])
def test_fills_and_draws_are_those_of_the_probabilities(categories, settings):
    model = fitted(categories, **settings)
    asked = clusters(categories, 12, seed=2)[["a", "b"]]
    answer = model.infer(asked, ["c"])
    names, chances = np.array(answer.categories["c"]), answer.probabilities["c"]
    np.testing.assert_allclose(chances.sum(1), 1.0)
    assert answer.mean["c"].tolist() == names[chances.argmax(1)].tolist()
    gaps = asked.assign(c=pd.Series([None] * len(asked), dtype=object))
    assert model.fill(gaps)["c"].tolist() == answer.mean["c"].tolist()
    cells = MissingCells(model, model.view(gaps))
    for ends in cells.quantiles([0.05, 0.95], seed=0):
        assert cells.fill(ends)["c"].tolist() == answer.mean["c"].tolist()
    draws = 400
    shares = (answer.samples(draws)["c"][..., None] == names).mean(0)
    # Five standard errors of a share, and 1 % for what is left of the first draws.
    error = 5.0 * np.sqrt(chances * (1.0 - chances) / draws) + 0.01
    assert (np.abs(shares - chances) <= error).all()


def test_probabilities_of_many_categories_are_nearly_those_of_bayes_rule():
    # The linear model alone had 1.37 here, and the truth .91.
    model = fitted(10, **(QUICK | {"neighbours": 2}))
    asked = clusters(10, 300, seed=3)
    truth, rows = asked["c"].str[1:].astype(int).to_numpy(), np.arange(len(asked))
    best = -true_log_probs(asked, 10)[rows, truth].mean()
    answer = model.infer(asked[["a", "b"]], ["c"])
    places = [answer.categories["c"].index(name) for name in asked["c"]]
    assert -np.log(answer.probabilities["c"][rows, places]).mean() < best + 0.12


@pytest.mark.parametrize("settings", [{"bend": False}, QUICK], ids=["linear", "ensemble"])
def test_ordered_levels_have_their_frequencies_without_evidence(settings):
    generator = np.random.default_rng(0)
    number = generator.normal(size=300)
    level = np.digitize(number + generator.normal(size=300), [-0.8, 0.9])
    kind = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    names = pd.Categorical.from_codes(level, dtype=kind)
    model = vfg.TableModel(**settings)
    vfg.fit(model, pd.DataFrame({"x": number, "level": names}))
    answer = model.infer({}, ["level"])
    frequencies = np.bincount(level) / len(level)
    np.testing.assert_allclose(answer.probabilities["level"][0], frequencies, atol=1e-6)
    drawn = answer.samples(2000)["level"][:, 0]
    shares = [(drawn == name).mean() for name in kind.categories]
    np.testing.assert_allclose(shares, frequencies, atol=0.05)
    given = model.infer({"x": 2.5}, ["level"])
    drawn = given.samples(1000)["level"][:, 0]
    shares = [(drawn == name).mean() for name in kind.categories]
    np.testing.assert_allclose(shares, given.probabilities["level"][0], atol=0.06)


def test_votes_are_shares_of_weights_among_the_other_rows():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    observed = torch.ones(30, 3, dtype=torch.bool)
    places = torch.randint(-1, 4, (30, 1), generator=generator)
    kind = RowMixtureKind(ranks=False, uses_all_columns=True)
    flat = torch.zeros(3, dtype=torch.bool)
    mixture = fit_row_mixture(
        values, observed, kind, unordered=flat, width=2, labels=Labels(places, [4]), seed=0
    )
    asked, shown, ids = values[:5], observed[:5].clone(), torch.arange(5)
    shown[:, 2] = False
    votes = mixture.means(asked, shown, ids, ids).votes
    away = (asked[:, None, :2] - mixture.centres[:, :2].double()) ** 2 / mixture.noise[:2].double()
    logs = -0.5 * away.sum(2)
    logs[ids, ids] = -torch.inf
    weights = logs.softmax(1)
    kinds = torch.nn.functional.one_hot(places[:, 0] + 1, 5)[:, 1:].double()
    lacks = places[:, 0] < 0

    def shares(weights, voting, own):
        """Votes, with one more row that has the shares of all rows for votes of own categories."""
        similar, share = 1.0 / weights.square().sum(1, keepdim=True), weights @ own
        overall = voting.sum(0) / voting.sum()
        counts = similar * (weights @ voting) + share[:, None] * overall
        return counts / counts.sum(1, keepdim=True)

    scaled = mixture.centres.double() / mixture.noise.double().sqrt()
    every = torch.cdist(scaled, scaled)
    others = (-0.5 * every.square()).fill_diagonal_(-torch.inf).softmax(1)
    passed = torch.where(lacks[:, None], shares(others, kinds, (~lacks).double()), kinds)
    expected = shares(weights, passed, (~lacks).double())
    torch.testing.assert_close(votes, expected, atol=1e-4, rtol=1e-3)
    again = RowMixture.from_dict(mixture.to_dict())
    again.load_state_dict(mixture.state_dict())
    assert torch.equal(again.means(asked, shown, ids, ids).votes, votes)


def held_out(rows, seed, weights):
    """Cells that follow pooled probabilities with given weights."""
    generator = np.random.default_rng(seed)
    base = np.log(np.array([0.5, 0.3, 0.2]))
    model, votes = generator.normal(size=(2, rows, 3))
    logs = special.log_softmax(base + weights[0] * model + weights[1] * votes, axis=1)
    truth = (np.exp(logs).cumsum(1) < generator.random((rows, 1))).sum(1)
    return HeldOutCategories(base, (model, votes), truth)


def test_weights_of_pooling_maximise_the_likelihood_of_held_out_cells():
    cells = held_out(50, 0, (0.5, 0.5))
    for point in ([0.3, 0.9], [1.0, 0.0]):
        gradient_error = check_grad(
            lambda w: cells.loss(w)[0], lambda w: cells.loss(w)[1], np.array(point)
        )
        assert gradient_error < 1e-3
    columns = [[held_out(8000, 1, (1.2, 0.2))], [held_out(8000, 2, (0.3, 0.9))], [], None]
    result = fit_pooling(columns)
    np.testing.assert_allclose(result[:2], [[1.2, 0.2], [0.3, 0.9]], atol=0.08)
    # A column without held-out cells has the weights of all columns together.
    np.testing.assert_allclose(result[2], result[:2].mean(0), atol=0.1)
    np.testing.assert_allclose(result[3], [1.0, 0.0])


def test_most_probable_categories_are_code_points():
    counts = np.array([5, 3, 2])
    part = CategoricalEncoding.fit(("a", "b", "c"), counts)
    column = CategoryColumn(part, [0, 1])
    section = Section(column, 0.9 * part.points, None)
    np.testing.assert_array_equal(section.most_probable, part.points)
    assert part.decode(section.most_probable).tolist() == ["a", "b", "c"]


def test_levels_without_cells_are_never_probable():
    part = OrdinalEncoding.fit(("low", "mid", "high"), np.array([4, 0, 6]))
    wide = np.ones((1, 1, 1))
    prior = Section(CategoryColumn(part, [0]), np.zeros((1, 1)), wide)
    section = Section(CategoryColumn(part, [0]), np.array([[0.2]]), 0.3 * wide, prior)
    assert section.probabilities[0, 1] < 1e-6
    np.testing.assert_allclose(prior.probabilities, [[0.4, 0.0, 0.6]], atol=1e-9)


def test_columns_of_categories_are_those_that_are_modelled():
    table = open_table(clusters(12, 200, seed=0).assign(same="x"))
    encoding = vfg.tables.encoding.Encoding.fit(vfg.tables.schema.Schema.infer(table), table)
    columns = [place for label in ("c", "a") for place in encoding.places(label)]
    chosen = category_columns(encoding, columns)
    assert list(chosen) == ["c"]
    assert chosen["c"].places == list(range(8))


def test_rare_levels_are_drawn_as_often_as_they_are_probable():
    generator = np.random.default_rng(0)
    numbers = generator.normal(size=(400, 5))
    level = np.repeat(["usual", "rare", "very rare"], [390, 7, 3])
    table = pd.DataFrame(numbers, columns=list("abcde")).assign(r=generator.permutation(level))
    model = vfg.TableModel(**QUICK)
    vfg.fit(model, table)
    answer = model.infer(table[list("abcde")].head(60), ["r"])
    drawn = answer.samples(100)["r"]
    for place, name in enumerate(answer.categories["r"]):
        expected = answer.probabilities["r"][:, place].mean()
        assert abs((drawn == name).mean() - expected) < 0.2 * expected + 0.002


def test_own_points_take_the_place_of_those_of_the_categories():
    generator = np.random.default_rng(0)
    part = OrdinalEncoding.fit(("low", "mid", "high"), np.array([4, 5, 6]))
    column, roots = CategoryColumn(part, [0]), 1.0 + generator.random((5, 1, 1))
    prior = Section(column, np.zeros((1, 1)), np.ones((1, 1, 1)))
    places, means = generator.integers(3, size=5), generator.normal(size=(5, 1))
    same = Section(column, means, roots, prior, own_points=(places, part.points[places]))
    plain = Section(column, means, roots, prior)
    np.testing.assert_allclose(same.model_probabilities, plain.model_probabilities)
    own = (places, part.points[places] + 0.5)
    moved = Section(column, means, roots, prior, own_points=own).model_probabilities
    logs = (
        np.log(part.counts)
        + 0.5 * (part.scores**2)
        - 0.5 * (part.scores - means) ** 2 / roots[:, 0]
    )
    points = own[1][:, 0]
    logs[range(5), places] = (
        np.log(part.counts[places])
        + 0.5 * points**2
        - 0.5 * (points - means[:, 0]) ** 2 / roots[:, 0, 0]
    )
    np.testing.assert_allclose(moved, special.softmax(logs, axis=1), rtol=1e-4)


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
@pytest.mark.parametrize("level", [0.75, 0.9])
def test_sets_hold_the_level_whether_probabilities_are_calibrated_or_too_sharp(sharpness, level):
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(40_000, 4))
    shares = special.softmax(logits, axis=1)
    truth = (generator.random((len(shares), 1)) > shares.cumsum(1)).sum(1).clip(max=3)
    said = special.softmax(sharpness * logits, axis=1)
    halves = [(said[rows], truth[rows]) for rows in (slice(10_000), slice(10_000, 20_000))]
    thresholds = fit_set_thresholds([halves])[0]
    assert (np.diff(thresholds) <= 0).all(), "higher levels have larger sets"
    rows, later = np.arange(20_000), slice(20_000, None)
    chosen = choose_sets(said[later], level, thresholds)
    assert chosen[rows, truth[later]].mean() == pytest.approx(level, abs=0.02)
    summed = choose_sets(said[later], level)
    held = summed[rows, truth[later]].mean()
    assert held > level + 0.01 if sharpness == 1.0 else held < level - 0.02
    if sharpness == 1.0:
        assert chosen.sum(1).mean() < summed.sum(1).mean()


def simulate_cells(generator, cells, categories, sharpness):
    """Probabilities that are too sharp, or not sharp enough, and the true categories."""
    logits = generator.normal(size=(cells, categories))
    shares = special.softmax(logits, axis=1).cumsum(1)
    truth = (generator.random((cells, 1)) > shares).sum(1).clip(max=categories - 1)
    return special.softmax(sharpness * logits, axis=1), truth


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("cells", [[14], [9, 10, 12, 15], [60, 8]])
def test_sets_of_few_held_out_cells_hold_the_level_on_average(sharpness, cells):
    """Columns of 3 to 12 categories, whose thresholds come from a few cells of every column."""
    generator, held = np.random.default_rng(2), []
    sizes = [3, 12, 2, 6][: len(cells)]
    for _ in range(400):
        columns = [
            simulate_cells(generator, n, size, sharpness)
            for n, size in zip(cells, sizes, strict=True)
        ]
        thresholds = fit_set_thresholds([[own] for own in columns])
        for size, own in zip(sizes, thresholds, strict=True):
            shares, truth = simulate_cells(generator, 50, size, sharpness)
            held.append(choose_sets(shares, 0.9, own)[np.arange(50), truth].mean())
    assert 0.885 < np.mean(held) < 0.945


def test_thresholds_are_those_of_split_conformal_prediction_where_a_column_is_alone():
    shares, truth = simulate_cells(np.random.default_rng(3), 57, 4, 1.0)
    true = np.sort(shares[np.arange(57), truth])
    thresholds = fit_set_thresholds([[(shares, truth)], []])
    for level, threshold in zip(SET_LEVELS, thresholds[0], strict=True):
        # Of 57 cells, ceil(58 L) must be in their sets, which are those from this place on.
        place = 57 - math.ceil(58 * level - 1e-9)
        assert threshold == (true[place] if place >= 0 else pytest.approx(0.0, abs=1e-9))
    assert np.isnan(thresholds[1]).all()


def test_few_cells_borrow_from_other_columns():
    """Thresholds of 15 cells vary less beside columns with many, and are the same on average."""
    generator, at = np.random.default_rng(1), SET_LEVELS.index(0.8)
    many = [simulate_cells(generator, 4000, size, 2.0) for size in (3, 5)]
    alone, pooled = [], []
    for _ in range(200):
        few = simulate_cells(generator, 15, 3, 2.0)
        alone.append(fit_set_thresholds([[few]])[0, at])
        pooled.append(fit_set_thresholds([[few], [many[0]], [many[1]]])[0, at])
    assert np.std(pooled) < 0.75 * np.std(alone)
    expected = fit_set_thresholds([[many[0]]])[0, at]
    assert np.mean(pooled) == pytest.approx(expected, abs=0.02)


def test_a_category_that_occurs_once_is_impossible_without_its_cell():
    part = OrdinalEncoding.fit(("a", "b", "c"), np.array([1.0, 4.0, 5.0]))
    shares = np.array([[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])
    less = without_own(CategoryColumn(part, [0]), shares, np.array([0, 1]))
    np.testing.assert_allclose(less, [[0.0, 0.375, 0.625], np.array([0.2, 0.225, 0.5]) / 0.925])
    simplex = CategoricalEncoding.fit(("a", "b", "c"), np.array([1.0, 4.0, 5.0]))
    np.testing.assert_array_equal(
        without_own(CategoryColumn(simplex, [0, 1]), shares, np.array([0, 1])), shares
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "levels"),
    [(60, 3), (120, 12)],
)
def test_sets_of_small_tables_hold_the_level(rows, levels):
    """A column that nothing predicts, with levels of different frequencies, and one that two do."""
    held, alike = [], []
    for seed in range(24):  # the mean over 8 has a standard error of 0.015
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(rows, 2))
        frequencies = generator.dirichlet(np.full(levels, 3.0))
        table = pd.DataFrame(
            {
                "x": x[:, 0],
                "y": x.sum(1) + generator.normal(size=rows),
                "noise": [f"n{k:02d}" for k in generator.choice(levels, rows, p=frequencies)],
                "kind": np.where(x[:, 1] + 0.7 * generator.normal(size=rows) > 0, "up", "down"),
            }
        )
        hidden = generator.random(table.shape) < 0.25
        shown = table.mask(hidden)
        imputer = vfg.sklearn.VFGImputer(effort="fast", random_state=seed).fit(shown)
        filled, chances = imputer.transform(shown), imputer.predict_proba(shown)
        for label, sets in imputer.predict_set(shown).items():
            gone = hidden[:, list(table).index(label)]
            places = sets.columns.get_indexer(table[label][gone])
            chosen = sets.to_numpy()[gone][np.arange(gone.sum()), places] & (places >= 0)
            held.append(chosen.mean())
            assert (sets[~gone].sum(axis=1) == 1).all()
            best = sets.columns.to_numpy()[chances[label].to_numpy().argmax(1)]
            alike.append((filled[label].to_numpy() == best)[gone].mean())
    assert np.mean(alike) == 1.0, "fills are the most probable categories"
    assert 0.87 < np.mean(held) < 0.97
