"""Held-out log-likelihoods of continuous tables."""
