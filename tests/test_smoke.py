"""Everything once, as a new user would: build, train with gaps, ask, save, load, ask again."""

import pandas
import torch

import vfg


def test_from_a_frame_with_gaps_to_an_answer_and_back_from_a_file(tmp_path, untouched_generators):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(300, 2, generator=generator)
    table = torch.cat([z, z.sin(), (z[:, :1] > 0).float(), z.sum(1, keepdim=True)], dim=1)
    table[torch.rand(table.shape, generator=generator) < 0.2] = torch.nan
    frame = pandas.DataFrame(table.numpy(), columns=["a", "b", "c", "d", "flag", "total"])
    leaves = [
        vfg.Node("place", 2, columns=("a", "b")),
        vfg.Node("wave", 2, columns=("c", "d")),
        vfg.Node("flag", 1, columns=("flag",)),
        vfg.Node("total", 1, columns=("total",)),
    ]
    nodes = [*leaves, vfg.Node("pair", 4), vfg.Node("root", 6)]
    edges = [("place", "pair"), ("wave", "pair"), ("pair", "root"), ("flag", "root")]
    graph = vfg.Graph(nodes, [vfg.Edge(*edge) for edge in [*edges, ("total", "root")]])
    model = vfg.VFG(
        graph,
        flow=vfg.Coupling(blocks=2, hidden=16),
        aggregation="gaussian",
        likelihood={"flag": "bernoulli", "*": "gaussian"},
    )
    history = vfg.fit(model, frame, epochs=5, batch=64, beta=0.01, progress=False)
    assert history[-1].objective > history[0].objective
    answer = model.infer({"a": 1.0, "b": -0.5}, targets=["total", "wave", "flag", "root"])
    assert answer.std["total"].item() > 0
    assert 0 <= answer.mean["flag"].item() <= 1
    assert answer.samples(7)["wave"].shape == (7, 1, 2)
    vfg.save(model, tmp_path / "model.vfg")
    other = vfg.load(tmp_path / "model.vfg")
    again = other.infer({"b": -0.5, "a": 1.0}, targets=["total", "root"])
    assert torch.equal(again.mean["total"], answer.mean["total"])
    assert torch.equal(again.samples(3)["root"], answer.samples(7)["root"][:3])
    filled = other.infer(frame).to_frame()
    assert list(filled.columns) == list(frame.columns)
    known = frame.notna()
    assert (filled[known] == frame[known]).to_numpy()[known.to_numpy()].all()
    assert not filled.isna().to_numpy().any()
