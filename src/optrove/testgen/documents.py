"""Generated tests and shrunk cases, as documents and as data."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from optrove.report.attempts import UNSAID, VERDICTS
from optrove.report.describe import argument_fields
from optrove.report.document import (
    Command,
    Field,
    Fields,
    Item,
    Items,
    Paragraph,
    Section,
    paragraphs,
)
from optrove.report.wording import SHORT_ID, clipped, plural
from optrove.serializer.hashes import placement_hash
from optrove.serializer.wire import encode
from optrove.testgen.torch_files import is_torch_op

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from optrove.model.case import Case
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.testgen.files import GeneratedFiles, UntestableCase
    from optrove.testgen.shrink import Shrunk

_ANY_BOARD: Final = "n300"
_MAX_NAMED: Final = 3
_MAX_CAUSE_CHARS: Final = 300
# Plugins such as anyio otherwise keep the parameters of tests, and nanobind reports leaks.
_WITHOUT_LEAKS: Final = "--assert=plain "


def tests_document(
    generated: GeneratedFiles, directory: Path, *, standalone: bool
) -> Iterator[Node]:
    """Yield the written files, the cases without a test, and the commands that run the tests."""
    files = generated.files
    for file in files:
        path = directory / file.name
        yield Paragraph(f"{path}  {plural(file.cases, 'case')} of {file.op}")
    tested = sum(file.cases for file in files)
    yield Paragraph(f"{plural(len(files), 'file')}, {plural(tested, 'case')}")
    yield from _left_out_section(generated.left_out)
    paths = [shlex.quote(str(directory / file.name)) for file in files]
    named = shlex.quote(str(directory)) if len(paths) > _MAX_NAMED else " ".join(paths)
    of_ttnn = [file for file in files if not is_torch_op(file.op)]
    plainly = standalone or not of_ttnn
    command = f"pytest {'' if plainly else _WITHOUT_LEAKS}{named}"
    alone = standalone and len(paths) == 1
    yield Command(f"run it with: python {named}" if alone else f"run them with: {command}")
    if standalone and not alone:
        yield Command(f"or one alone: python {paths[0]}")
    if not of_ttnn:
        return
    boards: Counter[str] = Counter()
    for file in of_ttnn:
        boards[file.board or _ANY_BOARD] += file.cases
    board = boards.most_common(1)[0][0]
    yield Command(f"without a board: {command} --optrove-board {board} --optrove-shadow")


def _left_out_section(left_out: Sequence[UntestableCase]) -> Iterator[Section]:
    """Yield the cases without a test by op and reason."""
    groups: defaultdict[tuple[str, str], list[UntestableCase]] = defaultdict(list)
    for each in left_out:
        groups[each.op, each.reason].append(each)
    items = []
    for (op, reason), some in groups.items():
        such = "such as " if len(some) > 1 else ""
        case = f"{such}case {some[0].case_id[:SHORT_ID]}"
        items.append(Item(len(some), f"{op} ({case}): {some[0].path}: {reason}"))
    if items:
        title = f"left out, since no test can be written of them: {plural(len(left_out), 'case')}"
        more = "(--json names each)" if len(groups) < len(left_out) else ""
        yield Section(title, (Items(tuple(items), more),))


def tests_data(generated: GeneratedFiles, directory: Path) -> dict[str, Any]:
    """Return the written files; ``optrove.cli.test`` describes the keys."""
    files, left_out = generated.files, generated.left_out
    return {
        "directory": str(directory),
        "files": [
            {"file": str(directory / file.name), "op": file.op, "cases": file.cases}
            for file in files
        ],
        "cases": sum(file.cases for file in files),
        "left_out": [
            {"case_id": each.case_id, "op": each.op, "path": each.path, "reason": each.reason}
            for each in left_out
        ],
    }


def shrunk_document(shrunk: Shrunk, file: Path | None) -> Iterator[Node]:
    """Yield the original case, the shrunk one, and the steps between them."""
    cause = clipped(shrunk.attempt.cause or UNSAID, _MAX_CAUSE_CHARS)
    yield Fields(
        (
            Field("Operation", shrunk.original.op),
            Field("Fails", f"{VERDICTS[shrunk.attempt.outcome]}: {cause}"),
        )
    )
    yield _case_section("Original", shrunk.original)
    if shrunk.steps:
        yield _case_section("Shrunk", shrunk.case)
        steps = plural(len(shrunk.steps), "step")
        yield Section(f"{steps} that mattered", paragraphs(shrunk.steps))
    else:
        yield Paragraph("Nothing simpler fails in the same way.")
    limit = "; a limit was reached, more may be possible (--trials, --timeout)"
    yield Paragraph(f"{plural(shrunk.trials, 'call')} tried{'' if shrunk.finished else limit}")
    if file is None:
        yield Paragraph("write it as a standalone test: the same command with -o DIR")
    else:
        yield Paragraph(f"reproducer: {file}")


def _case_section(title: str, case: Case) -> Section:
    return Section(f"{title}: case {placement_hash(case)[:SHORT_ID]}", (argument_fields(case),))


def shrunk_data(shrunk: Shrunk, file: Path | None) -> dict[str, Json]:
    """Return a shrunk case; ``optrove.cli.test`` describes the keys."""
    return {
        "op": shrunk.original.op,
        "case_id": placement_hash(shrunk.original),
        "outcome": shrunk.attempt.outcome.value,
        "cause": shrunk.attempt.cause,
        "steps": list(shrunk.steps),
        "original": _case_data(shrunk.original),
        "shrunk": _case_data(shrunk.case),
        "trials": shrunk.trials,
        "finished": shrunk.finished,
        "file": None if file is None else str(file),
    }


def _case_data(case: Case) -> dict[str, Json]:
    return {
        "case_id": placement_hash(case),
        "arguments": {name: encode(value) for name, value in case.arguments},
    }
