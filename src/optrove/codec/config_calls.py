"""Read which entries of run configurations the calls of a journal got their arguments from."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from optrove.codec import journal as layout
from optrove.errors import BadData, Fault, UnusableJournal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STRETCH: Final = 16_384
_WORDS: Final = layout.RECORD_SIZE // 8
_ENTERED: Final = 2


def marked_calls(lines: Path, records: int) -> Counter[tuple[int, int]]:
    """Return how many calls have each pair of an entry's number and the first word of a record.

    Only the first ``records`` are read. A journal without such calls has none of these.
    """
    path = layout.configs_beside(lines)
    found: Counter[tuple[int, int]] = Counter()
    try:
        with path.open("rb") as marks, layout.calls_beside(lines).open("rb") as calls:
            if not marks.read(layout.HEADER_SIZE).startswith(layout.CONFIGS_MAGIC):
                fault = Fault("$", f"{path} does not begin as it should; was it overwritten?")
                raise BadData((fault,))
            calls.seek(layout.HEADER_SIZE)
            for each in _stretches(marks, calls, records):
                found.update(each)
    except FileNotFoundError:
        return found
    except OSError as error:
        raise UnusableJournal(f"the configurations {path} cannot be read: {error}") from error
    return found


def _stretches(marks: Any, calls: Any, records: int) -> Iterator[list[tuple[int, int]]]:
    for first in range(0, records, _STRETCH):
        count = min(_STRETCH, records - first)
        numbers = array("I", _whole(marks.read(count * layout.MARK.size), layout.MARK.size))
        content = _whole(calls.read(count * layout.RECORD_SIZE), layout.RECORD_SIZE)
        words = array("Q", content)
        entered = words[_ENTERED::_WORDS]
        yield [
            (number, word)
            for number, word, begun in zip(numbers, words[::_WORDS], entered, strict=False)
            if number and begun
        ]


def _whole(content: bytes, size: int) -> bytes:
    return content[: len(content) - len(content) % size]
