"""Read the calls file of a journal once: packed blocks, groups of like calls, and a digest."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from optrove.codec import journal as layout
from optrove.codec.call_columns import BLOCK_CALLS, Columns, columns_of, pack
from optrove.errors import BadData, Fault, UnusableJournal
from optrove.model.records import CallOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from optrove.model.trove import CallBlock

OUTCOMES: Final = {
    0: CallOutcome.UNFINISHED,
    layout.RETURNED: CallOutcome.RETURNED,
    layout.RAISED: CallOutcome.RAISED,
}
KINDS: Final = frozenset((layout.CASE, layout.OPAQUE, layout.FILTERED, layout.UNTRACEABLE))

_Key: TypeAlias = tuple[int, int, int, int]
_ENTERED: Final = 2
_WORDS: Final = layout.RECORD_SIZE // 8
_TAIL: Final = 16_384


class Tally(NamedTuple):
    """How many calls agree in something, and how long they took."""

    calls: int
    total_ns: int
    shortest_ns: int
    longest_ns: int

    def and_also(self, other: Tally | None) -> Tally:
        """Return the tally of these calls and others."""
        if other is None:
            return self
        return Tally(
            self.calls + other.calls,
            self.total_ns + other.total_ns,
            min(self.shortest_ns, other.shortest_ns),
            max(self.longest_ns, other.longest_ns),
        )


@dataclass(slots=True)
class CallScan:
    """What one pass over a calls file has found, once ``blocks`` is exhausted."""

    path: Path
    records: int
    """How many records there are up to the last that had begun."""
    lost: int
    calls: int = 0
    digest: str = ""
    sites: set[int] = field(default_factory=set)
    tallies: dict[_Key, Tally] = field(default_factory=dict)

    def blocks(self) -> Iterator[CallBlock]:
        """Yield all calls in packed form; BadData for records that are none."""
        hashed = sha256(layout.LOST.pack(self.lost))
        try:
            with self.path.open("rb") as stream:
                stream.seek(layout.HEADER_SIZE)
                for first in range(0, self.records, BLOCK_CALLS):
                    count = min(BLOCK_CALLS, self.records - first)
                    records = _whole(stream.read(count * layout.RECORD_SIZE))
                    hashed.update(records)
                    for columns in _stretches(records, first):
                        self._count(columns)
                        yield pack(columns)
        except OSError as error:
            raise _unusable(self.path, error) from error
        self.digest = hashed.hexdigest()

    def _count(self, columns: Columns) -> None:
        self.calls += len(columns)
        self.sites.update(columns.sites)
        alike: defaultdict[_Key, list[int]] = defaultdict(list)
        keys = zip(columns.words, columns.scopes, columns.endings, columns.outcomes, strict=True)
        for key, took in zip(keys, columns.took, strict=True):
            alike[key].append(took)
        for key, times in alike.items():
            before = self.tallies.get(key)
            if before is None:
                _check(key)
            tally = Tally(len(times), sum(times), min(times), max(times))
            self.tallies[key] = tally.and_also(before)


def begin_scan(path: Path) -> CallScan:
    """Look how many calls a calls file holds by now; UnusableJournal when it cannot be read."""
    try:
        with path.open("rb") as stream:
            header = stream.read(layout.HEADER_SIZE)
            lost = layout.lost_in(header)
            return CallScan(path, _begun(stream), lost)
    except OSError as error:
        raise _unusable(path, error) from error


def _begun(stream: Any) -> int:
    """Return the number of records up to the last that has begun; files are longer than that."""
    end = (stream.seek(0, 2) - layout.HEADER_SIZE) // layout.RECORD_SIZE
    while end > 0:
        begin = max(0, end - _TAIL)
        stream.seek(layout.HEADER_SIZE + begin * layout.RECORD_SIZE)
        entered = _entered(_whole(stream.read((end - begin) * layout.RECORD_SIZE)))
        for place in range(len(entered) - 1, -1, -1):
            if entered[place]:
                return int(begin + place + 1)
        end = begin
    return 0


def _whole(records: bytes) -> bytes:
    """Return what there is of whole records, should the file be cut off meanwhile."""
    return records[: len(records) - len(records) % layout.RECORD_SIZE]


def _entered(records: bytes) -> array[int]:
    return array("Q", records)[_ENTERED::_WORDS]


def _stretches(records: bytes, first: int) -> Iterator[Columns]:
    """Yield the records that have begun; a place that was taken and never used parts them."""
    entered = _entered(records).tolist()
    begin = 0
    while begin < len(entered):
        end = _next_unused(entered, begin)
        if end > begin:
            size = layout.RECORD_SIZE
            yield columns_of(records[begin * size : end * size], first + begin)
        begin = end + 1


def _next_unused(entered: list[int], begin: int) -> int:
    try:
        return entered.index(0, begin)
    except ValueError:
        return len(entered)


def _check(key: _Key) -> None:
    word, _, _, outcome = key
    if outcome not in OUTCOMES or layout.kind_of(word) not in KINDS:
        fault = Fault("calls", "a record of no known kind or outcome; was the file overwritten?")
        raise BadData((fault,))


def _unusable(path: Path, error: OSError) -> UnusableJournal:
    return UnusableJournal(f"the calls {path} cannot be read: {error}")
