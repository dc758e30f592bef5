"""Learned graphs in models: what they are fitted over, and which causes they keep."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import vfg
from vfg.sklearn import VFGImputer


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    z = generator.normal(size=300)
    x = z + 0.5 * generator.normal(size=300)
    y = x + z + 0.5 * generator.normal(size=300)
    frame = pd.DataFrame({"z": z, "x": x, "y": y})
    return frame.mask(generator.random(frame.shape) < 0.1)


@pytest.fixture(scope="module")
def learned(table):
    return vfg.learn_graph(table, tiers=[["z"], ["x"], ["y"]], nonlinear=False)


def test_models_of_graphs_follow_the_learned_edges(table, learned):
    assert vfg.VFG(learned).graph == learned.graph
    model = vfg.GaussianVFG(learned)
    model.fit(table)
    assert model.graph.network.edges == learned.edges
    kept = model.infer({}, "y", do={"x": 1.0}).mean["y"]
    assert kept == pytest.approx(model.infer({}, "y", do={"x": 1.0}, dag=learned).mean["y"])
    row = {"z": 0.0, "x": 0.0, "y": 0.5}
    assert model.counterfactual(row, {"x": 1.0}).mean["y"][0] == pytest.approx(1.5, abs=0.2)


def test_a_table_model_keeps_a_dag_beside_one_root(table, learned, tmp_path):
    imputer = clone(VFGImputer(learned, bend=False, random_state=0)).fit(table)
    plain = VFGImputer(bend=False, random_state=0).fit(table)
    assert imputer.transform(table).equals(plain.transform(table))
    vfg.save(imputer.model_, tmp_path / "model.vfg")
    model = vfg.load(tmp_path / "model.vfg")
    assert model.graph.network == learned.network
    answer = model.infer({}, "y", do={"x": [-1.0, 1.0]})
    assert np.diff(answer.mean["y"])[0] == pytest.approx(2.0, abs=0.3)
    with pytest.raises(ValueError, match="this model was fitted without one"):
        plain.model_.infer({}, "y", do={"x": 1.0})


def test_edges_without_a_known_direction_are_warned_of(table):
    learned = vfg.learn_graph(table[["z", "x"]], nonlinear=False)
    assert learned.undirected
    model = vfg.TableModel(bend=False, graph=learned)
    model.fit(table[["z", "x"]])
    assert vfg.modelfile.loads(vfg.modelfile.dumps(model)).graph.network == learned.network
    cause, effect = learned.edges[0]
    with pytest.warns(UserWarning, match="does not determine the direction"):
        model.infer({}, effect, do={cause: 0.5})


def test_a_learned_tree_is_the_graph_of_the_parts(table):
    tree = vfg.learn_graph(table, "tree")
    model = vfg.TableModel(bend=False, graph=tree)
    model.fit(table)
    assert model.graph.network is None
    assert {n.name for n in model.graph.nodes} == {n.name for n in tree.graph.nodes}


def test_other_graphs_are_refused(table, learned):
    for wrong in ("graph.json", [("z", "x")]):
        with pytest.raises(TypeError, match="learn_graph"):
            vfg.GaussianVFG(wrong)
        with pytest.raises(TypeError, match="learn_graph"):
            vfg.TableModel(graph=wrong)
    model = vfg.TableModel(bend=False, graph=learned)
    with pytest.raises(ValueError, match="'y', which is no column of the table"):
        model.fit(table[["z", "x"]])
