"""The OpenAPI document of the pages, with their JSON Schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.version import __version__
from optrove.web.parameters import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.web.page_request import Page
    from optrove.web.parameters import Parameter


Schema: TypeAlias = dict[str, Any]


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_none(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _by_name(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


_TEXT: Final[Schema] = {"type": "string"}
_TEXT_OR_NONE: Final[Schema] = {"type": ["string", "null"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_COUNT_OR_NONE: Final[Schema] = {"type": ["integer", "null"]}
_NUMBER_OR_NONE: Final[Schema] = {"type": ["number", "null"]}
_FLAG: Final[Schema] = {"type": "boolean"}
_FLAG_OR_NONE: Final[Schema] = {"type": ["boolean", "null"]}
_COUNTS: Final = _by_name(_COUNT)
_CHOSEN: Final = _by_name(_TEXT)
_FACETS: Final = _by_name(_list(_object(value=_TEXT, cases=_COUNT)))

_OP: Final = _object(
    op=_TEXT,
    cases=_COUNT,
    calls=_COUNT,
    models=_COUNT,
    replayable=_COUNT,
    tried=_COUNT,
    passed=_COUNT,
    outcomes=_COUNTS,
)
_RUN: Final = _object(
    run_id=_TEXT,
    kind=_TEXT,
    source=_TEXT,
    model=_TEXT_OR_NONE,
    board=_TEXT_OR_NONE,
    device=_TEXT,
    ttnn_version=_TEXT_OR_NONE,
    started_at=_TEXT,
    finished_at=_TEXT_OR_NONE,
    exit_code=_COUNT_OR_NONE,
    state={"type": "string", "enum": ["running", "incomplete", "failed", "done"]},
    cases=_COUNT,
    calls=_COUNT,
    ops=_COUNT,
    planned=_COUNT_OR_NONE,
    complete=_FLAG,
    attempts=_COUNTS,
    tests=_COUNTS,
    tried=_COUNT,
)
_TENSOR: Final = _object(
    argument=_TEXT,
    shape=_TEXT,
    dtype=_TEXT,
    layout=_TEXT,
    memory=_TEXT,
    mesh=_TEXT_OR_NONE,
)
_CASE_ROW: Final = _object(
    case_id=_TEXT,
    calls=_COUNT,
    replayable=_FLAG,
    outcome=_TEXT_OR_NONE,
    tensors=_list(_TENSOR),
    scalars={"type": "object"},
)
_OP_RUN: Final = _object(
    run_id=_TEXT,
    started_at=_TEXT_OR_NONE,
    board=_TEXT_OR_NONE,
    calls=_COUNT_OR_NONE,
    mean_ns=_NUMBER_OR_NONE,
    tried=_COUNT,
    passed=_COUNT,
    least_pcc=_NUMBER_OR_NONE,
    mean_pcc=_NUMBER_OR_NONE,
    most_pcc=_NUMBER_OR_NONE,
)
_EXECUTION: Final = _object(
    run_id=_TEXT,
    source=_TEXT,
    model=_TEXT_OR_NONE,
    board=_TEXT_OR_NONE,
    test=_TEXT_OR_NONE,
    outcome=_TEXT,
    outermost=_FLAG,
    calls=_COUNT,
    total_ns=_COUNT_OR_NONE,
    error=_TEXT_OR_NONE,
)
_MEASUREMENT: Final = _object(
    name=_TEXT,
    value=_NUMBER_OR_NONE,
    threshold=_NUMBER_OR_NONE,
    passed=_FLAG_OR_NONE,
    output=_COUNT_OR_NONE,
)
_ATTEMPT: Final = _object(
    run_id=_TEXT,
    outcome=_TEXT,
    device=_TEXT,
    board=_TEXT_OR_NONE,
    seed=_TEXT,
    detail=_TEXT_OR_NONE,
    started_at=_TEXT_OR_NONE,
    duration_ns=_COUNT_OR_NONE,
    replayed_case_id=_TEXT_OR_NONE,
    measurements=_list(_MEASUREMENT),
)
_SEEN: Final = _object(
    op_index=_COUNT,
    op=_TEXT_OR_NONE,
    case_id=_TEXT,
    depth=_COUNT,
    began_ns={"type": "integer"},
    took_ns=_COUNT,
    outcome=_TEXT,
)
_TIMELINE: Final = _object(
    processes=_list(_object(process=_COUNT, calls=_COUNT)),
    process=_COUNT_OR_NONE,
    first=_COUNT,
    next=_COUNT_OR_NONE,
    calls=_list(_SEEN),
    problem=_TEXT_OR_NONE,
)
_TEST: Final = _object(
    test=_TEXT,
    outcome=_TEXT,
    total_ns=_COUNT_OR_NONE,
    metrics=_list(_object(name=_TEXT, value=_NUMBER_OR_NONE, passed=_FLAG_OR_NONE)),
    error=_TEXT_OR_NONE,
)
_RUN_ATTEMPT: Final = _object(
    case_id=_TEXT,
    op=_TEXT,
    outcome=_TEXT,
    board=_TEXT_OR_NONE,
    detail=_TEXT_OR_NONE,
    duration_ns=_COUNT_OR_NONE,
)
_SIDE: Final = _object(
    outcome=_TEXT_OR_NONE,
    device=_TEXT_OR_NONE,
    duration_ns=_COUNT_OR_NONE,
    pcc=_NUMBER_OR_NONE,
    calls=_COUNT,
    detail=_TEXT_OR_NONE,
)
_ORIGIN: Final = {"ops": _COUNT, "cases": _COUNT, "calls": _COUNT}
_TRIED: Final = _object(device=_TEXT, outcomes=_COUNTS)
_MODEL: Final = _object(
    model=_TEXT, runs=_COUNT, last_run_at=_TEXT_OR_NONE, boards=_list(_TEXT), **_ORIGIN
)


def _and(schema: Schema, **more: Schema) -> Schema:
    """Return a schema of an object with more in it."""
    return _object(**{**schema["properties"], **more})


RESPONSES: Final[dict[str, Schema]] = {
    "overview": _object(
        counting=_FLAG,
        totals=_COUNTS,
        running=_list(_RUN),
        recent=_list(_RUN),
        lately=_list(_and(_RUN, previous=_TEXT_OR_NONE)),
        ops=_list(_OP),
        models=_list(_object(model=_TEXT, **_ORIGIN)),
        boards=_list(_object(board=_TEXT, tried=_list(_TRIED), **_ORIGIN)),
    ),
    "ops": _object(
        search=_TEXT_OR_NONE,
        chosen=_CHOSEN,
        all_ops=_FLAG,
        nested=_FLAG,
        totals=_COUNTS,
        facets=_FACETS,
        ops=_list(_OP),
        next=_TEXT_OR_NONE,
    ),
    "op": _and(
        _OP,
        every=_COUNT,
        hidden=_FLAG,
        chosen=_CHOSEN,
        nested=_FLAG,
        view=_TEXT,
        facets=_FACETS,
        rows=_list(_CASE_ROW),
        next=_TEXT_OR_NONE,
        runs=_list(_OP_RUN),
    ),
    "case": _object(
        case_id=_TEXT,
        semantic_id=_TEXT,
        family_id=_TEXT,
        op=_TEXT,
        replayable=_FLAG,
        calls=_COUNT,
        nested_calls=_COUNT,
        arguments=_or_none({"type": "object"}),
        commands=_by_name(_TEXT),
        executions=_list(_EXECUTION),
        more_executions=_FLAG,
        attempts=_list(_ATTEMPT),
        next=_COUNT_OR_NONE,
    ),
    "runs": _object(chosen=_CHOSEN, kinds=_COUNTS, runs=_list(_RUN), next=_TEXT_OR_NONE),
    "run": _and(
        _RUN,
        previous=_TEXT_OR_NONE,
        accounting=_or_none({"type": "object"}),
        environment={"type": "object"},
        ops_listed=_list(_object(op=_TEXT, cases=_COUNT, calls=_COUNT)),
        tests_listed=_list(_TEST),
        next_test=_TEXT_OR_NONE,
        attempts_listed=_list(_RUN_ATTEMPT),
        next_attempt=_COUNT_OR_NONE,
        timeline=_TIMELINE,
    ),
    "progress": _object(
        run_id=_TEXT,
        kind=_TEXT,
        state=_TEXT,
        started_at=_TEXT,
        finished_at=_TEXT_OR_NONE,
        planned=_COUNT_OR_NONE,
        tried=_COUNT,
        attempts=_COUNTS,
    ),
    "compare": _object(
        a=_RUN,
        b=_RUN,
        counts=_COUNTS,
        kind=_TEXT,
        cases=_list(
            _object(
                case_id=_TEXT,
                op=_TEXT_OR_NONE,
                change=_TEXT_OR_NONE,
                a=_or_none(_SIDE),
                b=_or_none(_SIDE),
            )
        ),
        next=_TEXT_OR_NONE,
    ),
    "models": _object(search=_TEXT_OR_NONE, total=_COUNT, models=_list(_MODEL), next=_TEXT_OR_NONE),
    "model": _and(
        _MODEL,
        ops_listed=_list(_OP),
        more_ops=_FLAG,
        runs_listed=_list(_RUN),
        more_runs=_FLAG,
    ),
    "boards": _object(
        boards=_list(_object(name=_TEXT, board=_TEXT, device=_TEXT)),
        devices=_list(_TEXT),
        totals=_by_name(_COUNTS),
        op=_TEXT_OR_NONE,
        board=_TEXT_OR_NONE,
        device=_TEXT_OR_NONE,
        outcome=_TEXT_OR_NONE,
        rows=_list(_object(boards={"type": "object"})),
        next=_TEXT_OR_NONE,
    ),
}
PROBLEM: Final = _object(error=_TEXT)


_ABOUT: Final = (
    "Every page of optrove serve with format=json. Lists have 50 rows; where there are more, "
    "next is what to give as after. Texts of more than 2,000 letters are cut. Moments are ISO 8601 "
    "in UTC, durations nanoseconds, ids in full."
)
_PROBLEMS: Final = {
    "400": "a parameter that means nothing",
    "404": "the trove does not hold it",
    "503": "the trove cannot be read now, or it took too long",
}


def description(pages: Iterable[Page]) -> dict[str, Any]:
    """Return the OpenAPI document of all pages."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "optrove", "version": __version__, "description": _ABOUT},
        "paths": {page.path: {"get": _operation(page)} for page in pages},
        "components": {"schemas": {**RESPONSES, "problem": PROBLEM}},
    }


def _operation(page: Page) -> dict[str, Any]:
    problems = {status: _problem(about) for status, about in _PROBLEMS.items()}
    return {
        "operationId": page.name,
        "summary": page.about,
        "parameters": [_parameter(each) for each in (*page.parameters, FORMAT)],
        "responses": {
            "200": {
                "description": page.about,
                "content": {
                    "application/json": {"schema": _reference(page.name)},
                    "text/html": {"schema": {"type": "string"}},
                },
            },
            **problems,
        },
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
        "required": parameter.required,
        "schema": parameter.schema(),
    }


def _problem(about: str) -> dict[str, Any]:
    return {
        "description": about,
        "content": {
            "application/json": {"schema": _reference("problem")},
            "text/html": {"schema": {"type": "string"}},
        },
    }


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
