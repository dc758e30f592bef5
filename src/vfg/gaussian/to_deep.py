"""A deep model that starts as an exact linear model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vfg.distributions.likelihoods import Gaussian, GaussianLikelihood
from vfg.flows import (
    Composition,
    Coupling,
    ElementwiseAffine,
    LinearStart,
    LinearStartFlow,
    LULinear,
    MonotoneSpline,
    Spline,
)
from vfg.passing.aggregation import FramedPrecision
from vfg.passing.messages import EdgeGroup
from vfg.passing.schedule import Group

if TYPE_CHECKING:
    from vfg.gaussian.model import GaussianVFG
    from vfg.gaussian.parameters import Values
    from vfg.model import VFG

FLOOR = 1e-3
"""The least noise of a leaf of a deep model: its precision has to be held in float32."""


def make_deep(kind: type[VFG], linear: GaussianVFG, flow: Coupling | None, seed: int) -> VFG:
    """Make the deep model that starts as `linear`; see `VFG.from_gaussian`."""
    _check(linear)
    coupling = Coupling() if flow is None else flow
    bins = linear.leaf_spec.bins if isinstance(linear.leaf_spec, Spline) else 0
    leaves = dict.fromkeys(linear.graph.leaves)
    specs = {
        edge.name: LinearStart(coupling, linear.graph.node(edge.child).width, bins)
        if edge.child in leaves
        else LinearStart(coupling, 0)
        for edge in linear.graph.edges
    }
    model = kind(
        linear.graph,
        flow=specs,
        aggregation="gaussian",
        latent="normal",
        likelihood=Gaussian(floor=0.5 * max(linear.noise_floor, FLOOR), learn=True),
        seed=seed,
    ).double()
    with torch.no_grad():
        model.scaling.load_state_dict(linear.scaling.state_dict())
        model.is_trained.fill_(True)  # it answers as the linear model does
        values = linear.linear.values()
        for index, group in enumerate(model.passing.schedule.groups):
            stack = model.passing.group(index)
            if model.passing.schedule.blocks[group.child].is_leaf:
                _start_leaves(linear, values, group, stack)
            else:
                _start_inner(linear, values, group, stack)
        _copy_noise(model, linear, values)
    return model


def _check(linear: GaussianVFG) -> None:
    graph = linear.graph
    if linear.components > 1:
        raise ValueError(
            f"only a linear model with one component can start a deep one, but this is a mixture "
            f"of {linear.components}; fit GaussianVFG(graph, components=1)"
        )
    if not (linear.leaf_spec is None or isinstance(linear.leaf_spec, Spline)):
        raise ValueError(
            "only affine or monotone leaves can start a deep model, but the leaves are coupling "
            "flows; fit GaussianVFG(graph, leaf='affine')"
        )
    if linear.codes.units:
        raise ValueError(
            f"only real leaves can start a deep model, but leaf {linear.codes.units[0].leaf!r} is "
            "discrete; fit a GaussianVFG to the other columns, or build a VFG with that likelihood"
        )
    inner = [edge for edge in graph.edges if edge.child not in dict.fromkeys(graph.leaves)]
    for edge in graph.edges:
        if len(graph.parents(edge.child)) > 1:
            raise ValueError(
                f"edge {edge.name!r} is one of several above {edge.child!r}, and only on trees are "
                "messages exact; use a graph in which every node has one parent"
            )
        if edge.kind == "identity" or edge.coordinates is not None:
            raise ValueError(
                f"edge {edge.name!r} is an identity or covers part of its parent; only flow edges "
                "to the whole parent can start linear"
            )
    for edge in inner:
        widths = graph.node(edge.child).width, graph.node(edge.parent).width
        if linear.inner_noise:
            raise ValueError(
                f"edge {edge.name!r} has noise of its own, which deep edges lack; fit "
                "GaussianVFG(graph, inner_noise=False)"
            )
        if widths[0] != widths[1]:
            raise ValueError(
                f"edge {edge.name!r} leads from width {widths[0]} to {widths[1]} and is not "
                "invertible; give all latent nodes the same width"
            )


def _start_leaves(linear: GaussianVFG, values: Values, group: Group, stack: EdgeGroup) -> None:
    """Set flow and precision of leaf edges from the loadings of their columns."""
    columns = torch.tensor([linear.sections.positions[edge.child] for edge in group.edges])
    spans = torch.tensor([list(linear.structure.spans[edge.parent]) for edge in group.edges])
    loadings = values.loadings[0][columns[:, :, None], spans[:, None]]
    offsets, scales = values.offsets[0][columns], values.scales[0][columns].clamp(min=FLOOR)
    flow, precision = stack.flow, stack.precision
    assert isinstance(flow, LinearStartFlow)
    assert isinstance(precision, FramedPrecision)
    if stack.lifting is not None:
        stack.lifting.constants.zero_()
    if linear.leaf_spec is not None:
        _copy_splines(linear, columns, flow)
    flow.start_at(loadings, offsets)
    # Λ = Wᵀ Σ⁻¹ W in the frame: with W = L Qᵀ its leading block is (Lᵀ Σ^-½)(Lᵀ Σ^-½)ᵀ.
    frame = flow.frame.linear_part()[..., : flow.columns]
    precision.leading.copy_((loadings @ frame).mT / scales[:, None])
    precision.rest.zero_()


def _copy_splines(linear: GaussianVFG, columns: Tensor, flow: LinearStartFlow) -> None:
    """The leaves' monotone splines as those of the data coordinates."""
    (source,) = linear.leaves.flows.values()
    assert isinstance(source, Composition)
    spline, affine = flow.flows[-4], flow.flows[-3]
    assert isinstance(spline, MonotoneSpline)
    assert isinstance(affine, ElementwiseAffine)
    # In the leaves every column is an edge of width 1, in the order of the units.
    units = [unit[0] for unit in linear.leaves.stacks["width1"]]
    rows = torch.tensor(units).argsort()[columns]
    for ours, theirs in ((spline, source.flows[0]), (affine, source.flows[1])):
        for name, parameter in ours.named_parameters():
            given = theirs.get_parameter(name)[rows][:, :, 0]
            parameter[:, : columns.shape[1]] = given


def _start_inner(linear: GaussianVFG, values: Values, group: Group, stack: EdgeGroup) -> None:
    """Set edges between latent nodes: the child is B h + c, so the flow is B⁻¹(· − c)."""
    flow = stack.flow
    assert isinstance(flow, Composition)
    last = flow.flows[-1]
    assert isinstance(last, LULinear)
    matrices, shifts = [], []
    for edge in group.edges:
        own, above = linear.structure.spans[edge.child], linear.structure.spans[edge.parent]
        matrix = values.edges[own.start : own.stop, above.start : above.stop]
        if not bool(torch.linalg.matrix_rank(matrix) == len(own)):
            raise ValueError(f"edge {edge.name!r} is not invertible and cannot start a deep edge")
        inverse = torch.linalg.inv(matrix)
        matrices.append(inverse)
        shifts.append(-inverse @ values.shifts[own.start : own.stop])
    last.set_matrix(torch.stack(matrices), torch.stack(shifts))


def _copy_noise(model: VFG, linear: GaussianVFG, values: Values) -> None:
    """The leaves' noise as the scales of the likelihoods."""
    for block, scales in model.sections.split(values.scales.clamp(min=FLOOR)).items():
        likelihood = model.likelihood_at(block)
        assert isinstance(likelihood, GaussianLikelihood)
        excess = (scales.square() - likelihood.floor**2).clamp(min=1e-12)
        likelihood.log_scale.copy_(0.5 * excess.log())
