"""The OpenAPI document of the pages, generated from the types of their responses."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from optrove.version import __version__
from optrove.web.parameters import FORMAT
from optrove.web.responses import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.web.page_request import Page
    from optrove.web.parameters import Parameter

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
