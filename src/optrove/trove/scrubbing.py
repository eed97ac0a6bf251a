"""Remove paths, host names and user names from a trove.

A text is taken apart at blanks, quotes and brackets, and each piece is looked at once, so that the
time that it takes grows with its length only, whatever the text is.

The rule, which the documentation promises:

- A path from the root of a file system, from a home directory (``~``) or from a Windows drive keeps
  its last part only: ``<path>/test_model.py``. Within an installation of Python it keeps its place
  there: ``<python>/ttnn/operations/binary.py``. A home directory itself becomes ``<path>``.
- A URL becomes ``<url>``, and ``name@host`` becomes ``<user>@<host>``.
- The names of hosts and users that are given become ``<host>`` and ``<user>`` wherever they stand
  as words, whatever their case.
- Command lines are left out, and so is the host of an environment.

All else stays, relative paths included. What is scrubbed once stays the same when scrubbed again.

Everything is recreated from scrubbed records, so that ids are hashes of the scrubbed content. A
scrubbed Recording ranks below its original: when both are merged, the original stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import socket
import tempfile
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.journal.calls import TableChanges, decompressed, rewritten
from optrove.model.case import Case, rewrite
from optrove.model.records import Attempt, Sweep, TestResult
from optrove.model.values import Bytes, Callable, Opaque, Text
from optrove.serializer.described import case_of, describe_case
from optrove.serializer.text import write
from optrove.serializer.wire import decode, encode
from optrove.trove import reader as answers
from optrove.trove.database import batches
from optrove.trove.merging import TroveParts
from optrove.trove.recordings import (
    scope_row,
    stored_attempt,
    stored_ending,
    stored_run,
    stored_sweep,
    stored_test,
    summed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.model.case import NamedValues
    from optrove.model.records import Environment, Facts, Query, Run
    from optrove.model.trove import DescribedCase
    from optrove.model.values import Value
    from optrove.serializer.text import Json
    from optrove.trove.database import Connection
    from optrove.trove.reader import TroveReader
    from optrove.trove.recordings import (
        CallEnding,
        Recording,
        RecordingHead,
        ScopeRow,
        StoredAttempt,
        StoredRun,
        StoredSweep,
    )


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
    """Return whether a text as a whole can be a path from a root or a home directory."""
    return "\n" not in text and _ABSOLUTE.match(text) is not None


def shortened(path: str) -> str:
    """Return the part of a path outside of the project that is kept."""
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
        # The drive of a path, not a word before a path.
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
        # One part after a slash, such as /tmp or the second half of a fraction, identifies nothing.
        return part
    return part[: begin.start()] + shortened(path)


COMMON: Final = frozenset(
    {
        *("admin", "administrator", "build", "builder", "ci", "debian", "default", "dev"),
        *("developer", "docker", "ec2-user", "guest", "home", "host", "localhost", "nobody"),
        *("none", "path", "postgres", "public", "python", "root", "runner", "shared", "test"),
        *("tester", "ubuntu", "unknown", "url", "user", "users", "vagrant", "worker"),
    }
)
"""Common names of accounts and hosts, which reveal nothing."""

MIN_NAME_CHARS: Final = 3
"""Shorter names are removed from paths only, because other words contain them."""

_SUSPECT: Final = re.compile(r"[/\\~@]")
_BELOW: Final = r"((?:[\\/]+[^\s/\\:;,\"'`<>|()\[\]{}*?]+)*)[\\/]*"


@dataclass(frozen=True, slots=True)
class Names:
    """The hosts, users and home directories to remove."""

    hosts: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    homes: frozenset[str] = frozenset()


class Scrubber:
    """Scrubs texts, Values and records by the rule of this module."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def text(self, text: str) -> str:
        """Return a scrubbed text."""
        if _SUSPECT.search(text):
            text = self._homes.sub(_below, text) if self._names.homes else text
            text = without_paths(text)
        return self._words.sub(self._placeholder, text) if self._known else text

    def text_or_none(self, text: str | None) -> str | None:
        """Return a scrubbed text; None for None."""
        return None if text is None else self.text(text)

    def file(self, path: str) -> str:
        """Return a scrubbed text that may be one path as a whole, with blanks in it."""
        return self.text(shortened(path) if is_absolute(path) else path)

    def value(self, value: Value) -> Value:
        """Return a Value whose texts are scrubbed, at any depth."""
        return rewrite(value, self._part)

    def named(self, values: NamedValues) -> NamedValues:
        """Return scrubbed Values by name; the names stay."""
        return tuple((name, self.value(value)) for name, value in values)

    def case(self, case: Case) -> Case:
        """Return a Case with scrubbed arguments."""
        return Case(case.op, self.named(case.arguments))

    def concerns(self, content: str) -> bool:
        """Return whether there may be anything to scrub in the JSON of something."""
        if '"$bytes"' in content:  # encoded, so that no text shows
            return True
        return bool(_SUSPECT.search(content) or (self._known and self._words.search(content)))

    def environment(self, environment: Environment) -> Environment:
        """Return an environment without its host and command line."""
        return replace(
            environment,
            host=None,
            command_line=(),
            platform=self.text(environment.platform),
        )

    def run(self, run: Run) -> Run:
        """Return a Run without names of people and machines."""
        return replace(
            run,
            source=self.source(run.source),
            model=None if run.model is None else self.source(run.model),
            environment=self.environment(run.environment),
            provenance=self.facts(run.provenance),
        )

    def facts(self, facts: Facts) -> Facts:
        """Return facts whose texts are scrubbed."""
        return tuple((name, write(self._json(json.loads(text)))) for name, text in facts)

    def _json(self, data: Json) -> Json:
        match data:
            case str():
                return self.text(data)
            case list():
                return [self._json(item) for item in data]
            case dict():
                return {key: self._json(item) for key, item in data.items()}
        return data

    def source(self, source: str) -> str:
        """Return the source of a Run, ``path [HF_MODEL:name]`` or ``path::test``."""
        head, separator, rest = source.partition(" [HF_MODEL:")
        path, colons, test = head.partition("::")
        return self.file(path) + self.text(colons + test + separator + rest)

    def test(self, result: TestResult) -> TestResult:
        """Return the scrubbed result of a test."""
        return replace(
            result,
            test_id=self.source(result.test_id),
            module=self.text_or_none(result.module),
            parameters=self.named(result.parameters),
            properties=self.named(result.properties),
            error=self.text_or_none(result.error),
        )

    def attempt(self, attempt: Attempt) -> Attempt:
        """Return a scrubbed Attempt, still at the same Case."""
        return replace(
            attempt,
            detail=self.text_or_none(attempt.detail),
            notes=tuple(map(self.text, attempt.notes)),
            outputs=tuple(map(self.value, attempt.outputs)),
        )

    def sweep(self, sweep: Sweep) -> Sweep:
        """Return the scrubbed request of a sweep."""
        return replace(
            sweep,
            targets=tuple(map(self.source, sweep.targets)),
            filters=tuple((name, self.text(value)) for name, value in sweep.filters),
            source=self.text_or_none(sweep.source),
            file=None if sweep.file is None else self.file(sweep.file),
            modules=tuple(
                replace(each, name=self.text(each.name), path=self.file(each.path))
                for each in sweep.modules
            ),
            left_out=tuple((self.text(why), count) for why, count in sweep.left_out),
        )

    def _part(self, value: Value) -> Value:
        match value:
            case Text(text):
                return Text(self.file(text))
            case Bytes(content):
                # Every byte is a letter of this encoding, and every placeholder is ASCII.
                return Bytes(self.file(content.decode("latin-1")).encode("latin-1"))
            case Callable(name):
                return Callable(self.text(name))
            case Opaque(kind, token):
                return Opaque(self.text(kind), self.text(token))
        return value

    @cached_property
    def _homes(self) -> re.Pattern[str]:
        # Literally, since a home directory may have blanks in its path, where a text ends a path.
        homes = sorted(self._names.homes, key=len, reverse=True)
        either = "|".join(map(re.escape, homes))
        return re.compile(rf"(?:{either})(?![\w.-]){_BELOW}", re.I)

    @cached_property
    def _known(self) -> dict[str, str]:
        """The names to replace, in lower case, with their placeholders."""
        hosts = _identifying(_hosts(self._names.hosts))
        return {
            **dict.fromkeys(_identifying(self._names.users), "<user>"),
            **dict.fromkeys(hosts, "<host>"),
        }

    @cached_property
    def _words(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, sorted(self._known, key=len, reverse=True)))
        # A word begins after a character other than a letter, or with a capital after a small one.
        begins = r"(?:(?<![^\W\d_])|(?<=[a-z])(?=[A-Z]))"
        return re.compile(rf"{begins}(?i:{names})(?![a-z])")

    def _placeholder(self, found: re.Match[str]) -> str:
        # Some letters are equal in any case to others than their own small ones.
        return self._known.get(found[0].lower(), "<user>")


