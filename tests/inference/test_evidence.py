"""Evidence in every form that it may have: names, arrays, masks, frames; and bad input."""

import numpy as np
import pandas as pd
import pytest
import torch
from inference.asked_models import NAN, dag, named, same, small, table_for
from optional import polars as pl
from strategies import perturbed

import vfg
import vfg.inference.calibration
from vfg.inference import infer, traverse
from vfg.inference.queries import transport


def test_names_arrays_and_masks_are_the_same_evidence():
    model = small()
    whole = table_for(model, gaps=0.0)
    gaps = whole.clone()
    gaps[:, [0, 1, 4]] = NAN
    mask = torch.tensor([False, False, True, True, False]).expand(6, 5)
    expected = infer(model, gaps).mean
    same(infer(model, whole, observed=mask).mean, expected)
    same(infer(model, gaps.numpy()).mean, expected)
    same(infer(model, gaps.tolist()).mean, expected)
    same(infer(model, {"c": gaps[:, 3:], "b": whole[:, 2]}).mean, expected)
    names = {"b": True, "c": mask[:, 3:]}
    same(infer(model, whole, observed=names).mean, expected)


def test_columns_can_be_evidence_masks_and_targets():
    model = named()
    whole = table_for(model, gaps=0.0)
    gaps = whole.clone()
    gaps[:, [1, 3]] = NAN
    expected = infer(model, gaps, ["v", "c", "q"]).mean
    assert expected["v"].shape == (6,)
    assert torch.equal(expected["v"], expected["c"][:, 0])
    given = {"p": whole[:, 0], "b": whole[:, 2], "w": whole[:, 4]}
    same(infer(model, given, ["v", "c", "q"]).mean, expected)
    names = {"p": True, "b": True, "w": True}
    same(infer(model, whole, ["v", "c", "q"], observed=names).mean, expected)


def test_columns_without_names_go_by_position():
    graph = vfg.Graph(
        [vfg.Node("x", 2, columns=(2, 0)), vfg.Node("y", 1, columns=(1,)), vfg.Node("r", 2)],
        [vfg.Edge("x", "r"), vfg.Edge("y", "r")],
    )
    model = perturbed(vfg.VFG(graph).double(), 0)
    answer = infer(model, {2: 1.5, 1: 0.5}, [0, "x"])
    assert answer.mean["x"][0, 0] == 1.5
    assert torch.equal(answer.mean[0], answer.mean["x"][:, 1])


def test_numbers_are_repeated_for_all_rows():
    model = small()
    answer = infer(model, {"b": 1.5, "a": [[1.0, 2.0], [3.0, 4.0]]})
    twice = infer(model, {"b": [1.5, 1.5], "a": [[1.0, 2.0], [3.0, 4.0]]})
    same(answer.mean, twice.mean)
    assert infer(model, {}).mean["a"].shape == (1, 2)


