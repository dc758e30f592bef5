"""The invertible functions on the edges of a graph, all stacked over a leading edge axis.

`Coupling`, `Spline` and `Linear` describe a flow; `build` makes one for a stack of edges. The flows
themselves are modules with `forward(x) -> (y, log_det)` and `inverse(y) -> (x, log_det)`.
"""

from vfg.flows.base import Flow, of_kind, temporarily_set
from vfg.flows.bottleneck import Bottleneck, BottleneckFlow
from vfg.flows.checks import check_choice
from vfg.flows.composition import Composition, Inverse
from vfg.flows.conditioners import Conditioner, Network, StackedLinear
from vfg.flows.couplings import (
    AdditiveCoupling,
    AffineCoupling,
    CouplingLayer,
    SplineCoupling,
    coupling_split,
)
from vfg.flows.fast.memory import MEMORIES
from vfg.flows.fast.primitives import (
    PRECISIONS,
    Rounding,
    conditioners_in,
    tensor_cores,
    times,
)
from vfg.flows.image_networks import ImageDecoder, ImageEncoder, ImageNetwork
from vfg.flows.linear import (
    ActivationNormalisation,
    ElementwiseAffine,
    Householder,
    LULinear,
    Permutation,
)
from vfg.flows.linear_start import LinearStart, LinearStartFlow
from vfg.flows.specs import Coupling, FlowSpec, Linear, Spline
from vfg.flows.splines import (
    MonotoneSpline,
    bounded_bins,
    bounded_derivatives,
    inverse_rational_quadratic,
    rational_quadratic,
)

__all__ = [
    "MEMORIES",
    "PRECISIONS",
    "ActivationNormalisation",
    "AdditiveCoupling",
    "AffineCoupling",
    "Bottleneck",
    "BottleneckFlow",
    "Composition",
    "Conditioner",
    "Coupling",
    "CouplingLayer",
    "ElementwiseAffine",
    "Flow",
    "FlowSpec",
    "Householder",
    "ImageDecoder",
    "ImageEncoder",
    "ImageNetwork",
    "Inverse",
    "LULinear",
    "Linear",
    "LinearStart",
    "LinearStartFlow",
    "MonotoneSpline",
    "Network",
    "Permutation",
    "Rounding",
    "Spline",
    "SplineCoupling",
    "StackedLinear",
    "bounded_bins",
    "bounded_derivatives",
    "check_choice",
    "conditioners_in",
    "coupling_split",
    "inverse_rational_quadratic",
    "of_kind",
    "rational_quadratic",
    "temporarily_set",
    "tensor_cores",
    "times",
]
