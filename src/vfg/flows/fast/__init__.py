"""Speed work of flows: primitives, chains, tiles, memory, kernels; only `vfg.flows` imports it."""