FRAMES = {
    "pandas": pd.DataFrame,
    "polars": lambda columns: pl.DataFrame(columns),
    "arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "objects": lambda columns: pd.DataFrame(columns).astype(object).replace({np.nan: pd.NA}),
    "none": lambda columns: pl.DataFrame(columns).fill_nan(None),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("order", [range(5), [4, 2, 0, 1, 3]])
def test_frames_match_columns_by_name(kind, order):
    model = named()
    table = table_for(model)
    columns = {"pquvw"[k]: table[:, k].numpy() for k in order}
    answer = infer(model, FRAMES[kind](columns))
    same(answer.mean, infer(model, table).mean)
    same(answer.std, infer(model, table).std)


def test_frames_work_without_narwhals(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "narwhals", None)
    model = named()
    table = table_for(model)
    plain = pd.DataFrame(table.numpy(), columns=list("pquvw"))
    for frame in (plain, plain.convert_dtypes(), plain.astype(object).replace({np.nan: pd.NA})):
        same(infer(model, frame).mean, infer(model, table).mean)


def test_frames_for_a_graph_without_names_go_by_order():
    model = small()
    table = table_for(model)
    frame = pd.DataFrame(table.numpy(), columns=list("vwxyz"), index=list("lmnopq"))
    answer = infer(model, frame)
    same(answer.mean, infer(model, table).mean)
    assert list(answer.to_frame().index) == list("lmnopq")


def test_truth_values_and_integers_are_numbers():
    model = named()
    frame = pd.DataFrame({"p": [True, False], "q": [1, 2], "u": [0.5, NAN], "v": 1.0, "w": 2.0})
    assert infer(model, frame).mean["a"].tolist() == [[1.0, 1.0], [0.0, 2.0]]
    mask = pd.DataFrame({name: [True, True] for name in "pqvwu"}).assign(u=[True, False])
    same(infer(model, frame.fillna(7.0), observed=mask).mean, infer(model, frame).mean)


def test_frames_of_single_precision_stay_single():
    model = named()
    frame = pd.DataFrame(table_for(model).float().numpy(), columns=list("pquvw"))
    assert infer(model, frame).mean["a"].dtype == torch.float32


def frame(**columns):
    return pd.DataFrame({**{name: [1.0] for name in "pquvw"}, **columns})


NAMED = [
    (lambda m: m.encode(frame().drop(columns=["u", "w"])), r"lacks 'u', 'w'; "),
    (lambda m: infer(m, frame(z=[1.0])), r"has unknown 'z'; "),
    (lambda m: m.encode(frame().rename(columns={"u": "z"})), r"lacks 'u' and has unknown 'z'"),
    (lambda m: infer(m, frame().rename(columns={"u": "z"})), r"has unknown 'z'"),
    (lambda m: infer(m, frame().rename(columns={"u": "p"})), r"repeats 'p'"),
    (lambda m: m.encode(pl.DataFrame({"p": [1.0]})), r"lacks 'q', 'u', 'v', 'w'"),
    (lambda m: m.fill(frame().drop(columns=["u"])), r"lacks the column 'u'"),
    (lambda m: m.fill({"p": 1.0}), r"use infer for values by name"),
    (lambda m: m.fill(frame(u=["x"])), r"column 'u' must hold numbers, but has 'x'"),
    (lambda m: m.log_prob(frame()), r"deterministic states has no likelihood; use surrogate"),
    (lambda m: infer(m, [{"p": 1.0}, {"zz": 1.0}]), r"names 'zz', which is not a leaf"),
    (lambda m: infer(m, frame()).interval(1.0), r"between 0 and 1, but is 1"),
    (lambda m: infer(m, frame(), "a").covariance(["a", "b"]), r"'b' is not among the targets 'a'"),
    (lambda m: infer(m, frame(u=["x"])), r"column 'u' must hold numbers, but has 'x'"),
    (lambda m: infer(m, frame(u=pd.to_datetime(["2020-01-01"]))), r"column 'u' must hold numbers"),
    (lambda m: infer(m, frame(u=np.array([1], np.float16))), r"column 'u' is float16"),
    (lambda m: infer(m, frame(u=[np.inf])), r"leaf 'b' has infinite values \(column 'u'"),
    (lambda m: infer(m, {"a": [[1.0, 2.0]], "p": 1.0}), r"'p' twice, as 'a' and as 'p'"),
    (lambda m: infer(m, {"rot": 1.0}), r"names 'rot'.*did you mean 'root'"),
    (lambda m: infer(m, {"zzz": 1.0}), r"names 'zzz', which is not a leaf.*choose one of 'a', 'b'"),
    (lambda m: infer(m, {"a": 1.0}), r"'a' must have shape \(rows, 2\), but has \(\)"),
    (lambda m: infer(m, {"b": [[1.0, 2.0]]}), r"'b' must have shape \(rows,\).*has \(1, 2\)"),
    (lambda m: infer(m, {"b": [1.0, 2.0], "p": [1.0, 2.0, 3.0]}), r"'b' has 2 and 'p' has 3"),
    (lambda m: infer(m, {"root": [[1.0, np.inf, 0.0]]}), r"'root' has infinite"),
    (lambda m: infer(m, {"b": "x"}), r"evidence for 'b' must hold real numbers"),
    (lambda m: infer(m, {"b": [1.0, [2.0]]}), r"evidence for 'b' must be rectangular"),
    (lambda m: infer(m, {"b": torch.zeros(1, dtype=torch.float16)}), r"'b' is torch.float16"),
    (lambda m: infer(m, torch.zeros(1, 5, dtype=torch.cfloat)), r"real numbers.*complex"),
    (lambda m: infer(m, torch.zeros(1, 5), "rot"), r"target 'rot'.*did you mean 'root'"),
    (lambda m: infer(m, torch.zeros(1, 5), []), r"targets is empty"),
    (
        lambda m: infer(m, {"b": [NAN]}, observed={"b": [True]}),
        r"column 'u' of row 0 as observed, but it is NaN",
    ),
    (
        lambda m: infer(m, {"root": torch.zeros(1, 3)}, observed={"root": [True]}),
        r"names 'root', which is not a leaf but a latent node",
    ),
    (lambda m: infer(m, torch.zeros(2, 5), observed={"z": True}), r"the mask names 'z'"),
    (lambda m: infer(m, torch.zeros(2, 5), observed={"a": [True]}), r"mask of 'a' must be boolean"),
    (lambda m: infer(m, torch.zeros(2, 5), observed=torch.ones(2, 4).bool()), r"shape \(2, 5\)"),
    (lambda m: infer(m, torch.zeros(2, 5), row_ids=[0, 0]), r"row_ids must differ, but 0"),
    (lambda m: infer(m, torch.zeros(2, 5), row_ids=[0, -1]), r"0 or more, but one is -1"),
    (lambda m: infer(m, torch.zeros(2, 5), row_ids=[0]), r"one row id per row \(2\)"),
    (lambda m: infer(m, torch.zeros(2, 5), row_ids=[0.0, 1.0]), r"row_ids must be integers"),
    (lambda m: infer(m, torch.zeros(2, 5), rounds=-1), r"rounds must be 0 or more"),
    (lambda m: infer(m, torch.zeros(2, 5), labels=[0, 1]), r"one mean per label"),
    (
        lambda m: infer(m.float(), torch.full((1, 5), 1e300, dtype=torch.float64)),
        r"too large for a model",
    ),
    (lambda m: infer(m, torch.zeros(2, 4)), r"\(rows, 5\).*has \(2, 4\)"),
    (lambda m: transport(m, [1.0, NAN], "b", "a"), r"all of 'b', but its value has NaN"),
    (lambda m: transport(m, [1.0], "b", "z"), r"no node 'z'"),
    (lambda m: traverse(m, torch.zeros(1, 5), "a", 0, [1.0]), r"'a' is a leaf"),
    (lambda m: traverse(m, torch.zeros(1, 5), "root", 3, [1.0]), r"coordinates 0 to 2, but got 3"),
    (lambda m: traverse(m, torch.zeros(1, 5), "rot", 0, [1.0]), r"no node 'rot'"),
    (lambda m: infer(m, torch.zeros(1, 5)).quantile(1.0), r"strictly between 0 and 1"),
    (lambda m: infer(m, torch.zeros(1, 5)).samples(0), r"positive whole number, but is 0"),
    (lambda m: infer(m, torch.zeros(1, 5), "a").mean["b"], r"'b' is not among the targets 'a'"),
]


@pytest.mark.parametrize(("call", "message"), NAMED)
def test_bad_input_gets_one_clear_sentence(call, message):
    with pytest.raises((ValueError, TypeError, KeyError), match=message):
        call(named())


def test_a_frame_without_names_needs_the_right_number_of_columns():
    with pytest.raises(ValueError, match=r"must have 5 columns.*but has 4"):
        infer(small(), pd.DataFrame(np.zeros((2, 4))))


def test_transport_names_what_keeps_a_graph_from_being_a_tree():
    with pytest.raises(ValueError, match=r"node 'h' has the parents 'r', 's'"):
        transport(dag(), [[1.0, 2.0]], "a", "b")
    two = vfg.VFG(vfg.Graph.from_edges([("a", "r"), ("b", "s")], widths=1))
    with pytest.raises(ValueError, match=r"several roots: 'r', 's'"):
        transport(two, [1.0], "a", "b")


def test_a_list_of_mappings_is_one_row_each():
    model = named()
    rows = [{"p": 1.0, "root": [0.1, 0.2, 0.3]}, {}, {"a": [1.0, 2.0], "u": 3}]
    found = infer(model, rows).mean
    nothing = torch.full((2, 5), NAN, dtype=torch.float64)
    same(infer(model, [{}, {}]).mean, infer(model, nothing).mean)
    for k, row in enumerate(rows):
        alone = {name: [value] if np.ndim(value) else value for name, value in row.items()}
        expected = infer(model, alone, row_ids=[k]) if row else infer(model, [{}], row_ids=[k])
        same({name: part[k : k + 1] for name, part in found.items()}, expected.mean)


def test_a_frame_may_have_some_of_the_columns_in_any_order():
    model = named()
    whole = table_for(model, gaps=0.0)
    frame = pd.DataFrame({"w": whole[:, 4].numpy(), "p": whole[:, 0].numpy()})
    same(infer(model, frame).mean, infer(model, {"p": whole[:, 0], "w": whole[:, 4]}).mean)


def test_columns_without_names_are_called_by_leaf_and_place():
    model = small()
    whole = table_for(model, gaps=0.0)
    names = list(model.variables)
    assert names == ["a[0]", "a[1]", "b", "c[0]", "c[1]"]
    by_name = infer(model, {"a[1]": whole[:, 1], "c[0]": whole[:, 3]}, ["a[0]", "c[1]"])
    gaps = whole.clone()
    gaps[:, [0, 2, 4]] = NAN
    expected = infer(model, gaps).mean
    assert torch.equal(by_name.mean["a[0]"], expected["a"][:, 0])
    assert torch.equal(by_name.mean["c[1]"], expected["c"][:, 1])
    frame = pd.DataFrame({"c[0]": whole[:, 3].numpy(), "a[1]": whole[:, 1].numpy()})
    same(infer(model, frame).mean, expected)


def test_filling_keeps_what_is_known_and_other_columns():
    model = named()
    table = table_for(model)
    expected = infer(model, table)
    cells = torch.cat([expected.mean[leaf] for leaf in model.graph.leaves], dim=1)
    assert torch.equal(model.fill(table), cells)
    frame = pd.DataFrame(table.numpy()[:, ::-1], columns=list("wvuqp")).assign(id=list("uvwxyz"))
    filled = model.fill(frame)
    assert list(filled.columns) == [*"wvuqp", "id"]
    np.testing.assert_array_equal(filled[list("pquvw")].to_numpy(), cells.numpy())
    assert filled["id"].tolist() == list("uvwxyz")
    np.testing.assert_array_equal(model.fill(table.numpy()), cells.numpy())


@pytest.fixture(scope="module")
def ranged():
    """Models of all three kinds, fitted to numbers from 0 to 9."""
    table = np.column_stack([np.linspace(0.0, 9.0, 40), np.linspace(0.0, 9.0, 40)[::-1]])
    table[::2, 1] += 0.3
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=2)
    deep, exact, tables = vfg.VFG(graph), vfg.GaussianVFG(graph), vfg.TableModel(bend=False)
    vfg.fit(deep, table, epochs=2, progress=False)
    exact.fit(table)
    tables.fit(pd.DataFrame(table, columns=["a", "b"]))
    return deep, exact, tables


