"""The exceptions of optrove; all are OptroveErrors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OptroveError(Exception):
    """Base class of all exceptions of optrove."""


class BadSetting(OptroveError):
    """An environment variable has an invalid value."""


class UnknownBoard(OptroveError):
    """The table of boards has no board of this name."""


class FrameworkMissing(OptroveError):
    """A framework that the request needs is not installed."""


class SimulatorMissing(OptroveError):
    """The simulator that the request needs is missing, or does not simulate the board."""


class UnusableCache(OptroveError):
    """The directory for mock boards' files cannot be written or read."""


class FrameworkTooEarly(OptroveError):
    """The framework was imported before its environment could be prepared."""


class UnusableJournal(OptroveError):
    """The files of a trace cannot be written or read."""


class AlreadyTracing(OptroveError):
    """A second trace was started in a process that is being traced."""


class BadTarget(OptroveError):
    """The program or file that was named cannot be found, run or read."""


class UnusableResults(OptroveError):
    """A file of results cannot be written."""


class NotFound(OptroveError):
    """The trove has no match for the request, or more than one."""


class NotComparable(OptroveError):
    """Two results cannot be compared: their shapes differ, or they have no numbers."""


class NoNumbers(OptroveError):
    """A tensor on a mock board was read, but no torch function could compute its numbers.

    ``cause`` is the part of the message that does not depend on the tensor.
    """

    def __init__(self, message: str, cause: str | None = None) -> None:
        super().__init__(message)
        self.cause = cause or message


class UnsupportedOnMock(OptroveError):
    """A call of ttnn would end the process on a mock board."""


class NoTrove(OptroveError):
    """There is no trove to read."""


class NotATrove(OptroveError):
    """The file or database to open is not a trove."""


class NewerTrove(OptroveError):
    """The trove was written by a newer version of optrove."""


class UnusableTrove(OptroveError):
    """The trove cannot be read or written: no permission, no space, locked, or no server."""


class NoSpace(UnusableTrove):
    """There is no space left on the disk of a trove."""


class TookTooLong(UnusableTrove):
    """A query took longer than its time limit."""


class BadQuestion(OptroveError):
    """The parameters of a web page are invalid."""


class OpenToOthers(OptroveError):
    """Pages would be served to other machines without a token."""


class UnusableCluster(OptroveError):
    """A Ray cluster cannot be reached, or has another version."""


class UnusableAddress(OptroveError):
    """The web server cannot listen at the address."""


class UnusableRelease(OptroveError):
    """A release of a package cannot be found or installed."""


class NotReplayable(OptroveError):
    """A case cannot be rebuilt or run here; this says nothing about its operation."""


class DeviceNotOpened(NotReplayable):
    """A device could not be opened, and its process may be unable to open any other."""


class UnusableWeights(OptroveError):
    """Weight files cannot be written, or their list cannot be read."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One problem of a document, and its path: ``$.arguments.b[3]``."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class BadData(OptroveError):
    """Data cannot be read or built; ``faults`` lists all problems, not just the first."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    @classmethod
    def at(cls, path: str, problem: str) -> BadData:
        """Return the error with one fault."""
        return cls((Fault(path, problem),))

    def within(self, place: str) -> BadData:
        """Return the error with ``place`` (a file, a line) before each path."""
        return type(self)(
            Fault(place if each.path == "$" else f"{place}: {each.path}", each.problem)
            for each in self.faults
        )


class BadConfig(BadData):
    """A run configuration cannot be created; paths are those of its entries."""
