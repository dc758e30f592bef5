"""A Normal model and probits of missing cells, fitted together."""

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from vfg.imputation.parameter_draws import Gaps, NormalModel
from vfg.imputation.selection import Selection, _Sites, fit_selection
from vfg.modelfile import dumps, loads
from vfg.sklearn import VFGImputer


def _model(columns: int = 4, correlation: float = 0.6) -> NormalModel:
    covariance = correlation + (1.0 - correlation) * torch.eye(columns, dtype=torch.float64)
    return NormalModel(torch.zeros(columns, dtype=torch.float64), covariance)


def _numbers(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _normal_table(rows: int, seed: int, columns: int = 4) -> np.ndarray:
    generator = np.random.default_rng(seed)
    covariance = 0.6 + 0.4 * np.eye(columns)
    return generator.multivariate_normal(np.zeros(columns), covariance, rows)


def _encoded(table: np.ndarray, missing: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(np.where(missing, 0.0, table)), torch.from_numpy(~missing)


def test_one_missing_cell_has_the_moments_of_its_density():
    selection = Selection(_model(), _numbers(0.3, 0, 0, 0), _numbers(1.4, 0.5, 0, 0))
    values, observed = (
        _numbers(0.0, 0.5, -1.0, 0.8)[None],
        torch.tensor([[False, True, True, True]]),
    )
    (mean,), (deviation,) = selection.given(values, observed)
    centre = float(selection.model.conditional_means(values, observed)[0, 0])
    covariance = selection.model.covariance.numpy()
    width = np.sqrt(1.0 / np.linalg.inv(covariance)[0, 0])

    def moment(power: int) -> float:
        return integrate.quad(
            lambda z: z**power * stats.norm.pdf(z, centre, width) * special.ndtr(0.3 + 1.4 * z),
            -12.0,
            12.0,
        )[0]

    wanted = moment(1) / moment(0)
    assert float(mean[0]) == pytest.approx(wanted, abs=1e-6)
    assert float(deviation[0]) == pytest.approx(
        np.sqrt(moment(2) / moment(0) - wanted**2), abs=1e-6
    )
    assert mean[1:].tolist() == [0.5, -1.0, 0.8]


@pytest.mark.parametrize("slope", [0.8, 5.0, -5.0])
def test_missing_cells_of_a_row_move_together(slope):
    """Against sums over a grid; expectation propagation is nearly exact for two cells."""
    selection = Selection(_model(2, 0.7), _numbers(-0.2, 0.4), _numbers(slope, 1.0))
    nothing = torch.zeros(1, 2, dtype=torch.float64)
    means, deviations = selection.given(nothing, nothing.bool())
    grid = np.linspace(-6.0, 6.0, 801)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    normal = stats.multivariate_normal([0.0, 0.0], selection.model.covariance.numpy())
    weights = normal.pdf(np.stack([x, y], -1)) * special.ndtr(-0.2 + slope * x)
    weights = weights * special.ndtr(0.4 + y)
    weights = weights / weights.sum()
    wanted = np.array([(weights * x).sum(), (weights * y).sum()])
    np.testing.assert_allclose(means[0], wanted, atol=0.01)
    spread = np.sqrt([(weights * x**2).sum(), (weights * y**2).sum()] - wanted**2)
    np.testing.assert_allclose(deviations[0], spread, atol=0.02)


def test_other_cells_predict_as_regressions_do():
    model = _model(3)
    values = torch.tensor([[0.4, -1.0, 0.0]], dtype=torch.float64)
    observed = torch.tensor([[True, True, False]])
    selection = Selection(model, torch.zeros(3).double(), torch.zeros(3).double())
    found = _Sites.start(Gaps.of(observed)).find(selection, values, 3)
    np.testing.assert_allclose(found.others[0, :2], [0.6 * -1.0, 0.6 * 0.4])
    np.testing.assert_allclose(found.spread[0, :2], [1.0 - 0.36] * 2)
    np.testing.assert_allclose(found.others[0, 2], found.means[0, 2])


def test_answers_about_a_row_do_not_depend_on_others():
    table = torch.from_numpy(_normal_table(50, 0))
    observed = torch.from_numpy(np.random.default_rng(1).random((50, 4)) < 0.5)
    selection = Selection(_model(), torch.zeros(4).double(), _numbers(1.0, -1.0, 0.0, 4.0))
    whole, _ = selection.given(table, observed)
    for row in (0, 17, 49):
        alone, _ = selection.given(table[row : row + 1], observed[row : row + 1])
        assert torch.equal(alone[0], whole[row])


@pytest.mark.parametrize("slope", [0.6, -1.2])
def test_slopes_and_means_are_recovered(slope):
    truth, generator = _normal_table(3000, 2), np.random.default_rng(3)
    missing = generator.random(truth.shape) < special.ndtr(-0.4 + slope * truth)
    few = torch.zeros(4, dtype=torch.bool)
    start = torch.full((4,), 0.5 * np.sign(slope), dtype=torch.float64)
    found = fit_selection(*_encoded(truth, missing), start, few)
    assert found is not None
    np.testing.assert_allclose(found.slopes, slope, atol=0.15)
    np.testing.assert_allclose(found.intercepts, -0.4, atol=0.12)
    np.testing.assert_allclose(found.model.mean, 0.0, atol=0.08)
    np.testing.assert_allclose(found.model.covariance.diagonal(), 1.0, atol=0.12)


def test_a_step_is_steep_and_its_cells_are_filled_beyond():
    """Every value above 0.3 of two columns is missing: what is observed has the mean -0.5."""
    truth = _normal_table(1500, 4)
    missing = truth > 0.3
    missing[:, 2:] = False
    table = np.where(missing, np.nan, truth + 5.0)
    errors = {}
    for assumed in ("ignorable", "self"):
        imputer = VFGImputer(bend=False, missingness=assumed, random_state=0)
        filled = imputer.fit_transform(table)
        errors[assumed] = float(np.square((filled - truth - 5.0)[missing]).mean())
    assert errors["self"] < 0.25 * errors["ignorable"]
    slopes = imputer.model_.slopes
    assert float(slopes.max()) > 4.0


def test_the_shape_of_skewed_columns_makes_no_slopes():
    """Small values of exponential columns hide with a logistic slope of 1."""
    normal, generator = _normal_table(1500, 5), np.random.default_rng(6)
    truth = -np.log(special.ndtr(normal)) - 1.0
    missing = generator.random(truth.shape) < special.expit(-1.0 - truth)
    start = torch.full((4,), -0.5, dtype=torch.float64)
    found = fit_selection(*_encoded(truth, missing), start, torch.zeros(4, dtype=torch.bool))
    assert found is not None
    np.testing.assert_allclose(1.7 * found.slopes, -1.0, atol=0.5)


def test_wide_tables_have_none():
    truth = np.random.default_rng(0).normal(size=(60, 20))
    missing = truth > 0.5
    few = torch.zeros(20, dtype=torch.bool)
    assert fit_selection(*_encoded(truth, missing), torch.ones(20).double(), few) is None


def test_files_keep_it():
    truth, generator = _normal_table(400, 7), np.random.default_rng(8)
    missing = generator.random(truth.shape) < special.expit(truth - 1.0)
    table = np.where(missing, np.nan, truth)
    imputer = VFGImputer(bend=False, random_state=0).fit(table)
    assert imputer.model_.selection is not None
    again = loads(dumps(imputer.model_))
    assert torch.equal(again.selection, imputer.model_.selection)
    np.testing.assert_array_equal(again.fill(table), imputer.transform(table))


def test_without_slopes_there_is_none():
    truth = _normal_table(300, 9)
    table = np.where(np.random.default_rng(1).random(truth.shape) < 0.3, np.nan, truth)
    assert VFGImputer(bend=False, random_state=0).fit(table).model_.selection is None
