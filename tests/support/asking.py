"""Ask an ASGI application for pages, in this process and without a server."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from html import unescape
from urllib.parse import quote, urlencode, urlsplit

_LINK = re.compile(r"""href="([^"]*)\"""")


@dataclass(frozen=True)
class Answered:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    @property
    def data(self):
        return json.loads(self.body)

    @property
    def links(self):
        """All addresses that the page leads to on this server."""
        found = (unescape(link) for link in _LINK.findall(self.text))
        return [link.partition("#")[0] for link in found if link.startswith("/")]


def ask(app, address, method="GET", headers=(), body=b"", **parameters):
    """Ask for an address; ``parameters`` go into its query string."""
    parts = urlsplit(address)
    query = "&".join(filter(None, (parts.query, urlencode(parameters))))
    named = {"host": "localhost", **dict(headers)}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": parts.path,
        "raw_path": quote(parts.path).encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in named.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    return asyncio.run(_asked(app, scope, body))


async def _asked(app, scope, body):
    said = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        said.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return Answered(
        said[0]["status"], headers, b"".join(each.get("body", b"") for each in said[1:])
    )
