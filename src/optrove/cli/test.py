"""The commands that write tests of recorded cases and shrink failing ones: testgen, shrink.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    case_filters,
    device_options,
    json_option,
    log,
    log_recovered,
    seed_option,
    show,
    store_option,
    take_device,
)
from optrove.errors import OptroveError
from optrove.report.wording import SHORT_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)


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
    """Write plain pytest files that repeat recorded calls.

    They need only ttnn and torch, those of torch's operations only torch. Cases are grouped by op
    and by their arguments; each is a parameter set with a readable id. Inputs come from a seed.
    Where the device computes, results are compared with ttnn's golden functions; on a mock board
    only output specs are checked. Results of torch are compared with float64. With --standalone,
    each case is one file to pass on, for python or pytest.

    A case that cannot be written in Python is left out; such cases are counted by op and reason,
    and --json names each. Files that testgen has not written are never replaced.

    \b
    Example:
      optrove testgen matmul -o tests/recorded
      optrove testgen '*' --model llama --limit 20 -o tests/llama
      pytest tests/recorded --optrove-board n300 --optrove-shadow
      optrove testgen 1f3a9c02d4e5 --standalone -o .
    """
    from optrove.testgen.generate import tests_data, tests_document, tests_of, write_tests
    from optrove.trove.opening import reading
    from optrove.trove.query import CaseFilters

    with reading(store, log_recovered) as reader:
        cases = tests_of(reader, names, CaseFilters(**chosen), limit)
    generated = write_tests(cases, output, standalone=standalone)
    show(
        tests_document(generated, output, standalone=standalone),
        lambda: tests_data(generated, output),
        as_json=as_json,
    )


@click.command()
@click.argument("name", metavar="CASE")
@device_options()
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
    help="Stop after S seconds with the best result.",
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
    trials: int,
    timeout: float,
    seed: int,
    output: Path | None,
    store: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Shrink a failing case: the simplest call that still fails in the same way.

    Tries fewer arguments, tensors in interleaved memory, on one chip, with smaller and fewer
    dimensions. A simpler call counts when it has the same outcome and the same message, except for
    numbers. CASE is the beginning of a case's id, or an op, which stands for its most called case.
    It runs on the same device as "optrove replay" would. If the reproducer cannot be written, the
    result is shown all the same.

    Exit code 0 with a result, 2 if the case does not fail.

    \b
    Example:
      optrove check-board bh-galaxy
      optrove shrink 1f3a9c02d4e5 --board bh-galaxy
      optrove shrink 1f3a9c02d4e5 --board bh-galaxy -o .
      optrove shrink addmm --compile inductor
    """
    from optrove.replay.device_choice import group_by_device, resolve_device
    from optrove.replay.planning import cases_named
    from optrove.testgen.generate import write_reproducer
    from optrove.testgen.shrink import Limits, shrunk_data, shrunk_document
    from optrove.testgen.shrink import shrink as shrink_case
    from optrove.trove.opening import reading
    from optrove.trove.query import CaseFilters

    kind, torch = take_device(chosen)
    target = (*resolve_device(kind, chosen["mock_board"]), torch)
    with reading(store, log_recovered) as reader:
        cases, _ = cases_named(reader, CaseFilters(name=name), every=False, seed=seed)
    ((where, (planned,)),) = group_by_device(cases, *target).items()
    log(f"case {planned.case_id[:SHORT_ID]} on {where}")
    shrunk = shrink_case(planned, where, Limits(trials, timeout), log)
    file: Path | None = None
    fault: Exception | None = None
    if output is not None:
        try:
            file = write_reproducer(planned, shrunk.case, output, where.board)
        except (OptroveError, OSError) as error:
            fault = error  # the result took long, so it is shown first
    show(shrunk_document(shrunk, file), lambda: shrunk_data(shrunk, file), as_json=as_json)
    if fault is not None:
        raise fault


COMMANDS: Final = (testgen, shrink)
