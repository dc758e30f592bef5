"""What every flow promises, checked for every flow: a new one needs one line in the registry."""

import copy

import pytest
import torch

from vfg import flows


def lu_with_pivots(edges, width):
    flow = flows.LULinear(edges, width)
    generator = torch.Generator().manual_seed(5)
    flow.set_matrix(torch.randn(edges, width, width, generator=generator) + 2 * torch.eye(width))
    return flow


def alternating(edges, width):
    return torch.arange(edges * width).reshape(edges, width) % 2 == 0


SMALL = flows.Network(hidden=8)

# name: (constructor, widths). Small networks keep the Jacobians cheap.
REGISTRY = {
    "affine coupling": (lambda e, w: flows.AffineCoupling(e, w, network=SMALL), (1, 2, 5)),
    "odd coupling": (lambda e, w: flows.AffineCoupling(e, w, block=3, network=SMALL), (2, 5)),
    "one-layer coupling": (
        lambda e, w: flows.AffineCoupling(e, w, network=flows.Network(layers=1)),
        (2, 5),
    ),
    "additive coupling": (lambda e, w: flows.AdditiveCoupling(e, w, network=SMALL), (1, 2, 5)),
    "spline coupling": (lambda e, w: flows.SplineCoupling(e, w, network=SMALL), (1, 2, 5)),
    "two-bin coupling": (lambda e, w: flows.SplineCoupling(e, w, bins=2, network=SMALL), (2, 5)),
    "monotone spline": (lambda e, w: flows.MonotoneSpline(e, w), (1, 2, 5)),
    "falling spline": (lambda e, w: flows.MonotoneSpline(e, w, decreasing=True), (1, 5)),
    "mixed spline": (
        lambda e, w: flows.MonotoneSpline(e, w, bins=5, decreasing=alternating(e, w)),
        (1, 2, 5),
    ),
    "two-bin spline": (lambda e, w: flows.MonotoneSpline(e, w, bins=2, tail=1.0), (1, 5)),
    "elementwise affine": (lambda e, w: flows.ElementwiseAffine(e, w), (1, 2, 5)),
    "normalisation": (lambda e, w: flows.ActivationNormalisation(e, w), (1, 2, 5)),
    "permutation": (lambda e, w: flows.Permutation(e, w), (1, 2, 5)),
    "rotation of places": (lambda e, w: flows.Permutation(e, w, torch.arange(w).roll(1)), (2, 5)),
    "lu": (lambda e, w: flows.LULinear(e, w), (1, 2, 5)),
    "lu without shift": (lambda e, w: flows.LULinear(e, w, bias=False), (1, 2, 5)),
    "lu with pivots": (lu_with_pivots, (1, 2, 5)),
    "householder": (lambda e, w: flows.Householder(e, w), (2, 5)),
    "one reflection": (lambda e, w: flows.Householder(e, w, reflections=1), (2, 5)),
    "composition": (
        lambda e, w: flows.Composition(
            [flows.Householder(e, w), flows.Permutation(e, w), lu_with_pivots(e, w)]
        ),
        (2, 5),
    ),
    "bent composition": (
        lambda e, w: flows.Composition([flows.MonotoneSpline(e, w), lu_with_pivots(e, w)]),
        (1, 2, 5),
    ),
    "inverse": (lambda e, w: flows.Inverse(flows.SplineCoupling(e, w, network=SMALL)), (1, 2, 5)),
    "inverse of lu": (lambda e, w: flows.Inverse(lu_with_pivots(e, w)), (1, 2, 5)),
    "linear start": (
        lambda e, w: flows.LinearStart(flows.Coupling(2, hidden=8), columns=1).build(e, w),
        (2, 5),
    ),
    "linear start, two columns": (
        lambda e, w: flows.LinearStart(flows.Coupling(2, hidden=8), 2, bins=4).build(e, w),
        (2, 5),
    ),
    "linear start, inner": (
        lambda e, w: flows.LinearStart(flows.Coupling(2, hidden=8), columns=0).build(e, w),
        (2, 5),
    ),
    "Coupling": (lambda e, w: flows.Coupling(hidden=8).build(e, w), (1, 2, 5)),
    "shared Coupling": (
        lambda e, w: flows.Coupling(2, hidden=8, layers=2, shared=3).build(e, w),
        (2, 5),
    ),
    "Coupling, additive": (
        lambda e, w: flows.Coupling(2, hidden=8, kind="additive", activation="silu").build(e, w),
        (1, 2, 5),
    ),
    "Coupling, spline": (
        lambda e, w: flows.Coupling(2, hidden=8, kind="spline", activation="tanh").build(e, w),
        (1, 2, 5),
    ),
    "Coupling, convolutions": (
        lambda e, w: flows.Coupling(2, hidden=8, image=(w // 2, 2), channels=3).build(e, w),
        (2, 6),
    ),
    "spline Coupling, convolutions": (
        lambda e, w: flows.Coupling(2, 8, kind="spline", image=(1, w), channels=2).build(e, w),
        (2, 5),
    ),
    "Coupling, residual convolutions": (
        lambda e, w: flows.Coupling(2, image=(2, w // 2), channels=2, residual=1).build(e, w),
        (4, 12),
    ),
    "Coupling, normalised": (
        lambda e, w: flows.Coupling(3, hidden=8, activation="gelu", normalise=True).build(e, w),
        (1, 2, 5),
    ),
    "Bottleneck": (
        lambda e, w: flows.Bottleneck((2, 2), channels=2, residual=1).build(e, w),
        (5, 6),
    ),
    "Spline": (lambda e, w: flows.Spline(bins=4).build(e, w), (1, 2, 5)),
    "Spline, falling": (lambda e, w: flows.Spline(decreasing=True).build(e, w), (1, 2, 5)),
    "Linear": (lambda e, w: flows.Linear().build(e, w), (1, 2, 5)),
    "Linear, householder": (lambda e, w: flows.Linear("householder").build(e, w), (1, 2, 5)),
    "Linear, affine": (lambda e, w: flows.Linear("affine").build(e, w), (1, 2, 5)),
}

LINEAR = [
    "elementwise affine",
    "normalisation",
    "permutation",
    "rotation of places",
    "lu",
    "lu without shift",
    "lu with pivots",
    "householder",
    "one reflection",
    "composition",
    "inverse of lu",
    "Linear",
    "Linear, householder",
    "Linear, affine",
]
BENT_ON_THE_LINE = [
    "monotone spline",
    "Coupling",
    "Coupling, additive",
    "Coupling, spline",
    "Coupling, normalised",
    "Spline",
    "Spline, falling",
]
STARTS_AS_IDENTITY = [
    "affine coupling",
    "odd coupling",
    "one-layer coupling",
    "additive coupling",
    "spline coupling",
    "two-bin coupling",
    "monotone spline",
    "elementwise affine",
    "normalisation",
    "lu",
    "lu without shift",
    "inverse",
    "Coupling",
    "Coupling, additive",
    "Coupling, spline",
    "Coupling, convolutions",
    "spline Coupling, convolutions",
    "Coupling, residual convolutions",
    "Coupling, normalised",
    "Spline",
    "Linear",
    "Linear, affine",
]

# Compilers are slow: these stand for the others in the fast tests.
COMPILED_FIRST = ["odd coupling", "falling spline", "lu with pivots", "householder", "permutation"]

EDGES = (1, 3)
CASES = [(name, e, w) for name, (_, widths) in REGISTRY.items() for e in EDGES for w in widths]
WIDEST = [(name, 3, widths[-1]) for name, (_, widths) in REGISTRY.items()]

every_case = pytest.mark.parametrize(("name", "edges", "width"), CASES)
every_flow = pytest.mark.parametrize(("name", "edges", "width"), WIDEST)


def some_flows(names):
    cases = [(name, 3, width) for name in names for width in REGISTRY[name][1]]
    return pytest.mark.parametrize(("name", "edges", "width"), cases)


def draw(*shape, seed=1, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def is_shared(name, key):
    """Whether a tensor belongs to the network that serves all edges."""
    return name.startswith("shared") and key.endswith(("weight", "mixing"))


def fresh(name, edges, width):
    return REGISTRY[name][0](edges, width)


def perturbed(name, edges, width, dtype=torch.float64, size=0.3):
    """A flow away from its start, since at the identity most mistakes are invisible."""
    flow = fresh(name, edges, width).to(dtype)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in flow.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(size * noise.to(dtype))
    return flow


def points(edges, width, dtype=torch.float64):
    """Rows of ordinary size, and rows at the knots and ends of fresh splines."""
    knots = torch.linspace(-5, 5, 11, dtype=dtype).reshape(-1, 1).expand(edges, -1, width)
    return torch.cat([draw(edges, 20, width, dtype=dtype), knots], dim=1)


def knots_of(flow):
    """The inputs at which the first spline of a flow changes from piece to piece."""
    spline = next(part for part in flow.modules() if isinstance(part, flows.MonotoneSpline))
    widths = flows.bounded_bins(spline.raw_widths, 2 * spline.tail)
    ends = torch.nn.functional.pad(widths.cumsum(-1), (1, 0)) - spline.tail
    return ends.mT.detach()


def jacobian(function, x):
    """Jacobians row by row, `(edges, batch, width, width)`, by automatic differentiation alone."""
    rows = []
    for row in range(x.shape[1]):
        full = torch.autograd.functional.jacobian(
            lambda value: function(value.unsqueeze(1)).squeeze(1), x[:, row]
        )
        edges = torch.arange(x.shape[0])
        rows.append(full[edges, :, edges])
    return torch.stack(rows, dim=1)


def largest(x):
    return x.abs().amax(-1, keepdim=True).clamp_min(1)


def assert_round_trip(there, back, x, tolerance):
    y, log_det = there(x)
    again, log_det_back = back(y)
    assert ((again - x).abs() / largest(x)).max() < tolerance
    assert (log_det + log_det_back).abs().max() < tolerance * 100


@every_case
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_round_trips_in_both_directions(name, edges, width, dtype, tolerance):
    flow, x = perturbed(name, edges, width, dtype), points(edges, width, dtype)
    assert_round_trip(flow.forward, flow.inverse, x, tolerance)
    assert_round_trip(flow.inverse, flow.forward, x, tolerance)


@every_case
def test_leading_coordinates_are_those_of_both_directions(name, edges, width):
    flow, x = perturbed(name, edges, width), draw(edges, 6, width)
    for count in {1, (width + 1) // 2, width}:
        torch.testing.assert_close(flow.leading(x, count), flow(x)[0][..., :count])
        torch.testing.assert_close(flow.leading_inverse(x, count), flow.inverse(x)[0][..., :count])


@every_flow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_round_trips_far_from_the_origin(name, edges, width, dtype, tolerance):
    # Closer to the start than elsewhere: a coupling may send large rows to rows a hundred times
    # larger, whose rounding no inverse can undo.
    flow = perturbed(name, edges, width, dtype, size=0.1)
    x = 1e3 * draw(edges, 8, width, dtype=dtype)
    for there, back in [(flow.forward, flow.inverse), (flow.inverse, flow.forward)]:
        assert ((back(there(x)[0])[0] - x).abs() / largest(x)).max() < tolerance


@some_flows(["monotone spline", "falling spline", "mixed spline", "bent composition", "Spline"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_round_trips_at_the_knots_of_a_spline(name, edges, width, dtype, tolerance):
    flow = perturbed(name, edges, width, dtype)
    assert_round_trip(flow.forward, flow.inverse, knots_of(flow), tolerance)


@every_case
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_log_det_is_that_of_the_jacobian(name, edges, width, direction):
    function = getattr(perturbed(name, edges, width), direction)
    x = torch.cat([draw(edges, 3, width), 20 * draw(edges, 2, width, seed=3)], dim=1)
    expected = torch.linalg.slogdet(jacobian(lambda value: function(value)[0], x)).logabsdet
    torch.testing.assert_close(function(x)[1], expected, rtol=0, atol=1e-9)


@every_flow
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_shapes_and_dtypes_are_kept(name, edges, width, direction):
    for dtype in (torch.float32, torch.float64):
        function = getattr(perturbed(name, edges, width, dtype), direction)
        y, log_det = function(draw(edges, 4, width, dtype=dtype))
        assert (y.shape, y.dtype) == ((edges, 4, width), dtype)
        assert (log_det.shape, log_det.dtype) == ((edges, 4), dtype)


@every_flow
def test_data_may_be_wider_than_the_parameters(name, edges, width):
    flow, x = perturbed(name, edges, width, torch.float32), draw(edges, 4, width)
    y, log_det = flow(x)
    assert y.dtype == log_det.dtype == torch.float64
    torch.testing.assert_close(flow.inverse(y)[0], x, rtol=0, atol=1e-9)


@every_flow
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_an_empty_batch_gives_an_empty_answer(name, edges, width, direction):
    y, log_det = getattr(fresh(name, edges, width), direction)(torch.zeros(edges, 0, width))
    assert y.shape == (edges, 0, width)
    assert log_det.shape == (edges, 0)


@every_flow
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_rows_do_not_see_each_other(name, edges, width, direction):
    function = getattr(perturbed(name, edges, width), direction)
    x = draw(edges, 6, width)
    changed = x.clone()
    changed[:, 3:] = 50.0
    for result, other in zip(function(x), function(changed), strict=True):
        torch.testing.assert_close(result[:, :3], other[:, :3], rtol=0, atol=1e-12)


@every_case
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_gradients_reach_every_parameter_and_the_input(name, edges, width, direction):
    flow = perturbed(name, edges, width)
    x = torch.cat([3 * draw(edges, 40, width), 50 * draw(edges, 4, width)], dim=1)
    x.requires_grad_()
    y, log_det = getattr(flow, direction)(x)
    # The sum of squares alone would not see a rotation.
    (y * draw(*y.shape, seed=4) + y.square()).sum().add(log_det.square().sum()).backward()
    assert x.grad.isfinite().all()
    assert (x.grad != 0).any()
    for label, parameter in flow.named_parameters():
        if parameter.numel() == 0:
            continue  # the weight of a conditioner without inputs
        assert parameter.grad.isfinite().all(), label
        per_edge = parameter.grad.flatten(1).abs().amax(-1)
        assert (per_edge > 0).all(), f"{label} gets no gradient"


@every_flow
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_a_stack_is_its_edges_one_by_one(name, edges, width, direction):
    stack, x = perturbed(name, edges, width), draw(edges, 5, width)
    y, log_det = getattr(stack, direction)(x)
    for edge in range(edges):
        single = fresh(name, 1, width).double()
        whole = stack.state_dict()
        state = {k: v if is_shared(name, k) else v[edge : edge + 1] for k, v in whole.items()}
        single.load_state_dict(state)
        y_single, log_det_single = getattr(single, direction)(x[edge : edge + 1])
        torch.testing.assert_close(y_single[0], y[edge], rtol=0, atol=1e-12)
        torch.testing.assert_close(log_det_single[0], log_det[edge], rtol=0, atol=1e-12)


@every_flow
def test_every_saved_tensor_has_the_edges_as_its_leading_axis(name, edges, width):
    state = fresh(name, edges, width).state_dict()
    assert state
    leading = {key: 1 if is_shared(name, key) else edges for key in state}
    assert {key: value.shape[0] for key, value in state.items()} == leading


@every_flow
def test_saved_states_and_copies_give_the_same_bits(name, edges, width):
    flow, x = perturbed(name, edges, width), draw(edges, 5, width)
    restored = fresh(name, edges, width).double()
    restored.load_state_dict(flow.state_dict())
    for twin in (restored, copy.deepcopy(flow)):
        for result, other in zip(twin(x), flow(x), strict=True):
            assert torch.equal(result, other)


@some_flows(STARTS_AS_IDENTITY)
def test_the_start_is_the_identity_to_the_last_bit(name, edges, width):
    flow, x = fresh(name, edges, width), points(edges, width, torch.float32)
    for function in (flow.forward, flow.inverse):
        y, log_det = function(x)
        assert torch.equal(y, x)
        assert (log_det == 0).all()


@some_flows(["householder", "Linear, householder"])
def test_the_start_of_paired_reflections_is_the_identity_up_to_rounding(name, edges, width):
    flow, x = fresh(name, edges, width).double(), draw(edges, 5, width)
    torch.testing.assert_close(flow(x)[0], x, rtol=0, atol=1e-12)


@some_flows(LINEAR)
def test_linear_part_is_the_jacobian_of_a_linear_flow(name, edges, width):
    flow, x = perturbed(name, edges, width), draw(edges, 1, width)
    matrix = flow.linear_part()
    expected = jacobian(lambda value: flow(value)[0], x)[:, 0]
    torch.testing.assert_close(matrix.to(expected.dtype), expected, rtol=0, atol=1e-12)


@every_case
def test_linear_part_has_a_matrix_per_edge(name, edges, width):
    flow = perturbed(name, edges, width)
    assert flow.linear_part().shape == (edges, width, width)
    assert flow.linear_part().isfinite().all()


@pytest.mark.parametrize("name", BENT_ON_THE_LINE)
def test_width_one_is_not_affine(name):
    flow = perturbed(name, 3, 1)
    x = torch.linspace(-3, 3, 31, dtype=torch.float64).reshape(1, -1, 1).expand(3, -1, -1)
    bends = flow(x)[0].squeeze(-1).diff(n=2).abs().amax(-1)
    assert (bends > 1e-3).all()


@every_flow
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_autocast_keeps_single_precision_at_the_ends(name, edges, width, direction):
    flow = perturbed(name, edges, width, torch.float32)
    x = draw(edges, 5, width, dtype=torch.float32)
    function = getattr(flow, direction)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, log_det = function(x)
        matrix = flow.linear_part()
    assert y.dtype == log_det.dtype == matrix.dtype == torch.float32
    for result, other in zip((y, log_det), function(x), strict=True):
        torch.testing.assert_close(result, other, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", LINEAR)
def test_autocast_leaves_linear_flows_untouched(name):
    flow, x = perturbed(name, 3, 5, torch.float32), draw(3, 5, 5, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = [flow(x)[0], flow.inverse(x)[0], flow.linear_part()]
    outside = [flow(x)[0], flow.inverse(x)[0], flow.linear_part()]
    assert all(torch.equal(a, b) for a, b in zip(inside, outside, strict=True))


# In a composition half precision may round the input of a later conditioner either way.
@some_flows(name for name, _, w in WIDEST if not isinstance(fresh(name, 1, w), flows.Composition))
def test_autocast_keeps_the_round_trip_of_one_layer_exact(name, edges, width):
    flow = perturbed(name, edges, width, torch.float32)
    x = draw(edges, 8, width, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_round_trip(flow.forward, flow.inverse, x, 1e-4)


@pytest.mark.parametrize(
    ("name", "edges", "width"),
    [pytest.param(*c, marks=[] if c[0] in COMPILED_FIRST else pytest.mark.slow) for c in WIDEST],
)
def test_a_whole_graph_compiles_with_its_gradient(name, edges, width):
    flow, x = perturbed(name, edges, width), draw(edges, 4, width)

    def loss(value):
        y, log_det = flow(value)
        back, log_det_back = flow.inverse(y + 0.1)
        return (y * back).mean() + (log_det * 0.3 - log_det_back).mean()

    def loss_and_gradient(function):
        value = x.clone().requires_grad_()
        flow.zero_grad()
        total = function(value)
        total.backward()
        return [total.detach(), value.grad, *[p.grad.clone() for p in flow.parameters()]]

    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    results = zip(loss_and_gradient(compiled), loss_and_gradient(loss), strict=True)
    for result, expected in results:
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-9)


@every_flow
def test_initialise_returns_the_output_without_a_gradient(name, edges, width):
    flow, x = perturbed(name, edges, width), draw(edges, 5, width)
    y = flow.initialise(x)
    assert not y.requires_grad
    torch.testing.assert_close(y, flow(x)[0].detach(), rtol=0, atol=1e-12)


@every_flow
@pytest.mark.parametrize("direction", ["forward", "inverse", "initialise"])
def test_wrong_input_is_an_error_that_says_what_was_expected(name, edges, width, direction):
    function = getattr(fresh(name, edges, width), direction)
    for shape in [(edges, width), (edges + 1, 4, width), (edges, 4, width + 1)]:
        with pytest.raises(ValueError, match=rf"edges={edges}, batch, width={width}"):
            function(torch.zeros(shape))
    with pytest.raises(TypeError, match=r"floating-point input, but got torch.int64"):
        function(torch.zeros(edges, 4, width, dtype=torch.long))


@pytest.mark.usefixtures("untouched_generators")
@every_case
def test_nothing_draws_from_a_global_generator(name, edges, width):
    flow = fresh(name, edges, width)
    x = torch.zeros(edges, 2, width)
    flow.inverse(flow(x)[0])
    for value, other in zip(
        flow.state_dict().values(), fresh(name, edges, width).state_dict().values(), strict=True
    ):
        assert torch.equal(value, other)


@pytest.mark.parametrize(("edges", "width"), [(0, 2), (2, 0)])
def test_a_stack_without_edges_or_coordinates_is_an_error(edges, width):
    with pytest.raises(ValueError, match=f"edges={edges}, width={width}"):
        flows.ElementwiseAffine(edges, width)
