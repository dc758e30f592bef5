"""Bounds and likelihoods of images on a short budget."""
