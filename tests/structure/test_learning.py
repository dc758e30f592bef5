"""learn_graph on simulated systems whose graphs are known, with missing cells and any columns."""

import json

import numpy as np
import pandas as pd
import pytest

import vfg
from vfg.structure import LearnedGraph, equivalence_class, structural_hamming_distance
from vfg.structure.latent_trees import neighbour_joining
from vfg.structure.pdag import edge_matrix

NAMES = ("a", "b", "c", "d", "e")
EDGES = [("a", "c"), ("b", "c"), ("c", "d"), ("b", "e")]


def simulate(function, rows=800, missing=0.3, seed=0):
    """a, b -> c -> d and b -> e, every effect the sum of functions of its causes and noise."""
    generator = np.random.default_rng(seed)
    table = {name: generator.normal(size=rows) for name in NAMES}
    for name in NAMES:
        causes = [cause for cause, effect in EDGES if effect == name]
        if causes:
            table[name] = sum(function(table[c]) for c in causes) + 0.5 * table[name]
            table[name] = (table[name] - table[name].mean()) / table[name].std()
    frame = pd.DataFrame(table)
    return frame.mask(generator.random(frame.shape) < missing)


def matrix(learned):
    return edge_matrix(NAMES, learned.edges)


@pytest.mark.parametrize("nonlinear", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_linear_graphs_are_found_up_to_their_class(nonlinear, missing):
    learned = vfg.learn_graph(simulate(lambda x: x, missing=missing), nonlinear=nonlinear)
    truth = edge_matrix(NAMES, EDGES)
    assert (equivalence_class(matrix(learned)) == equivalence_class(truth)).all()
    assert {frozenset(pair) for pair in learned.undirected} == {frozenset(("b", "e"))}
    assert set(learned.directed) == {("a", "c"), ("b", "c"), ("c", "d")}
    assert all(learned.gains[pair] > 0.0 for pair in learned.edges)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_curved_relations_tell_every_direction(missing):
    table = simulate(lambda x: np.tanh(2 * x) + 0.4 * x**2, missing=missing, seed=1)
    learned = vfg.learn_graph(table)
    assert sorted(learned.edges) == sorted(EDGES)
    assert not learned.undirected
    # A linear search cannot see most of these relations.
    assert sorted(vfg.learn_graph(table, nonlinear=False).edges) != sorted(EDGES)


def hub(seed, nodes=12, rows=600):
    """A table whose columns follow from the first and one other, so that no arrow can be known."""
    generator = np.random.default_rng(seed)
    table = generator.normal(size=(rows, nodes))
    for child in range(1, nodes):
        causes = [0] if child == 1 else [0, int(generator.integers(1, child))]
        size = len(causes)
        weights = generator.uniform(0.5, 2, size) * generator.choice([-1, 1], size)
        table[:, child] += table[:, causes] @ weights
        table[:, child] /= table[:, child].std()
    return {f"n{k}": column for k, column in enumerate(table.T)}


def test_arrows_of_effects_that_cancel_are_not_stated(monkeypatch):
    """The class of the best graph has 35 arrows in these tables, all of them false."""
    stated = [vfg.learn_graph(hub(seed), nonlinear=False) for seed in (5, 6)]
    assert sum(len(learned.directed) for learned in stated) <= 4
    for name, value in (("WEIGHT", 1e6), ("WALK", 2), ("WARM_UP", 1)):  # the best graph alone
        monkeypatch.setattr(f"vfg.structure.learning.{name}", value)
    assert len(vfg.learn_graph(hub(5), nonlinear=False).directed) > 10


def test_a_seed_fixes_the_graph():
    table = simulate(lambda x: x, rows=150)
    first, second = (vfg.learn_graph(table, nonlinear=False, seed=3) for _ in range(2))
    assert (first.edges, first.directed) == (second.edges, second.directed)


def test_cells_missing_at_random_do_not_mislead():
    """d is missing where c is large, which selects rows; complete rows lose the edge b -> e too."""
    table = simulate(lambda x: x, rows=2000, missing=0.0)
    table.loc[table["c"] > 0.3, ["d", "e"]] = np.nan
    learned = vfg.learn_graph(table)
    truth = equivalence_class(edge_matrix(NAMES, EDGES))
    assert structural_hamming_distance(equivalence_class(matrix(learned)), truth) == 0


def test_knowledge_is_kept_to_and_orients():
    table = simulate(lambda x: x)
    learned = vfg.learn_graph(table, tiers=[["b"], ["e"]], nonlinear=False)
    assert ("b", "e") in learned.directed
    learned = vfg.learn_graph(table, required=[("d", "a")], forbidden=[("b", "c"), ("c", "b")])
    assert ("d", "a") in learned.directed
    assert not {("b", "c"), ("c", "b")} & set(learned.edges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "ring"}, "kind"),
        ({"required": [("a", "q")]}, "no column 'q'"),
        ({"required": ["ab"]}, "pairs"),
        ({"required": [("a", "b")], "forbidden": [("a", "b")]}, "also forbidden"),
        ({"required": [("a", "b")], "tiers": [["b"], ["a"]]}, "also forbidden"),
        ({"required": [("a", "b"), ("b", "c"), ("c", "a")]}, "cannot all hold"),
        ({"tiers": ["a", "b"]}, "lists of columns"),
        ({"bootstraps": -1}, "bootstraps"),
        ({"kind": "tree", "forbidden": [("a", "b")]}, "for DAGs"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        vfg.learn_graph(simulate(lambda x: x, rows=30), **options)


def test_tables_without_two_varying_columns_are_refused():
    for kind in ("dag", "tree"):
        with pytest.raises(ValueError, match="at least two columns"):
            vfg.learn_graph({"a": [1.0, 2.0, 3.0], "b": [1.0, 1.0, 1.0]}, kind)


def test_mixed_columns_and_columns_that_say_nothing():
    generator = np.random.default_rng(1)
    group = generator.choice(["x", "y", "z"], size=600)
    size = (group == "x") * 2.0 + generator.normal(size=600)
    state = size + 0.5 * generator.normal(size=600) > 1.0
    frame = pd.DataFrame(
        {
            "group": group,
            "size": size,
            "state": state,
            "name": [f"row {k}" for k in range(600)],
            "same": 1.0,
            "never": np.nan,
        }
    )
    frame = frame.astype({"state": object}).mask(generator.random(frame.shape) < 0.2)
    learned = vfg.learn_graph(frame)
    found = {frozenset(pair) for pair in learned.edges}
    assert found == {frozenset(("group", "size")), frozenset(("size", "state"))}
    assert learned.columns == tuple(frame.columns)
    assert set(learned.graph.leaves) == set(frame.columns)
    # Neither splines nor codes tell whether a category causes a number.
    assert len(learned.undirected) == 2


def test_order_and_units_of_the_table_do_not_matter():
    table = simulate(lambda x: x)
    learned = vfg.learn_graph(table, nonlinear=False)
    other = vfg.learn_graph((1e6 + 1e-3 * table)[list("edcba")], nonlinear=False)
    assert set(other.directed) == set(learned.directed)
    ordered = table.sort_values("c").reset_index(drop=True)
    assert set(vfg.learn_graph(ordered, nonlinear=False).directed) == set(learned.directed)


def test_same_seed_same_graph():
    table = simulate(lambda x: np.sin(2 * x), rows=200)
    first, second = (vfg.learn_graph(table, seed=3) for _ in range(2))
    assert first.edges == second.edges
    assert first.gains == second.gains


def test_bootstrap_is_sure_of_true_edges_and_unsure_of_directions():
    learned = vfg.learn_graph(
        simulate(lambda x: x, rows=300, missing=0.1), bootstraps=20, nonlinear=False
    )
    assert set(learned.confidences) == set(learned.edges)
    assert all(learned.confidences[pair] > 0.9 for pair in learned.directed)
    assert all(0.0 <= share <= 1.0 for share in learned.directions.values())


def test_few_rows_and_wide_tables_give_an_answer():
    generator = np.random.default_rng(2)
    assert vfg.learn_graph(generator.normal(size=(12, 3))).columns == ("0", "1", "2")
    with pytest.raises(ValueError, match="at least 10 rows"):
        vfg.learn_graph(generator.normal(size=(8, 3)))
    wide = generator.normal(size=(25, 30))
    wide[generator.random(wide.shape) < 0.3] = np.nan
    assert len(vfg.learn_graph(wide, nonlinear=False).edges) < 15
    copied = generator.normal(size=(100, 2))
    doubled = np.column_stack([copied, copied[:, 0], copied.sum(1)])
    assert vfg.learn_graph(doubled, nonlinear=False).edges  # exact relations


def test_files_and_text(tmp_path):
    learned = vfg.learn_graph(simulate(lambda x: x), bootstraps=2, nonlinear=False)
    learned.save(tmp_path / "graph.json")
    again = LearnedGraph.load(tmp_path / "graph.json")
    assert again == learned
    assert vfg.read_graph(tmp_path / "graph.json") == learned.graph
    learned.save(tmp_path / "edges.csv")
    assert LearnedGraph.load(tmp_path / "edges.csv").edges == learned.edges
    assert vfg.read_graph(tmp_path / "edges.csv").leaves
    assert "b -- e" in repr(learned) or "e -- b" in repr(learned)
    with pytest.raises(ValueError, match="rename"):
        learned.save(tmp_path / "graph.txt")
    (tmp_path / "bad.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match="cause,effect"):
        LearnedGraph.load(tmp_path / "bad.csv")
    (tmp_path / "bad.json").write_text(json.dumps({"kind": "dag"}))
    with pytest.raises(ValueError, match="not a learned graph"):
        LearnedGraph.load(tmp_path / "bad.json")


def test_graphs_go_into_models():
    table = simulate(lambda x: x, rows=200)
    learned = vfg.learn_graph(table, nonlinear=False)
    model = vfg.GaussianVFG(learned.graph)
    model.fit(table)
    assert np.isfinite(model.log_prob(table).numpy()).all()
    assert vfg.VFG(learned.graph).graph == learned.graph
    filled = vfg.TableModel(graph=learned.graph, bend=False)
    filled.fit(table)
    assert not filled.fill(table).isna().any().any()


@pytest.mark.parametrize("kind", ["dag", "tree"])
def test_columns_without_names_are_held_by_position(kind):
    table = simulate(lambda x: x, rows=60).to_numpy()
    learned = vfg.learn_graph(table, kind)
    assert learned.graph.columns == tuple(range(5))
    model = vfg.TableModel(graph=learned.graph, bend=False)
    model.fit(table)
    assert not np.isnan(model.fill(table)).any()
    exact = vfg.GaussianVFG(learned.graph)
    exact.fit(table)
    dag = [("0", "2"), ("2", "3")]
    assert np.isfinite(exact.infer({}, "3", do={"2": 0.5}, dag=dag).mean["3"]).all()


def test_pictures_have_an_arrow_for_every_edge():
    learned = vfg.learn_graph(simulate(lambda x: x), nonlinear=False)
    ax = learned.plot()
    kinds = [patch.get_gid() for patch in ax.patches]
    assert kinds.count("directed") == 3
    assert kinds.count("undirected") == 1
    assert {text.get_text() for text in ax.texts} == set(NAMES)


def test_neighbour_joining_finds_the_tree_of_its_distances():
    """((a, b), c, (d, e)) with edges of different lengths: average linkage joins b and c first."""
    lengths = np.array([0.1, 1.0, 0.1, 0.4, 0.4])
    inner = {0: 0.3, 1: 0.3, 2: 0.0, 3: 0.5, 4: 0.5}
    distances = np.zeros((5, 5))
    for i in range(5):
        for j in range(5):
            together = {i, j} in ({0, 1}, {3, 4})
            between = 0.0 if together or i == j else inner[i] + inner[j]
            distances[i, j] = 0.0 if i == j else lengths[i] + lengths[j] + between
    merges = neighbour_joining(distances)
    assert {(0, 1), (3, 4)} <= {tuple(pair) for pair in merges}
    assert len(merges) == 4


@pytest.mark.slow
def test_tree_of_blocks_predicts_better_than_a_star():
    generator = np.random.default_rng(4)
    hidden = generator.normal(size=(300, 3))
    hidden[:, 0] += 0.6 * hidden[:, 1]
    blocks = [
        hidden[:, [k]] * generator.uniform(0.6, 1.4, 4) + 0.5 * generator.normal(size=(300, 4))
        for k in range(3)
    ]
    table = np.concatenate(blocks, axis=1)
    shuffled = generator.permutation(12)
    frame = pd.DataFrame(table[:, shuffled], columns=[f"c{k}" for k in range(12)])
    frame = frame.mask(generator.random(frame.shape) < 0.3)
    learned = vfg.learn_graph(frame, "tree")
    assert len(learned.graph.layers) > 2
    from vfg.gaussian import select

    star = select(frame, [vfg.Graph.star([vfg.Node(c, 1, columns=(c,)) for c in frame], width=3)])
    tree = select(frame, [learned.graph], seed=0)
    assert tree.best.score > star.best.score
