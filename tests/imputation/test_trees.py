"""Forests as the second stage of a table's model."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import vfg
from vfg.gaussian.conditional_means import mean_function
from vfg.imputation.categories import SecondStage, category_columns
from vfg.imputation.fitting import read_labels
from vfg.imputation.resources import Turn
from vfg.imputation.trees import (
    Forest,
    Growing,
    HeldOutRows,
    TreeTable,
    Unseen,
    fit_regression,
    fit_weights,
    grow_forest,
)
from vfg.modelfile import dumps, loads
from vfg.sklearn import VFGImputer
from vfg.tables import Encoding, FewValued
from vfg.tables.frames import open_table

QUICK = {"members": 1, "mixtures": 1, "neighbours": 1, "steps": 10, "random_state": 0}


def interaction(rows=360):
    """The parity of two categories decides a third category and a number; one cell in five misses.

    The years 1999 and 2008 follow from the first category or the size; nothing predicts the dose.
    """
    generator = np.random.default_rng(0)
    one, two = generator.integers(0, 2, (2, rows))
    odd = one ^ two
    whole = pd.DataFrame(
        {
            "one": np.array(["a", "b"])[one],
            "two": np.array(["x", "y"])[two],
            "odd": np.array(["no", "yes"])[odd],
            "number": 3.0 * odd + 0.1 * generator.normal(size=rows),
            "year": np.where(one == 1, 2008.0, 1999.0),
            "size": one + 0.1 * generator.normal(size=rows),
            "dose": generator.choice([0.5, 1.0, 2.0], size=rows),
        }
    )
    hidden = generator.random(whole.shape) < 0.2
    hidden[:, :2] &= generator.random((rows, 2)) < 0.3
    return whole, whole.mask(hidden), hidden


@pytest.fixture(scope="module")
def fitted():
    whole, table, hidden = interaction()
    return VFGImputer(**QUICK).fit(table), whole, table, hidden


def test_votes_are_those_of_a_loop_over_rows_trees_and_nodes():
    generator = np.random.default_rng(1)
    features = generator.normal(size=(80, 3)).astype(np.float32).astype(np.float64)
    number, label = features[:, 0] * features[:, 1], (features[:, 2] > 0.3).astype(np.int64)
    growing, every = Growing(0, 4), np.arange(80)
    growing.grow(features, np.array([False, False, True]), every, number, every)
    growing.grow(features, np.array([True, False, False]), every, label, every, 2)
    forest = Forest([0, 1, 2], 3, 3, [2], ([2], [0]), 4, growing.nodes, growing.outputs)
    growing.finish(forest)
    forest.slopes.copy_(torch.eye(3))
    votes = forest.votes(torch.from_numpy(features))
    for row in range(80):
        by_target = []
        for roots in forest.roots.tolist():
            leaves = []
            for node in roots:
                while int(forest.feature[node]) >= 0:
                    cell = features[row, int(forest.feature[node])]
                    node = node + 1 if cell <= float(forest.threshold[node]) else forest.after[node]
                leaves.append(int(forest.after[node]))
            by_target.append(leaves)
        outputs = forest.output.double()
        assert float(votes.means[row, 2]) == pytest.approx(float(outputs[by_target[0]].mean()))
        shares = [float(outputs[[leaf + k for leaf in by_target[1]]].mean()) for k in range(2)]
        assert votes.shares[row].tolist() == pytest.approx(shares)
    assert np.corrcoef(votes.means[:, 2].numpy(), number)[0, 1] > 0.7
    assert (votes.shares.argmax(1).numpy() == label).mean() > 0.95


def test_rows_that_are_copies_are_drawn_together():
    features, groups = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 20
    growing = Growing(3, 6)
    growing.grow(features, np.array([True, False]), np.arange(40), features[:, 0], groups)
    unseen = growing.used[0]
    assert (unseen[:20] == unseen[20:]).all()
    assert 0.2 < unseen.mean() < 0.55


def test_weights_minimise_the_errors_of_held_out_cells():
    forest = Forest([0, 1], 2, 2, [2], ([0, 1], [0]), 1, 2, 4)
    forest.feature.fill_(-1)
    forest.roots.copy_(torch.tensor([[0], [0], [1]]))
    forest.after.copy_(torch.tensor([0, 1]))
    forest.output.copy_(torch.tensor([1.0, 0.9, 0.1, 0.0]))
    rows = 4000
    shown = torch.tensor([[False, True]]).repeat(rows, 1)
    truth = np.arange(rows) % 10 == 0  # a tenth has the second category, as the trees say
    one = HeldOutRows(
        torch.arange(rows),
        torch.full((rows, 2), 0.7, dtype=torch.float64),
        shown,
        (~shown).double(),
        torch.zeros(rows, 2, dtype=torch.float64),
        [(np.arange(rows), np.full((rows, 2), 0.5), truth.astype(np.int64))],
    )
    unseen = Unseen({k: torch.ones(rows, 1) for k in range(3)}, torch.zeros(rows), None)
    (moved,) = fit_weights(forest, unseen, [one], [np.array([0.6, 0.4])])
    # The truth is 0.7, the other parts say 0, the trees 1, in rows of which all else is known.
    assert float(forest.weights[0]) == pytest.approx(0.7, abs=0.01)
    assert moved.means[:, 0].mean().item() == pytest.approx(0.7, abs=0.01)
    weights = tuple(forest.class_weights[0].tolist())
    pooled = SecondStage(np.array([[0.9, 0.1]]), np.ones((1, 1)), weights).pool(
        np.full((1, 2), 0.5), np.array([0.6, 0.4])
    )
    assert pooled[0, 1] == pytest.approx(0.1, abs=0.01)
    assert float(forest.spread[0]) == pytest.approx(0.5), "no error is left"


@pytest.mark.parametrize("categories", [2, 3])
def test_regressions_are_those_of_scikit_learn(categories):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(90, 3))
    truth = (inputs[:, 0] + generator.normal(size=90) > 0).astype(int)
    truth += (categories > 2) * (inputs[:, 1] > 0.5)
    weights = generator.random(90)
    slopes = fit_regression(inputs, truth, categories + 1, weights)  # the last never occurs
    forest = Forest([0, 1, 2], 3, 3, [categories + 1], ([], [0]), 1, 1, 1, regressed=True)
    chances = forest.regress(torch.from_numpy(inputs), torch.from_numpy(slopes)).numpy()
    model = LogisticRegression(C=0.3).fit(inputs, truth, sample_weight=weights)
    np.testing.assert_allclose(chances[:, :-1], model.predict_proba(inputs), atol=1e-6)
    assert (chances[:, -1] < 1e-6).all()
    assert forest.regressed == [0]
    assert Forest([0], 1, 1, [2], ([], [0]), 1, 1, 1).regressed == []


def test_regressions_of_folds_did_not_see_their_rows_and_copies():
    generator = np.random.default_rng(1)
    frame = pd.DataFrame(generator.normal(size=(60, 2)), columns=["x", "y"])
    frame["c"] = np.where(frame["x"] + generator.normal(size=60) > 0, "a", "b")
    encoding = Encoding.fit(None, frame)
    values, observed = encoding.training_matrix(frame)
    categories = category_columns(encoding, range(3))
    labels = read_labels(open_table(frame), encoding, categories).places
    copies = torch.arange(60) // 2 * 2
    table = TreeTable([1] * 3, values, observed, values, [*categories.values()], labels, copies)
    forest, unseen = grow_forest(table, 1, 0)
    assert torch.equal(unseen.folds[::2], unseen.folds[1::2]), "copies are in one fold"
    inputs = values.numpy().clip(-5.0, 5.0)
    inputs[:, 2] = 0.0
    for slopes, rows in (
        (forest.regressions, torch.ones(60, dtype=torch.bool)),
        *((own, unseen.folds != fold) for fold, own in enumerate(unseen.regressions)),
    ):
        assert rows.sum() > 20
        expected = fit_regression(inputs[rows], labels[rows, 0].numpy(), 2)
        np.testing.assert_allclose(slopes.numpy(), expected)


def numbers(rows=60, columns=3):
    """A complete table of numbers that trees can be grown from."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(rows, columns, generator=generator, dtype=torch.float64).cumsum(1)
    known = torch.ones(rows, columns, dtype=torch.bool)
    labels = torch.zeros(rows, 0, dtype=torch.long)
    return TreeTable([1] * columns, values, known, values, [], labels, torch.arange(rows))


