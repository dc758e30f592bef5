"""Conditionals for interventions: families of a DAG, causes as they are in the table."""

import numpy as np
import pandas as pd
import pytest
import torch

import vfg
from vfg.imputation.conditionals import DagModel, kept_rows

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


def dag_model(*columns, parents, sizes=None, observed=None):
    cells = np.column_stack(columns)
    seen = np.ones(cells.shape, dtype=bool) if observed is None else observed
    return DagModel(cells, seen, sizes or [0] * cells.shape[1], parents)


def test_curves_are_followed_and_lines_stay_straight():
    generator = np.random.default_rng(0)
    x, at = generator.normal(size=800), np.linspace(-2, 2, 9)
    noise = generator.normal(size=800)
    straight = dag_model(x, x + 0.5 * noise, parents={1: [0]})
    bent = dag_model(x, np.sin(2 * x) + 0.2 * noise, parents={1: [0]})
    means = straight.families[1].mean(at[:, None])
    assert np.abs(np.diff(means, 2)).max() < 0.06
    assert means == pytest.approx(at, abs=0.12)
    assert bent.families[1].mean(at[:, None]) == pytest.approx(np.sin(2 * at), abs=0.15)


def test_causes_may_act_together():
    generator = np.random.default_rng(3)
    x, z = generator.normal(size=(2, 1000))
    model = dag_model(x, z, x * z + 0.3 * generator.normal(size=1000), parents={2: [0, 1]})
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    assert model.families[2].mean(corners) == pytest.approx([1.0, -1.0, 1.0], abs=0.15)


def test_missing_causes_are_drawn_with_the_help_of_effects():
    """Cells filled by their mean would flatten the slope, from 2 to 1.4 if they stay as they are;
    the start is that."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=1500)
    y = 2 * x + 0.3 * generator.normal(size=1500)
    seen = np.ones((1500, 2), dtype=bool)
    seen[:450, 0] = False
    started = np.where(seen[:, 0], x, generator.normal(size=1500))
    model = dag_model(started, y, parents={1: [0]}, observed=seen)
    low, high = model.families[1].mean(np.array([[-1.0], [1.0]]))
    assert high - low == pytest.approx(4.0, abs=0.15)
    order = np.random.default_rng(0).permutation(1500)
    missing = ~seen[order, 0]
    assert np.corrcoef(model.completed[-1][missing, 0], x[order][missing])[0, 1] > 0.9


def test_noise_may_be_heavy_tailed_and_grow():
    generator = np.random.default_rng(5)
    x = generator.uniform(-1, 1, 3000)
    y = x + (0.2 + 0.6 * (x > 0)) * generator.standard_t(3, 3000)
    family = dag_model(x, y, parents={1: [0]}).families[1]
    ends = family.quantiles(np.array([[-0.7], [0.7]]), np.array([0.1, 0.9]))
    widths = ends[1] - ends[0]
    assert widths == pytest.approx(2 * 1.638 * np.array([0.2, 0.8]), rel=0.3)
    assert family.mean(np.array([[-0.7], [0.7]])) == pytest.approx([-0.7, 0.7], abs=0.1)


def test_categories_have_probabilities_given_their_causes():
    generator = np.random.default_rng(6)
    x = generator.normal(size=2000)
    code = (generator.random(2000) < 1 / (1 + np.exp(-2 * x))).astype(float)
    y = np.where(code == 1, x, -x) + 0.3 * generator.normal(size=2000)
    seen = generator.random((2000, 3)) > 0.2
    start = np.where(seen[:, 1], code, generator.integers(0, 2, 2000))
    model = dag_model(x, start, y, parents={1: [0], 2: [0, 1]}, sizes=[0, 2, 0], observed=seen)
    shares = model.families[1].mean(np.array([[-1.0], [0.0], [1.0]]))[:, 1]
    assert shares == pytest.approx([0.12, 0.5, 0.88], abs=0.08)
    means = model.families[2].mean(np.array([[1.0, 1.0], [1.0, 0.0]]))
    assert means == pytest.approx([1.0, -1.0], abs=0.2)


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
    assert np.sqrt(np.mean((answer.mean["y"] - truth) ** 2)) < 0.09


def test_families_are_fitted_once_and_forgotten_with_the_parts(fitted):
    model, table = fitted
    parents = {"y": ("z", "x"), "group": ("z",)}
    first = model.family_models(parents)
    assert model.family_models(parents) is first
    assert "y" in first
    assert "z" not in first
    assert model.family_models({}) is None
    linear = vfg.TableModel(bend=False)
    linear.fit(table)
    assert linear.family_models(parents) is None
    assert linear.draw_kept_rows(["z"], 5, 0) is None


def test_categories_follow_interventions(fitted):
    """In the fitted rows the group is late where z is above 0.5, whatever x is."""
    model, _ = fitted
    dag = [*DAG, ("z", "group"), ("y", "group")]
    answer = model.infer({}, ["group", "y"], do={"z": [-1.0, 1.2]}, dag=dag)
    late = list(answer.categories["group"]).index("late")
    assert answer.probabilities["group"][:, late] == pytest.approx([0.0, 1.0], abs=0.1)
    assert set(answer.samples(5)["group"].ravel()) <= {"late", "early"}


def test_the_same_seed_gives_the_same_bits(fitted):
    model, _ = fitted
    ask = {"do": {"x": [0.0, 1.0]}, "dag": DAG}
    first = model.infer({}, "y", **ask)
    del model.__dict__["_families"]
    again = model.infer({}, "y", **ask)
    assert (first.mean["y"] == again.mean["y"]).all()
    assert (first.samples(3)["y"] == again.samples(3)["y"]).all()
