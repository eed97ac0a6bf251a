"""Generate pytest files of recorded cases.

The files of an op test its cases, with a test function for each signature; a standalone file makes
the call of one case. Every case is in a file, or left out with the part that no Python makes.

A tensor is a ``Spec``; fields with their default values are left out:

    Spec((1, 1, 32, 64), ttnn.bfloat16, L1_WIDTH_SHARDED_32X64, mesh=(2, None))
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.ttnn.ops import op_of
from optrove.model.ttnn_classes import USUAL_TILE
from optrove.model.values import (
    Bool,
    Float,
    FrozenSet,
    Handle,
    Int,
    List,
    Mapping,
    Null,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    Value,
    contiguous_strides,
    key_step,
    tensors_in,
)
from optrove.report.wording import SHORT_ID, plural
from optrove.testgen.cases import DrawnValues, Filling, GroupedCases, grouped, holds_tensors
from optrove.testgen.expressions import (
    SEMAPHORE,
    WIDTH,
    Bracket,
    Constants,
    Expression,
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
from optrove.testgen.portable_source import JUDGE, portable_source
from optrove.testgen.torch_files import (
    check_torch,
    is_torch_op,
    kept_reader,
    torch_file,
    torch_file_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.frameworks.kept_tensors import KeptTensor
    from optrove.model.records import DeviceParameters
    from optrove.model.values import MeshPlacement, Tile
    from optrove.testgen.cases import Argument, RecordedCase

MARK: Final = "Made by optrove testgen."
"""A file with this text may be replaced by a newer one."""

_PCC: Final = "0.99"
_NOQA: Final = ("FBT001", "FBT003", "PLR0913", "PLR0917", "RUF100", "S101", "TID251")
"""The rules of strict linters that generated tests break: asserts, many parameters, booleans."""

_NOQA_ERRORS: Final = ("ARG001", "B017", "BLE001", "PT011")
"""Those that tests of calls which have to raise break: errors of any class, an unused device."""

_BOARD: Final = re.compile(r"[a-z0-9-]+")
_USES_FILE: Final = (
    "it names a file of the model, which a test must not touch; "
    "`optrove replay` uses a temporary one"
)


@dataclass(frozen=True, slots=True)
class UntestableCase:
    """A case without a test: the part that no Python makes, and the reason.

    A case that ``raised`` when it was recorded is left out as a whole.
    """

    case_id: str
    op: str
    path: str
    reason: str
    raised: bool = False

    @property
    def why(self) -> str:
        """The part and the reason, or the reason alone if it is the whole case."""
        return self.reason if self.raised else f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TestFile:
    """A generated file: its name, its text, the number of its cases, and a mock board for them.

    ``values`` are recorded tensors that it reads from the file beside it.
    """

    __test__ = False  # not a test, in spite of its name

    name: str
    op: str
    text: str
    cases: int
    board: str | None = None
    values: tuple[KeptTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class GeneratedFiles:
    """The generated files, and the cases left out."""

    files: tuple[TestFile, ...]
    left_out: tuple[UntestableCase, ...]


def generate(
    cases: Iterable[RecordedCase],
    *,
    standalone: bool = False,
    raised: Iterable[UntestableCase] = (),
) -> GeneratedFiles:
    """Return the files that test some cases: one for each op and device, or one for each case.

    The files list the cases that ``raised`` among those left out.
    """
    faults = [(each, _fault(each)) for each in cases]
    left_out = (*(fault for _, fault in faults if fault is not None), *raised)
    good = [each for each, fault in faults if fault is None]
    of_torch = _torch_files(
        (each for each in good if is_torch_op(each.case.op)), standalone=standalone
    )
    good = [each for each in good if not is_torch_op(each.case.op)]
    if standalone:
        groups = [group for each in good for group in grouped([each])]
        return GeneratedFiles((*map(_standalone_file, groups), *of_torch), left_out)
    by_file: defaultdict[object, list[GroupedCases]] = defaultdict(list)
    for group in grouped(good):
        by_file[group.op, group.device, group.supplied].append(group)
    files = [
        TestFile(
            name,
            groups[0].op,
            _tests_text(groups, [each for each in left_out if each.op == groups[0].op]),
            sum(len(group.cases) for group in groups),
            _board(groups),
            kept_values(each for group in groups for each in group.cases),
        )
        for name, groups in zip(_file_names(by_file.values()), by_file.values(), strict=True)
    ]
    return GeneratedFiles((*files, *of_torch), left_out)


def _torch_files(cases: Iterable[RecordedCase], *, standalone: bool) -> list[TestFile]:
    """Return the files of cases of torch: one for each operation, or one for each case."""
    groups: defaultdict[tuple[str, str | None], list[RecordedCase]] = defaultdict(list)
    for each in cases:
        groups[each.case.op, each.case_id if standalone else None].append(each)
    return [
        TestFile(
            torch_file_name(op, case_id),
            op,
            torch_file(found, MARK, standalone=standalone),
            len(found),
            values=kept_values(found),
        )
        for (op, case_id), found in groups.items()
    ]


def kept_values(cases: Iterable[RecordedCase]) -> tuple[KeptTensor, ...]:
    """Return the recorded tensors of cases, each distinct one once."""
    return tuple({kept.name: kept for each in cases for kept in each.kept.values()}.values())


def _fault(recorded: RecordedCase) -> UntestableCase | None:
    """Return why a case has no test; None if it can have one."""
    try:
        _check(recorded)
    except NotExpressible as error:
        return UntestableCase(recorded.case_id, recorded.case.op, error.path, error.reason)
    return None


def _check(recorded: RecordedCase) -> None:
    """Raise NotExpressible for a case that no Python makes."""
    op = recorded.case.op
    check_op(op)
    if is_torch_op(op):
        check_torch(recorded)
        return
    if recorded.file is not None:
        raise NotExpressible(recorded.file, _USES_FILE)
    for name, _ in recorded.case.arguments:
        check_name(name, "$.arguments")
    (group,) = grouped([recorded])
    writer = CaseWriter(group.mesh_shape)
    for each in group.arguments:
        writer.argument(recorded, each.name)
    writer.output(recorded)


def _file_names(files: Iterable[Sequence[GroupedCases]]) -> list[str]:
    """Return a name for each file; with the mesh if an op was called on several."""
    listed = list(files)
    counts = Counter(groups[0].op for groups in listed)
    taken: Counter[str] = Counter()
    names = []
    for groups in listed:
        stem = _stem(groups[0].op)
        if counts[groups[0].op] > 1:
            stem += "_on_" + "x".join(map(str, groups[0].mesh_shape))
        taken[stem] += 1
        number = f"_{taken[stem]}" if taken[stem] > 1 else ""
        names.append(f"test_{stem}{number}.py")
    return names


def _stem(op: str) -> str:
    return op.removeprefix("ttnn.").replace(".", "_").lower()


def _board(groups: Sequence[GroupedCases]) -> str | None:
    """Return the mock board of most cases; None if none is known."""
    named = [each.board for group in groups for each in group.cases if each.board is not None]
    counted = Counter(name for name in named if _BOARD.fullmatch(name))
    return counted.most_common(1)[0][0] if counted else None


@lru_cache(maxsize=1)
def template_parts() -> Any:
    """Return the macros of the template."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - Python is generated, no web page
        loader=PackageLoader("optrove.testgen"), undefined=StrictUndefined
    )
    return environment.get_template("parts.py.jinja").module


