"""How long a question on the page takes."""

import time

import numpy as np
import pandas as pd
import pytest
from imputation.mixed_tables import light, numbers

import vfg
from vfg.studio.asking.model import open_model
from vfg.studio.asking.state import PageState, render, update


@pytest.mark.slow
def test_the_page_of_sixteen_columns_takes_less_than_a_tenth_of_a_second():
    names = [f"x{k}" for k in range(16)]
    frame = pd.DataFrame(numbers(rows=60, columns=16)[1] / 10.0 ** np.arange(16), columns=names)
    flow = vfg.Coupling(blocks=4, hidden=32)
    opened = open_model(light(width=12, members=3, mixtures=3, flow=flow).fit(frame))
    state = PageState()
    for name in names[:4]:
        state = update(opened, state, {"kind": "set", "name": name, "value": 0.5})
    render(opened, state)
    spent = []
    for value in np.linspace(-1.0, 1.0, 12):
        # Time of this process, so that a busy machine does not count.
        begun = time.process_time()
        render(opened, update(opened, state, {"kind": "set", "name": "x0", "value": value}))
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.1
