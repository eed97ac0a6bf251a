"""Options and output that several commands share."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.progress import Progress, TaskID

    from optrove.replay.device_choice import Where
    from optrove.replay.planning import Planned
    from optrove.replay.replay import Keep
    from optrove.replay.runner import Workers
    from optrove.report.attempts import Attempted
    from optrove.trove.opening import Recovered


_Command = TypeVar("_Command", bound="Callable[..., Any]")

STORE_HELP: Final = "Trove  [default: OPTROVE_STORE, else .optrove/trove.db here or above]"

_SIZE: Final = re.compile(r"[0-9]{1,18}")

store_option = click.option("--store", metavar="PATH|URL", help=STORE_HELP)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
all_ops_option = click.option("--all-ops", is_flag=True, help="Count ops that only move data, too.")
nested_option = click.option("--nested", is_flag=True, help="Count calls made by other ops, too.")


def _shape(_: click.Context, __: click.Parameter, given: str | None) -> tuple[int, ...] | None:
    """Return the sizes of ``1x1x32x64``, ``1,1,32,64`` or ``[1, 1, *, 64]``; -1 is any."""
    if given is None:
        return None
    sizes = re.split(r"\s*[x,]\s*", given.strip().strip("[]()").strip(" ,"))
    if not all(size == "*" or _SIZE.fullmatch(size) for size in sizes):
        raise click.BadParameter("write 1x1x32x64 or 1,1,32,64, with * for any size")
    return tuple(-1 if size == "*" else int(size) for size in sizes)


def case_filters(*board: str) -> Callable[[_Command], _Command]:
    """Return what gives a command the options that choose cases of an op.

    ``board`` is how the option is called that chooses by the board of the recording.
    """
    options = (
        click.option("--argument", metavar="NAME", help="Tensor of this parameter."),
        click.option("--dtype", metavar="NAME", help="bfloat16, bfloat8_b, float32, ..."),
        click.option("--layout", metavar="NAME", help="TILE or ROW_MAJOR; strided, ..."),
        click.option("--memory", metavar="NAME", help="L1, SHARDED, L1_WIDTH_SHARDED, HOST, ..."),
        click.option("--shape", metavar="SIZES", callback=_shape, help="1x1x32x64; * is any size."),
        click.option("--mesh", metavar="SIZES", callback=_shape, help="Mesh of chips, as 4x8."),
        click.option("--model", metavar="NAME", help="Called by this model; a part is enough."),
        click.option(*board, metavar="NAME", help="Called on this board."),
        click.option("--run", metavar="RUN", help="Called in this run; the beginning is enough."),
        nested_option,
        click.option("--all-ops", is_flag=True, help="With *: ops that only move data, too."),
    )

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def tell_recovered(recovered: Recovered) -> None:
    """Say on stderr that a run was taken in whose process had died, or why it was not."""
    from optrove.report.tables import plural

    name = recovered.directory.name[:12]
    if recovered.problem is not None:
        text = f"the journals of run {name} in {recovered.directory} cannot be taken in"
        click.echo(f"optrove: {text}: {recovered.problem}", err=True)
        return
    added = recovered.added
    found = f"{plural(added.calls, 'call')}, {plural(added.cases_new, 'new case')}"
    click.echo(f"optrove: recovered run {name}, which was left behind: {found}", err=True)


_BATCH: Final = 200


def echo_lines(lines: Iterable[str]) -> None:
    """Print lines as they come; on a terminal, through the pager if they are more than fit."""
    rest = iter(lines)
    if sys.stdout.isatty():
        height = shutil.get_terminal_size().lines
        first = list(islice(rest, height))
        if len(first) == height:
            click.echo_via_pager(f"{line}\n" for line in chain(first, rest))
            return
        rest = iter(first)
    while batch := list(islice(rest, _BATCH)):
        click.echo("\n".join(batch))


def echo_list(items: Iterable[Any]) -> None:
    """Print a JSON list, one item after the other, without ever holding all of them."""
    separator = "["
    for item in items:
        click.echo(separator + json.dumps(item, indent=2), nl=False)
        separator = ",\n"
    click.echo("[]" if separator == "[" else "]")


def table_width() -> int | None:
    """Return how wide a table may be: as the terminal is, or as it likes in a file or pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


FAILED: Final = 1
COULD_NOT: Final = 2
INTERRUPTED: Final = 130

_LINE_SECONDS: Final = 10.0
_FAST: Final = 10.0

seed_option = click.option(
    "--seed",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="Of the random numbers in inputs.",
)


