"""A real browser for tests of pages: the Chromium of this machine, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager

from parts import BROWSER, leave_out, needs

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser():
    """Return the path of the browser to test with, or "none: " and the reason.

    That is OPTROVE_BROWSER, which the Makefile sets to what tools/get-browser prints, or else what
    is on the PATH.
    """
    found = (shutil.which(name) for name in NAMES)
    return (
        os.environ.get("OPTROVE_BROWSER")
        or next(filter(None, found), None)
        or "none: there is no Chromium on the PATH, and tools/get-browser was not run"
    )


@contextmanager
def opened_browser():
    """Open a browser without a window; leave out the test where there is none."""
    needs("playwright")
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path.split(":")[0] == "none":
        leave_out(BROWSER, path.partition(": ")[2] or f"OPTROVE_BROWSER={path}")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()
