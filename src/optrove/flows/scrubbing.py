"""Find out which hosts and users a trove tells of, and read it without them."""

from __future__ import annotations

import json
import os
import pwd
import socket
import tempfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.model.scrubbed_paths import users_in
from optrove.model.scrubbing import Names, Scrubber

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.model.records import Query
    from optrove.store.reader import TroveReader
    from optrove.store.scrubbed import ScrubbedParts

_RUNS: Final = """
SELECT DISTINCT e.content, r.source FROM runs r JOIN environments e ON e.key = r.environment_key
"""
_DICTIONARIES: Final = "SELECT dictionary FROM recordings WHERE dictionary IS NOT NULL"
_TELLING_PARTS: Final = 3
"""How many parts the path of a home directory has at least that tells of its owner: / home me."""


def scrubbed_parts(reader: TroveReader, scrubber: Scrubber | None = None) -> ScrubbedParts:
    """Return what a trove holds, without paths, host names and user names."""
    # Only those who scrub pay for the import.
    from optrove.store.parts import TroveParts
    from optrove.store.scrubbed import ScrubbedParts

    return ScrubbedParts(TroveParts(reader.source), scrubber or Scrubber(names_in(reader)))


def names_in(reader: TroveReader) -> Names:
    """Return the hosts and users that a trove names where these stand, and those here."""
    hosts, users, homes = {socket.gethostname()}, set(), set()
    for account in _accounts():
        users.add(account.pw_name)
        if len(Path(account.pw_dir).parts) >= _TELLING_PARTS:
            homes.add(account.pw_dir)
    with reader.source.snapshot():
        for environment, source in reader.source.rows(_RUNS, {}):
            host = json.loads(environment).get("host")
            hosts |= {host} if host else set()
            users |= users_in(environment) | users_in(source)
        for (dictionary,) in reader.source.rows(_DICTIONARIES, {}):
            users |= users_in(zlib.decompress(bytes(dictionary)).decode("ascii"))
    return Names(frozenset(hosts), frozenset(users), frozenset(homes))


@dataclass(frozen=True, slots=True)
class Clean:
    """A reader of a trove without paths, host names and user names, and how to ask it."""

    reader: TroveReader
    scrubber: Scrubber

    def query(self, query: Query) -> Query:
        """Return a question in the words that are left."""
        model = query.model
        return replace(query, model=None if model is None else self.scrubber.source(model))


@contextmanager
def scrubbed(reader: TroveReader) -> Iterator[Clean]:
    """Give a reader of the same trove without paths, host names and user names."""
    from optrove.store.place import Place
    from optrove.store.sharing import send
    from optrove.store.trove import open_trove

    with tempfile.TemporaryDirectory(prefix="optrove-scrubbed-") as directory:
        place = Place(path=Path(directory) / "trove.db")
        scrubber = Scrubber(names_in(reader))
        parts = scrubbed_parts(reader, scrubber)
        with open_trove(place, create=True) as trove:
            with parts.snapshot():
                for _ in send(trove, parts, trove.lacking(parts)):
                    continue
            with trove.reader() as answering:
                yield Clean(answering, scrubber)


def _accounts() -> Iterator[pwd.struct_passwd]:
    """Yield the account of this process, which a container may not know."""
    try:
        yield pwd.getpwuid(os.getuid())
    except KeyError:
        return
