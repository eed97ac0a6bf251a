"""Serve the pages, after checking that it is safe to do so."""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from optrove.errors import OpenToOthers, UnusableAddress
from optrove.web.answering import TroveSite
from optrove.web.app import make_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.trove.place import Place


_MIN_TOKEN_CHARS: Final = 8


def is_loopback(host: str) -> bool:
    """Return whether a host is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_safe(host: str, token: str | None) -> None:
    """Refuse to show a trove to other machines without a token, or with one that is guessed."""
    if token is not None and (len(token) < _MIN_TOKEN_CHARS or not token.isascii()):
        raise OpenToOthers(
            f"a token needs at least {_MIN_TOKEN_CHARS} ASCII characters; "
            f"make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if token is None and not is_loopback(host):
        raise OpenToOthers(
            f"--host {host} shows the trove to other machines; give --token TOKEN, which "
            f"visitors must know, or leave --host out to show it on this machine only"
        )


PORT: Final = 8777
HOST: Final = "127.0.0.1"

_MAX_REQUEST_BYTES: Final = 81_920
_MAX_CONNECTIONS: Final = 256
_TURN_S: Final = 0.0005
_BACKLOG: Final = 256


def serve(
    place: Place,
    *,
    host: str = HOST,
    port: int = PORT,
    token: str | None = None,
    store: str | None = None,
    on_ready: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve a trove until interrupted; ``on_ready`` gets the address when it can be opened.

    ``store`` is how commands on the pages name the trove. OpenToOthers when other machines could
    see it without a token; UnusableAddress when the address cannot be had.
    """
    check_safe(host, token)
    site = TroveSite(place, store)
    usual = sys.getswitchinterval()
    try:
        # Threads that ask a trove let go of the interpreter with every row. To get it back they
        # wait this long for a thread that computes: 5 ms, as usual, would add up.
        sys.setswitchinterval(_TURN_S)
        app = make_app(site, token, loopback=is_loopback(host))
        with _listening(host, port) as listening:
            address = _address(host, listening)
            _NotifyingServer(_config(app), lambda: on_ready(address)).run(sockets=[listening])
    finally:
        sys.setswitchinterval(usual)
        site.close()


class _NotifyingServer(uvicorn.Server):
    """A server that calls a function when it has started."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and call the function."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MAX_REQUEST_BYTES,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=2,
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise UnusableAddress(
            f"no page can be served at {host} port {port}: {error}; "
            f"choose another with --port; 0 picks a free one"
        ) from error


def _address(host: str, listening: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}/"
