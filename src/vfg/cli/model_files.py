"""What lies in and beside a model file: names for shell completion, and the training history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vfg.cli.errors import print_line
from vfg.cli.output import bars

if TYPE_CHECKING:
    from vfg.training.history import History


def read_names(path: str | Path) -> list[str]:
    """The columns and nodes in the header of a model file; none if it cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            return _names(json.loads(file.metadata()["vfg"])["model"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _names(model: dict[str, Any]) -> list[str]:
    if "encoding" in model:
        columns = json.loads(model["encoding"])["schema"]["columns"]
        return [str(column["label"]) for column in columns]
    nodes = model["graph"]["nodes"]
    columns = [column for node in nodes for column in node["columns"] or ()]
    return list(dict.fromkeys([*map(str, columns), *(str(node["name"]) for node in nodes)]))


def complete_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the model on the command line, for `--infer`."""
    return [name for name in _model_names(context) if name.startswith(incomplete)]


def complete_pairs(context: typer.Context, incomplete: str) -> list[str]:
    """The same with an equals sign, for `--given`."""
    return [f"{name}=" for name in _model_names(context) if name.startswith(incomplete)]


def complete_experiments(incomplete: str) -> list[str]:
    """Names of experiments."""
    from vfg.data.reproducing import names

    return [name for name in names() if name.startswith(incomplete)]


def _model_names(context: typer.Context) -> list[str]:
    model = context.params.get("model") or context.params.get("file")
    return [] if model is None else read_names(model)


def choose_model(file: Path | None, model: Path | None) -> Path:
    """The model of a command that takes no table: an argument, or the option."""
    if file is not None and model is not None:
        raise typer.BadParameter(f"the model is named twice, as {file} and after -m; name it once")
    result = file or model
    if result is None:
        raise typer.BadParameter("no model is named; add -m MODEL, a file that vfg fit wrote")
    return result


def split_model(command: str, tables: Sequence[str], model: Path | None) -> tuple[Path, list[str]]:
    """The model and the tables of a command; an older order has the model first."""
    if model is not None:
        return model, list(tables)
    if len(tables) < 2:
        raise typer.BadParameter("no model is named; add -m MODEL, a file that vfg fit wrote")
    print_line(
        f"warning: a model before the table is deprecated; use: vfg {command} TABLE -m MODEL"
    )
    return Path(tables[0]), list(tables[1:])


WIDTH = 48
"""Of the picture, in characters."""


def history_file(model: Path) -> Path:
    """Where the history of a model is kept.

    Example:
        >>> history_file(Path("folder/model.vfg")).name
        'model.history.json'
    """
    return model.with_suffix(".history.json")


def write_history(model: Path, history: History | None) -> None:
    """Write the history beside a model, or remove that of an earlier one; other files stay."""
    from vfg.utils.files import is_stream, write_atomically

    path = history_file(model)
    if is_stream(model):
        return
    if path.exists() and not _is_history_of(path, model):
        print_line(
            f"warning: {path} is not the history of {model.name}; the history of the fit was not "
            "written"
        )
    elif history is None:
        path.unlink(missing_ok=True)
    else:
        written = {**history.to_dict(), "model": model.name}
        write_atomically(path, (json.dumps(written, indent=1) + "\n").encode())


def _is_history_of(path: Path, model: Path) -> bool:
    try:
        known = json.loads(path.read_bytes())
        return isinstance(known["epochs"], list) and known.get("model", model.name) == model.name
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def read_history(model: Path) -> dict[str, Any] | None:
    """The history beside a model; None if there is none."""
    from vfg.training.history import History

    path = history_file(model)
    if not path.is_file():
        return None
    try:
        return History.from_dict(json.loads(path.read_bytes())).to_dict()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a training history; remove it") from error


def draw_history(history: dict[str, Any]) -> list[str]:
    r"""A history in lines of text: the held-out loss, or what was minimised, epoch by epoch.

    Example:
        >>> epochs = [{"validation": loss, "objective": -loss, "seconds": 1.0} for loss in (3, 1)]
        >>> print(*draw_history({"epochs": epochs, "best": 1, "stopped": "epochs"}), sep="\n")
        held-out loss 3 to 1 in 2 epochs of 1 s, best in epoch 2 (stopped: epochs)
        █▁
    """
    epochs = history["epochs"]
    if not epochs:
        return ["training had no epochs"]
    losses = [epoch["validation"] for epoch in epochs]
    what = "held-out loss"
    if any(loss is None for loss in losses):
        what, losses = "loss", [-epoch["objective"] for epoch in epochs]
    number = min(len(losses), WIDTH)  # evenly spread, the last one among them
    shown = [losses[(k + 1) * len(losses) // number - 1] for k in range(number)]
    best = len(epochs) if history["best"] is None else history["best"] + 1
    return [
        f"{what} {losses[0]:.4g} to {losses[best - 1]:.4g} in {len(epochs)} epochs of "
        f"{epochs[-1]['seconds']:.0f} s, best in epoch {best} (stopped: {history['stopped']})",
        bars(shown),
    ]
