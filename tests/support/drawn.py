"""Documents as lines of text."""

from optrove.report.document import Section
from optrove.report.draw_text import draw_text


def drawn_lines(document, width=None):
    """Return a document, or one section of it, as lines."""
    return list(draw_text([document] if isinstance(document, Section) else document, width))
