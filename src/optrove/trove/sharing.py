"""Push and pull the parts that another trove lacks; the SQL of its roles.

A Run that fits into one transaction arrives as a whole. A larger one has no end until all of its
parts have arrived, like a Run that is still running. So an interrupted transfer leaves a valid
trove, and the next transfer sends the rest.

A reader may read everything. A writer may also add and remove Runs, but cannot change or drop a
table, nor the facts about the trove itself. Only the owner of the tables can migrate a trove; new
tables need rights after that, so run the same SQL again.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from optrove.errors import BadSetting
from optrove.model.trove import Added
from optrove.serializer.text import write
from optrove.trove.merging import MissingParts, TroveParts
from optrove.trove.opening import reading, writing
from optrove.trove.schema import table_comments
from optrove.trove.scrubbing import scrubbed_parts
from optrove.trove.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from optrove.trove.opening import Recovered
    from optrove.trove.trove import Trove


MAX_PER_TRANSACTION: Final = 200_000
"""The most that one transaction writes, as ``MissingParts.weight`` counts."""


def total_of(missing: Iterable[MissingParts]) -> Added:
    """Return how much missing parts are; their cases are not counted."""
    every = tuple(missing)
    return Added(
        runs=len(every),
        recordings=sum(len(each.recordings) for each in every),
        calls=sum(each.calls for each in every),
        attempts=sum(len(each.attempt_ids) for each in every),
    )


def send(
    trove: Trove,
    parts: TroveParts,
    missing: Iterable[MissingParts],
    most: int = MAX_PER_TRANSACTION,
) -> Iterator[Added]:
    """Add missing parts to ``trove``; after each transaction, yield the sum of those added."""
    sent = Added()
    for batch, completed in _transactions(missing, most):
        sent += replace(trove.add_parts(parts, batch), runs=completed)
        yield sent


def _transactions(
    missing: Iterable[MissingParts], most: int
) -> Iterator[tuple[list[MissingParts], int]]:
    """Yield the parts to write in one transaction, and how many Runs are complete then.

    These are several small Runs, or parts of a large one.
    """
    batch: list[MissingParts] = []
    weight = completed = 0
    for each in missing:
        for piece in (each,) if each.weight <= most else _pieces(each):
            if batch and weight + piece.weight > most:
                yield batch, completed
                batch, weight, completed = [], 0, 0
            batch.append(piece)
            weight += piece.weight
        completed += 1
    if batch:
        yield batch, completed


def _pieces(large: MissingParts) -> Iterator[MissingParts]:
    """Yield the parts of a Run one by one; the Run has no end before the last of them."""
    content = json.loads(large.run.content)
    for name in ("finished_at", "exit_code"):
        content.pop(name, None)
    unfinished = large.run._replace(finished_at=None, content=write(content))
    yield from replace(large, run=unfinished, sessions=()).pieces()
    yield MissingParts(large.run, sessions=large.sessions)


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")

_SCRIPT: Final = """\
-- The roles {reader} and {writer} of an optrove trove. Run this as the owner of its tables who may
-- create roles, in the database and with the search_path of the trove; again after an upgrade.
BEGIN;
DO $$ BEGIN
  IF to_regrole('{reader}') IS NULL THEN CREATE ROLE {reader} NOLOGIN; END IF;
  IF to_regrole('{writer}') IS NULL THEN CREATE ROLE {writer} NOLOGIN; END IF;
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO {reader}, {writer}', current_schema());
END $$;
GRANT SELECT ON {tables}
  TO {reader}, {writer};
GRANT INSERT, UPDATE, DELETE ON {changed}
  TO {writer};
{views}
COMMIT;
"""
_VIEW: Final = """\
DO $$ BEGIN IF to_regclass('{view}') IS NOT NULL THEN
  GRANT SELECT ON {view} TO {reader}, {writer}; END IF; END $$;"""


def grants(reader: str, writer: str) -> str:
    """Return the SQL that creates the two roles unless they exist, and grants them their rights.

    It can be run again. BadSetting for a name that SQL does not accept without quoting.
    """
    names = {"reader": _quoted(reader), "writer": _quoted(writer)}
    tables = list(table_comments())
    return _SCRIPT.format(
        **names,
        tables=", ".join(tables),
        changed=", ".join(name for name in tables if name != "trove"),
        views="\n".join(_VIEW.format(view=view.name, **names) for view in VIEWS),
    )


def _quoted(role: str) -> str:
    if not _NAME.fullmatch(role):
        raise BadSetting(
            f"{role!r} cannot be the name of a role here; "
            f"use letters, digits, _ and -, a letter first, and at most 63 of them"
        )
    return f'"{role}"'


def share(
    source: str | None,
    target: str | None,
    on_recovered: Callable[[Recovered], object],
    watch: Callable[[Added, Added], object] = lambda _, __: None,
    *,
    scrub: bool = False,
) -> Added:
    """Send the parts that the target lacks; ``watch`` gets the parts sent so far, and all of them.

    After an interrupt, the parts that were sent stay, and the next transfer sends the rest.
    """
    with ExitStack() as stack:
        reader = stack.enter_context(reading(source, on_recovered))
        trove = stack.enter_context(writing(target, on_recovered))
        parts = scrubbed_parts(reader) if scrub else TroveParts(reader.connection)
        stack.enter_context(parts.snapshot())
        missing = trove.missing_parts(parts)
        total, sent = total_of(missing), Added()
        for sent in send(trove, parts, missing):
            watch(sent, total)
    return sent
