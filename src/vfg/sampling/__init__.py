"""Sampled states: q and p of every latent node, drawn together, so that there is a bound."""

from vfg.sampling.noise import Noise, generated_noise, no_noise
from vfg.sampling.samplers import Deterministic, Sampled, Sampler, StatesSpec, states_spec
from vfg.sampling.state_sampler import (
    Draw,
    SampledStates,
    condition,
    draw_states,
    log_likelihoods,
    log_weights,
    root_posterior,
    sampling_of,
)

__all__ = [
    "Deterministic",
    "Draw",
    "generated_noise",
    "Noise",
    "Sampled",
    "SampledStates",
    "Sampler",
    "StatesSpec",
    "condition",
    "draw_states",
    "log_likelihoods",
    "log_weights",
    "no_noise",
    "root_posterior",
    "sampling_of",
    "states_spec",
]
