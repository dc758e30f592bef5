"""Networks of images against plain convolutions, edge by edge and image by image."""

import pytest
import torch
from torch.nn import functional as F

from vfg.flows import ImageDecoder, ImageEncoder, ImageNetwork
from vfg.flows.image_networks import squeeze, unsqueeze


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def draw_double(*shape, seed=0):
    return draw(*shape, seed=seed, dtype=torch.float64)


def randomised(network):
    """Random numbers in all layers, also the last."""
    for seed, parameter in enumerate(network.parameters()):
        parameter.data.copy_(0.3 * draw(*parameter.shape, seed=seed))
    return network.double()


def convolve(layer, edge, x):
    weight, bias = layer.weight[edge], layer.bias[edge]
    if layer.stride < 0:
        return F.conv_transpose2d(x, weight, bias, stride=2)
    return F.conv2d(F.pad(x, (1, 1, 1, 1)), weight, bias, stride=layer.stride)


def pass_through(layers, edge, x):
    for layer in layers:
        x = x + F.glu(convolve(layer.inner, edge, x), dim=0)
    return x


def image_network(edges, image, inputs, outputs, **options):
    """A network with random numbers in all layers, also the last."""
    return randomised(
        ImageNetwork(edges, image, inputs, outputs, channels=3, residual=3, **options)
    )


def one_image(network, edge, x):
    """What the network of one edge makes of one image `(inputs, rows, columns)`, layer by layer."""

    first = convolve(network.first, edge, x) + network.position[edge]
    fine = pass_through(network.before, edge, first)
    halved = pass_through(network.coarse, edge, convolve(network.down, edge, fine))
    coarse = convolve(network.up, edge, halved)
    coarse = coarse[:, : x.shape[1], : x.shape[2]]
    return convolve(network.last, edge, pass_through(network.after, edge, fine + coarse))


@pytest.mark.parametrize("edges", [1, 2])
@pytest.mark.parametrize("image", [(1, 1), (3, 4), (6, 5)])
def test_an_image_network_is_plain_convolutions_per_edge_and_row(edges, image):
    network, (rows, columns) = image_network(edges, image, 2, 3), image
    x = draw_double(edges, 4, rows * columns * 2)
    y = network(x).view(edges, 4, rows, columns, 3)
    shift = network.shift.view(edges, rows, columns, 3)
    for edge in range(edges):
        for row in range(4):
            pixels = x[edge, row].view(rows, columns, 2).permute(2, 0, 1)
            expected = one_image(network, edge, pixels).permute(1, 2, 0) + shift[edge]
            torch.testing.assert_close(y[edge, row], expected, rtol=0, atol=1e-12)


def test_an_image_network_starts_at_zero_and_drops_in_training_only():
    network, x = ImageNetwork(2, (4, 4), 1, 2, channels=4, residual=2, dropout=0.5), draw(2, 3, 16)
    assert network(x).abs().max() == 0.0
    network = image_network(2, (4, 4), 1, 2, dropout=0.5)
    torch.manual_seed(0)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))
    network.precision = "bf16"
    assert 0.0 < (network.float()(x) - network.double()(x)).abs().max() < 0.1


def test_squeezing_takes_squares_of_pixels_to_channels():
    image = torch.arange(2 * 4 * 6).view(2, 4, 6)
    expected = [
        image[part, 2 * row + down, 2 * column + across]
        for row in range(2)
        for column in range(3)
        for part in range(2)
        for down in range(2)
        for across in range(2)
    ]
    squeezed = squeeze(image.flatten()[None], (4, 6))
    assert squeezed[0].tolist() == [int(value) for value in expected]
    assert torch.equal(unsqueeze(squeezed, (4, 6))[0], image.flatten())


def squares(pixels):
    """`(rows, columns)` to four channels per square of 2 x 2, by indexing."""
    return torch.stack([pixels[down::2, across::2] for down in (0, 1) for across in (0, 1)])


@pytest.mark.parametrize("edges", [1, 2])
@pytest.mark.parametrize("image", [(2, 2), (4, 6), (6, 14)])
def test_an_encoder_is_plain_convolutions_and_a_linear_map(edges, image):
    network = randomised(ImageEncoder(edges, image, 3, channels=2, residual=2))
    x = draw_double(edges, 4, image[0] * image[1])
    y = network(x)
    for edge in range(edges):
        for row in range(4):
            fine = convolve(network.first, edge, squares(x[edge, row].view(image)))
            fine = pass_through(network.fine, edge, fine + network.position[edge])
            coarse = pass_through(network.coarse, edge, convolve(network.down, edge, fine))
            flat = coarse.permute(1, 2, 0).flatten()
            expected = flat @ network.last.weight[edge] + network.last.bias[edge, 0]
            torch.testing.assert_close(y[edge, row], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("edges", [1, 2])
@pytest.mark.parametrize("image", [(2, 2), (4, 6), (6, 14)])
def test_a_decoder_is_a_linear_map_and_plain_convolutions(edges, image):
    network = randomised(ImageDecoder(edges, image, 3, channels=2, residual=2))
    rows, columns = image[0] // 2, image[1] // 2
    z = draw_double(edges, 4, 3)
    y = network(z)
    for edge in range(edges):
        for row in range(4):
            flat = z[edge, row] @ network.first.weight[edge] + network.first.bias[edge, 0]
            coarse = flat.view(-(-rows // 2), -(-columns // 2), 4).permute(2, 0, 1)
            fine = convolve(network.up, edge, pass_through(network.coarse, edge, coarse))
            fine = fine[:, :rows, :columns] + network.position[edge]
            last = convolve(network.last, edge, pass_through(network.fine, edge, fine))
            assert torch.allclose(squares(y[edge, row].view(image)), last, rtol=0, atol=1e-12)


def test_a_decoder_starts_at_zero_an_encoder_does_not_and_both_drop_in_training_only():
    options = {"channels": 2, "residual": 1, "dropout": 0.5}
    encoder, decoder = ImageEncoder(2, (4, 4), 3, **options), ImageDecoder(2, (4, 4), 3, **options)
    x, z = draw(2, 5, 16), draw(2, 5, 3)
    assert decoder(z).abs().max() == 0.0
    assert encoder.eval()(x).std() > 0.1
    torch.manual_seed(0)
    for network, inputs in ((encoder.train(), x), (randomised(decoder).float().train(), z)):
        assert not torch.equal(network(inputs), network(inputs))
        network.eval()
        exact = network(inputs)
        assert torch.equal(network(inputs), exact)
        network.precision = "bf16"
        assert 0.0 < (network(inputs).float() - exact).abs().max() < 0.1 * exact.abs().max()
