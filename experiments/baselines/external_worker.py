"""Run one imputer of another library; for an environment that has them, called by external.py.

    python external_worker.py METHOD QUESTION.npz ANSWER.npz

Imports nothing of this project. An environment in which all of them run (Python 3.11):

    python -m venv baselines
    baselines/bin/pip install torch==2.13.0 numpy==1.26.4 scikit-learn==1.5.2 pandas==2.2.3 \\
        "scipy<1.14" lightgbm==4.5.0 xgboost==2.1.4 catboost optuna loguru==0.6.0 cloudpickle \\
        geomloss pydantic redis pyarrow "numba<0.61" kditransform "statsmodels<0.15" tqdm \\
        importlib_resources "setuptools<80"
    baselines/bin/pip install --no-deps hyperimpute==0.1.17 miceforest==6.0.5 utrees==0.3.0 \\
        gcimpute==0.0.4 ForestDiffusion==1.0.6

All but HyperImpute run with numpy 2, pandas 3 and scikit-learn 1.9 too. With pandas 3 three
assignments of HyperImpute, `X[col][mask] = ...`, have no effect; as `X.loc[mask, col] = ...` they
do what they did (squared error 0.8861 on yacht, 0.8860 with pandas 2; on climate_crashes 1.080 and
1.072). HyperImpute and ForestDiffusion keep no model for other rows, so they fill unseen rows along
with those to fit on. miceforest with 40 draws on yacht was measured with lightgbm 4.5.0, numpy 2.5
and pandas 3.1; the version of xgboost moves squared errors of Unmasking Trees by a few per cent
(2.1.4 and 3.4.1: 0.640 and 0.623 on yacht).
"""

from __future__ import annotations

import contextlib
import io
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

Answer = dict[str, Any]
ROUNDS = 5
DRAWS = 20


def frame(values: np.ndarray, categories: Sequence[int] = ()) -> pd.DataFrame:
    """A table with the column names that these libraries want."""
    table = pd.DataFrame(values, columns=[f"x{k}" for k in range(values.shape[1])])
    return table.astype({f"x{k}": "category" for k in categories})


