"""What all tests share: reproducible examples, one thread, and guarded random generators."""

import os
import random

import hypothesis
import numpy as np
import pytest
import torch

import vfg

# Some virtual machines announce matrix tiles (AMX) that they do not let programs use; products in
# bfloat16 then end the process. oneDNN reads this before its first product.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Pages and examples show the tables that everyone has, not those of a folder of this machine.
os.environ.pop("VFG_DATA", None)

# Imported now rather than inside a test: some packages draw a number while they are imported.
for name in vfg.__all__:
    getattr(vfg, name)

# Small tensors are fastest on one thread, and sums then have one order on every machine.
torch.set_num_threads(1)


class TorchGenerator:
    """Torch's global generator in the form that hypothesis resets before every example."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


# Hypothesis keeps a weak reference only, so this name must live as long as the tests.
TORCH_GENERATOR = TorchGenerator()
hypothesis.register_random(TORCH_GENERATOR)

hypothesis.settings.register_profile(
    "default", derandomize=True, deadline=None, print_blob=True, max_examples=50
)
hypothesis.settings.register_profile(
    "fuzz", derandomize=False, deadline=None, print_blob=True, max_examples=1000
)
hypothesis.settings.load_profile("fuzz" if os.environ.get("VFG_FUZZ") == "1" else "default")


@pytest.fixture(autouse=True)
def seeded():
    """Start every test from the same global torch state, whatever ran before it."""
    torch.manual_seed(0)


def global_random_states():
    """The states of the global generators of torch, numpy and Python, comparable by `==`."""
    algorithm, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": [algorithm, keys.tolist(), *rest],
        "random": random.getstate(),
    }


@pytest.fixture
def untouched_generators(seeded):
    """Fail the test if it draws from a global generator: randomness must come from a seed given."""
    before = global_random_states()
    yield
    after = global_random_states()
    touched = [name for name in before if before[name] != after[name]]
    assert not touched, f"the global generators of {touched} were used"
