"""Draw a report as one HTML file that needs nothing else: no network, no other file.

All text is escaped by the templates. The page also forbids its reader to run any script but its
own, by the script's hash, and to load anything at all; so whatever a trove holds, it stays text.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

if TYPE_CHECKING:
    from optrove.report.page import Page

TEMPLATES: Final = Path(__file__).parent / "templates"


_MARK: Final = b'<meta name="generator" content="optrove">'


def is_report(beginning: bytes) -> bool:
    """Tell by its first few hundred bytes whether a file is a report of ours."""
    return _MARK in beginning


def html(page: Page) -> str:
    """Return a report as the text of an HTML file."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (TEMPLATES / "report.js").read_text()
    style = (TEMPLATES / "report.css").read_text()
    policy = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}"
    template = environment.get_template("report.html.jinja")
    return template.render(page=page, script=script, style=style, policy=policy)


def _digest(text: str) -> str:
    """Return how a content security policy names a text that is allowed."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
    return f"'sha256-{digest.decode()}'"