def _tests_text(groups: Sequence[GroupedCases], left_out: Iterable[UntestableCase]) -> str:
    """Return the text of a file that tests the cases of groups, all of one op and device."""
    parts, first = template_parts(), groups[0]
    writer = CaseWriter(first.mesh_shape)
    tests = [
        writer.function(group, name)
        for group, name in zip(groups, _function_names(groups), strict=True)
    ]
    note = f"; not recorded: {', '.join(first.supplied)}" if first.supplied else ""
    device = parts.device(
        first.chips, note, open_lines(first.device, "opened"), close_lines(first.device, "opened")
    )
    cases = [each for group in groups for each in group.cases]
    calls = _calls(cases)
    about = (
        f"{MARK} {plural(len(cases), 'case')}{calls}, most called first. Needs ttnn and torch "
        f"only. {values_text(cases)}"
        "Where the device computes, numbers are compared with ttnn's golden functions; a mock one "
        "only checks calls, and a warning says so."
    )
    notes = sorted({note for each in cases for note in each.notes})
    crashing = any(map(_is_crashing, cases))
    return _file(
        groups,
        [f"Test {first.op} as models call it.", about, *notes],
        [
            parts.imports(
                pytest=True, kept=bool(kept_values(cases)), chip=UsedParts.by(groups).chip
            ),
            parts.settings(_PCC, first.chips, crashing),
            writer.constants.text,
        ],
        [*tests, _left_out_comment(left_out), device, _refusal(groups), parts.fixtures()],
    )


