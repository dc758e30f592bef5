"""Linear flows."""

import pytest
import torch

from vfg.flows import (
    ActivationNormalisation,
    AffineCoupling,
    Composition,
    ElementwiseAffine,
    Householder,
    LULinear,
    Permutation,
)


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def test_scale_and_shift_are_what_they_say():
    flow = ElementwiseAffine(1, 2)
    with torch.no_grad():
        flow.log_scale.copy_(torch.tensor([[2.0, 0.5]]).log())
        flow.shift.copy_(torch.tensor([[1.0, -1.0]]))
    y, log_det = flow(torch.tensor([[[3.0, 4.0]]]))
    torch.testing.assert_close(y, torch.tensor([[[7.0, 1.0]]]))
    torch.testing.assert_close(log_det, torch.zeros(1, 1))


def test_the_first_batch_comes_out_standardised():
    scales, centres = torch.tensor([1e-4, 1.0, 1e4]), torch.tensor([[[5.0]], [[-3.0]]])
    x = draw(2, 500, 3, dtype=torch.float32) * scales + centres * scales
    flow = ActivationNormalisation(2, 3)
    y = flow.initialise(x)
    torch.testing.assert_close(y, flow(x)[0].detach())
    torch.testing.assert_close(y.mean(1), torch.zeros(2, 3), rtol=0, atol=1e-4)
    torch.testing.assert_close(y.var(1, correction=0), torch.ones(2, 3), rtol=1e-4, atol=0)


@pytest.mark.parametrize("constant", [0.0, 1e3, -0.1])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_a_constant_coordinate_is_centred_and_keeps_its_scale(constant, batch):
    flow = ActivationNormalisation(1, 2)
    x = torch.stack([torch.full((1, batch), constant), draw(1, batch, dtype=torch.float32)], dim=-1)
    y = flow.initialise(x)
    assert y.isfinite().all()
    assert flow.log_scale[0, 0] == 0
    torch.testing.assert_close(y[..., 0], torch.zeros(1, batch), rtol=0, atol=1e-3)


def test_data_reach_a_normalisation_through_the_flows_before_it():
    shift = ElementwiseAffine(2, 3)
    torch.nn.init.constant_(shift.shift, 40.0)
    flow = Composition([AffineCoupling(2, 3), shift, ActivationNormalisation(2, 3)])
    y = flow.initialise(7 * draw(2, 200, 3, dtype=torch.float32))
    torch.testing.assert_close(y.mean(1), torch.zeros(2, 3), rtol=0, atol=1e-4)
    torch.testing.assert_close(y.var(1, correction=0), torch.ones(2, 3), rtol=1e-3, atol=0)


@pytest.mark.parametrize("width", [1, 2, 6])
def test_any_invertible_matrix_can_be_loaded(width):
    matrix, shift, x = draw(3, width, width), draw(3, width, seed=1), draw(3, 4, width, seed=2)
    flow = LULinear(3, width).double()
    flow.set_matrix(matrix, shift)
    y, log_det = flow(x)
    torch.testing.assert_close(y, x @ matrix.mT + shift.unsqueeze(1))
    torch.testing.assert_close(log_det[:, 0], torch.linalg.slogdet(matrix).logabsdet)
    torch.testing.assert_close(flow.linear_part(), matrix)


def test_a_matrix_with_zeros_on_its_diagonal_needs_the_pivots():
    swap = torch.tensor([[[0.0, 1.0, 0.0], [0.0, 0.0, -2.0], [0.5, 0.0, 0.0]]])
    flow = LULinear(1, 3)
    flow.set_matrix(swap)
    assert torch.equal(flow.linear_part().detach(), swap)


def test_loading_without_a_shift_clears_the_old_one():
    flow = LULinear(1, 2)
    flow.set_matrix(torch.eye(2).unsqueeze(0), torch.ones(1, 2))
    flow.set_matrix(torch.eye(2).unsqueeze(0))
    assert (flow.shift == 0).all()


