"""Take paths, host names and user names out of texts, Values and records.

The rule, which the documentation promises:

- A path from the root of a file system, from a home directory (``~``) or from a Windows drive keeps
  its last part only: ``<path>/test_model.py``. Within an installation of Python it keeps its place
  there: ``<python>/ttnn/operations/binary.py``. A home directory itself becomes ``<path>``.
- A URL becomes ``<url>``, and ``name@host`` becomes ``<user>@<host>``.
- The names of hosts and users that are given become ``<host>`` and ``<user>`` wherever they stand
  as words, whatever their case.
- Command lines are left out, and so is the host of an environment.

All else stays, relative paths included. What is scrubbed once stays the same when scrubbed again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from optrove.model.case import Case
from optrove.model.rewrite import rewrite
from optrove.model.scrubbed_paths import is_absolute, shortened, without_paths
from optrove.model.values import Bytes, Callable, Opaque, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.model.case import NamedValues
    from optrove.model.records import Attempt, Environment, Run, Sweep, TestResult
    from optrove.model.values import Value

COMMON: Final = frozenset(
    {
        *("admin", "administrator", "build", "builder", "ci", "debian", "default", "dev"),
        *("developer", "docker", "ec2-user", "guest", "home", "host", "localhost", "nobody"),
        *("none", "path", "postgres", "public", "python", "root", "runner", "shared", "test"),
        *("tester", "ubuntu", "unknown", "url", "user", "users", "vagrant", "worker"),
    }
)
"""Names of accounts and hosts that many machines have, and that tell nothing."""

SHORTEST: Final = 3
"""Shorter names are taken out of paths only: they would be found in everything."""

_SUSPECT: Final = re.compile(r"[/\\~@]")
_BELOW: Final = r"((?:[\\/]+[^\s/\\:;,\"'`<>|()\[\]{}*?]+)*)[\\/]*"


@dataclass(frozen=True, slots=True)
class Names:
    """The hosts and users that are to be told of nowhere, and home directories."""

    hosts: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    homes: frozenset[str] = frozenset()


class Scrubber:
    """Scrubs texts, Values and records by the rule of this module."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def text(self, text: str) -> str:
        """Return a text without what is to be taken out."""
        if _SUSPECT.search(text):
            text = self._homes.sub(_below, text) if self._names.homes else text
            text = without_paths(text)
        return self._words.sub(self._placeholder, text) if self._known else text

    def text_or_none(self, text: str | None) -> str | None:
        """Return the same of a text that may not be there."""
        return None if text is None else self.text(text)

    def file(self, path: str) -> str:
        """Return the same of a text that is one path as a whole, blanks in it included."""
        return self.text(shortened(path) if is_absolute(path) else path)

    def value(self, value: Value) -> Value:
        """Return a Value whose texts are scrubbed, at whatever depth."""
        return rewrite(value, self._part)

    def named(self, values: NamedValues) -> NamedValues:
        """Return the same of Values by name; the names stay."""
        return tuple((name, self.value(value)) for name, value in values)

    def case(self, case: Case) -> Case:
        """Return a Case with scrubbed arguments."""
        return Case(case.op, self.named(case.arguments))

    def concerns(self, content: str) -> bool:
        """Tell whether there may be anything to scrub in the JSON of something."""
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
        """Return a Run of which only what it ran is told."""
        return replace(
            run,
            source=self.source(run.source),
            model=None if run.model is None else self.source(run.model),
            environment=self.environment(run.environment),
        )

    def source(self, source: str) -> str:
        """Return what was run, ``path [HF_MODEL:name]`` or ``path::test``."""
        head, separator, rest = source.partition(" [HF_MODEL:")
        path, colons, test = head.partition("::")
        return self.file(path) + self.text(colons + test + separator + rest)

    def test(self, result: TestResult) -> TestResult:
        """Return the result of a test."""
        return replace(
            result,
            test_id=self.source(result.test_id),
            module=self.text_or_none(result.module),
            parameters=self.named(result.parameters),
            properties=self.named(result.properties),
            error=self.text_or_none(result.error),
        )

    def attempt(self, attempt: Attempt) -> Attempt:
        """Return an Attempt; the Case that it is of stays the same."""
        return replace(
            attempt,
            detail=self.text_or_none(attempt.detail),
            notes=tuple(map(self.text, attempt.notes)),
            outputs=tuple(map(self.value, attempt.outputs)),
        )

    def sweep(self, sweep: Sweep) -> Sweep:
        """Return what a sweep was asked for."""
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
        """The names to be replaced, in lower case, with what stands for them."""
        hosts = _telling(_hosts(self._names.hosts))
        return {
            **dict.fromkeys(_telling(self._names.users), "<user>"),
            **dict.fromkeys(hosts, "<host>"),
        }

    @cached_property
    def _words(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, sorted(self._known, key=len, reverse=True)))
        # A word begins after what is no letter, or with a capital after a small one, as Words do.
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


def _telling(names: Iterable[str]) -> Iterator[str]:
    lower = {name.lower() for name in names}
    return (name for name in lower if len(name) >= SHORTEST and name not in COMMON)


def _below(found: re.Match[str]) -> str:
    return shortened(found[0]) if found[1] else "<path>"
