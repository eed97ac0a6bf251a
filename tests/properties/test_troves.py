"""Laws of troves: merging is a join, adding is idempotent, removing undoes adding."""

import hashlib
import itertools
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optrove.journal import format as layout
from optrove.journal.reader import Tally
from optrove.model.records import (
    CallOutcome,
    DeviceKind,
    Outcome,
    Phase,
    RunKind,
    Scope,
    Sweep,
    TestOutcome,
    TestResult,
)
from optrove.model.trove import CallBlock, PlannedCase
from optrove.serializer.described import describe_case
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from strategies import cases
from trove_rows import case, tensor
from troves import FINISHED, attempt_of, content, imported, run_of

CASES = [case("ttnn.add", a=tensor(32, 32), b=number) for number in range(3)]
CASES += [case("ttnn.mul", a=tensor(32, 64)), case("ttnn.to_device", a=tensor(1))]


@dataclass(frozen=True)
class Journal:
    """What a trove asks of a journal, made up."""

    run: object
    process: int
    complete: bool
    size: int
    counts: tuple
    tests: tuple
    lost = 0

    @property
    def calls(self):
        return sum(count for *_, count in self.counts)

    @property
    def digest(self):
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def case(self, number):
        return describe_case(CASES[number - 1])

    def case_ids(self):
        return {number: self.case(number).case_id for number, _ in enumerate(CASES, 1)}

    def case_named(self, case_id):
        return next(each for each in map(describe_case, CASES) if each.case_id == case_id)

    def families(self):
        return ()

    def scopes(self):
        return iter([(1, Scope("test_a", Phase.CALL)), (2, Scope(module="layers.0"))])

    def endings(self):
        return iter([(1, False, "[1]"), (1, True, "ValueError: bad"), (2, False, "[1]")])

    def config_calls(self):
        return ((f"w{number}", number, count) for number, *_, count in self.counts if number)

    @property
    def tallies(self):
        found = {}
        for number, scope, outcome, outermost, count in self.counts:
            if not number:
                continue
            ending = 0 if outcome is CallOutcome.UNFINISHED else 1
            word = layout.word(number, layout.CASE, 0 if outermost else 1)
            (code,) = (code for code, each in layout.OUTCOMES.items() if each is outcome)
            before = found.get((word, scope, ending, code), Tally(0, 0, 9, 11))
            calls = before.calls + count
            found[word, scope, ending, code] = Tally(calls, 10 * calls, 9, 11)
        return found

    @property
    def blocks(self):
        return [CallBlock(0, self.calls, self.digest.encode())]

    def dictionary(self):
        return self.digest.encode()

    def add_to(self, trove):
        trove.add_journal(self)


@dataclass(frozen=True)
class Import:
    """An imported file."""

    original: object

    def add_to(self, trove):
        trove.add_imported(self.original)


@dataclass(frozen=True)
class Attempts:
    """An import, and attempts at its cases."""

    original: object
    attempts: tuple

    def add_to(self, trove):
        trove.add_imported(self.original)
        trove.add_attempts(run_of("replay"), self.attempts)


@dataclass(frozen=True)
class Swept:
    """A sweep that has got so far: its plan is one and the same in every trove."""

    attempts: tuple

    def add_to(self, trove):
        ids = {describe_case(each).case_id: each for each in CASES}
        plan = [PlannedCase(case_id, DeviceKind.MOCK, "n300") for case_id in ids]
        run = run_of("sweep", kind=RunKind.SWEEP)
        trove.add_sweep(run, Sweep(targets=("all",)), plan, ids)
        trove.add_attempts(run, self.attempts)


run_ids = st.sampled_from(["one", "two"])
runs = st.builds(
    lambda run_id, finished, code: replace(run_of(run_id), finished_at=finished, exit_code=code),
    run_ids,
    st.sampled_from([None, FINISHED]),
    st.sampled_from([None, 0, 1]),
)
journals = st.builds(
    Journal,
    run=runs,
    process=st.integers(0, 1),
    complete=st.booleans(),
    size=st.integers(0, 2),
    counts=st.lists(
        st.tuples(
            st.integers(0, len(CASES)),
            st.integers(0, 2),
            st.sampled_from(CallOutcome),
            st.booleans(),
            st.integers(1, 3),
        ),
        max_size=4,
    ).map(tuple),
    tests=st.lists(
        st.builds(TestResult, st.just("one"), st.just("test_a"), st.sampled_from(TestOutcome)),
        max_size=2,
    ).map(tuple),
)


