"""The speed benchmark: parts that can be measured one at a time, resumed and put together."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vfg
from experiments.baselines.flow_libraries import BLOCKS, HIDDEN
from experiments.benchmarks.speed import edges, steps
from experiments.benchmarks.speed.attempts import outcome
from experiments.benchmarks.speed.clock import Where, in_turns
from experiments.benchmarks.speed.filling import _imputer_on
from experiments.benchmarks.speed.growth import _series
from experiments.benchmarks.speed.masks import _apart, _factors, _grouped
from experiments.benchmarks.speed.parts import merged
from experiments.cells import Cells
from experiments.report.growth import draw, growth, picture_name
from experiments.report.speed import PARTS
from experiments.report.speed import speed as section
from experiments.results import Arguments
from vfg.gaussian.factors import condition

PROJECT = Path(__file__).parents[2]


def speed(folder, *options):
    command = [sys.executable, "-m", "experiments.benchmarks.speed", *options]
    subprocess.run([*command, "--output", folder], cwd=PROJECT, check=True, capture_output=True)
    file = folder / "speed.json"
    return json.loads(file.read_text()) if file.is_file() else None


def part_of(name="edges", device="CPU", day="2026-01-01", found=None):
    return {"part": name, "name": device, "measured": day, "found": found}


def test_cells_are_found_again_by_the_next_run(tmp_path):
    file = tmp_path / "cells.jsonl"
    Cells(file).add({"edges": 4, "library": "vfg"}, {"seconds": 0.25})
    again = Cells(file)
    assert again.get({"library": "vfg", "edges": 4})["seconds"] == 0.25
    assert again.get({"library": "vfg", "edges": 8}) is None


def test_the_last_measurement_of_every_part_and_device_is_kept():
    older = [part_of(found=1), part_of(device="GPU", found=2), part_of("steps", found=3)]
    newer = [part_of(day="2026-01-02", found=4), part_of(device="GPU", day="2025-12-31", found=5)]
    found = merged(older, newer, ["steps", "edges"])
    assert [part["found"] for part in found] == [3, 4, 2]


def test_everything_is_repeated_five_times_however_slow():
    calls = {"a": 0, "b": 0}

    def work(name):
        calls[name] += 1

    works = {name: lambda name=name: work(name) for name in calls}
    found = in_turns(works, torch.device("cpu"), cap=0.0)
    assert {name: len(times) for name, times in found.items()} == {"a": 5, "b": 5}
    assert min(calls.values()) >= 6


def test_what_stacks_hold_between_the_passes_is_counted():
    own, plain = (edges._kept(name, (64, 8, 128)) for name in ("vfg", "baddbmm"))
    states = 64 * 128 * 8 * 4 * BLOCKS  # one state of every coupling in float32
    assert states < own < plain / 4
    hidden = 64 * 128 * 2 * HIDDEN * 4 * BLOCKS
    assert hidden < plain < 2 * hidden


def test_edges_that_were_measured_are_not_measured_again(monkeypatch):
    monkeypatch.setattr(edges, "installed", list)
    monkeypatch.setattr(edges, "KEPT", ())  # the test above counts what is kept
    where = Where(torch.device("cpu"), True, Cells(None))
    first = edges.measured(where)
    assert [set(case["inverse"]) for case in first] == [{"vfg"}, {"vfg"}]
    assert edges.measured(where) == first
    late = Where(torch.device("cpu"), True, Cells(None), until=0.0)
    assert edges.measured(late) == []


def test_attempts_that_crash_hang_or_fail_say_so():
    def ran(code, patience=60.0):
        return outcome([sys.executable, "-c", code], patience)

    assert ran("print('noise'); print('{\"seconds\": 0.5}')") == {"seconds": 0.5}
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert ran(crash) == {"error": "ended by SIGSEGV"}
    assert ran("raise ValueError('no compiler')") == {"error": "ValueError: no compiler"}
    assert ran("import time; time.sleep(60)", 0.2) == {"error": "not done after 0.2 s"}


def test_compiled_libraries_are_measured_apart_and_their_errors_reported(monkeypatch):
    monkeypatch.setattr(edges, "installed", lambda: ["zuko"])
    monkeypatch.setattr(edges, "CASES", [(4, 8, 128)])
    monkeypatch.setattr(edges, "COMPILED", [(4, 8, 128)])
    times = {"seconds": 0.25, "repeats": 5, "recorded": False}
    found = {"forward and backward": times, "inverse": {"error": "ended by SIGSEGV"}}
    monkeypatch.setattr(edges, "attempt", lambda key, threads: found[key["kind"]])
    cells = Cells(None)
    for kind in edges.KINDS:
        for name, seconds in (("vfg", 0.125), ("zuko", 0.5)):
            cells.add(edges._key((4, 8, 128), name, kind), {**times, "seconds": seconds})
    (case,) = edges.measured(Where(torch.device("cpu"), False, cells))
    assert case["forward and backward"]["zuko, compiled"] == 0.25
    ended = "ended by SIGSEGV"
    assert case["errors"]["inverse"] == {"vfg, compiled": ended, "zuko, compiled": ended}
    text = PARTS["edges"]([case], "CPU")
    assert "| 125 | 250 (zuko, compiled) | 2.0x | 125 | 500 (zuko) | 4.0x |" in text
    assert "ended by SIGSEGV" in text


def test_growth_that_was_stopped_goes_on_and_its_slopes_are_those_of_its_points():
    cells = Cells(None)
    late = Where(torch.device("cpu"), True, cells, until=0.0)
    cells.add({"against": "rows", "size": 10}, {"point": {"seconds": 2.0, "MiB": 0.0}})
    sizes = (10, 100, 1000)
    assert _series("rows", sizes, None, late)["sizes"] == [10]
    asked = []

    def measure(size, _):
        asked.append(size)
        return {"seconds": 0.02 * size**2, "MiB": 1.0}

    found = _series("rows", sizes, measure, Where(torch.device("cpu"), True, cells))
    assert asked == [100, 1000]
    assert found["slopes"] == {"seconds": pytest.approx(2.0), "MiB": 0.0}  # but for the 0


def test_pictures_of_growth_show_every_slope_that_was_measured(tmp_path):
    pytest.importorskip("matplotlib")

    series = {"sizes": [10, 100], "points": [{"seconds": 1.0, "MiB": 2.0}] * 2}
    found = {"rows": {**series, "slopes": {"seconds": 0.25, "MiB": 0.75}}}
    legends = [axis.get_legend() for axis in growth(found).axes]
    written = [text.get_text() for legend in legends if legend for text in legend.get_texts()]
    assert written == ["VFG  0.25", "VFG  0.75"]
    part = part_of("growth", "A (CPU)", found=found)
    assert draw([part, part_of()], Arguments(quick=False, output=tmp_path)) == [
        tmp_path / f"{picture_name(part['name'])}.png"
    ]
    assert (tmp_path / "growth-a-cpu.png").stat().st_size > 1000


def test_grouped_and_separate_masks_give_the_same_beliefs():
    generator = torch.Generator().manual_seed(0)
    for columns in (5, 70):
        factors = _factors(columns, 3, 2, generator)
        values = torch.randn(40, columns, generator=generator, dtype=torch.float64)
        seen = (torch.rand(4, columns, generator=generator) > 0.3).repeat(10, 1)
        one, two = (condition(factors, values, masks(seen)) for masks in (_grouped, _apart))
        assert len(one.covariance) == len(seen.unique(dim=0)) < 5
        torch.testing.assert_close(one.mean, two.mean)
        torch.testing.assert_close(one.covariance[one.groups], two.covariance)


@pytest.mark.slow
def test_parts_are_measured_one_at_a_time_and_reported_together(tmp_path):
    assert len(speed(tmp_path, "--quick", "--only", "masks")["parts"]) == 1
    speed(tmp_path, "--quick", "--only", "edges", "starting")
    found = speed(tmp_path, "--quick", "--collect")
    assert [part["part"] for part in found["parts"]] == ["edges", "masks", "starting"]
    for part in found["parts"]:
        assert part["threads"] >= 1
        assert part["machine"]["torch"] == torch.__version__
    text = section(found)
    for heading in ("Sibling edges", "Rows grouped", "Starting"):
        assert text.count(f"## {heading}") == 1


@pytest.mark.slow
@pytest.mark.parametrize("part", ["steps", "precision"])
def test_training_parts_run_at_small_sizes(part, tmp_path):
    found = speed(tmp_path, "--quick", "--only", part)
    assert "letter imputer" in section(found)


def test_every_published_part_is_reported():
    found = json.loads((PROJECT / "docs" / "results" / "speed.json").read_text())
    assert {part["part"] for part in found["parts"]} <= set(PARTS)
    headings = [line for line in section(found).splitlines() if line.startswith("## ")]
    assert len(headings) >= len(found["parts"])
    assert all(any(part["name"] in line for line in headings) for part in found["parts"])


def test_steps_are_told_over_the_floor_of_float32_and_over_that_of_their_precision():
    rates = {"operations per second": 5e13, "bytes per second": 4e12}
    rates["operations per second by precision"] = {"float32": 5e13, "bf16": 7e14}
    case = {"model": "m", "batch": 2048, "precision": "bf16", "step": 0.02, "floor": 0.005}
    case |= {
        "over floor": 4.0,
        "floor of the precision": 0.001,
        "over floor of the precision": 20.0,
    }
    about = {"threads": 1, "load": 0.0, "seconds": 1.0, "machine": {"torch": "2"}}
    part = part_of("steps", "GPU", found={"rates": rates, "cases": [case]}) | about
    text = section({"parts": [part]})
    assert "| m | 2,048 | bf16 | 20 | 5 | 4.0x | 1 | 20.0x |" in text
    assert "bf16 (700 TFLOP/s)" in text


@pytest.mark.slow
def test_whole_imputers_are_measured_where_they_answer():
    found = _imputer_on(torch.device("cpu"), quick=True)
    assert found["largest difference to a CPU"] == 0.0
    assert found["rows per second"] > 0.0
    assert min(found["parts"]) > 0


def test_plain_products_are_a_chain(monkeypatch):
    graph = vfg.Graph.star({"a": 2, "b": 2}, width=4)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=8))
    seen = []
    monkeypatch.setattr(torch, "bmm", lambda x, y: seen.append((x, y)))
    steps._products(model, 5)()
    layers = len(seen) // 6  # there and back, three products each
    taken, given = ([seen[3 * layer + k][0] for layer in range(layers)] for k in range(2))
    for before, after in zip(given, taken[1:], strict=False):
        assert (before is after) == (before.shape == after.shape)
    assert any(before is after for before, after in zip(given, taken[1:], strict=False))
    assert len({id(x) for x in given}) == layers


def test_compiled_models_are_told_by_batch_and_precision():
    case = {"model": "m", "batch": 2048, "precision": "tf32", "as it is": 0.02, "compiled": 0.01}
    case |= {"seconds to compile": 40.0, "steps until it pays": 4000}
    about = {"threads": 1, "load": 0.0, "seconds": 1.0, "machine": {"torch": "2"}}
    text = section({"parts": [part_of("compile", "GPU", found=[case]) | about]})
    assert "| m | 2,048 | tf32 | 20 | 10 | 40 | 4,000 |" in text
    assert "of whole models" in text
