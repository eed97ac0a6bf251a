from executed_runs import NEW, SWEEP, VECTORS, add_sweep, attempt, id_of, run
from optrove.model.records import DeviceKind, Outcome
from optrove.report.results import results_of
from optrove.serializer.described import case_of
from small_trove import ADD, imported, run_of


def test_a_sweep_tells_what_it_has_done_and_what_it_has_not_come_to(trove):
    add_sweep(trove)
    with trove.reader() as reader:
        done, rest = list(reader.attempted_cases(SWEEP)), list(reader.waiting(SWEEP))
    planned = {id_of(one) for vectors in VECTORS.values() for one in vectors}
    assert {row.attempt.case_id for row in done} | {row.case_id for row in rest} == planned
    assert {row.suite for row in done} == set(VECTORS)
    assert all(case_of(row.content).op == row.op for row in done)
    (last,) = rest
    assert (last.suite, last.device_kind, last.board) == ("nightly", DeviceKind.SHADOW, "n150")


def test_of_several_attempts_at_a_case_the_last_counts(trove):
    trove.add_imported(imported(run_of("1f" * 16, "demo.py"), [(ADD, 7)]))
    replay = run(NEW)
    for number, outcome in enumerate((Outcome.REJECTED, Outcome.PASSED)):
        tried = attempt(ADD, NEW, outcome, at=f"2026-02-03T04:05:0{number}.000000Z")
        trove.add_attempts(replay, [tried])
    with trove.reader() as reader:
        found = results_of(reader, replay)
    (one,) = found.results
    assert (one.attempt.outcome, one.calls, found.repeated) == (Outcome.PASSED, 7, 1)