def named(pairs):
    """Return an import whose run is named by what it says, as those of files are."""
    name = hashlib.sha256(repr(pairs).encode()).hexdigest()[:8]
    return imported(name, *pairs)


pairs = st.lists(st.tuples(st.sampled_from(CASES), st.integers(0, 3)), max_size=3)
imports = st.builds(lambda found: Import(named(found)), pairs)
attempts = st.builds(
    lambda outcome, number: Attempts(
        named([(CASES[number], 1)]),
        (attempt_of(describe_case(CASES[number]).case_id, "replay", outcome),),
    ),
    st.sampled_from(Outcome),
    st.integers(0, len(CASES) - 1),
)
swept = st.builds(
    lambda tried: Swept(
        tuple(
            attempt_of(
                describe_case(CASES[number]).case_id,
                "sweep",
                outcome,
                started_at=f"2026-01-0{day}T00:00:00Z",
            )
            for number, outcome, day in tried
        )
    ),
    st.lists(
        st.tuples(st.integers(0, len(CASES) - 1), st.sampled_from(Outcome), st.integers(1, 3)),
        max_size=3,
    ),
)
parts = st.lists(journals | imports | attempts | swept, max_size=4)


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """The file of an empty trove."""
    path = tmp_path_factory.mktemp("empty") / "trove.db"
    open_trove(place_of(str(path)), create=True).close()
    return path


class Troves:
    """A directory full of troves."""

    def __init__(self, directory, empty):
        self._paths = (Path(directory) / f"{number}.db" for number in itertools.count())
        self._empty = empty

    def new(self):
        path = next(self._paths)
        shutil.copy(self._empty, path)
        return place_of(str(path))

    def of(self, found):
        place = self.new()
        with open_trove(place, create=False) as trove:
            for part in found:
                part.add_to(trove)
        return place

    def merged(self, *places):
        place = self.new()
        with open_trove(place, create=False) as trove, ExitStack() as stack:
            for other in places:
                trove.merge(stack.enter_context(open_reader(other)))
        return place


def read(place):
    with open_reader(place) as reader:
        return content(reader)


@settings(max_examples=15)
@given(parts, parts, parts)
def test_the_order_and_grouping_of_merges_do_not_matter(empty, first, second, third):
    with tempfile.TemporaryDirectory() as directory:
        troves = Troves(directory, empty)
        a, b, c = map(troves.of, (first, second, third))
        expected = read(troves.merged(a, b, c))
        assert read(troves.merged(c, b, a, b)) == expected
        assert read(troves.merged(troves.merged(a, b), c)) == expected
        assert read(troves.merged(c, troves.merged(b, a))) == expected
        assert read(troves.of([*third, *first, *second])) == expected


@settings(max_examples=15)
@given(parts, st.randoms(use_true_random=False))
def test_adding_in_any_order_and_twice_is_the_same(empty, found, chance):
    with tempfile.TemporaryDirectory() as directory:
        troves = Troves(directory, empty)
        shuffled = [*found, *found]
        chance.shuffle(shuffled)
        assert read(troves.of(shuffled)) == read(troves.of(found))


@settings(max_examples=15)
@given(parts, journals)
def test_removing_a_run_undoes_adding_it(empty, found, journal):
    gone = replace(journal, run=replace(journal.run, id="gone"))
    with tempfile.TemporaryDirectory() as directory:
        troves = Troves(directory, empty)
        place = troves.of([*found, gone])
        with open_trove(place, create=False) as trove:
            trove.remove_run("gone")
        assert read(place) == read(troves.of(found))


@settings(max_examples=15)
@given(st.lists(cases, max_size=4))
def test_every_case_can_be_added_and_merged(empty, found):
    with tempfile.TemporaryDirectory() as directory:
        troves = Troves(directory, empty)
        place = troves.of([Import(imported("one", *found))])
        held = read(place)
        assert {row[0] for row in held["cases"]} == {describe_case(each).case_id for each in found}
        assert read(troves.merged(place)) == held