def _hosts(names: Iterable[str]) -> Iterator[str]:
    """Yield the names of hosts with their domains, and without."""
    for name in names:
        yield name
        yield name.partition(".")[0]


def _identifying(names: Iterable[str]) -> Iterator[str]:
    lower = {name.lower() for name in names}
    return (name for name in lower if len(name) >= MIN_NAME_CHARS and name not in COMMON)


def _below(found: re.Match[str]) -> str:
    return shortened(found[0]) if found[1] else "<path>"


RULE: Final = 1
"""The version of the rule, which is a part of the digest of a scrubbed Recording."""
_BATCH_SIZE: Final = 500


class ScrubbedParts(TroveParts):
    """The content of a trove, scrubbed."""

    def __init__(self, connection: Connection, scrubber: Scrubber) -> None:
        super().__init__(connection)
        self._scrubber = scrubber
        self._cases: dict[str, str] = {}
        self._origins: dict[str, str] = {}
        self._attempts: dict[str, str] = {}

    def runs(self) -> Iterator[StoredRun]:
        """Yield all Runs, by their ids."""
        for stored in super().runs():
            run = answers.run_from(stored.content, stored.environment.content)
            machine = answers.machine_from(stored.machine)
            machine = replace(machine, more=self._scrubber.facts(machine.more))
            yield stored_run(self._scrubber.run(run), machine)

    def heads(self) -> list[tuple[int, RecordingHead]]:
        """Return the heads of all Recordings, each with its key."""
        return [(key, _scrubbed_head(head)) for key, head in super().heads()]

    def recording(self, key: int, head: RecordingHead, run: StoredRun) -> Recording:
        """Return a whole Recording."""
        whole = super().recording(key, head, run)
        self._learn({each.case_id for each in whole.executions})
        self._learn({case_id for _, case_id, _ in whole.config_calls})
        scopes = {name: self._scope(scope) for name, scope in whole.scopes.items()}
        endings = {name: self._ending(name, ending) for name, ending in whole.endings.items()}
        dictionary = whole.dictionary
        return replace(
            whole,
            executions=summed(
                each._replace(
                    case_id=self._cases[each.case_id],
                    scope_id=None if each.scope_id is None else scopes[each.scope_id][0],
                    ending_id=None if each.ending_id is None else endings[each.ending_id][0],
                )
                for each in whole.executions
            ),
            described=self.described,
            scopes=dict(scopes.values()),
            endings=dict(endings.values()),
            tests=[
                stored_test(self._scrubber.test(answers.record_from(content, TestResult)))
                for _, _, content in whole.tests
            ],
            dictionary=None if dictionary is None else rewritten(dictionary, self._changes()),
            config_calls=sorted(
                (path, self._cases[case_id], calls) for path, case_id, calls in whole.config_calls
            ),
        )

    def case_ids(self, key: int) -> Iterator[str]:
        """Yield the ids of the Cases of a Recording."""
        ids = list(super().case_ids(key))
        self._learn(ids)
        return iter({self._cases[case_id] for case_id in ids})

    def described(self, ids: Sequence[str]) -> Iterator[DescribedCase]:
        """Yield Cases by their ids."""
        return map(self._describe, super().described([self._origins[each] for each in ids]))

    def sweep(self, run_id: str) -> StoredSweep | None:
        """Return the request and the plan of a sweep; None when the Run is not a sweep."""
        whole = super().sweep(run_id)
        if whole is None:
            return None
        self._learn({each.case_id for each in whole.planned})
        # Two Cases that differed only by scrubbed text are one now, and are planned once.
        plan = {
            self._cases[each.case_id]: replace(each, case_id=self._cases[each.case_id])
            for each in reversed(whole.planned)
        }
        sweep = self._scrubber.sweep(answers.record_from(whole.content, Sweep))
        return stored_sweep(sweep, reversed(plan.values()))

    def attempt_ids(self, run_id: str) -> list[str]:
        """Return the ids of the Attempts of a Run."""
        ids = super().attempt_ids(run_id)
        found = [(self._attempt(each).attempt_id, each.attempt_id) for each in self._originals(ids)]
        self._attempts.update(found)
        return list(dict(found))

    def attempts(self, ids: Iterable[str]) -> Iterator[StoredAttempt]:
        """Yield Attempts by their ids."""
        return map(self._attempt, self._originals([self._attempts[each] for each in ids]))

    def _originals(self, ids: Sequence[str]) -> Iterator[StoredAttempt]:
        for batch in batches(ids, _BATCH_SIZE):
            attempts = list(super().attempts(batch))
            self._learn({attempt.case_id for attempt in attempts})
            yield from attempts

    def _attempt(self, stored: StoredAttempt) -> StoredAttempt:
        attempt = self._scrubber.attempt(answers.record_from(stored.content, Attempt))
        replayed = attempt.replayed_case_id
        same = replayed == attempt.case_id
        case_id = self._cases[attempt.case_id]
        return stored_attempt(
            replace(attempt, case_id=case_id, replayed_case_id=case_id if same else replayed)
        )

    def _learn(self, ids: Iterable[str]) -> None:
        """Find the ids of Cases after scrubbing."""
        unknown = sorted(set(ids) - self._cases.keys())
        for whole in super().described(unknown):
            case_id = self._describe(whole).case_id
            self._cases[whole.case_id] = case_id
            self._origins.setdefault(case_id, whole.case_id)

    def _describe(self, whole: DescribedCase) -> DescribedCase:
        if not self._scrubber.concerns(whole.content):
            return whole
        return describe_case(self._scrubber.case(case_of(whole.content)))

    def _scope(self, row: ScopeRow) -> tuple[str, ScopeRow]:
        test_id, phase, module, *rest = row
        test_id = None if test_id is None else self._scrubber.source(test_id)
        return scope_row(test_id, phase, self._scrubber.text_or_none(module), *rest)

    def _ending(self, ending_id: str, ending: CallEnding) -> tuple[str, CallEnding]:
        data = json.loads(ending.content)
        if ending.raised:
            return stored_ending(self._scrubber.text(data), is_error=True)
        if not self._scrubber.concerns(ending.content):
            return ending_id, ending
        values = [encode(self._scrubber.value(decode(value))) for value in data]
        return stored_ending(write(values), is_error=False)

    def _changes(self) -> TableChanges:
        return TableChanges(
            text=self._scrubber.text,
            file=self._scrubber.file,
            test=self._scrubber.source,
            value=self._scrubber.value,
            cases=self._cases,
        )


