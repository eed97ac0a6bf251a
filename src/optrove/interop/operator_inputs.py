"""Read and write operator-input logs of PyTorch, and the same texts in JSON.

    Operator: aten.addmm.default
    cnt: 49, ((T([768], f16), T([64, 768], f16), T([768, 768], f16, stride=(1, 768))), {})

PyTorch's ``operator_inp_logs`` and TritonBench's ``input_configs`` have this form. In JSON, an
object maps operators to lists of such arguments, or to objects with their counts; or a list has
objects with ``op_name``, ``args`` and ``count``. Arguments are parsed as Python's syntax and never
evaluated.

A log has no names of arguments, which are called ``arg0`` and so on, and no devices: tensors are on
the CPU. Which tensors share memory is unknown; each has its own. A configuration is kept with its
text and its line, so that an export of the same run is equal to the log. Cases that were recorded
otherwise have their arguments by name.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData
from optrove.interop.fidelity import FidelityCounter, PartNotes, expected
from optrove.interop.machines import EPOCH, Exported, Source, SourceExecution, is_count, runs_of
from optrove.model.case import Case
from optrove.model.torch_target import device_name, device_value
from optrove.model.values import (
    Bool,
    Complex,
    Float,
    Int,
    List,
    Mapping,
    Null,
    Opaque,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TorchPlacement,
    Tuple,
    contiguous_strides,
    tensors_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import BinaryIO

    from optrove.interop.machines import Content
    from optrove.model.trove import ExecutionRow
    from optrove.model.values import Value
    from optrove.serializer.text import Json

NAME: Final = "op-inputs"
OPERATOR: Final = "Operator: "
_COUNTED: Final = re.compile(r"cnt: (\d+), (.*)", re.DOTALL)
_OPS: Final = "torch.ops."
_DEVICE_TEXT: Final = re.compile(r"(?:torch\.device\(['\"])?([a-z]+(?::\d+)?)(?:['\"]\))?")
"""A device as a text, as some logs have it."""

DTYPES: Final = {
    "b8": "bool", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0fnu": "float8_e8m0fnu",
    "f8": "float8_e4m3fn", "f16": "float16", "bf16": "bfloat16", "f32": "float32",
    "f64": "float64", "c32": "complex32", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
"""The dtypes of torch by their short names; of two names, the last one is written."""

_SHORT: Final = {name: short for short, name in DTYPES.items()}
_FLOATS: Final = {"inf": float("inf"), "nan": float("nan")}
_LAYOUTS: Final = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "jagged")


def is_operator_log(first_line: str) -> bool:
    """Return whether the first line of a file is that of a log."""
    return first_line.startswith(OPERATOR)


def is_operator_json(document: Json) -> bool:
    """Return whether a JSON document has operators and texts of arguments."""
    if isinstance(document, list):
        return bool(document) and all(
            isinstance(each, dict) and {"op_name", "args"} <= each.keys() for each in document
        )
    if not isinstance(document, dict):
        return False
    if not all(isinstance(each, (list, dict)) for each in document.values()):
        return False
    texts = [text for each in document.values() for text in each]
    return bool(texts) and all(isinstance(text, str) and text.startswith("((") for text in texts)


def read_operator_log(text: str, file: str, *, strict: bool) -> Content:
    """Return the run of a log; BadData lists every line that cannot be read."""
    return _read(_log_lines(text), file, strict=strict)


def read_operator_json(document: Json, file: str, *, strict: bool) -> Content:
    """Return the run of a JSON document of operators."""
    return _read(_json_lines(document), file, strict=strict)


_Line = tuple[str, str, int, str]
"""The path of a configuration, its operator, its count and the text of its arguments."""


def _log_lines(text: str) -> Iterator[_Line]:
    operator = ""
    for number, line in enumerate(text.splitlines(), start=1):
        path = f"line {number}"
        if not line.strip():
            continue
        if line.startswith(OPERATOR):
            operator = line.removeprefix(OPERATOR).strip()
            continue
        found = _COUNTED.fullmatch(line)
        if found is None or not operator:
            raise BadData.at(path, f"expected '{OPERATOR}NAME' or 'cnt: N, (...)'")
        yield path, operator, int(found[1]), found[2]


def _json_lines(document: Json) -> Iterator[_Line]:
    if isinstance(document, list):
        for index, each in enumerate(document):
            count = each.get("count", 1)
            if type(count) is not int:
                raise BadData((expected("a count", f"$[{index}].count", count),))
            yield f"$[{index}]", str(each["op_name"]), count, str(each["args"])
        return
    for operator, texts in document.items():
        counted = texts.items() if isinstance(texts, dict) else ((text, 1) for text in texts)
        for index, (text, count) in enumerate(counted):
            path = f"$.{operator}[{index}]"
            if type(count) is not int:
                raise BadData((expected("a count", path, count),))
            yield path, operator, count, text


def _read(lines: Iterable[_Line], file: str, *, strict: bool) -> Content:
    counter = FidelityCounter(strict=strict)
    source = Source(file, None)
    executions = []
    known: dict[str, tuple[tuple[tuple[str, Value], ...], PartNotes]] = {}
    for number, (path, operator, count, text) in enumerate(lines):
        if not is_count(count):
            raise BadData.at(path, f"{count} is not a count")
        try:
            if text not in known:
                known[text] = _arguments(text)
        except BadData as error:
            counter.refuse(error.within(path).faults)
            continue
        arguments, notes = known[text]
        counter.configuration(path, [("", notes)])
        case = Case(_full_name(operator), tuple(sorted(arguments)))
        kept = f"{number}\t{text}"
        executions.append(SourceExecution(case, source, count, path, kept))
    counter.check()
    runs, cases = runs_of(executions, EPOCH)
    return runs, counter.fidelity(file, NAME, cases)


def _full_name(operator: str) -> str:
    name = operator.replace("::", ".")
    return name if name.startswith(_OPS) else _OPS + name


def _arguments(text: str) -> tuple[tuple[tuple[str, Value], ...], PartNotes]:
    """Return the arguments of a configuration by name, and what was kept verbatim."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadData.at("", f"not the arguments of a call: {error}") from error
    if not isinstance(tree, ast.Tuple) or len(tree.elts) != 2:  # noqa: PLR2004 - positional ones and keywords
        raise BadData.at("", "expected a pair of positional and keyword arguments")
    given, named = tree.elts
    if not isinstance(given, ast.Tuple) or not isinstance(named, ast.Dict):
        raise BadData.at("", "expected a tuple of arguments and a dict of keywords")
    reader = _Reader(text.strip())
    placed = [(f"arg{n}", reader.value(each, f"[0][{n}]")) for n, each in enumerate(given.elts)]
    for key, each in zip(named.keys, named.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise BadData.at("", "a keyword is not a name")
        value = reader.value(each, f"[1].{key.value}")
        named_device = _DEVICE_TEXT.fullmatch(value.value) if isinstance(value, Text) else None
        if key.value == "device" and named_device is not None:
            value = device_value(named_device[1])
        placed.append((key.value, value))
    if len({name for name, _ in placed}) != len(placed):
        raise BadData.at("", "a keyword is given twice")
    return tuple(placed), reader.notes


class _Reader:
    """Reads the arguments of one configuration; tensors are numbered in their order."""

    def __init__(self, text: str) -> None:
        self.notes = PartNotes()
        self._text = text
        self._tensors = 0

    def value(self, node: ast.expr, path: str) -> Value:  # noqa: PLR0911 - one for each kind
        """Return the Value of an expression; unknown ones are kept verbatim."""
        match node:
            case ast.Tuple(elts=items):
                return Tuple(self._items(items, path))
            case ast.List(elts=items):
                return List(self._items(items, path))
            case ast.Constant(value=live):
                return self._constant(live, node, path)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self._negated(self.value(inner, path), node, path)
            case ast.Name(id=name):
                return self._name(name, node, path)
            case ast.Attribute(value=ast.Name(id="torch" | "th"), attr=name):
                return self._member(name, node, path)
            case ast.Call(func=ast.Name(id="T"), args=args, keywords=keywords):
                return self._tensor(args, keywords, node, path)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="torch"), attr="device"),
                args=[ast.Constant(value=str(device))],
            ):
                return device_value(device)
        return self._verbatim(node, path)

    def _items(self, items: Sequence[ast.expr], path: str) -> tuple[Value, ...]:
        return tuple(self.value(item, f"{path}[{n}]") for n, item in enumerate(items))

    def _constant(self, live: object, node: ast.expr, path: str) -> Value:
        match live:
            case None:
                return Null()
            case bool():
                return Bool(live)
            case int():
                return Int(live)
            case float():
                return Float(live)
            case complex():
                return Complex(Float(live.real), Float(live.imag))
            case str():
                return Text(live)
        return self._verbatim(node, path)

    def _negated(self, value: Value, node: ast.expr, path: str) -> Value:
        match value:
            case Int(number):
                return Int(-number)
            case Float(number):
                return Float(-number)
        return self._verbatim(node, path)

    def _name(self, name: str, node: ast.expr, path: str) -> Value:
        if name in DTYPES:
            return Symbol("torch.dtype", DTYPES[name])
        if name in _FLOATS:
            return Float(_FLOATS[name])
        return self._verbatim(node, path)

    def _member(self, name: str, node: ast.expr, path: str) -> Value:
        if name in _SHORT:
            return Symbol("torch.dtype", name)
        if name in _LAYOUTS:
            return Symbol("torch.layout", name)
        if name.endswith(("_format", "channels_last", "channels_last_3d")):
            return Symbol("torch.memory_format", name)
        return self._verbatim(node, path)

    def _tensor(
        self,
        args: Sequence[ast.expr],
        keywords: Sequence[ast.keyword],
        node: ast.expr,
        path: str,
    ) -> Value:
        given: dict[str | None, ast.expr] = {each.arg: each.value for each in keywords}
        strides = given.pop("stride", None)
        match args:
            case [ast.List(elts=sizes), ast.Name(id=dtype)] if dtype in DTYPES and not given:
                shape = _integers(sizes)
                steps = contiguous_strides(shape or ()) if strides is None else _sequence(strides)
                if shape is not None and steps is not None and len(steps) == len(shape):
                    placement = TorchPlacement(steps, "strided", "cpu", requires_grad=False)
                    number, self._tensors = self._tensors, self._tensors + 1
                    return TensorSpec(shape, f"torch.{DTYPES[dtype]}", placement, number, number)
        return self._verbatim(node, path)

    def _verbatim(self, node: ast.expr, path: str) -> Opaque:
        text = ast.get_source_segment(self._text, node) or ""
        return self.notes.keep(f"torch input {type(node).__name__}", text, path)


