"""The studio in a real browser: Playwright drives Debian's Chromium, headless."""

import os
import shutil
import subprocess
from contextlib import contextmanager
from threading import Thread

import numpy as np
import pandas as pd
import pytest
from imputation.mixed_tables import linear, mixed

pytestmark = pytest.mark.slow
NOT_TESTED = "THE STUDIO IS NOT TESTED IN A BROWSER: "
sync_api = pytest.importorskip("playwright.sync_api", reason=NOT_TESTED + "pip install playwright")
pytest.importorskip("dash", reason=NOT_TESTED + "pip install 'vfg[studio]'")

from vfg.studio import make_app  # noqa: E402
from vfg.studio.server import start_server  # noqa: E402

PATIENCE = 90_000
"""Milliseconds, for machines that do other things besides."""


def find_chromium():
    """Where Chromium is; installed on machines of continuous integration, where that is allowed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    allowed = os.environ.get("CI") or os.environ.get("VFG_INSTALL_BROWSER")
    if found is None and allowed and shutil.which("apt-get") and os.geteuid() == 0:
        for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", "-qq", *words], check=False, timeout=600)
        found = shutil.which("chromium")
    return found


@pytest.fixture(scope="module")
def browser():
    path = find_chromium()
    if path is None:
        pytest.skip(NOT_TESTED + "there is no Chromium; apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def served(model, table=None):
    server = start_server(make_app(model, table), 0)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def network_address(network):
    with served(network) as address:
        yield address


@pytest.fixture(scope="module")
def table_address(mixed_imputer):
    with served(mixed_imputer, mixed()) as address:
        yield address


@contextmanager
def page_at(browser, address, **options):
    page = browser.new_page(**options)
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("#answers .card")
    yield page
    page.close()


@pytest.fixture
def network_page(browser, network_address):
    with page_at(browser, network_address) as page:
        yield page


@pytest.fixture
def table_page(browser, table_address):
    with page_at(browser, table_address) as page:
        yield page


def card(page, name):
    return page.locator(f'.card[data-select="{name}"]')


def choose(page, name):
    card(page, name).click()
    page.wait_for_selector(f'.card.selected[data-select="{name}"] .editor')


def give(page, name, value):
    choose(page, name)
    page.fill(".editor [data-type]", str(value))
    page.press(".editor [data-type]", "Enter")
    place = f'.card.given[data-select="{name}"]'
    script = f"Number(document.querySelector('{place}')?.dataset.mean) === {value}"
    page.wait_for_function(script)


def shown(page, name, what="mean"):
    return float(card(page, name).get_attribute(f"data-{what}"))


def test_the_page_loads_without_errors_and_from_this_machine_alone(browser, network_address):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    errors, asked = [], []
    page.on(
        "console", lambda message: errors.append(message.text) if message.type == "error" else 0
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(network_address)
    page.wait_for_selector("#answers .card")
    page.wait_for_selector("#ask-graph svg .node")
    assert errors == []
    assert all(url.startswith((network_address, "data:", "blob:")) for url in asked)
    page.close()


def test_clicking_a_leaf_of_the_graph_lets_its_value_be_set(network_page):
    page = network_page
    page.click('#ask-graph .node[data-node="B"]')
    page.wait_for_selector('.card.selected[data-select="B"] .editor')


def test_the_numbers_shown_are_those_of_infer(network, network_page):
    page = network_page
    before = network.infer({}, targets=["C"])
    assert shown(page, "C") == pytest.approx(before.mean["C"].item())
    give(page, "A", 1.5)
    give(page, "D", -0.5)
    answer = network.infer({"A": 1.5, "D": -0.5}, targets=["B", "C"])
    for name in ("B", "C"):
        assert shown(page, name) == pytest.approx(answer.mean[name].item())
        assert shown(page, name, "low") == pytest.approx(answer.quantile(0.05)[name].item())
        assert shown(page, name, "high") == pytest.approx(answer.quantile(0.95)[name].item())
    assert "moved" in page.inner_text("#evidence")
    page.click("#undo")
    page.wait_for_selector('.card:not(.given)[data-select="D"]')
    page.click("#clear")
    page.wait_for_function("!document.querySelector('.card.given')")
    assert shown(page, "C") == pytest.approx(before.mean["C"].item())


def test_sliders_obey_the_keyboard(network_page):
    page = network_page
    card(page, "A").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".editor [data-slide='A']")
    page.focus(".editor [data-slide]")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('.card.given[data-select="A"]')
    value = float(page.input_value(".editor [data-type]"))
    assert shown(page, "A") == pytest.approx(value)


def test_tabs_obey_the_keyboard(network_page):
    page = network_page
    page.focus("#tab-ask")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-graph", "aria-selected") == "true"
    assert page.is_visible("#panel-graph")
    assert not page.is_visible("#panel-ask")
    page.keyboard.press("End")
    assert page.is_visible("#panel-explore")


def test_impossible_values_leave_a_message(network_page):
    page = network_page
    choose(page, "A")
    page.fill(".editor [data-type]", "much")
    page.press(".editor [data-type]", "Enter")
    page.wait_for_selector(".card.selected .problem:has-text('takes a number')")
    page.fill(".editor [data-type]", "0.5")
    page.press(".editor [data-type]", "Enter")
    page.wait_for_selector('.card.given[data-select="A"]')
    assert page.locator(".problem").count() == 0
    assert page.inner_text("#notice") == ""


def test_categories_are_a_list(mixed_opened, table_page):
    page = table_page
    choose(page, "city")
    page.click(".editor [data-set]:has-text('Rome')")
    page.wait_for_selector('.card.given[data-select="city"]')
    marginal = mixed_opened.ask({"city": "Rome"}).variables["height"]
    assert shown(page, "height") == pytest.approx(marginal.mean)


def test_questions_are_copied_and_exported(browser, table_page, tmp_path):
    page = table_page
    give(page, "height", 171)
    page.click("summary")
    assert "model.infer({'height': 171.0})" in page.inner_text("#code-python")
    assert "--given height=171.0" in page.inner_text("#code-shell")
    with page.expect_download() as caught:
        page.click("#export")
    path = tmp_path / "answer.html"
    caught.value.save_as(path)
    other = browser.new_page()
    other.goto(path.as_uri())
    assert other.locator(".card").count() == 7
    other.close()


def test_tables_are_filled_and_downloaded(mixed_imputer, table_page, tmp_path):
    page = table_page
    path = tmp_path / "gaps.csv"
    mixed().to_csv(path, index=False)
    page.click("#tab-fill")
    page.set_input_files("#upload input[type=file]", path)
    page.wait_for_selector("#table-summary:has-text('gaps.csv: 60 rows')")
    page.wait_for_selector("#missing-plot .heatmaplayer")
    page.click("#fill")
    page.wait_for_selector("#fill-summary:has-text('missing values filled')")
    with page.expect_download() as caught:
        page.click("#download")
    assert caught.value.suggested_filename == "gaps-filled.csv"
    done = pd.read_csv(caught.value.path())
    wanted = mixed_imputer.transform(mixed())
    assert not done.isna().any().any()
    assert done["height"].to_numpy() == pytest.approx(wanted["height"].to_numpy())
    assert (done["city"].to_numpy() == wanted["city"].to_numpy()).all()


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("bad.csv", b"a,b\n1,2\n", "lacks the columns"),
        ("photo.png", b"\x89PNG", "not a readable table"),
        ("empty.csv", b"", "cannot be read as csv"),
    ],
)
def test_bad_uploads_leave_a_message(table_page, tmp_path, name, data, words):
    page = table_page
    (tmp_path / name).write_bytes(data)
    page.click("#tab-fill")
    page.set_input_files("#upload input[type=file]", tmp_path / name)
    page.wait_for_selector(f"#notice:has-text('{words}')")
    assert page.is_visible("#panel-fill")


def test_exploring_draws_the_rows_and_samples(table_page):
    page = table_page
    page.click("#tab-explore")
    page.wait_for_selector("#embedding-plot canvas, #embedding-plot .scatterlayer")
    page.wait_for_selector("#samples table td")
    page.wait_for_selector("#traversal-plot .scatterlayer")


def test_the_whole_graph_is_in_view_on_every_load(browser, network_address):
    for _ in range(4):
        with page_at(browser, network_address) as page:
            page.click("#tab-graph")
            page.wait_for_selector("#graph .node")
            edge = page.locator("#graph").bounding_box()
            for node in page.locator("#graph .node").all():
                place = node.bounding_box()
                assert edge["x"] <= place["x"]
                assert place["x"] + place["width"] <= edge["x"] + edge["width"] + 1
                assert edge["y"] <= place["y"]
                assert place["y"] + place["height"] <= edge["y"] + edge["height"] + 1


def test_the_wheel_scrolls_and_buttons_zoom(network_page, tmp_path):
    page = network_page
    page.click("#tab-graph")
    box = "document.querySelector('#graph svg').getAttribute('viewBox')"
    whole = page.evaluate(box)
    page.hover("#graph")
    page.mouse.wheel(0, 200)
    assert page.evaluate(box) == whole
    page.click("[data-zoom='+']")
    assert page.evaluate(box) != whole
    page.click("[data-zoom='Reset']")
    numbers = [float(x) for x in page.evaluate(box).split()]
    assert numbers == pytest.approx([float(x) for x in whole.split()])
    with page.expect_download() as caught:
        page.click("[data-zoom='SVG']")
    text = caught.value.path().read_text()
    assert text.startswith("<svg")
    assert "var(--" not in text
    assert "svg.graph" in text


def test_nodes_obey_the_keyboard_and_states_are_evidence(table_page):
    page = table_page
    page.click("#tab-graph")
    page.focus('#graph .node[data-node="height"]')
    page.keyboard.press("Enter")
    page.wait_for_selector("#node-details dd:has-text('height')")
    page.locator('#graph .state[data-set="city"]').first.click()
    page.wait_for_selector('#graph .node.given[data-node="city"]')


def test_editors_open_in_their_card_and_take_the_focus(table_page):
    page = table_page
    choose(page, "height")
    inside = "document.querySelector('.card.selected').contains(document.activeElement)"
    page.wait_for_function(inside)
    page.keyboard.type("1,171")
    page.keyboard.press("Enter")
    page.wait_for_selector('.card.given[data-select="height"]')
    assert shown(page, "height") == 1171.0
    assert page.evaluate(inside)
    assert "outside the data" in page.inner_text('.card[data-select="height"]')


def test_the_address_holds_the_question(browser, network, network_address):
    with page_at(browser, network_address) as page:
        give(page, "A", 1.5)
        page.wait_for_function("location.hash === '#ask?A=1.5'")
        give(page, "D", -0.5)
        page.wait_for_function("location.hash === '#ask?A=1.5&D=-0.5'")
        address = page.url
        page.go_back()
        page.wait_for_selector('.card:not(.given)[data-select="D"]')
        assert page.locator('.card.given[data-select="A"]').count() == 1
    with page_at(browser, address) as page:
        page.wait_for_selector('.card.given[data-select="D"]')
        answer = network.infer({"A": 1.5, "D": -0.5}, targets=["C"])
        assert shown(page, "C") == pytest.approx(answer.mean["C"].item())
        page.reload()
        page.wait_for_selector('.card.given[data-select="D"]')


def test_cases_are_saved_and_compared(network_page):
    page = network_page
    give(page, "A", 1.5)
    page.click("#save-case")
    page.wait_for_selector("[data-open-case]:has-text('A = 1.5')")
    page.click("#compare")
    page.wait_for_selector("#baseline:has-text('given A = 1.5')")
    page.click("#clear")
    page.wait_for_function("!document.querySelector('.card.given')")
    page.click("[data-open-case]")
    page.wait_for_selector('.card.given[data-select="A"]')


def test_the_example_is_a_click_away(table_page):
    page = table_page
    page.click("#introduction button")
    page.wait_for_selector(".card.given")
    assert page.inner_text("#introduction") == ""


def test_impossible_numbers_of_rows_are_told_where_they_are_typed(table_page):
    page = table_page
    page.click("#tab-explore")
    page.wait_for_selector("#samples table td")
    page.fill("#sample-count", "5000")
    page.wait_for_selector("#samples .problem:has-text('1 to 200 rows')")
    page.fill("#sample-count", "3")
    page.wait_for_selector("#samples table")
    assert page.locator("#samples tbody tr").count() == 3


def test_filled_cells_are_coloured_and_looked_at(table_page):
    page = table_page
    page.click("#tab-fill")
    page.wait_for_selector("#missing-plot .heatmaplayer")
    page.click("#fill")
    page.wait_for_selector("#filled-table button.cell")
    first = "#filled-table tbody th >> nth=0"
    start = page.inner_text(first)
    assert page.is_disabled("#rows-before")
    page.click("#rows-after")
    page.wait_for_function(
        f"document.querySelector('#filled-table tbody th').textContent !== '{start}'"
    )
    page.click("#rows-before")
    page.wait_for_function(
        f"document.querySelector('#filled-table tbody th').textContent === '{start}'"
    )
    chosen = page.locator("#filled-table button.cell").first
    column, row = chosen.get_attribute("data-cell-column"), chosen.get_attribute("data-cell-row")
    chosen.click()
    page.wait_for_selector(f"#cell-text [data-row='{row}']")
    assert column in page.inner_text("#cell-column")


def test_pixels_are_painted(browser, picture_model):
    with served(picture_model) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.wait_for_selector("[data-paint]")
        place = page.locator("[data-paint]").bounding_box()
        page.mouse.move(place["x"] + 5, place["y"] + 5)
        page.mouse.down()
        page.mouse.move(place["x"] + place["width"] - 5, place["y"] + 5, steps=12)
        page.mouse.up()
        page.wait_for_selector("#evidence li")
        page.wait_for_function("new URLSearchParams(location.hash.split('?')[1]).size === 6")
        assert page.locator(".card[data-select]").count() == 0
        page.close()


CONTRAST = """() => {
    const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((x) => {
            x /= 255;
            return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (one) => {
        for (let at = one; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if (/^rgb\\(/.test(colour)) return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const bad = [];
    for (const one of document.querySelectorAll('.studio *')) {
        const own = Array.from(one.childNodes).some((x) => x.nodeType === 3 && x.data.trim());
        if (!own || !one.offsetWidth) continue;
        if (one.closest(':disabled, svg, .unseen, .skip, .idle')) continue;
        const ends = [light(getComputedStyle(one).color), light(behind(one))].sort((a, b) => a - b);
        const contrast = (ends[1] + 0.05) / (ends[0] + 0.05);
        if (contrast < 4.5) bad.push(`${one.tagName}.${one.className} ${contrast.toFixed(2)}`);
    }
    return bad;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(browser, table_address, scheme):
    """Language, one heading, names of controls, contrast of small text."""
    size = {"width": 1400, "height": 900}
    with page_at(browser, table_address, viewport=size, color_scheme=scheme) as page:
        choose(page, "city")
        for tab in ("ask", "graph", "fill", "explore"):
            page.click(f"#tab-{tab}")
            page.wait_for_timeout(800)
            assert page.evaluate("document.documentElement.lang") == "en"
            assert page.locator("h1:visible").count() == 1
            assert page.evaluate(CONTRAST) == [], tab
            unnamed = page.evaluate(
                """() => Array.from(document.querySelectorAll('button, select, [role=button], '
                    + 'canvas[data-paint], input:not([type=file]):not([type=hidden])'))
                    .filter((x) => x.offsetWidth && !(x.getAttribute('aria-label') || x.title
                        || x.textContent.trim() || (x.labels && x.labels.length)
                        || x.getAttribute('aria-labelledby') || x.closest('label')))
                    .map((x) => x.outerHTML.slice(0, 120))"""
            )
            assert unnamed == [], tab
            doubled = page.evaluate(
                """() => {
                    const ids = Array.from(document.querySelectorAll('[id]')).map((x) => x.id);
                    return ids.filter((x, k) => ids.indexOf(x) !== k); }"""
            )
            assert doubled == []


def test_lists_to_choose_from_obey_the_keyboard(table_page):
    page = table_page
    page.click("#tab-explore")
    page.wait_for_selector("#embedding-plot .main-svg")
    page.focus("#tab-explore")
    active = "document.activeElement.id"
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate(active) == "colour":
            break
    assert page.evaluate(active) == "colour"
    assert "Coloured by" in page.evaluate(
        """document.activeElement.getAttribute('aria-labelledby').split(' ')
            .map((id) => document.getElementById(id)?.textContent).join(' ')"""
    )
    page.keyboard.press("Enter")
    page.wait_for_selector("#colour[aria-expanded=true]")
    # The list has the focus only some time after it opens; keys before that would be lost.
    page.wait_for_function(f"{active} !== 'colour'")
    for _ in range(2):
        before = page.evaluate_handle("document.activeElement")
        page.keyboard.press("ArrowDown")
        page.wait_for_function("(before) => document.activeElement !== before", arg=before)
    page.keyboard.press("Enter")
    page.wait_for_function("!document.querySelector('#colour').textContent.includes('nothing')")


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, table_address, scheme, width):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="THE STUDIO IS NOT CHECKED BY AXE: pip install axe-playwright-python",
    )
    size = {"width": width, "height": 900}
    with page_at(browser, table_address, viewport=size, color_scheme=scheme) as page:
        choose(page, "city")
        for tab in ("ask", "graph", "fill", "explore"):
            page.click(f"#tab-{tab}")
            page.wait_for_timeout(800)
            found = axe.Axe().run(page).response["violations"]
            serious = [
                (each["id"], node["html"][:160])
                for each in found
                if each["impact"] in ("serious", "critical")
                for node in each["nodes"][:3]
            ]
            assert serious == [], tab


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_windows_need_no_scrolling_aside(browser, table_address, scheme):
    size = {"width": 360, "height": 740}
    with page_at(browser, table_address, viewport=size, color_scheme=scheme) as page:
        for tab in ("ask", "graph", "fill", "explore"):
            page.click(f"#tab-{tab}")
            if tab == "explore":
                page.wait_for_selector("#traversal-plot .main-svg")
            page.wait_for_timeout(500)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 360, tab
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (colour == "rgb(18, 20, 25)") == (scheme == "dark")


def test_a_stopped_server_is_told(browser, network):
    with served(network) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.wait_for_selector("#answers .card")
    page.wait_for_selector("#offline:has-text('has stopped')")
    page.close()


def test_values_are_set_instead_of_observed(network, network_page):
    give(network_page, "C", 2)
    observed = float(card(network_page, "A").get_attribute("data-mean"))
    network_page.click("#intervene")
    network_page.wait_for_selector("#intervene[aria-pressed=true]")
    network_page.wait_for_selector(".card.given .badge.set")
    assert "set from outside" in network_page.inner_text("#meaning")
    expected = network.infer({}, ["A", "D"], do={"C": 2.0}).mean
    for name in "AD":
        shown = float(card(network_page, name).get_attribute("data-mean"))
        assert shown == pytest.approx(expected[name][0], abs=1e-6)
    assert abs(observed - expected["A"][0]) > 0.4
    assert network_page.locator("#ask-graph .edge.cut").count() == 2
    network_page.click("#observe")
    network_page.wait_for_selector("#observe[aria-pressed=true]")
    assert float(card(network_page, "A").get_attribute("data-mean")) == pytest.approx(observed)


def test_interventions_without_causes_say_what_is_needed(table_page):
    table_page.click("#intervene")
    table_page.wait_for_function("document.querySelector('#notice').innerText.includes('--learn')")
    assert table_page.locator("#observe[aria-pressed=true]").count() == 1


WINDOWS = ({"width": 1400, "height": 900}, {"width": 390, "height": 844})


@pytest.fixture(scope="module")
def wide_address():
    """Fifty columns of numbers with long names, one of which takes three values."""
    generator = np.random.default_rng(0)
    numbers = generator.normal(size=(120, 3)) @ generator.normal(size=(3, 50))
    names = [f"measurement_{k:02d}_of_sensor" for k in range(50)]
    frame = pd.DataFrame(numbers + 0.3 * generator.normal(size=(120, 50)), columns=names)
    frame[names[0]] = np.digitize(numbers[:, 0], [-1.0, 1.0]) + 2007.0
    with served(linear().fit(frame), frame) as address:
        yield address


@pytest.mark.parametrize("size", WINDOWS)
def test_the_last_of_fifty_cards_is_edited_in_place(browser, wide_address, size):
    with page_at(browser, wide_address, viewport=size) as page:
        name = "measurement_49_of_sensor"
        card(page, name).scroll_into_view_if_needed()
        choose(page, name)
        page.wait_for_function("document.querySelector('.editor').contains(document.activeElement)")
        edge = card(page, name).bounding_box()
        place = page.locator(".editor [data-type]").bounding_box()
        assert edge["x"] <= place["x"]
        assert edge["y"] <= place["y"] <= edge["y"] + edge["height"]
        assert 0 <= place["y"] <= size["height"]


@pytest.mark.parametrize("size", WINDOWS)
def test_few_values_are_bars_and_years_are_not_grouped(browser, wide_address, size):
    with page_at(browser, wide_address, viewport=size) as page:
        years = card(page, "measurement_00_of_sensor")
        assert years.locator("rect.posterior").count() == 3
        text = years.locator(".headline").inner_text()
        assert text.startswith("200")
        assert "90\u202f%: 2007 – 2009" in text
        bars = years.locator("rect.marginal")
        middles = [
            box["x"] + box["width"] / 2
            for box in (bars.first.bounding_box(), bars.last.bounding_box())
        ]
        labels = [one.bounding_box() for one in years.locator(".axis span").all()]
        assert [one["x"] + one["width"] / 2 for one in labels] == pytest.approx(middles, abs=3.0)


@pytest.mark.parametrize("size", WINDOWS)
def test_a_group_of_fifty_leaves_is_named_opened_and_in_view(browser, wide_address, size):
    with page_at(browser, wide_address, viewport=size) as page:
        page.click("#tab-graph")
        group = page.locator("#graph .node.group")
        assert group.locator("text").first.text_content() == "50 leaves"
        edge, place = page.locator("#graph").bounding_box(), group.bounding_box()
        assert edge["x"] <= place["x"]
        assert place["x"] + place["width"] <= edge["x"] + edge["width"] + 1
        group.click()
        page.wait_for_selector('#graph .node[data-node="measurement_49_of_sensor"]')
        assert page.locator("#graph .node.leaf").count() == 50
        texts = page.locator("#graph .node.leaf text.label").all_text_contents()
        assert all(text.endswith("_of_sensor") for text in texts)


def test_nodes_are_found_by_name(browser, wide_address):
    with page_at(browser, wide_address) as page:
        page.click("#tab-graph")
        page.click("#node-by-name")
        page.wait_for_selector(".dash-dropdown-search")
        page.fill(".dash-dropdown-search", "_37_")
        page.locator(".dash-dropdown-option:has-text('measurement_37_of_sensor')").click()
        page.wait_for_selector('#graph .node.chosen[data-node="measurement_37_of_sensor"]')
        page.wait_for_selector("#node-details dd:has-text('measurement_37_of_sensor')")


@pytest.mark.parametrize("size", WINDOWS)
def test_networks_show_their_variables_in_view(browser, network_address, size):
    with page_at(browser, network_address, viewport=size) as page:
        page.click("#tab-graph")
        page.wait_for_function("!document.querySelector('#graph svg').getAnimations().length")
        nodes = page.locator("#graph .node").all()
        assert sorted(node.get_attribute("data-node") for node in nodes) == list("ABCD")
        for node in nodes:
            place = node.bounding_box()
            assert place["x"] >= 0
            assert place["x"] + place["width"] <= size["width"]
            font = page.evaluate(
                """(node) => { const svg = node.closest('svg');
                    return 12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width }""",
                node.element_handle(),
            )
            assert font > 8.0
        assert "family" not in page.inner_text("#panel-graph")
        page.click("#tab-ask")
        assert "family" not in page.inner_text("#panel-ask")


def test_nothing_can_be_filled_where_nothing_is_missing(browser, wide_address):
    with page_at(browser, wide_address) as page:
        page.click("#tab-fill")
        page.wait_for_selector("#table-summary:has-text('0 missing')")
        page.wait_for_selector("#missing-plot :text('No cell is missing.')")
        for name in ("fill", "download", "rows-before", "rows-after"):
            assert page.is_disabled(f"#{name}")


def test_numbers_are_typed_as_people_write_them(table_page):
    page = table_page
    choose(page, "height")
    for text in ("1 171", "1,171", "1\u202f171", "1171"):
        page.fill(".editor [data-type]", text)
        page.press(".editor [data-type]", "Enter")
        page.wait_for_function(
            """Number(document.querySelector('.card.given[data-select="height"]')?.dataset.mean)
                === 1171"""
        )
        page.click("#clear")
        page.wait_for_function("!document.querySelector('.card.given')")


def test_rows_are_chosen_by_a_lasso_and_by_their_neighbours(table_page):
    page = table_page
    page.click("#tab-explore")
    page.wait_for_selector("#embedding-plot .nsewdrag")
    page.wait_for_timeout(1500)  # until plotly listens
    edge = page.locator("#embedding-plot .nsewdrag").bounding_box()
    left, top = edge["x"] + 2, edge["y"] + 2
    right, bottom = left + edge["width"] - 4, top + edge["height"] - 4
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top + 4)):
        page.mouse.move(x, y, steps=8)
    page.mouse.up()
    page.wait_for_selector("#chosen-rows tbody tr >> nth=40")
    assert page.locator("#chosen-rows thead th").count() == 7


def test_a_row_that_is_clicked_lists_those_nearest_to_it(table_page):
    page = table_page
    page.click("#tab-explore")
    page.wait_for_selector("#embedding-plot .nsewdrag")
    page.wait_for_timeout(1500)  # until plotly listens
    edge = page.locator("#embedding-plot .nsewdrag").bounding_box()
    hovered = page.locator("#embedding-plot .hoverlayer .hovertext")
    places = [(x, y) for x in range(30, 75, 9) for y in range(20, 80, 2)]
    for x, y in places:
        place = edge["x"] + edge["width"] * x / 100, edge["y"] + edge["height"] * y / 100
        page.mouse.move(*place)
        page.wait_for_timeout(100)
        if hovered.count():
            break
    row = hovered.text_content().split()[-1]
    page.mouse.click(*place)
    page.wait_for_selector("#chosen-rows tbody tr >> nth=5")
    assert page.locator("#chosen-rows tbody tr").first.inner_text().split()[0] == row
    assert page.locator("#chosen-rows tbody tr").count() == 8


@pytest.mark.parametrize("size", WINDOWS)
def test_long_names_can_be_told_apart(browser, wide_address, size):
    with page_at(browser, wide_address, viewport=size) as page:
        for title in page.locator("#answers h3").all()[:4]:
            assert title.evaluate("(one) => one.scrollWidth <= one.clientWidth")
            assert title.inner_text().endswith("_of_sensor")


def test_a_button_about_a_node_waits_for_a_node(browser, network_address):
    with page_at(browser, network_address) as page:
        assert "4 columns · a network of 3 arrows" in page.inner_text("header")
        page.click("#tab-graph")
        assert page.is_disabled("#ask-node")
        page.click('#graph .node[data-node="C"]')
        page.wait_for_selector("#ask-node:enabled")


@pytest.mark.parametrize("size", WINDOWS)
def test_columns_named_by_numbers_open(browser, tmp_path, size):
    """A CSV of images: columns 0 to 63, some of which never vary."""
    generator = np.random.default_rng(0)
    pixels = np.rint(np.clip(generator.normal(8, 6, size=(80, 64)), 0, 16))
    pixels[:, [0, 7]] = 0.0
    frame = pd.DataFrame(pixels.astype(int), columns=range(64))
    frame.to_csv(tmp_path / "pixels.csv", index=False)
    imputer = linear().fit(pd.read_csv(tmp_path / "pixels.csv"))
    with (
        served(imputer, tmp_path / "pixels.csv") as address,
        page_at(browser, address, viewport=size) as page,
    ):
        assert page.locator("#answers .card[data-select]").count() == 64
        give(page, "63", 12)
        page.click("#tab-fill")
        page.wait_for_selector("#table-summary:has-text('pixels.csv: 80 rows · 64 columns')")


def test_calibration_and_history_take_room_when_there_is_something(table_page):
    page = table_page
    page.click("#tab-explore")
    page.wait_for_selector("#calibrate:enabled")
    assert not page.is_visible("#calibration-plot")
    assert not page.is_visible("#history-plot")
    page.click("#calibrate")
    page.wait_for_selector("#calibration-plot .scatterlayer")
    assert "chance" in page.locator("#calibration-plot .legend").text_content()
    page.wait_for_selector("#calibration-table td")


def test_evidence_comes_first_on_a_phone(browser, table_address):
    with page_at(browser, table_address, viewport=WINDOWS[1]) as page:
        tops = [
            page.locator(place).bounding_box()["y"]
            for place in (".tabs", "#observe", "#introduction", "#answers", "#ask-graph")
        ]
        assert tops == sorted(tops)
        tabs = [one.bounding_box() for one in page.locator("[role=tab]").all()]
        assert len({box["y"] for box in tabs}) == 1
        assert tabs[0]["x"] < 20
        assert tabs[-1]["x"] + tabs[-1]["width"] > 370