def test_single_values_outside_the_fitted_range_are_warned_of(ranged):
    said = r"the evidence has 'a' = 12.5, but the table has values from 0 to 9; what follows is"
    for model in ranged:
        for given in (
            {"a": 12.5},
            [{"a": 3.0}, {"a": 12.5}],
            {"a": np.float32(12.5)},
            {"a": torch.tensor(12.5)},
        ):
            with pytest.warns(UserWarning, match=said) as caught:
                model.infer(given, ["b"])
            assert len(caught) == 1
            assert caught[0].filename == __file__


def test_tables_and_values_inside_the_fitted_range_are_not_warned_of(ranged):
    for model in ranged:  # warnings are errors
        model.infer({"a": 9.8}, ["b"])
        model.infer({"a": [12.5, 3.0]}, ["b"])
        model.infer([[12.5, NAN]], ["b"])
        model.infer([{"a": 12.5}] * 40, ["b"])


def test_models_without_a_table_know_no_range():
    graph = vfg.Graph.star({"a": 1, "b": 1}, width=1)
    for model in (vfg.VFG(graph), vfg.GaussianVFG(graph)):
        model.infer({"a": 50.0}, ["b"])  # warnings are errors


def test_dates_and_durations_outside_the_fitted_range_are_warned_of():
    days = pd.date_range("2020-01-01", periods=40)
    frame = pd.DataFrame(
        {"day": days.strftime("%d.%m.%Y"), "wait": pd.to_timedelta(range(40), "h"), "x": range(40)}
    )
    model = vfg.TableModel(bend=False)
    model.fit(frame)
    for given in ("2021-03-04", pd.Timestamp("2021-03-04")):
        with pytest.warns(UserWarning, match="'day' = 2021-03-04.* from 2020-01-01 to 2020-02-09"):
            model.infer({"day": given}, ["x"])
    with pytest.warns(UserWarning, match="'wait' = 4 days"):
        model.infer({"wait": pd.Timedelta("4D")}, ["x"])
    model.infer({"day": "2020-01-05", "wait": pd.Timedelta("4h")}, ["x"])
    model.infer({"day": pd.NaT, "wait": None}, ["x"])