@pytest.mark.parametrize(
    ("matrix", "shift", "message"),
    [
        (torch.eye(3).expand(2, 3, 3), None, r"shape \(2, 2, 2\), but got \(2, 3, 3\)"),
        (torch.stack([torch.eye(2), torch.ones(2, 2)]), None, r"the edges \[1\] are not"),
        (torch.full((2, 2, 2), torch.nan), None, r"the edges \[0, 1\] are not"),
        (torch.eye(2).expand(2, 2, 2), torch.ones(2), r"shape \(2, 2\), but got \(2,\)"),
    ],
)
def test_a_matrix_that_cannot_be_loaded_is_an_error_and_changes_nothing(matrix, shift, message):
    flow = LULinear(2, 2)
    with pytest.raises(ValueError, match=message):
        flow.set_matrix(matrix, shift)
    assert (flow.factors == 0).all()


def test_a_shift_for_a_flow_without_one_is_an_error():
    with pytest.raises(ValueError, match="bias=True"):
        LULinear(1, 2, bias=False).set_matrix(torch.eye(2).unsqueeze(0), torch.ones(1, 2))


def test_a_reflection_turns_its_vector_around_and_keeps_what_is_orthogonal():
    flow = Householder(1, 3, reflections=1)
    with torch.no_grad():
        flow.vectors.copy_(torch.tensor([[[1.0, 1.0, 0.0]]]))
    y, _ = flow(torch.tensor([[[1.0, 1.0, 0.0], [1.0, -1.0, 5.0]]]))
    expected = torch.tensor([[[-1.0, -1.0, 0.0], [1.0, -1.0, 5.0]]])
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("reflections", [1, 2, 5, 9])
def test_the_matrix_is_the_product_of_the_reflections_in_order(reflections):
    flow = Householder(2, 4, reflections=reflections).double()
    with torch.no_grad():
        flow.vectors.copy_(draw(2, reflections, 4, seed=3))
    product = torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
    for vector in flow.vectors.detach().unbind(1):
        outer = vector.unsqueeze(-1) * vector.unsqueeze(-2)
        square = vector.square().sum(-1)[:, None, None]
        product = product @ (torch.eye(4, dtype=torch.float64) - 2 * outer / square)
    matrix = flow.linear_part()
    torch.testing.assert_close(matrix, product)
    identity = torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
    torch.testing.assert_close(matrix @ matrix.mT, identity)


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-15, 1e-10, 1e-4, 1e10])
def test_vectors_of_any_length_give_an_orthogonal_matrix_and_finite_gradients(length):
    flow = Householder(1, 3, reflections=2)
    with torch.no_grad():
        flow.vectors[:, 0] = torch.tensor([length, -length, 0.0])
    x = torch.ones(1, 2, 3, requires_grad=True)
    y, log_det = flow(x)
    y[..., 0].sum().backward()
    matrix = flow.linear_part()
    torch.testing.assert_close(matrix @ matrix.mT, torch.eye(3).unsqueeze(0))
    assert (log_det == 0).all()
    assert flow.vectors.grad.isfinite().all()
    assert x.grad.isfinite().all()


def test_the_default_number_of_reflections_is_even():
    assert [Householder(1, w).vectors.shape[1] for w in (1, 2, 3, 4, 7)] == [2, 2, 2, 4, 6]


def test_edges_may_have_their_own_orders():
    flow = Permutation(2, 3, torch.tensor([[0, 1, 2], [2, 0, 1]]))
    y, _ = flow(torch.tensor([[[1.0, 2.0, 3.0]]]).expand(2, 1, 3))
    assert y.flatten().tolist() == [1, 2, 3, 3, 1, 2]


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], [[0, 1, 2]] * 3, [0.5, 1, 2]])
def test_what_is_no_permutation_is_an_error(order):
    with pytest.raises(ValueError, match="an order of the coordinates 0 to 2"):
        Permutation(2, 3, order)
