"""Every exception that optrove raises on purpose.

OptroveError
+-- BadSetting           an environment variable with a value that means nothing
+-- UnknownBoard         the name is not in the table of boards
+-- FrameworkMissing     ttnn or torch is needed and not installed
+-- UnusableCache        the directory for mock boards' files cannot be used
+-- FrameworkTooEarly    ttnn was imported before the mock board was set up
+-- UnusableJournal      the files of a trace cannot be written or read
+-- AlreadyTracing       this process is being traced, and a second trace was begun
+-- NothingTraced        a trace without a single call
+-- BadTarget            what was to be traced cannot be found or run
+-- UnusableResults      the file for the results of tests cannot be appended to
+-- NotFound             a trove holds nothing of what was asked for, or more than one of it
+-- NotComparable        two things whose difference means nothing were to be compared
+-- NoNumbers            a mock tensor was read whose numbers nothing could compute
+-- NoTrove              there is no trove where one was to be read
+-- NotATrove            what is there is something else
+-- NewerTrove           the trove was written by a later optrove
+-- UnusableTrove        the trove cannot be read or written now: no rights, no space, locked, gone
|   +-- TookTooLong      a question took longer than whoever asks was ready to wait
+-- BadQuestion          a page was asked for with parameters that mean nothing
+-- OpenToOthers         a page was to be served to other machines without a token
+-- UnusableCluster      a Ray cluster cannot be reached
+-- UnusableAddress      the address to serve pages at cannot be had
+-- NotReplayable        a case cannot be rebuilt or run here; says where and why
+-- UnusableWeights      weight files that cannot be written, or whose list cannot be read
+-- BadData              data that cannot be read or built; lists every fault with its path
    +-- BadConfig        a run configuration that cannot be created; lists every fault likewise
"""

from __future__ import annotations

from dataclasses import dataclass


class OptroveError(Exception):
    """Base of all errors that optrove raises on purpose."""


class BadSetting(OptroveError):
    """An environment variable that cannot be understood."""


class UnknownBoard(OptroveError):
    """A board name that is not in the table."""


class FrameworkMissing(OptroveError):
    """A framework that the request needs is not installed."""


class UnusableCache(OptroveError):
    """The directory for mock boards' files cannot be written or read."""


class FrameworkTooEarly(OptroveError):
    """The framework was imported before its environment could be prepared."""


class UnusableJournal(OptroveError):
    """The files of a trace cannot be written or read."""


class AlreadyTracing(OptroveError):
    """A second trace was begun in a process that is being traced."""


class NothingTraced(OptroveError):
    """A trace ended without a single call."""


class BadTarget(OptroveError):
    """What was to be traced cannot be found or run."""


class UnusableResults(OptroveError):
    """The file for the results of tests cannot be appended to."""


class NotFound(OptroveError):
    """What was asked for is not in the trove, or stands for more than one thing in it."""


class NotComparable(OptroveError):
    """Two things whose difference means nothing: of other shapes, or without numbers."""


class NoNumbers(OptroveError):
    """A tensor on a mock board was read, and no torch function could compute its numbers."""


class NoTrove(OptroveError):
    """There is no trove where one was to be read."""


class NotATrove(OptroveError):
    """What was to be opened as a trove is something else."""


class NewerTrove(OptroveError):
    """A trove of a version that this optrove does not know yet."""


class UnusableTrove(OptroveError):
    """A trove that cannot be read or written now: no rights, no space, locked, server gone."""


class TookTooLong(UnusableTrove):
    """A question took longer than whoever asks was ready to wait."""


class BadQuestion(OptroveError):
    """A page was asked for with parameters that mean nothing."""


class OpenToOthers(OptroveError):
    """A page was to be served to other machines without a token."""


class UnusableCluster(OptroveError):
    """A Ray cluster that cannot be reached, or is of another version."""


class UnusableAddress(OptroveError):
    """The address to serve pages at cannot be had."""


class NotReplayable(OptroveError):
    """A case that cannot be rebuilt or run here; says nothing about its operation."""


class UnusableWeights(OptroveError):
    """Weight files that cannot be written, or a list of them that cannot be read."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a document, and where: ``$.arguments.b[3]``."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class BadData(OptroveError):
    """Data that cannot be read or built; ``faults`` names all of them, not just the first."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(str(fault) for fault in faults))


class BadConfig(BadData):
    """A run configuration that cannot be created; paths are those of its entries."""
