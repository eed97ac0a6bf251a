import sqlite3
from dataclasses import replace

import pytest

from optrove.errors import BadData
from optrove.model.records import (
    Attempt,
    AttemptedCase,
    DeviceKind,
    Environment,
    Outcome,
    Run,
    RunKind,
)
from optrove.replay import replay
from optrove.replay.replay import attempt_writer
from optrove.serializer.described import describe_case
from optrove.trove import trove as troves
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from small_trove import ADD, LLAMA_IMPORT, RESNET_IMPORT, SHARDED, make_trove

RUN = Run("run", RunKind.REPLAY, "replay add", Environment("1", "3.12", "linux"), "2026-01-01")


@pytest.fixture
def place(tmp_path):
    return place_of(str(make_trove(tmp_path / "trove.db", LLAMA_IMPORT, RESNET_IMPORT)))


def attempt(case, outcome=Outcome.PASSED):
    case_id = describe_case(case).case_id
    return AttemptedCase(case.op, Attempt("run", case_id, outcome, DeviceKind.MOCK))


def kept(place):
    with open_reader(place) as reader:
        (row,) = reader.runs("run")
        return row.run, {each.case_id: each.outcome for each in reader.attempts("run")}


def test_results_and_the_end_of_a_run_are_kept(place):
    with attempt_writer(place, RUN, print) as store:
        store(attempt(ADD))
        store(attempt(SHARDED, Outcome.REJECTED))
    run, outcomes = kept(place)
    assert run.finished_at is not None
    assert run.exit_code == 1
    assert sorted(outcomes.values(), key=str) == [Outcome.PASSED, Outcome.REJECTED]


@pytest.mark.parametrize(
    ("source", "outcomes", "code"),
    [
        ("replay add", [Outcome.PASSED, Outcome.PASSED], 0),
        ("replay add", [Outcome.PASSED, Outcome.NOT_RUN], 1),
        ("replay add", [Outcome.NOT_RUN, Outcome.NOT_RUN], 2),
        ("check-board n150", [Outcome.NOT_RUN, Outcome.NOT_RUN], 1),
    ],
)
def test_the_exit_code_that_is_kept_is_that_of_the_command(place, source, outcomes, code):
    with attempt_writer(place, replace(RUN, source=source), print) as store:
        for case, outcome in zip((ADD, SHARDED), outcomes, strict=True):
            store(attempt(case, outcome))
    assert kept(place)[0].exit_code == code


def test_whatever_ends_a_run_what_was_done_is_kept(place):
    def interrupted():
        with attempt_writer(place, RUN, print) as store:
            store(attempt(ADD))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    run, outcomes = kept(place)
    assert run.finished_at is None
    assert len(outcomes) == 1


def test_results_are_in_the_trove_before_the_end(place, monkeypatch):
    monkeypatch.setattr(replay, "_SECONDS", 0.0)
    with attempt_writer(place, RUN, print) as store:
        store(attempt(ADD))
        assert len(kept(place)[1]) == 1


def test_a_trove_that_cannot_be_written_keeps_nothing_and_that_is_reported(place, monkeypatch):
    opened = troves.open_trove

    def interfering(place, *, create):
        return opened(place, create=create, timeout_s=0.05)

    monkeypatch.setattr(troves, "open_trove", interfering)
    lines = []
    blocking = sqlite3.connect(place.path, isolation_level=None)
    blocking.execute("BEGIN EXCLUSIVE")
    try:
        with attempt_writer(place, RUN, lines.append) as store:
            store(attempt(ADD))
    finally:
        blocking.close()
    (text,) = lines
    assert text.startswith("the results are not stored: ")
    with open_reader(place) as reader:
        assert reader.runs("run") == ()


def test_nothing_is_kept_without_a_place():
    with attempt_writer(None, RUN, print) as store:
        store(attempt(ADD))


def test_a_case_that_is_not_in_the_trove_is_a_fault_and_not_muted(tmp_path):
    place = place_of(str(make_trove(tmp_path / "other.db", RESNET_IMPORT)))
    with (
        pytest.raises(BadData, match="not in the trove"),
        attempt_writer(place, RUN, print) as store,
    ):
        store(attempt(SHARDED))
