"""Tables for the imputer: numbers that hang together, mixed columns, and light settings."""

from __future__ import annotations

import numpy as np
import pandas as pd

import vfg
from vfg.sklearn import VFGImputer

LIGHT = {
    "members": 2,
    "mixtures": 1,
    "steps": 2,
    "width": 4,
    "flow": vfg.Coupling(blocks=1, hidden=4, layers=1),
    "random_state": 0,
}
"""As bent as any imputer, but quickly trained."""


def linear(**settings):
    """An imputer that is the exact linear model alone."""
    return VFGImputer(bend=False, random_state=0, **settings)


def light(**settings):
    """A bent imputer that is quickly trained."""
    return VFGImputer(**(LIGHT | settings))


def numbers(rows=80, columns=4, seed=0, share=0.25):
    """Correlated numbers of different scales and the same with gaps, none of them an empty row."""
    loadings = np.random.default_rng(columns).normal(size=(2, columns))
    generator = np.random.default_rng(seed)
    factors = generator.normal(size=(rows, 2)) @ loadings
    whole = factors + 0.3 * generator.normal(size=(rows, columns))
    whole = whole * 10.0 ** np.arange(columns) + np.arange(columns)
    gaps = generator.random(whole.shape) < share
    gaps[gaps.all(1), 0] = False
    return whole, np.where(gaps, np.nan, whole)


def mixed(rows=60, seed=0, share=0.2):
    """A frame of pandas with a column of every kind and gaps in all of them."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=rows)
    noisy = hidden[:, None] + 0.5 * generator.normal(size=(rows, 6))
    frame = pd.DataFrame(
        {
            "height": 170.0 + 10.0 * noisy[:, 0],
            "age": pd.array(np.round(40 + 12 * noisy[:, 1]).astype(int), dtype="Int64"),
            "member": pd.array(noisy[:, 2] > 0, dtype="boolean"),
            "city": np.array(["Bern", "Oslo", "Rome"])[np.digitize(noisy[:, 3], [-0.5, 0.5])],
            "grade": pd.Categorical.from_codes(
                np.digitize(noisy[:, 4], [-0.7, 0.7]), ["low", "mid", "high"], ordered=True
            ),
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(np.round(100 * noisy[:, 5]), unit="D"),
        },
        index=[f"row {k}" for k in range(rows)],
    )
    frame["city"] = frame["city"].astype(object)
    return frame.mask(generator.random(frame.shape) < share)
