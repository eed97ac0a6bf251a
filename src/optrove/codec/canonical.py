"""The canonical bytes of a Value: equal Values have equal bytes, unequal ones do not.

They are the ASCII JSON of the wire form with sorted keys and no spaces, and so depend neither on
the order of dicts and sets nor on the Python version or its hash seed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from optrove.codec.text import Json, write
from optrove.codec.wire import encode

if TYPE_CHECKING:
    from optrove.model.values import Value


def canonical_bytes(value: Value) -> bytes:
    """Return the canonical bytes of ``value``."""
    return write(encode(value)).encode("ascii")


def fingerprint(data: Json) -> str:
    """Return the SHA-256 of the canonical JSON of builtins, in 64 hex digits."""
    return hashlib.sha256(write(data).encode("ascii")).hexdigest()
