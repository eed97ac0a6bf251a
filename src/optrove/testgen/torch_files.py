"""Generate pytest files of recorded cases of torch's operations; they need torch and pytest only.

A standalone file needs no pytest. A file tests the cases of one operation: each is called with
random numbers from a seed, the specs of its outputs have to be as recorded, and its numbers close
to the same operation in float64 on the CPU. A tensor is a ``Spec``; fields with their default
values are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from optrove.frameworks.input_values import way_to_draw
from optrove.frameworks.torch.domains import domain_of
from optrove.frameworks.torch.probe import OWN_SPACES
from optrove.frameworks.torch.reference import DATA_DEPENDENT, NOT_UNIQUE, UNINITIALIZED, last_name
from optrove.model.values import (
    List,
    Struct,
    TensorSpec,
    TorchPlacement,
    Tuple,
    contiguous_strides,
    tensors_in,
)
from optrove.report.wording import SHORT_ID, plural
from optrove.testgen.expressions import (
    NotExpressible,
    dtype,
    expression_of,
    flat,
    harmless,
    quoted,
)
from optrove.testgen.portable_source import portable_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optrove.model.torch_target import TorchTarget
    from optrove.model.values import Value
    from optrove.testgen.cases import RecordedCase

_PLACE: Final = re.compile(r"arg(\d+)")
_INTEGERS: Final = re.compile(r"torch\.(u?int|bool)")
_DRAWN: Final = frozenset(
    {
        "normal",
        "whole",
        "nonzero",
        "distinct",
        "ends",
        "longest",
        "positive",
        "share",
        "positive_definite",
    }
)
_KEPT_IMPORTS: Final = """\
import json
from functools import cache
from pathlib import Path
"""
TORCH_IMPORTS: Final = """\
import io
import os
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from math import isfinite, prod, sqrt
from multiprocessing import Pipe

