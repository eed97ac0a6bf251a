"""Progress of long commands on stderr: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from optrove.cli.options import log
from optrove.report.wording import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from optrove.model.trove import Added

_LINE_SECONDS: Final = 10.0
_FAST: Final = 10.0


class Pace:
    """Lets a line pass every ten seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time for the next line."""
        due = time.monotonic() - self._last >= _LINE_SECONDS
        if due:
            self._last = time.monotonic()
        return due


class CaseProgress:
    """The progress of executed cases."""

    def __init__(self, total: int, bar: Progress | None, task: TaskID | None) -> None:
        self._total = total
        self._bar = bar
        self._task = task
        self._done = 0
        self._failed = 0
        self._began: float | None = None
        self._pace = Pace()

    def advance(self, *, passed: bool, ran: bool = True) -> None:
        """Count a case; one that was not run has not failed."""
        self._done += 1
        self._failed += ran and not passed
        # The first case has waited for a process to start and a device to open.
        self._began = self._began or time.monotonic()
        if self._bar is not None and self._task is not None:
            rate, failed = _per_second(self._rate()), f"{self._failed:,} failed"
            self._bar.update(self._task, advance=1, rate=rate, failed=failed)
        elif self._pace.is_due():
            log(self._line())

    def log(self, text: str) -> None:
        """Print a message above the bar."""
        if self._bar is not None:
            self._bar.console.print(printable(f"optrove: {text}"), markup=False, highlight=False)
        else:
            log(text)

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
def case_progress(total: int, what: str) -> Iterator[CaseProgress]:
    """Show the progress of ``total`` cases inside the block."""
    if not sys.stderr.isatty():
        yield CaseProgress(total, None, None)
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
        yield CaseProgress(total, bar, bar.add_task(what, total=total, rate="", failed=""))


@contextmanager
def transfer_progress() -> Iterator[Callable[[Added, Added], object]]:
    """Yield a function that shows the sent and the total amount of a transfer."""
    if not sys.stderr.isatty():
        pace = Pace()

        def lines(sent: Added, total: Added) -> None:
            if pace.is_due():
                runs = f"{sent.runs:,} of {total.runs:,} runs"
                log(f"sent {runs}, {sent.calls:,} calls, {sent.attempts:,} attempts")

        yield lines
        return
    from rich.console import Console
    from rich.progress import Progress

    def amount(sent: Added) -> int:
        return sent.runs + sent.calls + sent.attempts

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sending", total=None)

        def watch(sent: Added, total: Added) -> None:
            bar.update(task, completed=amount(sent), total=amount(total))

        yield watch
