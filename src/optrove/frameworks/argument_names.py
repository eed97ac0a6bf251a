"""Bind the arguments of a call to names where no schema describes them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def bind_by_place(
    arguments: tuple[Any, ...], keywords: Mapping[str, Any], names: Iterable[str] = ()
) -> dict[str, Any]:
    """Return every argument by name; where ``names`` run out it is ``arg`` and its place."""
    known = tuple(names)
    places = [f"arg{place}" for place in range(len(known), len(arguments))]
    return {**dict(zip((*known, *places), arguments, strict=False)), **keywords}


def bind_by_signature(
    signature: inspect.Signature | None, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return every argument by the names of a Python signature; by place if it does not fit."""
    if signature is None:
        return bind_by_place(arguments, keywords)
    try:
        bound = signature.bind(*arguments, **keywords)
    except TypeError:  # the function is about to refuse the call
        return bind_by_place(arguments, keywords)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named.update(bind_by_place(value, {}))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def signature_of(function: Any) -> inspect.Signature | None:
    """Return the signature of a Python function; None if it has none, as functions of C++."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
