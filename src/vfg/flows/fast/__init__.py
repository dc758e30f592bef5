"""Speed work behind the flows: chains, tiles, memory, kernels; only `vfg.flows` imports it."""
