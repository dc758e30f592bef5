"""Fit an imputer's members and its linear model of every row, alone or under torchrun.

Arguments: a table, the model file to write, and a file for the losses of the epochs.
"""

import json
import sys
from pathlib import Path

import vfg
from vfg.bigtable.engines import process_group
from vfg.bigtable.fitting import fit_files
from vfg.modelfile import loads
from vfg.sklearn import VFGImputer


def main():
    table, model, losses = sys.argv[1:]
    # Without dropout, whose noise every process draws for itself.
    flow = vfg.Coupling(blocks=2, hidden=8, dropout=0.0)
    imputer = VFGImputer(
        members=2, mixtures=0, neighbours=0, trees=0, steps=50, width=3, flow=flow, device="cpu",
        random_state=0,
    )  # fmt: skip
    with process_group() as world:
        data, history = fit_files([(table, "parquet")], imputer, None, True)
    if world.is_first:
        vfg.save(loads(data), model)
        Path(losses).write_text(json.dumps(history))


if __name__ == "__main__":
    main()
