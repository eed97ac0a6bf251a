"""Take the pictures of the web page that the README and docs show, over a trove of the examples.

Traces two example models on mock boards, sweeps their cases with numerics and on other boards,
serves the trove, and takes the pictures with a Chromium: run it again when a page has changed.
Needs optrove[ttnn,torch,web,test] and a browser (tools/get-browser); takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
OPTROVE: Final = (sys.executable, "-m", "optrove")
SERVE: Final = "import sys; from optrove.cli.ask import serve; serve(sys.argv[1:])"
RECORD: Final = (
    ("trace", "examples/efficientnet", "--board", "n150", "--shadow", "--model", "efficientnet"),
    ("trace", "examples/encoder", "--board", "n300", "--shadow", "--flow", "--model", "encoder"),
    ("sweep", "--device", "shadow", "--board", "n150"),
    ("check-board", "n300"),
    ("check-board", "p150"),
    ("check-board", "n150:64"),
)
OP: Final = "ttnn.sigmoid_accurate"
SIZE: Final = {"width": 1200, "height": 760}


def main() -> None:
    """Record a trove unless one is given, and take all pictures of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="a trove that is there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        store = asked.store or str(Path(name) / "trove.db")
        if asked.store is None:
            for words in RECORD:
                # What a board refuses is a result, not a failure.
                command = [*OPTROVE, *words, "--store", store]
                subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)  # noqa: S603 - our own
        with _served(store) as url:
            _take(url)


@contextmanager
def _served(store: str) -> Iterator[str]:
    # From its directory, so that no picture has a path of this machine in it.
    path = Path(store).absolute()
    command = [sys.executable, "-c", SERVE, "--store", path.name, "--port", "0"]
    with subprocess.Popen(  # noqa: S603 - our own
        command, cwd=path.parent, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        found = re.search(r"http\S+(?=/)", server.stderr.readline())
        assert found is not None
        try:
            yield found.group()
        finally:
            server.terminate()


def _take(url: str) -> None:
    browser_path = subprocess.run(  # noqa: S603 - our own
        [str(ROOT / "tools" / "get-browser")], check=True, capture_output=True, text=True
    ).stdout.strip()
    op = _sharded_op(url)
    case = _json(url, "/op", name=op, memory="L1_HEIGHT_SHARDED")["rows"][0]["case_id"]
    checks = [row["run_id"] for row in _json(url, "/runs", kind="check-board")["runs"]]
    traced = _json(url, "/runs", kind="trace", model="encoder")["runs"][0]["run_id"]
    pictures = (
        ("web-ops", "/ops", "light"),
        ("web-case", f"/case?id={case}", "dark"),
        ("web-boards", "/boards?device=mock", "light"),
        ("web-compare", f"/compare?a={checks[-1]}&b={checks[0]}", "dark"),
        ("web-memory", f"/memory?id={traced}", "light"),
    )
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name, address, scheme in pictures:
            context = browser.new_context(viewport=SIZE, color_scheme=scheme, base_url=url)
            page = context.new_page()
            page.goto(address)
            page.screenshot(path=str(IMAGES / f"{name}.png"))
            context.close()
        browser.close()


def _sharded_op(url: str) -> str:
    """Return an op whose tensors are sharded by height: the one that says most in a picture."""
    names = [row["op"] for row in _json(url, "/ops", memory="L1_HEIGHT_SHARDED")["ops"]]
    return OP if OP in names else str(names[0])


def _json(url: str, path: str, **parameters: Any) -> Any:
    query = urllib.parse.urlencode({**parameters, "format": "json"})
    with urllib.request.urlopen(f"{url}{path}?{query}") as answer:  # noqa: S310 - our own server
        return json.load(answer)


if __name__ == "__main__":
    main()