def _integers(nodes: Sequence[ast.expr]) -> tuple[int, ...] | None:
    found = [each.value for each in nodes if isinstance(each, ast.Constant)]
    if len(found) != len(nodes) or not all(type(each) is int and each >= 0 for each in found):
        return None
    return tuple(each for each in found if isinstance(each, int))


def _sequence(node: ast.expr) -> tuple[int, ...] | None:
    return _integers(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else None


def write_operator_log(
    stream: BinaryIO, cases: Iterable[tuple[Case, Sequence[ExecutionRow]]]
) -> Exported:
    """Write a log of cases of torch's operations, by operator; equal texts are counted together."""
    operators, exported = _by_operator(cases)
    for operator, texts in operators.items():
        stream.write(f"{OPERATOR}{operator}\n".encode())
        for text, count in texts.items():
            stream.write(f"cnt: {count}, {text}\n".encode())
    return exported


def write_operator_json(
    stream: BinaryIO, cases: Iterable[tuple[Case, Sequence[ExecutionRow]]]
) -> Exported:
    """Write the same as JSON: operators with the texts of their arguments and the counts."""
    operators, exported = _by_operator(cases)
    stream.write(json.dumps(operators, indent=1).encode("ascii") + b"\n")
    return exported


def _by_operator(
    cases: Iterable[tuple[Case, Sequence[ExecutionRow]]],
) -> tuple[dict[str, dict[str, int]], Exported]:
    """Return the texts of the arguments of each operator with their counts."""
    found: defaultdict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    count_of_cases = calls = 0
    lost: Counter[str] = Counter()
    for case, rows in cases:
        if not case.op.startswith(_OPS):
            lost["of another library than torch: left out"] += 1
            continue
        count_of_cases += 1
        lost.update(_inexpressible(case))
        texts = found[case.op.removeprefix(_OPS)]
        for row in rows:
            place, text = _text_of(case, row.configuration)
            before, count = texts.get(text, (place, 0))
            texts[text] = (min(before, place), count + row.count)
            calls += row.count
    if not count_of_cases:
        raise BadData.at("$", "none of the cases is of an operation of torch; choose others")
    # The operators in the order of the log, and of their names if they are from elsewhere.
    order = sorted(found, key=lambda op: (min(place for place, _ in found[op].values()), op))
    operators = {
        operator: {
            text: count
            for text, (_, count) in sorted(found[operator].items(), key=lambda each: each[1][0])
        }
        for operator in order
    }
    notes = (f"{_of_cases(count)} {what}" for what, count in lost.items())
    return operators, Exported(count_of_cases, calls, tuple(notes))


def _of_cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count:,} cases"


