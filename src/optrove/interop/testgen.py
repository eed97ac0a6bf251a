"""Generate plain pytest files from recorded cases: text from data, nothing is imported or run.

Files of one op test its cases by signature; a standalone file makes the call of one case.
Every case ends up in a file, or among those left out with the part that is in the way.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from optrove.interop.testgen_cases import Generated, LeftOut, TestFile
from optrove.interop.testgen_constants import Constants
from optrove.interop.testgen_files import board_of, function_name, standalone_text, tests_text
from optrove.interop.testgen_groups import grouped
from optrove.interop.testgen_spelling import FRAMEWORKS, Unspellable, check_name
from optrove.interop.testgen_tensors import Tensors
from optrove.interop.testgen_tests import Writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.interop.testgen_cases import Recorded
    from optrove.interop.testgen_groups import Group

_CASE: Final = 8
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
