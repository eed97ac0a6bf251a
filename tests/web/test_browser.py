"""Click through every page in a real browser: with a mouse, and with nothing but the keyboard.

The trove is one that an example model has made.
"""

import pytest

from examples_trove import LATER, MODEL, REASON, sweep_on
from optrove.trove.place import place_of

DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}

pytestmark = [pytest.mark.slow, pytest.mark.ttnn, pytest.mark.torch]


@pytest.fixture
def page(browser, url):
    context = browser.new_context(viewport=DESKTOP, base_url=url)
    context.set_default_timeout(60_000)
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
    page.get_by_role("searchbox").fill("ttnn::add")
    page.get_by_role("searchbox").press("Enter")
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("link", name="ttnn.add", exact=True).click()
    assert page.locator("h1").inner_text() == "ttnn.add"
    assert page.locator("svg.plot").count() == 2
    page.locator(".facets").get_by_role("link", name="L1_BLOCK_SHARDED").click()
    assert page.locator("table.cases tbody tr").count() == 1
    page.locator("table.cases tbody a").click()
    assert page.locator("svg.shards").count() == 2
    assert "pcc 0.99" in page.locator("main").inner_text()
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
    page.goto("/op?name=ttnn.linear")
    page.get_by_role("link", name="Families").click()
    assert page.locator("table.cases tbody tr").count() > 1


def test_two_runs_are_picked_and_compared(page):
    page.goto("/runs?kind=replay")
    earlier = page.locator("tbody td a").last.inner_text()
    page.get_by_label(f"A: {earlier}").check()
    page.get_by_label(f"B: {LATER[:12]}").check()
    page.get_by_role("button", name="Compare A with B").click()
    page.get_by_role("link", name="broken 1").wait_for()
    assert REASON in page.locator("tbody").inner_text()
    page.get_by_role("link", name="slower 1").click()
    assert page.locator("tbody tr").count() == 1
    assert "takes 10" in page.locator("tbody").inner_text()


def test_a_run_has_a_timeline_tests_and_its_environment(page):
    page.goto("/runs?kind=trace")
    page.locator("tbody td a").first.click()
    assert MODEL in page.locator("main").inner_text()
    assert page.locator("svg.timeline rect").count() == 200
    assert page.locator("#tests tbody tr").count() == 6
    page.get_by_role("link", name="Later").first.click()
    assert 0 < page.locator("svg.timeline rect").count() < 200
    page.locator("svg.timeline a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/case?id=*")
    assert page.locator("h1").inner_text().startswith("Case ")


def test_from_a_model_to_its_ops_and_runs(page):
    page.goto("/")
    page.get_by_role("link", name="All models").click()
    page.locator("tbody").get_by_role("link", name=MODEL).click()
    assert page.locator("h1").inner_text() == MODEL
    page.get_by_role("link", name="ttnn.add", exact=True).click()
    assert MODEL in page.locator(".chips").inner_text()


def test_the_board_matrix_tells_why(page):
    page.goto("/boards")
    page.get_by_role("link", name="rejected", exact=True).click()
    page.locator("tbody a.name").click()
    page.get_by_text(REASON).first.click()
    assert page.locator("details[open] pre").first.is_visible()


def test_everything_can_be_done_with_the_keyboard(page):
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    page.keyboard.type("layer_norm")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ops?search=layer_norm")
    _tab_to(page, "a[href^='/op?']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/op?name=ttnn.layer_norm")
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


def test_progress_of_a_sweep_is_followed_live(page, examples_trove):
    place = place_of(str(examples_trove))
    planned = sweep_on(place, 2)
    page.goto("/")
    page.get_by_text(f"2 of {planned} tried").wait_for()
    sweep_on(place, 4)
    page.get_by_text(f"4 of {planned} tried, 4 of 4 that ran passed").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_a_phone(browser, url, scheme):
    context = browser.new_context(viewport=PHONE, base_url=url, color_scheme=scheme)
    page = context.new_page()
    page.goto("/runs")
    runs = [link.get_attribute("href") for link in page.locator("tbody td a[href^='/run']").all()]
    page.goto("/op?name=ttnn.add")
    case = page.locator("table.cases tbody a").first.get_attribute("href")
    addresses = (
        *("/", "/ops", "/op?name=ttnn.linear", "/op?name=ttnn.linear&view=families", "/runs"),
        *(f"/compare?a={runs[-2].partition('=')[2]}&b={LATER}", "/boards", "/nothing"),
        *("/boards?op=ttnn.add", "/models", f"/model?name={MODEL}", "/case?id=zzz", case, *runs),
    )
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    for address in addresses:
        page.goto(address)
        assert not page.evaluate(wide), address
    context.close()
