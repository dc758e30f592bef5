import pytest
import torch
from torch.nn import functional as F

from vfg.flows import AffineCoupling, Coupling, Network
from vfg.flows.convolutions import (
    KERNEL,
    LocalConditioner,
    StackedConvolution,
    chequered_split,
)


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("given", "wanted"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("image", [(1, 4), (3, 7), (8, 6)])
def test_a_stacked_convolution_is_a_grouped_one(image, given, wanted):
    edges, (rows, columns) = 2, image
    everywhere = range(rows * columns)
    layer = StackedConvolution(edges, image, everywhere, everywhere, (given, wanted)).double()
    x = draw(edges, 5, rows * columns * given)
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
    x = draw(1, 3, 5)
    full = torch.zeros(1, 3, 20, dtype=torch.float64)
    full[..., kept] = x
    torch.testing.assert_close(part(x), whole(full), rtol=0, atol=1e-12)


def test_a_pixel_is_heard_within_two_kernels_and_not_beyond():
    image, kept, moved = (1, 14), list(range(0, 14, 2)), list(range(1, 14, 2))
    local = LocalConditioner(
        1, image, kept, moved, numbers=1, channels=3, activation=torch.tanh
    ).double()
    with torch.no_grad():
        local.last.weight.copy_(draw(*local.last.weight.shape))
    x, other = draw(1, 1, 7), draw(1, 1, 7, seed=1)
    other[..., 1:] = x[..., 1:]  # only place 0 differs
    changed = (local(x) != local(other))[0, 0]
    assert changed.tolist() == [place <= KERNEL - 1 for place in moved]


def test_the_split_is_a_chequerboard_whose_halves_take_turns():
    kept, moved = chequered_split(0, 9, (3, 3))
    assert (kept, moved) == ([0, 2, 4, 6, 8], [1, 3, 5, 7])
    assert chequered_split(1, 9, (3, 3)) == (moved, kept)
    flow = AffineCoupling(1, 9, network=Network(image=(3, 3)))
    assert flow.kept.tolist() == kept


def test_an_image_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"image of 2 x 2 has 4 places, but the flow has width 6"):
        Coupling(image=(2, 2)).build(1, 6)


@pytest.mark.parametrize("image", [3, (2,), "ab", (2, 2.5)])
def test_what_is_no_image_is_refused(image):
    with pytest.raises(TypeError, match="image"):
        Coupling(image=image)
    with pytest.raises(ValueError, match="columns of image"):
        Coupling(image=(2, 0))
