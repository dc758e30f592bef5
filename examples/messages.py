"""Messages fill a missing section: `python examples/messages.py`.

A tree over four sections whose edges are random invertible networks. Every row is generated from
one point of the root, so the messages agree; then the section `c` is removed. Forward messages
from the other sections go to the root, backward messages to `c`; the model was not trained.
"""

from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import vfg

OUTPUT = Path("outputs/messages.png")
CONSOLE = Console()


def bent_tree(seed: int) -> vfg.VFG:
    """A tree of couplings whose parameters are random instead of the identity start."""
    graph = vfg.Graph.tree(dict.fromkeys("abcd", 2), arity=2, width=2)
    flow = vfg.Coupling(blocks=4, hidden=32, activation="tanh")
    model = vfg.VFG(graph, flow=flow, aggregation="mean").double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.passing.groups.parameters():
            parameter.add_(0.15 * torch.randn(parameter.shape, generator=generator))
    return model


def grid(points: int = 25) -> torch.Tensor:
    """A square of root states, so that each section shows as a bent sheet."""
    axis = torch.linspace(-2.0, 2.0, points, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis)


def errors_by_observed(model: vfg.VFG, sections: dict[str, torch.Tensor]) -> Table:
    """How well `c` comes back from every choice of the other sections."""
    table = Table("observed", "largest error in c", title="Filling the section c")
    choices = ["a", "b", "d", "ab", "ad", "bd", "abd"]
    for chosen in track(choices, description="passing messages", console=CONSOLE):
        filled = model.decode(model.encode({name: sections[name] for name in chosen}))["c"]
        table.add_row(", ".join(chosen), f"{(filled - sections['c']).abs().max():.1e}")
    return table


def draw(sections: dict[str, torch.Tensor], filled: torch.Tensor, colour: torch.Tensor) -> None:
    """The four sections as sheets; the missing one with its filled points on top."""
    import matplotlib

    matplotlib.use("Agg")
    from vfg.plots.style import REFERENCE, SHADES, legend, new_figure, tidy

    figure = new_figure(12.0, 3.4, columns=4)
    for axis, (name, values) in zip(figure.axes, sections.items(), strict=True):
        missing = name == "c"
        if missing:
            circles = {"facecolors": "none", "edgecolors": REFERENCE, "label": "truth"}
            axis.scatter(*values.T, s=34, **circles)
        shown = filled if missing else values
        axis.scatter(*shown.T, c=colour, s=7, cmap=SHADES, label="filled")
        tidy(axis, x=f"{name}₁", y=f"{name}₂" + (", missing and filled" if missing else ""))
        legend(axis)
    OUTPUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUTPUT, dpi=200)


def main() -> None:
    """Build, hide, fill, draw."""
    model = bent_tree(seed=4)
    CONSOLE.print(model.graph)
    root = grid()
    sections = model.decode({"root": root})
    CONSOLE.print(errors_by_observed(model, sections))
    seen = {name: sections[name] for name in "abd"}
    filled = model.decode(model.encode(seen))["c"]
    furthest = max(float(far.max()) for far in model.consistency(sections).values())
    CONSOLE.print(f"largest distance between forward and backward messages: {furthest:.1e}")
    draw(sections, filled, root[:, 0])
    CONSOLE.print(f"picture: {OUTPUT}")


if __name__ == "__main__":
    main()
