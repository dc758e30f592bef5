"""Conditioners: fully connected and convolutional networks, one per edge."""

import math

import pytest
import torch
from torch.nn import functional as F

from vfg.flows import Conditioner, Coupling, Network, StackedLinear
from vfg.flows.conditioners import (
    KERNEL,
    LocalConditioner,
    StackedConvolution,
    rectified_dropout,
)


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def draw_double(*shape, seed=0):
    return draw(*shape, seed=seed, dtype=torch.float64)


def with_random_last_layer(network):
    with torch.no_grad():
        network.last.weight.copy_(draw(*network.last.weight.shape))
        network.last.bias.copy_(draw(*network.last.bias.shape))
    return network


def test_the_stack_is_one_linear_map_per_edge():
    layer, x = StackedLinear(3, 4, 2), draw(3, 5, 4)
    y = layer(x)
    for edge in range(3):
        weight, bias = layer.weight[edge], layer.bias[edge, 0]
        expected = torch.nn.functional.linear(x[edge], weight.T, bias)
        torch.testing.assert_close(y[edge], expected)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "tanh"])
def test_the_default_is_three_layers_of_64_with_the_activation_between(activation):
    network = with_random_last_layer(Conditioner(2, 5, 3, network=Network(activation=activation)))
    x = draw(2, 4, 5)
    shapes = [tuple(p.shape) for name, p in network.named_parameters() if "weight" in name]
    assert sorted(shapes) == [(2, 5, 64), (2, 64, 3), (2, 64, 64)]
    bend = {"tanh": torch.tanh}.get(activation) or getattr(torch.nn.functional, activation)
    first, second = network.hidden_layers
    torch.testing.assert_close(network(x), network.last(bend(second(bend(first(x))))))


def test_the_start_is_zero_and_hidden_weights_fill_their_range():
    network = Conditioner(2, 16, 3)
    assert (network(draw(2, 4, 16)) == 0).all()
    first = network.hidden_layers[0].weight
    assert 0.9 / math.sqrt(16) < first.abs().max() <= 1 / math.sqrt(16)
    assert abs(first.mean()) < 0.02


def test_without_inputs_the_network_is_a_constant_that_learns():
    network = with_random_last_layer(Conditioner(2, 0, 3))
    y = network(torch.zeros(2, 4, 0))
    assert y.shape == (2, 4, 3)
    assert torch.equal(y[:, 0], y[:, 3])
    y.square().sum().backward()
    assert (network.hidden_layers[0].bias.grad != 0).any()


def test_edges_have_different_starts():
    weight = Conditioner(2, 4, 3).hidden_layers[0].weight
    assert not torch.equal(weight[0], weight[1])


def test_the_generator_decides_the_start():
    first, again, other = (
        Conditioner(1, 4, 3, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first.hidden_layers[0].weight, again.hidden_layers[0].weight)
    assert not torch.equal(first.hidden_layers[0].weight, other.hidden_layers[0].weight)


def test_dropout_drops_in_training_only_and_each_edge_on_its_own():
    network = with_random_last_layer(Conditioner(2, 4, 3, network=Network(dropout=0.5)))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter[1] = parameter[0]
    x = draw(1, 5, 4).expand(2, 5, 4)
    trained = network.train()(x)
    assert not torch.equal(trained[0], trained[1])
    assert not torch.equal(trained, network(x))
    settled = network.eval()(x)
    torch.testing.assert_close(settled[0], settled[1])
    assert torch.equal(settled, network(x))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"hidden": 0}, ValueError, "hidden to be at least 1, but got 0"),
        ({"layers": 0}, ValueError, "layers to be at least 1, but got 0"),
        ({"layers": True}, TypeError, "an integer for layers, but got True"),
        ({"activation": "step"}, ValueError, "'relu', 'silu', 'gelu', 'tanh', but got 'step'"),
        ({"dropout": 1.0}, ValueError, "below 1, but got 1.0"),
        ({"dropout": "0.1"}, TypeError, "a number for dropout, but got '0.1'"),
    ],
)
def test_bad_arguments_are_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        Network(**arguments)


def test_rectified_dropout_has_the_slope_of_what_it_computes():
    before = draw(3, 16, 5).requires_grad_()
    torch.manual_seed(0)
    after, factor = rectified_dropout(before * 1.0, 0.25)
    expected = (after != 0).float()
    torch.testing.assert_close(after, before.detach() * expected)
    assert bool((before.detach()[after != 0] > 0).all())
    assert factor == pytest.approx(4 / 3)
    (slope,) = torch.autograd.grad(after.sum(), before)
    torch.testing.assert_close(slope, expected)


