"""The commands that make tests and small failures of recorded cases: testgen, shrink.

``--json`` prints one object. ``testgen``: ``{"directory", "files": [{"file", "op", "cases"}],
"cases", "left_out": [{"case_id", "op", "path", "reason"}]}``, where ``cases`` is how many have a
test. ``shrink``: ``{"op", "case_id", "outcome", "cause", "trials", "finished", "steps": [text],
"original": {"case_id", "arguments"}, "shrunk": {"case_id", "arguments"}, "file"}``.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    case_filters,
    echo_lines,
    json_option,
    seed_option,
    store_option,
    table_width,
    tell_recovered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.testgen.files import Generated, LeftOut, TestFile
    from optrove.testgen.shrink import Shrunk

_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)
_SHOWN: Final = 12
_ANY_BOARD: Final = "n300"
_MOST_NAMED: Final = 3
# Else plugins such as anyio keep the parameters of tests, and nanobind tells of leaks at the end.
_WITHOUT_LEAKS: Final = "--assert=plain "


@click.command()
@click.argument("names", metavar="OP|CASE...", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="DIR", type=_DIRECTORY, required=True, help="Directory for the files."
)
@click.option("--standalone", is_flag=True, help="One file per case, which needs no pytest.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N of an op.")
@case_filters("--recorded-on", "--board", "board")
@store_option
@json_option
def testgen(
    *,
    names: Sequence[str],
    output: Path,
    standalone: bool,
    limit: int | None,
    store: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Write plain pytest files that make recorded calls again.

    They need ttnn and torch only. Cases are put together by op, and by which arguments they have;
    each is a parameter set with a readable id. Numbers come from a seed; where the device computes,
    results are compared with ttnn's golden functions, and on a mock board only the specs of outputs
    are checked. With --standalone, each case is a file of its own to hand on, for python or pytest.

    A case that cannot be written in Python is left out; here such cases are summed up by op and
    reason, and --json names each. Files that testgen has not made are never replaced.

    \b
    Example:
      optrove testgen matmul -o tests/recorded
      optrove testgen '*' --model llama --limit 20 -o tests/llama
      pytest tests/recorded --optrove-board n300 --optrove-shadow
      optrove testgen 1f3a9c02d4e5 --standalone -o .
    """
    from optrove.testgen.generate import tests_of, write_tests
    from optrove.trove.opening import reading
    from optrove.trove.query import Asked

    with reading(store, tell_recovered) as reader:
        cases = tests_of(reader, names, Asked(**chosen), limit)
    generated = write_tests(cases, output, standalone=standalone)
    if as_json:
        click.echo(json.dumps(_generated_data(generated, output), indent=2))
    else:
        echo_lines(_generated_lines(generated, output, standalone=standalone))


def _generated_lines(generated: Generated, directory: Path, *, standalone: bool) -> Iterator[str]:
    from optrove.report.tables import plural

    files = generated.files
    for file in files:
        yield f"{directory / file.name}  {plural(file.cases, 'case')} of {file.op}"
    tested = sum(file.cases for file in files)
    yield f"{plural(len(files), 'file')}, {plural(tested, 'case')}"
    yield from _left_out_lines(generated.left_out, table_width())
    yield from _command_lines(files, directory, standalone=standalone)


def _left_out_lines(left_out: Sequence[LeftOut], width: int | None) -> Iterator[str]:
    """Yield the lines about cases without a test, one for each op and reason."""
    from optrove.report.tables import plural, wrapped

    if not left_out:
        return
    yield f"left out, since no test can be written of them: {plural(len(left_out), 'case')}"
    groups: defaultdict[tuple[str, str], list[LeftOut]] = defaultdict(list)
    for each in left_out:
        groups[each.op, each.reason].append(each)
    for (op, reason), some in groups.items():
        first = some[0]
        such = "such as " if len(some) > 1 else ""
        text = f"{op} ({such}case {first.case_id[:_SHOWN]}): {first.path}: {reason}"
        yield from wrapped(f"  {len(some):,}x ", text, width)
    if len(groups) < len(left_out):
        yield "  (--json names each)"


