"""Draw documents as HTML pages that need no other file.

The templates escape all text. The page also forbids the browser to run any script but its own, by
the script's hash, and to load anything, so that the content of a trove stays text.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.report.document import Document, Share

_TEMPLATES: Final = Path(__file__).parent / "templates"
_GENERATOR: Final = b'<meta name="generator" content="optrove">'


def is_report(beginning: bytes) -> bool:
    """Return whether the first few hundred bytes of a file are those of a report of optrove."""
    return _GENERATOR in beginning


def draw_html(document: Document) -> str:
    """Return a document as the text of an HTML file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda node: type(node).__name__
    environment.filters["placed"] = _placed
    environment.filters["thousands"] = "{:,}".format
    script = (_TEMPLATES / "report.js").read_text()
    style = (_TEMPLATES / "report.css").read_text()
    policy = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}"
    template = environment.get_template("report.html.jinja")
    return template.render(document=document, script=script, style=style, policy=policy)


def _placed(shares: Iterable[Share]) -> list[tuple[Share, float, float]]:
    """Return the shares that are not empty, with start and size in percent of their sum."""
    filled = [each for each in shares if each.count]
    whole = sum(each.count for each in filled)
    found, start = [], 0.0
    for each in filled:
        size = 100 * each.count / whole
        found.append((each, start, size))
        start += size
    return found


def _digest(text: str) -> str:
    """Return the source expression of a content security policy that allows a text."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
    return f"'sha256-{digest.decode()}'"