def test_dropout_drops_the_share_and_keeps_the_mean():
    torch.manual_seed(0)
    after, factor = rectified_dropout(torch.ones(50, 64, 40), 0.3)
    assert (after == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert (factor * after).mean().item() == pytest.approx(1.0, abs=0.02)
    rows = (after == 0).float().flatten(0, 1)
    # Every row drops units of its own: two rows agree as often as chance has it.
    agreement = (rows[:-1] == rows[1:]).float().mean().item()
    assert agreement == pytest.approx(0.3**2 + 0.7**2, abs=0.01)


def test_gain_enlarges_hidden_weights_only():
    plain = Conditioner(2, 5, 3, network=Network(hidden=8))
    large = Conditioner(2, 5, 3, network=Network(hidden=8, gain=2.0))
    for one, two in zip(plain.hidden_layers, large.hidden_layers, strict=True):
        torch.testing.assert_close(2.0 * one.weight, two.weight)
        torch.testing.assert_close(one.bias, two.bias)
    assert large.last.weight.abs().max() == 0


@pytest.mark.parametrize(("given", "wanted"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("image", [(1, 4), (3, 7), (8, 6)])
def test_a_stacked_convolution_is_a_grouped_one(image, given, wanted):
    edges, (rows, columns) = 2, image
    everywhere = range(rows * columns)
    layer = StackedConvolution(edges, image, everywhere, everywhere, (given, wanted)).double()
    x = draw_double(edges, 5, rows * columns * given)
    pixels = x.view(edges, 5, rows, columns, given).permute(1, 0, 4, 2, 3).flatten(1, 2)
    kernels = layer.weight.view(edges, given, wanted, KERNEL, KERNEL).transpose(1, 2).flatten(0, 1)
    found = F.conv2d(pixels, kernels, padding=KERNEL // 2, groups=edges)
    expected = found.view(5, edges, wanted, rows * columns).permute(1, 0, 3, 2).flatten(2)
    torch.testing.assert_close(layer(x), expected + layer.bias, rtol=0, atol=1e-12)


def test_places_that_are_not_given_count_as_zero():
    image, kept = (4, 5), [0, 3, 7, 11, 18]
    whole = StackedConvolution(1, image, range(20), [6, 2], (1, 2)).double()
    part = StackedConvolution(1, image, kept, [6, 2], (1, 2)).double()
    part.load_state_dict(whole.state_dict())
    x = draw_double(1, 3, 5)
    full = torch.zeros(1, 3, 20, dtype=torch.float64)
    full[..., kept] = x
    torch.testing.assert_close(part(x), whole(full), rtol=0, atol=1e-12)


def test_a_pixel_is_heard_within_two_kernels_and_not_beyond():
    image, kept, moved = (1, 14), list(range(0, 14, 2)), list(range(1, 14, 2))
    local = LocalConditioner(
        1, image, kept, moved, numbers=1, channels=3, activation=torch.tanh
    ).double()
    with torch.no_grad():
        local.last.weight.copy_(draw_double(*local.last.weight.shape))
    x, other = draw_double(1, 1, 7), draw_double(1, 1, 7, seed=1)
    other[..., 1:] = x[..., 1:]  # only place 0 differs
    changed = (local(x) != local(other))[0, 0]
    assert changed.tolist() == [place <= KERNEL - 1 for place in moved]


def test_an_image_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"image of 2 x 2 has 4 places, but the flow has width 6"):
        Coupling(image=(2, 2)).build(1, 6)


@pytest.mark.parametrize("image", [3, (2,), "ab", (2, 2.5)])
def test_what_is_no_image_is_refused(image):
    with pytest.raises(TypeError, match="image"):
        Coupling(image=image)
    with pytest.raises(ValueError, match="columns of image"):
        Coupling(image=(2, 0))


def test_residual_layers_need_an_image_with_even_sides_and_their_own_parameters():
    for image in (None, (3, 4), (4, 3)):
        with pytest.raises(ValueError, match="expects an image with even rows and columns"):
            Coupling(residual=1, image=image)
    with pytest.raises(ValueError, match="shared or residual to be 0"):
        Coupling(residual=1, image=(2, 2), shared=4)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_convolutions_beside_a_conditioner_are_rounded_too(precision):
    local = LocalConditioner(
        2, (2, 4), [0, 2, 5, 7], [1, 3, 4, 6], numbers=2, channels=3, activation=torch.relu
    )
    with torch.no_grad():
        local.last.weight.copy_(draw(*local.last.weight.shape))
    x = draw(2, 5, 4)
    exact = local(x)
    local.precision = precision
    torch.testing.assert_close(local(x).float(), exact, rtol=0.05, atol=0.05)
    assert local(x).dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
