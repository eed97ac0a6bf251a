"""A real browser for tests of pages: the Chromium of this machine, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WHY_NONE = "there is no browser: install chromium, or name one in OPTROVE_BROWSER"


def find_browser():
    """Return the browser to test with: that of OPTROVE_BROWSER, or what is on the PATH."""
    found = (shutil.which(name) for name in NAMES)
    return os.environ.get("OPTROVE_BROWSER") or next(filter(None, found), None)


@contextmanager
def opened_browser():
    """Open a browser without a window; skip the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = find_browser()
    if path is None:
        pytest.skip(WHY_NONE)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()
