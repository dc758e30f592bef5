"""Small tables: the linear model is shrunk as much as held-out cells tell."""

import numpy as np
import pytest
import torch

from vfg.imputation.mixtures import LINEAR_SETTINGS, fit_linear, star
from vfg.imputation.resources import Turn, now
from vfg.imputation.shrinkage import choose_shrinkage, deserves_choice
from vfg.sklearn import VFGImputer


def a_table(kind: str, rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    table = random.standard_normal((rows, columns))
    if kind == "sum":
        table[:, -1] = table[:, :-1].sum(1) + 0.5 * random.standard_normal(rows)
        table[:, -1] /= np.sqrt(columns - 1 + 0.25)
    return torch.from_numpy(table)


def sets_of_cells(values: torch.Tensor, number: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(values.shape, generator=generator) < 0.15 for _ in range(number)]


def choice_of(kind: str, rows: int = 80, columns: int = 5, **options):
    values = a_table(kind, rows, columns)
    every = torch.ones(values.shape, dtype=torch.bool)
    graph = star([1] * columns, 8)
    return choose_shrinkage(graph, values, every, sets_of_cells(values), 0, **options)


def test_related_columns_are_shrunk_less_than_independent_ones():
    related, independent = choice_of("sum"), choice_of("independent")
    assert related < 0.25 < 1.0 < independent


def test_without_time_shrinkage_is_as_usual():
    assert choice_of("sum", turn=Turn(now() - 1.0)) == LINEAR_SETTINGS.shrinkage


def test_rows_count_as_often_as_their_weights_say():
    weights = torch.ones(80, dtype=torch.float64)
    assert choice_of("sum", weights=weights) == choice_of("sum")
    weights[::2] = 3.0
    assert choice_of("sum", weights=weights) != choice_of("sum")


@pytest.mark.parametrize(("rows", "tried"), [(10, False), (20, True), (300, True), (301, False)])
def test_small_tables_alone_are_tried(rows, tried):
    assert deserves_choice(rows, 3) is tried


def test_the_shrinkage_that_is_chosen_has_smaller_errors_in_new_rows():
    """Against the usual one, for a sum of columns; the errors are those of 2,000 other rows."""
    graph, every = star([1] * 5, 8), torch.ones(80, 5, dtype=torch.bool)
    chosen, usual = [], []
    for seed in range(3):
        values, others = a_table("sum", 80, 5, seed), a_table("sum", 2000, 5, 100 + seed)
        shown = torch.ones(2000, 5, dtype=torch.bool)
        shown[:, -1] = False
        sets = sets_of_cells(values)
        found = choose_shrinkage(graph, values, every, sets, 0)
        for shrinkage, errors in ((found, chosen), (LINEAR_SETTINGS.shrinkage, usual)):
            model = fit_linear(graph, values, every, 0, shrinkage=shrinkage)
            means = model.infer(others, observed=shown).mean["4"]
            errors.append(float((means[:, 0] - others[:, -1]).square().mean()))
    assert np.mean(chosen) < 0.9 * np.mean(usual)


def test_the_linear_model_of_a_small_table_is_nearly_that_of_least_squares():
    random = np.random.default_rng(2)
    table = random.standard_normal((60, 4))
    table[:, 3] = table[:, :3].sum(1) + 0.3 * random.standard_normal(60)
    others = random.standard_normal((500, 4))
    truth = others[:, :3].sum(1)
    others[:, 3] = np.nan
    filled = VFGImputer(bend=False, random_state=0).fit(table).transform(others)[:, 3]
    design = np.column_stack([np.ones(60), table[:, :3]])
    exact = np.linalg.lstsq(design, table[:, 3], rcond=None)[0]
    best = np.column_stack([np.ones(500), others[:, :3]]) @ exact
    errors = [np.square(x - truth).mean() for x in (filled, best)]
    assert errors[0] < errors[1] + 0.02


def test_weights_equal_repeated_rows():
    random = np.random.default_rng(3)
    table = a_table("sum", 60, 4).numpy()
    table[random.random(table.shape) < 0.2] = np.nan
    often = random.integers(0, 3, 60)
    one = VFGImputer(bend=False, random_state=0).fit(table, sample_weight=often)
    other = VFGImputer(bend=False, random_state=0).fit(np.repeat(table, often, axis=0))
    np.testing.assert_allclose(one.transform(table), other.transform(table), rtol=1e-4, atol=1e-4)
