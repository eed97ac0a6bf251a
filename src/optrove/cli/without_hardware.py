"""The command ``optrove demo``, and the demo that it runs."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from optrove.errors import FrameworkMissing, NotFound
from optrove.settings import STORE, environment

if TYPE_CHECKING:
    from collections.abc import Sequence


BOARD: Final = "n300"
OTHER_BOARD: Final = "p300"
HOME: Final = Path(".optrove")
TROVE: Final = HOME / "demo.db"
REPORT: Final = HOME / "demo.html"

_PACKAGE: Final = Path(__file__).parents[1]
_COPIED: Final = HOME / "examples"
_NEEDED: Final = ("ttnn", "pytest")

# What keeps the demo from waiting for a reader, and from leaving files outside of its directory.
_QUIET: Final = {
    "PAGER": "cat",
    "PYTEST_ADDOPTS": "-p no:cacheprovider",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the demo, and what it is for.

    ``differs`` marks a command that asks whether something holds: exit code 1 is an answer then.
    """

    title: str
    words: tuple[str, ...]
    differs: bool = False

    @property
    def line(self) -> str:
        """The command as it is typed in a shell."""
        return shlex.join(("optrove", *self.words))

    def is_well(self, exit_code: int) -> bool:
        """Tell whether the command has ended as it should."""
        return exit_code == 0 or (self.differs and exit_code == 1)


def can_compute() -> bool:
    """Tell whether torch is there, which computes numbers beside mock boards."""
    return find_spec("torch") is not None


def prepared() -> Path:
    """Return the directory of the examples, and begin with an empty trove.

    A checkout has them; those of an installed package are copied to where they can be looked at.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise FrameworkMissing(
            f"the demo traces tests of small ttnn models and needs {' and '.join(missing)}; "
            f"pip install 'optrove[ttnn]' pytest, with CPython 3.10 or 3.12 on Linux x86_64"
        )
    _forget(TROVE)
    packaged, checkout = _PACKAGE / "_examples", _PACKAGE.parents[1] / "examples"
    if packaged.is_dir():
        shutil.copytree(packaged, _COPIED, dirs_exist_ok=True)
        return _COPIED
    if checkout.is_dir():
        here = Path.cwd()
        return checkout.relative_to(here) if checkout.is_relative_to(here) else checkout
    raise NotFound(
        f"the demo's examples are neither in {packaged} nor in {checkout}; "
        f"install optrove again, from its wheel or from a checkout"
    )


def steps(examples: Path, *, shadow: bool) -> tuple[Step, ...]:
    """Return the commands of the demo; with ``shadow``, torch computes numbers in them."""
    on_mock = ("--board", BOARD)
    traced = (*on_mock, "--shadow") if shadow else on_mock
    executed = (*on_mock, "--device", "shadow") if shadow else on_mock
    small = ("--", "-q", "-k", "small")

    def trace(model: str, *more: str) -> tuple[str, ...]:
        test = str(examples / model / f"test_{model}.py")
        return ("trace", test, "--model", model, *traced, *(more or ("--", "-q")))

    return (
        Step("Run a transformer encoder's own tests, and record every op call", trace("encoder")),
        Step("The same for a sharded CNN", trace("efficientnet", *small)),
        Step("And for a Llama on both chips, prefill and decode", trace("llama")),
        Step("Which ops do they call, in how many configurations, how often?", ("ops",)),
        Step("One configuration, exactly", ("show", "sigmoid_accurate", "1")),
        Step(
            "Those that differ in a number only, together",
            ("show", "paged_fill_cache", "--families"),
        ),
        Step(
            "Execute a call again: is it what was recorded?",
            ("replay", "sigmoid_accurate", *executed),
        ),
        Step(
            "Would the Llama run on a Blackhole board, and if not, why not?",
            ("check-board", OTHER_BOARD, "--model", "llama"),
            differs=True,
        ),
        Step(
            "Execute every case that computes, on the board it came from",
            ("sweep", "*", *executed, "--summary"),
        ),
        Step("All of this, as a page", ("report", "-o", str(REPORT))),
    )


def done(step: Step) -> int:
    """Run a command of the demo just as it is shown, and return its exit code."""
    command = [sys.executable, "-m", "optrove", *step.words]
    with environment({**_QUIET, STORE.name: str(TROVE)}):
        return subprocess.run(command, check=False).returncode  # noqa: S603 - our own words


def _forget(trove: Path) -> None:
    for left in trove.parent.glob(f"{trove.name}*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


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
