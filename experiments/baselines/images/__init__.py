"""Autoencoders for binary images whose posterior is a flow: the rivals of the likelihoods."""

from .autoencoder import FlowAutoencoder
from .posteriors import POSTERIORS

__all__ = ["POSTERIORS", "FlowAutoencoder"]
