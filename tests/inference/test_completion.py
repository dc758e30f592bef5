"""Sections observed in part: more evidence makes answers better, with the right spread."""

import numpy as np
import pandas as pd
import pytest
import torch

import vfg
from vfg.inference.completion import Mixture, fit_mixture


@pytest.fixture(scope="module", params=[lambda t: t, np.square], ids=["line", "square"])
def fitted(request):
    generator = np.random.default_rng(0)
    t = generator.uniform(-2, 2, 450)
    noise = generator.normal(size=(3, 450))
    first, second = t + 0.05 * noise[0], request.param(t) + 0.05 * noise[1]
    table = pd.DataFrame({"p1": first, "p2": second, "r": 2 * t + 0.1 * noise[2]})
    nodes = [vfg.Node("P", 2, columns=("p1", "p2")), vfg.Node("R", 1, columns=("r",))]
    model = vfg.VFG(vfg.Graph.star(nodes, width=6), flow=vfg.Coupling(blocks=3, hidden=32))
    vfg.fit(
        model, table[:300], masking=vfg.Masking(rate=1.0), batch=100, epochs=30, progress=False,
        steps=3,
    )  # fmt: skip
    return model, table[300:]


def error_and_coverage(model, table, names):
    answer = model.infer(table[names], targets=["p2"])
    low, high = (end["p2"].numpy() for end in answer.interval(0.9))
    truth = table["p2"].to_numpy()[:, None]
    error = np.sqrt(np.mean((answer.mean["p2"].numpy().reshape(-1, 1) - truth) ** 2))
    inside = (low.reshape(-1, 1) <= truth) & (truth <= high.reshape(-1, 1))
    assert bool(answer.converged.all())
    return error / truth.std(), inside.mean()


def test_a_part_of_a_section_makes_answers_better(fitted):
    whole, _ = error_and_coverage(*fitted, ["r"])
    for names in (["p1", "r"], ["p1"]):
        error, coverage = error_and_coverage(*fitted, names)
        assert error < 0.15
        assert 0.75 < coverage < 0.98
        assert names == ["p1"] or error <= 1.05 * whole


def test_rows_with_whole_sections_have_the_same_bits_beside_others(fitted):
    model, table = fitted
    whole, mixed = table[["p1", "p2"]].copy(), table[["p1", "p2"]].copy()
    mixed.iloc[::2, 1] = np.nan
    found = [model.infer(part, targets=["r"]) for part in (whole, mixed)]
    first, second = (torch.cat([a.mean["r"], a.std["r"]]).view(2, -1) for a in found)
    assert torch.equal(first[:, 1::2], second[:, 1::2])
    assert not torch.equal(first[:, ::2], second[:, ::2])


def test_the_mixture_is_kept_in_files(fitted, tmp_path):
    model, table = fitted
    vfg.save(model, tmp_path / "m.vfg")
    again = vfg.load(tmp_path / "m.vfg")
    given = table[["p1"]]
    assert torch.equal(model.infer(given).mean["P"], again.infer(given).mean["P"])


def test_one_component_is_the_normal_conditional():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4000, 3, generator=generator).double() @ torch.rand(3, 3).double()
    mixture = fit_mixture(rows, 1, seed=0)
    again = Mixture.unpack(mixture.packed())
    mean, own = again.moments()
    exact = torch.diag(torch.tensor([1e8, 1e8, 0.0]).double())
    found, spread = again.posterior(rows[:5] @ exact, exact.expand(5, 3, 3))
    close = {"atol": 1e-4, "rtol": 1e-3}
    slope = own[2, :2] @ torch.linalg.inv(own[:2, :2])
    torch.testing.assert_close(found[:, 2], mean[2] + (rows[:5, :2] - mean[:2]) @ slope, **close)
    torch.testing.assert_close(spread[0, 2, 2], own[2, 2] - slope @ own[:2, 2], **close)
