"""The commands that query a trove: ops, show, who, diff, runs, models, serve.

``--json`` prints a list, of ``diff`` an object. Ids are in full, moments in UTC.

ops      op, cases, calls, models: names, replayable: share of its cases that were recorded
         completely, from 0 to 1
show     op, number, case_id (the placement hash), semantic_id, family_id, replayable, calls,
         models, arguments: {name: value, as optrove.to_jsonable has it}, executions: [{run_id,
         source, model, board, machine_info: {board_type, device_series, card_count, device_count,
         mesh_device_shape, device_ids}, test, phase, module, mode, outermost, outcome, count,
         total_ns, outputs: values or null, error}]
         with --families: op, family_id, cases, calls, models, varies: {path: values},
         example: {case_id, semantic_id, arguments}
who      op, model, source, test, board, calls, cases; with --by, the property by its name,
         calls, cases, models: names
runs     run_id, kind, source, model, board, device, machine: as machine_info above, started_at,
         finished_at, exit_code, complete, calls, cases, left_out: {data_movement and nested:
         {ops, cases, calls}}, what these two do not count, tests: {outcome: count},
         attempts: {outcome: count}, planned: cases of a sweep, host,
         command_line, git_sha, git_dirty, and the versions of optrove, python, ttnn and torch
models   model, runs, ops, cases, calls, left_out: as of runs, boards, last_run_at
diff     a and b: {name, kind, cases, calls}, equal, opaque: cases that could be compared by type
         only, ops: [{op, added, removed, changed, recounted, calls_a, calls_b}],
         added and removed: [{op, case_id, semantic_id, calls, arguments}],
         changed: [{op, case_a, case_b, calls_a, calls_b, semantic_id, arguments: [{path, a, b}]}],
         recounted: [{op, case_a, case_b, calls_a, calls_b}]
"""

from __future__ import annotations

import json
import sys
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    all_ops_option,
    case_filters,
    echo_lines,
    echo_list,
    json_option,
    nested_option,
    store_option,
    table_width,
    tell_recovered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.model.trove import Fidelity
    from optrove.report.cases import Family
    from optrove.report.diff import Comparison
    from optrove.trove.query import Answer, Configuration
    from optrove.trove.reader import TroveReader


_DIFFERS: Final = 1
_PROPERTIES: Final = (
    *("dtype", "layout", "memory", "mesh", "shape"),
    *("model", "source", "test", "board", "config"),
)


@click.command()
@click.option("--model", metavar="NAME", help="Called by this model; a part is enough.")
@click.option("--board", metavar="NAME", help="Called on this board.")
@click.option("--run", metavar="RUN", help="Called in this run; the beginning is enough.")
@all_ops_option
@nested_option
@store_option
@json_option
def ops(*, store: str | None, as_json: bool, **chosen: Any) -> None:
    """List the ops of a trove, most called first.

    A case is an op with its arguments. Counted are the calls that models make themselves, of ops
    that compute; the last lines tell what that leaves out. Complete is the share of cases that
    were recorded completely; what is missing in others, a replay supplies where it can, and notes.

    \b
    Example:
      optrove ops
      optrove ops --model llama --board n300
      optrove ops --json | jq '.[] | select(.replayable < 1)'
    """
    from optrove.report.ops import ops_data, ops_lines
    from optrove.trove.opening import reading
    from optrove.trove.query import Asked, ops_asked

    asked = Asked(**chosen)
    with reading(store, tell_recovered) as reader:
        rows, left = ops_asked(reader, asked)
    if as_json:
        echo_list(ops_data(rows, all_ops=asked.all_ops))
    else:
        echo_lines(ops_lines(rows, left, all_ops=asked.all_ops, width=table_width()))