def running_options(command: _Command) -> _Command:
    """Give a command the options that say how cases are executed."""
    options = (
        seed_option,
        click.option(
            "--jobs",
            metavar="N",
            type=click.IntRange(min=1),
            help="Worker processes  [default: as many as pay]",
        ),
        click.option(
            "--timeout",
            metavar="S",
            type=click.FloatRange(min=0, min_open=True),
            help="End a case after S seconds  [default: 120]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def device_options(*, modules: bool = False) -> Callable[[_Command], _Command]:
    """Return what gives a command the options that say on what cases are executed.

    ``modules`` of sweeps may be meant as well, whose defaults are others.
    """
    kinds = (
        "hw: the board of this machine. mock: ttnn itself on a mock board; arguments, memory and "
        "output specs are judged. shadow: the same with numbers by torch, which are judged, too."
    )
    default = "mock with --board or OPTROVE_BOARD; else hw where a board is, else mock"
    if modules:
        default += "; for a module shadow in place of mock, since it judges numbers itself"
    board = "OPTROVE_BOARD, else the recorded one" + ("; for a module n150" if modules else "")
    options = (
        click.option(
            "--device",
            type=click.Choice(("hw", "mock", "shadow")),
            help=f"{kinds}  [default: {default}]",
        ),
        click.option(
            "--board",
            "mock_board",
            metavar="NAME",
            help=f"Mock board to run on  [default: {board}]",
        ),
    )

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@dataclass(slots=True)
class Work:
    """What is executed, and what has come of it."""

    groups: Mapping[Where, Sequence[Planned]]
    keep: Keep
    done: list[Attempted] = field(default_factory=list)
    interrupted: bool = False

    @property
    def planned(self) -> list[Planned]:
        """All cases, whatever they are executed on."""
        return [planned for cases in self.groups.values() for planned in cases]

    @property
    def runs(self) -> list[str]:
        """The ids of the Runs that are in the trove."""
        from optrove.replay.replay import runs_kept

        return runs_kept(self.keep, self.done)

    @property
    def ran(self) -> bool:
        """Tell whether any case has run at all."""
        from optrove.model.records import Outcome

        return any(each.attempt.outcome is not Outcome.NOT_RUN for each in self.done)

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        if self.interrupted:
            return INTERRUPTED
        return 0 if all(each.passed for each in self.done) else FAILED

    def do(self, jobs: int | Workers | None, what: str) -> None:
        """Execute all, and tell how it goes; an interrupt leaves the rest as not run."""
        from optrove.replay.replay import replayed, unattempted

        for where in self.groups:
            why = "" if where.why is None else f": {where.why}"
            click.echo(f"optrove: on {where}{why}", err=True)
        planned = self.planned
        with watching(len(planned), what) as watch:
            attempts = replayed(self.groups, self.keep, jobs, watch.tell)
            try:
                for attempted in attempts:
                    self.done.append(attempted)
                    watch.advance(passed=attempted.passed)
            except KeyboardInterrupt:
                self.interrupted = True
            finally:
                attempts.close()
        if self.interrupted:
            count = len(self.done)
            self.done += unattempted(self.groups, self.done)
            click.echo(f"optrove: interrupted, {count:,} of {len(planned):,} done", err=True)

    def data(self) -> dict[str, Any]:
        """Return what machines are told of the work besides its results."""
        from optrove.capture.runs import version_of

        return {
            "runs": self.runs,
            "store": None if self.keep.place is None else str(self.keep.place),
            "interrupted": self.interrupted,
            "ttnn_version": version_of("ttnn"),
        }


def kept_in(store: tuple[str | None] | None, source: str) -> Keep:
    """Return where results go: into the trove that is meant, nowhere without one."""
    from optrove.replay.replay import Keep
    from optrove.trove.opening import located

    return Keep(None if store is None else located(store[0]), source)


def replaying(work: Work, store: str | None) -> Callable[[str], str | None]:
    """Return what gives the command that replays a case, as it is to be copied.

    There is none for what is not in a trove.
    """
    from optrove.report.attempts import replay_command

    attempts = {each.attempt.case_id: each.attempt for each in work.done}

    def command(case_id: str) -> str | None:
        if work.keep.place is None:
            return None
        return replay_command(attempts[case_id], store)

    return command


class Watch:
    """What is told of the progress, on stderr."""

    def __init__(self, total: int, bar: Progress | None, task: TaskID | None) -> None:
        self._total = total
        self._bar = bar
        self._task = task
        self._done = 0
        self._failed = 0
        self._began: float | None = None
        self._told = time.monotonic()

    def advance(self, *, passed: bool) -> None:
        """Count one more case."""
        self._done += 1
        self._failed += not passed
        # The first case has waited for a process to start and a device to open.
        self._began = self._began or time.monotonic()
        if self._bar is not None and self._task is not None:
            rate, failed = _per_second(self._rate()), f"{self._failed:,} failed"
            self._bar.update(self._task, advance=1, rate=rate, failed=failed)
        elif time.monotonic() - self._told >= _LINE_SECONDS:
            self._told = time.monotonic()
            self.tell(self._line())

    def tell(self, text: str) -> None:
        """Say something on stderr without tearing the bar."""
        if self._bar is not None:
            self._bar.console.print(f"optrove: {text}", markup=False, highlight=False)
        else:
            click.echo(f"optrove: {text}", err=True)

    def _rate(self) -> float:
        seconds = time.monotonic() - (self._began or 0.0)
        return (self._done - 1) / max(seconds, 1e-3)

    def _line(self) -> str:
        text = f"{self._done:,} of {self._total:,} cases, {self._failed:,} failed"
        rate, left = self._rate(), self._total - self._done
        if not rate or not left:
            return text
        minutes, seconds = divmod(int(left / rate), 60)
        return f"{text}, {_per_second(rate)}, about {minutes}:{seconds:02} left"


def _per_second(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= _FAST else f"{rate:.1f}/s"


@contextmanager
def watching(total: int, what: str) -> Iterator[Watch]:
    """Tell of the progress of ``total`` cases inside the block."""
    if not sys.stderr.isatty():
        yield Watch(total, None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[failed]}"),
        Remaining(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, rate="", failed="")
        yield Watch(total, bar, task)
