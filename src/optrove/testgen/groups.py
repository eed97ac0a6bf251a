"""Put cases together that one test function can call, and say how it calls the operation.

Cases of a group have the same op, the same arguments of the same kinds, and run on the same
device. Arguments that are equal in all of them stand in the call; the others are parameters.
"""

from __future__ import annotations

import keyword
from collections import defaultdict
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from optrove.model.values import (
    DeviceRef,
    Handle,
    Null,
    Struct,
    Symbol,
    TensorSpec,
    Value,
    key_step,
    walk,
)
from optrove.testgen.spelling import flat, spelled
from optrove.testgen.tensors import Opening, holds_tensors, opening_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from optrove.testgen.cases import Recorded

LEADING: Final = (
    ("self",),
    ("grad_tensor", "input_tensor_a", "input_tensor_b"),
    ("grad_tensor", "input_tensor"),
    ("output_grad", "input"),
    ("cache_tensor", "input_tensor"),
    ("cache", "input"),
    ("input_tensor_q", "input_tensor_k", "input_tensor_v"),
    ("input_tensor_a", "input_tensor_b"),
    ("input_a", "input_b"),
    ("input_tensor", "starts", "ends", "slice_step"),
    ("input_tensor", "starts", "ends", "steps"),
    ("input_tensor", "slice_start", "slice_end", "slice_step"),
    ("input_tensor", "grid", "shard_shape", "shard_scheme", "shard_orientation"),
    ("input_tensor", "logical_shape", "padded_shape"),
    ("input_tensor",),
    ("input",),
    ("tensor",),
    ("tensors",),
)
"""Parameters that come first in ttnn's signatures, and are passed by place as people do.

Golden functions may call them otherwise; and of overloads that differ in types only, a recording
may have another one's names. Of the rows that begin with the first name that is there, the one
is taken of which most is there."""

BY_NAME_ONLY: Final = frozenset(
    {
        "ttnn.conv1d",
        "ttnn.conv2d",
        "ttnn.conv_transpose2d",
        "ttnn.experimental.conv3d",
        "ttnn.experimental.deepseek_prefill.outbound_socket_service_sync",
        "ttnn.experimental.quasar.conv2d",
        "ttnn.experimental.queue_tensor_prefetcher_request",
        "ttnn.indexed_fill",
        "ttnn.interleaved_to_sharded_partial",
        "ttnn.moreh_norm_backward",
        "ttnn.moreh_sum_backward",
        "ttnn.sharded_to_interleaved_partial",
    }
)
"""Operations that take these parameters in another order, or by name only."""

_METHODS: Final = "ttnn.Tensor."
_RESERVED: Final = frozenset(
    {"call", "check", "computes", "device", "make", "output", "partial", "pytest", "torch", "ttnn"}
)
_BUILTIN: Final = frozenset(
    {"abs", "all", "any", "bool", "bytes", "complex", "dict", "dir", "filter", "float", "format"}
    | {"hash", "id", "input", "int", "iter", "len", "list", "map", "max", "min", "next", "object"}
    | {"open", "pow", "print", "range", "repr", "reversed", "round", "set", "slice", "sorted"}
    | {"str", "sum", "super", "tuple", "type", "vars", "zip"}
)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a group's calls; without ``keyword`` it is passed by place.

    ``alias`` is the argument that is the very same tensor. ``is_tensor`` holds for lists of
    tensors, too. A ``live`` one needs the open device to be made. Without ``varies`` it is the
    same in all cases.
    """

    name: str
    variable: str
    keyword: str | None
    is_tensor: bool
    live: bool
    varies: bool
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that one test function calls, most called first."""

    op: str
    opening: Opening
    arguments: tuple[Argument, ...]
    cases: tuple[Recorded, ...]

    @property
    def parameters(self) -> tuple[Argument, ...]:
        """The arguments that differ from case to case, and all tensors."""
        return tuple(each for each in self.arguments if each.varies and each.alias is None)


def grouped(cases: Iterable[Recorded]) -> list[Group]:
    """Return the groups of some cases, in the order of their first ones."""
    found: defaultdict[object, list[Recorded]] = defaultdict(list)
    for each in cases:
        found[_key(each)].append(each)
    return [_group(tuple(members)) for members in found.values()]