@click.command()
@click.argument("name", metavar="OP|CASE")
@click.argument("number", metavar="[N]", required=False, type=click.IntRange(min=1))
@case_filters("--board")
@click.option("--families", is_flag=True, help="Sum up cases that differ in scalars only.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N.")
@click.option(
    *("--svg", "pictures"),
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a picture of the cores that hold each sharded tensor to a file there.",
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

    OP is ttnn.add, ttnn::add, add, or with * for anything; CASE the beginning of a case's id, six
    digits or more. N shows one configuration of the list only. What --dtype, --layout, --memory,
    --shape and --mesh say has to hold for one and the same tensor: with --argument for that one,
    else for any.

    \b
    Example:
      optrove show matmul
      optrove show matmul 3
      optrove show matmul --argument input_tensor_b --memory SHARDED
      optrove show matmul 3 --svg pictures
      optrove show paged_fill_cache --families
      optrove show 'ttnn.experimental.*' --shape '1x1x*x128' --json
    """
    from optrove.trove.opening import reading
    from optrove.trove.query import Asked, select, several_ops

    if number is not None and (families or limit):
        raise click.UsageError("N shows one configuration: leave out --families and --limit")
    if pictures is not None and (families or as_json):
        raise click.UsageError("--svg draws what is shown as text: leave out --families and --json")
    with reading(store, tell_recovered) as reader:
        answers = select(reader, Asked(**chosen))
        if number is not None and len(answers) > 1:
            raise several_ops(answers)
        if families:
            _show_families(reader, answers, limit, as_json=as_json)
        elif as_json:
            from optrove.report.cases import configuration_data

            found = chain.from_iterable(
                _chosen(reader, each, number, limit, by_run=False) for each in answers
            )
            echo_list(map(configuration_data, found))
        else:
            echo_lines(_configuration_lines(reader, answers, number, limit, pictures))


def _chosen(
    reader: TroveReader, answer: Answer, number: int | None, limit: int | None, *, by_run: bool
) -> Iterable[Configuration]:
    from optrove.trove.query import configuration, configurations

    if number is not None:
        return (configuration(reader, answer, number),)
    return islice(configurations(reader, answer.query, by_run=by_run), limit)


def _configuration_lines(
    reader: TroveReader,
    answers: Iterable[Answer],
    number: int | None,
    limit: int | None,
    pictures: Path | None,
) -> Iterator[str]:
    from optrove.report.cases import configuration_lines, heading_lines
    from optrove.report.ops import left_out_lines
    from optrove.report.shards import write_pictures
    from optrove.trove.query import left_out_of

    for place, answer in enumerate(answers):
        yield from ("",) * (2 if place else 0)
        found = _chosen(reader, answer, number, limit, by_run=True)
        yield from heading_lines(answer.op, cases=answer.cases, every=answer.every)
        for each in found:
            yield from configuration_lines(each)
            written = () if pictures is None else write_pictures(each.row, pictures)
            yield from (f"  picture: {path}" for path in written)
        if number is None:
            left = left_out_lines(left_out_of(reader, (answer,)))
            yield from ("", *left) if left else ()


def _show_families(
    reader: TroveReader, answers: Iterable[Answer], limit: int | None, *, as_json: bool
) -> None:
    from optrove.report.cases import families, family_data
    from optrove.trove.query import configurations

    found = [(each, families(configurations(reader, each.query, by_run=True))) for each in answers]
    if as_json:
        echo_list(family_data(family) for _, own in found for family in own[:limit])
        return
    echo_lines(chain.from_iterable(_family_lines(answer, own, limit) for answer, own in found))


def _family_lines(answer: Answer, own: tuple[Family, ...], limit: int | None) -> Iterator[str]:
    from optrove.report.cases import family_lines, heading_lines

    yield from heading_lines(answer.op, cases=answer.cases, every=answer.every)
    yield f"Families: {len(own):,}"
    for family in own[:limit]:
        yield from family_lines(family)
    yield ""


@click.command()
@click.argument("name", metavar="OP|CASE")
@case_filters("--board")
@click.option(
    "--by", type=click.Choice(_PROPERTIES), help="Count by this property of tensors or callers."
)
@store_option
@json_option
def who(*, store: str | None, as_json: bool, by: str | None, **chosen: Any) -> None:
    """Tell which models and tests call an op, how often and where.

    With --by, the calls are counted by a property: that of all tensors of a case, or with
    --argument that of the tensor of one parameter; config is the entry of a run configuration
    that the arguments were unpacked from. The filters are those of "optrove show".

    \b
    Example:
      optrove who 1f3a9c02d4e5
    Which models call matmul with bfloat8_b weights, and how often?
      optrove who matmul --argument input_tensor_b --dtype bfloat8_b
    In which shardings do these weights come?
      optrove who matmul --argument input_tensor_b --dtype bfloat8_b --by memory
    Which entries of a run configuration lead to which calls?
      optrove who linear --by config
    """
    from optrove.report import usage as told
    from optrove.report.ops import left_out_lines
    from optrove.trove import query
    from optrove.trove.opening import reading

    asked = query.Asked(**chosen)
    with reading(store, tell_recovered) as reader:
        answers = query.select(reader, asked)
        # Only who asks for tests has to pay for telling them apart.
        by_run = by not in (None, "test")
        found = chain.from_iterable(
            query.configurations(reader, each.query, by_run=by_run) for each in answers
        )
        if by is None:
            usage = told.usage_of(found)
        elif by == "config":
            grouped = told.config_groups(query.with_configs(reader, found))
        else:
            grouped = told.groups(query.with_tensors(reader, found), by, asked.argument)
        left = query.left_out_of(reader, answers)
    if as_json:
        echo_list(told.usage_data(usage) if by is None else told.groups_data(grouped, by))
        return
    width = table_width()
    echo_lines(
        told.usage_lines(usage, width) if by is None else told.groups_lines(grouped, by, width)
    )
    echo_lines(left_out_lines(left))


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--cases-only", is_flag=True, help="Do not compare how often cases are called.")
@click.option("--brief", is_flag=True, help="Count by op; do not show each case.")
@click.option("--all-ops", is_flag=True, help="Compare ops that only move data, too.")
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
    """Compare runs, models, troves or files: what came, went, changed.

    A and B are each a file (master JSON, op lines, text export), a trove by path or URL, the
    beginning of a run's id, or a model. A file goes first; run:ID and model:NAME say what is meant.
    A case is changed when it computes the same with other memory, layout or program configs.

    Ends with 1 if anything differs, with 0 if nothing does.

    \b
    Example:
      optrove diff 1f3a9c 77b0e2
      optrove diff model:llama-3.2-1b model:llama-3.2-3b --brief
      optrove diff last_week.json ttnn_operations_master.json --json
    """
    from optrove.report.diff import Comparing, comparing

    how = Comparing(store, nested=nested, all_ops=all_ops, calls=not cases_only)
    with comparing((a, b), how, tell_recovered, _warn) as compared:
        if as_json:
            from optrove.report.diff import diff_data

            data = diff_data(compared.sides, compared.difference, compared.content)
            click.echo(json.dumps(data, indent=2))
        else:
            echo_lines(_diff_lines(compared, brief=brief))
        is_equal = compared.difference.is_equal
    sys.exit(0 if is_equal else _DIFFERS)


def _diff_lines(compared: Comparison, *, brief: bool) -> Iterator[str]:
    from optrove.report.diff import change_lines, diff_lines

    yield from diff_lines(compared.sides, compared.difference, table_width())
    if not brief:
        yield from change_lines(compared.difference, compared.content)


def _warn(found: Fidelity) -> None:
    parts = f"{found.partly:,} with parts kept as they are spelled, {found.refused:,} not at all"
    click.echo(
        f"optrove: of {found.configurations:,} configurations in {found.file}, "
        f"{found.understood:,} were understood, {parts}",
        err=True,
    )


@click.command()
@all_ops_option
@nested_option
@store_option
@json_option
def runs(*, store: str | None, as_json: bool, **chosen: bool) -> None:
    """List the runs of a trove, newest first.

    Calls and cases are counted as "optrove ops" does. Tests are those that passed, of all. A run
    is incomplete when a process of it, or a call, did not end; what it recorded until then is
    there.

    \b
    Example:
      optrove runs
    """
    from optrove.model.ops import Counting
    from optrove.report.runs import runs_data, runs_lines
    from optrove.trove.opening import reading
    from optrove.trove.query import runs_asked

    with reading(store, tell_recovered) as reader:
        rows = runs_asked(reader, Counting(**chosen))
    if as_json:
        echo_list(runs_data(rows))
    else:
        echo_lines(runs_lines(rows, table_width()))


@click.command()
@all_ops_option
@nested_option
@store_option
@json_option
def models(*, store: str | None, as_json: bool, **chosen: bool) -> None:
    """List the models of a trove; sources, where no model is known.

    Ops, cases and calls are counted as "optrove ops" does.

    \b
    Example:
      optrove models
    """
    from optrove.model.ops import Counting
    from optrove.report.runs import models_data, models_lines
    from optrove.trove.opening import reading
    from optrove.trove.query import models_asked

    with reading(store, tell_recovered) as reader:
        rows = models_asked(reader, Counting(**chosen))
    if as_json:
        echo_list(models_data(rows))
    else:
        echo_lines(models_lines(rows, table_width()))


COMMANDS: Final = (ops, show, who, diff, runs, models)


_HOST: Final = "127.0.0.1"
_PORT: Final = 8777


@click.command()
@store_option
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65_535),
    default=_PORT,
    show_default=True,
    help="Port to serve at; 0 is any that is free.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default=_HOST,
    show_default=True,
    help="Address to serve at; another than this machine's own needs --token.",
)
@click.option("--token", metavar="TEXT", help="Secret that visitors have to know.")
def serve(*, store: str | None, port: int, host: str, token: str | None) -> None:
    """Show a trove in a browser: ops, cases, runs, boards, comparisons.

    Serves pages to this machine only, and changes nothing. Every page has a twin for machines:
    the same address with format=json, described by /openapi.json. Stop it with Ctrl-C.

    \b
    Example:
      optrove serve
      optrove serve --store team.db --port 0
      optrove serve --host 0.0.0.0 --token "$(openssl rand -hex 16)"
    """
    from optrove.trove.opening import located, recover
    from optrove.web.server import check_safe, web_missing

    check_safe(host, token)
    place = located(store)
    for recovered in recover(place):
        tell_recovered(recovered)
    try:
        from optrove.web import server as serving
    except ModuleNotFoundError as error:
        raise web_missing(error) from error

    serving.serve(place, host=host, port=port, token=token, store=store, tell=_tell)


def _tell(address: str) -> None:
    click.echo(f"optrove: open {address} in a browser; stop with Ctrl-C", err=True)


SERVE_COMMANDS: Final = (serve,)