def timed(action: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    begun = time.process_time()
    found = action(*arguments)
    return found, time.process_time() - begun


def fit_and_fill(
    fit: Callable[[], Any], fill: Callable[[np.ndarray], Any], question: Answer
) -> tuple[Any, Answer]:
    """Fit, then fill; where the fitted rows are filled, both are the time of fitting."""
    _, fit_seconds = timed(fit)
    filled, seconds = timed(fill, question.get("unseen", question["shown"]))
    if "unseen" not in question:
        fit_seconds += seconds
    return filled, {"fit_seconds": fit_seconds, "transform_seconds": seconds}


def stacked(question: Answer) -> tuple[np.ndarray, slice]:
    """All rows in one table, for methods that keep no model, and which of them are to be filled."""
    new = question.get("unseen", question["shown"][:0])
    return np.concatenate([question["shown"], new]), slice(-len(new), None)


def restore_old_names() -> None:
    """Give newer numpy and scikit-learn the names back that these libraries call."""
    from sklearn.base import BaseEstimator
    from sklearn.utils import validation

    if not hasattr(np, "round_"):
        vars(np)["round_"] = np.round
    if not hasattr(BaseEstimator, "_validate_data"):
        BaseEstimator._validate_data = validation.validate_data


def miceforest(question: Answer, count: int = 10) -> Answer:
    """Five rounds; the imputed tables are draws, their mean is the point."""
    import miceforest

    table = frame(question["shown"], question["categories"])
    kernel = miceforest.ImputationKernel(
        table, num_datasets=count, random_state=int(question["seed"])
    )

    def fill(values: np.ndarray) -> np.ndarray:
        same = "unseen" not in question
        found = kernel if same else kernel.impute_new_data(frame(values), random_state=0)
        # Without the round's number new data come back as they were before the first one.
        tables = [found.complete_data(dataset=k, iteration=ROUNDS) for k in range(count)]
        return np.stack([table.to_numpy(dtype=np.float64) for table in tables])

    threads = int(question["threads"])
    draws, times = fit_and_fill(lambda: kernel.mice(ROUNDS, num_threads=threads), fill, question)
    return {"point": draws.mean(axis=0), "draws": draws, **times}


def utrees(question: Answer) -> Answer:
    """Unmasking Trees with their defaults: 20 draws, whose mean is the point."""
    from utrees import UnmaskingTrees

    threads = {"n_jobs": int(question["threads"])}
    model = UnmaskingTrees(random_state=int(question["seed"]), xgboost_kwargs=threads)
    random = np.random.default_rng(int(question["seed"]))
    draws, times = fit_and_fill(
        lambda: model.fit(question["shown"].copy()),
        lambda values: unmask(model, values, random),
        question,
    )
    return {"point": draws.mean(axis=0), "draws": draws, **times}


def unmask(model: Any, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The draws of `UnmaskingTrees.impute`: each row's gaps one by one, in an order of its own.

    That method asks the trees about one row at a time, which takes about twenty times as long; here
    all rows of all draws whose next gap is in the same column are asked together.
    """
    rows = np.repeat(values[None], DRAWS, axis=0).reshape(-1, values.shape[1])
    # Gaps come first, in random order; the others are never reached.
    order = np.argsort(np.where(np.isnan(rows), random.random(rows.shape), 2.0), axis=1)
    gaps = np.isnan(rows).sum(axis=1)
    for step in range(gaps.max()):
        for column in range(rows.shape[1]):
            asked = np.flatnonzero((gaps > step) & (order[:, step] == column))
            constant = model.constant_vals_[column]
            if constant is not None:
                rows[asked, column] = constant
            elif len(asked):
                rows[asked, column] = model.trees_[column].sample(rows[asked])
    return rows.reshape(DRAWS, *values.shape)


def gcimpute(question: Answer) -> Answer:
    """A Gaussian copula with its defaults; 20 draws beside its own point imputation.

    Where its own choice of ordinal columns ends with an error, all are taken as continuous.
    """
    from gcimpute.gaussian_copula import GaussianCopula

    def fitted(**kinds: list[int]) -> Any:
        model = GaussianCopula(random_state=int(question["seed"]))
        model.fit(X=question["shown"], **kinds)
        return model

    def fit() -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                return fitted()
            except (ValueError, RuntimeError):
                return fitted(continuous=list(range(question["shown"].shape[1])))

    model, fit_seconds = timed(fit)
    point, times = fit_and_fill(lambda: None, lambda values: model.transform(X=values), question)
    times["fit_seconds"] += fit_seconds
    target = question.get("unseen", question["shown"])
    draws = np.moveaxis(np.asarray(model.sample_imputation(X=target, num=DRAWS)), 2, 0)
    return {"point": np.asarray(point, dtype=np.float64), "draws": draws, **times}


def forestdiffusion(question: Answer) -> Answer:
    """Diffusion by XGBoost with its defaults: 20 draws, whose mean is the point.

    It drops rows without any observed cell; they are filled with the columns' means.
    """
    from ForestDiffusion import ForestDiffusionModel

    table, chosen = stacked(question)
    known = ~np.isnan(table).all(axis=1)
    sizes = {"n_jobs": int(question["threads"]), "seed": int(question["seed"])}

    def run() -> np.ndarray:
        model = ForestDiffusionModel(table[known], diffusion_type="vp", **sizes)
        draws = np.repeat(np.nanmean(table, axis=0)[None, None], len(table), axis=1)
        draws = np.repeat(draws, DRAWS, axis=0)
        draws[:, known] = np.asarray(model.impute(k=DRAWS)).reshape(DRAWS, known.sum(), -1)
        return draws[:, chosen]

    draws, seconds = timed(run)
    times = {"fit_seconds": seconds, "transform_seconds": seconds}
    return {"point": draws.mean(axis=0), "draws": draws, **times}


def hyperimpute(question: Answer) -> Answer:
    """The defaults: a model per column and round, chosen by validation."""
    from hyperimpute.plugins.imputers import Imputers

    imputer = Imputers().get("hyperimpute", random_state=int(question["seed"]))
    table, chosen = stacked(question)
    filled, seconds = timed(imputer.fit_transform, frame(table))
    point = np.asarray(filled, dtype=np.float64)[chosen]
    return {"point": point, "fit_seconds": seconds, "transform_seconds": seconds}


def gain(question: Answer) -> Answer:
    """3,000 steps; the model behind the plugin, which would fit anew to the rows to be filled."""
    import torch
    from hyperimpute.plugins.imputers.plugin_gain import GainImputation
    from hyperimpute.utils.distributions import enable_reproducible_results

    enable_reproducible_results(int(question["seed"]))
    model = GainImputation(batch_size=128, n_epochs=3000, hint_rate=0.8)
    point, times = fit_and_fill(
        lambda: model.fit(torch.from_numpy(question["shown"])),
        lambda values: model.transform(torch.from_numpy(values)).numpy(),
        question,
    )
    return {"point": np.asarray(point, dtype=np.float64), **times}


METHODS = {
    "miceforest": miceforest,
    "miceforest20": lambda question: miceforest(question, 20),
    "miceforest40": lambda question: miceforest(question, 40),
    "utrees": utrees,
    "gcimpute": gcimpute,
    "forestdiffusion": forestdiffusion,
    "hyperimpute": hyperimpute,
    "gain": gain,
}


WITH_TORCH = ("hyperimpute", "gain")


def main() -> None:
    warnings.simplefilter("ignore")
    name, source, target = sys.argv[1:]
    with np.load(source) as found:
        question = dict(found)
    if name in WITH_TORCH:  # which takes longer to import than some methods to run
        import torch

        torch.set_num_threads(int(question["threads"]))
    restore_old_names()
    answer = METHODS[name](question)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    np.savez(target, peak_mb=peak, **answer)


if __name__ == "__main__":
    main()
