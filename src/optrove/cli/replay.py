"""The commands that execute recorded cases: replay, check-board, check-release, audit-goldens.

``--json`` of replay and check-board prints one object:

    counts      {outcome: count}: passed, numerics, wrong_spec, rejected, out_of_memory, raised,
                hung, crashed, not_run; what is not there is zero, and the sum is ``planned``
    cases       [{op, case_id, outcome, cause: the line that says what is wrong, detail: all that
                the op said, notes: [what was supplied or not compared], outputs: values,
                measurements: [{name, value, threshold, passed, output}], as_recorded,
                replayed_case_id, differences: [text], device, board, seed, run_id, started_at,
                duration_ns, calls, recorded_on, recorded_error}]
    causes      [{op, outcome, cause, cases, calls, example: case_id, command}]
    notes       {what was supplied or not compared: in how many cases}
    left_out    {reason: count} of cases that were not planned
    adapted     of check-board: null without --adapt, else {planned, counts, unadapted, cases},
                each case with adaptations: [text] and recorded_case_ids besides
    planned, runs: ids, store, interrupted, ttnn_version

check-release prints a and b: {name, cases, ttnn_version, board, device}, counts: {broken, fixed,
moved, slower, same, not_run, unlike, only_a, only_b}, broken, fixed, moved, slower, not_run and
unlike (tried on another kind of device): [{op, case_id, before, after: outcomes, change, worse:
whether it counts as a regression}], regressions: how many do, only_a and only_b: ids of cases.

audit-goldens prints planned, interrupted, counts: {sound, cannot_fail, unchecked}, cases: [{op,
case_id, verdict, detail, perturbed: [{name, value: its PCC, threshold, passed: whether the check
fails as it should, output}]}].
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    COULD_NOT,
    FAILED,
    INTERRUPTED,
    Work,
    case_filters,
    device_options,
    echo_lines,
    json_option,
    kept_in,
    replaying,
    running_options,
    store_option,
    table_width,
    tell_recovered,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optrove.model.records import Counts
    from optrove.replay.check_board import AdaptedPlan
    from optrove.replay.planning import Chosen, How

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_ID_SHOWN: Final = 12


@click.command()
@click.argument("name", metavar="[OP|CASE]", required=False)
@click.option("--all", "every", is_flag=True, help="All cases, not only the most called one.")
@click.option("--jsonl", metavar="FILE", type=_FILE, help="Take the case from op lines.")
@click.option(
    "--index", metavar="N", type=click.IntRange(min=0), help="Which line, from 0  [default: 0]"
)
@device_options()
@running_options
@case_filters("--recorded-on", "board")
@store_option
@json_option
def replay(  # noqa: PLR0913 - one for each option of the command
    *,
    name: str | None,
    every: bool,
    jsonl: Path | None,
    index: int | None,
    device: str | None,
    mock_board: str | None,
    seed: int,
    jobs: int | None,
    timeout: float | None,
    store: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Execute recorded cases again, and tell what comes out.

    OP (its most called case, or with --all every one) and CASE are as of "optrove show", and so
    are the filters. Without --board, OPTROVE_BOARD or --device it runs on the board of this
    machine, or else on a mock of the board on which it was recorded; numbers are compared with the
    golden functions with --device shadow or hw only. The replayed call is traced, and must be the
    recorded one. What comes of it is kept in the trove.

    Ends with 0 if all passed, with 1 if anything failed, with 2 if nothing could be done.

    \b
    Example:
      optrove replay matmul
      optrove replay 1f3a9c02d4e5 --device shadow
      optrove replay 'ttnn.experimental.*' --all --board bh-galaxy --jobs 4
      optrove replay --all
      optrove replay --jsonl op_calls.jsonl --index 0
    """
    from optrove.replay.device_choice import grouped, settled
    from optrove.replay.planning import How

    name = "*" if name is None and jsonl is None and every else name
    _check(name, jsonl, index, chosen, every=every)
    choice = settled(device, mock_board)
    how = How(seed, timeout)
    if jsonl is not None:
        found = _in_lines(jsonl, how, index, every=every)
    else:
        found = _in_trove(store, {"name": name, **chosen}, how, every=every)
    keep = kept_in(None if jsonl is not None else (store,), f"replay {name or jsonl}")
    work = Work(grouped(found.cases, choice), keep)
    work.do(jobs, "replaying")
    _show_replay(work, as_json=as_json, store=store)
    # Where not a single case has run, there is no answer.
    sys.exit(work.exit_code if work.ran or work.interrupted else COULD_NOT)


