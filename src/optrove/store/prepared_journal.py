"""Journals in the form in which they are stored, ready to be written at one go."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Final

from optrove.codec.text import write
from optrove.errors import BadData, Fault
from optrove.model.records import CallOutcome
from optrove.store.prepared import prepare_run, prepare_test, storable, storable_or_none
from optrove.store.stored import (
    Counted,
    Grouped,
    Head,
    Prepared,
    StoredConfigCalls,
    StoredEnding,
    StoredScope,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from optrove.codec.journal_content import JournalContent
    from optrove.model.trove import CallGroup, ScopeFacts

_NONE: Final = Counted(0, None, None, None)


def prepare_journal(content: JournalContent) -> Prepared:
    """Return a journal as a Recording.

    A case whose call had not begun was never executed, and is left out.
    """
    # The writer may be at work: what calls refer to was written before them, so they come first.
    blocks = list(content.blocks())
    groups = [group for group in content.groups() if group.case]
    called = {group.case for group in groups}
    cases = {number: case_id for number, case_id in content.case_ids() if number in called}
    scopes = {number: prepare_scope(facts) for number, facts in content.scopes()}
    endings = {
        (is_error, number): prepare_ending(text, is_error=is_error)
        for number, is_error, text in content.endings()
    }
    numbers = {case_id: number for number, case_id in cases.items()}
    run = prepare_run(content.run)
    executions = _executions(groups, _Numbers(cases, scopes, endings))
    used_scopes = {group.scope_id for group, _ in executions}
    used_endings = {group.ending_id for group, _ in executions}
    return Prepared(
        head=Head(
            run_id=run.run_id,
            process=content.process,
            complete=content.complete,
            calls=content.calls,
            size=content.size,
            digest=content.digest,
        ),
        run=run,
        executions=executions,
        described=lambda ids: (content.case(numbers[case_id]) for case_id in ids),
        scopes={each.scope_id: each for each in scopes.values() if each.scope_id in used_scopes},
        endings={
            each.ending_id: each for each in endings.values() if each.ending_id in used_endings
        },
        tests=[prepare_test(result) for result in content.tests],
        dictionary=content.dictionary(),
        blocks=blocks,
        config_calls=_config_calls(content, cases),
    )


def _config_calls(content: JournalContent, cases: Mapping[int, str]) -> list[StoredConfigCalls]:
    # A journal may give two numbers to one case.
    counted: Counter[tuple[str, str]] = Counter()
    for path, number, calls in content.config_calls():
        counted[storable(path), cases[number]] += calls
    return [StoredConfigCalls(*key, calls) for key, calls in sorted(counted.items())]


def prepare_scope(facts: ScopeFacts) -> StoredScope:
    """Return within what calls were made as it is stored."""
    told = [facts.test_id, facts.phase, facts.module, facts.mode, facts.device]
    scope_id = hashlib.sha256(write(told).encode("ascii")).hexdigest()
    return StoredScope(scope_id, *map(storable_or_none, told))


def prepare_ending(text: str, *, is_error: bool) -> StoredEnding:
    """Return the text of an error, or the JSON of outputs, as it is stored."""
    content = write(text) if is_error else text
    ending_id = hashlib.sha256(f"{is_error:d}{content}".encode("ascii")).hexdigest()
    return StoredEnding(ending_id, is_error, content)


class _Numbers:
    """What the numbers of a journal stand for."""

    def __init__(
        self,
        cases: Mapping[int, str],
        scopes: Mapping[int, StoredScope],
        endings: Mapping[tuple[bool, int], StoredEnding],
    ) -> None:
        self._cases = cases
        self._scopes = {0: None, **{number: each.scope_id for number, each in scopes.items()}}
        self._endings = {key: each.ending_id for key, each in endings.items()}

    def grouped(self, group: CallGroup) -> Grouped:
        """Return a group by ids that mean the same everywhere."""
        raised = group.outcome is CallOutcome.RAISED
        try:
            return Grouped(
                self._cases[group.case],
                self._scopes[group.scope],
                self._endings[raised, group.ending] if group.ending else None,
                group.outcome.value,
                group.outermost,
            )
        except KeyError as error:
            fault = Fault("$", f"a call refers to {error}, which the journal does not define")
            raise BadData((fault,)) from error


def _executions(groups: Iterable[CallGroup], numbers: _Numbers) -> list[tuple[Grouped, Counted]]:
    return summed(
        (
            numbers.grouped(group),
            Counted(group.count, group.total_ns, group.shortest_ns, group.longest_ns),
        )
        for group in groups
    )


def summed(groups: Iterable[tuple[Grouped, Counted]]) -> list[tuple[Grouped, Counted]]:
    """Return groups in their order, each once: there may be two numbers for one thing."""
    counted: dict[Grouped, Counted] = {}
    for key, group in groups:
        before = counted.get(key, _NONE)
        counted[key] = Counted(
            before.calls + group.calls,
            _of_both(sum, before.total_ns, group.total_ns),
            _of_both(min, before.shortest_ns, group.shortest_ns),
            _of_both(max, before.longest_ns, group.longest_ns),
        )
    return sorted(counted.items(), key=_order)


def _of_both(choose: Callable[..., int], one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return choose(known) if known else None


def _order(item: tuple[Grouped, Counted]) -> tuple[str, str, str, str, bool]:
    group = item[0]
    scope, ending = group.scope_id or "", group.ending_id or ""
    return group.case_id, scope, ending, group.outcome, group.outermost