def _calls(cases: Iterable[RecordedCase]) -> str:
    """Return how often different cases were called; empty if that is unknown."""
    counted = {each.case_id: each.calls for each in cases if each.calls is not None}
    return f", {plural(sum(counted.values()), 'call')}" if counted else ""


def values_text(cases: Iterable[RecordedCase]) -> str:
    """Return a sentence about the values of inputs, if some were recorded."""
    return "Recorded values are in the file beside it. " if kept_values(cases) else ""


def _standalone_file(group: GroupedCases) -> TestFile:
    """Return a file that makes the call of one case, and needs no pytest."""
    parts = template_parts()
    (only,) = group.cases
    writer = CaseWriter(group.mesh_shape)
    name = group.op.rpartition(".")[2].lower()
    test = parts.standalone(
        name,
        group.op,
        any(each.is_tensor for each in group.arguments),
        group.error is None,
        open_lines(group.device, "device"),
        close_lines(group.device, "device"),
        writer.body(group, only, has_output=bool(only.output_specs)),
    )
    calls = "" if only.calls is None else f", {plural(only.calls, 'call')}"
    if only.shrunk_from is not None:
        calls = f", shrunk from case {only.shrunk_from[:SHORT_ID]}"
    about = (
        f"{MARK} Case {only.case_id[:SHORT_ID]}{calls}. Run it with python or pytest; it needs "
        f"ttnn and torch only. {values_text([only])}Where the device computes, numbers are "
        f"compared with ttnn's golden function."
    )
    supplied = [f"Not recorded, and supplied: {each}." for each in group.supplied]
    text = _file(
        [group],
        [f"Reproduce a recorded call of {group.op}.", about, *supplied, *only.notes],
        [
            parts.imports(pytest=False, kept=bool(only.kept), chip=UsedParts.by([group]).chip),
            f"PCC = {_PCC}",
            writer.constants.text,
        ],
        [test, _refusal([group])],
        parts.main(name),
    )
    values = "" if only.kept_from is None else f"_call_{only.kept_from:d}"
    file = f"test_{_stem(group.op)}_{_NOT_IN_IDS.sub('_', only.case_id[:_CASE])}{values}.py"
    return TestFile(file, group.op, text, 1, _board([group]), kept_values([only]))


def _refusal(groups: Sequence[GroupedCases]) -> str:
    """Return the function that says why no device can be opened."""
    return str(template_parts().refusal(_board(groups) or "NAME"))


def _file(
    groups: Sequence[GroupedCases],
    heading: Sequence[str],
    statements: Sequence[str],
    tests: Sequence[str],
    end: str = "",
) -> str:
    """Return the text of a file; the functions that its tests need are added."""
    parts = template_parts()
    used = UsedParts.by(groups)
    values = [each for each in DrawnValues if each in used.values - {DrawnValues.NORMAL}]
    functions = [getattr(parts, f"value_{each.value}")() for each in values]
    if used.values & {DrawnValues.COSINES, DrawnValues.SINES}:
        functions.insert(0, parts.value_angles())
    blocks = [
        "\n\n".join(filter(None, (text.strip() for text in statements))),
        parts.spec(used),
        *functions,
        *(kept_reader(shaped=True) if used.kept else ()),
        *tests,
        parts.making(used),
        parts.cores() if used.all_cores else "",
        parts.computing(),
        parts.walking(used),
        parts.checking(used),
        parts.comparing(),
        *portable_source(JUDGE).definitions,
        end,
    ]
    body = "\n\n\n".join(block.strip() for block in blocks if block)
    is_long = any(len(line) > WIDTH for line in body.splitlines())
    raising = any(group.error for group in groups)
    broken = (*_NOQA, *(_NOQA_ERRORS if raising else ()), *(("E501",) if is_long else ()))
    codes = ", ".join(sorted(broken))
    first, *texts = heading
    paragraphs = ["\n".join(textwrap.wrap(harmless(text), WIDTH - 1)) for text in texts]
    docstring = "\n\n".join([first, *paragraphs]) + "\n"
    return f"{parts.heading(docstring, codes).strip()}\n\n{body}\n"


