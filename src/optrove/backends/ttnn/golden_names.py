"""Pass arguments to a golden function by place where it calls them otherwise than the op does."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optrove.backends.ttnn.arguments import Overload

_BY_PLACE: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def by_place(
    function: Any,
    overloads: Iterable[Overload],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an op as its golden function can be called with them.

    ``ttnn.repeat(x, repeat_dims=...)`` has a golden function of ``(x, shape)``. A keyword goes by
    place only if the op takes it at that place, the golden function does not know its name, and
    needs something there.
    """
    parameters = _parameters(function)
    if parameters is None or not _lacks_something(parameters, arguments, keywords):
        return arguments, keywords
    places = [each for each in parameters.values() if each.kind in _BY_PLACE]
    for overload in overloads:
        placed, rest = list(arguments), dict(keywords)
        for name in overload.positional[len(arguments) :]:
            if name not in rest or name in parameters or len(placed) >= len(places):
                break
            if places[len(placed)].default is not inspect.Parameter.empty:
                break
            placed.append(rest.pop(name))
        if not _lacks_something(parameters, tuple(placed), rest):
            return tuple(placed), rest
    return arguments, keywords


@lru_cache(maxsize=4096)  # more than ttnn has ops: asking takes longer than many a golden function
def _parameters(function: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a function, None if it does not tell."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _lacks_something(parameters: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Tell whether a required parameter that can be passed by place is not given."""
    places = [each for each in parameters.values() if each.kind in _BY_PLACE]
    return any(
        each.default is inspect.Parameter.empty and each.name not in keywords
        for each in places[len(arguments) :]
    )
