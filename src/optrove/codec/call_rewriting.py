"""Change what the calls of a journal refer to, in a dictionary of calls, and keep the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from optrove.codec.call_blocks import TABLES, Dictionary, pack_dictionary
from optrove.codec.decode import decode
from optrove.codec.text import write
from optrove.codec.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optrove.codec.text import Json
    from optrove.model.values import Value


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes of the texts, files, test ids, Values and Cases that calls refer to."""

    text: Callable[[str], str]
    file: Callable[[str], str]
    test: Callable[[str], str]
    value: Callable[[Value], Value]
    cases: Mapping[str, str]


def rewritten(packed: bytes, changes: Changes) -> bytes:
    """Return a dictionary of calls with the changes; BadData when it is none."""
    dictionary = Dictionary(packed)
    make: dict[str, Callable[[Json], Json]] = {
        "cases": lambda case_id: changes.cases.get(case_id, case_id),
        "outputs": lambda values: [encode(changes.value(decode(value))) for value in values],
        "errors": changes.text,
        "sites": lambda site: [changes.file(site[0]), *site[1:]],
        "reasons": lambda reason: [reason[0], *map(changes.text, reason[1:])],
        "scopes": lambda scope: _scope(scope, changes),
        "sketches": lambda sketch: sketch,
    }
    tables = {
        name: {int(number): write(make[name](entry)) for number, entry in dictionary.table(name)}
        for name in TABLES
    }
    return pack_dictionary(dictionary.numbers, tables)


def _scope(scope: Json, changes: Changes) -> Json:
    test = {"test_id": changes.test(scope["test_id"])} if "test_id" in scope else {}
    module = {"module": changes.text(scope["module"])} if "module" in scope else {}
    return {**scope, **test, **module}