@dataclass(frozen=True, slots=True)
class UsedParts:
    """The parts of the template that the tests of a file need."""

    mesh: bool
    tile: bool
    torch: bool
    lists: bool
    all_cores: bool
    talking: bool
    values: frozenset[DrawnValues]
    undistributed: bool = False
    chip: bool = False
    kept: bool = False

    @classmethod
    def by(cls, groups: Sequence[GroupedCases]) -> UsedParts:
        """Return the parts that the tests of groups need."""
        cases = [each for group in groups for each in group.cases]
        specs = [
            (part, each.filling(name))
            for each in cases
            for name, part in each.case.parts()
            if isinstance(part, TensorSpec)
        ]
        used = cls.for_specs(
            [*specs, *((spec, Filling()) for each in cases for spec in each.output_specs)],
            mesh=any(group.chips > 1 for group in groups),
            kept=any(each.kept for each in cases),
        )
        return replace(
            used,
            values=frozenset(filling_of(*each).numbers for each in specs),
            lists=any(
                each.is_tensor and not isinstance(dict(case.case.arguments)[each.name], TensorSpec)
                for group in groups
                for each in group.arguments
                for case in group.cases[:1]
            ),
            all_cores=any(
                isinstance(part, Handle) and part.type == SEMAPHORE and part.recipe is None
                for each in cases
                for _, part in each.case.parts()
            ),
            talking=any(map(_is_talking, groups)),
        )

    @classmethod
    def for_specs(
        cls, specs: Sequence[tuple[TensorSpec, Filling]], *, mesh: bool, kept: bool
    ) -> UsedParts:
        """Return the parts that make these tensors."""
        placements = [spec.placement for spec, _ in specs]
        of_ttnn = [each for each in placements if isinstance(each, TtnnPlacement)]
        return cls(
            mesh=mesh,
            tile=any(is_unusual(each.tile) for each in of_ttnn),
            torch=any(isinstance(each, TorchPlacement) for each in placements),
            lists=False,
            all_cores=False,
            talking=False,
            values=frozenset(filling_of(*each).numbers for each in specs),
            undistributed=mesh and any(map(is_undistributed, of_ttnn)),
            chip=mesh and any(is_on_one_chip(each.mesh) for each in of_ttnn),
            kept=kept,
        )


def _left_out_comment(left_out: Iterable[UntestableCase]) -> str:
    """Return a comment that names the cases without a test; empty without any."""
    lines: list[str] = []
    for each in left_out:
        text = harmless(f"case {each.case_id[:SHORT_ID]}: {each.why}")
        lines += textwrap.wrap(
            text, WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False
        )
    title = "# Left out:"
    return "\n".join([title, *lines]) if lines else ""


def open_lines(device: DeviceParameters, variable: str) -> list[str]:
    """Return the statements that open a device."""
    lines = []
    if device.fabric_config is not None:
        lines.append(f"ttnn.set_fabric_config(ttnn.FabricConfig.{device.fabric_config})")
    sizes = {
        "l1_small_size": device.l1_small_size,
        "trace_region_size": device.trace_region_size,
        "worker_l1_size": device.worker_l1_size,
        "num_command_queues": device.command_queues,
    }
    keywords: list[Expression] = [f"{name}={size:d}" for name, size in sizes.items() if size]
    if device.dispatch_axis is not None:
        axis = f"axis=ttnn.DispatchCoreAxis.{device.dispatch_axis}"
        keywords.append(f"dispatch_core_config=ttnn.DispatchCoreConfig({axis})")
    shape = device.mesh_shape or ()
    if prod(shape) == 1:
        opened = call("ttnn.open_device", "device_id=0", *keywords)
    else:
        mesh = call("ttnn.MeshShape", *map(str, shape))
        opened = call("ttnn.open_mesh_device", mesh, *keywords)
    return [*lines, formatted(prefixed(f"{variable} = ", opened), 2 * _INDENT)]


def close_lines(device: DeviceParameters, variable: str) -> list[str]:
    """Return the statements that close a device."""
    kind = "device" if prod(device.mesh_shape or ()) == 1 else "mesh_device"
    lines = [f"ttnn.close_{kind}({variable})"]
    if device.fabric_config is not None:
        lines.append("ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)")
    return lines


