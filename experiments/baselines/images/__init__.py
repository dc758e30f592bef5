"""Autoencoders for binary images whose posterior is a flow: the baselines of the likelihoods."""

from .autoencoder import Autoencoder, FlowAutoencoder, HierarchicalAutoencoder, explain
from .posteriors import POSTERIORS

__all__ = ["POSTERIORS", "Autoencoder", "FlowAutoencoder", "HierarchicalAutoencoder", "explain"]
