"""`vfg score`: how likely the rows of a table are."""

from __future__ import annotations

from .asking import respondent
from .groups import with_groups
from .options import ModelFile
from .row_by_row import RowByRow


@with_groups
def score(model: ModelFile, wanted: RowByRow) -> None:
    """Score the rows of a table: log p of what is observed, one number per row.

    Models with deterministic states have no likelihood; they get the surrogate, and the column is
    called so.
    """
    asked = respondent(model)
    total = 0.0

    def work(frame: object) -> dict[str, object]:
        nonlocal total
        name, scores = asked.score(frame)
        total += float(scores.sum())
        return {name: scores}

    rows = wanted.write(asked, work)
    wanted.tell({"rows": rows, "mean": total / rows})
