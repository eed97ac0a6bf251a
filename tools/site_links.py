"""Prepare the pages of docs/ for the site: links to files outside of docs/ become plain text.

On the site there is no ``../src``. The tests of the docs check that these links lead somewhere in a
checkout; all other links are checked by ``mkdocs build --strict``.
"""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]+\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page without links to files that the site does not have; MkDocs calls this."""
    return OUTSIDE.sub(r"\1", markdown)
