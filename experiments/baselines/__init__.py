"""Methods that vfg is compared with."""
