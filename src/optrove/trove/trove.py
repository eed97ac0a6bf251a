"""Open a trove for writing: add, merge and remove, each all or nothing."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from optrove.errors import UnusableTrove
from optrove.model.trove import Added
from optrove.serializer.described import describe_case
from optrove.trove import schema
from optrove.trove.database import WAIT_S, OpenedTrove, connect, connect_to_write, keys_of
from optrove.trove.faults import Conflict, newer, no_trove
from optrove.trove.merging import Held, TroveParts, add_parts, merge, missing_parts
from optrove.trove.reader import open_reader
from optrove.trove.recordings import (
    imported_recording,
    journal_recording,
    stored_attempt,
    stored_run,
    stored_sweep,
)
from optrove.trove.sessions import is_executed, running_elsewhere, write_sessions
from optrove.trove.views import make_views
from optrove.trove.writing import (
    check_known,
    remove_run,
    write_attempts,
    write_cases,
    write_recording,
    write_run,
    write_sweep,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from optrove.journal.reader import JournalReader
    from optrove.model.case import Case
    from optrove.model.records import Attempt, Run, Sweep
    from optrove.model.trove import Imported, PlannedCase, Removed, Session
    from optrove.trove.database import Connection
    from optrove.trove.merging import MissingParts
    from optrove.trove.place import Place
    from optrove.trove.reader import TroveReader
    from optrove.trove.recordings import Recording

T = TypeVar("T")

NO_CASES: Final[Mapping[str, Case]] = MappingProxyType({})

_TRIES: Final = 5
_PAUSE_S: Final = 0.1


def open_trove(place: Place, *, create: bool, timeout_s: float = WAIT_S) -> Trove:
    """Open a trove for writing, and migrate it if it is older; ``create`` makes a missing one.

    NoTrove when it does not exist and ``create`` is false, NotATrove when something else is there,
    NewerTrove when a later optrove wrote it, UnusableTrove when it cannot be written.
    """
    version = _version(place, create=create)
    if version is None and not create:
        raise no_trove(place)
    if version is not None and version > schema.VERSION:
        raise newer(place, version, schema.VERSION)
    trove = Trove(connect_to_write(place, timeout_s))
    if version != schema.VERSION:
        try:
            with trove.together():
                schema.set_up(trove.connection)
        except BaseException:
            trove.close()
            raise
    return trove


def _version(place: Place, *, create: bool) -> int | None:
    """Return the version of the trove without changing it; None if it has to be created."""
    path = place.path
    if path is not None and create:
        with suppress(OSError):
            if place.is_vacant:
                _make_directory(place, path.parent)
                return None
    connection = connect(place)
    try:
        return schema.version_of(connection)
    finally:
        connection.close()


def _make_directory(place: Place, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableTrove(
            f"the trove {place} cannot be created: {error}; choose another place for it"
        ) from error


class Trove(OpenedTrove):
    """A trove that is open for writing. Every method writes everything or nothing."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write everything that is added or removed inside the block at its end, or nothing."""
        with self.connection.transaction():
            yield

    def add_journal(self, journal: JournalReader) -> Added:
        """Add the journal of one process; adding it again changes nothing."""
        return self.add(journal_recording(journal))

    def add_imported(self, imported: Imported) -> Added:
        """Add one source on one machine of an imported file; adding it again changes nothing."""
        return self.add(imported_recording(imported))

    def add(self, recording: Recording) -> Added:
        """Add a Recording, which was made before the trove is locked, because that takes long."""
        return self._write(lambda connection: write_recording(connection, recording))

    def add_attempts(
        self, run: Run, attempts: Iterable[Attempt], session: Session | None = None
    ) -> int:
        """Add Attempts at Cases that are in the trove; return how many are new.

        Attempts that are equal in everything, their time included, are one. In a Run with a plan
        a Case has one Attempt: the first. ``session`` is that of the process that made them.
        """
        stored = [stored_attempt(attempt) for attempt in attempts]
        its_run = stored_run(run)

        def work(connection: Connection) -> int:
            run_key, _ = write_run(connection, its_run)
            write_sessions(connection, run_key, () if session is None else (session,))
            return write_attempts(connection, ((run_key, each) for each in stored))

        return self._write(work)

    def begin_session(self, run: Run, session: Session) -> None:
        """Add the Session of a process that goes on with a Run, before it executes anything.

        BadTarget while another process executes the Run; of two that begin at once, for one.
        """
        its_run = stored_run(run)

        def work(connection: Connection) -> None:
            run_key, _ = write_run(connection, its_run)
            if is_executed(connection, run_key, session):
                raise running_elsewhere(run)
            write_sessions(connection, run_key, (session,))

        self._write(work)

    def add_sweep(
        self,
        run: Run,
        sweep: Sweep,
        planned: Iterable[PlannedCase],
        cases: Mapping[str, Case] = NO_CASES,
        session: Session | None = None,
    ) -> Added:
        """Add a Run of cases that begins, with its plan; adding it again changes nothing.

        ``cases`` has by their ids those that the trove may not hold yet, such as vectors.
        BadData when a planned Case is neither in the trove nor in ``cases``.
        """
        its_run, plan = stored_run(run), stored_sweep(sweep, planned)
        ids = {each.case_id for each in plan.planned}

        def work(connection: Connection) -> Added:
            run_key, runs = write_run(connection, its_run)
            write_sessions(connection, run_key, () if session is None else (session,))
            known = keys_of(connection, "cases", ids)
            missing = sorted(ids - known.keys())
            check_known(name for name in missing if name not in cases)
            write_cases(connection, missing, lambda few: (describe_case(cases[x]) for x in few))
            write_sweep(connection, run_key, plan)
            return Added(runs=runs, cases_new=len(missing), cases_known=len(known))

        return self._write(work)

    def merge(self, reader: TroveReader) -> Added:
        """Add the content of another trove; the order of merges does not matter.

        Of two Recordings of the same process of a Run, and of two accounts of a Run, the greater
        is kept: complete before incomplete, then the one with more calls.
        """
        return self._write(lambda connection: merge(connection, TroveParts(reader.connection)))

    def missing_parts(self, parts: TroveParts) -> tuple[MissingParts, ...]:
        """Return the parts of another trove that are missing here, Run by Run."""
        return self._write(
            lambda connection: tuple(missing_parts(connection, parts, Held(connection)))
        )

    def add_parts(self, parts: TroveParts, missing: Sequence[MissingParts]) -> Added:
        """Add some missing parts; those that others added meanwhile change nothing."""
        return self._write(lambda connection: add_parts(connection, parts, missing)[0])

    def make_views(self) -> None:
        """Create or replace the views for BI tools."""
        self._write(make_views)

    def remove_run(self, run_id: str) -> Removed:
        """Remove a Run and everything that nothing else refers to."""
        return self._write(lambda connection: remove_run(connection, run_id))

    def reader(self) -> TroveReader:
        """Return a reader of the same trove, which sees everything written so far."""
        return open_reader(self.place)

    def _write(self, work: Callable[[Connection], T]) -> T:
        """Do ``work`` in a transaction of its own, unless it is part of a larger one."""
        if not self.connection.in_transaction:
            for _ in range(_TRIES - 1):
                with suppress(Conflict), self.connection.transaction():
                    return work(self.connection)
                time.sleep(_PAUSE_S)
        with self.connection.transaction():
            return work(self.connection)
