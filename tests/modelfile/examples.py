"""Models, and model files that are changed by hand."""

import hashlib
import json
import struct

import safetensors
import safetensors.torch
import torch
from strategies import perturbed

import vfg


def small(**options):
    graph = vfg.Graph.tree({"a": 2, "b": 1, "c": 2}, arity=2, width=3)
    model = vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=4), **options)
    return with_scaling(perturbed(model, 1))


def tiny():
    graph = vfg.Graph.star({"a": 1, "b": 1})
    return with_scaling(perturbed(vfg.VFG(graph, flow=vfg.Linear()), 2))


def with_scaling(model):
    columns = torch.arange(1, 1 + model.sections.columns, dtype=torch.float64)
    model.scaling.location.copy_(columns / 3)
    model.scaling.scale.copy_(columns.sqrt())
    return model


def assert_same_bits(model, other):
    assert type(model) is type(other)
    assert model.to_dict() == other.to_dict()
    state, found = model.state_dict(), other.state_dict()
    assert list(state) == list(found)
    for name, tensor in state.items():
        assert tensor.dtype == found[name].dtype, name
        assert raw(tensor) == raw(found[name]), name
    for parameter, same in zip(model.parameters(), other.parameters(), strict=True):
        assert parameter.requires_grad == same.requires_grad
    buffers = dict(other.named_buffers(remove_duplicate=False))
    for name, buffer in model.named_buffers(remove_duplicate=False):
        assert buffer.dtype == buffers[name].dtype, name
        assert raw(buffer) == raw(buffers[name]), name


def raw(tensor):
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def unpacked(data):
    """Header, fields and data part of a file, by nothing but the definition of the format."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["vfg"]), data[8 + length :]


def packed(header, fields, rest):
    header = {**header, "__metadata__": {"vfg": json.dumps(fields)}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


def changed(data, change):
    """A file with `change(header, fields)` done to it."""
    header, fields, rest = unpacked(data)
    change(header, fields)
    return packed(header, fields, rest)


def repacked(data, change):
    """A file with `change(tensors, fields)` done to it, whatever its digest says."""
    fields = unpacked(data)[1]
    tensors = safetensors.torch.load(data)
    change(tensors, fields)
    return safetensors.torch.save(tensors, {"vfg": json.dumps(fields)})


def signed(data):
    """The same file with the digest that its contents have; also the digest's definition."""
    _, fields, _ = unpacked(data)
    tensors = safetensors.torch.load(data)
    fields.pop("digest")
    listed = [[name, str(t.dtype).split(".")[1], list(t.shape)] for name, t in tensors.items()]
    text = json.dumps([fields, sorted(listed)], sort_keys=True, separators=(",", ":"))
    content = text.encode() + b"".join(raw(tensors[name]) for name in sorted(tensors))
    fields["digest"] = hashlib.sha256(content).hexdigest()
    return safetensors.torch.save(tensors, {"vfg": json.dumps(fields)})
