"""Run graph learners and causal models of other libraries, called by graph_methods.py.

    python graph_worker.py

Reads lines `METHOD QUESTION.npz ANSWER.npz` and says `done` after each, so that libraries are
imported once. Imports nothing of this project. An environment in which all run (Python 3.11):

    python -m venv graphs
    graphs/bin/pip install torch==2.13.0 causal-learn==0.1.4.8 lingam==1.13.0 dagma==1.1.1 \\
        gcastle==1.0.4 pyAgrum==3.3.1 pgmpy==1.1.2 dowhy
    graphs/bin/pip install --no-deps cdt==0.6.0

Graphs are matrices: `[i, j]` for an arrow from i to j, both ways for an edge without a direction.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import time
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

BINS = 5
"""Quantile bins of a column for methods of discrete columns."""
DRAWS = 5000
"""Draws of an intervened model, for methods that draw."""
Answer = dict[str, Any]


def frame(table: Any) -> pd.DataFrame:
    return pd.DataFrame(table, columns=[f"x{k}" for k in range(table.shape[1])])


def ges(question: Answer) -> Answer:
    from causallearn.search.ScoreBased.GES import ges as search

    return {"found": search(question["table"], "local_score_BIC")["G"].graph == -1}


def mvpc(question: Answer) -> Answer:
    from causallearn.search.ConstraintBased.PC import pc

    options = {"mvpc": True, "show_progress": False}
    return {"found": pc(question["table"], 0.01, "mv_fisherz", **options).G.graph == -1}


def direct_lingam(question: Answer) -> Answer:
    import lingam

    model = lingam.DirectLiNGAM()
    model.fit(question["table"])
    return {"found": model.adjacency_matrix_.T != 0, "is_dag": True}


def dagma(question: Answer) -> Answer:
    """The linear model with the settings of its documentation."""
    from dagma.linear import DagmaLinear

    weights = DagmaLinear(loss_type="l2").fit(question["table"], lambda1=0.02)
    return {"found": weights != 0, "is_dag": True}


def notears(question: Answer) -> Answer:
    from castle.algorithms import Notears

    model = Notears()
    model.learn(question["table"])
    return {"found": np.asarray(model.causal_matrix) != 0, "is_dag": True}


def miic(question: Answer) -> Answer:
    import pyagrum

    table = question["table"]
    is_discrete = (table == np.round(table)).all()
    codes = frame(table).apply(
        lambda column: (
            column if is_discrete else pd.qcut(column, BINS, labels=False, duplicates="drop")
        )
    )
    # Labels that are no numbers, which a learner would take for continuous.
    learner = pyagrum.BNLearner(codes.map(lambda code: f"c{code:g}"))
    learner.useMIIC()
    mixed = learner.learnPDAG()
    found = np.zeros((table.shape[1],) * 2, dtype=bool)
    for i, j in mixed.arcs():
        found[i, j] = True
    for i, j in mixed.edges():
        found[i, j] = found[j, i] = True
    return {"found": found}


def hill_climbing(question: Answer) -> Answer:
    """The search of pgmpy with the BIC of a Gaussian, or of a discrete network."""
    from pgmpy.estimators import HillClimbSearch

    table = question["table"]
    is_discrete = bool((table == np.round(table)).all())
    data = frame(table).astype("int").astype("category") if is_discrete else frame(table)
    score = "bic-d" if is_discrete else "bic-g"
    model = HillClimbSearch(data).estimate(scoring_method=score, show_progress=False)
    found = np.zeros((table.shape[1],) * 2, dtype=bool)
    for cause, effect in model.edges():
        found[int(cause[1:]), int(effect[1:])] = True
    return {"found": found, "is_dag": True}


def sachs(question: Answer) -> Answer:
    """The 853 rows of the first experiment, before any intervention."""
    spec = find_spec("cdt")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("cdt, which carries the table, is not installed")
    file = Path(spec.origin).parent / "data" / "resources" / "cyto_full_data.csv"
    names = file.read_text().splitlines()[0].split(",")
    return {"names": names, "table": np.loadtxt(file, delimiter=",", skiprows=1)[:853]}


def network(question: Answer) -> Answer:
    """Rows of a network that pgmpy bundles: numbers of Gaussian ones, codes of discrete ones."""
    import gzip
    import json

    import pgmpy

    name, generator = str(question["model"]), np.random.default_rng(int(question["seed"]))
    folder = Path(str(pgmpy.__file__)).parent / "utils" / "example_models"
    rows = int(question["rows"])
    if (folder / f"{name}.json").is_file():
        described = json.loads((folder / f"{name}.json").read_text())
        nodes, arcs = described["nodes"], described["arcs"]
        drawn: dict[str, Any] = {}
        while len(drawn) < len(nodes):
            for node in nodes:
                parts = described["cpds"][node]
                causes = {k: v[0] for k, v in parts["coefficients"].items() if k != "(Intercept)"}
                if node in drawn or any(cause not in drawn for cause in causes):
                    continue
                noise = generator.normal(size=rows) * np.sqrt(parts["variance"][0])
                centre = parts["coefficients"]["(Intercept)"][0]
                drawn[node] = noise + centre + sum(w * drawn[c] for c, w in causes.items())
        table = np.column_stack([drawn[node] for node in nodes])
    else:
        from pgmpy.readwrite import BIFReader

        text = gzip.decompress((folder / f"{name}.bif.gz").read_bytes()).decode()
        model = BIFReader(string=text).get_model()
        nodes, arcs = sorted(model.nodes()), model.edges()
        sampled = model.simulate(rows, seed=int(question["seed"]), show_progress=False)
        table = np.column_stack([sampled[node].astype("category").cat.codes for node in nodes])
    dag = np.zeros((len(nodes),) * 2, dtype=bool)
    for cause, effect in arcs:
        dag[nodes.index(cause), nodes.index(effect)] = True
    return {"table": table, "dag": dag}


def dowhy_gcm(question: Answer) -> Answer:
    """Mechanisms chosen by DoWhy's own comparison, good quality."""
    import networkx
    from dowhy import gcm

    gcm.config.disable_progress_bars()
    gcm.config.set_default_n_jobs(1)  # so that its processor time is that of this process
    names, table = [str(name) for name in question["names"]], question["table"]
    model = gcm.StructuralCausalModel(networkx.DiGraph(question["edges"].tolist()))
    data = pd.DataFrame(table, columns=names)
    gcm.util.general.set_random_seed(0)
    gcm.auto.assign_causal_mechanisms(model, data, quality=gcm.auto.AssignmentQuality.GOOD)
    gcm.fit(model, data)
    means = []
    for x in question["at"]:
        drawn = gcm.interventional_samples(
            model, {"x": lambda _, x=x: x}, num_samples_to_draw=DRAWS
        )
        means.append(float(drawn["y"].mean()))
    return {"means": np.array(means)}


