"""Rows grouped by equal masks against a solve per row, by the share of masks that are distinct."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vfg.gaussian.factors import Factors, Masks, condition

from .clock import Where, medians

ROWS = 4096
SHARES = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 1.0)
SIZES = ((8, 4, 1), (16, 8, 1), (16, 8, 8), (64, 16, 1), (256, 16, 1))
"""Columns, innovations, components."""


def measured(where: Where) -> list[dict[str, Any]]:
    """Seconds of conditioning and of covariances, grouping included, by sizes and share."""
    found = []
    for columns, innovations, components in SIZES[:1] if where.quick else SIZES:
        for share in SHARES[::3] if where.quick else SHARES:
            rows = 128 if where.quick else ROWS
            case = {"columns": columns, "innovations": innovations, "components": components}
            times = _case(columns, innovations, components, rows, share, where)
            found.append({**case, "rows": rows, "share": share, **times})
            print(found[-1], flush=True)
    return found


def _case(
    columns: int, innovations: int, components: int, rows: int, share: float, where: Where
) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    factors = _factors(columns, innovations, components, generator)
    values = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    distinct = max(1, round(share * rows))
    masks = torch.rand(distinct, columns, generator=generator) > 0.3
    seen = masks[torch.arange(rows) % distinct][torch.randperm(rows, generator=generator)]
    on = where.device
    factors = Factors(*(tensor.to(on) for tensor in factors))
    values, seen = values.to(on), seen.to(on)

    def work(masks_of: Callable[[Tensor], Masks]) -> Callable[[], object]:
        return lambda: condition(factors, values, masks_of(seen)).covariance

    works = {"grouped": work(_grouped), "row by row": work(_apart)}
    return medians(works, on, 0.1 if where.quick else 0.6)


def _factors(
    columns: int, innovations: int, components: int, generator: torch.Generator
) -> Factors:
    loadings = torch.randn(components, columns, innovations, generator=generator).double()
    weights = torch.zeros(components, dtype=torch.float64).log_softmax(0)
    offsets = torch.zeros(components, columns, dtype=torch.float64)
    return Factors(weights, loadings, offsets, torch.ones_like(offsets))


def _grouped(seen: Tensor) -> Masks:
    """Equal masks once, however many there are; found as `GaussianVFG` does."""
    bits = torch.arange(63, device=seen.device)
    parts = [(part.long() << bits[: part.shape[1]]).sum(1) for part in seen.split(63, dim=1)]
    packed = torch.stack(parts, dim=1)
    if packed.shape[1] == 1:
        found, groups = packed[:, 0].unique(return_inverse=True)
    else:
        found, groups = packed.unique(dim=0, return_inverse=True)
    first = torch.zeros(len(found), dtype=torch.long, device=seen.device)
    first[groups] = torch.arange(len(seen), device=seen.device)
    return Masks(seen[first], groups)


def _apart(seen: Tensor) -> Masks:
    return Masks(seen, torch.arange(len(seen), device=seen.device))
