"""Generate pytest files: case ids, test functions, and whole files.

Files of one op test its cases by signature; a standalone file makes the call of one case.
Every case ends up in a file, or among those left out with the part that is in the way.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from optrove.model.values import (
    Bool,
    Float,
    FrozenSet,
    Handle,
    Int,
    List,
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
    key_step,
    walk,
)
from optrove.testgen.cases import Filling, Generated, LeftOut, Numbers, TestFile
from optrove.testgen.groups import grouped
from optrove.testgen.spelling import (
    FRAMEWORKS,
    SEMAPHORE,
    WIDTH,
    Bracket,
    Constants,
    Expression,
    Unspellable,
    call,
    check_name,
    laid_out,
    named,
    prefixed,
    quoted,
    row,
    tuple_of,
)
from optrove.testgen.tensors import Tensors, close_lines, filling_of, open_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from optrove.testgen.cases import Recorded
    from optrove.testgen.groups import Argument, Group


_LONGEST: Final = 76
_CASE: Final = 8
_ODD: Final = re.compile(r"[^\w.=+-]+")
_MOST_ITEMS: Final = 6


def ids_of(cases: Sequence[Recorded], names: Mapping[str, str]) -> list[str]:
    """Return an id for each case of a group; ``names`` says what its arguments go by, in order.

    An id tells of the first tensor all, and of everything else what varies in the group. Where
    that is too long, or does not keep two cases apart, the beginning of the case's own id follows.
    """
    told = [_facts(each, names) for each in cases]
    varying = {key for facts in told for key in facts if _varies(key, told)}
    first = next(iter(told[0]), "").partition(" ")[0] if told and told[0] else ""
    found = []
    for facts in told:
        shown = [_part(key, facts[key]) for key in facts if key in varying or _of(key) == first]
        found.append(_ODD.sub("_", "-".join(filter(None, shown))).strip("_"))
    if len(set(found)) == len(found) and all(each and len(each) <= _LONGEST for each in found):
        return found
    return [
        f"{_shortened(each)}-{case.case_id[:_CASE]}"
        for each, case in zip(found, cases, strict=True)
    ]


def _of(key: str) -> str:
    return key.partition(" ")[0]


def _varies(key: str, told: Iterable[dict[str, str]]) -> bool:
    return len({facts.get(key) for facts in told}) > 1


def _part(key: str, text: str) -> str:
    """Return one fact; what is no property of a tensor needs the name of its argument."""
    name, _, aspect = key.partition(" ")
    return text if aspect or not text else f"{name}={text}"


def _shortened(text: str) -> str:
    most = _LONGEST - _CASE - 1
    if len(text) <= most:
        return text
    return text[:most].rpartition("-")[0] or text[:most]


def _facts(recorded: Recorded, names: Mapping[str, str]) -> dict[str, str]:
    """Return all that can be told of a case, tensors by their properties, in order."""
    arguments = dict(recorded.case.arguments)
    tensors: dict[str, str] = {}
    others: dict[str, str] = {}
    for own_name, name in names.items():
        value = arguments.get(own_name)
        if value is None:
            continue
        specs = [part for _, part in walk(value) if isinstance(part, TensorSpec)]
        for place, spec in enumerate(specs[:_MOST_ITEMS]):
            for aspect, text in _properties(spec).items():
                tensors[f"{name} {place} {aspect}"] = text
        if not specs:
            others[name] = short(value)
    return {**tensors, **others}


def _properties(spec: TensorSpec) -> dict[str, str]:
    facts = {
        "shape": "x".join(map(str, spec.shape)) or "scalar",
        "dtype": spec.dtype.rpartition(".")[2],
    }
    placement = spec.placement
    if isinstance(placement, TtnnPlacement):
        facts["layout"] = "" if placement.layout == "TILE" else placement.layout
        on_host = placement.storage == "host" or placement.memory is None
        facts["memory"] = "HOST" if on_host else short(placement.memory or Null())
    return facts


def short(value: Value) -> str:
    """Return a plain value in a few letters; not all of it is told."""
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
            return _several(sorted(items, key=short))
        case Struct(kind, fields):
            return _struct(kind, fields)
    return ""


def _several(items: list[Value]) -> str:
    more = "" if len(items) <= _MOST_ITEMS else f"+{len(items) - _MOST_ITEMS}"
    return "x".join(map(short, items[:_MOST_ITEMS])) + more


def _struct(kind: str, fields: tuple[tuple[str, Value], ...]) -> str:
    match dict(fields):
        case {"buffer_type": Symbol(name=buffer), "memory_layout": Symbol(name=layout)}:
            return f"{buffer}_{layout}"
        case {"coords": coordinates} | {"shape": coordinates}:
            return short(coordinates)
    return kind.rpartition(".")[2]


_INDENT: Final = 4
_SHOWN: Final = 12

TALKING: Final = frozenset(
    {"cluster_axis", "topology", "num_links", "multi_device_global_semaphore", "barrier_semaphore"}
)
"""Parameters of operations in which chips talk to each other; golden functions know one chip."""

CRASHING: Final = frozenset(
    {"ttnn.experimental.paged_update_cache", "ttnn.experimental.paged_fused_update_cache"}
)
"""Operations that end the process on a mock device when they work on a part of a mesh."""


@dataclass(frozen=True, slots=True)
class TestFunction:
    """The text of a test function, in parts."""

    __test__ = False  # not a test, in spite of its name

    decorator: str
    signature: str
    docstring: str
    body: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Writing:
    """Writes test functions of one file."""

    tensors: Tensors
    constants: Constants

    def argument(self, recorded: Recorded, name: str) -> Expression:
        """Return the value of an argument of a case; Unspellable if there is none."""
        value, path = dict(recorded.case.arguments)[name], f"$.arguments{key_step(name)}"
        if isinstance(value, Struct):
            return self.constants.use(value, path)
        return self.tensors.spelled(value, filling_for(recorded, name), path)

    def output(self, recorded: Recorded) -> Expression:
        """Return the specs of what came out; None if that is not known."""
        specs = output_specs(recorded)
        expressions = [self.tensors.spec(spec, None, "$.outputs") for spec in specs]
        if not expressions:
            return "None"
        return expressions[0] if len(expressions) == 1 else row(expressions)

    def function(self, group: Group, name: str) -> TestFunction:
        """Return the test function of a group."""
        has_output = any(output_specs(each) for each in group.cases)
        parameters = [each.variable for each in group.parameters]
        variables = [*parameters, *(["output"] if has_output else [])]
        made = ["make"] if any(each.is_tensor for each in group.arguments) else []
        live = ["device"] if any(each.live for each in group.arguments) else []
        fixtures = [*made, "check", *live]
        annotated = [f"{fixture}: {FIXTURES[fixture]}" for fixture in fixtures]
        annotated += [f"{variable}: Any" for variable in variables]
        definition = Bracket(f"def test_{name}(", tuple(annotated), ") -> None:")
        body = self.lines(group, None, has_output=has_output)
        return TestFunction(
            decorator=laid_out(self._decorator(group, variables)) if variables else "",
            signature=laid_out(definition),
            docstring=_docstring(group, has_output=has_output),
            body=body,
        )

    def lines(self, group: Group, only: Recorded | None, *, has_output: bool) -> tuple[str, ...]:
        """Return the statements of a test: make what is used twice, call, check.

        They are for one case with its own values, or for all with the test's parameters.
        """
        lines = []
        for each in group.arguments:
            if each.is_tensor and is_shared(each, group):
                made = call(
                    "make", each.variable if only is None else self.argument(only, each.name)
                )
                lines.append(laid_out(prefixed(f"{each.variable} = ", made), _INDENT))
        lines.append(laid_out(prefixed("call = ", self._call(group, only)), _INDENT))
        given = ["call", *(["output"] if has_output else [])]
        if is_talking(group):
            lines.append(
                "# Chips talk to each other, and a golden function knows of one chip only."
            )
            given.append("golden=False")
        if only is not None and has_output:
            lines.append(laid_out(prefixed("output = ", self.output(only)), _INDENT))
        lines.append(f"check({', '.join(given)})")
        return tuple(lines)

    def _call(self, group: Group, only: Recorded | None) -> Expression:
        items: list[Expression] = [group.op]
        owners = {each.name: each for each in group.arguments}
        for each in group.arguments:
            item = self._item(each, group, only)
            if each.alias is not None:
                item = owners[each.alias].variable
            items.append(item if each.keyword is None else named(each.keyword, item))
        return call("partial", *items)

    def _item(self, argument: Argument, group: Group, only: Recorded | None) -> Expression:
        if argument.is_tensor and is_shared(argument, group):
            return argument.variable
        if only is None and argument.varies:
            written: Expression = argument.variable
        else:
            written = self.argument(only or group.cases[0], argument.name)
        return call("make", written) if argument.is_tensor else written

    def _decorator(self, group: Group, variables: Sequence[str]) -> Expression:
        names = tuple_of(map(quoted, variables)) if len(variables) > 1 else quoted(variables[0])
        ids = ids_of(group.cases, {each.name: each.variable for each in group.arguments})
        rows = tuple(
            self._row(group, *pair, variables) for pair in zip(group.cases, ids, strict=True)
        )
        comments = tuple(_comment(each) for each in group.cases)
        return call("@pytest.mark.parametrize", names, Bracket("[", rows, "]", comments=comments))

    def _row(
        self, group: Group, recorded: Recorded, own_id: str, variables: Sequence[str]
    ) -> Expression:
        values = [self.argument(recorded, each.name) for each in group.parameters]
        if variables[-1] == "output" and len(variables) > len(values):
            values.append(self.output(recorded))
        marks = ["marks=crashes_on_mock"] if is_crashing(recorded) else []
        return call("pytest.param", *values, *marks, f"id={quoted(own_id)}")


FIXTURES: Final = {
    "make": "Callable[[Any], Any]",
    "check": "Callable[..., None]",
    "device": "ttnn.MeshDevice",
}


def is_shared(argument: Argument, group: Group) -> bool:
    """Tell whether other arguments are the same tensor as this one."""
    return any(each.alias == argument.name for each in group.arguments)


def is_talking(group: Group) -> bool:
    """Tell whether chips talk to each other in the calls of a group."""
    return group.opening.chips > 1 and any(each.name in TALKING for each in group.arguments)


def is_crashing(recorded: Recorded) -> bool:
    """Tell whether a call would end the process on a mock device."""
    case = recorded.case
    coordinates = dict(case.arguments).get("mesh_coords")
    if case.op not in CRASHING or not isinstance(coordinates, Set):
        return False
    shapes = {
        part.placement.mesh_shape
        for _, value in case.arguments
        for _, part in walk(value)
        if isinstance(part, TensorSpec) and isinstance(part.placement, TtnnPlacement)
    }
    chips = max((_product(shape) for shape in shapes if shape), default=1)
    return len(coordinates.items) < chips


def _product(shape: Sequence[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def output_specs(recorded: Recorded) -> list[TensorSpec]:
    """Return the tensors of ttnn that came out; empty if that was not recorded."""
    if recorded.outputs is None:
        return []
    return [
        part
        for value in recorded.outputs
        for _, part in walk(value)
        if isinstance(part, TensorSpec) and isinstance(part.placement, TtnnPlacement)
    ]


def filling_for(recorded: Recorded, name: str) -> Filling:
    """Return what the tensors of an argument hold."""
    known = {each.argument: each for each in recorded.fillings}
    return known.get(name, Filling(name, Numbers.NORMAL))


def _comment(recorded: Recorded) -> str:
    calls = recorded.calls
    counted = "" if calls is None else f", {calls:,} call{'' if calls == 1 else 's'}"
    return f"Case {recorded.case_id[:_SHOWN]}{counted}"


def _docstring(group: Group, *, has_output: bool) -> str:
    count = len(group.cases)
    cases = "one case" if count == 1 else f"{count} cases"
    told = "" if has_output else "; what came out was not recorded"
    return f"Check {cases} of {group.op}{told}."


MARK: Final = "Made by optrove testgen."
"""Files with this text may be replaced by newer ones."""

PCC: Final = "0.99"
_NOQA: Final = ("FBT001", "FBT003", "PLR0913", "PLR0917", "RUF100", "S101", "TID251")
"""What strict linters find in good tests: asserts, many parameters, truth values among them."""

_USUAL_TILE: Final = (32, 32)

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
        loader=PackageLoader("optrove.testgen"), undefined=StrictUndefined
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


_MOST_NAMES: Final = 3
_OWN_FILE: Final = (
    "it names a file of the model, which a test must not touch; "
    "`optrove replay` uses a temporary one"
)
_OP: Final = re.compile(r"ttnn(\.[A-Za-z_][A-Za-z0-9_]*)+")


def generate(cases: Iterable[Recorded], *, standalone: bool = False) -> Generated:
    """Return the files that test some cases: one per op and device, or one per case."""
    good, left_out = _sorted_out(cases)
    if standalone:
        groups = [group for each in good for group in grouped([each])]
        return Generated(tuple(map(_standalone_file, groups)), tuple(left_out))
    by_file: defaultdict[tuple[str, object], list[Group]] = defaultdict(list)
    for group in grouped(good):
        by_file[group.op, group.opening].append(group)
    files = [
        TestFile(
            name,
            groups[0].op,
            _text(groups, left_out),
            sum(len(g.cases) for g in groups),
            board_of(groups),
        )
        for name, groups in zip(_file_names(by_file.values()), by_file.values(), strict=True)
    ]
    return Generated(tuple(files), tuple(left_out))


def _sorted_out(cases: Iterable[Recorded]) -> tuple[list[Recorded], list[LeftOut]]:
    """Return the cases that can be spelled, and the others with the reason."""
    good, left_out = [], []
    for each in cases:
        fault = _fault(each)
        if fault is None:
            good.append(each)
        else:
            left_out.append(LeftOut(each.case_id, each.case.op, fault.path, fault.reason))
    return good, left_out


def _fault(recorded: Recorded) -> Unspellable | None:
    """Return the first part of a case that no text makes again; None if there is none."""
    try:
        _spell(recorded)
    except Unspellable as error:
        return error
    return None


def _spell(recorded: Recorded) -> None:
    op = recorded.case.op
    if not _OP.fullmatch(op):
        known = op.startswith(FRAMEWORKS)
        raise Unspellable("$.op", f"{op} is no op of ttnn" if known else f"{op!a} is no op")
    if recorded.file is not None:
        raise Unspellable(recorded.file, _OWN_FILE)
    for name, _ in recorded.case.arguments:
        check_name(name, "$.arguments")
    (group,) = grouped([recorded])
    constants = Constants()
    writing = Writing(Tensors(group.opening.mesh_shape, constants.use), constants)
    for each in group.arguments:
        writing.argument(recorded, each.name)
    writing.output(recorded)


def _text(groups: Sequence[Group], left_out: Iterable[LeftOut]) -> str:
    own = [each for each in left_out if each.op == groups[0].op]
    return tests_text(groups, _function_names(groups), own)


def _standalone_file(group: Group) -> TestFile:
    (only,) = group.cases
    name = f"test_{_stem(group.op)}_{only.case_id[:_CASE]}.py"
    return TestFile(name, group.op, standalone_text(group), 1, board_of([group]))


def _stem(op: str) -> str:
    return op.removeprefix("ttnn.").replace(".", "_").lower()


def _file_names(files: Iterable[Sequence[Group]]) -> list[str]:
    """Return a name for each file; with the mesh where an op has been called on several."""
    listed = list(files)
    counts = Counter(groups[0].op for groups in listed)
    taken: Counter[str] = Counter()
    names = []
    for groups in listed:
        stem = _stem(groups[0].op)
        if counts[groups[0].op] > 1:
            stem += "_on_" + "x".join(map(str, groups[0].opening.mesh_shape))
        taken[stem] += 1
        number = f"_{taken[stem]}" if taken[stem] > 1 else ""
        names.append(f"test_{stem}{number}.py")
    return names


def _function_names(groups: Sequence[Group]) -> list[str]:
    """Return a name for each group that tells what sets its calls apart."""
    sets = [{each.variable.rstrip("_") for each in group.arguments} for group in groups]
    shared = set.intersection(*sets)
    taken: Counter[str] = Counter()
    names = []
    for group, own in zip(groups, sets, strict=True):
        name = function_name(group.op).rstrip("_")
        telling = [each for each in sorted(own - shared) if not re.fullmatch(r"arg\d+", each)]
        telling = [each.removesuffix("_config").removesuffix("_tensor") for each in telling]
        if 0 < len(telling) <= _MOST_NAMES:
            name += "_with_" + "_and_".join(telling)
        elif telling:
            name += "_with_" + "_and_".join(telling[: _MOST_NAMES - 1]) + "_and_more"
        taken[name] += 1
        names.append(f"{name}_{taken[name]}" if taken[name] > 1 else name)
    return names
