"""The parts of an ensemble as model files describe them: everything but the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from vfg.gaussian import GaussianVFG
from vfg.imputation.categories import SET_LEVELS
from vfg.imputation.ensemble import OPTIONAL, Ensemble
from vfg.imputation.gaussian_processes import GaussianProcesses
from vfg.imputation.medians import CENTRES, SHAPES
from vfg.imputation.missingness import Mechanism
from vfg.imputation.mixtures import Mixture
from vfg.imputation.parts import KINDS, Parts, Stacking
from vfg.imputation.relations import Relations
from vfg.imputation.row_mixture import RowMixture
from vfg.imputation.trees import Forest
from vfg.model import VFG

ENTRIES = {
    "relations": "relations",
    "noisy": "relation_noise",
    "departures": "departures",
    "drawing": "drawing",
    "sharpness": "sharpness",
    "widths": "widths",
    "tree_widths": "tree_widths",
    "linear_errors": "linear_errors",
    "targeted": "targeted",
    "trust": "trust",
    "usual_distance": "usual_distance",
    "held_levels": "held_levels",
    "following": "following",
    "slope_errors": "slope_errors",
    "pooling": "pooling",
    "slopes": "slopes",
    "selection": "selection",
    "sets": "set_thresholds",
    "medians": "median_weights",
}
"""Entries of descriptions by the buffers that they announce, which files may lack."""
COUNTED = ("relations", "pooling", "sets")
"""Entries that are the lengths of their buffers. Shapes of the others follow from the columns."""


def describe_parts(model: Ensemble) -> dict[str, Any]:
    """The parts and which buffers there are, ready for JSON; forests are described elsewhere."""
    buffers = {entry: getattr(model, name) for entry, name in ENTRIES.items()}
    return {
        "linear": None if model.linear is None else model.linear.to_dict(),
        "members": [member.to_dict() for member in model.member_models],
        "mixtures": [mixture.to_dict() for mixture in model.mixture_models],
        "neighbours": [one.to_dict() for one in model.row_mixture_models],
        **{
            entry: len(buffer) if entry in COUNTED else True
            for entry, buffer in buffers.items()
            if buffer is not None
        },
    }


def empty_parts(description: Mapping[str, Any], columns: int) -> Parts:
    """Parts of the shapes that a description tells, whose tensors are read afterwards."""
    linear, buffers = description["linear"], _empty_buffers(description, columns)
    noise = torch.zeros(description.get("relations", 0), dtype=torch.float64)
    combination = {name: buffers[name] for name in OPTIONAL if name in buffers}
    return Parts(
        members=[VFG.from_dict(member) for member in description["members"]],
        mixtures=[Mixture.from_dict(mixture) for mixture in description["mixtures"]],
        neighbours=[RowMixture.from_dict(one) for one in description["neighbours"]],
        linear=None if linear is None else GaussianVFG.from_dict(linear),
        forest=Forest.from_dict(description["forest"]) if "forest" in description else None,
        processes=GaussianProcesses.from_dict(description["processes"])
        if "processes" in description
        else None,
        relations=Relations(noise.new_zeros(len(noise), columns + 1), noise),
        combination=Stacking.of_members(columns).with_buffers(combination),
        following=buffers.get("following"),
        slope_errors=buffers.get("slope_errors"),
        mechanism=Mechanism(buffers.get("slopes"), selection=buffers.get("selection")),
        set_thresholds=buffers.get("sets"),
        medians=buffers.get("medians"),
    )


def _empty_buffers(description: Mapping[str, Any], columns: int) -> dict[str, Any]:
    """The buffers that a description announces, by entry; relations aside."""
    shapes: dict[str, tuple[int, ...]] = {
        "departures": (len(KINDS), columns),
        "drawing": (4,),
        "sharpness": (columns,),
        "widths": (2, columns),
        "tree_widths": (2, columns),
        "linear_errors": (columns,),
        "targeted": (columns,),
        "trust": (columns,),
        "usual_distance": (),
        "held_levels": (columns,),
        "following": (2, columns),
        "slope_errors": (2, columns),
        "pooling": (description.get("pooling", 0), 2),
        "slopes": (columns,),
        "selection": (columns + 3, columns),
        "sets": (description.get("sets", 0), len(SET_LEVELS)),
        "medians": (1 + CENTRES * SHAPES, columns),
    }
    return {
        entry: torch.zeros(shape, dtype=torch.float64)
        for entry, shape in shapes.items()
        if entry in description
    }