_MAX_NAMES: Final = 3


def _function_names(groups: Sequence[GroupedCases]) -> list[str]:
    """Return a name for each group, with the arguments that only its calls have."""
    sets = [{each.variable.rstrip("_") for each in group.arguments} for group in groups]
    shared = set.intersection(*sets)
    taken: Counter[str] = Counter()
    names = []
    for group, own in zip(groups, sets, strict=True):
        name = group.op.rpartition(".")[2].lower().rstrip("_")
        special = [
            each.removesuffix("_config").removesuffix("_tensor")
            for each in sorted(own - shared)
            if not re.fullmatch(r"arg\d+", each)
        ]
        if len(special) > _MAX_NAMES:
            special = [*special[: _MAX_NAMES - 1], "more"]
        if special:
            name += "_with_" + "_and_".join(special)
        name += "" if group.error is None else "_raises"
        taken[name] += 1
        names.append(f"{name}_{taken[name]}" if taken[name] > 1 else name)
    return names


_INDENT: Final = 4
_FIXTURES: Final = {
    "make": "Callable[[Any], Any]",
    "check": "Callable[..., None]",
    "device": "ttnn.MeshDevice",
}
_DEFAULT_LAYOUT: Final = "TILE"
_LAYOUTS: Final = (_DEFAULT_LAYOUT, "ROW_MAJOR")
_UNKNOWN_BOUND: Final = 8
"""The bound of whole numbers if nothing states how many places there are."""

INTEGER: Final = re.compile(r"\.u?int\d+$|\.bool$")
"""Finds the dtypes of whole numbers."""

_TALKING: Final = frozenset(
    {"cluster_axis", "topology", "num_links", "multi_device_global_semaphore", "barrier_semaphore"}
)
"""Parameters of ops in which chips talk to each other; golden functions know one chip."""


