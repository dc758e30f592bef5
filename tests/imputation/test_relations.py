"""Relations between columns: against least squares and the conditional Normal by hand."""

import numpy as np
import pytest
import torch
from imputation.mixed_tables import light, linear
from numpy.testing import assert_allclose

import vfg
from vfg.imputation.mixtures import fit_linear, star
from vfg.imputation.relations import (
    Relations,
    deviations_given,
    fill_determined,
    find_relations,
    follow_relations,
)
from vfg.sklearn import VFGImputer


def related(noise, rows=300, seed=0):
    """Two columns with a nearly linear relation between two others, and missing cells."""
    generator = np.random.default_rng(seed)
    first = generator.uniform(-2.0, 2.0, size=rows)
    second = 3.0 * first + noise * generator.normal(size=rows)
    others = generator.normal(size=(rows, 2)) + np.stack([first, 0.0 * first], axis=1)
    whole = np.column_stack([first, second, others])
    return whole, np.where(generator.random(whole.shape) < 0.15, np.nan, whole)


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("make", [light, linear])
def test_errors_and_intervals_follow_the_noise_of_a_relation(noise, make):
    _, table = related(noise)
    fitted = make().fit(table)
    new, _ = related(noise, rows=400, seed=1)
    hidden = new.copy()
    hidden[:, 1] = np.nan
    errors = (fitted.transform(hidden) - new)[:, 1]
    assert np.sqrt(np.mean(errors**2)) < 1.2 * noise
    low, high = (ends[:, 1] for ends in fitted.predict_interval(hidden, 0.9))
    width = np.median(high - low) / (2.0 * 1.645 * noise)
    assert 0.85 < width < 1.5
    # Intervals of single tables of 300 rows hold 0.84 to 0.95, of five such tables 0.92.
    assert 0.82 < np.mean((low <= new[:, 1]) & (new[:, 1] <= high)) < 0.97
    deviation = fitted.model_.infer(hidden[:50]).std[1]
    assert np.median(deviation) == pytest.approx(noise, rel=0.5)


@pytest.mark.parametrize("make", [light, linear])
def test_totals_of_missing_cells_are_totals(make):
    generator = np.random.default_rng(0)
    table = generator.normal(size=(200, 4))
    table[:, 2] = table[:, 0] + table[:, 1]
    hidden = table.copy()
    hidden[generator.random(table.shape) < 0.15] = np.nan
    fitted = make().fit(hidden)
    for filled in (fitted.transform(hidden), *fitted.sample(hidden, 2)):
        assert np.abs(filled[:, 0] + filled[:, 1] - filled[:, 2]).max() < 1e-6
    some = hidden.copy()
    some[:, [0, 2]] = np.nan
    answer = fitted.model_.infer(some[:1], padded=False)
    assert answer.mean[0] + some[0, 1] == pytest.approx(answer.mean[2], abs=1e-6)


def test_a_model_keeps_its_relations_in_files(tmp_path):
    _, table = related(0.01)
    model = linear().fit(table).model_
    assert model.relation_noise is not None
    vfg.save(model, tmp_path / "model.vfg")
    loaded = vfg.load(tmp_path / "model.vfg")
    assert torch.equal(loaded.relation_noise, model.relation_noise)
    assert np.array_equal(loaded.fill(table), model.fill(table))