def test_trees_are_fewer_if_there_is_little_time(monkeypatch):
    table, seconds = numbers(), [0.0]
    monkeypatch.setattr("vfg.imputation.resources.now", lambda: seconds[0])
    keep = Growing._keep

    def slow(*given):
        seconds[0] += 1.0  # that a tree takes
        keep(*given)

    monkeypatch.setattr(Growing, "_keep", slow)
    hurried = Turn(seconds[0] + 10.0)
    assert grow_forest(table, 20, 0, hurried) is None  # less than five trees for three targets
    assert hurried.gave_up
    assert seconds[0] < 10.0
    start = seconds[0]
    forest, unseen = grow_forest(table, 20, 0, Turn(start + 30.0))
    assert forest.trees == 10
    assert seconds[0] == start + 30.0
    assert forest.roots.shape == (3, forest.trees)
    assert all(own.shape[1] == forest.trees for own in unseen.trees.values())
    whole, _ = grow_forest(table, 20, 0)
    assert whole.trees == 20
    assert torch.equal(whole.roots[0, : forest.trees], forest.roots[0])


def test_only_wanted_cells_are_predicted_and_as_with_all_others():
    table = numbers()
    forest, unseen = grow_forest(table, 7, 0)
    wanted = torch.zeros_like(table.observed)
    wanted[::3, 1] = wanted[5, 2] = True
    every, some = forest.votes(table.values), forest.votes(table.values, wanted)
    assert torch.equal(torch.where(wanted, every.means, 0.0), some.means)
    walked = [by_hand(forest, table.values[5].float(), tree) for tree in forest.roots[2].tolist()]
    assert every.means[5, 2].item() == np.mean(walked)
    own = torch.stack([unseen.trees[k][:, :7] for k in range(3)])
    held = forest.votes(table.values, used=dict(enumerate(own)))
    chosen = [value for value, use in zip(walked, own[2, 5], strict=True) if use]
    assert held.means[5, 2].item() == pytest.approx(np.sum(chosen) / max(len(chosen), 1))


