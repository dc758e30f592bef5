"""The pure function behind every engine: rows, cells, types and bits."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
import torch
from bigtable.tables_on_disk import linear_model, mixed, numbers, one_batch

import vfg
from vfg.bigtable import Filling, filled_batch, filled_schema
from vfg.bigtable.fill_batch import with_parameters
from vfg.sklearn import VFGImputer
from vfg.tables.schema import Ordinal

FILLINGS = [Filling(), Filling(flag=True), Filling(draws=3, flag=True, seed=5), Filling(level=0.8)]
CUTS = (0, 1, 37, 64, 100)


def in_parts(model, batch, filling, cuts):
    pairs = itertools.pairwise(cuts)
    parts = [filled_batch(model, batch.slice(a, b - a), a, filling) for a, b in pairs]
    return one_batch(pa.Table.from_batches(parts))


@pytest.fixture(scope="module")
def bent():
    imputer = VFGImputer(members=2, steps=5, random_state=0, flow=vfg.Coupling(blocks=2, hidden=8))
    return imputer.fit(mixed(60).drop_columns(["id", "note"])).model_


@pytest.mark.parametrize("filling", FILLINGS)
def test_bits_do_not_depend_on_how_a_table_is_cut(model, filling):
    batch = one_batch(mixed(100, seed=1))
    assert in_parts(model, batch, filling, CUTS).equals(filled_batch(model, batch, 0, filling))


@pytest.mark.slow
@pytest.mark.parametrize("filling", FILLINGS)
def test_bits_of_bent_models_do_not_depend_on_it_either(bent, filling):
    batch = one_batch(mixed(120, seed=1))
    whole = filled_batch(bent, batch, 0, filling)
    assert in_parts(bent, batch, filling, (0, 37, 90, 120)).equals(whole)


@pytest.mark.slow
def test_sections_known_in_part_do_not_change_other_rows():
    table = numbers(80)
    graph = vfg.Graph.star({"a": 2, "b": 2}, width=4)
    graph = vfg.Graph(
        [
            vfg.Node("a", 2, columns=("c0", "c1")),
            vfg.Node("b", 2, columns=("c2", "c3")),
            *(node for node in graph.nodes if node.name not in ("a", "b")),
        ],
        graph.edges,
    )
    imputer = VFGImputer(graph, members=2, steps=5, random_state=0)
    model = imputer.fit(table).model_
    assert model.members
    batch = one_batch(table)
    whole = filled_batch(model, batch)
    assert in_parts(model, batch, Filling(), tuple(range(81))).equals(whole)


def test_it_fills_what_the_imputer_fills(model):
    table = mixed(120, seed=1).drop_columns(["id", "note"])
    imputer = VFGImputer(bend=False, random_state=0).fit(mixed(300).drop_columns(["id", "note"]))
    filled = filled_batch(model, one_batch(table))
    assert pa.Table.from_batches([filled]).equals(imputer.transform(table).combine_chunks())
    low, high = imputer.predict_interval(table, 0.8, random_state=3)
    bounded = filled_batch(model, one_batch(table), 0, Filling(level=0.8, seed=3))
    assert bounded["c1_low"].to_pylist() == low["c1"].to_pylist()
    assert bounded["day_high"].to_pylist() == high["day"].to_pylist()
    drawn = filled_batch(model, one_batch(table), 0, Filling(draws=2, seed=3))
    second = imputer.sample(table, 2, proper=False, random_state=3)[1]
    assert drawn["word"].to_pylist()[1::2] == second["word"].to_pylist()


def test_observed_cells_other_columns_order_and_types_stay(model):
    batch = one_batch(
        mixed(50, seed=2).select(["note", "word", "c1", "day", "c0", "id", "whole", "truth", "c2"])
    )
    filled = filled_batch(model, batch, 1000)
    assert filled.schema.equals(batch.schema)
    for before, after in zip(batch.columns, filled.columns, strict=True):
        assert after.null_count == 0
        kept = before.is_valid()
        assert after.filter(kept).equals(before.filter(kept))


def test_draws_come_row_by_row_and_begin_those_of_more(model):
    batch = one_batch(mixed(20, seed=3))
    few, many = (filled_batch(model, batch, 0, Filling(draws=k)) for k in (2, 4))
    assert few["draw"].to_pylist() == [1, 2] * 20
    assert few["id"].to_pylist() == [name for name in batch["id"].to_pylist() for _ in range(2)]
    first = many.filter(pa.array(np.isin(many["draw"].to_numpy(), [1, 2])))
    assert first.equals(few)


def test_flags_say_which_cells_were_gaps(model):
    batch = one_batch(mixed(30, seed=4))
    flagged = filled_batch(model, batch, 0, Filling(flag=True))
    for name in ("c0", "word", "day"):
        assert flagged[f"{name}_filled"].equals(batch[name].is_null())
    assert "id_filled" not in flagged.schema.names


def test_intervals_hold_what_is_filled_and_observed_cells_are_their_own_ends(model):
    batch = one_batch(mixed(60, seed=5))
    found = filled_batch(model, batch, 0, Filling(level=0.9))
    low, value, high = (found[f"c0{end}"].to_numpy() for end in ("_low", "", "_high"))
    assert (low <= value).all()
    assert (value <= high).all()
    known = batch["c0"].is_valid().to_numpy(zero_copy_only=False)
    assert (low[known] == high[known]).all()
    assert (low[~known] < high[~known]).all()
    assert "word_low" not in found.schema.names


def test_a_column_of_nothing_but_gaps_gets_a_type_and_is_filled(model):
    table = mixed(20).set_column(0, "c0", pa.nulls(20)).set_column(4, "word", pa.nulls(20))
    filled = filled_batch(model, one_batch(table))
    assert filled.schema.field("c0").type == pa.float64()
    assert filled.schema.field("word").type == pa.string()
    assert filled["c0"].null_count == filled["word"].null_count == 0


def test_columns_of_categories_and_small_numbers_keep_their_types():
    table = pa.table(
        {
            "a": pa.array(["x", "y", None, "x"] * 10)
            .dictionary_encode()
            .cast(pa.dictionary(pa.int8(), pa.string())),
            "b": pa.array([1, 2, 3, None] * 10, pa.int8()),
            "c": pa.array([1.5, None, 2.5, 3.5] * 10, pa.float32()),
        }
    )
    filled = filled_batch(linear_model(table), one_batch(table))
    assert filled.schema.equals(table.schema)
    assert [column.null_count for column in filled.columns] == [0, 0, 0]


def test_an_empty_batch_has_the_schema_of_others(model):
    batch = one_batch(mixed(20))
    filling = Filling(level=0.5, flag=True)
    found = filled_batch(model, batch.slice(0, 0), 0, filling)
    assert found.num_rows == 0
    assert found.schema.equals(filled_batch(model, batch, 0, filling).schema)


def test_tables_without_names_go_by_position():
    array = numbers(40).to_pandas().to_numpy()
    model = VFGImputer(bend=False, random_state=0).fit(array).model_
    assert filled_batch(model, one_batch(numbers(40)))["c2"].null_count == 0
    with pytest.raises(ValueError, match="knows 4 columns without names, but the table has 3"):
        filled_schema(model, numbers(4, columns=3).schema)


def test_tables_that_do_not_fit_are_refused(model):
    table = mixed(5)
    with pytest.raises(ValueError, match="lacks the column 'c1'"):
        filled_batch(model, one_batch(table.drop_columns(["c1"])))
    with pytest.raises(ValueError, match="'c0' was continuous in fitting, but now holds string"):
        filled_batch(model, one_batch(table.set_column(0, "c0", pa.array(["x"] * 5))))
    with pytest.raises(ValueError, match="infinity in column 'c0'"):
        filled_batch(model, one_batch(table.set_column(0, "c0", pa.array([np.inf] * 5))))
    taken = table.append_column("draw", pa.array([1] * 5))
    with pytest.raises(ValueError, match="has a column 'draw' already"):
        filled_batch(model, one_batch(taken), 0, Filling(draws=2))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"draws": 0}, "draws must be a whole number"),
        ({"level": 1.0}, "level must be a number between"),
        ({"level": 0.9, "draws": 2}, "exclude each other"),
        ({"seed": -1}, "seed must be from 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Filling(**settings)


def ordered(cells, levels):
    return pa.DictionaryArray.from_arrays(
        pa.array([None if cell is None else levels.index(cell) for cell in cells], pa.int8()),
        pa.array(levels),
        ordered=True,
    )


def test_ordered_categories_keep_order_and_unseen_levels():
    levels = ["low", "mid", "high", "top"]
    cells = ["low", "mid", "high", None] * 10
    numbers = [float(levels.index(cell)) if cell else 1.0 for cell in cells]
    table = pa.table({"a": numbers, "g": ordered(cells, levels)})
    model = linear_model(table)
    assert model.encoding.schema["g"] == Ordinal(tuple(levels))
    filled = filled_batch(model, one_batch(table))["g"]
    assert filled.type.ordered
    assert filled.dictionary.to_pylist() == levels
    assert filled.null_count == 0
    part = pa.record_batch({"a": [2.0, 0.0], "g": ordered([None, None], ["high"])})
    filled = filled_batch(model, part)["g"]
    assert filled.dictionary.to_pylist() == levels
    assert filled.to_pylist()[1] in ("low", "mid")


def test_proper_draws_are_those_of_the_imputer():
    table = mixed(150).drop_columns(["id", "note"])
    imputer = VFGImputer(bend=False, random_state=0).fit(table)
    filling = with_parameters(imputer.model_, table, 150, Filling(draws=3, seed=2, proper=True))
    drawn = filled_batch(imputer.model_, one_batch(table), 0, filling)
    for place, expected in enumerate(imputer.sample(table, 3, random_state=2)):
        own = drawn.filter(pa.array(drawn["draw"].to_numpy() == place + 1))
        assert own.drop_columns(["draw"]).equals(one_batch(expected))


def test_settings_of_proper_draws_are_named_and_others_are_as_before():
    assert Filling(draws=2).to_dict() == {"draws": 2, "level": None, "flag": False, "seed": 0}
    assert Filling(draws=2, proper=True).to_dict()["proper"]


def test_parameters_of_many_rows_vary_less():
    table = numbers(400)
    model = linear_model(table)
    few, many = (
        with_parameters(model, table, rows, Filling(draws=20, proper=True)).parameters.parameters
        for rows in (400, 40_000)
    )
    spread = [torch.stack([one.mean for one in draws]).std(0) for draws in (few, many)]
    assert torch.allclose(spread[1], 0.1 * spread[0], rtol=1e-6)
