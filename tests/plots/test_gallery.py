"""Every plot has a small picture in the handbook."""

from pathlib import Path

import pytest

from vfg import plots

IMAGES = Path(__file__).parents[2] / "docs" / "images"
DRAWN = [name for name in plots.__all__ if name not in ("graph", "positions", "distribution")]


@pytest.mark.parametrize("name", [*DRAWN, "graph_tree", "graph_network", "graph_wide"])
def test_every_plot_has_a_small_picture(name):
    picture = IMAGES / f"plot-{name.replace('_', '-')}.svg"
    assert 1_000 < picture.stat().st_size < 250_000
