"""The command that shows what the others do: demo."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from optrove.settings import STORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.flows.demo import Step

_FAILED: Final = 1


@click.command()
@click.option(
    "--shadow/--no-shadow",
    default=None,
    help="With or without numbers, by torch  [default: where torch is installed]",
)
def demo(*, shadow: bool | None) -> None:
    """Trace small models on a mock board, ask, replay, sweep, and write a report.

    Shows each command and runs just that. Needs no board; a minute or two. All that it makes is in
    .optrove here: demo.db, which each demo makes anew, and demo.html. Needs ttnn and pytest.

    \b
    Example:
      optrove demo
    """
    from optrove.flows.demo import TROVE, can_compute, done, prepared, steps

    computes = can_compute() if shadow is None else shadow
    script = steps(prepared(), shadow=computes)
    began = time.monotonic()
    click.echo(_introduction(computes=computes))
    _show("All that follows goes into a trove of its own", f"export {STORE.name}={TROVE}")
    failed = []
    for step in script:
        _show(step.title, step.line)
        if not step.is_well(done(step)):
            failed.append(step)
    click.echo(_ending(failed, len(script), time.monotonic() - began))
    sys.exit(_FAILED if failed else 0)


def _introduction(*, computes: bool) -> str:
    real = (
        "The real ttnn on mock boards: its validation, output specs and memory checks, no hardware."
    )
    if computes:
        return f"{real}\nNumbers: torch computes beside each op, ttnn's own packing rounds."
    return f"{real}\nNo numbers without torch: with it (pip install torch), the demo has PCC, too."


def _show(title: str, line: str) -> None:
    """Set a command apart from what it prints; flushed, since another process prints next."""
    click.echo(f"\n{click.style(title, bold=True)}\n{click.style('$', fg='green')} {line}")
    sys.stdout.flush()


def _ending(failed: Sequence[Step], count: int, seconds: float) -> str:
    from optrove.flows.demo import REPORT, TROVE

    lines = [""]
    if failed:
        lines += [f"{len(failed)} of {count} commands did not end well:"]
        lines += [f"  {step.line}" for step in failed]
    else:
        lines += [f"{count} commands, {seconds:.0f} s, all as they should be."]
    lines += [f"report: {REPORT.absolute().as_uri()}", "", "Go on:"]
    if shutil.which("optrove") is None:
        lines += [f"  . {shlex.quote(str(Path(sys.prefix) / 'bin' / 'activate'))}"]
    lines += [
        f"  export {STORE.name}={TROVE}",
        "  optrove show linear --memory SHARDED",
        "  optrove who linear --by memory",
        "  optrove testgen linear -o tests_of_linear",
        "Your own, into the usual trove, .optrove/trove.db:",
        f"  unset {STORE.name}",
        "  optrove trace YOUR_TEST.py --board n300",
    ]
    return "\n".join(lines)


COMMANDS = (demo,)
