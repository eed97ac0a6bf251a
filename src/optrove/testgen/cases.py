"""The cases of generated tests, and the groups that one test function calls.

Cases of a group have the same op, the same arguments of the same kinds, and run on the same
device. Arguments that are equal in all of them stand in the call; the others are parameters.
"""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import takewhile
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.frameworks.ttnn.board.devices import ALONE
from optrove.frameworks.ttnn.ops import op_of
from optrove.model.records import DeviceParameters
from optrove.model.torch_target import TorchTarget
from optrove.model.values import (
    DeviceRef,
    Handle,
    Null,
    Struct,
    Symbol,
    TensorSpec,
    TtnnPlacement,
    Value,
    key_step,
    tensors_in,
    walk,
)
from optrove.testgen.expressions import expression_of, flat

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from optrove.frameworks.kept_tensors import KeptTensor
    from optrove.model.case import Case


class DrawnValues(Enum):
    """The values of a tensor, by the function of the generated file that draws them."""

    NORMAL = "normal"
    WHOLE = "whole"
    DISTINCT = "distinct"
    POSITIVE = "positive"
    SHARE = "share"
    CAUSAL_MASK = "causal_mask"
    COSINES = "cosines"
    SINES = "sines"
    ROTATION = "rotation"


_ERRORS: Final = frozenset(
    {"ArithmeticError", "AssertionError", "AttributeError", "ImportError", "IndexError"}
    | {"KeyError", "LookupError", "MemoryError", "NotImplementedError", "OSError"}
    | {"OverflowError", "RuntimeError", "TypeError", "ValueError", "ZeroDivisionError"}
)
"""The classes of errors that a test can name without an import."""


def error_class(error: str) -> str:
    """Return the class of a recorded error; Exception for one that a test cannot name."""
    name = error.partition(":")[0]
    return name if name in _ERRORS else "Exception"


