"""The Explore page: the latent space, samples, calibration and training."""