"""
_JUDGING: Final = ("SHARE", "disturb", "finest_of", "float_faults", "longest_sum", "share_of")


def kept_reader(*, shaped: bool) -> list[str]:
    """Return the parts of a generated file that read recorded values with torch alone.

    ``shaped`` adds the function that gives them the shape of a Spec.
    """
    *parts, last = template_text("kept_values").split("\n\n\n")
    return [*parts, last] if shaped else parts


def torch_judging() -> str:
    """Return the part of generated files that says how results are wrong."""
    copied = portable_source(_JUDGING).definitions
    return "\n\n\n".join((*copied, template_text("torch_comparing")))


def template_text(name: str) -> str:
    """Return the text of a part of generated files that is always the same."""
    path = files("optrove.testgen").joinpath(f"templates/{name}.py.jinja")
    return path.read_text("utf-8").strip()


def is_torch_op(op: str) -> bool:
    """Return whether an op is one of torch."""
    return op.startswith("torch.")


def check_torch(recorded: RecordedCase) -> None:
    """Raise NotExpressible for a case that no Python makes."""
    _Writer(recorded).text()


def torch_file(cases: Sequence[RecordedCase], mark: str, *, standalone: bool) -> str:
    """Return the text of a file that tests cases of one operation."""
    op = cases[0].case.op
    shrunk_from, target = cases[0].shrunk_from, cases[0].target
    title = f"Test {op} as models call it."
    counted = sum({each.case_id: each.calls or 0 for each in cases}.values())
    about = f"{mark} {plural(len(cases), 'case')}, {plural(counted, 'call')}, most called first."
    if shrunk_from is not None:
        title = f"Test {op}, shrunk from case {shrunk_from[:SHORT_ID]}."
        about = mark
    parts = f"{template_text('torch_parts')}\n\n\n{torch_judging()}"
    uninitialized = last_name(op) in UNINITIALIZED
    function = re.sub(r"\W", "_", last_name(op)).strip("_") or "op"
    kept = any(each.kept for each in cases)
    needs = "Needs torch and pytest only."
    if standalone:
        needs = "Run it with python or pytest; it needs torch only."
    texts = [
        f"{about} {needs}" + (" Recorded values are in the file beside it." if kept else ""),
        *(f"Python has to find the module {name}: see PYTHONPATH." for name in target.imports),
        *sorted({note for each in cases for note in each.notes}),
    ]
    body = "\n\n".join(map(harmless, texts))
    imports = _KEPT_IMPORTS + TORCH_IMPORTS if kept else TORCH_IMPORTS
    imports += "import torch\n" if standalone else "import pytest\nimport torch\n"
    reader = "\n\n\n".join(kept_reader(shaped=False)) + "\n\n\n" if kept else ""
    return (
        f'"""{harmless(title)}\n\n{body}\n"""\n\n'
        f"# ruff: noqa\nfrom __future__ import annotations\n\n{imports}\n"
        f"{reader}"
        f"{_operation(op, target, standalone=standalone)}"
        f"{_settings(cases[0])}"
        f"NOT_INITIALIZED = {uninitialized}\n"
        f"NOT_UNIQUE = {NOT_UNIQUE.get(last_name(op), ())}\n\n\n"
        f"{parts}\n\n"
        f"{_tests(cases, function, standalone=standalone)}"
    )


def _tests(cases: Sequence[RecordedCase], function: str, *, standalone: bool) -> str:
    """Return the cases of a file, and the function that tests each."""
    named = [
        (quoted(name), _Writer(each).text()) for each, name in zip(cases, _ids(cases), strict=True)
    ]
    if standalone:
        rows = "".join(f"    {name}: ({text}),\n" for name, text in named)
        return (
            f"CASES = {{\n{rows}}}\n\n\n"
            f"def test_{function}():\n"
            f"    for call, outputs in CASES.values():\n"
            f"        check(OP, call, outputs)\n\n\n"
            f'if __name__ == "__main__":\n'
            f"    test_{function}()\n"
        )
    rows = "".join(f"    pytest.param({text}, id={name}),\n" for name, text in named)
    return (
        f"CASES = [\n{rows}]\n\n\n"
        f'@pytest.mark.parametrize(("call", "outputs"), CASES)\n'
        f"def test_{function}(call, outputs):\n"
        f"    check(OP, call, outputs)\n\n\n"
        f'if __name__ == "__main__":\n'
        f"    sys.exit(pytest.main([__file__, *sys.argv[1:]]))\n"
    )


def _settings(recorded: RecordedCase) -> str:
    """Return the lines that say where and how the operation runs."""
    target = recorded.target
    # A module that registers the operation itself is imported before, so that it is found.
    imports = target.imports if _is_own(recorded.case.op) else ()
    compiler = None if target.compiler is None else quoted(target.compiler)
    return (
        f"SEED = {recorded.seed}\n"
        f"DEVICE = {quoted(_device(recorded))}\n"
        f'"""Where the operation runs; the reference is always computed on the CPU."""\n'
        f"COMPILER = {compiler}\n"
        f'"""The backend of torch.compile, if any; the reference is not compiled."""\n'
        f"IMPORTS = ({''.join(f'{quoted(name)}, ' for name in imports)})\n"
        f'"""Modules for the call, in a copy of this process: they may replace its kernels."""\n'
    )


def _device(recorded: RecordedCase) -> str:
    """Return the device of a shrunk case, on which it failed; the CPU for others."""
    if recorded.shrunk_from is None:
        return "cpu"
    placements = (spec.placement for spec in recorded.target.placed(recorded.case).tensors())
    devices = [each.device for each in placements if isinstance(each, TorchPlacement)]
    # A scalar may be on the CPU beside tensors of another device.
    others = [each for each in devices if each != "cpu"]
    return (others or devices or [recorded.target.device or "cpu"])[0]


def _is_own(op: str) -> bool:
    """Return whether torch itself has an operation."""
    return op.split(".")[2] in OWN_SPACES


def _operation(op: str, target: TorchTarget, *, standalone: bool) -> str:
    """Return the lines that find an operation; tests of one of another library may be skipped."""
    if _is_own(op):
        return f"OP = {op}\n"
    _, _, space, name, overload = op.split(".")
    where = "at the top of this file" if standalone else "in a conftest.py"
    reason = quoted(f"{op} is not registered: import its library {where}")
    stop = f"pytest.skip({reason}, allow_module_level=True)"
    if standalone:
        stop = f"raise ImportError({reason})"
    imports = "".join(f"import {each}\n" for each in target.imports)
    return (
        f"{imports}"
        f"PACKET = getattr(torch.ops.{space}, {quoted(name)}, None)\n"
        f"OP = getattr(PACKET, {quoted(overload)}, None)\n"
        f"if OP is None:\n    {stop}\n"
    )


def torch_file_name(op: str, case_id: str | None = None) -> str:
    """Return the name of the file of an operation, or of one of its cases."""
    stem = op.removeprefix("torch.ops.")
    case = "" if case_id is None else f"_{case_id[:SHORT_ID]}"
    return re.sub(r"\W", "_", f"test_torch_{stem}{case}") + ".py"


def _ids(cases: Sequence[RecordedCase]) -> list[str]:
    """Return a readable name for each case: the shapes and dtypes of its tensors."""
    texts = []
    for each in cases:
        specs = list(each.case.tensors())
        shown = "-".join(
            f"{'x'.join(map(str, spec.shape)) or 'scalar'}_{spec.dtype.removeprefix('torch.')}"
            for spec in specs[:3]
        )
        texts.append(shown or "no_tensors")
    counted = Counter(texts)
    return [
        (text if counted[text] == 1 else f"{text}-{each.case_id[:8]}")
        + ("" if each.kept_from is None else f"-call_{each.kept_from}")
        for text, each in zip(texts, cases, strict=True)
    ]


class _Writer:
    """Writes the arguments and outputs of one case as Python."""

    def __init__(self, recorded: RecordedCase) -> None:
        self._recorded = recorded
        self._arguments: Mapping[str, Value] = dict(recorded.case.arguments)
        self._domain = domain_of(recorded.case.op, self._arguments)
        specs = list(recorded.case.tensors())
        self._identities = Counter(spec.identity for spec in specs)
        self._storages = Counter(spec.storage for spec in specs)

    def text(self) -> str:
        """Return the call and its outputs; NotExpressible if a part cannot be written."""
        placed = [name for name in self._arguments if _PLACE.fullmatch(name)]
        placed.sort(key=lambda name: int(name[3:]))
        given = "".join(f"{self._argument(name)}, " for name in placed)
        named = ", ".join(
            f"{quoted(name)}: {self._argument(name)}"
            for name in self._arguments
            if name not in placed
        )
        return f"(({given}), {{{named}}}), {self._outputs()}"

    def _argument(self, name: str) -> str:
        return self._value(self._arguments[name], name, "")

    def _value(self, value: Value, name: str, path: str) -> str:
        match value:
            case TensorSpec(placement=TorchPlacement() as placement):
                return self._spec(value, placement, name, path)
            case List(items):
                inner = [self._value(item, name, f"{path}[{n}]") for n, item in enumerate(items)]
                return f"[{', '.join(inner)}]"
            case Tuple(items):
                inner = [self._value(item, name, f"{path}[{n}]") for n, item in enumerate(items)]
                return f"({''.join(f'{each}, ' for each in inner)})"
            case Struct("torch.device"):
                return "DEVICE"
            case Struct("torch.Size", (("sizes", sizes),)):
                return f"torch.Size({self._value(sizes, name, path)})"
        return flat(expression_of(value, f"$.arguments.{name}{path}"))

    def _spec(self, spec: TensorSpec, placement: TorchPlacement, name: str, path: str) -> str:
        if placement.layout != "strided":
            raise NotExpressible(f"$.arguments.{name}{path}", f"a {placement.layout} tensor")
        integers = bool(_INTEGERS.match(spec.dtype))
        draw, below = self._domain(name, path, integers) or way_to_draw(
            name, self._arguments, integers=integers
        )
        numbers = getattr(draw, "__name__", "normal")
        shared = self._storages[spec.storage] > 1
        kept = self._recorded.kept.get(spec.identity)
        options = {
            "strides": None
            if placement.strides == contiguous_strides(spec.shape)
            else placement.strides,
            "offset": placement.offset or None,
            "numbers": quoted(numbers) if numbers in _DRAWN - {"normal"} else None,
            "below": max(1, below) if integers and below != 8 else None,  # noqa: PLR2004 - the default of Spec
            "identity": spec.identity if self._identities[spec.identity] > 1 else None,
            "storage": spec.storage if shared else None,
            "kept": None if kept is None else quoted(kept.name),
            "conjugate": placement.conjugate or None,
            "negative": placement.negative or None,
        }
        more = "".join(f", {key}={each}" for key, each in options.items() if each is not None)
        kind = dtype(spec.dtype, f"$.arguments.{name}{path}")
        return f"Spec({spec.shape}, {kind}{more})"

    def _outputs(self) -> str:
        if self._recorded.error is not None:
            return self._recorded.error
        outputs = self._recorded.outputs
        if outputs is None or last_name(self._recorded.case.op) in DATA_DEPENDENT:
            return "None"
        rows = [
            f"({spec.shape}, {dtype(spec.dtype, '$.outputs')}, {spec.placement.strides})"
            for value in outputs
            for spec in tensors_in(value)
            if isinstance(spec.placement, TorchPlacement)
        ]
        return f"[{', '.join(rows)}]"
