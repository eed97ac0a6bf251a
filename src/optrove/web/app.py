"""The web application: routes, and the guard that checks each request.

Pages are read-only, so nothing but GET and HEAD gets through; the one exception is the form that
takes a token and gives a cookie. On loopback the Host header has to name this machine, so that no
page of the web can have its own name point here and read a trove with its visitor's browser.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from anyio import to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from optrove.errors import BadQuestion, NotFound, OptroveError, TookTooLong, UnusableTrove
from optrove.web.answering import READERS
from optrove.web.page_request import read_parameters
from optrove.web.pages import PAGES
from optrove.web.responses import description

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from optrove.web.answering import TroveSite
    from optrove.web.page_request import Page


LOGIN: Final = "/login"
COOKIE: Final = "optrove_token"
MAX_PATH_CHARS: Final = 256
MAX_QUERY_CHARS: Final = 65_536
MAX_FORM_BYTES: Final = 4_096

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
_READING: Final = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request gets no page."""

    status: int
    title: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Guard:
    """Stands before the pages: refuses unsafe requests, and adds headers to all responses."""

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        refuse: Callable[[Scope, Refusal], Any],
        names: frozenset[str] | None = _LOOPBACK_NAMES,
    ) -> None:
        """Guard an app; ``names`` are the hosts that it may be asked for by, None is any.

        ``refuse`` makes the answer for a Refusal.
        """
        self._app = app
        self._token = None if token is None else token.encode()
        self._refuse = refuse
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None and scope["path"] == LOGIN and scope["method"] == "POST":
            await self._log_in(scope, receive, sending)
        elif refusal is None:
            await self._app(scope, receive, sending)
        else:
            await self._refuse(scope, refusal)(scope, receive, sending)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        if self._names is not None and _host(headers.get(b"host", b"")) not in self._names:
            about = "This server is for this machine only; the Host header has another name."
            return Refusal(421, "Wrong host", f"{about} Open it as localhost or 127.0.0.1.")
        logging_in = self._token is not None and scope["path"] == LOGIN
        if scope["method"] not in _READING and not (logging_in and scope["method"] == "POST"):
            allowed = ((b"allow", b"GET, HEAD"),)
            return Refusal(405, "Not allowed", "Pages can be read, and nothing else.", allowed)
        if len(scope["raw_path"]) > MAX_PATH_CHARS or len(scope["query_string"]) > MAX_QUERY_CHARS:
            return Refusal(414, "Too long", "The address is too long; ask for less at once.")
        if not logging_in and _has_body(headers):
            return Refusal(413, "Too large", "Requests must not have a body.")
        if self._token is None or logging_in or scope["path"].startswith("/static/"):
            return None
        return None if self._is_known(headers) else _UNKNOWN

    def _is_known(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether the client has the token, in constant time."""
        if self._token is None:
            return True
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return True
        return hmac.compare_digest(_cookie(headers), _sign(self._token))

    async def _log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a token from the form; give a cookie for the right one."""
        body = b""
        more = True
        while more and len(body) <= MAX_FORM_BYTES:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        fields = {} if len(body) > MAX_FORM_BYTES else parse_qs(body.decode("utf-8", "replace"))
        given = fields.get("token", [""])[0].strip().encode()
        if self._token is None or not hmac.compare_digest(given, self._token):
            await self._refuse(scope, _WRONG)(scope, receive, send)
            return
        cookie = f"{COOKIE}={_sign(self._token).decode()}; Path=/; HttpOnly; SameSite=Strict"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


_ASK: Final = ((b"www-authenticate", b'Bearer realm="optrove"'),)
_UNKNOWN: Final = Refusal(
    *(401, "A token is needed"),
    "Give the token that the server was started with: here, or as Authorization: Bearer TOKEN.",
    _ASK,
)
_WRONG: Final = Refusal(
    *(401, "A token is needed"), "That is not the token; it is the one after --token.", _ASK
)


def _sign(token: bytes) -> bytes:
    """Return the value of the cookie, which is not the token itself."""
    return hmac.new(token, b"optrove cookie", hashlib.sha256).hexdigest().encode()


def _cookie(headers: dict[bytes, bytes]) -> bytes:
    try:
        found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
    except CookieError:
        return b""
    return b"" if found is None else found.value.encode()


def _host(header: bytes) -> str:
    """Return the name in a Host header without its port."""
    name = header.decode("latin-1").lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


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
_MAX_SHOWN_CHARS: Final = 200
_FRESH: Final = "no-cache, private"


def make_app(site: TroveSite, token: str | None = None, *, loopback: bool = True) -> ASGIApp:
    """Return the application over a trove that is open; ``token`` is asked of everybody if given.

    ``loopback`` is whether it is to be reached from this machine only.
    """

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        # More threads than ask at once would take turns with them, and slow down the long pages.
        to_thread.current_default_thread_limiter().total_tokens = READERS
        await run_in_threadpool(site.prepare)
        yield

    routes = [Route(page.path, _endpoint(site, page), methods=["GET"]) for page in PAGES]
    routes += [_static(name, media_type) for name, media_type in STATIC.items()]
    openapi = json.dumps(description(PAGES)).encode()
    routes.append(_fixed("/openapi.json", openapi, "application/json"))
    handlers: Any = {
        OptroveError: _on_error(site),
        HTTPException: _on_missing(site),
    }
    app = Starlette(routes=routes, lifespan=living, exception_handlers=handlers)

    def refuse(scope: Scope, refusal: Refusal) -> Response:
        as_json = _wants_json(scope)
        more = "" if as_json or refusal.status != 401 else "login"  # noqa: PLR2004 - HTTP's own
        answer = site.problem(refusal.title, refusal.message, as_json=as_json, more=more)
        response = Response(answer.body, refusal.status, media_type=answer.media_type)
        for name, value in refusal.headers:
            response.headers[name.decode()] = value.decode()
        return response

    names = {} if loopback else {"names": None}
    return Guard(app, token, refuse, **names)


def _endpoint(site: TroveSite, page: Page) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def endpoint(request: Request) -> Response:
        asked = read_parameters(request.query_params.multi_items(), page.parameters)
        answer = await run_in_threadpool(site.answer, page, asked)
        headers = {"etag": f'"{answer.tag}"', "cache-control": _FRESH}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(answer.body, media_type=answer.media_type, headers=headers)

    return endpoint


def _static(name: str, media_type: str) -> Route:
    body = (files("optrove.web") / "static" / name).read_bytes()
    return _fixed(f"/static/{name}", body, media_type)


def _fixed(path: str, body: bytes, media_type: str) -> Route:
    async def endpoint(_: Request) -> Response:
        return Response(body, media_type=media_type, headers={"cache-control": _FRESH})

    return Route(path, endpoint, methods=["GET"])


def _on_error(site: TroveSite) -> Callable[[Request, Exception], Response]:
    def respond(request: Request, error: Exception) -> Response:
        found = ((status, title) for kind, status, title in _STATUS if isinstance(error, kind))
        status, title = next(found, (500, "Something is wrong with the trove"))
        answer = site.problem(title, str(error), as_json=_wants_json(request.scope))
        return Response(answer.body, status, media_type=answer.media_type)

    return respond


def _on_missing(site: TroveSite) -> Callable[[Request, Exception], Response]:
    def respond(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        pages = ", ".join(page.path for page in PAGES)
        message = f"Nothing is at {request.url.path[:_MAX_SHOWN_CHARS]!r}. The pages are: {pages}"
        title = _TITLES.get(status, "That did not work")
        answer = site.problem(title, message, as_json=_wants_json(request.scope))
        return Response(answer.body, status, media_type=answer.media_type)

    return respond


def _wants_json(scope: Scope) -> bool:
    if b"format=json" in scope["query_string"]:
        return True
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return b"application/json" in accepted and b"text/html" not in accepted