def _check(
    name: str | None,
    jsonl: Path | None,
    index: int | None,
    chosen: Mapping[str, object],
    *,
    every: bool,
) -> None:
    if (name is None) == (jsonl is None):
        raise click.UsageError(
            "name an op or a case of the trove, or give --all or --jsonl FILE"
            if name is None
            else "a name means a case of the trove, and --jsonl FILE a line of a file: give one"
        )
    if index is not None and jsonl is None:
        raise click.UsageError("--index counts the lines of a file: add --jsonl FILE")
    if index is not None and every:
        raise click.UsageError("--index means one line and --all every one: give one of them")
    if jsonl is not None and any(chosen.values()):
        raise click.UsageError("filters choose cases of a trove; --jsonl has --index and --all")


def _in_lines(path: Path, how: How, index: int | None, *, every: bool) -> Chosen:
    from optrove.replay.planning import cases_in_lines

    return cases_in_lines(path, how, None if every else index or 0)


def _in_trove(store: str | None, chosen: dict[str, Any], how: How, *, every: bool) -> Chosen:
    from optrove.replay.planning import cases_named
    from optrove.trove.opening import reading
    from optrove.trove.query import Asked

    with reading(store, tell_recovered) as reader:
        found = cases_named(reader, Asked(**chosen), how, every=every)
    if found.of > len(found.cases):
        text = f"the most called of {found.of:,} cases; --all replays each"
        click.echo(f"optrove: {text}", err=True)
    return found


def _show_replay(work: Work, *, as_json: bool, store: str | None) -> None:
    from optrove.report.attempts import attempt_lines, attempts_lines
    from optrove.report.boards import board_data

    if as_json:
        data = board_data(work.done, (), replaying(work, store))
        click.echo(json.dumps({**data, **work.data()}, indent=2))
    elif len(work.done) == 1:
        echo_lines(attempt_lines(work.done[0]))
    else:
        echo_lines(attempts_lines(work.done, table_width()))
        _tell_kept(work)


def _tell_kept(work: Work) -> None:
    for run in work.runs:
        click.echo(f"\nkept as run {run[:_ID_SHOWN]} of {work.keep.place}")


