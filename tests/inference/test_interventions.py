"""Interventions against closed forms in linear systems and quadrature; counterfactuals by ranks."""

import networkx
import numpy as np
import pytest
import torch

import vfg

DAG = [("z", "x"), ("x", "m"), ("m", "y"), ("z", "y")]
NAMES = ("z", "x", "m", "y")


def simulate(rows=1500, seed=0):
    generator = np.random.default_rng(seed)
    z = generator.normal(size=rows)
    x = 0.8 * z + 0.6 * generator.normal(size=rows)
    m = 0.5 * x + 0.5 * generator.normal(size=rows)
    y = m + z + 0.5 * generator.normal(size=rows)
    return np.column_stack([z, x, m, y])


@pytest.fixture(scope="module")
def linear():
    model = vfg.GaussianVFG(vfg.Graph.star(dict.fromkeys(NAMES, 1), width=4))
    table = simulate()
    table[np.random.default_rng(1).random(table.shape) < 0.2] = np.nan
    model.fit(table)
    model.draws_of_interventions = 1024
    return model


@pytest.fixture(scope="module")
def mixed():
    pandas = pytest.importorskip("pandas")
    generator = np.random.default_rng(2)
    group = generator.choice(["a", "b"], size=800)
    dose = (group == "a") * 1.0 + generator.normal(size=800)
    effect = dose + 2.0 * (group == "a") + 0.5 * generator.normal(size=800)
    state = np.where(effect + 0.5 * generator.normal(size=800) > 1.0, "high", "low")
    frame = pandas.DataFrame({"group": group, "dose": dose, "effect": effect, "state": state})
    frame = frame.mask(generator.random(frame.shape) < 0.1)
    model = vfg.TableModel(bend=False)
    model.fit(frame)
    model.draws_of_interventions = 512
    return model


MIXED = [("group", "dose"), ("group", "effect"), ("dose", "effect"), ("effect", "state")]


def moments(model):
    """Mean and covariance of the fitted Gaussian."""
    answer = model.infer([{}], list(NAMES))
    mean = np.array([float(answer.mean[name]) for name in NAMES])
    return mean, answer.covariance(list(NAMES))[0].numpy()


def regress(mean, covariance, child, parents):
    """Intercept, slopes and residual variance of p(child | parents) of a Gaussian."""
    own, chosen = NAMES.index(child), [NAMES.index(p) for p in parents]
    slopes = np.linalg.solve(covariance[np.ix_(chosen, chosen)], covariance[chosen, own])
    return (
        mean[own] - slopes @ mean[chosen],
        slopes,
        covariance[own, own] - slopes @ covariance[chosen, own],
    )


def test_mean_and_deviation_are_those_of_the_linear_system(linear):
    mean, covariance = moments(linear)
    start, (slope,), noise_m = regress(mean, covariance, "m", ["x"])
    base, (of_m, of_z), noise_y = regress(mean, covariance, "y", ["m", "z"])
    at = np.array([-1.0, 0.0, 1.5])
    answer = linear.infer({}, ["m", "y"], do={"x": at}, dag=DAG)
    expected = base + of_m * (start + slope * at) + of_z * mean[0]
    assert answer.mean["m"] == pytest.approx(start + slope * at, abs=1e-6)
    assert answer.mean["y"] == pytest.approx(expected, abs=0.08)
    variance = noise_y + of_m**2 * noise_m + of_z**2 * covariance[0, 0]
    assert answer.std["y"] == pytest.approx(np.full(3, variance**0.5), rel=0.05)
    low, high = answer.interval(0.8)
    assert high["y"] - low["y"] == pytest.approx(np.full(3, 2 * 1.2816 * variance**0.5), rel=0.08)
    observed = float(linear.infer({"x": 1.5}, ["y"]).mean["y"])
    assert observed > answer.mean["y"][2] + 0.5  # z makes both x and y large


def test_effects_of_the_simulated_system_are_found(linear):
    answer = linear.infer({}, ["y"], do={"x": [-1.0, 1.0]}, dag=DAG)
    assert np.diff(answer.mean["y"])[0] == pytest.approx(1.0, abs=0.15)


def test_causes_do_not_change(linear):
    answer = linear.infer({}, ["z", "x"], do={"x": 1.5}, dag=DAG)
    mean, _ = moments(linear)
    assert answer.mean["z"] == pytest.approx([mean[0]], abs=0.08)
    assert answer.mean["x"].tolist() == [1.5]
    assert answer.std["x"].tolist() == [0.0]


def test_evidence_about_causes_is_used(linear):
    mean, covariance = moments(linear)
    start, (slope,), _ = regress(mean, covariance, "m", ["x"])
    base, (of_m, of_z), _ = regress(mean, covariance, "y", ["m", "z"])
    for given in ({"z": 1.0}, [{"z": 1.0}], [[1.0, np.nan, np.nan, np.nan]]):
        answer = linear.infer(given, "y", do={"x": 0.5}, dag=DAG)
        expected = base + of_m * (start + slope * 0.5) + of_z * 1.0
        assert answer.mean["y"] == pytest.approx([expected], abs=0.05)


