"""All pages, in the order in which they are described."""

from __future__ import annotations

from typing import Final

from optrove.web.boards import BOARDS
from optrove.web.case import CASE
from optrove.web.compare import COMPARE
from optrove.web.memory import MEMORY
from optrove.web.models import MODEL, MODELS
from optrove.web.ops import OP, OPS
from optrove.web.overview import OVERVIEW
from optrove.web.runs import PROGRESS, RUN, RUNS

PAGES: Final = (
    *(OVERVIEW, OPS, OP, CASE, MODELS, MODEL, RUNS, RUN, PROGRESS, MEMORY, COMPARE, BOARDS),
)
