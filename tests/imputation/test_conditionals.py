"""Conditionals for interventions: sizes by held-out rows, causes as they are in the table."""

import numpy as np
import pandas as pd
import pytest
import torch

import vfg
from vfg.imputation.conditionals import fit_family, kept_rows

DAG = [("z", "x"), ("z", "y"), ("x", "y")]


def simulate(rows, x=None, seed=0):
    """The effect of x bends, and z confounds it; y is skewed."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=rows)
    own = np.tanh(1.5 * z) + 0.7 * generator.normal(size=rows) if x is None else np.full(rows, x)
    y = np.sin(1.5 * own) + z**2 / 2 + z + 0.4 * generator.normal(size=rows)
    return pd.DataFrame({"z": z, "x": own, "y": y})


@pytest.fixture(scope="module")
def fitted():
    table = simulate(1200)
    table["group"] = np.where(table["z"] > 0.5, "late", "early")
    table = table.mask(np.random.default_rng(1).random(table.shape) < 0.2)
    model = vfg.TableModel(effort="fast")
    model.fit(table)
    return model, table


def as_matrix(table):
    values = torch.tensor(table.to_numpy(float))
    return torch.nan_to_num(values), ~values.isnan()


def test_components_follow_from_held_out_rows():
    generator = np.random.default_rng(2)
    x = generator.normal(size=600)
    straight = pd.DataFrame({"y": x + 0.5 * generator.normal(size=600), "x": x})
    bent = pd.DataFrame({"y": np.sin(2 * x) + 0.2 * generator.normal(size=600), "x": x})
    linear, mixture = (fit_family(*as_matrix(table), [1, 1]) for table in (straight, bent))
    assert not linear.mixtures
    assert mixture.mixtures[0].exact.components >= 9
    assert fit_family(*as_matrix(bent[:40]), [1, 1]) is None


def test_rows_that_a_model_keeps_are_those_of_the_table(fitted):
    model, table = fitted
    values, observed = kept_rows(model.row_mixture_models[0])
    expected, known = model.encode(table)
    used = known.any(1)
    assert torch.equal(observed, known[used])
    assert torch.allclose(values[observed], expected[used][known[used]].double(), atol=1e-5)


def test_causes_are_drawn_as_they_are_in_the_table(fitted):
    model, table = fitted
    drawn = model.draw_kept_rows(["z", "group"], 3000, 0)
    again = model.draw_kept_rows(["z", "group"], 1000, 0)
    assert drawn["z"][:1000] == pytest.approx(again["z"])
    assert len(drawn["z"]) == 3000
    share = (drawn["group"] == "late").mean()
    assert share == pytest.approx((table["group"].dropna() == "late").mean(), abs=0.03)
    seen = table["z"].dropna().to_numpy()
    near = np.abs(drawn["z"][:1000, None] - seen).min(1) < 1e-4
    assert near.mean() > 0.75  # observed cells are not drawn anew
    agree = (drawn["z"] > 0.5) == (drawn["group"] == "late")
    assert agree.mean() > 0.97


def test_effects_that_bend_are_not_flattened(fitted):
    """E[y | do(x)] of the system itself, from 200,000 rows of it; the ensemble is off by 0.2."""
    model, _ = fitted
    at = [-1.2, -0.6, 0.0, 0.6, 1.2]
    truth = np.array([simulate(200_000, x, seed=9)["y"].mean() for x in at])
    answer = model.infer({}, "y", do={"x": at}, dag=DAG)
    assert answer.mean["y"] == pytest.approx(truth, abs=0.2)
    assert np.sqrt(np.mean((answer.mean["y"] - truth) ** 2)) < 0.11


def test_families_are_fitted_once_and_forgotten_with_the_parts(fitted):
    model, table = fitted
    first = model.family_model("y", ("z", "x"))
    assert model.family_model("y", ("z", "x")) is first
    assert model.family_model("group", ("z",)) is None  # probabilities are the ensemble's
    linear = vfg.TableModel(bend=False)
    linear.fit(table)
    assert linear.family_model("y", ("z", "x")) is None
    assert linear.draw_kept_rows(["z"], 5, 0) is None