def test_setting_an_effect_too_cuts_its_causes(linear):
    mean, covariance = moments(linear)
    base, (of_m, _of_z), _ = regress(mean, covariance, "y", ["m", "z"])
    answer = linear.infer({"z": 0.0}, "y", do={"x": 1.0, "m": -0.5}, dag=DAG)
    assert answer.mean["y"] == pytest.approx([base - 0.5 * of_m], abs=1e-5)


def test_adjustment_formula_by_quadrature_in_a_nonlinear_model():
    """E[y | do(x)] is the integral of E[y | x, z] p(z), both taken from a mixture."""
    generator = np.random.default_rng(3)
    z = generator.normal(size=1000)
    x = np.tanh(z) + 0.7 * generator.normal(size=1000)
    y = x**2 + np.sin(2 * z) + 0.3 * generator.normal(size=1000)
    graph = vfg.Graph.star({"z": 1, "x": 1, "y": 1}, width=3)
    model = vfg.GaussianVFG(graph, components=4)
    model.fit(np.column_stack([z, x, y]), restarts=1)
    grid = torch.linspace(-6.0, 6.0, 801, dtype=torch.float64)
    empty = torch.full((801, 3), torch.nan, dtype=torch.float64)
    empty[:, 0] = grid
    weights = model.log_prob(empty).exp()
    inner = model.infer({"z": grid, "x": torch.full_like(grid, 1.0)}, ["y"]).mean["y"][:, 0]
    expected = float(torch.trapezoid(weights * inner, grid) / torch.trapezoid(weights, grid))
    dag = [("z", "x"), ("x", "y"), ("z", "y")]
    answer = model.infer({}, "y", do={"x": 1.0}, dag=dag)
    assert answer.mean["y"][0] == pytest.approx(expected, abs=0.05)


def test_categories_as_causes_and_effects(mixed):
    answer = mixed.infer({}, ["effect", "state"], do={"dose": [-1.0, 2.0]}, dag=MIXED)
    assert np.diff(answer.mean["effect"])[0] == pytest.approx(3.0, abs=0.4)
    shares = answer.probabilities["state"]
    assert shares.sum(1) == pytest.approx(1.0)
    high = answer.categories["state"].index("high")
    assert shares[1, high] > shares[0, high] + 0.5
    assert answer.mean["state"].tolist() == ["low", "high"]
    by_group = mixed.infer({}, ["effect"], do={"group": ["a", "b"]}, dag=MIXED)
    # Directly 2, and 1 by way of the dose.
    assert -np.diff(by_group.mean["effect"])[0] == pytest.approx(3.0, abs=0.4)


def test_dags_come_in_several_forms(linear):
    learned = vfg.LearnedGraph.from_edges(DAG)
    forms = [DAG, tuple(DAG), learned, networkx.DiGraph(DAG)]
    answers = [linear.infer({}, "m", do={"x": 1.0}, dag=dag).mean["m"][0] for dag in forms]
    assert len({round(float(a), 9) for a in answers}) == 1


def test_first_draws_are_the_same_and_rows_can_be_selected(linear):
    answer = linear.infer({}, ["m", "y"], do={"x": [0.0, 1.0]}, dag=DAG)
    few = answer.samples(10)
    assert few["y"].shape == (10, 2)
    more = linear.infer({}, ["m", "y"], do={"x": [0.0, 1.0]}, dag=DAG).samples(5000)
    assert more["y"][:10] == pytest.approx(few["y"])
    assert answer.select(1).mean["m"] == pytest.approx(answer.mean["m"][1:], abs=1e-9)
    marginal = answer.marginals(row=1)["y"]
    assert marginal.mean == pytest.approx(answer.mean["y"][1], abs=0.1)
    assert answer.covariance(["m", "y"]).shape == (2, 2, 2)
    assert list(answer.to_frame(std=True).columns) == ["m", "y", "m std", "y std"]


