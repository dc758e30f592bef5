"""Tables whose rows are drawn from published equations."""

from __future__ import annotations

import torch
from torch import Tensor

from vfg.data.archives import archive


def synthetic(rows: int = 1300, *, seed: int = 0) -> Tensor:
    r"""The eight columns of the paper's first experiment.

    With $z_1 \sim N(0, 1)$ and $z_2 \sim N(1, 2^2)$: $x_1 = x_2 = z_1$, $x_3 = x_4 = 2 \sin z_1$,
    $x_5 = x_6 = z_2$ and $x_7 = x_8 = z_2^2$.

    Args:
        rows: how many.
        seed: of the draws.

    Returns:
        A table `(rows, 8)`.

    Example:
        >>> synthetic(5).shape
        torch.Size([5, 8])
    """
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(rows, generator=generator)
    second = 1.0 + 2.0 * torch.randn(rows, generator=generator)
    columns = [first, 2.0 * first.sin(), second, second.square()]
    return torch.stack([column for column in columns for _ in range(2)], dim=1)


NETWORK = (("A", "C"), ("B", "C"), ("B", "D"), ("A", "F"), ("D", "F"), ("E", "F"), ("G", "F"))
"""The edges (parent, child) of the Gaussian network of `gaussian_network`."""


def gaussian_network(rows: int = 5000, *, seed: int = 0) -> tuple[Tensor, tuple[str, ...]]:
    """The linear-Gaussian Bayesian network of the paper's comparison with graphical models.

    With the environment variable `VFG_DATA` set to a folder that holds `gaussian_test.npz`, its
    rows as published with bnlearn; else rows simulated from the network's equations.

    Args:
        rows: how many, 5000 at most if they come from the file.
        seed: of the simulation.

    Returns:
        A table `(rows, 7)` in float64, and the names of its columns.

    Example:
        >>> table, names = gaussian_network(10)
        >>> table.shape, "".join(names)
        (torch.Size([10, 7]), 'ABCDEFG')
    """
    names = tuple("ABCDEFG")
    found = archive("gaussian_test.npz")
    if found is not None:
        return torch.from_numpy(found["data"][:rows]), names
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, 7, generator=generator, dtype=torch.float64).unbind(1)
    a, b = 1.0 + noise[0], 2.0 + 3.0 * noise[1]
    c = 2.0 + 2.0 * a + 2.0 * b + 0.5 * noise[2]
    d = 6.0 + 1.5 * b + 0.33 * noise[3]
    e, g = 3.5 + 2.0 * noise[4], 5.0 + 2.0 * noise[6]
    f = 2.0 * a + d + e + 1.5 * g + noise[5]
    return torch.stack([a, b, c, d, e, f, g], dim=1), names
