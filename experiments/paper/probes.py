"""How well labels are predicted from embeddings."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import silhouette_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor


def nearest_accuracy(known: Tensor, known_labels: Tensor, new: Tensor, labels: Tensor) -> float:
    """How often the majority of the 5 nearest known rows has the right label."""
    return _accuracy(KNeighborsClassifier(5), known, known_labels, new, labels)


def linear_accuracy(known: Tensor, known_labels: Tensor, new: Tensor, labels: Tensor) -> float:
    """How often a multinomial logistic regression on standardised rows is right."""
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
    return _accuracy(model, known, known_labels, new, labels)


def _accuracy(model: Any, *rows: Tensor) -> float:
    known, known_labels, new, labels = (each.cpu().numpy() for each in rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 200 rounds are part of the probe
        return float(model.fit(known, known_labels).score(new, labels))


def prior_accuracy(new: Tensor, labels: Tensor, means: Tensor) -> float:
    """How often the nearest mean, one per label, is the right one."""
    return float((torch.cdist(new, means.detach()).argmin(1) == labels).float().mean())


def silhouette(rows: Tensor, labels: Tensor) -> float:
    """The mean silhouette of rows grouped by label: 1 for tight groups far apart."""
    return float(silhouette_score(rows.cpu().numpy(), labels.cpu().numpy()))
