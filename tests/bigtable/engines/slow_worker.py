"""The command `vfg`, whose workers of Ray Data wait before every shard; the seconds come first."""

import sys
import time

from vfg.bigtable.engines import ray_data
from vfg.cli import main


class Slow(ray_data.ShardFiller):
    """Leaves time to kill the process that gives it work."""

    def __call__(self, batch, held):
        time.sleep(SECONDS)
        return super().__call__(batch, held)


if __name__ == "__main__":
    SECONDS = float(sys.argv.pop(1))
    ray_data.ShardFiller = Slow  # classes of the main script travel to the actors by value
    main()
