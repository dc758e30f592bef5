"""Maps of missing cells."""

import numpy as np
import pandas as pd
import pytest
import torch
from optional import polars as pl

from vfg import plots
from vfg.plots.imputations import missing_bands

GAPS = np.array([[False, True], [True, True], [False, False]])


def tables():
    values = np.where(GAPS, np.nan, 1.0)
    frame = pd.DataFrame({"n": values[:, 0], "c": pd.Categorical([None, None, "x"])})
    lists = [[1, None], [None, None], [1, "x"]]
    return {
        "array": lambda: values,
        "tensor": lambda: torch.from_numpy(values),
        "pandas": lambda: frame,
        "polars": lambda: pl.DataFrame({"n": [1, None, 2], "c": [None, None, "x"]}),
        "lists": lambda: lists,
    }


@pytest.mark.parametrize("make", tables().values(), ids=tables())
def test_tables_of_every_kind_show_their_gaps(make):
    ax = plots.missingness(make())
    assert ax.images[0].get_array().tolist() == GAPS.astype(float).tolist()
    assert [tick.get_text().split()[-1] for tick in ax.get_xticklabels()] == ["33%", "67%"]


def test_long_tables_are_drawn_in_bands_that_keep_the_shares():
    gaps = np.random.default_rng(0).random((4000, 3)) < [0.1, 0.5, 0.9]
    ax = plots.missingness(np.where(gaps, np.nan, 0.0))
    shown = np.asarray(ax.images[0].get_array())
    assert shown.shape == (400, 3)
    np.testing.assert_allclose(shown.mean(axis=0), gaps.mean(axis=0))


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="no cells"):
        plots.missingness(np.empty((0, 3)))


def test_maps_of_gaps_keep_their_share():
    gaps = np.random.default_rng(0).random((1000, 3)) < 0.3
    bands = missing_bands(gaps, 100)
    assert bands.shape == (100, 3)
    np.testing.assert_allclose(bands.mean(0), gaps.mean(0))
