"""The report in a browser: nothing is fetched or fails, the table sorts, the sphere turns, dragged targets are certified."""

import json

import pytest
from report_runs import tiny_store
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from inbounds.report import write

pytestmark = pytest.mark.browser
THEMES = ("light", "dark")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tiny_store(tmp_path_factory.mktemp("runs") / "tiny")
    (folder / "projection.json").write_text(
        json.dumps({"rows": [{"dataset": "sphere", "method": "heat", "sigma": s, "mse": s, "violation": s} for s in (0.1, 0.3)]})
    )
    return write(folder)


@pytest.fixture
def page(browser, file):
    browser.get(file.resolve().as_uri())
    return browser


def drawn(page, scene):
    """What the canvas of a scene shows, once it has been painted."""
    canvas = page.find_element(By.CSS_SELECTOR, f"#scene-{scene} canvas")
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    return canvas, page.execute_script("return arguments[0].toDataURL()", canvas)


def into_view(page, element):
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)


def drag(page, element, start, *stops):
    """From one place to the others, in pixels from the middle of the element."""
    into_view(page, element)
    hand = ActionChains(page, duration=50).move_to_element_with_offset(element, *map(round, start)).click_and_hold()
    for stop in stops:
        hand = hand.move_to_element_with_offset(element, *map(round, stop))
    hand.release().perform()


def show_as(page, theme="light", width=1200):
    feature = {"name": "prefers-color-scheme", "value": theme}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_nothing_fails_and_nothing_is_fetched(page, file):
    for scene in ("sphere", "frames-so3", "frames-flock", "protein", "planning"):
        canvas, _ = drawn(page, scene)
        assert canvas.size["height"] > 50
    assert [line for line in page.get_log("browser") if line["level"] in ("SEVERE", "WARNING")] == []
    events = [json.loads(line["message"])["message"] for line in page.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    mine = file.resolve().as_uri()
    asked = [request["request"]["url"] for request in sent if request["documentURL"] == mine]  # the browser's own pages ask, too
    assert mine in asked
    assert [url for url in asked if url != mine and not url.startswith("data:")] == []


def test_a_click_on_a_header_sorts_the_table(page):
    def column(k):
        return page.execute_script(
            "return [...document.querySelectorAll('table.sortable tbody tr')].map(r => r.cells[arguments[0]].dataset.value)", k
        )

    headers = page.find_elements(By.CSS_SELECTOR, "table.sortable th button")
    before = sorted(column(2))
    for backwards in (False, True):
        headers[2].click()
        losses = [float(v) for v in column(2)]
        assert losses == sorted(losses, reverse=backwards)
    assert sorted(column(2)) == before
    headers[1].click()
    assert column(1) == sorted(column(1))
    headers[3].click()  # published numbers: those that there are come first
    known = [float(v) for v in column(3) if v]
    assert column(3)[len(known) :] == [""] * (len(before) - len(known))
    assert known == sorted(known)


def test_a_sphere_turns_by_dragging_and_by_keys_and_shows_other_rows(page):
    canvas, first = drawn(page, "sphere")
    drag(page, canvas, (0, 0), (80, 30))
    _, turned = drawn(page, "sphere")
    assert turned != first
    canvas.send_keys("\ue014")  # the right arrow key
    _, further = drawn(page, "sphere")
    assert further != turned
    Select(page.find_element(By.CSS_SELECTOR, "#scene-sphere select")).select_by_visible_text("Regular")
    assert drawn(page, "sphere")[1] != further


@pytest.mark.parametrize("scene", ["frames-so3", "frames-flock", "planning"])
def test_playback_moves_and_ends(page, scene):
    _, still = drawn(page, scene)
    button = page.find_element(By.CSS_SELECTOR, f"#scene-{scene} button")
    into_view(page, button)
    button.click()
    assert button.text == "Pause"
    assert drawn(page, scene)[1] != still
    WebDriverWait(page, 60).until(lambda _: button.text == "Play")
    assert drawn(page, scene)[1] == still


def test_a_dragged_target_keeps_its_certificate(page):
    canvas, before = drawn(page, "planning")
    told = page.find_element(By.CSS_SELECTOR, "#scene-planning output[data-certified]")
    worlds = Select(page.find_element(By.CSS_SELECTOR, "#scene-planning select"))
    lengths = set()
    for k in range(len(worlds.options)):
        worlds.select_by_index(k)
        w, h = canvas.size["width"], canvas.size["height"]
        x, y = page.execute_script(TARGET, k)
        place = (x - 0.5) * (w - 8), (0.5 - y) * (h - 8)
        for stop in ((-0.4, 0.4), (0.4, -0.4), (0.1, 0.05), (0.49, 0.49)):  # the third may be inside of a disc
            aim = stop[0] * w, stop[1] * h
            drag(page, canvas, place, aim)
            assert told.get_attribute("data-certified") == "true", told.text
            assert told.text.startswith("Certified: length ")
            lengths.add(told.text)
            place = aim  # the end that is nearest is taken up again
    assert len(lengths) > 2 * len(worlds.options)
    assert drawn(page, "planning")[1] != before
    assert "agree in length and certificate" in page.find_element(By.ID, "scene-planning").text


TARGET = """
const c = JSON.parse(document.getElementById("data").textContent).scenes.planning.cases[arguments[0]], [low, high] = c.world.box;
return c.target.map((v, k) => (v - low[k]) / (high[k] - low[k]));
"""


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_its_window_and_its_theme(page, theme, width):
    show_as(page, theme, width)
    drawn(page, "sphere")
    wide = page.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    paper = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    level = sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(", ")))
    assert level < 150 if theme == "dark" else level > 700
    small = page.execute_script(
        "return [...document.querySelectorAll('figure')].filter(f => f.scrollWidth > f.clientWidth + 1).map(f => f.id)"
    )
    assert small == []
    show_as(page)


def test_on_paper_the_stills_stand_for_the_moving_pictures(page):
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    seen = "return getComputedStyle(document.querySelector(arguments[0])).display"
    assert page.execute_script(seen, "#scene-sphere > svg") == "block"
    assert page.execute_script(seen, "#scene-sphere canvas") == "none"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert page.execute_script(seen, "#scene-sphere > svg") == "none"
