"""Take paths and addresses out of a text; what remains of a path is its last part.

A text is taken apart at blanks, quotes and brackets, and each piece is looked at once, so that the
time that it takes grows with its length only, whatever the text is.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

_PIECE: Final = re.compile(r"[^\s\"'`|()\[\]{};,*?]*[/\\~@][^\s\"'`|()\[\]{};,*?]*")
_SCHEME: Final = re.compile(r"[A-Za-z0-9+.-]*\Z")
_COLONS: Final = re.compile(r"(:+)")
_DRIVE: Final = re.compile(r"(?:.*[^A-Za-z0-9/\\.])?[A-Za-z]", re.S)
_BEGIN: Final = re.compile(
    r"(?<![\w.\-~/\\])(?<!<path>)(?<!<python>)(?<!<user>)(?<!<host>)(?<!<url>)"
    r"(?:(?:~[\w.-]*)?/|\\\\+(?=\w[^\\/]*[\\/]))"
)
_BELOW_HOME: Final = re.compile(r"[\\/](?:home|users)[\\/]+[^\\/]", re.I)
_HOME: Final = re.compile(
    r"[\\/](?:home|users)[\\/]+[^\\/]+[\\/]*\Z|\A(?:/+root|~[^\\/]*)/*\Z", re.I
)
_USERS: Final = re.compile(r"[\\/](?:home|users)[\\/]+([^\s/\\:;,\"'`<>|()\[\]{}*?]+)", re.I)
_INSTALLED: Final = re.compile(
    r".*[\\/](?:site-packages|dist-packages|lib[\\/]python\d[^\\/]*)[\\/]+"
)
_AT: Final = re.compile(r"(?<![\w.+-])[\w+-][\w.+-]*@\w[\w.-]*")
_ABSOLUTE: Final = re.compile(r"/|~[\w.-]*/|\\\\|[A-Za-z]:[\\/]")
_SLASHES: Final = re.compile(r"[\\/]+")
_ALONE: Final = 2


def users_in(text: str) -> set[str]:
    """Return the names of the users whose home directories a text names."""
    return set(_USERS.findall(text))


def without_paths(text: str) -> str:
    """Return a text whose paths and addresses are replaced."""
    return _PIECE.sub(lambda found: _piece(found[0]), text)


def is_absolute(text: str) -> bool:
    """Tell whether a text as a whole can be a path from a root or a home directory."""
    return "\n" not in text and _ABSOLUTE.match(text) is not None


def shortened(path: str) -> str:
    """Return what is kept of a path that does not begin where the project is."""
    installed = _INSTALLED.match(path)
    if installed is not None:
        return "<python>/" + path[installed.end() :].replace("\\", "/")
    if _HOME.search(path):
        return "<path>"
    last = _SLASHES.split(path.rstrip("/\\"))[-1]
    return f"<path>/{last}" if last else "<path>"


def _piece(piece: str) -> str:
    head, separator, _ = piece.partition("://")
    if separator:
        scheme = _SCHEME.search(head)
        before = head if scheme is None else head[: scheme.start()]
        return _piece(before) + "<url>" if before else "<url>"
    parts = deque(_COLONS.split(piece))
    kept = []
    while parts:
        part, colons = parts.popleft(), parts.popleft() if parts else ""
        # The drive of a path, and not what stands before a path.
        if colons == ":" and parts[0][:1] in ("/", "\\") and _DRIVE.fullmatch(part):
            kept.append(part[:-1] + _path(colons + parts.popleft()))
            colons = parts.popleft() if parts else ""
        else:
            kept.append(_path(part))
        kept.append(colons)
    return _AT.sub("<user>@<host>", "".join(kept))


def _path(part: str) -> str:
    """Return a part of a piece with the path that it ends with, if any, shortened."""
    if part[:2] in (":/", ":\\"):
        return shortened(part[1:])
    if _BELOW_HOME.search(part):
        return shortened(part)
    begin = _BEGIN.search(part)
    if begin is None:
        return part
    path = part[begin.start() :]
    alone = path[0] == "/" and path.count("/") < _ALONE and not _HOME.search(path)
    if alone or not path.strip("/\\"):
        # One part after a slash, such as /tmp or the second half of a fraction, tells nothing.
        return part
    return part[: begin.start()] + shortened(path)