def _scrubbed_head(head: RecordingHead) -> RecordingHead:
    """Return the head of a Recording after scrubbing, which ranks below the original."""
    text = f"scrubbed {RULE} {head.size} {head.digest}"
    return head._replace(size=0, digest=hashlib.sha256(text.encode()).hexdigest())


_RUNS: Final = """
SELECT DISTINCT e.content, r.source FROM runs r JOIN environments e ON e.key = r.environment_key
"""
_DICTIONARIES: Final = "SELECT dictionary FROM recordings WHERE dictionary IS NOT NULL"
_TELLING_PARTS: Final = 3
"""The least number of parts of a home directory's path that reveals its owner: / home me."""


def scrubbed_parts(reader: TroveReader, scrubber: Scrubber | None = None) -> ScrubbedParts:
    """Return the content of a trove without paths, host names and user names."""
    return ScrubbedParts(reader.connection, scrubber or Scrubber(names_in(reader)))


def names_in(reader: TroveReader) -> Names:
    """Return the hosts and users that a trove names, and those of this machine."""
    hosts, users, homes = {socket.gethostname()}, set(), set()
    for account in _accounts():
        users.add(account.pw_name)
        if len(Path(account.pw_dir).parts) >= _TELLING_PARTS:
            homes.add(account.pw_dir)
    with reader.connection.snapshot():
        for environment, source in reader.connection.rows(_RUNS, {}):
            host = json.loads(environment).get("host")
            hosts |= {host} if host else set()
            users |= users_in(environment) | users_in(source)
        for (dictionary,) in reader.connection.rows(_DICTIONARIES, {}):
            users |= users_in(decompressed(bytes(dictionary)).decode("ascii"))
    return Names(frozenset(hosts), frozenset(users), frozenset(homes))


