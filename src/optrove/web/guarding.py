"""Let in only what is harmless: who asks, by which method, for what, and how much of it.

Pages are read-only, so nothing but GET and HEAD gets through; the one exception is the form that
takes a token and gives a cookie. On loopback the Host header has to name this machine, so that no
page of the web can have its own name point here and read a trove with its visitor's browser.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOGIN: Final = "/login"
COOKIE: Final = "optrove_token"
LONGEST_PATH: Final = 256
LONGEST_QUERY: Final = 65_536
LARGEST_FORM: Final = 4_096

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
    """Stands before the pages; refuses what is not harmless, and puts headers on all answers."""

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
            about = "This page is for this machine only, and was asked for by another name."
            return Refusal(421, "Wrong host", f"{about} Open it as localhost or 127.0.0.1.")
        logging_in = self._token is not None and scope["path"] == LOGIN
        if scope["method"] not in _READING and not (logging_in and scope["method"] == "POST"):
            allowed = ((b"allow", b"GET, HEAD"),)
            return Refusal(405, "Not allowed", "Pages can be read, and nothing else.", allowed)
        if len(scope["raw_path"]) > LONGEST_PATH or len(scope["query_string"]) > LONGEST_QUERY:
            return Refusal(414, "Too long", "The address is too long; ask for less at once.")
        if not logging_in and _has_body(headers):
            return Refusal(413, "Too large", "A page is asked for without a body.")
        if self._token is None or logging_in or scope["path"].startswith("/static/"):
            return None
        return None if self._is_known(headers) else _UNKNOWN

    def _is_known(self, headers: dict[bytes, bytes]) -> bool:
        """Tell whether whoever asks has the token; takes equally long for every wrong one."""
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
        while more and len(body) <= LARGEST_FORM:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        fields = {} if len(body) > LARGEST_FORM else parse_qs(body.decode("utf-8", "replace"))
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
    """Return what a cookie has instead of the token itself."""
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
