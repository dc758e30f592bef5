"""The command `vfg`, of which an actor of Ray talks and dies once; the first argument is a mark."""

import os
import signal
import sys
from pathlib import Path

from vfg.bigtable.engines import ray as engine
from vfg.cli import main


class Dying(engine.FillActor):
    """Dies in its second part, unless one has died before."""

    def fill(self, held, first_row, batch):
        print("words of an actor", flush=True)
        if first_row and not MARK.exists():
            MARK.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fill(held, first_row, batch)


if __name__ == "__main__":
    MARK = Path(sys.argv.pop(1))
    engine.FillActor = Dying  # classes of the main script travel to the actors by value
    main()
