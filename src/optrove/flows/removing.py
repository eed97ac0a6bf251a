"""Remove runs from a trove, by the beginnings of their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optrove.flows.runs_named import run_named
from optrove.flows.stores import writing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from optrove.flows.stores import Recovered
    from optrove.model.trove import Removed


def remove_runs(
    store: str | None, names: Sequence[str], tell: Callable[[Recovered], object]
) -> tuple[tuple[str, Removed], ...]:
    """Remove these runs, or none if one of them is not found; return what went with each."""
    with writing(store, tell, create=False) as trove:
        with trove.reader() as reader:
            ids = tuple(dict.fromkeys(run_named(reader, name) for name in names))
        with trove.together():
            return tuple((run_id, trove.remove_run(run_id)) for run_id in ids)
