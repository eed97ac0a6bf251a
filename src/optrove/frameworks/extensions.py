"""Load the C extensions of the fast paths, if they were built for the present record layout."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any, Final

from optrove.journal.format import ENTRY, EXIT, EXIT_OFFSET, RAISED, RECORD_SIZE, RETURNED

_LOG: Final = logging.getLogger(__name__)

RECORD_LAYOUT: Final = {
    "SITE_OFFSET": ENTRY.size - 16,
    "SCOPE_OFFSET": ENTRY.size - 12,
    "ENTERED_OFFSET": ENTRY.size - 8,
    "EXIT_OFFSET": EXIT_OFFSET,
    "NUMBER_OFFSET": EXIT_OFFSET + EXIT.size - 8,
    "OUTCOME_OFFSET": EXIT_OFFSET + EXIT.size - 4,
    "RECORD_SIZE": RECORD_SIZE,
    "RETURNED": RETURNED,
    "RAISED": RAISED,
}
"""The layout of records as a C extension states it; it must agree with the journal's format."""


def load_extension(name: str) -> Any:
    """Return a C extension; None if it was not built, or was built for another layout."""
    try:
        extension = import_module(f"optrove.frameworks.{name}")
    except ImportError:  # there was no compiler when optrove was installed
        return None
    built = {name: getattr(extension, name, None) for name in RECORD_LAYOUT}
    if built == RECORD_LAYOUT:
        return extension
    _LOG.warning(
        "the C extension %s was built for another record layout, so tracing uses the slower "
        "Python implementation; reinstall optrove to build it again",
        extension.__file__,
    )
    return None
