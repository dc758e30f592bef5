"""The command `vfg`, of which a worker of Ray Data dies once; the first argument is a mark."""

import os
import signal
import sys
from pathlib import Path

from vfg.bigtable.engines import ray_data
from vfg.bigtable.writing import Sink
from vfg.cli import main


class Dying(ray_data.ShardFiller):
    """Dies while it writes its second shard, unless one has died before."""

    def __call__(self, batch, held):
        ray_data.Sink = DyingSink
        return super().__call__(batch, held)


class DyingSink(Sink):
    """Counts the shards that a process begins to write."""

    begun = 0

    def write(self, batch):
        super().write(batch)
        DyingSink.begun += 1
        if DyingSink.begun == 2 and not MARK.exists():
            MARK.write_text(str(DyingSink.begun))
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    MARK = Path(sys.argv.pop(1))
    ray_data.ShardFiller = Dying  # classes of the main script travel to the actors by value
    main()
