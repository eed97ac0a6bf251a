"""The parts of a trove without paths, host names and user names.

Everything is made anew from scrubbed records, so that ids are again hashes of what is there. A
scrubbed Recording ranks below the one that it was made from: where both meet, the whole one stays.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from optrove.codec.call_rewriting import Changes, rewritten
from optrove.codec.decode import decode
from optrove.codec.described import case_of, describe_case
from optrove.codec.text import write
from optrove.codec.wire import encode
from optrove.model.trove import ScopeFacts
from optrove.store import answers
from optrove.store.attempts import prepare_attempt
from optrove.store.prepared import prepare_run, prepare_test
from optrove.store.prepared_journal import prepare_ending, prepare_scope, summed
from optrove.store.stored import StoredConfigCalls
from optrove.store.sweeps import prepare_sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from optrove.model.scrubbing import Scrubber
    from optrove.model.trove import DescribedCase
    from optrove.store.attempts import StoredAttempt
    from optrove.store.parts import Parts
    from optrove.store.stored import (
        Grouped,
        Head,
        Prepared,
        StoredEnding,
        StoredPlanned,
        StoredRun,
        StoredScope,
        StoredSweep,
    )

RULE: Final = 1
"""The version of the rule: what is scrubbed by another one is something else."""
_AT_ONCE: Final = 500


class ScrubbedParts:
    """Parts of a trove, scrubbed."""

    def __init__(self, parts: Parts, scrubber: Scrubber) -> None:
        self._parts = parts
        self._scrubber = scrubber
        self._cases: dict[str, str] = {}
        self._origins: dict[str, str] = {}
        self._attempts: dict[str, str] = {}

    def snapshot(self) -> AbstractContextManager[None]:
        """Tell all inside the block from one and the same state of the trove."""
        return self._parts.snapshot()

    def runs(self) -> Iterator[StoredRun]:
        """Yield all Runs, by their ids."""
        for stored in self._parts.runs():
            run = answers.run_from(stored.content, stored.environment.content)
            yield prepare_run(self._scrubber.run(run))._replace(machine=stored.machine)

    def heads(self) -> list[tuple[int, Head]]:
        """Return what identifies the Recordings, each with a key to ask for it."""
        return [(key, _scrubbed(head)) for key, head in self._parts.heads()]

    def recording(self, key: int, head: Head, run: StoredRun) -> Prepared:
        """Return a Recording as a whole."""
        whole = self._parts.recording(key, head, run)
        groups = [group for group, _ in whole.executions]
        self._learn({group.case_id for group in groups})
        self._learn({each.case_id for each in whole.config_calls})
        scopes = {name: self._scope(scope) for name, scope in whole.scopes.items()}
        endings = {name: self._ending(ending) for name, ending in whole.endings.items()}
        renamed = _Renamed(self._cases, scopes, endings)
        packed = whole.dictionary
        return replace(
            whole,
            executions=summed((renamed.group(group), each) for group, each in whole.executions),
            described=self.described,
            scopes={each.scope_id: each for each in scopes.values()},
            endings={each.ending_id: each for each in endings.values()},
            tests=[
                prepare_test(self._scrubber.test(answers.test_from(each.content)))
                for each in whole.tests
            ],
            dictionary=None if packed is None else rewritten(packed, self._changes()),
            config_calls=sorted(
                StoredConfigCalls(each.path, self._cases[each.case_id], each.calls)
                for each in whole.config_calls
            ),
        )

    def case_ids(self, key: int) -> Iterator[str]:
        """Yield the ids of the Cases of a Recording."""
        ids = list(self._parts.case_ids(key))
        self._learn(ids)
        return iter({self._cases[case_id] for case_id in ids})

    def described(self, ids: Sequence[str]) -> Iterator[DescribedCase]:
        """Yield Cases by their ids."""
        return map(self._describe, self._parts.described([self._origins[each] for each in ids]))

    def planned_runs(self) -> frozenset[str]:
        """Return the ids of the Runs that are sweeps with a plan."""
        return self._parts.planned_runs()

    def sweep(self, run_id: str) -> tuple[StoredSweep, list[StoredPlanned]] | None:
        """Return what a sweep was asked for and its plan; None when the Run is none."""
        found = self._parts.sweep(run_id)
        if found is None:
            return None
        asked, planned = found
        self._learn({each.case_id for each in planned})
        # Two Cases that differed by what was taken out are one now, and are planned once.
        scrubbed = {
            self._cases[each.case_id]: each._replace(case_id=self._cases[each.case_id])
            for each in reversed(planned)
        }
        plan = list(reversed(scrubbed.values()))
        sweep = self._scrubber.sweep(answers.sweep_from(asked.content))
        return prepare_sweep(sweep, plan), plan

    def attempt_ids(self, run_id: str) -> list[str]:
        """Return the ids of the Attempts of a Run."""
        ids = self._parts.attempt_ids(run_id)
        found = [(self._attempt(each).attempt_id, each.attempt_id) for each in self._of(ids)]
        self._attempts.update(found)
        return list(dict(found))

    def attempts(self, ids: Iterable[str]) -> Iterator[StoredAttempt]:
        """Yield Attempts by their ids."""
        return map(self._attempt, self._of([self._attempts[each] for each in ids]))

    def _of(self, ids: Sequence[str]) -> Iterator[StoredAttempt]:
        for batch in answers.batches(ids, _AT_ONCE):
            attempts = list(self._parts.attempts(batch))
            self._learn({attempt.case_id for attempt in attempts})
            yield from attempts

    def _attempt(self, stored: StoredAttempt) -> StoredAttempt:
        attempt = self._scrubber.attempt(answers.attempt_from(stored.content))
        replayed = attempt.replayed_case_id
        same = replayed == attempt.case_id
        case_id = self._cases[attempt.case_id]
        return prepare_attempt(
            replace(attempt, case_id=case_id, replayed_case_id=case_id if same else replayed)
        )

    def _learn(self, ids: Iterable[str]) -> None:
        """Find out what becomes of some Cases."""
        unknown = sorted(set(ids) - self._cases.keys())
        for whole in self._parts.described(unknown):
            case_id = self._describe(whole).case_id
            self._cases[whole.case_id] = case_id
            self._origins.setdefault(case_id, whole.case_id)

    def _describe(self, whole: DescribedCase) -> DescribedCase:
        if not self._scrubber.concerns(whole.content):
            return whole
        return describe_case(self._scrubber.case(case_of(whole.content)))

    def _scope(self, scope: StoredScope) -> StoredScope:
        return prepare_scope(
            ScopeFacts(
                test_id=None if scope.test_id is None else self._scrubber.source(scope.test_id),
                phase=scope.phase,
                module=self._scrubber.text_or_none(scope.module),
                mode=scope.mode,
                device=scope.device,
            )
        )

    def _ending(self, ending: StoredEnding) -> StoredEnding:
        data = json.loads(ending.content)
        if ending.raised:
            return prepare_ending(self._scrubber.text(data), is_error=True)
        if not self._scrubber.concerns(ending.content):
            return ending
        values = [encode(self._scrubber.value(decode(value))) for value in data]
        return prepare_ending(write(values), is_error=False)

    def _changes(self) -> Changes:
        return Changes(
            text=self._scrubber.text,
            file=self._scrubber.file,
            test=self._scrubber.source,
            value=self._scrubber.value,
            cases=self._cases,
        )


def _scrubbed(head: Head) -> Head:
    """Return what identifies a Recording when it is scrubbed: less than the whole one."""
    told = f"scrubbed {RULE} {head.size} {head.digest}"
    return head._replace(size=0, digest=hashlib.sha256(told.encode()).hexdigest())


class _Renamed:
    """What the ids of a Recording have become."""

    def __init__(
        self,
        cases: Mapping[str, str],
        scopes: Mapping[str, StoredScope],
        endings: Mapping[str, StoredEnding],
    ) -> None:
        self._cases = cases
        self._scopes = scopes
        self._endings = endings

    def group(self, group: Grouped) -> Grouped:
        """Return what calls have in common by the new ids."""
        scope, ending = group.scope_id, group.ending_id
        return group._replace(
            case_id=self._cases[group.case_id],
            scope_id=None if scope is None else self._scopes[scope].scope_id,
            ending_id=None if ending is None else self._endings[ending].ending_id,
        )
