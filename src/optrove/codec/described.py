"""Describe Cases as a trove keeps them: identities, canonical text, and what to search by.

The content of a Case is the ASCII JSON ``{"arguments":{name:value,...},"op":name}`` with sorted
keys and no spaces; its SHA-256 is the case_id, with nothing before or after it. The semantic_id
and the family_id are made likewise, of what ``identity`` and ``families`` leave of the arguments.

Each argument is a Part, made once and joined with others as often as it is used. Since journals
number their values, describing a Case from there costs little more than the three hashes.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from optrove.codec.decode import bad_data, read_value
from optrove.codec.parts import Part, part_of
from optrove.codec.reading import check_keys, found, read_name
from optrove.codec.tensor_facts import searchable
from optrove.codec.text import read, write
from optrove.errors import Fault
from optrove.model.case import Case
from optrove.model.trove import DescribedCase, TensorFacts
from optrove.model.walk import key_step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.codec.reading import Faults
    from optrove.model.values import Value

_MOST_KNOWN: Final = 8192


def described(op: str, parts: Iterable[tuple[str, Part]]) -> DescribedCase:
    """Return the Case of these arguments, which are in the order of their names."""
    content, semantic, family = [], [], []
    tensors: list[TensorFacts] = []
    replayable = True
    for name, part in parts:
        before = f"{_name(name)}:"
        content.append(before + part.content)
        family.append(before + part.family)
        if part.semantic is not None:
            semantic.append(before + part.semantic)
        replayable = replayable and part.replayable
        for facts in part.tensors:
            tensors.append(TensorFacts(len(tensors), searchable(name), *facts))
    end = _end(op)
    whole = _whole(content, end)
    return DescribedCase(
        case_id=_hash(whole),
        semantic_id=_hash(_whole(semantic, end)),
        family_id=_hash(_whole(family, end)),
        op=op,
        replayable=replayable,
        content=whole,
        tensors=tuple(tensors),
    )


def case_id_of(op: str, parts: Iterable[tuple[str, Part]]) -> str:
    """Return the case_id that ``described`` gives, and nothing else of it."""
    content = [f"{_name(name)}:{part.content}" for name, part in parts]
    return _hash(_whole(content, _end(op)))


def describe_case(case: Case) -> DescribedCase:
    """Return a Case as a trove keeps it; BadData for what no reader would accept."""
    return described(case.op, ((name, part_of(value)) for name, value in case.arguments))


class Descriptions:
    """Describes many Cases; arguments that repeat are made a Part once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Value, Part] = {}

    def of(self, case: Case) -> DescribedCase:
        """Return what ``describe_case`` does."""
        return described(case.op, [(name, self.part(value)) for name, value in case.arguments])

    def part(self, value: Value) -> Part:
        """Return what ``part_of`` does."""
        part = self._known.get(value)
        if part is None:
            part = part_of(value)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[value] = part
        return part


def case_of(content: str) -> Case:
    """Return the Case whose content this is; BadData names every fault with its path."""
    data = read(content)
    faults: Faults = []
    if type(data) is not dict:
        raise bad_data([Fault("$", f"expected an object, found {found(data)}")])
    check_keys(data, "$", faults, ("arguments", "op"))
    op = read_name(data.get("op"), "$.op", faults)
    arguments = data.get("arguments")
    if type(arguments) is not dict:
        faults.append(Fault("$.arguments", f"expected an object, found {found(arguments)}"))
        arguments = {}
    named = [
        (name, read_value(item, f"$.arguments{key_step(name)}", faults))
        for name, item in arguments.items()
    ]
    if faults:
        raise bad_data(faults)
    return Case(op, tuple(named))


@lru_cache(maxsize=4096)
def _name(text: str) -> str:
    return write(text)


def _end(op: str) -> str:
    return f'}},"op":{_name(op)}}}'


def _whole(arguments: list[str], end: str) -> str:
    return f'{{"arguments":{{{",".join(arguments)}{end}'


def _hash(text: str) -> str:
    return sha256(text.encode("ascii")).hexdigest()
