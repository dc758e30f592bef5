"""Message passing on trees in information form: exact posteriors, node by node."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from vfg.distributions.likelihoods import LOG_TWO_PI
from vfg.gaussian.factors import Masks, by_group, log_volume
from vfg.gaussian.parameters import Values
from vfg.gaussian.structure import Clique, Structure


@dataclass
class Up:
    """Messages from below a node: precision by group, information by row."""

    precision: Tensor
    information: Tensor
    inverse: Tensor | None = None
    """(D⁻¹ + Λ)⁻¹ of a noisy node."""


@dataclass
class TreeBelief:
    """The latent nodes given the observed columns, component by component."""

    log_probs: Tensor
    """log p(observed | component), `(rows, components)`."""
    groups: Tensor
    """The group of every row, `(rows,)`."""
    means: dict[str, Tensor] = field(default_factory=dict)
    """`(rows, components, width)` by node."""
    covariances: dict[str, Tensor] = field(default_factory=dict)
    """`(groups, components, width, width)` by node."""
    crossed: dict[str, Tensor] = field(default_factory=dict)
    """Covariances with the parent, `(groups, components, width, parent's width)`."""


def prefers_tree(structure: Structure) -> bool:
    """Whether messages from node to node are cheaper than one joint factorisation."""
    if not structure.graph.is_tree:
        return False
    widths = [len(span) for span in structure.spans.values()]
    innovations = structure.root_width + len(structure.noisy_inner)
    smaller = min(innovations, structure.columns)
    joint = smaller**3 + structure.columns * innovations**2
    # The messages of a node take about ten products of its matrices.
    return 10 * sum(width**3 for width in widths) < joint


def tree_pass(structure: Structure, values: Values, table: Tensor, masks: Masks) -> TreeBelief:
    """Pass messages up to the root and back: what one joint factorisation gives as well."""
    components = len(values.log_weights)
    observed = masks.distinct.to(table)
    scales = values.scales.expand(components, -1)
    weights = observed[:, None] / scales.square()
    offsets = values.offsets.expand(components, -1)
    residual = (table[:, None] - offsets) * observed[masks.groups][:, None]
    volume = observed @ scales.log().mT + 0.5 * LOG_TWO_PI * observed.sum(-1, keepdim=True)
    ups = {
        name: _from_leaves(structure, values, name, residual, weights, masks)
        for name in structure.nodes
    }
    for name in reversed(structure.inner):
        volume = volume + _send_up(structure, values, name, ups, masks)
    belief = TreeBelief(residual.new_zeros(len(table), components), masks.groups)
    root_volume, distance = _at_root(structure, values, ups[structure.nodes[0]], belief)
    for name in structure.inner:
        distance = distance + _send_down(structure, values, name, ups[name], belief)
    distance = distance + _leaf_distance(structure, values, residual, weights, belief)
    belief.log_probs = -0.5 * distance - (volume + root_volume)[masks.groups]
    return belief


def clique_moments(
    structure: Structure, belief: TreeBelief, clique: Clique
) -> tuple[Tensor, Tensor]:
    """Means `(rows, components, n)` and covariances `(groups, components, n, n)` of a clique."""
    name = clique.node
    if not clique.explained:
        return belief.means[name], belief.covariances[name]
    parent = structure.graph.parents(name)[0]
    mean = torch.cat([belief.means[name], belief.means[parent]], dim=-1)
    cross = belief.crossed[name]
    above = torch.cat([belief.covariances[name], cross], dim=-1)
    below = torch.cat([cross.mT, belief.covariances[parent].expand(*cross.shape[:2], -1, -1)], -1)
    return mean, torch.cat([above, below], dim=-2)


def _from_leaves(
    structure: Structure, values: Values, name: str, residual: Tensor, weights: Tensor, masks: Masks
) -> Up:
    columns, loadings = _leaf_loadings(structure, values, name, residual)
    here = weights[..., columns]
    precision = (loadings * here[..., None]).mT @ loadings
    weighted = residual[..., columns] * here[masks.groups]
    return Up(precision, torch.einsum("nck,cki->nci", weighted, loadings))


def _send_up(
    structure: Structure, values: Values, name: str, ups: dict[str, Up], masks: Masks
) -> Tensor:
    """Add a node's message to its parent; half the log-determinant that it leaves behind."""
    up, parent = ups[name], ups[structure.graph.parents(name)[0]]
    edge, shift, noise = _equation(structure, values, name)
    free = up.information - by_group(up.precision, shift.expand_as(up.information), masks.groups)
    if noise is None:
        parent.precision = parent.precision + edge.mT @ up.precision @ edge
        parent.information = parent.information + free @ edge
        return free.new_zeros(())
    inverted = noise.square().reciprocal()
    factor = torch.linalg.cholesky(up.precision + inverted.diag_embed())
    up.inverse = torch.cholesky_inverse(factor)
    # D⁻¹ − D⁻¹(D⁻¹ + Λ)⁻¹D⁻¹ in the form that has no cancellation.
    damped = inverted[:, None] * (up.inverse @ up.precision)
    damped = 0.5 * (damped + damped.mT)
    parent.precision = parent.precision + edge.mT @ damped @ edge
    sent = inverted * by_group(up.inverse, free, masks.groups)
    parent.information = parent.information + sent @ edge
    return log_volume(factor) + noise.log().sum()


