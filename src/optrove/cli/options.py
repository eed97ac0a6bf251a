"""Options that several commands share, and the output of all commands."""

from __future__ import annotations

import json
import re
import shutil
import sys
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from optrove.model.exit_codes import FAIL_ON, Reason
from optrove.settings import CI, NUMERICS, Numerics, environment, unset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from optrove.replay.sequence import CallChoice
    from optrove.report.document import Node
    from optrove.trove.opening import Recovered

_Command = TypeVar("_Command", bound="Callable[..., Any]")

NO_PAGER: Final = "--no-pager"
_BATCH: Final = 200
_SIZE: Final = re.compile(r"[0-9]{1,18}")

store_option = click.option(
    "--store",
    metavar="PATH|URL",
    help="Trove  [default: OPTROVE_STORE, else .optrove/trove.db here or in a parent]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
all_ops_option = click.option(
    "--all-ops", is_flag=True, help="Also count ops that only move data, such as to_device."
)
nested_option = click.option("--nested", is_flag=True, help="Also count calls made by other ops.")
raised_option = click.option("--raised", is_flag=True, help="Only calls that raised an error.")
op_option = click.option("--op", "name", metavar="OP", help="Only this op; * is a wildcard.")
model_option = click.option(
    "--model", metavar="NAME", help="Only calls by this model; a part of its name is enough."
)
run_option = click.option(
    "--run", metavar="RUN", help="Only calls in this run; the beginning of its id is enough."
)
resume_option = click.option(
    "--resume", is_flag=True, help="Continue a run with these options that ended early."
)


def _reasons(_: click.Context, __: click.Parameter, given: str | None) -> frozenset[Reason]:
    """Return the reasons of ``failed,not-run``."""
    if given is None:
        return FAIL_ON
    known = {reason.value: reason for reason in Reason}
    names = [name.strip() for name in given.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}")
    return frozenset(known[name] for name in names)


fail_on_option = click.option(
    "--fail-on",
    metavar="REASON,...",
    callback=_reasons,
    help="What makes the exit code 1: failed, not-run, incomplete, worse, lost, skipped, xpassed  "
    "[default: the first four]",
)
seed_option = click.option(
    "--seed",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="Seed of random inputs.",
)


def show(nodes: Iterable[Node], data: Callable[[], Any], *, as_json: bool) -> None:
    """Print a document as text, or its data as JSON."""
    if not as_json:
        echo_document(nodes)
        return
    found = data()
    if isinstance(found, dict):
        click.echo(json.dumps(found, indent=2))
    else:
        echo_list(found)


def echo_document(nodes: Iterable[Node]) -> None:
    """Print a document as text; on a terminal, a long one through the pager."""
    from optrove.report.draw_text import draw_text

    rest = draw_text(nodes, table_width())
    if sys.stdout.isatty() and _may_wait():
        height = shutil.get_terminal_size().lines
        first = list(islice(rest, height))
        if len(first) == height:
            # As git has it: less ends at the end of a short text, and leaves it on the screen.
            with environment(unset({"LESS": "FRX"})):
                click.echo_via_pager(f"{line}\n" for line in chain(first, rest))
            return
        rest = iter(first)
    while batch := list(islice(rest, _BATCH)):
        click.echo("\n".join(batch))


def _may_wait() -> bool:
    """Return whether a pager may wait for a key: --no-pager and CI say that nobody is there."""
    context = click.get_current_context(silent=True)
    return CI.value is None and not (context and context.meta.get(NO_PAGER))


def echo_list(items: Iterable[Any]) -> None:
    """Print a JSON list item by item, without holding all of them."""
    separator = "["
    for item in items:
        click.echo(separator + json.dumps(item, indent=2), nl=False)
        separator = ",\n"
    click.echo("[]" if separator == "[" else "]")


def table_width() -> int | None:
    """Return the width of the terminal; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def log(text: str) -> None:
    """Print a message to stderr."""
    say(f"optrove: {text}")


def say(text: str) -> None:
    """Print a line to stderr; names in it may be other people's."""
    from optrove.report.wording import printable

    click.echo(printable(text), err=True)


def log_recovered(recovered: Recovered) -> None:
    """Report on stderr that a run of a dead process was recovered, or why it was not."""
    from optrove.report.wording import SHORT_ID, plural

    name = recovered.directory.name[:SHORT_ID]
    if recovered.problem is not None:
        journals = f"the journals of run {name} in {recovered.directory}"
        log(f"{journals} cannot be recovered: {recovered.problem}")
        return
    added = recovered.added
    found = f"{plural(added.calls, 'call')}, {plural(added.cases_new, 'new case')}"
    log(f"recovered run {name}, whose process had died: {found}")


def together(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds all of these options to a command."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _shape(_: click.Context, __: click.Parameter, given: str | None) -> tuple[int, ...] | None:
    """Return the sizes of ``1x1x32x64``, ``1,1,32,64`` or ``[1, 1, *, 64]``; -1 is any."""
    if given is None:
        return None
    sizes = re.split(r"\s*[x,]\s*", given.strip().strip("[]()").strip(" ,"))
    if not all(size == "*" or _SIZE.fullmatch(size) for size in sizes):
        raise click.BadParameter("write 1x1x32x64 or 1,1,32,64, with * for any size")
    return tuple(-1 if size == "*" else int(size) for size in sizes)


def recorded_on(*names: str) -> Callable[[_Command], _Command]:
    """Return the option with these names that selects by the board of the recording."""
    return click.option(*names, metavar="NAME", help="Only calls on this board.")


RUN_MEMORY: Final = "the memory of a run"
"""The value of --memory without a name, where a command shows the memory of a run."""

_MEMORY_NAMES: Final = "L1, SHARDED, L1_WIDTH_SHARDED, HOST, ..."


def case_filters(*board: str, of_runs: bool = False) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the options that select cases of an op.

    ``board`` are the names of the option that selects by the board of the recording. With
    ``of_runs``, --memory needs no name.
    """
    memory = click.option("--memory", metavar="NAME", help=_MEMORY_NAMES)
    if of_runs:
        memory = click.option(
            "--memory",
            metavar="[NAME]",
            is_flag=False,
            flag_value=RUN_MEMORY,
            help=f"{_MEMORY_NAMES} Without a name: the memory of a RUN.",
        )
    return together(
        click.option("--argument", metavar="NAME", help="Only the tensor of this parameter."),
        click.option("--dtype", metavar="NAME", help="bfloat16, bfloat8_b, float32, ..."),
        click.option("--layout", metavar="NAME", help="TILE or ROW_MAJOR; strided, ..."),
        memory,
        click.option("--shape", metavar="SIZES", callback=_shape, help="1x1x32x64; * is any size."),
        click.option("--mesh", metavar="SIZES", callback=_shape, help="Mesh, such as 4x8."),
        model_option,
        recorded_on(*board),
        run_option,
        raised_option,
        nested_option,
        click.option("--all-ops", is_flag=True, help="With *: also ops that only move data."),
    )


scale_option = click.option(
    "--scale",
    type=click.Choice(("small",)),
    help="Run the ops at the smallest shapes that ttnn accepts, not as recorded.",
)

values_option = click.option(
    "--values",
    type=click.Choice(("seed", "capsule")),
    default="seed",
    show_default=True,
    help="Take inputs from the seed, or from a capsule.",
)

inputs_option = click.option(
    "--inputs",
    type=click.Choice(("random", "edges", "all")),
    default="all",
    show_default=True,
    help="Call torch ops with random inputs, with edge inputs (NaN, halves, equal elements, "
    "tensors that are not contiguous, ...), or with both.",
)

values_if_any_option = click.option(
    "--values",
    type=click.Choice(("seed", "capsule")),
    help="Take inputs from the seed, or from a capsule  [default: seed; for calls of a run, a "
    "capsule if there is one]",
)


def _call_range(
    _: click.Context, __: click.Parameter, given: str | None
) -> tuple[int | None, int | None] | None:
    """Return the ends of ``A:B``, each of which may be missing."""
    if given is None:
        return None
    found = re.fullmatch(r"([0-9]{0,12}):([0-9]{0,12})", given.strip())
    if found is None:
        raise click.BadParameter("write A:B, such as 10:25, 10: or :25")
    first, end = (int(each) if each else None for each in found.groups())
    if first is not None and end is not None and end <= first:
        raise click.BadParameter(f"{given} has no calls: B is excluded")
    return first, end


calls_option = click.option(
    "--calls",
    "call_range",
    metavar="A:B",
    callback=_call_range,
    help="Calls A to B of a run, excluding B, as one program.",
)
sequence_options = together(
    calls_option,
    click.option("--test", "test_id", metavar="NODEID", help="The calls of one test of a run."),
    click.option(
        "--last", metavar="N", type=click.IntRange(min=1), help="The last N calls of a run."
    ),
)
"""The options that select a range of calls."""


residency_option = click.option(
    "--residency",
    is_flag=True,
    help="First allocate the other tensors that were in memory in the model (trace --flow).",
)


def call_choice(
    call_range: tuple[int | None, int | None] | None, test_id: str | None, last: int | None
) -> CallChoice:
    """Return the range of calls that options select; UsageError for more than one."""
    from optrove.replay.sequence import CallChoice

    if [call_range, test_id, last].count(None) < 2:  # noqa: PLR2004 - of three
        raise click.UsageError("give one of --calls, --test and --last")
    first, end = call_range or (None, None)
    return CallChoice(first, end, test_id, last)


running_options = together(
    seed_option,
    click.option(
        "--jobs",
        metavar="N",
        type=click.IntRange(min=1),
        help="Worker processes  [default: one per core, if there are enough cases]",
    ),
    click.option(
        "--timeout",
        metavar="S",
        type=click.FloatRange(min=0, min_open=True),
        help="End a case after S seconds, not counting imports  [default: 120]",
    ),
)
"""The options of commands that execute cases."""


def _set_numerics(context: click.Context, _: click.Parameter, given: str | None) -> None:
    """Pass the option on to this process and those that it starts."""
    if given is not None:
        context.with_resource(environment({NUMERICS.name: given}))


numerics_option: Final = click.option(
    "--numerics",
    type=click.Choice([each.value for each in Numerics]),
    expose_value=False,
    callback=_set_numerics,
    help="How shadow computes numbers. hardware: as ttnn's kernels do, where optrove knows how. "
    "ideal: in float32, rounded once  [default: OPTROVE_NUMERICS, else ideal]",
)


DEVICES: Final = ("hw", "mock", "shadow", "sim")
"""The kinds of devices that --device takes."""


def device_options(*, modules: bool = False, torch: bool = True) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the options that select a device.

    A command that also takes sweep ``modules`` has other defaults for them. Without ``torch`` it
    has no cases of torch.
    """
    kinds = (
        "hw: the board of this machine. mock: ttnn on a mock board, which checks arguments, memory "
        "and output specs. shadow: the same, with numbers computed and checked by torch. "
        "sim: real kernels on a simulated board of one chip, from OPTROVE_SIM."
    )
    if torch:
        kinds += " For cases of torch: cpu, cuda, mps, xpu, meta or another device of torch."
    default = "mock with --board or OPTROVE_BOARD; else hw if there is a board, else mock"
    if modules:
        default += "; for modules shadow instead of mock, because they check numbers themselves"
    board = "OPTROVE_BOARD, else the recorded one" + ("; for modules n150" if modules else "")
    of_torch = "" if not torch else "; for torch the recorded device"
    device = click.option(
        "--device",
        metavar="NAME" if torch else None,
        type=None if torch else click.Choice(DEVICES),
        callback=_device if torch else None,
        help=f"{kinds}  [default: {default}{of_torch}]",
    )
    own = (
        device,
        click.option(
            "--board",
            "mock_board",
            metavar="NAME",
            help=f"Mock or simulated board to run on  [default: {board}]",
        ),
        numerics_option,
    )
    if not torch:
        return together(*own)
    return together(
        *own,
        click.option(
            "--map",
            "mapped",
            metavar="OLD=NEW",
            multiple=True,
            callback=_device_pairs,
            help="Run torch cases that were recorded on device OLD on NEW, such as cuda=cpu.",
        ),
        click.option(
            "--compile",
            "compiler",
            metavar="BACKEND",
            help="Run torch cases through torch.compile: inductor, aot_eager, ...",
        ),
        click.option(
            "--import",
            "imports",
            metavar="MODULE",
            multiple=True,
            help="First import MODULE, which registers torch ops or a torch backend.",
        ),
    )


def _device(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    from optrove.model.torch_target import is_device

    if given is None or given in DEVICES or is_device(given):
        return given
    kinds = ", ".join(DEVICES)
    raise click.BadParameter(f"{given!r} is neither {kinds} nor a torch device such as cuda:0")


def _device_pairs(
    _: click.Context, __: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    from optrove.model.torch_target import device_pair

    try:
        return tuple(device_pair(text) for text in given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def take_device(given: dict[str, Any]) -> tuple[str | None, str | None]:
    """Remove the options that select a device of ttnn or torch from those that were given.

    Return the kind of device of ttnn, and the text of the target of torch.
    """
    from optrove.model.torch_target import TorchTarget

    device = given.pop("device")
    kind = device if device in DEVICES else None
    options = {name: given.pop(name) for name in ("mapped", "compiler", "imports")}
    return kind, TorchTarget(device=None if kind is not None else device, **options).text


def nanoseconds(seconds: float | None) -> int | None:
    """Return a time in whole nanoseconds."""
    return None if seconds is None else round(seconds * 1e9)
