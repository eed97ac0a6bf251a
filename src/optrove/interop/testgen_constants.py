"""Name the long configurations of a generated file, and put each into it once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from optrove.interop.testgen_layout import WIDTH, flat, laid_out, prefixed
from optrove.interop.testgen_spelling import spelled
from optrove.model.values import Int, List, Struct, Symbol, Tuple, Value

if TYPE_CHECKING:
    from optrove.interop.testgen_layout import Expression

_LONGEST: Final = 60
"""Longer ones are named."""

_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NEEDLESS: Final = ("_PROGRAM_CONFIG", "_KERNEL_CONFIG", "_CONFIG")


class Constants:
    """The constants of one file, in the order in which they are first used."""

    def __init__(self) -> None:
        self._expressions: dict[str, Expression] = {}
        self._names: dict[Struct, str] = {}

    def use(self, value: Struct, path: str) -> Expression:
        """Return a struct as an expression: the name of a constant if it is long."""
        if value in self._names:
            return self._names[value]
        expression = spelled(value, path)
        if len(flat(expression)) <= _LONGEST:
            return expression
        name = self._unused(constant_name(value))
        self._names[value] = name
        self._expressions[name] = expression
        return name

    def lines(self) -> list[str]:
        """Return the assignments, one text each."""
        return [_assignment(name, expression) for name, expression in self._expressions.items()]

    def _unused(self, name: str) -> str:
        number = 1
        found = name
        while found in self._expressions:
            number += 1
            found = f"{name}_{number}"
        return found


def _assignment(name: str, expression: Expression) -> str:
    whole = laid_out(prefixed(f"{name} = ", expression))
    if len(whole.partition("\n")[0]) <= WIDTH:
        return whole
    return f"{name} = (\n    {laid_out(expression, 4)}\n)"


def constant_name(value: Struct) -> str:
    """Return what a configuration could be called: ``L1_WIDTH_SHARDED_32X288_ON_8X1``."""
    fields = dict(value.fields)
    match fields:
        case {"buffer_type": Symbol(name=buffer), "memory_layout": Symbol(name=layout)}:
            return "_".join([buffer, layout, *_shards(fields.get("shard_spec"))])
        case {"math_fidelity": Symbol(name=fidelity)}:
            return f"COMPUTE_{fidelity.upper()}"
    name = _WORDS.sub("_", value.type.rpartition(".")[2]).upper()
    for needless in _NEEDLESS:
        name = name.removesuffix(needless) or name
    return name


def _shards(shard: Value | None) -> list[str]:
    if not isinstance(shard, Struct):
        return []
    fields = dict(shard.fields)
    parts = []
    match fields.get("shape"):
        case List(items) | Tuple(items):
            parts.append("X".join(str(item.value) for item in items if isinstance(item, Int)))
    match fields.get("grid"):
        case Struct(fields=((_, List((Struct() as only,))),)):
            parts += _extent(only)
    return parts


def _extent(part: Struct) -> list[str]:
    """Return how many columns and rows of cores a range has."""
    match dict(part.fields):
        case {"start": Struct(fields=first), "end": Struct(fields=last)}:
            begin, end = dict(first), dict(last)
        case _:
            return []
    sizes = []
    for axis in ("x", "y"):
        low, high = begin.get(axis), end.get(axis)
        if not isinstance(low, Int) or not isinstance(high, Int):
            return []
        sizes.append(str(high.value - low.value + 1))
    return [f"ON_{'X'.join(sizes)}"]