def pgmpy_gaussian(question: Answer) -> Answer:
    """A linear Gaussian network, intervened on and drawn from."""
    from pgmpy.models import LinearGaussianBayesianNetwork

    data = pd.DataFrame(question["table"], columns=[str(name) for name in question["names"]])
    model = LinearGaussianBayesianNetwork([tuple(edge) for edge in question["edges"].tolist()])
    model.fit(data)
    means = [
        float(model.simulate(n_samples=DRAWS, do={"x": float(x)}, seed=0)["y"].mean())
        for x in question["at"]
    ]
    return {"means": np.array(means)}


def pgmpy_bins(question: Answer) -> Answer:
    """A discrete network of quantile bins; E[y | do(x)] from the means of the bins of y."""
    from pgmpy.inference import CausalInference
    from pgmpy.models import DiscreteBayesianNetwork

    data = pd.DataFrame(question["table"], columns=[str(name) for name in question["names"]])
    codes = data.apply(lambda column: pd.qcut(column, BINS, labels=False))
    ends = np.quantile(data["x"], np.linspace(0, 1, BINS + 1)[1:-1])
    model = DiscreteBayesianNetwork([tuple(edge) for edge in question["edges"].tolist()])
    model.fit(codes)
    inference, centres = CausalInference(model), data["y"].groupby(codes["y"]).mean()
    by_bin = {}
    for code in range(BINS):
        answer = inference.query(["y"], do={"x": code}, show_progress=False)
        by_bin[code] = sum(answer.get_value(y=k) * centres[k] for k in range(BINS))
    return {"means": np.array([by_bin[int(np.searchsorted(ends, x))] for x in question["at"]])}


METHODS = {
    "GES": (ges, "causallearn.search.ScoreBased.GES", "causal-learn"),
    "MVPC": (mvpc, "causallearn.search.ConstraintBased.PC", "causal-learn"),
    "DirectLiNGAM": (direct_lingam, "lingam", "lingam"),
    "DAGMA": (dagma, "dagma.linear", "dagma"),
    "NOTEARS": (notears, "castle.algorithms", "gcastle"),
    "MIIC": (miic, "pyagrum", "pyagrum"),
    "hill-climbing": (hill_climbing, "pgmpy.estimators", "pgmpy"),
    "Sachs": (sachs, "numpy", "cdt"),
    "network": (network, "pgmpy", "pgmpy"),
    "DoWhy-GCM": (dowhy_gcm, "dowhy.gcm", "dowhy"),
    "pgmpy-gaussian": (pgmpy_gaussian, "pgmpy.models", "pgmpy"),
    "pgmpy-bins": (pgmpy_bins, "pgmpy.models", "pgmpy"),
}


def stop(*_: object) -> None:
    raise TimeoutError("stopped at the limit of processor seconds")


def answer_to(name: str, question: Answer) -> Answer:
    """The answer with its processor seconds, or the error in words; imports are not counted."""
    method, module, package = METHODS[name]
    begun = time.process_time()
    try:
        importlib.import_module(module)
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, float(question.get("limit", 0.0)))
        answer = method(question)
        answer["version"] = version(package)
    except Exception as error:  # whatever another library raises is a result
        answer = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    return {**answer, "seconds": time.process_time() - begun}


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, stop)
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print do so to the log
    for line in sys.stdin:
        name, source, target = line.split()
        with np.load(source) as found:
            question = dict(found)
        np.savez(target, **answer_to(name, question))
        print("done", file=said, flush=True)


if __name__ == "__main__":
    main()
