"""Keep the real tensors of chosen calls: the inputs before the call, the outputs after it.

The inputs are in files, and a line in the journal refers to them, before the call is made: after
a crash or a hang they can be replayed. The files survive the end of the process, not a power cut.
What cannot be kept costs the capsule, never the call, and is counted by its reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NoNumbers
from optrove.frameworks.kept_tensors import document_of, extremeness, read_tensors
from optrove.journal.capsules import Budget, TensorFiles, digest_of, packed
from optrove.model.capsules import EVERY, FIRST, WORST
from optrove.model.ops import op_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from optrove.model.capsules import CapsuleChoice
    from optrove.model.case import Case
    from optrove.model.values import Value
    from optrove.serializer.text import Json

FOLDER: Final = "capsules"
_BUDGET: Final = "used"

_OVER_LIMIT: Final = "over the limit of {limit:,} bytes; raise --capsule-limit"
RESERVE: Final = 32_000_000
"""The bytes of a disk that capsules leave free for the journal and the trove."""

_ALMOST_FULL: Final = f"the disk is almost full: capsules leave {RESERVE:,} bytes of it free"


@dataclass(slots=True)
class _Kept:
    """The capsules of one case: how many calls there were, and the worst one that is kept."""

    calls: int = 0
    score: tuple[bool, float] | None = None
    digests: list[str] = field(default_factory=list)


class Capsules:
    """The capsules of one process; used from any thread, and never raises.

    ``write`` appends a line to the journal of the process.
    """

    def __init__(
        self, directory: Path, process: str, choice: CapsuleChoice, write: Callable[[Json], None]
    ) -> None:
        self.omitted: Counter[str] = Counter()
        self.count = 0
        self._choice = choice
        self._files = TensorFiles(directory / FOLDER / process)
        self._budget = Budget(directory / FOLDER / _BUDGET, choice.limit)
        self._write = write
        self._patterns = tuple(map(op_pattern, choice.ops))
        self._by_case: dict[str, _Kept] = {}
        self._uses: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self._lock = RLock()

    def wants(self, op: str) -> bool:
        """Return whether calls of an op may get a capsule."""
        if self._choice.cases or not self._patterns:
            return True
        return any(pattern.fullmatch(op) for pattern in self._patterns)

    def inputs(self, case: Case, case_id: str, live: Mapping[str, Any]) -> Any:
        """Keep the inputs of a call before it is made; return the argument of ``begun``."""
        with self._lock:
            kept = self._by_case.setdefault(case_id, _Kept())
            kept.calls += 1
            if not self._is_chosen(case, case_id, kept):
                return None
            found = self._tensors(dict(case.arguments), dict(live))
            if not found:
                return None
            if self._choice.policy == WORST:
                score = extremeness(found)
                if kept.score is not None and score <= kept.score:
                    return None
                kept.score = score
            stored = self._store(found)
            return None if stored is None else (kept, stored)

    def begun(self, inputs: Any, op_index: int) -> None:
        """Refer to the inputs of a call in the journal."""
        kept, stored = inputs
        with self._lock:
            self._line({"capsule": op_index, "inputs": stored})
            superseded, kept.digests = kept.digests, _digests(stored)
            if self._choice.policy == WORST and superseded:
                self._drop(superseded)
            else:
                self.count += 1

    def outputs(self, inputs: Any, op_index: int, value: Value, result: Any) -> None:
        """Keep the result of a call that got a capsule."""
        kept, _ = inputs
        with self._lock:
            found = self._tensors({"result": value}, {"result": result})
            stored = None if found is None else self._store(found)
            if stored is not None:
                kept.digests += _digests(stored)
                self._line({"capsule": op_index, "outputs": stored})

    def ending(self) -> Json:
        """Return the counts for the end of the journal."""
        return {"kept": self.count, "bytes": sum(self._sizes.values()), "omitted": self.omitted}

    def _is_chosen(self, case: Case, case_id: str, kept: _Kept) -> bool:
        choice = self._choice
        named = any(pattern.fullmatch(case.op) for pattern in self._patterns)
        named = named or any(case_id.startswith(beginning) for beginning in choice.cases)
        if (choice.cases or choice.ops) and not named:
            return False
        if choice.policy == FIRST:
            return kept.calls == 1
        return choice.policy != EVERY or (kept.calls - 1) % choice.interval == 0

    def _tensors(
        self, described: dict[str, Value], live: dict[str, Any]
    ) -> dict[str, list[Any]] | None:
        try:
            return read_tensors(described, live)
        except NoNumbers as lack:
            self.omitted[lack.cause] += 1
        return None

    def _store(self, tensors: dict[str, list[Any]]) -> dict[str, list[str]] | None:
        stored: dict[str, list[str]] = {}
        for key, parts in tensors.items():
            digests: list[str] = []
            for part in parts:
                digest = self._put(document_of(part))
                if digest is None:
                    self._drop(_digests(stored) + digests)
                    return None
                digests.append(digest)
            stored[key] = digests
        return stored

    def _put(self, document: bytes) -> str | None:
        digest = digest_of(document)
        if not self._uses[digest]:
            content, suffix = packed(document)
            try:
                if not self._budget.take(len(content)):
                    self.omitted[_OVER_LIMIT.format(limit=self._choice.limit)] += 1
                    return None
                if self._budget.free_bytes() < RESERVE + len(content):
                    self._budget.give_back(len(content))
                    self.omitted[_ALMOST_FULL] += 1
                    return None
                try:
                    self._files.write(digest, content, suffix)
                except OSError:
                    self._budget.give_back(len(content))
                    raise
            except OSError as error:
                self.omitted[f"the disk: {error.strerror or error}"] += 1
                return None
            self._sizes[digest] = len(content)
        self._uses[digest] += 1
        return digest

    def _drop(self, digests: list[str]) -> None:
        """Remove tensors that no capsule of this process uses any more."""
        for digest in digests:
            self._uses[digest] -= 1
            if not self._uses[digest]:
                self._files.remove(digest)
                self._budget.give_back(self._sizes.pop(digest))

    def _line(self, data: Json) -> None:
        try:
            self._write(data)
        except OSError as error:
            self.omitted[f"the journal: {error.strerror or error}"] += 1


def _digests(stored: Mapping[str, list[str]]) -> list[str]:
    return [digest for parts in stored.values() for digest in parts]
