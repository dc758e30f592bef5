"""Data for examples, experiments and tests, and masks that hide cells.

Simulated rows are tensors; tables, images and masks are NumPy arrays, as scikit-learn takes them.
What is published by others is read from the folder that the environment variable `VFG_DATA` names,
or else downloaded once, checked against its published checksum, and kept in the user's cache.
"""

from vfg.data.images import Images, binarized_mnist, caltech, digits, mnist, omniglot
from vfg.data.masks import mar, mcar, mnar_self
from vfg.data.tables import (
    BUNDLED,
    NETWORK,
    california,
    gaussian_network,
    synthetic,
    uci,
    uci_names,
)

__all__ = [
    "synthetic",
    "gaussian_network",
    "NETWORK",
    "uci",
    "uci_names",
    "BUNDLED",
    "california",
    "Images",
    "digits",
    "mnist",
    "binarized_mnist",
    "caltech",
    "omniglot",
    "mcar",
    "mar",
    "mnar_self",
]
