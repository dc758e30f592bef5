"""`vfg embed`: latent states of the rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vfg.cli.options import with_groups
from vfg.cli.table_files import RowOptions

if TYPE_CHECKING:
    from vfg import Model


@with_groups
def embed(options: RowOptions) -> None:
    """Compute the latent states of the roots for every row, one column per coordinate.

    vfg embed table.csv -m model.vfg -o states.csv
    """
    options, known = options.load("embed")
    options.print_summary({"rows": options.write(known, lambda table: embed_rows(known, table))})


def embed_rows(model: Model, table: Any) -> dict[str, Any]:
    """The states of the roots, by coordinate: `h0`, `h1`, ... of a table's model, else by root."""
    import numpy as np

    import vfg

    states = np.asarray(model.embed(table), dtype=np.float64)
    if not states.shape[1]:
        raise ValueError("the model has no latent space, since no column varies")
    if isinstance(model, vfg.TableModel):
        return {f"h{place}": states[:, place] for place in range(states.shape[1])}
    roots = [model.graph.node(root) for root in model.graph.roots]
    names = [f"{root.name}{place}" for root in roots for place in range(root.width)]
    return dict(zip(names, states.T, strict=True))
