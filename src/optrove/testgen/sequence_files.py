"""Write a stretch of recorded calls as a program of straight code, which needs no optrove.

Each call is a statement, and each tensor a variable, named after the op that returned it or after
the parameter that takes it; ``del`` stands where the program dropped a tensor. Tensors from outside
the stretch are made where a replay makes them: from a capsule, whose values are in a file beside
the program, or from a seed.

A program that is checked compares the results of each call as a replay does, so that it fails where
a replay fails. A call that raised an error when it was recorded has to raise it again.
"""

from __future__ import annotations

import keyword
import re
import textwrap
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotReplayable
from optrove.frameworks.kept_tensors import kept_tensor
from optrove.frameworks.torch.execute import is_composite
from optrove.frameworks.torch.reference import DATA_DEPENDENT, NOT_UNIQUE, UNINITIALIZED, last_name
from optrove.frameworks.ttnn.execute.files import LOAD_OP, place_of_file
from optrove.frameworks.ttnn.execute.invoking import CallNames
from optrove.frameworks.ttnn.ops import op_of
from optrove.model.memory import DEALLOCATING
from optrove.model.records import CallOutcome
from optrove.model.values import (
    Handle,
    List,
    Mapping,
    Struct,
    TensorSpec,
    Text,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    key_step,
    storage_lengths,
    tensors_in,
)
from optrove.replay.sequence import first_users
from optrove.report.wording import plural
from optrove.testgen.cases import (
    DrawnValues,
    Filling,
    device_for,
    error_class,
    grouped,
    holds_tensors,
)
from optrove.testgen.expressions import (
    SEMAPHORE,
    WIDTH,
    Bracket,
    NotExpressible,
    call,
    check_name,
    check_op,
    dtype,
    expression_of,
    formatted,
    harmless,
    prefixed,
    quoted,
    row,
    tuple_of,
)
from optrove.testgen.files import (
    MARK,
    CaseWriter,
    UsedParts,
    close_lines,
    open_lines,
    template_parts,
)
from optrove.testgen.generate import recorded_case
from optrove.testgen.loops import Statement, folded
from optrove.testgen.portable_source import JUDGE, portable_source
from optrove.testgen.torch_files import is_torch_op, kept_reader, template_text, torch_judging

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.frameworks.kept_tensors import KeptTensor
    from optrove.model.capsules import Capsule
    from optrove.model.case import Case
    from optrove.model.flow import Outside, Step
    from optrove.model.values import Value
    from optrove.replay.sequence import CallSequence, SequenceCall
    from optrove.testgen.cases import RecordedCase
    from optrove.testgen.expressions import Expression

