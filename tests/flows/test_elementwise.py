import pytest
import torch

from vfg.flows import ActivationNormalisation, AffineCoupling, Composition, ElementwiseAffine


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


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
    x = draw(2, 500, 3) * scales + centres * scales
    flow = ActivationNormalisation(2, 3)
    y = flow.initialise(x)
    torch.testing.assert_close(y, flow(x)[0].detach())
    torch.testing.assert_close(y.mean(1), torch.zeros(2, 3), rtol=0, atol=1e-4)
    torch.testing.assert_close(y.var(1, correction=0), torch.ones(2, 3), rtol=1e-4, atol=0)


@pytest.mark.parametrize("constant", [0.0, 1e3, -0.1])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_a_constant_coordinate_is_centred_and_keeps_its_scale(constant, batch):
    flow = ActivationNormalisation(1, 2)
    x = torch.stack([torch.full((1, batch), constant), draw(1, batch)], dim=-1)
    y = flow.initialise(x)
    assert y.isfinite().all()
    assert flow.log_scale[0, 0] == 0
    torch.testing.assert_close(y[..., 0], torch.zeros(1, batch), rtol=0, atol=1e-3)


def test_data_reach_a_normalisation_through_the_flows_before_it():
    shift = ElementwiseAffine(2, 3)
    torch.nn.init.constant_(shift.shift, 40.0)
    flow = Composition([AffineCoupling(2, 3), shift, ActivationNormalisation(2, 3)])
    y = flow.initialise(7 * draw(2, 200, 3))
    torch.testing.assert_close(y.mean(1), torch.zeros(2, 3), rtol=0, atol=1e-4)
    torch.testing.assert_close(y.var(1, correction=0), torch.ones(2, 3), rtol=1e-3, atol=0)
