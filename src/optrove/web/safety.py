"""Decide whether pages may be served as asked for, before anything is served."""

from __future__ import annotations

import ipaddress
from typing import Final

from optrove.errors import FrameworkMissing, OpenToOthers

_SHORTEST_TOKEN: Final = 8


def is_loopback(host: str) -> bool:
    """Tell whether a host is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_safe(host: str, token: str | None) -> None:
    """Refuse to show a trove to other machines without a token, or with one that is guessed."""
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii()):
        raise OpenToOthers(
            f"a token needs {_SHORTEST_TOKEN} or more letters of ASCII, this one has {len(token)}; "
            f"make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if token is None and not is_loopback(host):
        raise OpenToOthers(
            f"--host {host} shows the trove to other machines; give --token TOKEN, which whoever "
            f"looks has to know, or leave --host out to show it on this machine only"
        )


def web_missing(error: ModuleNotFoundError) -> FrameworkMissing:
    """Return the error for a package that pages need and that is not there."""
    return FrameworkMissing(
        f"the web page needs {error.name}, which is not installed; "
        f"install it with: pip install 'optrove[web]'"
    )