def _key(recorded: Recorded) -> object:
    case = recorded.case
    kinds = tuple((name, _kind(name, value)) for name, value in case.arguments)
    opening = opening_of(recorded.device, case.op)
    aliases = tuple(sorted(_aliases(case.arguments).items()))
    return case.op, opening, recorded.places, recorded.roles, kinds, aliases


def _kind(name: str, value: Value) -> str:
    """Return what is alike in the values of one argument of a group."""
    if isinstance(value, TensorSpec):
        return "tensor"
    if holds_tensors(value):
        return "tensors"
    if is_live(value):
        return f"live {flat(spelled(value, f'$.arguments{key_step(name)}'))}"
    return type(value).__name__


def is_live(value: Value) -> bool:
    """Tell whether a value can only be made with an open device."""
    return any(isinstance(part, (DeviceRef, Handle)) for _, part in walk(value))


def _aliases(arguments: tuple[tuple[str, Value], ...]) -> dict[str, str]:
    """Return which arguments are the very same tensor as another one."""
    first: dict[int, str] = {}
    found = {}
    for name, value in arguments:
        if isinstance(value, TensorSpec):
            owner = first.setdefault(value.identity, name)
            if owner != name:
                found[name] = owner
    return found


def _group(members: tuple[Recorded, ...]) -> Group:
    case = members[0].case
    values = dict(case.arguments)
    aliases = _aliases(case.arguments)
    places = members[0].places or _leading(case.op, values)
    ordered = [*places, *sorted((name for name in values if name not in places), key=_rank(values))]
    variables = _variables(ordered, dict(members[0].roles))
    varying = {
        name for name, value in values.items() if holds_tensors(value) or _varies(members, name)
    }
    if not varying:
        varying = set([name for name in ordered if not is_live(values[name])][:1])
    arguments = tuple(
        Argument(
            name=name,
            variable=variables[name],
            keyword=None if name in places else name,
            is_tensor=holds_tensors(values[name]),
            live=is_live(values[name]),
            varies=name in varying,
            alias=aliases.get(name),
        )
        for name in ordered
    )
    return Group(case.op, opening_of(members[0].device, case.op), arguments, members)


def _varies(members: tuple[Recorded, ...], name: str) -> bool:
    if is_live(dict(members[0].case.arguments)[name]):
        return False
    return len({dict(each.case.arguments)[name] for each in members}) > 1


def _leading(op: str, values: dict[str, Value]) -> tuple[str, ...]:
    """Return the arguments that are passed by place."""
    if op in BY_NAME_ONLY:
        return ()
    first = leading_of(values)
    rest = [name for name in values if name not in first]
    lone = rest if op.startswith(_METHODS) and len(rest) == 1 else []
    return (*first, *lone)


def leading_of(names: Collection[str]) -> tuple[str, ...]:
    """Return those of some parameters that are passed by place."""
    begin = next((row[0] for row in LEADING if row[0] in names), None)
    rows = [row for row in LEADING if row[0] == begin]
    return max((tuple(takewhile(names.__contains__, row)) for row in rows), key=len, default=())


def _rank(values: dict[str, Value]) -> Callable[[str], tuple[int, str]]:
    """Return what orders arguments that go by name: tensors, numbers, symbols, structs, ..."""

    def rank(name: str) -> tuple[int, str]:
        value = values[name]
        if holds_tensors(value):
            return 0, name
        if is_live(value):
            return 4, name
        if isinstance(value, (Struct, Symbol)):
            return 3 if isinstance(value, Struct) else 2, name
        return (5 if isinstance(value, Null) else 1), name

    return rank


def _variables(names: Iterable[str], roles: Mapping[str, str]) -> dict[str, str]:
    """Return names for the parameters of a test function, each once."""
    found: dict[str, str] = {}
    for name in names:
        variable = roles.get(name, name).lower()
        taken = variable in _RESERVED | _BUILTIN or keyword.iskeyword(variable)
        variable += "_" if taken else ""
        while variable in found.values():
            variable += "_"
        found[name] = variable
    return found
