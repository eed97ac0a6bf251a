"""The JSON responses of the pages, as types, and the OpenAPI document that is made from them."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from optrove.version import __version__
from optrove.web.page_request import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.web.page_request import Page, Parameter

Count: TypeAlias = Annotated[int, ("minimum", 0)]
Counts: TypeAlias = dict[str, Count]


class FacetValue(TypedDict):
    """One value of a facet, and how many cases it would leave."""

    value: str
    cases: Count


Facets: TypeAlias = dict[str, list[FacetValue]]


class Op(TypedDict):
    """An op: its selected cases and their last outcomes."""

    op: str
    cases: Count
    calls: Count
    models: Count
    replayable: Count
    tried: Count
    ran: Count
    passed: Count
    outcomes: Counts


class Run(TypedDict):
    """A run with its totals."""

    run_id: str
    kind: str
    source: str
    model: str | None
    board: str | None
    device: str
    ttnn_version: str | None
    started_at: str
    finished_at: str | None
    exit_code: int | None
    state: str
    state_text: str
    cases: Count
    calls: Count
    ops: Count
    planned: int | None
    complete: bool
    attempts: Counts
    tests: Counts
    tried: Count
    passed: Count
    ran: Count


class Tensor(TypedDict):
    """A tensor among the arguments of a case."""

    argument: str
    shape: str
    dtype: str
    layout: str
    memory: str
    mesh: str | None


class CaseRow(TypedDict):
    """A case in a list."""

    case_id: str
    calls: Count
    replayable: bool
    outcome: str | None
    tensors: list[Tensor]
    scalars: dict[str, Any]


class FamilyRow(CaseRow):
    """A family in a list: its most called case, and the arguments that vary."""

    cases: Count
    varies: dict[str, str]


class OpRun(TypedDict):
    """The attempts and calls of one op in one run."""

    run_id: str
    started_at: str | None
    board: str | None
    device: str
    kind: str
    calls: int | None
    mean_ns: float | None
    tried: Count
    ran: Count
    passed: Count
    least_pcc: float | None
    mean_pcc: float | None
    most_pcc: float | None


class Execution(TypedDict):
    """Calls of a case that agree in everything but time."""

    run_id: str
    source: str
    model: str | None
    board: str | None
    started_at: str
    test: str | None
    module: str | None
    mode: str | None
    outcome: str
    outermost: bool
    calls: Count
    total_ns: int | None
    shortest_ns: int | None
    longest_ns: int | None
    error: str | None


class Measurement(TypedDict):
    """One number that was measured in an attempt."""

    name: str
    value: float | None
    threshold: float | None
    passed: bool | None
    output: int | None


class Attempt(TypedDict):
    """One execution of a case."""

    run_id: str
    outcome: str
    device: str
    board: str | None
    seed: str
    detail: str | None
    started_at: str | None
    duration_ns: int | None
    took_ns: int | None
    replayed_case_id: str | None
    measurements: list[Measurement]


class Call(TypedDict):
    """One call in a timeline."""

    op_index: Count
    op: str | None
    case_id: str
    depth: Count
    began_ns: int
    took_ns: Count
    outcome: str


class Process(TypedDict):
    """A process of a run, and how many calls it made."""

    process: Count
    calls: Count


class Timeline(TypedDict):
    """Some calls of one process, in their order."""

    processes: list[Process]
    process: int | None
    first: Count
    next: int | None
    calls: list[Call]
    problem: str | None


class Metric(TypedDict):
    """A metric that a test recorded."""

    name: str
    value: float | None
    passed: bool | None


class Test(TypedDict):
    """The result of a test."""

    test: str
    outcome: str
    mode: str | None
    call_ns: int | None
    metrics: list[Metric]
    error: str | None


class RunAttempt(TypedDict):
    """An attempt in the list of a run."""

    case_id: str
    op: str
    outcome: str
    board: str | None
    detail: str | None
    started_at: str | None
    duration_ns: int | None
    took_ns: int | None


class OpUse(TypedDict):
    """How often a run calls an op."""

    op: str
    cases: Count
    calls: Count


class Side(TypedDict):
    """A case in one of two compared runs."""

    outcome: str | None
    device: str | None
    duration_ns: int | None
    pcc: float | None
    calls: Count
    detail: str | None


class ComparedCase(TypedDict):
    """A case in both of two compared runs."""

    case_id: str
    op: str | None
    a: Side | None
    b: Side | None
    change: str | None


class Origin(TypedDict):
    """How much a model calls, or how much is called on a board."""

    ops: Count
    cases: Count
    calls: Count


class CalledModel(Origin):
    """A model, and how much it calls."""

    model: str


class Tried(TypedDict):
    """The last outcomes of cases on one kind of device."""

    device: str
    outcomes: Counts


class BoardUse(Origin):
    """A board: the calls that were made on it, and the last outcomes."""

    board: str
    tried: list[Tried]


class ModelRow(Origin):
    """A model in a list."""

    model: str
    runs: Count
    last_run_at: str | None
    boards: list[str]


class RunWithPrevious(Run):
    """A run, and the comparable run before it."""

    previous: str | None


class BoardDevice(TypedDict):
    """A board as one kind of device; ``name`` is its key in other parts of the response."""

    name: str
    board: str
    device: str


class Overview(TypedDict):
    """The response of ``/``."""

    counting: bool
    totals: Counts
    running: list[Run]
    recent: list[Run]
    lately: list[RunWithPrevious]
    ops: list[Op]
    models: list[CalledModel]
    boards: list[BoardUse]


class OpsPage(TypedDict):
    """The response of ``/ops``."""

    search: str | None
    chosen: dict[str, str]
    all_ops: bool
    nested: bool
    totals: Counts
    facets: Facets
    ops: list[Op]
    next: str | None


class OpPage(Op):
    """The response of ``/op``."""

    every: Count
    hidden: bool
    chosen: dict[str, str]
    nested: bool
    view: str
    facets: Facets
    rows: list[CaseRow]
    next: str | None
    runs: list[OpRun]


class CasePage(TypedDict):
    """The response of ``/case``."""

    case_id: str
    semantic_id: str
    family_id: str
    op: str
    replayable: bool
    calls: Count
    nested_calls: Count
    arguments: dict[str, Any] | None
    commands: dict[str, str]
    executions: list[Execution]
    more_executions: bool
    attempts: list[Attempt]
    next: int | None


class RunsPage(TypedDict):
    """The response of ``/runs``."""

    chosen: dict[str, str]
    kinds: Counts
    runs: list[Run]
    next: str | None


class RunPage(RunWithPrevious):
    """The response of ``/run``."""

    accounting: dict[str, Any] | None
    environment: dict[str, Any]
    ops_listed: list[OpUse]
    tests_listed: list[Test]
    next_test: str | None
    attempts_listed: list[RunAttempt]
    next_attempt: int | None
    timeline: Timeline


class Progress(TypedDict):
    """The response of ``/progress``."""

    run_id: str
    kind: str
    state: str
    state_text: str
    started_at: str
    finished_at: str | None
    planned: int | None
    tried: Count
    passed: Count
    ran: Count
    attempts: Counts


class MemoryCall(TypedDict):
    """The memory after a call: bytes on each chip by memory, and the number of tensors."""

    call: Count
    op: str
    file: str | None
    line: int | None
    bytes: dict[str, Count]
    tensors: Count


class MemoryTensor(TypedDict):
    """A tensor in memory, and the call that returned or first used it."""

    tensor: Count
    bytes: Count
    shape: list[int]
    dtype: str
    op: str
    call: Count
    file: str | None
    line: int | None


class MemoryPeak(TypedDict):
    """The call after which a memory is fullest, and the largest tensors in it."""

    call: Count
    bytes: Count
    tensors: list[MemoryTensor]


class MemoryPage(TypedDict):
    """The response of ``/memory``; ``problem`` says why nothing is known."""

    run_id: str
    process: int | None
    calls: list[MemoryCall]
    peaks: dict[str, MemoryPeak]
    problem: str | None


class ComparePage(TypedDict):
    """The response of ``/compare``."""

    a: Run
    b: Run
    counts: Counts
    kind: str
    cases: list[ComparedCase]
    next: str | None


class ModelsPage(TypedDict):
    """The response of ``/models``."""

    search: str | None
    total: Count
    models: list[ModelRow]
    next: str | None


class ModelPage(ModelRow):
    """The response of ``/model``."""

    ops_listed: list[Op]
    more_ops: bool
    runs_listed: list[Run]
    more_runs: bool


class BoardsPage(TypedDict):
    """The response of ``/boards``; rows are about ops, or about the cases of one op."""

    boards: list[BoardDevice]
    devices: list[str]
    totals: dict[str, Counts]
    op: str | None
    board: str | None
    device: str | None
    outcome: str | None
    rows: list[dict[str, Any]]
    next: str | None


class Problem(TypedDict):
    """Why there is no page."""

    error: str


RESPONSES: dict[str, Any] = {
    "overview": Overview,
    "ops": OpsPage,
    "op": OpPage,
    "case": CasePage,
    "runs": RunsPage,
    "run": RunPage,
    "progress": Progress,
    "memory": MemoryPage,
    "compare": ComparePage,
    "models": ModelsPage,
    "model": ModelPage,
    "boards": BoardsPage,
    "problem": Problem,
}
"""The response of each page, by the name of the page."""


_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    Any: {},
}


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind):
        fields = get_type_hints(kind, include_extras=True)
        properties = {name: schema_of(each) for name, each in fields.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**schema_of(arguments[0]), **dict(arguments[1:])}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(each) for each in arguments]}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    raise TypeError(f"no JSON Schema is known for {kind!r}")


_ABOUT: Final = (
    "Every page of optrove serve with format=json. Lists have 50 rows; for more, pass next "
    "as after to get them. Texts of more than 2,000 characters are cut. Times are ISO 8601 in UTC, "
    "durations are in nanoseconds, ids are complete."
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
        "components": {"schemas": {name: schema_of(kind) for name, kind in RESPONSES.items()}},
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
