"""The command `vfg`, of which a worker of Ray Data dies once; the first argument is a mark."""

import os
import signal
import sys
from pathlib import Path

from vfg.bigtable.engines import ray_data
from vfg.cli import main


class Dying(ray_data.ShardFiller):
    """Dies in its first run, unless one has died before."""

    def __call__(self, batch, held):
        if not MARK.exists():
            MARK.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch, held)


if __name__ == "__main__":
    MARK = Path(sys.argv.pop(1))
    ray_data.ShardFiller = Dying  # classes of the main script travel to the actors by value
    main()
