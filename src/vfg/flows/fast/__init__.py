"""Speed work behind the flows: fused chains, tiles, memory, kernels. Nothing outside of `vfg.flows` imports it."""
