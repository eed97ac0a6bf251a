"""The rows of a trove as they are, by ids that mean the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from optrove.model.trove import CallBlock, DescribedCase


class StoredEnvironment(NamedTuple):
    """A row of ``environments`` without its key."""

    environment_id: str
    device_kind: str
    board: str | None
    arch: str | None
    ttnn_version: str | None
    torch_version: str | None
    git_sha: str | None
    content: str


class StoredRun(NamedTuple):
    """A row of ``runs`` without its key, and with its environment."""

    run_id: str
    kind: str
    source: str
    model: str | None
    environment: StoredEnvironment
    started_at: str
    finished_at: str | None
    machine: str
    content: str

    @property
    def rank(self) -> tuple[bool, str, str, str]:
        """What decides which of two is kept when they have the same id: the greater."""
        return (
            self.finished_at is not None,
            self.content,
            self.environment.content,
            self.machine,
        )


class Head(NamedTuple):
    """What identifies a Recording, and decides which of two is kept: that of the greater rank."""

    run_id: str
    process: int
    complete: bool
    calls: int
    size: int
    digest: str

    @property
    def rank(self) -> tuple[bool, int, int, str]:
        """What decides which of two is kept when they are the same part of the same Run."""
        return self.complete, self.calls, self.size, self.digest


class Grouped(NamedTuple):
    """What calls have in common that are counted together; ids are those of other tables."""

    case_id: str
    scope_id: str | None
    ending_id: str | None
    outcome: str
    outermost: bool


class Counted(NamedTuple):
    """How many calls there are in a group, and how long they took."""

    calls: int
    total_ns: int | None
    shortest_ns: int | None
    longest_ns: int | None


class StoredEnding(NamedTuple):
    """A row of ``endings`` without its key."""

    ending_id: str
    raised: bool
    content: str


class StoredScope(NamedTuple):
    """A row of ``scopes`` without its key."""

    scope_id: str
    test_id: str | None
    phase: str | None
    module: str | None
    mode: str | None
    device: str | None


class StoredConfigCalls(NamedTuple):
    """A row of ``config_calls`` without the Recording and the place, and with the Case's id."""

    path: str
    case_id: str
    calls: int


class StoredPlanned(NamedTuple):
    """A row of ``planned`` without the Run and the place, and with the Case's id."""

    case_id: str
    suite: str | None
    device_kind: str
    board: str | None


class StoredSweep(NamedTuple):
    """A row of ``sweeps`` without the Run; of two for the same Run the greater is kept."""

    plan_id: str
    content: str


class StoredTest(NamedTuple):
    """A row of ``tests`` without the Recording and the place."""

    test_id: str
    outcome: str
    content: str


Describe: TypeAlias = "Callable[[Sequence[str]], Iterable[DescribedCase]]"
"""Gives Cases by their ids."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A whole Recording; ``executions`` are sorted, and refer to scopes, endings and cases here.

    ``described`` gives Cases by their ids; it is asked only for those that a trove does not know.
    """

    head: Head
    run: StoredRun
    executions: Sequence[tuple[Grouped, Counted]]
    described: Describe
    scopes: Mapping[str, StoredScope]
    endings: Mapping[str, StoredEnding]
    tests: Sequence[StoredTest] = ()
    dictionary: bytes | None = None
    blocks: Iterable[CallBlock] = ()
    config_calls: Sequence[StoredConfigCalls] = ()