@dataclass(frozen=True, slots=True)
class ScrubbedReader:
    """A reader of a scrubbed trove, and the scrubber for queries."""

    reader: TroveReader
    scrubber: Scrubber

    def query(self, query: Query) -> Query:
        """Return a query with a scrubbed name of a model."""
        model = query.model
        return replace(query, model=None if model is None else self.scrubber.source(model))


@contextmanager
def scrubbed(reader: TroveReader) -> Iterator[ScrubbedReader]:
    """Give a reader of a scrubbed copy of a trove."""
    from optrove.trove.place import Place
    from optrove.trove.sharing import send
    from optrove.trove.trove import open_trove

    with tempfile.TemporaryDirectory(prefix="optrove-scrubbed-") as directory:
        place = Place(path=Path(directory) / "trove.db")
        scrubber = Scrubber(names_in(reader))
        parts = scrubbed_parts(reader, scrubber)
        with open_trove(place, create=True) as trove:
            with parts.snapshot():
                for _ in send(trove, parts, trove.missing_parts(parts)):
                    continue
            with trove.reader() as answering:
                yield ScrubbedReader(answering, scrubber)


def _accounts() -> Iterator[pwd.struct_passwd]:
    """Yield the account of this process, which a container may not know."""
    try:
        yield pwd.getpwuid(os.getuid())
    except KeyError:
        return