@dataclass(frozen=True, slots=True)
class CaseWriter:
    """Writes the test functions of one file, whose calls run on a mesh of one shape."""

    mesh_shape: tuple[int, ...]
    constants: Constants = field(default_factory=Constants)

    def function(self, group: GroupedCases, name: str) -> str:
        """Return the test function of a group."""
        has_output = any(each.output_specs for each in group.cases)
        variables = [each.variable for each in group.parameters] + ["output"] * has_output
        fixtures = ["make"] if any(each.is_tensor for each in group.arguments) else []
        fixtures += ["check"] if group.error is None else []
        fixtures += ["device"] if any(each.live for each in group.arguments) else []
        parameters = [f"{fixture}: {_FIXTURES[fixture]}" for fixture in fixtures]
        parameters += [f"{variable}: Any" for variable in variables]
        # Constants are in the order of use: first those of the body.
        body = self.body(group, None, has_output=has_output)
        count = len(group.cases)
        cases = "one case" if count == 1 else f"{count} cases"
        note = "" if has_output else "; the output was not recorded"
        note = note if group.error is None else f"; it raised {group.error} when it was recorded"
        return str(
            template_parts().test(
                formatted(self._decorator(group, variables)) if variables else "",
                formatted(Bracket(f"def test_{name}(", tuple(parameters), ") -> None:")),
                f"Check {cases} of {group.op}{note}.",
                body,
            )
        )

    def _decorator(self, group: GroupedCases, variables: Sequence[str]) -> Expression:
        names = tuple_of(map(quoted, variables)) if len(variables) > 1 else quoted(variables[0])
        rows, comments = [], []
        for recorded, own_id in zip(group.cases, _ids_of(group), strict=True):
            values = [self.argument(recorded, each.name) for each in group.parameters]
            if len(variables) > len(values):
                values.append(self.output(recorded))
            marks = ["marks=crashes_on_mock"] if _is_crashing(recorded) else []
            rows.append(call("pytest.param", *values, *marks, f"id={quoted(own_id)}"))
            calls = "" if recorded.calls is None else f", {plural(recorded.calls, 'call')}"
            comments.append(harmless(f"Case {recorded.case_id[:SHORT_ID]}{calls}"))
        table = Bracket("[", tuple(rows), "]", comments=tuple(comments))
        return call("@pytest.mark.parametrize", names, table)

    def body(
        self, group: GroupedCases, only: RecordedCase | None, *, has_output: bool
    ) -> list[str]:
        """Return the statements of a test: make tensors that are used twice, call, check.

        They are for one case with its own values, or for all with the test's parameters.
        """
        lines = []
        for each in group.arguments:
            if group.is_shared(each):
                value = each.variable if only is None else self.argument(only, each.name)
                made = prefixed(f"{each.variable} = ", call("make", value))
                lines.append(formatted(made, _INDENT))
        lines.append(formatted(prefixed("call = ", self._call(group, only)), _INDENT))
        checked = ["call", *(["output"] if has_output else [])]
        if group.error is not None:
            return [*lines, *_expecting_lines(group.error, with_pytest=only is None)]
        if _is_talking(group):
            lines.append(
                "# Chips talk to each other, and a golden function knows of one chip only."
            )
            checked.append("golden=False")
        if only is not None and has_output:
            lines.append(formatted(prefixed("output = ", self.output(only)), _INDENT))
        return [*lines, f"check({', '.join(checked)})"]

    def _call(self, group: GroupedCases, only: RecordedCase | None) -> Expression:
        variables = {each.name: each.variable for each in group.arguments}
        items: list[Expression] = [group.op]
        for each in group.arguments:
            item: Expression
            if each.alias is not None:
                item = variables[each.alias]
            elif group.is_shared(each):
                item = each.variable
            else:
                item = each.variable
                if only is not None or not each.varies:
                    item = self.argument(only or group.cases[0], each.name)
                item = call("make", item) if each.is_tensor else item
            items.append(item if each.keyword is None else prefixed(f"{each.keyword}=", item))
        return call("partial", *items)

    def argument(self, recorded: RecordedCase, name: str) -> Expression:
        """Return the value of an argument; NotExpressible if there is no expression for it."""
        value, path = dict(recorded.case.arguments)[name], f"$.arguments{key_step(name)}"
        if isinstance(value, Struct):
            return self.constants.use(value, path)
        return self._value(value, recorded.filling(name), path)

    def output(self, recorded: RecordedCase) -> Expression:
        """Return the specs of the recorded outputs; None if they are unknown."""
        specs = [self.spec(spec, None, "$.outputs") for spec in recorded.output_specs]
        if not specs:
            return "None"
        return specs[0] if len(specs) == 1 else row(specs)

    def _value(self, value: Value, filling: Filling, path: str) -> Expression:
        """Return an argument: a tensor, a list of tensors and plain values, or a plain value."""
        match value:
            case TensorSpec():
                return self.spec(value, filling, path)
            case List(items) | Tuple(items):
                each = [
                    self._value(item, filling, f"{path}[{place}]")
                    for place, item in enumerate(items)
                ]
                return row(each) if isinstance(value, List) else tuple_of(each)
            case Mapping() | Set() | FrozenSet() | Struct() if holds_tensors(value):
                raise NotExpressible(path, "tensors within something else than a list")
        return expression_of(value, path)

    def spec(self, spec: TensorSpec, filling: Filling | None, path: str) -> Expression:
        """Return the Spec of a tensor; without a filling it is for comparison only."""
        items: list[Expression] = [
            tuple_of(map(str, spec.shape)) if spec.shape else "()",
            dtype(spec.dtype, path),
        ]
        match spec.placement:
            case TtnnPlacement() as placement:
                items += self._placement(placement, path, is_input=filling is not None)
            case TorchPlacement() as placement:
                _check_contiguous(spec.shape, placement, path)
                items.append("None")
            case _:
                raise NotExpressible(path, "an array of numpy")
        filled = Filling() if filling is None else filling_of(spec, filling)
        kept = filled.kept.get(spec.identity)
        if kept is not None:
            items.append(f"values=kept({quoted(kept.name)})")
        elif filled.numbers in (DrawnValues.WHOLE, DrawnValues.DISTINCT):
            items.append(f"values={filled.numbers.value}({filled.below})")
        elif filled.numbers is not DrawnValues.NORMAL:
            items.append(f"values={filled.numbers.value}")
        return call("Spec", *items)

    def _placement(
        self, placement: TtnnPlacement, path: str, *, is_input: bool
    ) -> list[Expression]:
        items: list[Expression] = ["None"]
        memory = placement.memory
        if placement.storage != "host":
            if memory is None:
                raise NotExpressible(path, "its memory was not recorded")
            memory = _without_derived_shards(memory) if is_input else memory
            items = [self.constants.use(memory, f"{path}.$tensor.placement.memory")]
        if placement.layout not in _LAYOUTS:
            raise NotExpressible(path, f"the layout {placement.layout!a}")
        if placement.layout != _DEFAULT_LAYOUT:
            items.append(f"ttnn.{placement.layout}_LAYOUT")
        tile = placement.tile
        if tile is not None and is_unusual(tile):
            transposed = ["True"] if tile.transpose_of_faces else []
            items.append(
                prefixed("tile=", call("ttnn.Tile", row(map(str, tile.shape)), *transposed))
            )
        if placement.mesh is not None and prod(self.mesh_shape) > 1:
            items += (
                ["mesh=()"] if is_undistributed(placement) else self._mesh(placement.mesh, path)
            )
        return items

    def _mesh(self, mesh: MeshPlacement, path: str) -> list[Expression]:
        """Return the dimension that is split along each axis of the mesh, or along all chips.

        Of a tensor on one chip, also the number of that chip.
        """
        chips = list(product(*map(range, self.mesh_shape)))
        if len(mesh.coordinates) not in (1, len(chips)) or mesh.coordinates[0] not in chips:
            raise NotExpressible(path, "it is only on a part of the mesh")
        if mesh.distribution_shape not in (self.mesh_shape, (len(chips),)):
            raise NotExpressible(path, "it is spread over another shape than that of the mesh")
        items: list[Expression] = []
        if mesh.placements != (None,):  # the default
            items.append(prefixed("mesh=", tuple_of(map(str, mesh.placements))))
        if is_on_one_chip(mesh):
            items.append(f"chip={chips.index(mesh.coordinates[0])}")
        return items


