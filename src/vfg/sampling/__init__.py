"""Sampled states: q and p of every latent node, drawn together, so that there is a bound."""

from vfg.sampling.noise import GeneratedNoise, Noise, fresh_noise, no_noise
from vfg.sampling.samplers import Sampler
from vfg.sampling.specs import Deterministic, Sampled, StatesSpec, states_spec
from vfg.sampling.state_sampler import Draw, SampledStates
from vfg.sampling.weights import drawn, log_likelihoods, log_weights, sampling_of

__all__ = [
    "Deterministic",
    "Draw",
    "GeneratedNoise",
    "Noise",
    "Sampled",
    "SampledStates",
    "Sampler",
    "StatesSpec",
    "drawn",
    "fresh_noise",
    "log_likelihoods",
    "log_weights",
    "no_noise",
    "sampling_of",
    "states_spec",
]