def _at_root(
    structure: Structure, values: Values, up: Up, belief: TreeBelief
) -> tuple[Tensor, Tensor]:
    root = structure.nodes[0]
    factors, centre = values.root_factors, values.root_means
    identity = torch.eye(structure.root_width, dtype=factors.dtype, device=factors.device)
    factor = torch.linalg.cholesky(identity + factors.mT @ up.precision @ factors)
    inverse = torch.cholesky_inverse(factor)
    shifted = by_group(up.precision, centre.expand_as(up.information), belief.groups)
    free = torch.einsum("nci,cij->ncj", up.information - shifted, _all(factors, up.information))
    innovation = by_group(inverse, free, belief.groups)
    spread = torch.einsum("nci,cji->ncj", innovation, _all(factors, innovation))
    belief.means[root] = centre + spread
    belief.covariances[root] = factors @ inverse @ factors.mT
    return log_volume(factor), innovation.square().sum(-1)


def _send_down(
    structure: Structure, values: Values, name: str, up: Up, belief: TreeBelief
) -> Tensor:
    """The moments of a node from its parent's; its squared distance from the prediction."""
    parent = structure.graph.parents(name)[0]
    edge, shift, noise = _equation(structure, values, name)
    above = belief.covariances[parent]
    expected = belief.means[parent] @ edge.mT + shift
    if noise is None or up.inverse is None:
        belief.means[name] = expected
        belief.crossed[name] = edge @ above
        belief.covariances[name] = edge @ above @ edge.mT
        return expected.new_zeros(())
    inverted = noise.square().reciprocal()
    gain = (up.inverse * inverted) @ edge
    pulled = up.information + inverted * expected
    belief.means[name] = by_group(up.inverse, pulled, belief.groups)
    belief.crossed[name] = gain @ above
    belief.covariances[name] = up.inverse + gain @ above @ gain.mT
    return ((belief.means[name] - expected) / noise).square().sum(-1)


def _leaf_distance(
    structure: Structure, values: Values, residual: Tensor, weights: Tensor, belief: TreeBelief
) -> Tensor:
    result = residual.new_zeros(residual.shape[:2])
    for name in structure.nodes:
        columns, loadings = _leaf_loadings(structure, values, name, residual)
        left = residual[..., columns] - torch.einsum("nci,cki->nck", belief.means[name], loadings)
        result = result + (left.square() * weights[..., columns][belief.groups]).sum(-1)
    return result


def _equation(
    structure: Structure, values: Values, name: str
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Edge, shift and noise of an inner node of a tree."""
    own, above = structure.spans[name], structure.spans[structure.graph.parents(name)[0]]
    edge = values.edges[own.start : own.stop, above.start : above.stop]
    noise = values.noises[own.start : own.stop] if structure.inner_noise else None
    return edge, values.shifts[own.start : own.stop], noise


def _leaf_loadings(
    structure: Structure, values: Values, name: str, like: Tensor
) -> tuple[list[int], Tensor]:
    """The columns of the leaves below a node, and their loadings by component."""
    leaves = [child for child in structure.graph.children(name) if child in structure.positions]
    columns = [column for leaf in leaves for column in structure.positions[leaf]]
    return columns, _all(values.loadings[:, columns][..., list(structure.spans[name])], like)


def _all(factors: Tensor, like: Tensor) -> Tensor:
    """Matrices for all components of something `(rows, components, ...)`."""
    return factors.expand(like.shape[1], -1, -1)
