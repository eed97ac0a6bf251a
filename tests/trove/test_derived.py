"""After any sequence of changes, the derived rows are those that are derived from scratch."""

import random

import pytest

from optrove.model.records import DeviceKind, Measurement, Outcome, RunKind, Sweep
from optrove.model.trove import PlannedCase
from optrove.model.values import Int
from optrove.serializer.described import describe_case
from optrove.trove.derived import rebuild
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.scrubbing import scrubbed_parts
from optrove.trove.trove import open_trove
from trove_rows import case, tensor
from troves import ENVIRONMENT, Program, attempt_of, derived_of, imported, run_of

CASES = [
    case("ttnn.add", a=tensor(32, 32), b=1.5),
    case("ttnn.add", a=tensor(32, 64), b=2.5),
    case("ttnn.add", a=tensor(32, 64), b=tensor(32, 64)),
    case("ttnn.matmul", a=tensor(64, 64), b=tensor(64, 64)),
    case("ttnn.reshape", shape=[1, 2]),
]
IDS = [describe_case(each).case_id for each in CASES]
OUTCOMES = [Outcome.PASSED, Outcome.REJECTED, Outcome.NOT_RUN]
BOARDS = [None, "n150", "n300"]


class Changes:
    """Change a trove at random."""

    def __init__(self, trove, directory, seed):
        self.trove, self.directory = trove, directory
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.number = self.merged = 0

    def change(self):
        """Make one change."""
        self.number += 1
        kinds = (self.imports, self.traces, self.replays, self.sweeps, self.merges, self.removes)
        self.chance.choice(kinds)()

    def run(self, name, **facts):
        return run_of(f"{name}{self.chance.randrange(3)}", **facts)

    def imports(self):
        some = [(each, self.chance.randrange(1, 5)) for each in self.some(CASES)]
        model = self.chance.choice([None, "some/Model", "other/Model"])
        self.trove.add_imported(imported(f"import{self.number}", *some, model=model))

    def traces(self):
        # Added twice: killed, and then to its end, when it says more about its run.
        run = run_of(f"trace{self.number}", model=self.chance.choice([None, "some/Model"]))
        program = Program(self.directory / str(self.number), run)
        for _ in range(self.chance.randrange(1, 4)):
            program.call("fake.add", self.chance.randrange(3), result=1)
        inner = lambda: program.call("fake.divide", 1, result=2)  # noqa: E731 - a call within
        program.call("fake.outer", result=inner)
        self.trove.add_journal(program.content)
        program.call("fake.divide", 1, result=2)
        program.run = run_of(run.id, model=run.model or "late/AtTheEnd")
        self.trove.add_journal(program.end())

    def attempts(self, run):
        self.trove.add_imported(imported("every", *CASES))
        for case_id in self.some(IDS):
            pcc = self.chance.choice([0.9, 0.99, *map(float, ("nan", "inf", "-inf"))])
            detail = f"TT_FATAL: {self.chance.randrange(4)} is too much"
            yield attempt_of(
                *(case_id, run.id, self.chance.choice(OUTCOMES)),
                detail=self.chance.choice([None, detail]),
                board=self.chance.choice(BOARDS),
                device_kind=self.chance.choice([DeviceKind.MOCK, DeviceKind.SHADOW]),
                measurements=(
                    *(Measurement("pcc", pcc, output=output) for output in range(2)),
                    Measurement("e2e_ns", self.chance.choice([1e6, float("nan")])),
                ),
                outputs=(Int(self.chance.randrange(2)),),
                duration_ns=self.chance.choice([None, 5, 7]),
                started_at=f"2026-01-0{self.chance.randrange(1, 9)}T00:00:00.000000Z",
            )

    def replays(self):
        run = self.run("replay", kind=RunKind.REPLAY)
        self.trove.add_attempts(run, list(self.attempts(run)))

    def sweeps(self):
        run = self.run("sweep", kind=RunKind.SWEEP)
        attempts = list(self.attempts(run))
        suite = self.chance.choice([None, "xfail_wide"])
        plan = [PlannedCase(each, DeviceKind.MOCK, "n300", suite) for each in self.some(IDS)]
        self.trove.add_sweep(run, Sweep(), plan)
        self.trove.add_attempts(run, attempts)

    def merges(self):
        place = place_of(str(self.directory / f"other{self.number}.db"))
        with open_trove(place, create=True) as trove:
            others = Changes(trove, self.directory / f"of{self.number}", self.chance.random())
            for change in (others.traces, others.imports, others.sweeps, others.replays):
                change()
        with open_reader(place) as reader:
            self.merged += 1
            if self.merged % 2:
                self.trove.merge(reader)
            else:
                parts = scrubbed_parts(reader)
                with parts.snapshot():
                    self.trove.add_parts(parts, self.trove.missing_parts(parts))

    def removes(self):
        with self.trove.reader() as reader:
            runs = [row.run.id for row in reader.runs()]
        for run in self.some(runs) if runs else ():
            self.trove.remove_run(run)

    def some(self, every):
        return self.chance.sample(every, self.chance.randrange(1, len(every) + 1))


@pytest.mark.parametrize("seed", range(4))
def test_derived_rows_are_right_after_every_change(trove, place, tmp_path, seed):
    changes = Changes(trove, tmp_path, seed)
    for _ in range(12):
        changes.change()
        check(trove, place)


def check(trove, place):
    found = derived_of(place)
    with trove.together():
        rebuild(trove.connection)
    assert derived_of(place) == found


def test_a_run_that_moves_to_another_origin_takes_its_cases_with_it(trove, place):
    trove.add_imported(imported("first", CASES[0], CASES[1], model="some/Model"))
    trove.add_imported(imported("second", CASES[1], model="some/Model"))
    later = imported("first", *CASES[:2], model="other/Model", finished_at="2026-01-03T00:00:00Z")
    trove.add_imported(later)
    found = {row[0]: row[-1] for row in derived_of(place)["cases"]}
    board = ENVIRONMENT.board
    assert found == {
        IDS[0]: [f"other/Model on {board}"],
        IDS[1]: [f"other/Model on {board}", f"some/Model on {board}"],
    }
    check(trove, place)


def test_nothing_derived_is_left_of_what_was_removed(trove, place, tmp_path):
    changes = Changes(trove, tmp_path, 0)
    changes.traces()
    changes.sweeps()
    with trove.reader() as reader:
        runs = [row.run.id for row in reader.runs()]
    for run in runs:
        trove.remove_run(run)
    assert not any(derived_of(place).values())
    ((verdicts,),) = trove.connection.fetch("SELECT count(*) FROM verdicts")
    assert not verdicts
