"""Files that promise more than they hold, and damage of all kinds."""

import io
import random
import struct
import sys
import tracemalloc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from modelfile.examples import assert_same_bits, changed, repacked, small, tiny
from strategies import models

import vfg
from vfg.modelfile import container, dumps, loads
from vfg.modelfile import io as model_io

HUGE = 10**9


def widened(fields):
    for node in fields["model"]["graph"]["nodes"]:
        node["width"] = HUGE


def many_leaves(fields):
    """Edges without parameters whose tables of coordinates multiply with the width of the root."""
    names = [f"x{i}" for i in range(3000)]
    nodes = [{"name": name, "width": 1} for name in names] + [{"name": "h", "width": 2**18}]
    edge = {"parent": "h", "kind": "identity", "coordinates": [0]}
    edges = [{"child": name, **edge} for name in names]
    fields["model"].update(graph={"nodes": nodes, "edges": edges}, flow={})
    fields["model"]["likelihood"] = {name: {"name": "gaussian"} for name in names}


def flows(**options):
    return lambda fields: fields["model"].update(
        flow={"a->root": options, "b->root": options},
        graph=vfg.Graph.star({"a": 2, "b": 2}).to_dict(),
    )


def named(spec, **options):
    """The description of a spec with other numbers than it would accept to be made with."""
    return {**spec.to_dict(), **options}


HOSTILE = {
    "widths": widened,
    "one width": lambda fields: fields["model"]["graph"]["nodes"][-1].update(width=HUGE),
    "blocks": flows(**named(vfg.Coupling(), blocks=HUGE)),
    "some blocks": flows(**named(vfg.Coupling(), blocks=2**23)),
    "layers": flows(**named(vfg.Coupling(), layers=HUGE)),
    "some layers": flows(**named(vfg.Coupling(), layers=2**23)),
    "hidden": flows(**named(vfg.Coupling(), hidden=HUGE)),
    "some hidden": flows(**named(vfg.Coupling(), hidden=2**23)),
    "bins": flows(**named(vfg.Spline(), bins=2**23)),
    "labels": lambda fields: fields["model"].update(prior=named(vfg.PerLabel(2), labels=2**24)),
    "categories": lambda fields: fields["model"]["likelihood"].update(
        a=named(vfg.Categorical(2), categories=HUGE)
    ),
    "coordinates": many_leaves,
}


def most_memory():
    """The largest number of bytes that this process ever held, where the system tells."""
    if sys.platform != "linux":
        return 0
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_absurd_sizes_are_refused_before_anything_is_made(change):
    data = dumps(tiny())
    if change is many_leaves:
        data = repacked(data, lambda tensors, fields: tensors.update(x=torch.zeros(2**18)))
    data = changed(data, lambda header, fields: change(fields))
    most = most_memory()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"cannot fill|far larger|lacks|of shape"):
            loads(data)
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()
    assert most_memory() - most < 2**28


def test_tables_that_are_not_in_the_file_are_bounded(monkeypatch):
    graph = vfg.Graph.star({f"x{i}": 1 for i in range(100)}, width=100)
    data = dumps(vfg.VFG(graph, flow=vfg.Linear("affine"), aggregation="concatenation"))
    loads(data)
    monkeypatch.setattr(model_io, "LARGEST_TABLES", -200_000)
    with pytest.raises(ValueError, match="the data describes a model far larger than its tensors"):
        loads(data)


def test_the_header_is_not_read_when_it_cannot_be_there():
    class Watched(io.BytesIO):
        def read(self, size=-1):
            assert 0 <= size <= 16
            return super().read(size)

    start = struct.pack("<Q", container.LONGEST_HEADER) + b"{}"
    with pytest.raises(ValueError, match="truncated"), container.error_context("it"):
        model_io._read(Watched(start), len(start), None)


# Damage of all kinds.


def mutated(data, chance):
    """A copy with some bytes changed, cut out, doubled or cut off."""
    kind = chance.choice(["flip", "flip", "flips", "byte", "cut", "truncate", "insert", "swap"])
    content = bytearray(data)
    # Half of the damage is done to the header, which is where a reader decides.
    end = len(content) if chance.random() < 0.5 else 8 + int.from_bytes(content[:8], "little")
    place = chance.randrange(end)
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else chance.randrange(2, 9)):
            content[chance.randrange(end)] ^= 1 << chance.randrange(8)
    elif kind == "byte":
        content[place] = chance.choice(b'0123456789"[]{},:. \x00\xff')
    elif kind == "cut":
        del content[place : place + chance.randrange(1, 9)]
    elif kind == "truncate":
        del content[place:]
    elif kind == "insert":
        content[place:place] = chance.randbytes(chance.randrange(1, 5))
    else:
        other = chance.randrange(end)
        content[place], content[other] = content[other], content[place]
    return bytes(content)


def check_damage(model, seed, times):
    data, chance = dumps(model), random.Random(seed)
    refused = 0
    for _ in range(times):
        try:
            found = loads(mutated(data, chance))
        except ValueError:
            refused += 1
        else:
            assert_same_bits(model, found)
    assert refused > 0.9 * times


def test_damage_is_refused_or_harmless():
    check_damage(tiny(), 0, 400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_much_damage_is_refused_or_harmless(seed):
    check_damage(tiny(), seed, 5_000)
    check_damage(small(prior=vfg.PerLabel(2)), seed, 1_000)


@settings(max_examples=50)
@given(model=models(), seed=st.integers(0, 2**32))
def test_damage_to_any_model_is_refused_or_harmless(model, seed):
    damaged = mutated(dumps(model), random.Random(seed))
    try:
        found = loads(damaged)
    except ValueError:
        return
    assert_same_bits(model, found)