_INDENT: Final = 4
_NAME: Final = re.compile(r"[^A-Za-z0-9_]+")
_PCC: Final = 0.99
_IMPORTS: Final = """\
from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from math import isfinite, prod, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final

import torch
"""
_MAKING: Final = '''
def make(spec: Spec, device: ttnn.MeshDevice) -> Any:
    """Return a tensor from outside the calls."""
{plain}    return make_tensor(spec, device, filled=True)
'''
_PLAIN: Final = """\
    blocks = spec.dtype in (ttnn.bfloat8_b, ttnn.bfloat4_b)
    plain = blocks or spec.layout == ttnn.ROW_MAJOR_LAYOUT
    if {alone} and plain and isinstance(spec.dtype, ttnn.DataType):
        return ttnn.Tensor(spec.values(spec.shape), spec.dtype)
"""
_TORCH_MAKING: Final = '''
def make(
    shape: tuple, dtype: torch.dtype, strides: tuple, offset: int, length: int, values: Any = None
) -> torch.Tensor:
    """Return a tensor with values from the seed, or with recorded ones, laid out as recorded."""
    if values is None:
        exact = dtype.is_floating_point or dtype.is_complex
        values = torch.randn(length) if exact else torch.randint(8, (length,))
    row = values[:length].to(dtype).clone()
    return row.as_strided(shape, strides, offset)
'''
_MAIN: Final = '''
def main() -> Any:
    """Open the device, run the program and return what its last call returned."""
    torch.manual_seed(0)
{opening}
    try:
        return program({arguments})
    finally:
{closing}
'''
_TORCH_MAIN: Final = '''
def main() -> Any:
    """Run the program and return what its last call returned."""
    torch.manual_seed(0)
    with torch.{mode}():
        return program()
'''
_FILES: Final = '''
FILES = TemporaryDirectory()
"""The files that calls read and write in place of those of the model."""


def new_file(name: str) -> Path:
    """Return a path with the name of a file of the model."""
    return Path(mkdtemp(dir=FILES.name)) / name


def written(name: str, tensor: Any) -> Path:
    """Write a tensor to a file with the name of one of the model."""
    path = new_file(name)
    ttnn.dump_tensor(path, ttnn.from_device(tensor))
    return path
'''
_RAISES: Final = '''
@contextmanager
def raises(error: type[Exception]) -> Iterator[None]:
    """Expect the error that a call raised when it was recorded."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"the call returned; when it was recorded, it raised {error.__name__}")
'''
_TORCH_SPECS: Final = '''
def with_specs(result: Any, specs: list[tuple]) -> Any:
    """Return a result, if its tensors are as recorded."""
    several = result if isinstance(result, (list, tuple)) else [result]
    tensors = [each for each in several if isinstance(each, torch.Tensor)]
    found = [(tuple(each.shape), each.dtype, each.stride()) for each in tensors]
    assert found == specs, f"the output is {found}, recorded: {specs}"
    return result
'''
_END: Final = '''
def test_sequence() -> None:
    """Run the program as a test."""
    main()


if __name__ == "__main__":
    result = main()
    print("all calls returned" if result is None else result)
'''


@dataclass(frozen=True, slots=True)
class SequenceProgram:
    """A program of straight code; ``values`` are recorded tensors that it reads.

    ``left_out`` names the calls that cannot be written in Python, with the reason.
    """

    text: str
    calls: int
    values: tuple[KeptTensor, ...]
    left_out: tuple[str, ...] = ()


class _Unwritable(NotReplayable):
    """A case that cannot be written in Python."""

    def __init__(self, each: SequenceCall, reason: str) -> None:
        super().__init__(f"{reason}; choose calls without it")
        self.case_id = each.planned.case_id
        self.reason = reason


def writable_program(
    sequence: CallSequence, title: str, left_out: tuple[str, ...] = ()
) -> SequenceProgram:
    """Return the program of a sequence without the calls that cannot be written in Python.

    Results of such a call come from outside. NotReplayable if no other call is left, or if such a
    call writes to its inputs, so that others would get wrong values.
    """
    try:
        return sequence_program(sequence, title, left_out=left_out)
    except _Unwritable as fault:
        unwritable = fault.case_id, fault.reason
        removed = [each for each in sequence.calls if each.planned.case_id == fault.case_id]
        if len(removed) == len(sequence.calls) or any(map(_is_in_place, removed)):
            raise
    case_id, reason = unwritable
    more = f" (and {len(removed) - 1} more of its calls)" if len(removed) > 1 else ""
    kept = [each.call.op_index for each in sequence.calls if each.planned.case_id != case_id]
    return writable_program(sequence.only(kept), title, (*left_out, f"{reason}{more}"))


def _is_in_place(each: SequenceCall) -> bool:
    inputs = {number for _, number in each.step.inputs}
    return any(number in inputs for _, number in each.step.outputs)


