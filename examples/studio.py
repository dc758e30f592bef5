"""The picture of the studio in the documentation: `python examples/studio.py`.

It simulates a table of households, fits the linear model, asks a question on the page, and writes
what Chromium shows. It needs `pip install 'vfg[studio]' playwright` and Chromium.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import numpy as np
import pandas as pd

import vfg
from vfg.sklearn import VFGImputer
from vfg.studio import make_app
from vfg.studio.server import start_server

ROWS = 600
QUESTION = "#ask?age=36&rent=1500&car=no"


def households(seed: int = 0) -> pd.DataFrame:
    """People, homes and money, with a tenth of the cells missing."""
    generator = np.random.default_rng(seed)
    age, urban, wealth = generator.normal(size=(3, ROWS))
    noise = generator.normal(size=(12, ROWS))
    area = np.clip(82.0 - 16.0 * urban + 9.0 * wealth + 10.0 * noise[0], 20.0, None)
    income = np.exp(10.4 + 0.15 * age + 0.3 * wealth + 0.1 * noise[1])
    owner = 0.6 * age + 0.8 * wealth - 0.8 * urban + 0.8 * noise[2]
    frame = pd.DataFrame(
        {
            "age": np.clip(45 + 14 * age, 19, 79).round().astype(int),
            "income": income.round(-2),
            "savings": np.exp(9.6 + 0.4 * age + 0.6 * wealth + 0.5 * noise[3]).round(-2),
            "rent": np.clip(500 + 9 * area + 260 * urban + 80 * noise[4], 250, None).round(),
            "rooms": np.clip(area / 26 + 0.4 * noise[5], 1, 6).round().astype(int),
            "area": area.round(),
            "tenure": np.select([owner > 0.6, owner > 0.3], ["owner", "co-op"], "renter"),
            "car": np.where(0.9 * urban + 0.6 * noise[6] < 0.2, "yes", "no"),
            "commute": np.exp(3.2 - 0.5 * urban + 0.3 * noise[7]).round(),
            "hours": (40 - 1.5 * age + 3 * noise[8]).round(1),
            "spending": np.clip(
                1500 + 400 * wealth + 200 * urban + 200 * noise[9], 300, None
            ).round(-1),
            "children": np.clip(1.2 - 0.6 * urban + 0.8 * noise[10], 0, 4).round().astype(int),
        }
    )
    hidden = generator.random(frame.shape) < 0.1
    return frame.astype({"age": "Int64", "rooms": "Int64", "children": "Int64"}).mask(hidden)


def main(target: Path) -> None:
    """Write the picture."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as folder:
        path = Path(folder, "households.vfg")
        vfg.save(VFGImputer(bend=False, random_state=0).fit(households()).model_, path)
        server = start_server(make_app(path), 0)
    Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 850}, device_scale_factor=2)
        page.goto(f"http://127.0.0.1:{server.server_port}/{QUESTION}")
        page.wait_for_selector(".card.given")
        page.wait_for_timeout(500)
        page.screenshot(path=target)
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/studio.png"))
