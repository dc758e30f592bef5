"""The experiments of the paper; `vfg reproduce NAME` runs them."""
