"""Rows of cases, and of families of them, as lists show them."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData
from optrove.report.families import Varied, differing, varied_text
from optrove.store import browsing
from optrove.web.looking import PAGE_ROWS
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.codec.text import Json
    from optrove.report.facets import Choice
    from optrove.web.catalog import Op
    from optrove.web.looking import Look

_MOST_TENSORS: Final = 12
_MOST_SCALARS: Final = 24
_LONGEST: Final = 200_000
"""Contents of more letters are not looked into for a list."""
_MEMBERS: Final = 8
"""How many cases of a family are looked into to tell what varies."""
_MOST_VALUES: Final = 50


def case_rows(
    look: Look, op: Op, numbers: Sequence[int], choice: Choice | None = None
) -> list[dict[str, Any]]:
    """Return cases by their numbers, with their tensors, scalars and last outcome."""
    keys = [op.cases.keys[number] for number in numbers]
    listed = browsing.listed_cases(look.source, keys)
    facts = browsing.facts_of(look.source, keys)
    restricted = choice is not None and (choice.model is not None or choice.board is not None)
    calls = (
        browsing.calls_by(look.source, keys, choice.model, choice.board)
        if choice is not None and restricted
        else {}
    )
    found = []
    for number, key in zip(numbers, keys, strict=True):
        if key not in listed:
            # Removed since the index was made.
            continue
        _, case_id, replayable, every, content = listed[key]
        last = op.last.last(number)
        found.append(
            {
                "case_id": case_id,
                "calls": calls.get(key, 0) if restricted else every,
                "replayable": bool(replayable),
                "outcome": None if last is None else last[0],
                "tensors": [_tensor(each) for each in facts.get(key, ())[:_MOST_TENSORS]],
                "scalars": scalars_in(content),
            }
        )
    return found


def _tensor(facts: tuple[Any, ...]) -> dict[str, Any]:
    argument, shape, dtype, layout, memory, mesh = facts
    return {
        "argument": cut(argument),
        "shape": cut(shape),
        "dtype": cut(dtype),
        "layout": cut(layout),
        "memory": cut(memory),
        "mesh": cut(mesh),
    }


def scalars_in(content: str) -> dict[str, Any]:
    """Return the arguments of a case that are plain numbers, texts, true or false."""
    found: dict[str, Any] = {}
    for name, value in _arguments(content).items():
        if isinstance(value, str | int | float) and len(found) < _MOST_SCALARS:
            found[name[:100]] = value[:100] if isinstance(value, str) else value
    return found


def _arguments(content: str) -> dict[str, Json]:
    if len(content) > _LONGEST:
        return {}
    arguments = json.loads(content).get("arguments")
    return arguments if isinstance(arguments, dict) else {}


def families_of(
    look: Look, op: Op, cases: int, after: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Return families, most called first, and the case that the next page begins after."""
    last = op.cases.families[after] if after >= 0 else None
    groups = list(islice(op.families.after(last, cases), PAGE_ROWS + 1))
    page = groups[:PAGE_ROWS]
    listed = browsing.listed_cases(
        look.source,
        (op.cases.keys[number] for group in page for number in group[:_MEMBERS]),
    )
    rows = {row["case_id"]: row for row in case_rows(look, op, [group[0] for group in page])}
    found = [_family(op, group, listed, rows) for group in page]
    kept = [row for row in found if row]
    return kept, kept[-1]["case_id"] if len(groups) > PAGE_ROWS and kept else None


def _family(
    op: Op,
    group: list[int],
    listed: dict[int, tuple[Any, ...]],
    rows: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    keys = (op.cases.keys[number] for number in group[:_MEMBERS])
    members = [listed[key] for key in keys if key in listed]
    if not members or members[0][1] not in rows:
        return {}
    return {
        **rows[members[0][1]],
        "cases": len(group),
        "calls": sum(op.cases.calls[number] for number in group),
        "varies": _varies([member[4] for member in members], every=len(group)),
    }


def _varies(contents: Iterable[str], *, every: int) -> dict[str, str]:
    """Return what differs among cases, as text; of large families, by the most called."""
    first, *others = [_arguments(content) for content in contents]
    values: dict[str, dict[str, Json]] = {}
    for other in others:
        for path, one, another in differing(first, other):
            own = values.setdefault(path, {json.dumps(one): one})
            if len(own) < _MOST_VALUES:
                own[json.dumps(another)] = another
    about = "" if every <= _MEMBERS else "at least "
    found = {}
    for path, own in sorted(values.items()):
        try:
            text = varied_text(Varied(path, tuple(own.values())))
        except BadData:
            text = f"{len(own)} values"
        found[path[:100]] = about + text[:300]
    return found
