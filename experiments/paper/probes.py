"""How much embeddings tell about labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def nearest_accuracy(
    known: Tensor, known_labels: Tensor, new: Tensor, labels: Tensor, neighbours: int = 5
) -> float:
    """How often the majority of the nearest known rows has the right label."""
    count, right = int(known_labels.max()) + 1, 0
    for part, truth in zip(new.split(1000), labels.split(1000), strict=True):
        found = torch.cdist(part, known).topk(neighbours, largest=False).indices
        votes = F.one_hot(known_labels[found], count).sum(1).double()
        # Of labels with equally many votes, that of the nearer rows.
        votes.scatter_add_(1, known_labels[found[:, :1]], torch.full_like(votes[:, :1], 0.5))
        right += int((votes.argmax(1) == truth).sum())
    return right / len(labels)


def linear_accuracy(known: Tensor, known_labels: Tensor, new: Tensor, labels: Tensor) -> float:
    """How often a multinomial logistic regression on standardised rows is right."""
    centre, scale = known.mean(0), known.std(0).clamp(min=1e-6)
    known, new = (known - centre) / scale, (new - centre) / scale
    weight = known.new_zeros(known.shape[1], int(known_labels.max()) + 1, requires_grad=True)
    bias = known.new_zeros(weight.shape[1], requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(known @ weight + bias, known_labels)
        value = value + 1e-4 * weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return float(((new @ weight + bias).argmax(1) == labels).float().mean())


def prior_accuracy(new: Tensor, labels: Tensor, means: Tensor) -> float:
    """How often the nearest mean, one per label, is the right one."""
    return float((torch.cdist(new, means.detach()).argmin(1) == labels).float().mean())


def silhouette(rows: Tensor, labels: Tensor) -> float:
    """The mean silhouette of rows grouped by label: 1 for tight groups far apart."""
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(rows.cpu().numpy(), labels.cpu().numpy()))
