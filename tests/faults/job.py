"""A job in a process of its own, which the tests disturb; it pauses where they want it to."""

import argparse
import signal
import time

from vfg.bigtable import Filling, Sink, impute
from vfg.bigtable.engines.ray import Ray


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("model")
    parser.add_argument("target")
    parser.add_argument("--shard-rows", type=int, default=50)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--actors", action="store_true", help="Ray without shared files")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--pause-writing", type=int, default=-1, help="within this shard")
    parser.add_argument("--pause-after", type=int, default=-1, help="so many rows")
    chosen = parser.parse_args()
    # Tests may run in the background, where interrupts are ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if chosen.pause_writing >= 0:
        pause_in_writing(chosen.pause_writing)

    def progress(done, rows):
        print(f"done {done}", flush=True)
        if done == chosen.pause_after:
            pause("between shards")

    impute(
        chosen.source,
        chosen.model,
        chosen.target,
        filling=Filling(draws=chosen.draws or None),
        shard_rows=chosen.shard_rows,
        engine=Ray(chosen.processes, shared=False) if chosen.actors else chosen.engine,
        processes=chosen.processes,
        progress=progress,
    )


def pause(where):
    print(f"pausing {where}", flush=True)
    time.sleep(600)


def pause_in_writing(shard):
    plain = Sink.write
    written = []

    def write(self, batch):
        plain(self, batch)
        written.append(batch)
        if len(written) == shard + 1:
            pause("in writing")

    Sink.write = write


if __name__ == "__main__":
    main()
