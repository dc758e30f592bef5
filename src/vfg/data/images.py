"""Images of digits, letters and silhouettes, as rows of pixels."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfg.data.archives import archive, download

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Images:
    """Images in three parts.

    Args:
        train: pixels `(rows, height * width)`, row by row, from 0 (background) to `peak`.
        validation, test: the same for the other parts.
        labels: class per row of the parts `train`, `validation` and `test`, if there are classes.
        shape: height and width.
        peak: the largest value of a pixel; 1 means that the images are binary.
        source: what the images are, in a phrase.

    Example:
        >>> found = digits()
        >>> found.train.shape, found.shape, found.peak
        ((1197, 64), (8, 8), 16)
    """

    train: Pixels
    validation: Pixels
    test: Pixels
    labels: dict[str, Labels] | None
    shape: tuple[int, int]
    peak: int
    source: str


def digits() -> Images:
    """scikit-learn's 1797 digits of 8 x 8 pixels, in a fixed random order: no download.

    Returns:
        Grey images from 0 to 16 with labels; 1197, 300 and 300 rows.

    Example:
        >>> digits().labels["test"][:5]
        array([6, 5, 5, 0, 4])
    """
    from sklearn.datasets import load_digits

    bundle = load_digits()
    order = np.random.default_rng(0).permutation(len(bundle.data))
    places = np.split(order, [1197, 1497])
    train, validation, test = (bundle.data[place].astype(np.uint8) for place in places)
    return Images(
        train,
        validation,
        test,
        labels=_by_part([bundle.target[place] for place in places]),
        shape=(8, 8),
        peak=16,
        source="scikit-learn's digits",
    )


MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "md5:6bbc9ace898e44ae57da46a324031adb"),
    "train_labels": ("train-labels-idx1-ubyte", "md5:a25bea736e30d166cdddb491f175f624"),
    "test": ("t10k-images-idx3-ubyte", "md5:2646ac647ad5339dbf082846283269ea"),
    "test_labels": ("t10k-labels-idx1-ubyte", "md5:27ae3e4e09519cfbb04c329615203637"),
}


def mnist() -> Images:
    """MNIST with labels; the last 10,000 training images are the validation part.

    Returns:
        Grey images from 0 to 255; 50,000, 10,000 and 10,000 rows.

    Raises:
        FileNotFoundError: if there is neither `mnist.npz` in `VFG_DATA` nor a download.
    """
    arrays = archive("mnist.npz")
    if arrays is None:
        arrays = {
            part: _idx(download("MNIST", f"{MNIST}{file}.gz", digest, instead="mnist.npz"))
            for part, (file, digest) in MNIST_FILES.items()
        }
    pixels = arrays["train"].reshape(len(arrays["train"]), -1)
    labels = [*np.split(arrays["train_labels"], [50_000]), arrays["test_labels"]]
    return Images(
        pixels[:50_000],
        pixels[50_000:],
        arrays["test"].reshape(len(arrays["test"]), -1),
        labels=_by_part(labels),
        shape=(28, 28),
        peak=255,
        source="MNIST",
    )


BINARIZED = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/binarized_mnist_"
BINARIZED_FILES = {
    "train": "sha256:ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d",
    "valid": "sha256:1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2",
    "test": "sha256:e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c",
}


def binarized_mnist() -> Images:
    """The fixed binarisation of MNIST by which likelihoods are compared, in its published split.

    Returns:
        Binary images without labels; 50,000, 10,000 and 10,000 rows.

    Raises:
        FileNotFoundError: if there is neither `mnist_static_binarized.npz` in `VFG_DATA` nor a
            download.
    """
    file = "mnist_static_binarized.npz"
    arrays = archive(file)
    if arrays is not None:
        parts = [_unpack_bits(arrays[part]) for part in BINARIZED_FILES]
    else:
        contents = (
            download("binarized MNIST", f"{BINARIZED}{part}.amat", digest, instead=file)
            for part, digest in BINARIZED_FILES.items()
        )
        parts = [_digits_of_text(content) for content in contents]
    train, validation, test = parts
    return Images(train, validation, test, None, (28, 28), 1, "static binarized MNIST")


CALTECH = "https://people.cs.umass.edu/~marlin/data/caltech101_silhouettes_28_split1.mat"
CALTECH_DIGEST = "sha256:eb6735e8d84b1850fabc5590124aab1755e90c9fd28123585324398405e1e42a"


def caltech() -> Images:
    """The silhouettes of Caltech 101 at 28 x 28 pixels, upright, in their published split.

    Returns:
        Binary images, 1 the object, with labels from 1 to 101; 4100, 2264 and 2307 rows.

    Raises:
        FileNotFoundError: if there is neither `caltech101_silhouettes_28_split1.npz` in `VFG_DATA`
            nor a download.
    """
    name, file = "Caltech 101 silhouettes", "caltech101_silhouettes_28_split1.npz"
    arrays = archive(file)
    if arrays is not None:
        parts = [_unpack_bits(arrays[part]) for part in ("train", "valid", "test")]
        labels = [arrays[f"{part}_labels"] for part in ("train", "valid", "test")]
    else:
        arrays = _matlab(download(name, CALTECH, CALTECH_DIGEST, instead=file))
        parts = [1 - _transpose_pixels(arrays[f"{part}_data"]) for part in ("train", "val", "test")]
        labels = [arrays[f"{part}_labels"] for part in ("train", "val", "test")]
    train, validation, test = parts
    return Images(train, validation, test, _by_part(labels), (28, 28), 1, name)


OMNIGLOT = "https://github.com/yburda/iwae/raw/master/datasets/OMNIGLOT/chardata.mat"
OMNIGLOT_DIGEST = "md5:21ecaf34373511aa7691cf2e0802aa3d"


def omniglot() -> Images:
    """Omniglot at 28 x 28 pixels, grey, to be binarised at random.

    Likelihoods in the literature are those of `chardata.mat`, which is downloaded. A file in
    `VFG_DATA` may be another reduction with another split; `Images.source` names it,
    and numbers of the two cannot be compared.

    Returns:
        Grey images from 0 to 255 without labels; 23,000 and 1345 rows, and the test rows.

    Raises:
        FileNotFoundError: if there is neither `omniglot_28_gray.npz` in `VFG_DATA` nor a download.
    """
    file = "omniglot_28_gray.npz"
    arrays = archive(file)
    if arrays is not None:
        train, test = (arrays[part].reshape(len(arrays[part]), -1) for part in ("train", "test"))
        kept = np.zeros(len(train), dtype=bool)
        kept[arrays["valid_index"]] = True
        train, validation = train[~kept], train[kept]
        source = "Omniglot, a reduction and split of its own, not chardata.mat"
    else:
        arrays = _matlab(download("Omniglot", OMNIGLOT, OMNIGLOT_DIGEST, instead=file))
        # Grey values between 0 and 1, as whole numbers to 255.
        grey = (np.rint(255.0 * arrays[part].T) for part in ("data", "testdata"))
        train, test = map(_transpose_pixels, grey)
        train, validation = train[:-1345], train[-1345:]
        source = "Omniglot, chardata.mat"
    return Images(train, validation, test, None, (28, 28), 255, source)


def _unpack_bits(bits: NDArray[np.uint8]) -> Pixels:
    """Pixels of 28 x 28 binary images that are kept as bits."""
    return np.unpackbits(bits, axis=1)[:, :784]


def _idx(content: bytes) -> Pixels:
    """An array in the format of the original MNIST files: bytes after a header."""
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _digits_of_text(content: bytes) -> Pixels:
    """Rows of 784 zeros and ones separated by spaces."""
    characters = np.frombuffer(content, np.uint8)
    result = characters[(characters == ord("0")) | (characters == ord("1"))] - ord("0")
    pixels: Pixels = result.reshape(-1, 784).astype(np.uint8)
    return pixels


def _matlab(content: bytes) -> dict[str, Any]:
    from scipy.io import loadmat

    return dict(loadmat(io.BytesIO(content)))


def _transpose_pixels(pixels: NDArray[Any]) -> Pixels:
    """Rows of pixels that were written column by column."""
    images = pixels.astype(np.uint8).reshape(-1, 28, 28).transpose(0, 2, 1)
    return np.ascontiguousarray(images).reshape(len(images), -1)


def _by_part(labels: list[NDArray[Any]]) -> dict[str, Labels]:
    flat = [classes.reshape(-1).astype(np.int64) for classes in labels]
    return dict(zip(PARTS, flat, strict=True))
