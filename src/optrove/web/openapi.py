"""Describe the pages for machines: an OpenAPI document made from the table of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from optrove.version import __version__
from optrove.web.parameters import FORMAT
from optrove.web.schemas import PROBLEM, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.web.looking import Page
    from optrove.web.parameters import Parameter

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