def _inexpressible(case: Case) -> set[str]:
    """Return the facts about a case that a log cannot express."""
    specs = [spec for _, value in case.arguments for spec in tensors_in(value)]
    found = set()
    for spec in specs:
        match spec.placement:
            case TorchPlacement(layout=layout) if layout != "strided":
                found.add(f"with a {layout} tensor: written as strided")
            case TorchPlacement(conjugate=True) | TorchPlacement(negative=True):
                found.add("with a conjugate or negative view: written without")
            case TorchPlacement(device=device) if device != "cpu":
                found.add(f"on {device}: the log has no devices")
    if len({spec.storage for spec in specs}) < len(specs):
        found.add("with tensors that share memory: written as if each had its own")
    return found


_ELSEWHERE: Final = 2**60


def _text_of(case: Case, configuration: str | None) -> tuple[int, str]:
    """Return the place of a configuration in its log and its text."""
    place, tab, text = (configuration or "").partition("\t")
    if tab and place.isdigit() and text.startswith("("):
        return int(place), text
    arguments = ", ".join(f"{name!r}: {_spelled(value)}" for name, value in case.arguments)
    return _ELSEWHERE, f"((), {{{arguments}}})"


def _spelled(value: Value) -> str:  # noqa: C901, PLR0911 - one for each kind of Value
    """Return a Value as a log spells it."""
    match value:
        case TensorSpec(shape=shape, dtype=dtype, placement=TorchPlacement() as placement):
            name, strides = dtype.removeprefix("torch."), ""
            if placement.strides != contiguous_strides(shape):
                strides = f", stride={placement.strides}"
            return f"T({list(shape)}, {_SHORT.get(name, f'torch.{name}')}{strides})"
        case List(items):
            return f"[{', '.join(map(_spelled, items))}]"
        case Tuple(items):
            return f"({''.join(f'{_spelled(item)}, ' for item in items)})"
        case Symbol("torch.dtype", name):
            return _SHORT.get(name, f"torch.{name}")
        case Symbol(_, name):
            return f"torch.{name}"
        case Struct("torch.device"):
            return f"torch.device({device_name(value) or 'cpu'!r})"
        case Complex(real, imag):
            return repr(complex(real.value, imag.value))
        case Null():
            return "None"
        case Bool() | Int() | Float() | Text():
            return repr(value.value)
        case Opaque(_, token):
            return token
        case Mapping(items):
            pairs = sorted(f"{_spelled(key)}: {_spelled(each)}" for key, each in items)
            return f"{{{', '.join(pairs)}}}"
    return repr(str(value))
