"""Fast flows: primitives, chains, tiles, memory, kernels; only `vfg.flows` imports them."""
