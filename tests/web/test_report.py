import pytest

from executed_runs import ADDS, HOSTILE, NEW, OLD, id_of, make_executed
from optrove.report.report_page import report_of

pytestmark = pytest.mark.slow

WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    directory = tmp_path_factory.mktemp("report")
    trove = make_executed(directory / "trove.db")
    path = directory / "report.html"
    path.write_text(report_of(NEW, OLD, str(trove)).html)
    return path


@pytest.fixture
def page(browser, report):
    """The report as a page at desktop width; what the browser complains of fails the test."""
    with browser.new_context(offline=True) as context:
        context.set_default_timeout(60_000)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        shown = context.new_page()
        complaints = []
        shown.on("console", lambda message: complaints.append(message.text))
        shown.on("pageerror", lambda error: complaints.append(str(error)))
        shown.on("dialog", lambda dialog: complaints.append(dialog.message))
        requests = []
        shown.on("request", lambda request: requests.append(request.url))
        shown.goto(report.as_uri())
        yield shown
        assert not complaints
        assert requests == [report.as_uri()]


def ops_of(page):
    rows = page.locator("#ops-table tbody tr:visible td:first-child")
    return [text.strip() for text in rows.all_inner_texts()]


def test_the_table_of_ops_is_sorted_and_searched(page):
    assert ops_of(page) == ["ttnn.add", "ttnn.matmul", HOSTILE]
    page.get_by_role("button", name="passed", exact=True).click()
    assert ops_of(page) == ["ttnn.add", HOSTILE, "ttnn.matmul"]
    heading = page.locator("#ops-table th", has_text="passed")
    assert heading.get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="passed", exact=True).click()
    assert ops_of(page) == ["ttnn.matmul", HOSTILE, "ttnn.add"]
    # By keyboard alone: a slash goes to the search.
    page.keyboard.press("/")
    page.keyboard.type("matm")
    assert ops_of(page) == ["ttnn.matmul"]
    assert page.locator(".find output").first.inner_text() == "1 of 3"


def test_a_cause_opens_by_keyboard_and_its_command_is_copied(page):
    assert page.title().startswith("run b2b2b2b2b2b2: ")
    cause = page.locator("details.failure", has_text="wrong numbers")
    cause.locator("summary").focus()
    page.keyboard.press("Enter")
    assert "input_tensor_b: 2" in cause.inner_text()
    cause.get_by_role("button", name="Copy").click()
    page.wait_for_function("document.querySelector('details[open] .copy').textContent == 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"optrove replay {id_of(ADDS[2])[:12]} --device shadow")
    assert not page.locator("details.trace[open]").count()
    picture = page.locator("details.failure", has_text="no bank 8").locator("svg.shards")
    assert picture.count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_on_desktop_and_phone_in_light_and_dark(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("button", name="Open all").click()
    for width in WIDTHS.values():
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[scheme]


def test_print_shows_every_cause_and_no_buttons(page):
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("details.failure:not([open])").count() == 0
    assert page.locator("button.copy:visible").count() == 0
    assert page.locator("nav:visible").count() == 0


def test_all_is_readable_where_scripts_are_off(browser, report):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(report.as_uri())
        assert ops_of(page) == ["ttnn.add", "ttnn.matmul", HOSTILE]
        assert page.locator(".script:visible").count() == 0