def sequence_program(
    sequence: CallSequence,
    title: str,
    *,
    checked: bool = False,
    specs_of: int | None = None,
    imports: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> SequenceProgram:
    """Return the program of a sequence; NotReplayable if a call cannot be written in Python.

    With ``checked``, it compares the results of all calls; with ``specs_of``, the specs of the
    outputs of the call with this op_index. It imports modules that register operations of torch,
    and names the calls that were left out.
    """
    of_torch = is_torch_op(sequence.calls[0].op)
    writer = (_TorchProgram if of_torch else _TtnnProgram)(sequence, checked=checked)
    writer.specs_of = specs_of
    writer.imports = tuple(imports)
    writer.left_out = tuple(left_out)
    writer.prepare(sequence)
    for each in sequence.calls:
        writer.is_at_end = each is sequence.calls[-1]
        _add(writer, each)
    values = tuple(writer.values.values())
    return SequenceProgram(writer.text(title), len(sequence.calls), values, writer.left_out)


def _add(writer: _Program, each: SequenceCall) -> None:
    try:
        check_op(each.op)
        writer.add(each)
    except NotExpressible as error:
        reason = (
            f"call {each.call.op_index} of {each.op} cannot be written in Python: "
            f"{error.path}: {error.reason}"
        )
        raise _Unwritable(each, reason) from error


@dataclass(slots=True)
class _Names:
    """The variables of a program, by the numbers of tensors."""

    by_number: dict[int, str] = field(default_factory=dict)
    every: set[str] = field(default_factory=set)
    _taken: Counter[str] = field(default_factory=Counter)

    def new(self, base: str, number: int | None = None) -> str:
        """Return a new name, and give it to a tensor."""
        base = _NAME.sub("_", base).strip("_").lower() or "tensor"
        if keyword.iskeyword(base):
            base += "_"
        if not base.isidentifier():
            base = f"tensor_{base}"
        self._taken[base] += 1
        name = f"{base}_{self._taken[base]}"
        self.every.add(name)
        if number is not None:
            self.by_number[number] = name
        return name


class _Program:
    """The statements of one program, in their order."""

    def __init__(self, sequence: CallSequence, *, checked: bool) -> None:
        self.values: dict[str, KeptTensor] = {}
        self.names = _Names()
        self.statements: list[Statement] = []
        self._lines: list[str] = []
        self.is_at_end = False
        self.is_checked = checked
        self.specs_of: int | None = None
        self.imports: tuple[str, ...] = ()
        self.left_out: tuple[str, ...] = ()
        self._expects_errors = False
        self._users = _first_users(sequence)
        self._last = ""

    def text(self, title: str) -> str:
        """Return the whole file."""
        raise NotImplementedError

    def prepare(self, sequence: CallSequence) -> None:
        """Append the statements that come before those of all calls."""

    def add(self, each: SequenceCall) -> None:
        """Append the statements of a call."""
        step = each.planned.job.flow
        assert step is not None  # noqa: S101 - every Job of a sequence has one
        for outside in step.outside:
            if outside.number not in self.names.by_number:
                self._make_outside(outside, self._users.get(outside.number, each))
                self._end_statement("")
        inputs = dict(step.inputs)
        made = self._call(each, inputs)
        if each.call.outcome is CallOutcome.RAISED:
            self._expect_error(each, made)
        else:
            if each.call.op_index == self.specs_of:
                made = call("with_specs", made, self._specs_of(each))
            self._assign(each, step, made)
        gone = [
            self.names.by_number.pop(number)
            for number in step.freed
            if number in self.names.by_number
        ]
        if gone:
            self._append(f"del {', '.join(gone)}")
        self._end_statement(_site(each))

    def _expect_error(self, each: SequenceCall, made: Expression) -> None:
        self._expects_errors = True
        self._last = ""
        body = textwrap.indent(formatted(made, _INDENT), " " * _INDENT)
        self._append(f"with raises({error_class(each.call.error or '')}):\n{body}")

    def _specs_of(self, each: SequenceCall) -> Expression:
        """Return the recorded specs of the outputs of a call."""
        raise NotImplementedError

    def _end_statement(self, site: str) -> None:
        self.statements.append(Statement(site, tuple(self._lines)))
        self._lines = []

    def _call(self, each: SequenceCall, inputs: dict[int, int]) -> Expression:
        """Return the expression of a call."""
        raise NotImplementedError

    def _make_outside(self, outside: Outside, user: SequenceCall) -> None:
        """Append the statement that makes a tensor which ``user`` is the first to use."""
        raise NotImplementedError

    def _append(self, line: str) -> None:
        self._lines.append(line)

    def _assign(self, each: SequenceCall, step: Step, made: Expression) -> None:
        """Append a call whose results go to variables, if later calls or ``del`` need them."""
        base = each.op.removesuffix(".default").rpartition(".")[2]
        outputs = dict(step.outputs)
        paths = _paths(each.call.outputs)
        wanted = {
            place: outputs[place]
            for place in range(len(paths))
            if place in outputs
            and outputs[place] not in self.names.by_number
            and outputs[place] not in step.freed
        }
        self._last = ""
        if paths == [""]:
            if self.is_at_end and 0 not in outputs:
                self._last = self.names.new("result")
                made = prefixed(f"{self._last} = ", made)
            elif wanted:
                self._last = self.names.new(base, outputs[0])
                made = prefixed(f"{self._last} = ", made)
            elif outputs.get(0) in self.names.by_number:
                self._last = self.names.by_number[outputs[0]]
            self._append(formatted(made))
            return
        if not wanted:
            if self.is_at_end and each.call.outputs:
                self._last = self.names.new("result")
                made = prefixed(f"{self._last} = ", made)
            self._append(formatted(made))
            return
        whole = self._last = self.names.new("results")
        self._append(formatted(prefixed(f"{whole} = ", made)))
        for place, number in wanted.items():
            self._append(f"{self.names.new(base, number)} = {whole}{paths[place]}")
        # Only the variables hold the tensors, as in the program.
        self._append(f"del {whole}")
        self._last = self.names.by_number[next(iter(wanted.values()))]

    def heading(self, title: str, needs: str, supplied: tuple[str, ...]) -> str:
        """Return the docstring of the file."""
        values = "from the file beside it" if self.values else "from a seed"
        checked = (
            "The results of each call are compared, as far as there is a reference. "
            if self.is_checked
            else ""
        )
        about = (
            f"{MARK} Straight code of the recorded calls; it needs {needs} only. Tensors from "
            f"outside have values {values}. {checked}Run it with python or pytest."
        )
        texts = [
            about,
            *(f"Python has to find the module {name}: see PYTHONPATH." for name in self.imports),
            *(f"Not recorded, and supplied: {each}." for each in supplied),
            *(f"Left out: {each}." for each in self.left_out),
        ]
        wrapped = ["\n".join(textwrap.wrap(harmless(text), WIDTH - 1)) for text in texts]
        body = "\n\n".join([harmless(title), *wrapped])
        return f'"""{body}\n"""\n\n# ruff: noqa'

    def body(self) -> str:
        """Return the statements of the function, indented."""
        every = list(self.statements)
        if self._last and not self._was_deleted():
            every.append(Statement("", (f"return {self._last}",)))
        lines = folded(every, self.names.every) or ["pass"]
        return textwrap.indent("\n".join(lines), " " * _INDENT).replace(
            "\n" + " " * _INDENT + "\n", "\n\n"
        )

    def _was_deleted(self) -> bool:
        last = self.statements[-1].lines[-1] if self.statements else ""
        return last.startswith("del ") and self._last in last.removeprefix("del ").split(", ")

    def keep(
        self, capsules: Sequence[Capsule], spec: TensorSpec, *, as_storage: bool = False
    ) -> KeptTensor | None:
        """Return the recorded values of a tensor; None if they were not kept."""
        found = kept_tensor(capsules, spec, as_storage=as_storage)
        if found is not None:
            self.values[found.name] = found
        return found


def _site(each: SequenceCall) -> str:
    """Return a comment with the line of the model that made a call; empty if it is unknown."""
    site = each.call.call_site
    if site is None:
        return ""
    return harmless(f"# {site.file.rpartition('/')[2]}:{site.line:d}")


def _first_users(sequence: CallSequence) -> dict[int, SequenceCall]:
    """Return the first call that takes each tensor."""
    found: dict[int, SequenceCall] = {}
    for each in sequence.calls:
        for _, number in each.step.inputs:
            found.setdefault(number, each)
    return found


def _paths(outputs: tuple[Value, ...]) -> list[str]:
    """Return the way to each ttnn or torch tensor of a result, as Python writes it."""
    if not outputs:
        return []
    return list(_paths_in(outputs[0], ""))


def _paths_in(value: Value, path: str) -> Iterator[str]:
    match value:
        case TensorSpec():
            yield path
        case List(items) | Tuple(items):
            for place, item in enumerate(items):
                yield from _paths_in(item, f"{path}[{place}]")
        case Struct(fields=fields):
            # A named tuple, such as torch.return_types.topk.
            for place, (_, item) in enumerate(fields):
                yield from _paths_in(item, f"{path}[{place}]")


def _file_name(case: Case) -> str:
    """Return the name of the file that a case names; NotExpressible if it names none."""
    path = place_of_file(case) or "$.arguments"
    match dict(case.arguments).get(path.removeprefix("$.arguments.")):
        case Text(text) | Struct(fields=(("path", Text(text)),)):
            return PurePath(text).name
    raise NotExpressible(path, "it is not known which file this names")


class _TtnnProgram(_Program):
    """A program of ttnn, on one device."""

    def __init__(self, sequence: CallSequence, *, checked: bool) -> None:
        super().__init__(sequence, checked=checked)
        ops = [each.op for each in sequence.calls]
        jobs = [each.planned.job for each in sequence.calls]
        devices = [job.device for job in jobs if job.device is not None]
        special = next((op for op in ops if device_for(None, op)[1]), ops[0])
        self._device, self._supplied = device_for(devices[0] if devices else None, special)
        board = sequence.run.environment.board
        if all(each.dispatch_axis is None or board for each in devices):
            self._device = replace(self._device, dispatch_axis=None)
        self._writer = CaseWriter(self._device.mesh_shape or ())
        self._calls = CallNames()
        self._recorded: dict[str, RecordedCase] = {}
        self._specs: list[tuple[TensorSpec, Filling]] = []
        self._all_cores = False
        self._files: dict[int, str] = {}
        self._has_files = False

    def _case(self, each: SequenceCall) -> RecordedCase:
        case_id = each.planned.case_id
        if case_id not in self._recorded:
            self._recorded[case_id] = recorded_case(each.planned, self._calls)
        return self._recorded[case_id]

    def prepare(self, sequence: CallSequence) -> None:
        """Write the files that calls read, before the first of them."""
        users = first_users(sequence.calls)
        for each in sequence.calls:
            outputs = dict(each.step.outputs)
            specs = [spec for value in each.call.outputs for spec in tensors_in(value)]
            if each.op != LOAD_OP or len(specs) != 1:
                continue
            user = users.get(outputs[0]) if 0 in outputs else None
            name = _file_name(each.planned.job.case)
            spec, capsules = (specs[0], ()) if user is None else (user.spec, user.capsules)
            assert isinstance(spec, TensorSpec)  # noqa: S101 - narrows the type
            made = self._made(spec, capsules, Filling(), "$.outputs")
            variable = self._files[each.call.op_index] = self.names.new(PurePath(name).stem)
            self._append(formatted(prefixed(f"{variable} = ", call("written", quoted(name), made))))
            self._end_statement("")

    def _file(self, each: SequenceCall, value: Value) -> Expression:
        """Return the path of a file in place of the one that a call names."""
        self._has_files = True
        path = self._files.get(each.call.op_index)
        if path is None:
            if each.op == LOAD_OP:
                raise NotExpressible("$.outputs", "what it read from a file was not recorded")
            path = f"new_file({quoted(_file_name(each.planned.job.case))})"
        return call("str", path) if isinstance(value, Text) else path

    def _call(self, each: SequenceCall, inputs: dict[int, int]) -> Expression:
        recorded = self._case(each)
        (group,) = grouped([recorded])
        values = dict(recorded.case.arguments)
        items: list[Expression] = []
        for argument in group.arguments:
            filling = recorded.fillings.get(argument.name, Filling())
            path = f"$.arguments{key_step(argument.name)}"
            value = values[argument.name]
            item = (
                self._file(each, value)
                if path == recorded.file
                else self._value(value, each, inputs, (filling, argument.name, path))
            )
            if argument.keyword is not None:
                check_name(argument.keyword, "$.arguments")
                item = prefixed(f"{argument.keyword}=", item)
            items.append(item)
        self._all_cores = self._all_cores or any(
            isinstance(part, Handle) and part.type == SEMAPHORE and part.recipe is None
            for _, part in recorded.case.parts()
        )
        if not self.is_checked or each.op in DEALLOCATING:
            return call(each.op, *items)
        way = "chain.read" if op_of(each.op).passes_numbers_through else "chain.call"
        return call(way, call("partial", each.op, *items))

    def _value(
        self,
        value: Value,
        each: SequenceCall,
        inputs: dict[int, int],
        about: tuple[Filling, str, str],
    ) -> Expression:
        filling, name, path = about
        match value:
            case TensorSpec():
                return self._tensor(value, each, inputs, about)
            case List(items) | Tuple(items) if holds_tensors(value):
                found = [
                    self._value(item, each, inputs, (filling, name, f"{path}[{place}]"))
                    for place, item in enumerate(items)
                ]
                return row(found) if isinstance(value, List) else tuple_of(found)
            case Mapping() | Struct() if holds_tensors(value):
                raise NotExpressible(path, "tensors within something else than a list")
            case Struct():
                return self._writer.constants.use(value, path)
        return expression_of(value, path)

    def _tensor(
        self,
        spec: TensorSpec,
        each: SequenceCall,
        inputs: dict[int, int],
        about: tuple[Filling, str, str],
    ) -> Expression:
        number = inputs.get(spec.identity)
        known = None if number is None else self.names.by_number.get(number)
        if known is not None:
            return known
        filling, name, path = about
        made = self._made(spec, each.planned.job.capsules, filling, path)
        if number is None:
            # A tensor of torch, which is not followed.
            return made
        self._append(formatted(prefixed(f"{self.names.new(name, number)} = ", made)))
        return self.names.by_number[number]

    def _specs_of(self, each: SequenceCall) -> Expression:
        every = [spec for value in each.call.outputs for spec in tensors_in(value)]
        specs = [spec for spec in every if isinstance(spec.placement, TtnnPlacement)]
        self._specs += [(spec, Filling()) for spec in specs]
        return row(self._writer.spec(spec, None, "$.outputs") for spec in specs)

    def _make_outside(self, outside: Outside, user: SequenceCall) -> None:
        spec = outside.spec
        assert isinstance(spec, TensorSpec)  # noqa: S101 - narrows the type
        filling = self._case(user).fillings.get(outside.argument, Filling())
        path = f"$.arguments{key_step(outside.argument)}"
        made = self._made(spec, outside.capsules, filling, path)
        variable = self.names.new(outside.argument, outside.number)
        self._append(formatted(prefixed(f"{variable} = ", made)))

    def _made(
        self, spec: TensorSpec, capsules: Sequence[Capsule], filling: Filling, path: str
    ) -> Expression:
        kept = self.keep(capsules, spec)
        if kept is not None:
            filling = replace(filling, kept={spec.identity: kept})
        self._specs.append((spec, filling))
        made = call("make", self._writer.spec(spec, filling, path), "device")
        return call("chain.new", made) if self.is_checked else made

    @staticmethod
    def _making(used: UsedParts) -> str:
        """Return the function that makes a tensor; ttnn.Tensor is no call of the recording."""
        alone = "spec.memory is None" + (" and not spec.mesh" if used.mesh else "")
        has_plain = used.undistributed or not used.mesh
        return _MAKING.format(plain=_PLAIN.format(alone=alone) if has_plain else "")

    def text(self, title: str) -> str:
        """Return the whole file."""
        macros = template_parts()
        mesh = prod(self._device.mesh_shape or ()) > 1
        used = UsedParts.for_specs(self._specs, mesh=mesh, kept=bool(self.values))
        drawn = [each for each in DrawnValues if each in used.values - {DrawnValues.NORMAL}]
        functions = [getattr(macros, f"value_{each.value}")() for each in drawn]
        if used.values & {DrawnValues.COSINES, DrawnValues.SINES}:
            functions.insert(0, macros.value_angles())
        margin, deep = " " * _INDENT, " " * (2 * _INDENT)
        opening = textwrap.indent("\n".join(open_lines(self._device, "device")), margin)
        closing = textwrap.indent("\n".join(close_lines(self._device, "device")), deep)
        parameters = "device: ttnn.MeshDevice" + (', chain: "Chain"' if self.is_checked else "")
        program = (
            f"def program({parameters}) -> Any:\n"
            f'{margin}"""Make the recorded calls."""\n{self.body()}'
        )
        arguments = "device, Chain(device)" if self.is_checked else "device"
        walking = partial(macros.walking, used)
        checking = (macros.chain, macros.computing, walking, macros.comparing)
        comparing_specs = (macros.with_specs, walking)
        blocks = [
            self.heading(title, "ttnn and torch", self._supplied),
            _IMPORTS + "import ttnn\n" + (f"\nPCC = {_PCC}\n" if self.is_checked else ""),
            self._writer.constants.text,
            macros.spec(used) if self._specs else "",
            *functions,
            *(kept_reader(shaped=True) if self.values else ()),
            macros.making(used) if self._specs else "",
            self._making(used) if self._specs else "",
            macros.cores() if self._all_cores else "",
            _FILES if self._has_files else "",
            program,
            _MAIN.format(opening=opening, closing=closing, arguments=arguments),
            *(each() for each in checking if self.is_checked),
            *(portable_source(JUDGE).definitions if self.is_checked else ()),
            *(each() for each in comparing_specs if self.specs_of is not None),
            _RAISES if self._expects_errors else "",
            _END,
        ]
        return _joined(blocks)


class _TorchProgram(_Program):
    """A program of torch's ATen operations."""

    def __init__(self, sequence: CallSequence, *, checked: bool) -> None:
        super().__init__(sequence, checked=checked)
        self._needs_grad: dict[str, bool] = {}
        self._composite = False

    def _call(self, each: SequenceCall, inputs: dict[int, int]) -> Expression:
        case = each.planned.job.case
        self._composite = self._composite or is_composite(case.op)
        lengths = storage_lengths(dict(case.arguments))
        items: list[Expression] = []
        for name, value in case.arguments:
            item = self._value(value, each, inputs, (name, f"$.arguments{key_step(name)}", lengths))
            by_place = re.fullmatch(r"arg\d+", name)
            items.append(item if by_place else _named(name, item))
        incomparable = last_name(case.op) in UNINITIALIZED | NOT_UNIQUE.keys() | DATA_DEPENDENT
        if not self.is_checked or incomparable:
            return call(each.op, *items)
        return call("checked", call("partial", each.op, *items))

    def _value(
        self,
        value: Value,
        each: SequenceCall,
        inputs: dict[int, int],
        about: tuple[str, str, dict[int, int]],
    ) -> Expression:
        name, path, lengths = about
        match value:
            case TensorSpec(placement=TorchPlacement() as placement):
                return self._tensor(value, placement, each, inputs, about)
            case List(items) | Tuple(items):
                found = [
                    self._value(item, each, inputs, (name, f"{path}[{place}]", lengths))
                    for place, item in enumerate(items)
                ]
                return row(found) if isinstance(value, List) else tuple_of(found)
            case Struct("torch.device", fields):
                kind, index = (dict(fields).get(each) for each in ("type", "index"))
                return call("torch.device", *_device_items(kind, index, path))
            case Struct("torch.Size", (("sizes", sizes),)):
                return self._value(sizes, each, inputs, about)
        return expression_of(value, path)

    def _tensor(
        self,
        spec: TensorSpec,
        placement: TorchPlacement,
        each: SequenceCall,
        inputs: dict[int, int],
        about: tuple[str, str, dict[int, int]],
    ) -> Expression:
        name, path, lengths = about
        number = inputs.get(spec.identity)
        variable = None if number is None else self.names.by_number.get(number)
        if variable is None:
            capsules = each.planned.job.capsules
            made = self._made(spec, capsules, lengths[spec.storage], path)
            variable = self.names.new(name, number)
            self._append(formatted(prefixed(f"{variable} = ", made)))
        if self._needs_grad.get(variable, False) is not placement.requires_grad:
            self._needs_grad[variable] = placement.requires_grad
            self._append(f"{variable}.requires_grad_({placement.requires_grad})")
        return variable

    def _specs_of(self, each: SequenceCall) -> Expression:
        specs = [spec for value in each.call.outputs for spec in tensors_in(value)]
        return row(
            tuple_of([str(spec.shape), dtype(spec.dtype, "$.outputs"), str(spec.placement.strides)])
            for spec in specs
            if isinstance(spec.placement, TorchPlacement)
        )

    def _make_outside(self, outside: Outside, user: SequenceCall) -> None:
        spec = outside.spec
        assert isinstance(spec, TensorSpec)  # noqa: S101 - narrows the type
        lengths = storage_lengths(dict(user.planned.job.case.arguments))
        path = f"$.arguments{key_step(outside.argument)}"
        made = self._made(spec, outside.capsules, lengths[spec.storage], path)
        variable = self.names.new(outside.argument, outside.number)
        self._append(formatted(prefixed(f"{variable} = ", made)))

    def _made(
        self, spec: TensorSpec, capsules: Sequence[Capsule], length: int, path: str
    ) -> Expression:
        placement = spec.placement
        if not isinstance(placement, TorchPlacement) or placement.layout != "strided":
            raise NotExpressible(path, "a tensor from outside that is not strided")
        if placement.device != "cpu":
            raise NotExpressible(path, f"a tensor on {placement.device}")
        if placement.conjugate or placement.negative:
            raise NotExpressible(path, "a conjugated or negated tensor from outside")
        kept = self.keep(capsules, spec, as_storage=True)
        values = [] if kept is None else [f"recorded_values()[{quoted(kept.name)}]"]
        facts = (spec.shape, dtype(spec.dtype, path), placement.strides, placement.offset)
        return call("make", *map(str, facts), str(length), *values)

    def text(self, title: str) -> str:
        """Return the whole file."""
        mode = "inference_mode" if self._composite else "no_grad"
        checking = (torch_judging(), template_text("torch_chain")) if self.is_checked else ()
        margin = " " * _INDENT
        blocks = [
            self.heading(title, "torch", ()),
            _IMPORTS + "".join(f"import {name}  # registers operations\n" for name in self.imports),
            *(kept_reader(shaped=False) if self.values else ()),
            _TORCH_MAKING,
            f'def program() -> Any:\n{margin}"""Make the recorded calls."""\n{self.body()}',
            _TORCH_MAIN.format(mode=mode),
            *checking,
            _TORCH_SPECS if self.specs_of is not None else "",
            _RAISES if self._expects_errors else "",
            _END,
        ]
        return _joined(blocks)


_IMPORTED: Final = re.compile(r"^(?:import (\w+)|from \S+ import ([\w, ]+))\n", re.MULTILINE)


def _joined(blocks: Iterable[str]) -> str:
    """Return a file of these blocks, without the imports that it does not use."""
    text = "\n\n\n".join(block.strip("\n") for block in blocks if block) + "\n"
    body = _IMPORTED.sub("", text)

    def used(found: re.Match[str]) -> str:
        names = (found[1] or found[2]).split(", ")
        if names == ["annotations"]:
            return found[0]
        kept = [name for name in names if re.search(rf"\b{name}\b", body)]
        return found[0].replace(", ".join(names), ", ".join(kept)) if kept else ""

    return _IMPORTED.sub(used, text)


def _named(name: str, item: Expression) -> Expression:
    """Return an argument by name; one that is a word of Python, such as ``from``, in a mapping."""
    if not name.isidentifier() or not name.isascii():
        raise NotExpressible("$.arguments", f"{name!a} cannot be the name of an argument in Python")
    if keyword.iskeyword(name):
        return Bracket(f"**{{{quoted(name)}: ", (item,), "}")
    return prefixed(f"{name}=", item)


def _device_items(kind: Any, index: Any, path: str) -> list[Expression]:
    items = [expression_of(kind, path)]
    written = expression_of(index, path)
    return items if written == "None" else [*items, written]


def described(sequence: CallSequence) -> str:
    """Return the first line of a program."""
    first, last = sequence.calls[0].call.op_index, sequence.calls[-1].call.op_index
    source = sequence.run.source
    # Where a file is on the machine of the run is nobody else's business.
    named = PurePath(source).name if source.startswith("/") else source
    run = f"run {sequence.run.id[:12]} of {named}"
    if first == last:
        return f"Call {first} of {run}."
    return f"{plural(len(sequence.calls), 'call')}, {first} to {last}, of {run}."
