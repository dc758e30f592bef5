"""Models as files: one safetensors file with the weights, and graph and configuration as JSON.

The tensors of a file are exactly the model's `state_dict()`. Its metadata has one entry, `vfg`:

| field      | meaning                                                               |
|------------|-----------------------------------------------------------------------|
| `schema`   | version of this layout                                                |
| `kind`     | the registered name of the model's class                              |
| `model`    | what `to_dict()` returned                                             |
| `summary`  | what `vfg show` prints; files of earlier versions lack it             |
| `dtype`    | the dtype of the model's parameters; every tensor has its own besides |
| `versions` | of vfg, torch and Python, when the file was written                   |
| `digest`   | SHA-256 of all fields above and of every tensor                       |

Reading a file runs no code from it and takes memory in proportion to its size: what its numbers
promise is checked against its bytes before anything of that size is made.

Modules: `registry` (the classes of models that files can hold), `container` (the bytes of a file),
`io` (building what a file describes, first on the meta device and under limits; save and load),
`summary` (what a file tells without torch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vfg.utils.lazy import lazy_names

if TYPE_CHECKING:
    from vfg.modelfile.io import dumps, load, loads, save
    from vfg.modelfile.registry import Storable, register

__all__ = ["Storable", "dumps", "load", "loads", "register", "save"]

__getattr__ = lazy_names(
    __name__,
    {"io": ("dumps", "load", "loads", "save"), "registry": ("Storable", "register")},
    globals(),
)