@dataclass(frozen=True, slots=True)
class Filling:
    """The values of an argument's tensors; whole numbers are below a bound.

    ``kept`` are the recorded values of some tensors, by their identity.
    """

    numbers: DrawnValues = DrawnValues.NORMAL
    below: int = 0
    kept: Mapping[int, KeptTensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedCase:
    """A case to test, with everything that is known of it.

    ``places`` are the arguments that are passed by position, in order; ``roles`` the names of the
    parameters that take arguments of which only the position was recorded. ``outputs`` is None if
    they were not recorded. ``notes`` say which arguments were supplied, ``board`` is the name of a
    mock board for the call, ``file`` the path to an argument that names a file. ``kept`` are the
    recorded values of its tensors, by identity, which are those of the call ``kept_from``.
    ``shrunk_from`` is the id of the case of which it is a simpler form. ``target`` is where a case
    of torch runs, and ``seed`` that of its random values.
    ``raised`` is the recorded error of a case that never returned; its test expects it.
    """

    case_id: str
    case: Case
    calls: int | None = None
    outputs: tuple[Value, ...] | None = None
    device: DeviceParameters | None = None
    places: tuple[str, ...] = ()
    roles: tuple[tuple[str, str], ...] = ()
    fillings: Mapping[str, Filling] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    board: str | None = None
    file: str | None = None
    kept: Mapping[int, KeptTensor] = field(default_factory=dict)
    kept_from: int | None = None
    shrunk_from: str | None = None
    target: TorchTarget = TorchTarget()  # noqa: RUF009 - immutable
    seed: int = 0
    raised: str | None = None

    def filling(self, name: str) -> Filling:
        """Return the values of the tensors of an argument."""
        return replace(self.fillings.get(name, Filling()), kept=self.kept)

    @property
    def error(self) -> str | None:
        """The class of the error that a test expects; Exception for one that is not known."""
        return None if self.raised is None else error_class(self.raised)

    @property
    def output_specs(self) -> list[TensorSpec]:
        """The ttnn tensors that the call returned; empty if they were not recorded."""
        return [
            spec
            for value in self.outputs or ()
            for spec in tensors_in(value)
            if isinstance(spec.placement, TtnnPlacement)
        ]


_FABRIC: Final = "FABRIC_1D"
"""The fabric of several chips if it was not recorded: the one that most models ask for."""
_L1_SMALL: Final = 24576
_NEEDS_L1_SMALL: Final = re.compile(r"conv|pool|upsample|fold|halo|grid_sample")
_SYMBOL: Final = re.compile(r"[A-Z][A-Z0-9_]*")


def device_for(
    recorded: DeviceParameters | None, op: str
) -> tuple[DeviceParameters, tuple[str, ...]]:
    """Return the parameters to open a device with, and those that were not recorded.

    None stands for ttnn's own default.
    """
    given = recorded or DeviceParameters()
    shape = given.mesh_shape or ALONE
    fabric = given.fabric_config if _SYMBOL.fullmatch(given.fabric_config or "") else None
    l1_small = given.l1_small_size
    supplied = []
    if fabric is None and prod(shape) > 1:
        fabric = _FABRIC
        supplied.append(f"the fabric, {_FABRIC}")
    if l1_small is None and _NEEDS_L1_SMALL.search(op):
        l1_small = _L1_SMALL
        supplied.append(f"l1_small_size, {_L1_SMALL}")
    device = DeviceParameters(
        mesh_shape=shape,
        fabric_config=None if fabric == "DISABLED" else fabric,
        dispatch_axis=given.dispatch_axis if given.dispatch_axis in ("ROW", "COL") else None,
        l1_small_size=l1_small or None,
        trace_region_size=given.trace_region_size or None,
        worker_l1_size=given.worker_l1_size or None,
        command_queues=given.command_queues if (given.command_queues or 1) > 1 else None,
    )
    return device, tuple(supplied)


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
"""Parameters that come first in ttnn's signatures, and are passed by position as people do.

Golden functions may call them otherwise; and of overloads that differ in types only, a recording
may have another one's names. Of the rows that begin with the first name that a call has, the row
with the most names applies."""

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
    """One argument of a group's calls; without ``keyword`` it is passed by position.

    ``is_tensor`` is also true for lists of tensors. A ``live`` argument needs the open device.
    Unless it ``varies``, it is equal in all cases. ``alias`` is another argument that is the same
    tensor.
    """

    name: str
    variable: str
    keyword: str | None
    is_tensor: bool
    live: bool
    varies: bool
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class GroupedCases:
    """Cases that one test function calls, most called first.

    ``supplied`` are the parameters of the device that were not recorded.
    """

    op: str
    device: DeviceParameters
    supplied: tuple[str, ...]
    arguments: tuple[Argument, ...]
    cases: tuple[RecordedCase, ...]

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """The shape of the mesh; 1x1 for a single chip."""
        return self.device.mesh_shape or ALONE

    @property
    def chips(self) -> int:
        """The number of chips."""
        return prod(self.mesh_shape)

    @property
    def error(self) -> str | None:
        """The class of the error that all calls have to raise; None if they have to return."""
        return self.cases[0].error

    @property
    def parameters(self) -> tuple[Argument, ...]:
        """The arguments that differ from case to case, and all tensors."""
        return tuple(each for each in self.arguments if each.varies and each.alias is None)

    def is_shared(self, argument: Argument) -> bool:
        """Return whether an argument is a tensor that other arguments are, too."""
        return argument.is_tensor and any(each.alias == argument.name for each in self.arguments)


def grouped(cases: Iterable[RecordedCase]) -> list[GroupedCases]:
    """Return the groups of some cases, in the order of their first cases."""
    found: defaultdict[object, list[RecordedCase]] = defaultdict(list)
    for each in cases:
        case = each.case
        kinds = tuple((name, _kind(name, value)) for name, value in case.arguments)
        aliases = tuple(_aliases(case).items())
        device = device_for(each.device, case.op)
        found[case.op, device, each.places, each.roles, kinds, aliases, each.error].append(each)
    return [_group(tuple(members)) for members in found.values()]


def _kind(name: str, value: Value) -> str:
    """Return the common part of the values of one argument in a group."""
    if isinstance(value, TensorSpec):
        return "tensor"
    if holds_tensors(value):
        return "tensors"
    if is_live(value):
        return f"live {flat(expression_of(value, f'$.arguments{key_step(name)}'))}"
    return type(value).__name__


def holds_tensors(value: Value) -> bool:
    """Return whether a value contains a tensor."""
    return any(True for _ in tensors_in(value))


def is_live(value: Value) -> bool:
    """Return whether making a value needs an open device."""
    return any(isinstance(part, (DeviceRef, Handle)) for _, part in walk(value))


def _aliases(case: Case) -> dict[str, str]:
    """Return the arguments that are the same tensor as an earlier one, with that one."""
    first: dict[int, str] = {}
    found = {}
    for name, value in case.arguments:
        if isinstance(value, TensorSpec):
            owner = first.setdefault(value.identity, name)
            if owner != name:
                found[name] = owner
    return found


def _group(members: tuple[RecordedCase, ...]) -> GroupedCases:
    first = members[0]
    op, values, aliases = first.case.op, dict(first.case.arguments), _aliases(first.case)
    places = first.places or _leading(op, values)
    ordered = [*places, *sorted((name for name in values if name not in places), key=_rank(values))]
    variables = _variables(ordered, dict(first.roles))
    every = [dict(each.case.arguments) for each in members]
    varying = {
        name
        for name, value in values.items()
        if holds_tensors(value)
        or (not is_live(value) and len({arguments[name] for arguments in every}) > 1)
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
    return GroupedCases(op, *device_for(first.device, op), arguments, members)


def _leading(op: str, values: dict[str, Value]) -> tuple[str, ...]:
    """Return the arguments that are passed by position."""
    if op_of(op).takes_names_only:
        return ()
    first = leading_of(values)
    rest = [name for name in values if name not in first]
    lone = rest if op.startswith("ttnn.Tensor.") and len(rest) == 1 else []
    return (*first, *lone)


def leading_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the parameters that are passed by position."""
    begin = next((row[0] for row in LEADING if row[0] in names), None)
    rows = [row for row in LEADING if row[0] == begin]
    return max((tuple(takewhile(names.__contains__, row)) for row in rows), key=len, default=())


def _rank(values: dict[str, Value]) -> Callable[[str], tuple[int, str]]:
    """Return the sort key of arguments passed by name: tensors, numbers, symbols, structs, ..."""

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
    """Return a distinct name for each parameter of a test function."""
    found: dict[str, str] = {}
    for name in names:
        variable = roles.get(name, name).lower()
        taken = variable in _RESERVED | _BUILTIN or keyword.iskeyword(variable)
        variable += "_" if taken else ""
        while variable in found.values():
            variable += "_"
        found[name] = variable
    return found
