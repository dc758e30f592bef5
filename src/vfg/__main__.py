"""`python -m vfg` is the command `vfg`."""

from vfg.cli import main

if __name__ == "__main__":
    main()