@click.command("check-board")
@click.argument("board", metavar="BOARD")
@click.option("--op", "name", metavar="OP", help="Only this op; * stands for anything.")
@click.option("--model", metavar="NAME", help="Only what this model has called.")
@click.option("--run", metavar="RUN", help="Only what was called in this run.")
@click.option("--adapt", is_flag=True, help="Try adapted what does not run as recorded.")
@running_options
@store_option
@json_option
def check_board(  # noqa: PLR0913 - one for each option of the command
    *,
    board: str,
    adapt: bool,
    seed: int,
    jobs: int | None,
    timeout: float | None,
    store: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Find out which cases of a trove would run on a board, and why others would not.

    Every case is executed on the mock board, just as it was recorded, on ttnn's own word: accepted,
    rejected, or out of memory. What fails for the same reason is summed up, with a command that
    replays an example. Results are kept in the trove as they come; an interrupt loses none. With
    --adapt, what fails is tried again with DRAM shards on the banks of this board, as many links as
    it has, and on one chip where it has too few; these results are shown apart and not kept.

    Ends with 0 if the board takes all of them, with 1 if not.

    \b
    Example:
      optrove check-board bh-galaxy
      optrove check-board p150 --model llama --jobs 8 --json
    """
    from optrove.frameworks.ttnn.board.table import find_board
    from optrove.replay.check_board import plan_for_board
    from optrove.replay.planning import How
    from optrove.trove.opening import reading
    from optrove.trove.query import Asked

    name = find_board(board).name
    with reading(store, tell_recovered) as reader:
        plan = plan_for_board(reader, Asked(**chosen), How(seed, timeout), name)
    work = Work(plan.groups, kept_in((store,), f"check-board {name}"))
    work.do(jobs, f"checking {name}")
    more = _adapted(work, name, jobs) if adapt and not work.interrupted else None
    _show_board(work, plan.left_out, more, as_json=as_json, store=store)
    sys.exit(work.exit_code)


def _adapted(work: Work, board: str, jobs: int | None) -> tuple[Work, AdaptedPlan]:
    """Try what the board does not take once more, adapted to it."""
    from optrove.replay.check_board import plan_adapted

    failed = {each.attempt.case_id for each in work.done if not each.passed}
    plan = plan_adapted((each for each in work.planned if each.case_id in failed), board)
    again = Work(plan.groups, kept_in(None, "adapted"))
    if plan.groups:
        again.do(jobs, f"adapted to {board}")
    return again, plan


def _show_board(
    work: Work,
    left_out: Counts,
    more: tuple[Work, AdaptedPlan] | None,
    *,
    as_json: bool,
    store: str | None,
) -> None:
    from optrove.report.boards import adapted_data, adapted_lines, board_data, board_lines

    command = replaying(work, store)
    data, lines = None, []
    if more is not None:
        again, plan = more
        told = {each.planned.case_id: (each.changes, each.recorded) for each in plan.adaptations}
        data = adapted_data(again.done, told, plan.unadapted)
        lines = adapted_lines(again.done, told, plan.unadapted, table_width())
    if as_json:
        whole = {**board_data(work.done, left_out, command), "adapted": data, **work.data()}
        click.echo(json.dumps(whole, indent=2))
        return
    echo_lines([*board_lines(work.done, left_out, command, table_width()), *lines])
    _tell_kept(work)


@click.command("check-release")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@store_option
@json_option
def check_release(*, a: str, b: str, store: str | None, as_json: bool) -> None:
    """Compare the results of two releases of ttnn: what broke, what was fixed, what moved.

    A and B are each the beginning of a run's id ("optrove runs"), a trove by path or URL (its
    newest run of cases), or a file that check-board --json or replay --json has printed. A case is
    broken that passed in A and fails in B. What did not run on one side says nothing about ttnn,
    and is counted apart.

    Ends with 1 if anything is worse in B (broken, a lower PCC, or, on the same kind of real board,
    slower), with 2 if no case was run in both.

    \b
    Example:
      optrove check-board galaxy --json > old.json
      pip install --upgrade ttnn
      optrove check-board galaxy --json > new.json
      optrove check-release old.json new.json
    """
    from optrove.report.outcomes import compare_results
    from optrove.report.releases import release_data, release_lines

    one, other, found = compare_results((a, b), store, tell_recovered)
    for what in ("board", "device"):
        before, after = getattr(one, what), getattr(other, what)
        if before != after:
            click.echo(f"optrove: the {what} is not the same: {before}, {after}", err=True)
    if as_json:
        click.echo(json.dumps(release_data(one, other, found), indent=2))
    else:
        echo_lines(release_lines(one, other, found))
    sys.exit(FAILED if found.regressions else 0)


@click.command("audit-goldens")
@click.argument("names", metavar="[OP...]", nargs=-1)
@click.option(
    "--cases",
    metavar="N",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="At most N cases of each op.",
)
@click.option("--board", metavar="NAME", help="Mock board  [default: the recorded one]")
@running_options
@store_option
@json_option
def audit_goldens(  # noqa: PLR0913 - one for each option of the command
    *,
    names: Sequence[str],
    cases: int,
    board: str | None,
    seed: int,
    jobs: int | None,
    timeout: float | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Find checks against golden functions that cannot fail.

    The most called cases of each op are executed with numbers. Then their results are perturbed
    (zeroed, negated, reversed, a tenth of them spoiled), and the check must fail each time; and
    with other inputs, other numbers must be expected. Ops without any check are listed with the
    reason. PCC does not see a result that is twice too large; --json has what was measured.

    Ends with 1 if there is a check that cannot fail.

    \b
    Example:
      optrove audit-goldens
      optrove audit-goldens softmax layer_norm --cases 10
    """
    from optrove.replay.audit import auditors, cases_to_audit, grounds_of
    from optrove.replay.planning import How
    from optrove.report.audit import audit_counts, audit_data, audit_lines
    from optrove.trove.opening import reading

    with reading(store, tell_recovered) as reader:
        found = cases_to_audit(reader, names, cases, How(seed, timeout))
    work = Work(grounds_of(found, board), kept_in(None, "audit-goldens"))
    work.do(auditors(jobs, len(found)), "auditing")
    if as_json:
        click.echo(json.dumps({**audit_data(work.done), "interrupted": work.interrupted}, indent=2))
    else:
        echo_lines(audit_lines(work.done))
    blind = audit_counts(work.done)["cannot_fail"]
    sys.exit(INTERRUPTED if work.interrupted else FAILED if blind else 0)


COMMANDS: Final = (replay, check_board, check_release, audit_goldens)
