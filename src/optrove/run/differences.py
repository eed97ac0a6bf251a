"""Say where two recorded values differ, part by part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from optrove.codec.text import Json, write
from optrove.codec.wire import encode
from optrove.model.case import Case
from optrove.model.rewrite import renamed
from optrove.model.values import Null
from optrove.model.walk import key_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.model.values import Value

LISTED: Final = 20
"""How many differences are told; the rest is counted."""

_LONGEST: Final = 120
_PLACE: Final = re.compile(r"arg\d+")

UNTOLD: Final = (".placement.mesh", ".placement.mesh_shape")
"""What recordings may leave out about a tensor that lies on a device."""

GRADIENT: Final = re.compile(r"\$\.outputs\b.*\.placement\.requires_grad")
"""What is false of a result where nothing was to be differentiated, whatever was called."""

SPREAD: Final = frozenset({"coordinates", "distribution_shape", "placements"})
"""The parts of how a tensor is spread over a mesh."""


def case_differences(
    recorded: Case, replayed: Case, named: tuple[tuple[str, str], ...]
) -> list[str]:
    """Return how a replayed call differs from the recorded one; empty if it does not.

    An argument that was recorded by its place only is compared with the one that it became; that
    it has got a name is no difference, nor that it is absent by now where it was None.
    """
    if recorded == replayed:
        return []
    if recorded.op != replayed.op:
        return [f"recorded as a call of {recorded.op}, traced as one of {replayed.op}"]
    own = {name for name, _ in recorded.arguments}
    names = {old: new for old, new in named if old in own and new not in own}
    kept = tuple(
        (name, value)
        for name, value in recorded.arguments
        if not (value == Null() and name not in names and _PLACE.fullmatch(name))
    )
    alike = renamed(Case(recorded.op, kept), names)
    if alike == replayed:
        return []
    olds = {name: encode(value) for name, value in alike.arguments}
    news = {name: encode(value) for name, value in replayed.arguments}
    return _listed(_differences("$.arguments", olds, news))


def output_differences(recorded: tuple[Value, ...], replayed: tuple[Value, ...]) -> list[str]:
    """Return how the outputs of a replay differ from the recorded ones; empty if they do not.

    On one chip there is one way to spread a tensor, in as many dimensions as ttnn likes: whether
    it has moved a tensor meanwhile, as a fuller L1 makes it do, changes their number.
    """
    if recorded == replayed:
        return []
    olds = [_on_one_chip(encode(value)) for value in recorded]
    news = [_on_one_chip(encode(value)) for value in replayed]
    return _listed(_differences("$.outputs", olds, news))


def _on_one_chip(data: Json) -> Json:
    """Return a value without the dimensions in which a tensor is spread over a single chip."""
    if isinstance(data, list):
        return [_on_one_chip(item) for item in data]
    if not isinstance(data, dict):
        return data
    if set(data) == SPREAD and data["coordinates"] == [[0, 0]]:
        return {"coordinates": data["coordinates"]}
    return {key: _on_one_chip(item) for key, item in data.items()}


def _listed(found: Iterator[str]) -> list[str]:
    lines = list(found)
    more = len(lines) - LISTED
    return [*lines[:LISTED], f"and {more} more"] if more > 0 else lines


def _differences(path: str, old: Json, new: Json) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            here = path + key_step(key)
            if key not in new:
                yield f"{here}: recorded {_shown(old[key])}, replayed without"
            elif key not in old:
                yield f"{here}: recorded without, replayed {_shown(new[key])}"
            else:
                yield from _differences(here, old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{path}[{index}]", one, other)
    elif (type(old) is not type(new) or old != new) and not _is_untold(path, old):
        yield f"{path}: recorded {_shown(old)}, replayed {_shown(new)}"


def _is_untold(path: str, old: Json) -> bool:
    if old is False:
        return GRADIENT.fullmatch(path) is not None
    return old is None and path.endswith(UNTOLD)


def _shown(data: Json) -> str:
    text = write(data)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
