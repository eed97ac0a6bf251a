"""Put generated files together: what they say first, their tests, and the functions these use."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from optrove.interop.testgen_cases import Numbers
from optrove.interop.testgen_constants import Constants
from optrove.interop.testgen_device import close_lines, open_lines
from optrove.interop.testgen_layout import WIDTH
from optrove.interop.testgen_spelling import SEMAPHORE
from optrove.interop.testgen_tensors import Tensors, filling_of
from optrove.interop.testgen_tests import (
    Writing,
    filling_for,
    is_crashing,
    is_talking,
    output_specs,
)
from optrove.model.values import Handle, TensorSpec, TorchPlacement, TtnnPlacement
from optrove.model.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.interop.testgen_cases import LeftOut
    from optrove.interop.testgen_groups import Group

MARK: Final = "Made by optrove testgen."
"""Files with this text may be replaced by newer ones."""

PCC: Final = "0.99"
_NOQA: Final = ("FBT001", "FBT003", "PLR0913", "PLR0917", "RUF100", "S101", "TID251")
"""What strict linters find in good tests: asserts, many parameters, truth values among them."""

_USUAL_TILE: Final = (32, 32)
_SHOWN: Final = 12
_BOARD: Final = re.compile(r"[a-z0-9-]+")
_SOME_BOARD: Final = "NAME"


@dataclass(frozen=True, slots=True)
class Used:
    """Which parts the tests of a file need."""

    mesh: bool
    tile: bool
    torch: bool
    lists: bool
    all_cores: bool
    talking: bool
    crashing: bool
    values: frozenset[str]


def used_by(groups: Sequence[Group]) -> Used:
    """Return what the tests of some groups need."""
    parts = [
        part
        for group in groups
        for each in group.cases
        for _, value in each.case.arguments
        for _, part in walk(value)
    ]
    specs = [part for part in parts if isinstance(part, TensorSpec)]
    handles = [part for part in parts if isinstance(part, Handle)]
    placements = [spec.placement for spec in specs]
    return Used(
        mesh=any(group.opening.chips > 1 for group in groups),
        tile=any(_has_own_tile(each) for each in placements),
        torch=any(isinstance(each, TorchPlacement) for each in placements),
        lists=any(
            each.is_tensor and not isinstance(dict(case.case.arguments)[each.name], TensorSpec)
            for group in groups
            for each in group.arguments
            for case in group.cases
        ),
        all_cores=any(each.type == SEMAPHORE and each.recipe is None for each in handles),
        talking=any(map(is_talking, groups)),
        crashing=any(is_crashing(each) for group in groups for each in group.cases),
        values=frozenset(_values(groups)),
    )


def _has_own_tile(placement: object) -> bool:
    tile = placement.tile if isinstance(placement, TtnnPlacement) else None
    return tile is not None and (tile.shape != _USUAL_TILE or tile.transpose_of_faces)


def _values(groups: Sequence[Group]) -> Iterable[str]:
    for group in groups:
        for each in group.cases:
            for name, value in each.case.arguments:
                for _, part in walk(value):
                    if isinstance(part, TensorSpec):
                        yield filling_of(part, filling_for(each, name)).numbers.value


@lru_cache(maxsize=1)
def _parts() -> Any:
    """Return the macros of the template."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - Python is generated, no web page
        loader=PackageLoader("optrove.interop"), undefined=StrictUndefined
    )
    return environment.get_template("parts.py.jinja").module


def board_of(groups: Sequence[Group]) -> str | None:
    """Return the mock board for most cases of some groups, as far as any is known."""
    named = [each.board for group in groups for each in group.cases if each.board is not None]
    counted = Counter(name for name in named if _BOARD.fullmatch(name))
    return counted.most_common(1)[0][0] if counted else None


def tests_text(groups: Sequence[Group], names: Sequence[str], left_out: Iterable[LeftOut]) -> str:
    """Return the text of a file that tests the cases of some groups, all of one op and device."""
    parts, used, opening = _parts(), used_by(groups), groups[0].opening
    constants = Constants()
    writing = Writing(Tensors(opening.mesh_shape, constants.use), constants)
    functions = [writing.function(*pair) for pair in zip(groups, names, strict=True)]
    tests = [parts.test(f.decorator, f.signature, f.docstring, f.body) for f in functions]
    note = f"; not recorded: {', '.join(opening.untold)}" if opening.untold else ""
    device = parts.device(
        opening.chips, note, open_lines(opening, "opened", 8), close_lines(opening, "opened")
    )
    first = [
        parts.imports(pytest=True),
        parts.settings(PCC, opening.chips, used.crashing),
        *_constant_lines(constants),
    ]
    blocks = [
        "\n\n".join(map(str.strip, first)),
        parts.spec(used),
        *_value_functions(parts, used),
        *tests,
        *_left_out_lines(left_out),
        device,
        parts.refusal(board_of(groups) or _SOME_BOARD),
        parts.fixtures(),
        *_machinery(parts, used),
    ]
    return _file(parts, _tests_heading(groups), blocks)


