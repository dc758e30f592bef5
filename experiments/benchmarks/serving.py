"""How long `vfg serve` takes to answer, by the number of clients.

    python -m experiments.benchmarks.serving            a minute or two
    python -m experiments.benchmarks.serving --quick    a few requests

Every client sends one row of a table with 16 columns, a third of its cells missing, as soon as it
has the last answer. Clients and server share the machine.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from typing import Any

import numpy as np
import pandas

import vfg
from vfg.data import mcar
from vfg.serving import make_server

from ..results import arguments
from .speed.filling import letter_table

CLIENTS = (1, 10, 50)
MODELS: dict[str, dict[str, Any]] = {"linear": {"bend": False}, "fast": {"effort": "fast"}}


def ask(port: int, bodies: list[bytes]) -> list[float]:
    """Seconds of every answer to one client."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    times = []
    for body in bodies:
        begun = time.perf_counter()
        connection.request("POST", "/fill", body)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        times.append(time.perf_counter() - begun)
    connection.close()
    return times


def measure(model: Any, rows: list[bytes], clients: int, requests: int) -> dict[str, float]:
    """Quantiles of the seconds of an answer, and rows per second of all clients together."""
    with make_server(model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask(server.server_port, rows[:3])
        shares = [[rows[(k + j) % len(rows)] for j in range(requests)] for k in range(clients)]
        begun, spent = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(clients) as pool:
            times = list(chain.from_iterable(pool.map(ask, repeat(server.server_port), shares)))
        took, spent = time.perf_counter() - begun, time.process_time() - spent
        server.shutdown()
    quantiles = {f"p{q}": float(np.quantile(times, q / 100)) for q in (50, 99)}
    # Other work on the machine makes answers late, but hardly changes processor time.
    rates = {"rows per second": len(times) / took, "processor seconds": spent / len(times)}
    return {**quantiles, **rates}


def main() -> None:
    given = arguments(__doc__)
    table = letter_table(400 if given.quick else 4000)
    gaps = np.where(mcar(table.shape, 1 / 3, 0), np.nan, table)
    names = [f"x{k}" for k in range(table.shape[1])]
    frame = pandas.DataFrame(gaps, columns=names)
    rows = [row.to_json().encode() for _, row in frame[:500].iterrows()]
    found: dict[str, Any] = {}
    for name, options in MODELS.items():
        model = vfg.TableModel(**options)
        vfg.fit(model, frame)
        found[name] = {
            str(clients): measure(model, rows, clients, 3 if given.quick else 40)
            for clients in CLIENTS
        }
        print(name, found[name], flush=True)
    told = {"columns": len(names), "load": os.getloadavg()[1], "clients": found}
    print(given.write("serving", told))


if __name__ == "__main__":
    main()
