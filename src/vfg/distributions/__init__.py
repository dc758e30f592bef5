"""Likelihoods of the leaves and priors of the roots."""