def _constant_lines(constants: Constants) -> list[str]:
    return ["\n".join(constants.lines())] if constants.lines() else []


def _value_functions(parts: Any, used: Used) -> list[str]:
    rope = {Numbers.COSINES.value, Numbers.SINES.value}
    names = [each.value for each in Numbers if each.value in used.values - {"normal"}]
    first = ["angles"] if rope & used.values else []
    return [getattr(parts, f"value_{name}")() for name in (*first, *names)]


def _machinery(parts: Any, used: Used) -> list[str]:
    cores = [parts.cores()] if used.all_cores else []
    return [
        parts.making(used),
        *cores,
        parts.computing(),
        parts.walking(used),
        parts.checking(used),
    ]


def _tests_heading(groups: Sequence[Group]) -> str:
    cases = sum(len(group.cases) for group in groups)
    counted = [each.calls for group in groups for each in group.cases if each.calls is not None]
    calls = f", {sum(counted):,} calls" if counted else ""
    first = f"Test {groups[0].op} as models call it."
    text = (
        f"{MARK} {_plural(cases, 'case')}{calls}, most called first. Needs ttnn and torch only. "
        "Where the device computes, numbers are compared with ttnn's golden functions; a mock one "
        "only checks calls, and a warning says so."
    )
    notes = sorted({note for group in groups for each in group.cases for note in each.notes})
    return _heading(first, [text, *notes])


def _heading(first: str, texts: Iterable[str]) -> str:
    lines = ["\n".join(textwrap.wrap(_harmless(text), WIDTH - 1)) for text in texts]
    return "\n\n".join([first, *lines]) + "\n"


def _harmless(text: str) -> str:
    """Return what recordings tell so that it cannot end the docstring or comment it stands in."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain.replace("\\", "/").replace('"', "'")


def _left_out_lines(left_out: Iterable[LeftOut]) -> list[str]:
    """Return a comment that names the cases without a test."""
    lines = []
    for each in left_out:
        text = _harmless(f"case {each.case_id[:_SHOWN]}: {each.path}: {each.reason}")
        lines += textwrap.wrap(
            text, WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False
        )
    return (
        ["\n".join(["# Left out, since no test can be written of them:", *lines])] if lines else []
    )


def standalone_text(group: Group) -> str:
    """Return the text of a file that makes the call of one case, and needs no pytest."""
    parts, used, opening = _parts(), used_by([group]), group.opening
    constants = Constants()
    writing = Writing(Tensors(opening.mesh_shape, constants.use), constants)
    (only,) = group.cases
    body = writing.lines(group, only, has_output=bool(output_specs(only)))
    name = function_name(group.op)
    block = parts.standalone(
        name,
        group.op,
        any(each.is_tensor for each in group.arguments),
        open_lines(opening, "device", 8),
        close_lines(opening, "device"),
        body,
    )
    first = [parts.imports(pytest=False), f"PCC = {PCC}", *_constant_lines(constants)]
    blocks = [
        "\n\n".join(map(str.strip, first)),
        parts.spec(used),
        *_value_functions(parts, used),
        block,
        parts.refusal(board_of([group]) or _SOME_BOARD),
        *_machinery(parts, used),
        parts.main(name),
    ]
    return _file(parts, _standalone_heading(group), blocks)


def _standalone_heading(group: Group) -> str:
    (only,) = group.cases
    calls = "" if only.calls is None else f", {_plural(only.calls, 'call')}"
    text = (
        f"{MARK} Case {only.case_id[:_SHOWN]}{calls}. Run it with python or pytest; it needs ttnn "
        "and torch only. Where the device computes, numbers are compared with ttnn's golden "
        "function."
    )
    untold = [f"Not recorded, and supplied: {each}." for each in group.opening.untold]
    first = f"Reproduce a recorded call of {group.op}."
    return _heading(first, [text, *untold, *only.notes])


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def function_name(op: str) -> str:
    """Return what tests of an op are called."""
    return op.rpartition(".")[2].lower()


def _file(parts: Any, heading: str, blocks: Iterable[str]) -> str:
    body = "\n\n\n".join(block.strip() for block in blocks)
    codes = list(_NOQA)
    if any(len(line) > WIDTH for line in body.splitlines()):
        codes.append("E501")
    top = parts.heading(heading, ", ".join(sorted(codes)))
    return f"{top.strip()}\n\n{body}\n"