def _command_lines(
    files: Sequence[TestFile], directory: Path, *, standalone: bool
) -> Iterator[str]:
    """Yield the commands that run the tests: few files by name, many by their directory."""
    paths = [shlex.quote(str(directory / file.name)) for file in files]
    named = shlex.quote(str(directory)) if len(paths) > _MOST_NAMED else " ".join(paths)
    tested = f"pytest {'' if standalone else _WITHOUT_LEAKS}{named}"
    if standalone and len(paths) == 1:
        yield f"run it with: python {named}"
    else:
        yield f"run them with: {tested}"
        if standalone:
            yield f"or one alone: python {paths[0]}"
    yield f"without a board: {tested} --optrove-board {_board_of_most(files)} --optrove-shadow"


def _board_of_most(files: Sequence[TestFile]) -> str:
    """Return the mock board of most cases."""
    counted: Counter[str] = Counter()
    for file in files:
        counted[file.board or _ANY_BOARD] += file.cases
    return counted.most_common(1)[0][0]


def _generated_data(generated: Generated, directory: Path) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "files": [
            {"file": str(directory / file.name), "op": file.op, "cases": file.cases}
            for file in generated.files
        ],
        "cases": sum(file.cases for file in generated.files),
        "left_out": [asdict(each) for each in generated.left_out],
    }


@click.command()
@click.argument("name", metavar="CASE")
@click.option(
    "--device",
    type=click.Choice(("hw", "mock", "shadow")),
    help="Kind of device on which it fails.",
)
@click.option("--board", metavar="NAME", help="Mock board on which it fails.")
@click.option(
    "--trials",
    metavar="N",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Execute at most N cases.",
)
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Stop after S seconds with what was found.",
)
@seed_option
@click.option(
    "-o", "--output", metavar="DIR", type=_DIRECTORY, help="Write a standalone reproducer there."
)
@store_option
@json_option
def shrink(  # noqa: PLR0913 - one for each option of the command
    *,
    name: str,
    device: str | None,
    board: str | None,
    trials: int,
    timeout: float,
    seed: int,
    output: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Shrink a failing case: the simplest call that still fails in the same way.

    Tries to leave arguments out, to keep tensors in plain memory, on one chip, with smaller and
    fewer dimensions. A simpler call counts when it has the same outcome and the same message,
    whatever the numbers in it. CASE is the beginning of a case's id, or an op, whose most called
    case is meant. It runs where "optrove replay" would.

    Ends with 0 when it has a result, with 2 if the case does not fail.

    \b
    Example:
      optrove check-board bh-galaxy
      optrove shrink 1f3a9c02d4e5 --board bh-galaxy
      optrove shrink 1f3a9c02d4e5 --board bh-galaxy -o .
    """
    from optrove.replay.device_choice import grouped, settled
    from optrove.replay.planning import How, cases_named
    from optrove.testgen.generate import write_reproducer
    from optrove.testgen.shrink import Limits
    from optrove.testgen.shrink import shrink as shrink_case
    from optrove.trove.opening import reading
    from optrove.trove.query import Asked

    choice = settled(device, board)
    with reading(store, tell_recovered) as reader:
        found = cases_named(reader, Asked(name=name), How(seed), every=False)
    ((where, (planned,)),) = grouped(found.cases, choice).items()
    click.echo(f"optrove: case {planned.case_id[:_SHOWN]} on {where}", err=True)
    shrunk = shrink_case(planned, where, Limits(trials, timeout), _tell)
    file = None
    if output is not None:
        file = write_reproducer(planned, shrunk.case, output, where.board)
    _show_shrunk(shrunk, file, as_json=as_json)


def _tell(line: str) -> None:
    click.echo(f"optrove: {line}", err=True)


def _show_shrunk(shrunk: Shrunk, file: Path | None, *, as_json: bool) -> None:
    from optrove.report.shrink import shrunk_data, shrunk_lines
    from optrove.report.tables import plural

    parts = (shrunk.original, shrunk.case, shrunk.attempt, shrunk.steps)
    if as_json:
        data = {
            **shrunk_data(*parts),
            "trials": shrunk.trials,
            "finished": shrunk.finished,
            "file": None if file is None else str(file),
        }
        click.echo(json.dumps(data, indent=2))
        return
    lines = shrunk_lines(*parts)
    rest = (
        ""
        if shrunk.finished
        else "; a limit was reached, more may be possible (--trials, --timeout)"
    )
    lines.append(f"{plural(shrunk.trials, 'call')} tried{rest}")
    if file is None:
        lines.append("write it as a standalone test: the same command with -o DIR")
    else:
        lines.append(f"reproducer: {file}")
    echo_lines(lines)


COMMANDS: Final = (testgen, shrink)