def _expecting_lines(error: str, *, with_pytest: bool) -> list[str]:
    """Return the statements that make a call which has to raise an error."""
    if with_pytest:
        return [f"with pytest.raises({error}):", "    call()"]
    return [
        "try:",
        "    call()",
        f"except {error}:",
        "    return",
        f'raise AssertionError("it returned; when it was recorded, it raised {error}")',
    ]


def _is_talking(group: GroupedCases) -> bool:
    """Return whether chips talk to each other in the calls of a group."""
    return group.chips > 1 and any(each.name in _TALKING for each in group.arguments)


def _is_crashing(recorded: RecordedCase) -> bool:
    """Return whether a call would end the process on a mock device."""
    coordinates = dict(recorded.case.arguments).get("mesh_coords")
    if not op_of(recorded.case.op).crashes_on_parts or not isinstance(coordinates, Set):
        return False
    chips = [
        prod(spec.placement.mesh_shape or ())
        for spec in recorded.case.tensors()
        if isinstance(spec.placement, TtnnPlacement)
    ]
    return len(coordinates.items) < max(chips, default=1)


def filling_of(spec: TensorSpec, filling: Filling) -> Filling:
    """Return the values of a tensor: integers are never drawn from a normal distribution."""
    if spec.identity in filling.kept:
        return replace(filling, numbers=DrawnValues.NORMAL)
    if filling.numbers is DrawnValues.NORMAL and INTEGER.search(spec.dtype):
        return Filling(DrawnValues.WHOLE, _UNKNOWN_BOUND)
    return filling


def is_undistributed(placement: TtnnPlacement) -> bool:
    """Return whether a tensor is on the host, and not made for the chips of a mesh."""
    mesh = placement.mesh
    return placement.storage == "host" and mesh is not None and prod(mesh.distribution_shape) == 1


def is_on_one_chip(mesh: MeshPlacement | None) -> bool:
    """Return whether only one chip of a mesh has its part of a tensor."""
    return mesh is not None and len(mesh.coordinates) == 1 < prod(mesh.distribution_shape)


def is_unusual(tile: Tile | None) -> bool:
    """Return whether a tile is not the usual one."""
    return tile is not None and (tile.shape != USUAL_TILE.shape or tile.transpose_of_faces)


def _without_derived_shards(memory: Struct) -> Struct:
    """Return a memory configuration without the shards that ttnn derived from nd shards.

    ttnn adds a shard_spec when it places a tensor, and will do so again.
    """
    fields = dict(memory.fields)
    if not isinstance(fields.get("nd_shard_spec"), Struct):
        return memory
    return replace(memory, fields=tuple({**fields, "shard_spec": Null()}.items()))


