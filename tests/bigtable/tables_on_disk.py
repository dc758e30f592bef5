"""Small tables with gaps, and models of them, for the tests of big ones."""

import numpy as np
import pyarrow as pa

from vfg.imputation import imputer


def numbers(rows, *, columns=4, gaps=0.2, seed=0):
    """Correlated columns of floats with gaps, as an Arrow table."""
    generator = np.random.default_rng(seed)
    cause = generator.normal(size=(rows, 2))
    values = cause @ generator.normal(size=(2, columns)) + 0.3 * generator.normal(
        size=(rows, columns)
    )
    missing = generator.random(values.shape) < gaps
    return pa.table({f"c{k}": pa.array(values[:, k], mask=missing[:, k]) for k in range(columns)})


def mixed(rows, *, seed=0):
    """A table of all kinds of columns, two of which no model needs to know."""
    generator = np.random.default_rng(seed)
    table = numbers(rows, columns=3, seed=seed)
    base = table["c0"].fill_null(0.0).to_numpy()
    kinds = {
        "whole": np.rint(10 * base).astype(np.int64),
        "word": np.where(base > 0.5, "high", np.where(base > -0.5, "mid, dle", "low")),
        "truth": base > 0,
        "day": np.datetime64("2020-01-01") + np.rint(50 * base).astype(int),
    }
    for name, cells in kinds.items():
        missing = generator.random(rows) < 0.2
        table = table.append_column(name, pa.array(cells, mask=missing))
    table = table.append_column("id", pa.array([f"{k:06d}" for k in range(rows)]))
    return table.append_column("note", pa.array(["NA", "", 'say "hi"'] * rows)[:rows])


def linear_model(table):
    """A model of a table that takes a moment to fit."""
    return imputer.VFGImputer(bend=False, random_state=0).fit(table).model_


def model_of_mixed(rows=300):
    """A linear model of the columns of `mixed` that tell something."""
    return linear_model(mixed(rows).drop_columns(["id", "note"]))


def one_batch(table):
    """An Arrow table as one record batch."""
    return table.combine_chunks().to_batches()[0]
