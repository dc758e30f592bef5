import pytest
import torch

from vfg.flows import Composition, ElementwiseAffine, Inverse, LULinear, Permutation


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def loaded(matrix):
    flow = LULinear(*matrix.shape[:2]).double()
    flow.set_matrix(matrix)
    return flow


def test_flows_apply_in_the_order_given():
    first, second, x = draw(2, 3, 3), draw(2, 3, 3, seed=1), draw(2, 4, 3, seed=2)
    flow = Composition([loaded(first), loaded(second)])
    torch.testing.assert_close(flow(x)[0], x @ first.mT @ second.mT)
    torch.testing.assert_close(flow.linear_part(), second @ first)


def test_log_determinants_add_up():
    first, second = draw(2, 3, 3), draw(2, 3, 3, seed=1)
    log_det = Composition([loaded(first), loaded(second)])(draw(2, 4, 3))[1]
    expected = torch.linalg.slogdet(second @ first).logabsdet
    torch.testing.assert_close(log_det, expected.unsqueeze(1).expand(2, 4))


def test_the_linear_part_has_the_dtype_of_the_members_with_parameters():
    flow = Composition([Permutation(1, 3), loaded(draw(1, 3, 3))])
    assert flow.linear_part().dtype == torch.float64


def test_an_inverse_shares_its_parameters():
    inner, x = loaded(draw(2, 3, 3)), draw(2, 4, 3)
    flow = Inverse(inner)
    torch.testing.assert_close(flow(inner(x)[0])[0], x)
    torch.testing.assert_close(
        flow.linear_part() @ inner.linear_part(), torch.eye(3).double().expand(2, 3, 3)
    )
    assert [id(p) for p in flow.parameters()] == [id(p) for p in inner.parameters()]


def test_an_empty_composition_is_an_error():
    with pytest.raises(ValueError, match="at least one flow"):
        Composition([])


def test_members_of_different_shape_are_an_error():
    with pytest.raises(ValueError, match="but flow 1 has edges=2 and width=4"):
        Composition([ElementwiseAffine(2, 3), ElementwiseAffine(2, 4)])
