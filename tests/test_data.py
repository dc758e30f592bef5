"""Tables and masks against what they promise."""

import numpy as np
import pytest
from scipy.special import expit

from vfg.data import BUNDLED, california, mar, mcar, mnar_self, uci, uci_names

MECHANISMS = {
    "mcar": lambda table, rate, seed: mcar(table.shape, rate, seed),
    "mar": mar,
    "mnar_self": mnar_self,
}


@pytest.fixture
def table():
    """Many rows, one column with heavy tails, one of two values, one constant."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(20_000, 6)) * [1, 10, 0.1, 1, 1, 1]
    values[:, 3] = np.exp(2.0 * values[:, 3])
    values[:, 4] = values[:, 4] > 1.0
    values[:, 5] = 7.0
    return values


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with one small UCI table and a little of California."""
    made = np.arange(12.0).reshape(4, 3)
    np.savez(tmp_path / "uci_tabular.npz", tiny__X=made, tiny__y=[0], tiny__columns=["a", "b", "c"])
    np.savez(tmp_path / "california_housing.npz", data=made, columns=["u", "v", "w"])
    monkeypatch.setenv("VFG_DATA", str(tmp_path))
    return made


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_every_column_that_may_be_missing_is_missing_at_the_rate(name, rate, table):
    mask = MECHANISMS[name](table, rate, 3)
    shares = mask.mean(axis=0)
    never = shares == 0
    assert never.sum() == (2 if name == "mar" else 0)
    # Five standard deviations of a share of independent draws, which these bounds only overstate.
    np.testing.assert_allclose(shares[~never], rate, atol=5 * np.sqrt(rate * (1 - rate) / 20_000))


@pytest.mark.parametrize("name", MECHANISMS)
def test_masks_depend_on_the_seed_alone(name, table, untouched_generators):
    draw, before = MECHANISMS[name], table.copy()
    mask = draw(table, 0.3, 1)
    assert mask.dtype == bool
    assert mask.shape == table.shape
    assert (draw(table, 0.3, 1) == mask).all()
    assert (draw(table, 0.3, 2) != mask).any()
    assert (table == before).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_masks_do_not_depend_on_the_units_of_the_columns(name, table):
    draw = MECHANISMS[name]
    scaled = 3.0 * table - 5.0
    assert (draw(scaled, 0.4, 0) == draw(table, 0.4, 0)).mean() > 0.9999


def test_cells_missing_completely_at_random_are_independent():
    mask = mcar((200_000, 3), 0.4, 0).astype(float)
    np.testing.assert_allclose(np.corrcoef(mask.T), np.eye(3), atol=0.01)


@pytest.mark.parametrize(("columns", "shown"), [(2, 1), (3, 1), (5, 1), (6, 2), (31, 10)])
def test_a_third_of_the_columns_is_always_observed(columns, shown):
    mask = mar(np.random.default_rng(0).normal(size=(500, columns)), 0.5, 0)
    assert (~mask.any(axis=0)).sum() == shown


def test_missing_at_random_looks_at_the_observed_columns_only(table):
    mask = mar(table, 0.3, 5)
    hidden = mask.any(axis=0)
    others = table.copy()
    others[:, hidden] = np.random.default_rng(9).permutation(table[:, hidden])
    assert (mar(others, 0.3, 5) == mask).all()
    seen = table.copy()
    seen[:, ~hidden] = np.random.default_rng(9).permutation(table[:, ~hidden])
    assert (mar(seen, 0.3, 5) != mask).any()


def test_missing_at_random_follows_a_logistic_of_the_observed_column():
    values = np.random.default_rng(0).normal(size=(200_000, 3))
    mask = mar(values, 0.3, 0)
    hidden = mask.any(axis=0)
    driver = np.sort(values[:, ~hidden][:, 0])
    ordered = mask[np.argsort(values[:, ~hidden][:, 0])][:, hidden]
    for column in ordered.T:
        shares = np.array([part.mean() for part in np.array_split(column, 10)])
        centres = np.array([part.mean() for part in np.array_split(driver, 10)])
        slope = np.polyfit(centres, np.log(shares / (1 - shares)), 1)[0]
        assert abs(slope) == pytest.approx(1.0, abs=0.05)


def test_large_values_hide_themselves_by_a_logistic_with_slope_one():
    values = np.random.default_rng(1).normal(size=(200_000, 1))
    mask = mnar_self(4.0 * values + 2.0, 0.3, 0)
    near = {place: mask[np.abs(values - place) < 0.1].mean() for place in (-1.0, 0.0, 1.0)}
    logits = {place: np.log(share / (1 - share)) for place, share in near.items()}
    assert logits[1.0] - logits[0.0] == pytest.approx(1.0, abs=0.1)
    assert logits[0.0] - logits[-1.0] == pytest.approx(1.0, abs=0.1)
    assert expit(values + logits[0.0]).mean() == pytest.approx(0.3, abs=0.01)


def test_self_masking_of_one_column_does_not_look_at_the_others(table):
    mask = mnar_self(table, 0.3, 0)
    others = table.copy()
    others[:, 1:] = np.random.default_rng(9).permutation(table[:, 1:])
    assert (mnar_self(others, 0.3, 0)[:, 0] == mask[:, 0]).all()


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 30.0])
def test_rates_outside_the_unit_interval_are_refused(name, rate, table):
    with pytest.raises(ValueError, match=f"strictly between 0 and 1, not {rate}"):
        MECHANISMS[name](table, rate, 0)


def test_missing_at_random_needs_two_columns():
    with pytest.raises(ValueError, match="at least two columns, but it has 1"):
        mar(np.zeros((5, 1)), 0.3, 0)


@pytest.mark.parametrize("name", BUNDLED)
def test_tables_of_scikit_learn_need_no_folder(name, monkeypatch):
    monkeypatch.delenv("VFG_DATA", raising=False)
    values, columns = uci(name)
    assert values.dtype == np.float64
    assert values.shape[1] == len(columns)
    assert np.isfinite(values).all()
    assert uci_names() == tuple(sorted(BUNDLED))


@pytest.mark.parametrize("load", [lambda: uci("spambase"), california])
def test_a_table_that_is_not_there_says_to_set_the_folder(load, monkeypatch):
    monkeypatch.delenv("VFG_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="set the environment variable VFG_DATA"):
        load()


def test_tables_are_read_from_the_folder(folder):
    values, columns = uci("tiny")
    assert (values == folder).all()
    assert columns == ("a", "b", "c")
    assert uci_names() == tuple(sorted([*BUNDLED, "tiny"]))
    values, columns = california()
    assert (values == folder).all()
    assert columns == ("u", "v", "w")


def test_a_folder_without_the_file_is_like_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("VFG_DATA", str(tmp_path))
    assert uci("iris")[0].shape == (150, 4)
    with pytest.raises(FileNotFoundError, match=r"california_housing\.npz"):
        california()
