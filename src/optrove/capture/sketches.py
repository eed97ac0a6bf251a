"""Write ``--sketch``: how the numbers of each tensor of each call are spread, without them.

One line in the journal for each call that has tensors:

    {"sketch": op_index, "of": [{"at": "args[0]", "count": ..., "min": ..., "max": ..., "mean": ...,
                                 "std": ..., "zero_share": ..., "nan_count": ...},
                                {"at": "output", "omitted": "why its numbers mean nothing"}]}

``at`` is ``args[N]``, ``kwargs.NAME`` or ``output``; a tensor within a list or a dictionary has
``[N]`` or ``["KEY"]`` behind that. Numbers are those after the call, so that an argument that was
updated in place shows its new ones. Infinities are the strings "inf" and "-inf".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.backends.values import sketch
from optrove.capture.parameters import spelled
from optrove.errors import NoNumbers
from optrove.model.values import List, Mapping, TensorSpec, Text, Tuple, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optrove.capture.sinks import Observed
    from optrove.codec.text import Json


class Sketches:
    """The sink of ``--sketch``; OSError when the journal cannot be written.

    ``write`` appends a line to the journal of this process, which is another one after a fork.
    """

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[Json], None]) -> None:
        self._write = write

    def completed(self, observed: Observed) -> None:
        """Write the line of one call, if it has tensors."""
        found = [_sketched(at, live) for at, live in _tensors(observed)]
        if found:
            self._write({"sketch": observed.op_index, "of": found})

    def close(self) -> None:
        """Do nothing: every line is written when its call has ended."""


def _sketched(at: str, live: Any) -> dict[str, Json]:
    try:
        facts = sketch(live)
    except NoNumbers as lack:
        return {"at": at, "omitted": str(lack)}
    return {"at": at, **{name: spelled(fact) for name, fact in facts.items()}}


def _tensors(observed: Observed) -> Iterator[tuple[str, Any]]:
    """Yield every tensor of a call with its place."""
    described = observed.described
    for position, live in enumerate(observed.arguments):
        yield from _within(f"args[{position}]", live, described.inputs[position])
    for name, value in described.keywords:
        yield from _within(f"kwargs.{name}", observed.keywords[name], value)
    if described.output is not None:
        yield from _within("output", observed.result, described.output)


def _within(at: str, live: Any, value: Value) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of one argument; ``value`` is its description, and bounds the work."""
    match value:
        case TensorSpec():
            yield at, live
        case List(items) | Tuple(items) if type(live) in (list, tuple):
            for index, (each, item) in enumerate(zip(live, items, strict=True)):
                yield from _within(f"{at}[{index}]", each, item)
        case Mapping(entries) if type(live) is dict:
            for key, item in entries:
                if isinstance(key, Text) and key.value in live:
                    yield from _within(f'{at}["{key.value}"]', live[key.value], item)
        case _:
            return
