"""The commands that query a trove: ops, show, who, diff, runs, models, serve.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    RUN_MEMORY,
    all_ops_option,
    case_filters,
    json_option,
    log,
    log_recovered,
    model_option,
    nested_option,
    raised_option,
    recorded_on,
    run_option,
    store_option,
)
from optrove.cli.options import (
    show as show_answer,
)
from optrove.errors import FrameworkMissing
from optrove.model.exit_codes import FAILED

if TYPE_CHECKING:
    from optrove.model.trove import Fidelity

_HOST: Final = "127.0.0.1"
_PORT: Final = 8777
_PROPERTIES: Final = (
    *("dtype", "layout", "memory", "mesh", "shape"),
    *("model", "source", "test", "board", "config"),
)
"""The properties of tensors, and those of callers, by which calls are counted."""


@click.command()
@model_option
@recorded_on("--board")
@run_option
@raised_option
@all_ops_option
@nested_option
@store_option
@json_option
def ops(*, store: str | None, as_json: bool, **chosen: Any) -> None:
    """List the ops of a trove, most called first.

    A case is an op with its arguments. The table counts calls that models make themselves, of ops
    that compute; the last lines count the others. "complete" is the share of cases that were
    recorded completely; for the others, a replay supplies missing parts if it can.

    \b
    Example:
      optrove ops
      optrove ops --model llama --board n300
      optrove ops --raised
      optrove ops --json | jq '.[] | select(.replayable < 1)'
    """
    from optrove.report.listings import ops_data, ops_document
    from optrove.trove.opening import reading
    from optrove.trove.query import CaseFilters, matching_ops

    asked = CaseFilters(**chosen)
    with reading(store, log_recovered) as reader:
        rows, left = matching_ops(reader, asked)
    every = asked.all_ops
    document = ops_document(rows, left, all_ops=every)
    show_answer(document, lambda: ops_data(rows, all_ops=every), as_json=as_json)


@click.command()
@click.argument("name", metavar="OP|CASE|RUN")
@click.argument("number", metavar="[N]", required=False, type=click.IntRange(min=1))
@case_filters("--board", of_runs=True)
@click.option("--families", is_flag=True, help="Group cases that differ only in scalars.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N.")
@click.option(
    *("--svg", "pictures"),
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a picture of the cores of each sharded tensor to DIR.",
)
@store_option
@json_option
def show(
    *,
    store: str | None,
    as_json: bool,
    number: int | None,
    limit: int | None,
    families: bool,
    pictures: Path | None,
    **chosen: Any,
) -> None:
    """Show the exact configurations of an op, most called first.

    OP is ttnn.add, ttnn::add or add; * is a wildcard. CASE is the beginning of a case's id, six
    digits or more. N selects one configuration of the list. --dtype, --layout, --memory, --shape
    and --mesh must all match the same tensor: the one of --argument, or any.

    With a RUN that was traced with --flow, --memory without a name shows the bytes of L1 and DRAM
    after each call, and the tensors at the peaks with the source lines that made them.

    \b
    Example:
      optrove show matmul
      optrove show 5f2e81 --memory
      optrove show matmul 3
      optrove show matmul --argument input_tensor_b --memory SHARDED
      optrove show matmul 3 --svg pictures
      optrove show paged_fill_cache --families
      optrove show 'ttnn.experimental.*' --shape '1x1x*x128' --json
    """
    from optrove.report import cases
    from optrove.trove.opening import reading
    from optrove.trove.query import CaseFilters, select, several_ops

    if chosen["memory"] == RUN_MEMORY:
        others = [value for key, value in chosen.items() if key not in ("name", "memory")]
        if number or limit or families or pictures or any(others):
            raise click.UsageError("--memory without a name shows a whole run: leave out the rest")
        _show_memory(chosen["name"], store, as_json=as_json)
        return
    if number is not None and (families or limit):
        raise click.UsageError("N shows one configuration: leave out --families and --limit")
    if pictures is not None and (families or as_json):
        raise click.UsageError("--svg draws what is shown as text: leave out --families and --json")
    with reading(store, log_recovered) as reader:
        answers = select(reader, CaseFilters(**chosen))
        if number is not None and len(answers) > 1:
            raise several_ops(answers)
        if families:
            show_answer(
                cases.families_document(reader, answers, limit),
                lambda: cases.families_data(reader, answers, limit),
                as_json=as_json,
            )
            return
        shown = cases.Shown(number, limit)
        show_answer(
            cases.cases_document(reader, answers, shown, pictures),
            lambda: cases.cases_data(reader, answers, shown),
            as_json=as_json,
        )


def _show_memory(run: str, store: str | None, *, as_json: bool) -> None:
    from optrove.report.memory import memory_data, memory_document, run_memory
    from optrove.trove.opening import reading

    with reading(store, log_recovered) as reader:
        memory = run_memory(reader, run)
    show_answer(memory_document(memory), lambda: memory_data(memory), as_json=as_json)


@click.command()
@click.argument("name", metavar="OP|CASE")
@case_filters("--board")
@click.option(
    "--by", type=click.Choice(_PROPERTIES), help="Count by this property of tensors or callers."
)
@store_option
@json_option
def who(*, store: str | None, as_json: bool, by: str | None, **chosen: Any) -> None:
    """List the models and tests that call an op.

    --by counts calls by a property: of all tensors of a case, or with --argument of the tensor of
    one parameter. "config" is the entry of a run configuration that the arguments were unpacked
    from. The filters are those of "optrove show".

    \b
    Example:
      optrove who 1f3a9c02d4e5
    Which models call matmul with bfloat8_b weights, and how often?
      optrove who matmul --argument input_tensor_b --dtype bfloat8_b
    Which shardings do these weights have?
      optrove who matmul --argument input_tensor_b --dtype bfloat8_b --by memory
    Which entries of a run configuration make which calls?
      optrove who linear --by config
    """
    from optrove.report import usage
    from optrove.report.document import paragraphs
    from optrove.report.listings import left_out_texts
    from optrove.trove import query
    from optrove.trove.opening import reading

    asked = query.CaseFilters(**chosen)
    with reading(store, log_recovered) as reader:
        answers = query.select(reader, asked)
        # Only a list of tests distinguishes tests, which costs time.
        by_run = by not in (None, "test")
        found = chain.from_iterable(
            query.configurations(reader, each.query, by_run=by_run) for each in answers
        )
        if by is None:
            used = usage.usage_of(found)
            document, data = usage.usage_document(used), usage.usage_data(used)
        else:
            if by == "config":
                groups = usage.config_groups(query.with_configs(reader, found))
            else:
                groups = usage.groups(query.with_tensors(reader, found), by, asked.argument)
            document, data = usage.groups_document(groups, by), usage.groups_data(groups, by)
        left = left_out_texts(query.left_out_of(reader, answers))
    show_answer(chain(document, paragraphs(left)), lambda: data, as_json=as_json)


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--cases-only", is_flag=True, help="Do not compare how often cases are called.")
@click.option("--brief", is_flag=True, help="Show only the table of ops.")
@click.option("--all-ops", is_flag=True, help="Also compare ops that only move data.")
@nested_option
@store_option
@json_option
def diff(  # noqa: PLR0913 - one for each option of the command
    *,
    a: str,
    b: str,
    store: str | None,
    as_json: bool,
    cases_only: bool,
    brief: bool,
    all_ops: bool,
    nested: bool,
) -> None:
    """Compare the cases of runs, models, troves or files.

    A and B are each a file that "optrove import" reads, a trove by path or URL, the beginning of a
    run's id, or a model. A file takes precedence; run:ID and model:NAME are explicit. A changed
    case is the same computation with other memory, layout or program configs.

    The exit code is 1 if anything differs, else 0.

    \b
    Example:
      optrove diff 1f3a9c 77b0e2
      optrove diff model:llama-3.2-1b model:llama-3.2-3b --brief
      optrove diff last_week.json ttnn_operations_master.json --json
    """
    from optrove.model.records import Query
    from optrove.report.diff import comparing, diff_data, diff_document

    query = Query(outermost_only=not nested, data_movement=all_ops)
    with comparing((a, b), store, log_recovered, _warn, query=query, calls=not cases_only) as found:
        show_answer(diff_document(found, brief=brief), lambda: diff_data(found), as_json=as_json)
        is_equal = found.is_equal
    sys.exit(0 if is_equal else FAILED)


def _warn(found: Fidelity) -> None:
    from optrove.report.wording import plural

    parts = f"{found.partly:,} have parts that were kept verbatim, {found.refused:,} were refused"
    total = plural(found.configurations, "configuration")
    log(f"of {total} in {found.file}, {found.understood:,} were understood, {parts}")


@click.command()
@all_ops_option
@nested_option
@store_option
@json_option
def runs(*, store: str | None, as_json: bool, **chosen: bool) -> None:
    """List the runs of a trove, newest first.

    Calls and cases are counted as by "optrove ops". "passed" counts the tests or cases that passed,
    of all. A run is incomplete if one of its processes or calls did not end; everything that it
    recorded until then is kept.

    \b
    Example:
      optrove runs
    """
    from optrove.model.ops import Counting
    from optrove.report.listings import runs_data, runs_document
    from optrove.trove.opening import reading
    from optrove.trove.query import recorded_runs

    with reading(store, log_recovered) as reader:
        rows = recorded_runs(reader, Counting(**chosen))
    show_answer(runs_document(rows), lambda: runs_data(rows), as_json=as_json)


@click.command()
@all_ops_option
@nested_option
@store_option
@json_option
def models(*, store: str | None, as_json: bool, **chosen: bool) -> None:
    """List the models of a trove, or the sources of runs without a model.

    Ops, cases and calls are counted as by "optrove ops".

    \b
    Example:
      optrove models
    """
    from optrove.model.ops import Counting
    from optrove.report.listings import models_data, models_document
    from optrove.trove.opening import reading
    from optrove.trove.query import recorded_models

    with reading(store, log_recovered) as reader:
        rows = recorded_models(reader, Counting(**chosen))
    show_answer(models_document(rows), lambda: models_data(rows), as_json=as_json)


@click.command()
@store_option
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65_535),
    default=_PORT,
    show_default=True,
    help="Port; 0 picks a free one.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default=_HOST,
    show_default=True,
    help="Address to listen on; any but loopback needs --token.",
)
@click.option("--token", metavar="TEXT", help="Secret that visitors must know.")
def serve(*, store: str | None, port: int, host: str, token: str | None) -> None:
    """Show a trove in a browser: ops, cases, runs, boards, comparisons.

    The pages are read-only and, by default, served to this machine only. Every page is also
    available as JSON: add format=json to its address. /openapi.json describes the responses. Stop
    the server with Ctrl-C.

    \b
    Example:
      optrove serve
      optrove serve --store team.db --port 0
      optrove serve --host 0.0.0.0 --token "$(openssl rand -hex 16)"
    """
    from optrove.trove.opening import located, recover

    try:
        from optrove.web import server as serving
    except ModuleNotFoundError as error:
        raise FrameworkMissing(
            f"the web page needs {error.name}, which is not installed; "
            f"install it with: pip install 'optrove[web]'"
        ) from error

    serving.check_safe(host, token)
    place = located(store)
    for recovered in recover(place):
        log_recovered(recovered)
    serving.serve(place, host=host, port=port, token=token, store=store, on_ready=_log_address)


def _log_address(address: str) -> None:
    log(f"open {address} in a browser; stop with Ctrl-C")


COMMANDS: Final = (ops, show, who, diff, runs, models, serve)