def by_hand(forest, row, node):
    """The output of the leaf of a tree that a row reaches."""
    while (feature := int(forest.feature[node])) >= 0:
        node = node + 1 if row[feature] <= forest.threshold[node] else int(forest.after[node])
    return forest.output[forest.after[node]].double().item()


def test_trees_grow_from_rows_that_are_filled_without_the_cell_they_predict():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(200, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(200, 4, generator=generator, dtype=torch.float64)
    values = (
        root @ torch.tensor([[1.0, 0.5, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0]]).double() + 0.3 * noise
    )
    observed = torch.rand(200, 4, generator=generator) < 0.7
    model = vfg.GaussianVFG(vfg.Graph.star(dict.fromkeys("abcd", 1), width=2))
    model.fit(torch.where(observed, values, torch.nan))
    linear, ids = mean_function(model), torch.arange(200)
    known = torch.where(observed, values, 0.0)
    filled = linear(known, observed, ids)
    labels, copies = torch.zeros(200, 0), torch.arange(200)
    table = TreeTable([1] * 4, known, observed, filled, [], labels, copies, None, linear)
    hidden = observed.clone()
    hidden[:, 1] = False
    expected = linear(known, hidden, ids)
    expected[:, 1] = filled[:, 1]
    torch.testing.assert_close(table.without([1]), expected)
    assert (expected - filled).abs().max() > 0.1, "filled cells know the one that is predicted"


def test_probabilities_are_pooled_as_the_formula_says():
    generator = np.random.default_rng(0)
    others, shares = generator.dirichlet(np.ones(3), (2, 5))
    trust, pi = generator.random((5, 1)), np.array([0.5, 0.3, 0.2])
    pooled = SecondStage(shares, trust, (0.4, 0.7)).pool(others, pi)
    for row, e in enumerate(trust[:, 0]):
        votes = 0.9 * shares[row] + 0.1 * pi
        odds = pi * (others[row] / pi) ** (1 - e + 0.4 * e) * (votes / pi) ** (0.7 * e)
        np.testing.assert_allclose(pooled[row], odds / odds.sum())
    chances = generator.dirichlet(np.ones(3), 5)
    pooled = SecondStage(shares, trust, (0.4, 0.7, 0.2), chances).pool(others, pi)
    for row, e in enumerate(trust[:, 0]):
        votes, regression = 0.9 * shares[row] + 0.1 * pi, 0.98 * chances[row] + 0.02 * pi
        odds = pi * (others[row] / pi) ** (0.5 * (1 - e) + 0.4 * e) * (votes / pi) ** (0.7 * e)
        odds *= (regression / pi) ** (0.5 * (1 - e) + 0.2 * e)
        np.testing.assert_allclose(pooled[row], odds / odds.sum())
    mixed = SecondStage(shares, trust, (0.5,)).pool(others, pi)  # of files of earlier versions
    np.testing.assert_allclose(mixed, others + 0.5 * trust * (shares - others))


@pytest.mark.parametrize("target", ["odd", "number"])
def test_trees_find_interactions_that_other_parts_miss(target):
    whole, table, hidden = interaction()
    chosen, rows = ["one", "two", "dose", target], hidden[:, list(whole).index(target)]
    fast = QUICK | {"mixtures": 0, "neighbours": 0}
    losses = []
    for trees in (0, None):
        imputer = VFGImputer(**fast, trees=trees).fit(table[chosen])
        assert (imputer.model_.forest is None) == (trees == 0)
        truth = whole[target][rows]
        if target == "number":
            filled = imputer.transform(table[chosen])[target][rows]
            losses.append(np.square(filled - truth).mean())
        else:
            shares = imputer.predict_proba(table[chosen])[target][rows].to_numpy()
            places = (truth == "yes").to_numpy().astype(int)
            losses.append(-np.log(shares[np.arange(len(shares)), places]).mean())
    assert losses[1] < 0.7 * losses[0]


def steps_and_noise(rows=800):
    """Columns of numbers: a third one jumps by the product of the signs of two others."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1.0, 1.0, (rows, 3))
    x[:, 2] = np.sign(x[:, 0] * x[:, 1]) + 0.1 * x[:, 2]
    hidden = generator.random(x.shape) < [0.02, 0.02, 0.3]
    return x, np.where(hidden, np.nan, x), hidden


def test_tables_of_numbers_have_trees_where_they_reduce_the_error(tmp_path):
    whole, table, hidden = steps_and_noise()
    errors = []
    for trees in (0, None):
        imputer = VFGImputer(members=1, steps=5, mixtures=0, neighbours=0, trees=trees).fit(table)
        errors.append(np.square(imputer.transform(table) - whole)[hidden[:, 2], 2].mean())
    assert errors[1] < 0.7 * errors[0]
    loaded = loads(dumps(imputer.model_))
    assert torch.equal(loaded.forest.limits, imputer.model_.forest.limits)
    assert np.array_equal(loaded.fill(table), imputer.model_.fill(table))
    assert VFGImputer(effort="fast").fit(table).model_.forest is None, "they would take too long"


def test_trees_of_numbers_move_means_little_further_than_at_held_out_cells():
    forest = Forest([0, 1], 2, 2, [], ([0, 1], []), 1, 1, 1, limited=True)
    forest.feature.fill_(-1)
    forest.output.copy_(torch.tensor([9.0]))
    rows = 200
    shown = torch.arange(2).expand(rows, 2) == 1
    means = torch.linspace(7.0, 9.0, rows, dtype=torch.float64)[:, None].repeat(1, 2)
    cells = torch.arange(rows), means + 0.5, shown, (~shown).double(), means, list[None]()
    unseen = Unseen({k: torch.ones(rows, 1) for k in range(2)}, torch.zeros(rows), None)
    fit_weights(forest, unseen, [HeldOutRows(*cells)], [])
    assert forest.limits.tolist() == pytest.approx([3.0, 3.0]), "1.5 times 2"
    far = torch.tensor([[0.0, 8.5]], dtype=torch.float64)
    assert forest.step(forest.votes(far), far)[0].tolist() == pytest.approx([3.0, 0.5])


def test_without_evidence_trees_change_nothing(fitted):
    imputer = fitted[0]
    answer = imputer.model_.infer({}, ["odd", "number"])
    plain = loads(dumps(imputer.model_))
    plain.forest = None
    without = plain.infer({}, ["odd", "number"])
    assert (answer.probabilities["odd"] == without.probabilities["odd"]).all()
    assert answer.mean["number"][0] == without.mean["number"][0]
    given = {"one": "a", "two": "y"}
    with_trees, others = (m.infer(given, ["odd"]) for m in (imputer.model_, plain))
    assert with_trees.probabilities["odd"][0, 1] > others.probabilities["odd"][0, 1]


def test_answers_with_trees_are_the_same_in_files_batches_and_fits(fitted, tmp_path):
    imputer, _, table, _ = fitted
    filled = imputer.transform(table)
    vfg.save(imputer, tmp_path / "model.vfg")
    pd.testing.assert_frame_equal(vfg.load(tmp_path / "model.vfg").fill(table), filled)
    pd.testing.assert_frame_equal(imputer.transform(table[100:120]), filled[100:120])
    again = VFGImputer(**QUICK).fit(table)
    pd.testing.assert_frame_equal(again.transform(table), filled)
    turned = table[table.columns[::-1]]
    others = VFGImputer(**QUICK).fit(turned).transform(turned)
    pd.testing.assert_frame_equal(others[filled.columns], filled, rtol=1e-5)
    one = imputer.model_.infer(table.iloc[3].dropna().to_dict(), ["number"], padded=False)
    many = imputer.model_.infer(table[3:4], ["number"])
    assert one.mean["number"][0] == pytest.approx(many.mean["number"][0], rel=1e-5)


def test_sets_of_categories_grow_with_the_level_and_hold_observed_ones_alone(fitted, tmp_path):
    imputer, _, table, hidden = fitted
    sets = imputer.predict_set(table)
    wide, shares = imputer.predict_set(table, 0.99), imputer.predict_proba(table)
    assert list(sets) == ["one", "two", "odd"]
    for label, chosen in sets.items():
        rows = hidden[:, list(table).index(label)]
        assert chosen.index.equals(table.index)
        assert (chosen.to_numpy() <= wide[label].to_numpy()).all()
        best = shares[label].to_numpy().argmax(1)
        assert chosen.to_numpy()[np.arange(len(table)), best].all()
        for one in (chosen, wide[label]):
            assert (one[~rows].sum(axis=1) == 1).all()
    assert (wide["odd"].sum(axis=1) == 2).any()
    vfg.save(imputer, tmp_path / "model.vfg")
    again = vfg.load(tmp_path / "model.vfg")
    same = again.category_sets("odd", shares["odd"].to_numpy(), 0.9)
    np.testing.assert_array_equal(same, sets["odd"].to_numpy())
    again.set_thresholds = None  # as in files of earlier versions
    summed = again.category_sets("odd", shares["odd"].to_numpy(), 0.9)
    held = np.where(summed, shares["odd"].to_numpy(), 0.0).sum(1)
    assert (held >= 0.9 - 1e-9).all()
    with pytest.raises(ValueError, match="level"):
        imputer.predict_set(table, 1.5)


def test_draws_go_with_the_means_and_probabilities_of_trees(fitted):
    imputer, _, table, hidden = fitted
    rows = np.flatnonzero(hidden[:, 2] & hidden[:, 3])
    answer = imputer.model_.infer(table.iloc[rows], ["odd", "number"])
    draws = answer.samples(400)
    shares = (draws["odd"] == "yes").mean(0)
    assert np.abs(shares - answer.probabilities["odd"][:, 1]).max() < 0.06
    assert np.abs(draws["number"].mean(0) - answer.mean["number"]).max() < 0.3
    alone = np.flatnonzero(hidden[:, 3] & ~hidden[:, 0] & ~hidden[:, 1])
    low, high = imputer.predict_interval(table.iloc[alone])
    truth = fitted[1]["number"].iloc[alone]
    covered = (low["number"] <= truth) & (truth <= high["number"])
    assert 0.8 <= covered.mean() <= 1.0


def test_few_valued_columns_are_drawn_from_their_values_and_filled_with_them_if_as_good(fitted):
    imputer, whole, table, hidden = fitted
    assert imputer.schema_["year"] == FewValued(values=(1999.0, 2008.0))
    years, doses = ({1999.0, 2008.0}, {0.5, 1.0, 2.0})
    filled = imputer.transform(table)
    assert set(filled["year"]) == years, "the year follows from a category"
    wrong = (filled["year"] != whole["year"])[hidden[:, 4]].mean()
    assert wrong < 0.2
    assert set(filled["dose"]) > doses, "nothing predicts the dose: means have less squared error"
    for draw in imputer.sample(table, 3):
        assert set(draw["year"]) == years
        assert set(draw["dose"]) == doses
    for end in imputer.predict_interval(table):
        assert set(end["dose"]) <= doses
    median = imputer.set_params(estimate="median").transform(table)
    imputer.set_params(estimate="mean")
    assert set(median["dose"]) <= doses
    assert set(imputer.model_.sample(50)["year"]) == years


def test_values_that_follow_from_categories_are_drawn_as_values():
    """Four cylinders follow exactly from a category, which is a relation of its code points."""
    places = np.random.default_rng(0).integers(0, 4, 200)
    cylinders, names = np.array([4.0, 5.0, 6.0, 8.0]), np.array(list("abcd"))
    table = pd.DataFrame({"cylinders": cylinders[places], "kind": names[places]})
    imputer = VFGImputer(**QUICK).fit(table.mask(np.random.default_rng(1).random((200, 2)) < 0.2))
    assert imputer.model_.relations is not None
    assert set(imputer.model_.sample(40)["cylinders"]) <= {*cylinders}
    expected = imputer.model_.infer({"kind": "b"}, ["cylinders"]).mean["cylinders"]
    assert expected[0] == pytest.approx(5.0)


def test_a_number_of_trees_that_is_given_is_kept_or_reduced(fitted):
    table = fitted[2][["one", "odd", "number"]]
    assert VFGImputer(**QUICK, trees=3).fit(table).model_.forest.trees == 3


def test_whole_numbers_and_few_values_can_be_switched_off(fitted):
    _, _, table, _ = fitted
    table = table.assign(count=np.random.default_rng(0).poisson(30.0, len(table)).astype(float))
    table.loc[::7, "count"] = np.nan
    linear = {"bend": False, "random_state": 0}
    filled = VFGImputer(**linear).fit_transform(table)
    assert filled["count"].dtype == float
    assert (filled["count"] == filled["count"].round()).all()
    draws = VFGImputer(**linear).fit(table).sample(table, 2)
    assert all((draw["count"] == draw["count"].round()).all() for draw in draws)
    off = VFGImputer(**linear, discrete=False).fit(table)
    assert off.schema_["count"].name == off.schema_["year"].name == "continuous"
    assert set(off.sample(table, 1)[0]["dose"]) > {0.5, 1.0, 2.0}
    some = VFGImputer(**linear, schema={"year": "continuous"}).fit(table)
    assert [some.schema_[k].name for k in ("year", "dose")] == ["continuous", "few valued"]


def test_the_linear_model_alone_fills_declared_few_valued_columns_with_values_if_as_good():
    generator = np.random.default_rng(0)
    level = generator.normal(size=300)
    whole = pd.DataFrame({
        "year": np.where(level > 0.0, 2008.5, 1999.5),
        "dose": np.array([0.5, 1.0, 2.0])[generator.integers(0, 3, 300)],
        "kind": np.where(level > 0.0, "new", "old"),
        "level": level,
    })  # fmt: skip
    table = whole.mask(generator.random(whole.shape) < 0.2)
    declared = {"year": "few valued", "dose": FewValued()}
    for weights in (None, np.full(300, 2.0)):
        imputer = VFGImputer(bend=False, random_state=0, schema=declared)
        filled = imputer.fit(table, sample_weight=weights).transform(table)
        assert set(filled["year"]) == {1999.5, 2008.5}, "the year follows from the kind"
        assert (filled["year"] == whole["year"]).mean() > 0.95
        assert set(filled["dose"]) > {0.5, 1.0, 2.0}, "nothing predicts the dose"
        for draw in (*imputer.sample(table, 2), *imputer.predict_interval(table)):
            assert set(draw["year"]) <= {1999.5, 2008.5}
            assert set(draw["dose"]) <= {0.5, 1.0, 2.0}


@pytest.mark.parametrize("settings", [{"bend": False, "random_state": 0}, QUICK])
def test_few_whole_numbers_are_filled_with_whole_numbers_in_frames(settings):
    """Grades that little predicts: their means have less squared error, but are no grades."""
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"grade": generator.integers(1, 6, 150).astype(float)})
    table["other"] = 0.3 * table["grade"] + generator.normal(size=150)
    table = table.mask(generator.random(table.shape) < 0.2)
    imputer = VFGImputer(**settings).fit(table)
    assert imputer.schema_["grade"].name == "few valued"
    filled = imputer.transform(table)["grade"]
    assert (filled % 1.0 == 0.0).all()
    assert filled.dtype == float
    gaps = table["grade"].isna()
    expected = imputer.model_.infer(table, ["grade"]).mean["grade"]
    np.testing.assert_array_equal(filled[gaps], np.round(expected[gaps]))
    low, high = (end["grade"] for end in imputer.predict_interval(table, 0.2))
    assert ((low <= filled) & (filled <= high)).all()
    assert set(low) | set(high) <= {1.0, 2.0, 3.0, 4.0, 5.0}, "ends are values that occur"
    loaded = loads(dumps(imputer.model_))
    np.testing.assert_array_equal(loaded.fill(table)["grade"], filled)


def test_few_whole_numbers_of_arrays_keep_their_means():
    generator = np.random.default_rng(0)
    table = generator.integers(1, 6, (150, 2)).astype(float)
    table[generator.random(table.shape) < 0.2] = np.nan
    plain = VFGImputer(bend=False, random_state=0).fit_transform(table)
    assert (plain % 1.0 != 0.0).any()
    frame = pd.DataFrame(table, columns=["a", "b"])
    off = VFGImputer(bend=False, discrete=False, random_state=0).fit_transform(frame)
    assert (off % 1.0 != 0.0).to_numpy().any()


def test_many_categories_bring_no_warnings_of_scikit_learn():
    generator = np.random.default_rng(0)
    names = [f"name {k}" for k in generator.integers(45, size=80)]
    table = pd.DataFrame({"name": names, "x": generator.normal(size=80)})
    table.loc[::7, "name"] = None
    table.loc[1::7, "x"] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VFGImputer(**QUICK).fit(table)
