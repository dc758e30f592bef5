"""Work that processes of Ray share, some of which die; what came out is written as JSON."""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import torch

import vfg
from vfg.bigtable.engines.ray import Ray
from vfg.bigtable.fitting import fit_files
from vfg.modelfile import dumps, loads
from vfg.sklearn import VFGImputer

EPOCHS = 6


def table():
    generator = torch.Generator().manual_seed(0)
    cause = torch.randn(400, 1, generator=generator)
    return torch.cat([cause, -cause, 0.5 * cause], 1) + 0.1 * torch.randn(
        400, 3, generator=generator
    )


def model():
    graph = vfg.Graph.star({"a": 1, "b": 1, "c": 1}, width=3)
    return vfg.VFG(graph, flow=vfg.Coupling(blocks=2, hidden=8), seed=0)


def trained(folder, death=None, always=False):
    """Train with a checkpoint; the second process dies after some epochs, once or always."""
    made, mark = model(), Path(folder, "died")
    if death is not None and os.environ.get("RANK") == "1" and (always or not mark.exists()):
        mark.touch()
        from vfg.training import loop

        decide, seen = loop.Run._decide, []

        def dying(run):
            seen.append(1)
            if len(seen) == death:
                os.kill(os.getpid(), signal.SIGKILL)
            decide(run)

        loop.Run._decide = dying
    begun = resumed_at(folder)
    history = vfg.fit(
        made, table(), epochs=EPOCHS, batch=64, progress=False, device="cpu",
        checkpoint=Path(folder, "run"), seed=0,
    )  # fmt: skip
    return dumps(made), len(history), begun


def resumed_at(folder):
    from safetensors import safe_open

    path = Path(folder, "run", "training.safetensors")
    if not path.exists():
        return 0
    with safe_open(path, framework="pt") as file:
        return len(json.loads(file.metadata()["vfg-training"])["history"]["epochs"])


def failing():
    if os.environ["RANK"] == "1":
        raise ValueError("the second process does not like this")
    import torch.distributed as dist

    dist.barrier()


def difference(first, second):
    pairs = zip(
        loads(first).state_dict().values(), loads(second).state_dict().values(), strict=True
    )
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


def said(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main():
    folder = Path(sys.argv[1])
    for name in ("alone", "two", "killed", "hopeless"):
        (folder / name).mkdir()
    os.environ["RAY_raylet_start_wait_time_s"] = "120"  # noqa: SIM112
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    pair = Ray(2)
    alone = trained(folder / "alone")[0]
    together = pair.together(trained, folder / "two")[0]
    killed, epochs, begun = pair.together(trained, folder / "killed", 4)
    files = [(str(folder / "table.parquet"), "parquet")]
    imputer = VFGImputer(bend=False, random_state=0)
    linear = [
        fit_files(files, imputer, None, True),
        pair.together(fit_files, files, imputer, None, True),
    ]
    found = {
        "difference": difference(alone, together),
        "difference_after_death": difference(together, killed),
        "epochs": epochs,
        "begun": begun,
        "linear": [hashlib.sha256(data).hexdigest() for data, _ in linear],
        "failing": said(pair.together, failing),
        "hopeless": said(pair.together, trained, folder / "hopeless", 1, True),
    }
    (folder / "found.json").write_text(json.dumps(found))  # Ray prints what it likes


if __name__ == "__main__":
    main()
