"""The joint Normal of a linear-Gaussian graph, built node by node from its equations alone."""

import itertools

import numpy as np
from scipy.stats import multivariate_normal


def equations(model):
    """By node in topological order: maps from parents, shift, noise; numpy, one component."""
    values, structure = model.linear.values(), model.structure
    found = {}
    for name, span in structure.spans.items():
        own = slice(span.start, span.stop)
        maps = {
            parent: values.edges[own, structure.spans[parent].start : structure.spans[parent].stop]
            for parent in model.graph.parents(name)
        }
        is_root = not maps
        noise = np.ones(len(span)) if is_root else values.noises[own].detach().numpy()
        found[name] = (_numpy(maps), values.shifts[own].detach().numpy(), noise)
    for leaf, columns in structure.positions.items():
        maps = {
            parent: values.loadings[0][list(columns)][:, list(structure.spans[parent])]
            for parent in model.graph.parents(leaf)
        }
        offsets = values.offsets[0][list(columns)].detach().numpy()
        scales = values.scales[0][list(columns)].detach().numpy()
        found[leaf] = (_numpy(maps), offsets, scales)
    return found


def _numpy(maps):
    return {parent: part.detach().numpy() for parent, part in maps.items()}


def joint_normal(model):
    """Mean and covariance of all nodes by propagating moments, and where each node is."""
    places, mean, covariance = {}, np.zeros(0), np.zeros((0, 0))
    for name, (maps, shift, noise) in equations(model).items():
        size = len(mean)
        row = np.zeros((len(shift), size))
        for parent, part in maps.items():
            row[:, places[parent]] += part
        cross = row @ covariance
        own = cross @ row.T + np.diag(noise**2)
        mean = np.concatenate([mean, row @ mean + shift])
        covariance = np.block([[covariance, cross.T], [cross, own]])
        places[name] = np.arange(size, size + len(shift))
    return mean, covariance, places


def table_normal(model):
    """Mean and covariance of the table's columns, in data units for affine leaves."""
    mean, covariance, places = joint_normal(model)
    positions = model.structure.positions
    order = np.empty(model.structure.columns, dtype=int)
    for leaf, columns in positions.items():
        order[list(columns)] = places[leaf]
    scale, location = model.scaling.scale.numpy(), model.scaling.location.numpy()
    chosen = covariance[np.ix_(order, order)]
    return mean[order] * scale + location, chosen * np.outer(scale, scale)


def conditional(mean, covariance, seen, row):
    """Mean and covariance of everything given the coordinates that are seen."""
    hidden = ~seen
    if not seen.any():
        return mean, covariance
    gain = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, hidden)]).T
    expected = mean.copy()
    expected[seen] = row[seen]
    expected[hidden] = mean[hidden] + gain @ (row[seen] - mean[seen])
    spread = np.zeros_like(covariance)
    left = covariance[np.ix_(hidden, hidden)] - gain @ covariance[np.ix_(seen, hidden)]
    spread[np.ix_(hidden, hidden)] = left
    return expected, spread


def log_density(mean, covariance, seen, row):
    """log p of the coordinates that are seen."""
    if not seen.any():
        return 0.0
    return multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(row[seen])


def all_masks(columns):
    """Every mask of so many columns, `(2^columns, columns)`."""
    return np.array(list(itertools.product([False, True], repeat=columns)))