def random_relations(noise, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    rows[0, 4] = rows[1, 0] = 0.0
    return Relations(rows, torch.tensor(noise, dtype=torch.float64))


def random_table(rows=40, columns=5):
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return table, torch.rand(rows, columns, generator=generator) < 0.5


def test_moved_entries_are_those_of_a_normal_given_the_relations():
    """Missing cells are Normal about the table with variance 1; the relations are observed."""
    relations, (table, observed) = random_relations([0.3, 0.1]), random_table()
    moved = follow_relations(relations, table, observed)
    spread = deviations_given(relations, (~observed).double(), observed)
    assert torch.equal(moved[observed], table[observed])
    for row in range(len(table)):
        missing = (~observed[row]).nonzero()[:, 0]
        matrix = relations.coefficients[:, missing]
        weights = relations.noise.square().reciprocal()
        precision = torch.eye(len(missing)).double() + (matrix.T * weights) @ matrix
        error = relations.coefficients[:, :-1] @ table[row] + relations.coefficients[:, -1]
        shift = torch.linalg.solve(precision, matrix.T @ (weights * error))
        torch.testing.assert_close(moved[row, missing], table[row, missing] - shift)
        wanted = precision.inverse().diagonal().sqrt()
        torch.testing.assert_close(spread[row, missing], wanted)


def test_rows_are_moved_alone():
    relations, (table, observed) = random_relations([0.3, 0.0]), random_table()
    moved = follow_relations(relations, table, observed)
    for row in range(len(table)):
        alone = follow_relations(relations, table[row : row + 1], observed[row : row + 1])
        assert torch.equal(alone[0], moved[row])


def test_exact_relations_give_what_follows_from_the_evidence():
    relations, (table, observed) = random_relations([0.0, 0.0]), random_table()
    exact, determined = fill_determined(relations.coefficients, table, observed)
    moved = follow_relations(relations, table, observed)
    assert determined.any()
    torch.testing.assert_close(moved[determined], exact[determined])


def test_relations_are_found_among_columns_that_are_rarely_complete():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(400, 9, generator=generator, dtype=torch.float64)
    values[:, 2] = 0.6 * values[:, 0] - 0.8 * values[:, 1]
    values[:, 2] += 0.02 * torch.randn(400, generator=generator, dtype=torch.float64)
    observed = torch.rand(values.shape, generator=generator) < 0.7
    values = torch.where(observed, values, 0.0)
    model = fit_linear(star([1] * 9, 9), values, observed, seed=0)
    found = find_relations(values, observed, model)
    assert len(found) == 1
    row = found.coefficients[0, :3] / found.coefficients[0, 2]
    assert row.tolist() == pytest.approx([-0.6, 0.8, 1.0], abs=0.02)
    assert float(found.noise[0]) == pytest.approx(0.02 / 2.0**0.5, rel=0.2)
    assert not len(find_relations(values, observed, model, torch.ones(9, dtype=torch.bool)))


def test_independent_columns_have_no_relations():
    values = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    every = torch.ones_like(values, dtype=torch.bool)
    model = fit_linear(star([1] * 4, 4), values, every, seed=0)
    assert not len(find_relations(values, every, model))


def test_intervals_reach_beyond_the_observed_range():
    """Rows far from those that were fitted, in columns without an end."""
    generator = np.random.default_rng(0)
    cause = generator.normal(size=200)
    table = np.stack([cause, 2.0 * cause + 0.5 * generator.normal(size=200)], axis=1)
    fitted = linear().fit(table)
    new = np.full((100, 2), np.nan)
    new[:, 0] = generator.normal(4.0, 0.3, size=100)
    truth = 2.0 * new[:, 0] + 0.5 * generator.normal(size=100)
    low, high = (ends[:, 1] for ends in fitted.predict_interval(new, 0.9))
    assert np.mean((low <= truth) & (truth <= high)) > 0.75
    filled = fitted.transform(new)[:, 1]
    assert ((low <= filled) & (filled <= high)).all()  # a line is followed, see `extrapolation`
    assert np.mean([draw[:, 1].mean() for draw in fitted.sample(new, 5)]) > table[:, 1].max()


def test_intervals_of_few_rows_are_not_cut_at_the_range_of_these():
    generator = np.random.default_rng(1)
    held = []
    for _ in range(8):
        fitted = linear().fit(generator.normal(size=(20, 2)))
        new = generator.normal(size=(300, 2))
        low, high = fitted.predict_interval(np.where([True, False], np.nan, new), 0.98)
        held.append(np.mean((low[:, 0] <= new[:, 0]) & (new[:, 0] <= high[:, 0])))
    assert np.mean(held) > 0.94


def shares_of_a_whole(rows, seed, columns=7):
    """Shares that add up to 100 but for rounding, and a column of its own."""
    generator = np.random.default_rng(seed)
    sizes = np.exp(generator.normal(size=(rows, columns)) * np.linspace(0.2, 1.2, columns))
    shares = 100.0 * sizes / sizes.sum(1, keepdims=True)
    noise = 0.3 * generator.normal(size=shares.shape)
    return np.column_stack([shares + noise, generator.normal(size=rows)])


@pytest.mark.parametrize("make", [light, linear])
def test_shares_of_a_whole_are_filled_as_by_least_squares(make):
    table, new = shares_of_a_whole(150, seed=0), shares_of_a_whole(300, seed=1)
    fitted = make().fit(table)
    for column in range(7):
        hidden = new.copy()
        hidden[:, column] = np.nan
        error = np.square(fitted.transform(hidden) - new)[:, column].mean()
        others = [np.column_stack([np.delete(x, column, 1), np.ones(len(x))]) for x in (table, new)]
        slopes = np.linalg.lstsq(others[0], table[:, column], rcond=None)[0]
        assert error < 1.3 * np.square(others[1] @ slopes - new[:, column]).mean()


@pytest.mark.parametrize("rows", [6, 8, 12])
@pytest.mark.parametrize("kind", ["whole numbers", "numbers", "sum"])
def test_exact_relations_of_few_rows_are_filled_exactly(rows, kind):
    generator = np.random.default_rng(rows)
    x = np.arange(rows) * 1.0 if kind == "whole numbers" else generator.normal(size=rows)
    others = [generator.normal(size=rows)] if kind == "sum" else []
    table = np.column_stack([x, 2.0 * x + 1.0 + sum(others), *others])
    shown = table.copy()
    shown[rows // 2, 1] = np.nan
    if kind == "sum" and rows == 6:
        pytest.skip("five rows of three columns are no evidence")
    filled = VFGImputer(effort="fast", random_state=0).fit_transform(shown)
    assert_allclose(filled, table, atol=1e-9)


def test_few_rows_of_few_values_have_no_relations_by_chance():
    found = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        shape = generator.integers(5, 29), generator.integers(2, 5)
        values = torch.from_numpy(generator.integers(0, 3, shape).astype(np.float64))
        observed = torch.ones(values.shape, dtype=torch.bool)
        linear = fit_linear(star([1] * values.shape[1], 2), values, observed, seed=0)
        found += int((find_relations(values, observed, linear).noise == 0.0).sum())
    assert found == 0


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_column_that_is_constant_only_in_complete_rows_is_no_relation(noise):
    # y was measured only where grade is 10, so that complete rows say nothing of other grades.
    generator = np.random.default_rng(3)
    chosen = generator.random(500) < 0.5
    grade = np.where(chosen, 10.0, generator.normal(5.0, 1.0, size=500))
    grade += noise * chosen * generator.normal(size=500)
    table = np.column_stack([generator.normal(size=(500, 2)), grade])
    table[~chosen, 1] = np.nan
    hidden = np.zeros(500, dtype=bool)
    hidden[::5] = True
    shown = table.copy()
    shown[hidden, 2] = np.nan
    fitted = light().fit(shown)
    low, high = (ends[hidden & ~chosen, 2] for ends in fitted.predict_interval(shown, 0.9))
    truth = grade[hidden & ~chosen]
    assert np.mean((low <= truth) & (truth <= high)) > 0.6


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_relations_that_other_rows_contradict_are_left_out(noise):
    # b = 2 a where c was recorded and half of a elsewhere; d = a + e everywhere.
    generator = np.random.default_rng(0)
    a, c, e = generator.normal(size=(3, 400))
    recorded = generator.random(400) < 0.5
    b = np.where(recorded, 2.0 * a + noise * generator.normal(size=400), 0.5 * a)
    table = torch.from_numpy(np.column_stack([a, b, c, a + e, e]))
    observed = torch.ones(table.shape, dtype=torch.bool)
    observed[:, 2] = torch.from_numpy(recorded)
    model = fit_linear(star([1] * 5, 5), table, observed, seed=0)
    found = find_relations(torch.where(observed, table, 0.0), observed, model)
    expected = np.array([1.0, 0.0, 0.0, -1.0, 1.0, 0.0]) / 3**0.5
    assert_allclose(found.coefficients.abs(), np.abs(expected)[None], atol=1e-8)


def test_what_rows_without_a_column_contradict_goes_and_what_follows_without_it_stays():
    # Complete rows satisfy a = b and c = a + d; where d is missing, a and b differ.
    generator = np.random.default_rng(1)
    a, d = generator.normal(size=(2, 300))
    without = np.arange(300) >= 150
    b = np.where(without, generator.normal(size=300), a)
    table = torch.from_numpy(np.column_stack([a, b, a + d, d]))
    observed = torch.ones(table.shape, dtype=torch.bool)
    observed[:, 3] = torch.from_numpy(~without)
    model = fit_linear(star([1] * 4, 4), table, observed, seed=0)
    relations = find_relations(torch.where(observed, table, 0.0), observed, model).coefficients
    complete = np.column_stack([table.numpy()[~without], np.ones(150)])
    assert_allclose(complete @ relations.numpy().T, 0.0, atol=1e-8)
    # None of those that are left relates a and b alone.
    rest = torch.linalg.svd(relations[:, 2:4].T)[2][torch.linalg.matrix_rank(relations[:, 2:4]) :]
    assert len(relations) == 1
    assert len(rest) == 0
