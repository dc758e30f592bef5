"""Exported models: the same fills and intervals as the imputer's, in torch and in onnxruntime."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vfg
from vfg.serving.export import _unit
from vfg.serving.filler import Filler
from vfg.sklearn import VFGImputer
from vfg.utils.linalg import invert

FIVE_PERCENT = 1.6448536269514722  # deviations that a 90 % interval reaches


def mixed_table(rows=240, seed=0):
    """Columns of every kind, one of them the sum of two others."""
    generator = np.random.default_rng(seed)
    size = generator.normal(size=rows)
    noisy = size + 0.4 * generator.normal(size=rows)
    levels = np.array(["low", "middle", "high"])[np.digitize(noisy, [-0.5, 0.5])]
    frame = pd.DataFrame(
        {
            "size": size,
            "weight": (2.0 * size + 0.1 * generator.normal(size=rows)).round(2),
            "kind": np.where(size > 0, "large", "small"),
            "many": [f"c{k:02d}" for k in np.clip(3.0 * noisy + 7.0, 0, 14).astype(int)],
            "letter": np.array(list("abc"))[generator.integers(0, 3, rows)],
            "count": pd.array((3 * np.abs(noisy)).astype(int), "Int64"),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.round(30 * noisy), "D"),
            "open": noisy > 0.5,
            "grade": pd.Categorical(levels, ["low", "middle", "high"], ordered=True),
            "year": np.where(noisy > 0, 2008.0, 1999.0),
            "constant": 5.0,
            "name": [f"row {k}" for k in range(rows)],
        }
    )
    frame["total"] = frame["size"] + frame["weight"]
    return frame.mask(generator.random(frame.shape) < 0.2)


def as_cells(frame, columns):
    """Cells as numbers, by the description of the columns."""
    cells = []
    for column in columns:
        own = frame[column["name"]]
        if "categories" in column:
            place = {category: k for k, category in enumerate(column["categories"])}
            numbers = [float(place.get(cell, -1)) for cell in own]
        elif column["kind"] == "date":
            numbers = own.to_numpy().astype(f"M8[{column['unit']}]").astype("i8").astype(float)
        elif column["kind"] == "identifier":
            numbers = np.zeros(len(own))
        else:
            numbers = own.to_numpy(dtype=float, na_value=np.nan)
        cells.append(np.where(own.isna().to_numpy(), np.nan, numbers))
    return np.stack(cells, axis=1)


def filler_of(imputer, without=(), steps=FIVE_PERCENT):
    model = imputer.model_
    units = [_unit(part) for part in model.encoding.parts.values()]
    return Filler(model, units, without=without, steps=steps).eval()


def describe(imputer):
    """The columns, written down again rather than read from an export."""
    columns = []
    for name, part in imputer.model_.encoding.parts.items():
        column = {"name": name, "kind": imputer.schema_[name].name}
        if hasattr(part, "categories"):
            column["categories"] = list(part.categories)
        if column["kind"] == "date":
            column["unit"] = "D"
        columns.append(column)
    return columns


@torch.no_grad()
def compare(imputer, filler, frame, tolerance=1e-9):
    columns = describe(imputer)
    results = filler(torch.from_numpy(as_cells(frame, columns)))
    expected = [imputer.transform(frame)]
    if filler.has_intervals:
        expected += imputer.predict_interval(frame)
    for result, table in zip(results, expected, strict=True):
        np.testing.assert_allclose(
            result.numpy(), as_cells(table, columns), rtol=tolerance, atol=tolerance
        )


@pytest.fixture(scope="module")
def table():
    return mixed_table()


@pytest.fixture(scope="module")
def linear(table):
    imputer = VFGImputer(bend=False, random_state=0, missingness="ignorable")
    with pytest.warns(UserWarning, match="identifiers"):
        imputer.fit(table).transform(table)
    return imputer


@pytest.fixture(scope="module")
def filler(linear):
    return filler_of(linear)


def test_the_linear_model_fills_and_bounds_every_kind_of_column(linear, filler, table):
    assert linear.model_.relations is not None
    assert linear.model_.few_valued
    compare(linear, filler, table)
    compare(linear, filler, table[:1])
    compare(linear, filler, table[:2].mask(np.ones((2, table.shape[1]), dtype=bool)))


def test_rows_far_outside_the_data(linear, filler, table):
    """Intervals contain what is filled in, as those of the imputer do."""
    numbers = table.select_dtypes("float").columns
    far = table[:30].copy()
    far[numbers[0]] = 40.0 * table[numbers[0]].abs().max()
    far[numbers[1]] = np.nan
    compare(linear, filler, far)


@pytest.mark.filterwarnings("ignore:the column 'kind' holds categories that did not occur")
def test_unseen_categories_are_kept_and_no_evidence(linear, filler, table):
    unseen = table[:20].copy()
    unseen["kind"] = "huge"
    compare(linear, filler, unseen)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_any_mask(linear, filler, table, seed, share):
    rows = table.sample(5, random_state=seed % 1000)
    compare(linear, filler, rows.mask(np.random.default_rng(seed).random(rows.shape) < share))


def test_cells_that_depend_on_being_missing(table, tmp_path):
    columns = ["size", "weight", "kind", "letter", "count"]
    imputer = VFGImputer(bend=False, missingness="self", random_state=0).fit(table[columns])
    assert imputer.model_.slopes is not None
    with pytest.raises(ValueError, match=r"found by iteration.*without missingness"):
        vfg.export(imputer, tmp_path / "model.onnx")
    imputer.model_.selection = None  # as in files of earlier versions
    compare(imputer, filler_of(imputer), table[columns])
    fills = imputer.transform(table[columns])
    for end in imputer.predict_interval(table[columns]):
        assert (end["kind"] == fills["kind"]).all()  # as the method promises


def test_without_relations_the_filler_says_what_the_parts_say(linear, filler, table):
    plain = filler_of(linear, ["relations"])
    cells = torch.from_numpy(as_cells(table, describe(linear)))
    total = list(linear.schema_).index("total")
    with torch.no_grad():
        difference = (filler(cells)[0] - plain(cells)[0])[:, total].abs()
    assert difference.max() > 1e-6


@pytest.fixture(scope="module")
def ensemble(table):
    columns = ["size", "weight", "kind", "many", "grade"]
    options = {"members": 2, "mixtures": 2, "neighbours": 2, "trees": 16, "steps": 20}
    imputer = VFGImputer(random_state=0, missingness="ignorable", **options)
    return imputer.fit(table[columns])


def test_every_part_of_an_ensemble_is_exported(ensemble, table):
    rows, model = table[list(ensemble.schema_)], ensemble.model_
    assert model.forest is not None
    assert model.pooling is not None
    # Every kind has a weight, so that each matters.
    with torch.no_grad():
        model.weights.copy_(torch.tensor([0.3, 0.2, 0.1, 0.2, 0.2]))
    # Sums in single precision depend on the order.
    filler = filler_of(ensemble, steps=None)
    compare(ensemble, filler, rows, tolerance=1e-5)
    compare(ensemble, filler, rows[:1], tolerance=1e-5)
    far = rows.assign(size=[4.0, 8.0] * (len(rows) // 2), weight=np.nan)
    filled = ensemble.transform(far)["weight"]
    assert filled.max() > rows["weight"].max()  # the linear model counts most there
    compare(ensemble, filler, far, tolerance=1e-5)


def test_metrics_of_columns_are_exported():
    generator = np.random.default_rng(2)
    cells = generator.uniform(-2.0, 2.0, size=(300, 4))
    cells[:, 0] = np.sin(3.0 * cells[:, 1])
    cells[generator.random(cells.shape) < 0.2] = np.nan
    frame = pd.DataFrame(cells, columns=list("abcd"))
    options = {"mixtures": 2, "trees": 2, "steps": 20}
    imputer = VFGImputer(random_state=0, missingness="ignorable", **options).fit(frame)
    assert imputer.model_.targeted is not None
    compare(imputer, filler_of(imputer, steps=None), frame, tolerance=1e-5)
    without = filler_of(imputer, ["neighbours"], None)
    assert not len(without.by_metrics)
    filled = without(torch.from_numpy(cells))[0]
    assert bool(filled.isfinite().all())


def test_weights_of_parts_that_are_left_out_go_to_the_others(ensemble):
    filler = filler_of(ensemble, ["members", "neighbours"], None)
    total = float(ensemble.model_.weights.sum())
    assert sum(filler.weights) == pytest.approx(total)
    assert [filler.weights[k] for k in (0, 3, 4)] == [0.0, 0.0, 0.0]
    alone = filler_of(ensemble, ["members", "mixtures", "neighbours", "trees"], None)
    assert sum(alone.weights) == pytest.approx(total)
    assert not len(alone.mixtures)
    assert alone.forest is None


def test_parts_that_cannot_be_exported_are_refused_with_the_reason(ensemble, tmp_path):
    with pytest.raises(ValueError, match=r"random draws; leave out intervals \(without"):
        vfg.export(ensemble, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"no part 'tree' to leave out.*'trees'"):
        vfg.export(ensemble, tmp_path / "model.onnx", without=["tree"])
    with pytest.raises(ValueError, match=r"end with .onnx or .pt2, not 'model.txt'"):
        vfg.export(ensemble, tmp_path / "model.txt")
    with pytest.raises(ValueError, match="estimate='median'"):
        vfg.export(VFGImputer(estimate="median"), tmp_path / "model.onnx")
    with pytest.raises(TypeError, match="but this is a VFG"):
        vfg.export(vfg.VFG(vfg.Graph.star({"a": 1, "b": 1})), tmp_path / "model.onnx")
    table = pd.DataFrame(np.random.default_rng(0).random((40, 2)), columns=["a", "b"])
    bounded = VFGImputer(bend=False, constraints=["0 <= a <= 1"]).fit(table)
    with pytest.raises(ValueError, match="constraints are satisfied by random draws"):
        vfg.export(bounded, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def run_onnx(path, cells):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options)
    described = json.loads(session.get_modelmeta().custom_metadata_map["vfg"])
    return session.run(None, {"cells": cells}), described


def test_onnxruntime_gives_the_same_fills_and_intervals(table, tmp_path):
    pytest.importorskip("onnxscript")
    columns = ["size", "kind", "letter", "since"]
    imputer = VFGImputer(bend=False, random_state=0).fit(table[columns])
    described = vfg.export(imputer, tmp_path / "model.onnx", level=0.8)
    assert described["columns"][3] == {"name": "since", "kind": "date", "unit": "D"}
    for rows in (table[columns], table[columns][:1]):
        cells = as_cells(rows, described["columns"])
        results, stored = run_onnx(tmp_path / "model.onnx", cells)
        assert stored == described
        for result, expected in zip(
            results, [imputer.transform(rows), *imputer.predict_interval(rows, 0.8)], strict=True
        ):
            expected = as_cells(expected, described["columns"])
            np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_onnxruntime_runs_a_whole_ensemble(ensemble, table, tmp_path):
    pytest.importorskip("onnxscript")
    described = vfg.export(ensemble, tmp_path / "model.onnx", without=["intervals"])
    rows = table[list(ensemble.schema_)]
    cells = as_cells(rows, described["columns"])
    (filled,), _ = run_onnx(tmp_path / "model.onnx", cells)
    expected = as_cells(ensemble.transform(rows), described["columns"])
    np.testing.assert_allclose(filled, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_inverses_and_determinants(size):
    root = torch.randn(4, size, size, generator=torch.Generator().manual_seed(0)).double()
    scale = 10.0 ** torch.arange(size).double()
    matrices = (root @ root.mT + 0.01 * torch.eye(size)) * scale[:, None] * scale
    inverse, log_determinant = invert(matrices)
    torch.testing.assert_close(log_determinant, torch.linalg.slogdet(matrices)[1])
    unit = (inverse * scale[:, None] * scale) @ (matrices / scale[:, None] / scale)
    torch.testing.assert_close(unit, torch.eye(size).double().expand_as(unit), atol=1e-8, rtol=0.0)


@pytest.mark.parametrize("columns", [["kind"], ["constant"], ["grade", "total"]])
def test_programs_of_torch_for_tables_of_one_kind(table, tmp_path, columns):
    imputer = VFGImputer(bend=False, random_state=0).fit(table[columns])
    described = vfg.export(imputer, tmp_path / "model.pt2")
    extra = {"vfg.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra).module()
    assert json.loads(extra["vfg.json"]) == described
    one = table[columns][:1].mask(np.ones((1, len(columns)), dtype=bool))
    cells = torch.from_numpy(as_cells(one, described["columns"]))
    filled, low, high = program(cells)
    expected = as_cells(imputer.transform(one), described["columns"])
    np.testing.assert_allclose(filled.numpy(), expected, atol=1e-9)
    assert ((low <= filled) | filled.isnan()).all()
    assert ((filled <= high) | filled.isnan()).all()
