"""`vfg embed`: where the rows of a table are in the latent space."""

from __future__ import annotations

from .asking import respondent
from .groups import with_groups
from .options import ModelFile
from .row_by_row import RowByRow


@with_groups
def embed(model: ModelFile, wanted: RowByRow) -> None:
    """Embed the rows of a table: the states of the roots, one column per coordinate."""
    asked = respondent(model)
    wanted.tell({"rows": wanted.write(asked, asked.embed)})
