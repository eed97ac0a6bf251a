"""Put the pages together as an application that a web server runs."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from anyio import move_on_after, sleep, to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from optrove.errors import BadQuestion, NotFound, OptroveError, TookTooLong, UnusableTrove
from optrove.web.answering import LONGEST_S, READERS
from optrove.web.guarding import Guard, Refusal
from optrove.web.openapi import description
from optrove.web.pages import PAGES
from optrove.web.parameters import read_parameters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from starlette.requests import Request
    from starlette.types import ASGIApp, Scope

    from optrove.web.answering import Desk
    from optrove.web.looking import Page

STATIC: Final = {
    "style.css": "text/css; charset=utf-8",
    "script.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""All files that are served as they are."""

_NOT_NOW: Final = 503
_STATUS: Final = (
    (BadQuestion, 400, "That cannot be asked for"),
    (NotFound, 404, "Not there"),
    (TookTooLong, _NOT_NOW, "That took too long"),
    (UnusableTrove, _NOT_NOW, "The trove cannot be read now"),
)
_TITLES: Final = {404: "There is no such page", 405: "Not allowed"}
_LONGEST: Final = 200
_LOOK_S: Final = 0.02
_FRESH: Final = "no-cache, private"


def make_app(desk: Desk, token: str | None = None, *, loopback: bool = True) -> ASGIApp:
    """Return the application over a trove that is open; ``token`` is asked of everybody if given.

    ``loopback`` is whether it is to be reached from this machine only.
    """

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        # More threads than can ask at once would only cost memory.
        to_thread.current_default_thread_limiter().total_tokens = READERS * 2
        await run_in_threadpool(desk.prepare)
        yield

    routes = [Route(page.path, _endpoint(desk, page), methods=["GET"]) for page in PAGES]
    routes += [_static(name, media_type) for name, media_type in STATIC.items()]
    openapi = json.dumps(description(PAGES)).encode()
    routes.append(_fixed("/openapi.json", openapi, "application/json"))
    handlers: Any = {
        OptroveError: _on_error(desk),
        HTTPException: _on_missing(desk),
    }
    app = Starlette(routes=routes, lifespan=living, exception_handlers=handlers)

    def refuse(scope: Scope, refusal: Refusal) -> Response:
        as_json = _wants_json(scope)
        more = "" if as_json or refusal.status != 401 else "login"  # noqa: PLR2004 - HTTP's own
        answer = desk.problem(refusal.title, refusal.message, as_json=as_json, more=more)
        response = Response(answer.body, refusal.status, media_type=answer.media_type)
        for name, value in refusal.headers:
            response.headers[name.decode()] = value.decode()
        return response

    names = {} if loopback else {"names": None}
    return Guard(app, token, refuse, **names)


def _endpoint(desk: Desk, page: Page) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def endpoint(request: Request) -> Response:
        asked = read_parameters(request.query_params.multi_items(), page.parameters)
        if not page.early:
            await _until_counted(desk)
        answer = await run_in_threadpool(desk.answer, page, asked)
        headers = {"etag": f'"{answer.tag}"', "cache-control": _FRESH}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(answer.body, media_type=answer.media_type, headers=headers)

    return endpoint


async def _until_counted(desk: Desk) -> None:
    """Wait without keeping a thread, so that pages which need not wait are made meanwhile."""
    with move_on_after(LONGEST_S):
        while desk.is_counting:
            await sleep(_LOOK_S)
        return
    raise TookTooLong(
        "the cases of this trove are being counted for the first time, which is not done yet; "
        "try again in some seconds, or look at the runs meanwhile: /runs"
    )


def _static(name: str, media_type: str) -> Route:
    body = (files("optrove.web") / "static" / name).read_bytes()
    return _fixed(f"/static/{name}", body, media_type)


def _fixed(path: str, body: bytes, media_type: str) -> Route:
    async def endpoint(_: Request) -> Response:
        return Response(body, media_type=media_type, headers={"cache-control": _FRESH})

    return Route(path, endpoint, methods=["GET"])


def _on_error(desk: Desk) -> Callable[[Request, Exception], Response]:
    def respond(request: Request, error: Exception) -> Response:
        found = ((status, title) for kind, status, title in _STATUS if isinstance(error, kind))
        status, title = next(found, (500, "Something is wrong with the trove"))
        more = "again" if desk.is_counting and status == _NOT_NOW else ""
        as_json = _wants_json(request.scope)
        answer = desk.problem(title, str(error), as_json=as_json, more=more)
        return Response(answer.body, status, media_type=answer.media_type)

    return respond


def _on_missing(desk: Desk) -> Callable[[Request, Exception], Response]:
    def respond(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        pages = ", ".join(page.path for page in PAGES)
        message = f"Nothing is at {request.url.path[:_LONGEST]!r}. The pages are: {pages}"
        title = _TITLES.get(status, "That did not work")
        answer = desk.problem(title, message, as_json=_wants_json(request.scope))
        return Response(answer.body, status, media_type=answer.media_type)

    return respond


def _wants_json(scope: Scope) -> bool:
    if b"format=json" in scope["query_string"]:
        return True
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return b"application/json" in accepted and b"text/html" not in accepted