@pytest.mark.slow
def test_deep_models_answer_too():
    model = vfg.VFG(vfg.Graph.star(dict.fromkeys(NAMES, 1), width=4))
    vfg.fit(model, simulate(300), epochs=3)
    answer = model.infer({}, "y", do={"x": [-1.0, 1.0]}, dag=DAG)
    assert np.isfinite(answer.mean["y"]).all()


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({}, {"do": {"x": 1.0}}, "needs dag="),
        ({}, {"dag": DAG}, "give do= too"),
        ({}, {"do": {}, "dag": DAG}, "values by column"),
        ({}, {"do": {"q": 1.0}, "dag": DAG}, "no column 'q'"),
        ({}, {"do": {"x": "big"}, "dag": DAG}, "takes a number"),
        ({}, {"do": {"x": float("nan")}, "dag": DAG}, "give a value"),
        ({}, {"do": {"x": 1.0}, "dag": [("x", "y"), ("y", "x")]}, "cycle"),
        ({}, {"do": {"x": 1.0}, "dag": [("x", "w")]}, "no column of the model"),
        ({}, {"do": {"x": 1.0}, "dag": ["xy"]}, "pairs"),
        ({"x": 1.0}, {"do": {"x": 1.0}, "dag": DAG}, "both given and set"),
        ({"y": 1.0}, {"do": {"x": 1.0}, "dag": DAG}, "effect of 'x'"),
        ({"z": [0.0, 1.0]}, {"do": {"x": [0.0, 0.5, 1.0]}, "dag": DAG}, "2 rows"),
        ({}, {"do": {"x": [0.0, 0.5], "m": [0.0] * 3}, "dag": DAG}, "lists of"),
    ],
)
def test_contradictions_are_refused(linear, given, options, message):
    with pytest.raises(ValueError, match=message):
        linear.infer(given, "y", **options)


def test_values_far_from_the_data_are_warned_of(linear, mixed):
    with pytest.warns(UserWarning, match="extrapolated"):
        linear.infer({}, "y", do={"x": 40.0}, dag=DAG)
    with pytest.warns(UserWarning, match="few rows"):
        linear.infer({"z": 2.5}, "y", do={"x": -2.4}, dag=DAG)
    mixed.infer({}, "effect", do={"group": "a"}, dag=MIXED)  # no warning


def test_evidence_beside_an_intervention_is_warned_of_once(linear):
    for free in (DAG, [("x", "y"), ("m", "y")]):  # m is drawn given z along the second
        with pytest.warns(UserWarning, match="evidence has|do sets") as caught:
            linear.infer({"z": 40.0}, "y", do={"x": 0.5}, dag=free).samples(2)
        told = [one for one in caught if "the evidence has 'z' = 40" in str(one.message)]
        assert [one.filename for one in told] == [__file__]


def test_values_at_the_edge_of_the_data_are_warned_of(linear):
    """Two in a hundred rows lie beyond 2.3 deviations, however rare their causes are."""
    linear.infer({}, "y", do={"z": 1.5}, dag=DAG)  # no warning: 13 % are as far out
    with pytest.warns(UserWarning, match="only 2 % of the rows are as far out"):
        linear.infer({}, "y", do={"z": [0.0, 2.33]}, dag=DAG)
    # An x of -1.5 is not rare, but 4.5 deviations away given z.
    with pytest.warns(UserWarning, match=r"rare given its causes \(z\)"):
        linear.infer({"z": 1.5}, "y", do={"x": -1.5}, dag=DAG)


def test_counterfactual_keeps_the_noise_of_the_row(linear):
    mean, covariance = moments(linear)
    _start, (slope,), _ = regress(mean, covariance, "m", ["x"])
    _base, (of_m, _of_z), _ = regress(mean, covariance, "y", ["m", "z"])
    row = {"z": 1.0, "x": 1.0, "m": 1.0, "y": 3.0}
    answer = linear.counterfactual(row, {"x": 0.0}, dag=DAG)
    m = 1.0 - slope
    assert answer.mean["m"] == pytest.approx([m], abs=1e-6)
    assert answer.mean["y"] == pytest.approx([3.0 + of_m * (m - 1.0)], abs=1e-6)
    assert answer.mean["z"].tolist() == [1.0]
    assert answer.std["y"] == pytest.approx([0.0], abs=1e-9)
    same = linear.counterfactual(row, {"x": 1.0}, dag=DAG)
    assert same.mean["y"] == pytest.approx([3.0], abs=1e-9)


def test_counterfactual_draws_missing_cells_first(linear):
    answer = linear.counterfactual({"z": 1.0, "x": 1.0, "y": 3.0}, {"x": 0.0}, dag=DAG)
    assert answer.std["m"][0] > 0.1
    # In a linear system the change of y does not depend on m.
    whole = linear.counterfactual({"z": 1.0, "x": 1.0, "m": 1.0, "y": 3.0}, {"x": 0.0}, dag=DAG)
    assert answer.mean["y"] == pytest.approx(whole.mean["y"], abs=1e-6)


def test_counterfactuals_of_categories_are_refused(mixed):
    row = {"group": "a", "dose": 1.0, "effect": 3.0, "state": "high"}
    with pytest.raises(ValueError, match="'state' has categories"):
        mixed.counterfactual(row, {"dose": 0.0}, dag=MIXED)
    answer = mixed.counterfactual(row, {"dose": 0.0}, dag=MIXED, targets=["effect"])
    assert answer.mean["effect"] == pytest.approx([2.0], abs=0.3)
