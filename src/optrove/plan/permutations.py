"""Every combination of the parameters of a suite, at most 10,000 of them.

A suite gives a list of values for each parameter. A name with commas stands for several parameters
whose values belong together: ``"input_shape,dtype": [([1, 32], a), ([1, 64], b)]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST: Final = 10_000
"""How many permutations a suite may have."""


def permutations(suite: str, parameters: Any) -> Iterator[dict[str, Any]]:
    """Return the keyword arguments of each vector of a suite, the last parameter fastest.

    BadTarget names the suite if it has too many, or is not of this form. None are made of a suite
    without parameters.
    """
    columns = _columns(suite, parameters)
    if not columns:
        return iter(())
    count = prod(len(values) for _, values in columns)
    if count > MOST:
        sizes = " x ".join(f"{len(values)} {','.join(names)}" for names, values in columns)
        raise BadTarget(
            f"suite {suite!r} has {count:,} permutations ({sizes}), and at most {MOST:,} are "
            f"allowed; give fewer values, or divide it into several suites"
        )
    return _each(columns)


def _each(columns: list[tuple[tuple[str, ...], list[Any]]]) -> Iterator[dict[str, Any]]:
    for chosen in product(*(values for _, values in columns)):
        vector: dict[str, Any] = {}
        for (names, _), value in zip(columns, chosen, strict=True):
            vector.update({names[0]: value} if len(names) == 1 else zip(names, value, strict=True))
        yield vector


def _columns(suite: str, parameters: Any) -> list[tuple[tuple[str, ...], list[Any]]]:
    if not isinstance(parameters, Mapping):
        raise BadTarget(
            f"suite {suite!r} is of {type(parameters).__name__}; "
            f"give a dictionary with a list of values for each parameter"
        )
    found = []
    for name, values in parameters.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise BadTarget(
                f"parameter {name!r} of suite {suite!r} is of {type(values).__name__}; "
                f"give a list of values, also for a single one"
            )
        names = tuple(part.strip() for part in str(name).split(","))
        listed = list(values)
        _check_together(suite, names, listed)
        found.append((names, listed))
    return found


def _check_together(suite: str, names: tuple[str, ...], values: list[Any]) -> None:
    """Raise BadTarget where values for several parameters are not as many as these."""
    for value in values if len(names) > 1 else ():
        if not isinstance(value, (tuple, list)) or len(value) != len(names):
            raise BadTarget(
                f"suite {suite!r} has a value for {','.join(names)} that is no tuple of "
                f"{len(names)}; give one value for each of these parameters"
            )
