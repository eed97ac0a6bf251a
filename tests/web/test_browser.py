"""Click through every page in a real browser: with a mouse, and with nothing but the keyboard."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from optrove.store.place import place_of
from optrove.store.trove import open_trove
from web_trove import begin_sweep, make_web_trove

ROOT = Path(__file__).parents[2]
SERVE = "import sys; from optrove.cli_serve import serve; serve(sys.argv[1:])"
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}

pytestmark = pytest.mark.slow


def browser_path():
    """Return a Chromium of this machine, or one that tools/get-browser has fetched."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fetched = cache / "optrove" / "browser" / "chromium"
    candidates = (os.environ.get("OPTROVE_TEST_BROWSER"), *map(shutil.which, names))
    found = next(filter(None, candidates), None)
    return found or (str(fetched) if fetched.exists() else None)


@pytest.fixture(scope="module")
def trove(tmp_path_factory):
    return make_web_trove(tmp_path_factory.mktemp("browsed"))


@pytest.fixture(scope="module")
def url(trove):
    command = [sys.executable, "-c", SERVE, "--store", str(trove), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        said = server.stderr.readline()
        yield re.search(r"http\S+(?=/)", said).group()
        server.terminate()
        server.communicate(timeout=60)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="drives the browser")
    path = browser_path()
    if path is None:
        pytest.skip("no Chromium on this machine; fetch one with: tools/get-browser")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, url):
    context = browser.new_context(viewport=DESKTOP, base_url=url)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page = context.new_page()
    page.said = []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    yield page
    context.close()
    # Whatever the policy refuses, or the script stumbles over, is said here.
    assert page.said == []


def test_from_the_overview_to_a_copied_command(page):
    page.goto("/")
    page.get_by_role("link", name="All ops").click()
    page.get_by_role("searchbox").fill("mat")
    page.get_by_role("searchbox").press("Enter")
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("link", name="ttnn.matmul").click()
    assert page.locator("h1").inner_text() == "ttnn.matmul"
    page.locator(".facets").get_by_role("link", name="L1_WIDTH_SHARDED").click()
    assert page.locator("table.cases tbody tr").count() == 1
    page.locator("table.cases tbody a").click()
    assert page.locator("svg.shards").count() == 1
    page.get_by_role("button", name="Copy the replay command").click()
    page.get_by_role("button", name="Copy the replay command").get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator(".command code").first.inner_text()
    assert copied.startswith("optrove replay ")


def test_filters_come_and_go(page):
    page.goto("/ops")
    every = page.locator("tbody tr").count()
    page.locator(".facets").get_by_role("link", name="bfloat8_b").click()
    assert 0 < page.locator("tbody tr").count() < every
    page.locator(".chips").get_by_role("link").click()
    assert page.locator("tbody tr").count() == every


def test_lists_go_on(page):
    page.goto("/op?name=ttnn.softmax")
    first = page.locator("table.cases tbody a").first.inner_text()
    page.get_by_role("link", name="Next 50").click()
    assert page.locator("table.cases tbody tr").count() == 10
    page.get_by_role("link", name="From the beginning").click()
    assert page.locator("table.cases tbody a").first.inner_text() == first
    page.get_by_role("link", name="Families").click()
    assert page.locator("table.cases tbody tr").count() > 1


def test_two_runs_are_picked_and_compared(page):
    page.goto("/runs?kind=replay")
    page.get_by_label("A: be4").check()
    page.get_by_label("B: af7e").check()
    page.get_by_role("button", name="Compare A with B").click()
    page.get_by_role("link", name="broken 1").wait_for()
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("link", name="slower 1").click()
    assert "9 ms" in page.locator("tbody").inner_text()


def test_a_run_has_a_timeline_tests_and_its_environment(page):
    page.goto("/runs?kind=trace")
    page.locator("tbody td a").first.click()
    assert page.locator("svg.timeline rect").count() == 200
    page.get_by_role("link", name="failed 1").click()
    assert "test_layer[7]" in page.locator("#tests tbody").inner_text()
    page.locator("svg.timeline a").first.click()
    assert page.locator("h1").inner_text().startswith("Case ")


def test_the_board_matrix_tells_why(page):
    page.goto("/boards")
    page.get_by_role("link", name="ttnn.matmul").click()
    page.get_by_text("TT_FATAL: out_of_memory").first.click()
    assert page.locator("details[open] pre").first.is_visible()


def test_everything_can_be_done_with_the_keyboard(page):
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ops?search=softmax")
    _tab_to(page, "a[href^='/op?']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/op?name=ttnn.softmax")
    _tab_to(page, "a[href^='/case']")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/case?id=*")
    _tab_to(page, "button[data-copy]")
    page.keyboard.press("Space")
    page.get_by_text("Copied").wait_for()


def _tab_to(page, selector):
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f'document.activeElement.matches("{selector}")'):
            return
    pytest.fail(f"no {selector} within 60 steps")


def test_progress_of_a_sweep_is_followed_live(page, trove):
    page.goto("/")
    page.get_by_text("20 of 60 tried").wait_for()
    with open_trove(place_of(str(trove)), create=False) as opened:
        begin_sweep(opened, 30)
    page.get_by_text("30 of 60 tried, 30 passed").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_a_phone(browser, url, scheme):
    context = browser.new_context(viewport=PHONE, base_url=url, color_scheme=scheme)
    page = context.new_page()
    addresses = (
        *("/", "/ops", "/op?name=ttnn.softmax", "/op?name=ttnn.softmax&view=families", "/runs"),
        *("/run?id=7aced", "/run?id=e15e", "/compare?a=be4&b=af7e", "/boards", "/nothing"),
        "/boards?op=ttnn.matmul",
    )
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    for address in addresses:
        page.goto(address)
        assert not page.evaluate(wide), address
    context.close()