def _check_contiguous(shape: tuple[int, ...], placement: TorchPlacement, path: str) -> None:
    if placement.strides != contiguous_strides(shape) or placement.device != "cpu":
        raise NotExpressible(path, "a tensor of torch that is not contiguous, or not on the host")


_MAX_ID_CHARS: Final = 76
_CASE: Final = 8
_NOT_IN_IDS: Final = re.compile(r"[^\w.=+-]+")
_MAX_ITEMS: Final = 6


def _ids_of(group: GroupedCases) -> list[str]:
    """Return an id for each case of a group.

    An id states all properties of the first tensor, and those of the others that vary in the
    group. If that is too long, or equal for two cases, the beginning of the case id follows.
    """
    facts = [_facts(each, group.arguments) for each in group.cases]
    varying = {key for one in facts for key in one if len({other.get(key) for other in facts}) > 1}
    first = next(iter(facts[0]), ("", ""))[0]
    ids = []
    for one in facts:
        texts = [
            text if aspect or not text else f"{name}={text}"
            for (name, aspect), text in one.items()
            if (name, aspect) in varying or name == first
        ]
        ids.append(_NOT_IN_IDS.sub("_", "-".join(filter(None, texts))).strip("_"))
    if len(set(ids)) == len(ids) and all(each and len(each) <= _MAX_ID_CHARS for each in ids):
        return ids
    return [
        f"{_shortened(each)}-{case.case_id[:_CASE]}"
        for each, case in zip(ids, group.cases, strict=True)
    ]


def _shortened(text: str) -> str:
    most = _MAX_ID_CHARS - _CASE - 1
    if len(text) <= most:
        return text
    return text[:most].rpartition("-")[0] or text[:most]


def _facts(recorded: RecordedCase, arguments: Iterable[Argument]) -> dict[tuple[str, str], str]:
    """Return the properties of a case by argument and aspect, those of tensors first."""
    values = dict(recorded.case.arguments)
    tensors: dict[tuple[str, str], str] = {}
    others: dict[tuple[str, str], str] = {}
    if recorded.kept_from is not None:
        others["call", "number"] = f"call_{recorded.kept_from}"
    for argument in arguments:
        value = values[argument.name]
        specs = list(tensors_in(value))
        for place, spec in enumerate(specs[:_MAX_ITEMS]):
            for aspect, text in _properties(spec).items():
                tensors[argument.variable, f"{place} {aspect}"] = text
        if not specs:
            others[argument.variable, ""] = _short(value)
    return {**tensors, **others}


def _properties(spec: TensorSpec) -> dict[str, str]:
    facts = {
        "shape": "x".join(map(str, spec.shape)) or "scalar",
        "dtype": spec.dtype.rpartition(".")[2],
    }
    placement = spec.placement
    if isinstance(placement, TtnnPlacement):
        facts["layout"] = "" if placement.layout == _DEFAULT_LAYOUT else placement.layout
        memory = None if placement.storage == "host" else placement.memory
        facts["memory"] = "HOST" if memory is None else _short(memory)
    return facts


def _short(value: Value) -> str:
    """Return a plain value in a few letters, which need not state all of it."""
    match value:
        case Null():
            return "None"
        case Bool(plain) | Int(plain) | Float(plain) | Text(plain):
            return str(plain)
        case Symbol(name=name):
            return name
        case List(items) | Tuple(items):
            return _several(list(items))
        case Set(items) | FrozenSet(items):
            return _several(sorted(items, key=_short))
        case Struct():
            return _short_struct(value)
    return ""


def _short_struct(value: Struct) -> str:
    match dict(value.fields):
        case {"buffer_type": Symbol(name=buffer), "memory_layout": Symbol(name=layout)}:
            return f"{buffer}_{layout}"
        case {"coords": coordinates} | {"shape": coordinates}:
            return _short(coordinates)
    return value.type.rpartition(".")[2]


def _several(items: list[Value]) -> str:
    more = "" if len(items) <= _MAX_ITEMS else f"+{len(items) - _MAX_ITEMS}"
    return "x".join(map(_short, items[:_MAX_ITEMS])) + more
