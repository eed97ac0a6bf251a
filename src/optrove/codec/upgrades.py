"""Lift records of older format versions to the current one, one version at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from optrove.codec.text import Json
from optrove.errors import BadData, Fault

CURRENT_VERSION: Final = 1
"""The format version that this optrove writes.

    1   the first one
"""

Step: TypeAlias = Callable[[str, Json], Json]
"""Given a record's kind and its builtins in one version, returns them in the next."""


class Upgrades:
    """The steps from every older version to the current one."""

    __slots__ = ("_steps", "current")

    def __init__(self, current: int, steps: Iterable[tuple[int, Step]]) -> None:
        self.current = current
        self._steps: dict[int, Step] = {}
        for version, step in steps:
            if version in self._steps:
                raise ValueError(f"two steps lift version {version}; keep one of them")
            self._steps[version] = step
        if set(self._steps) != set(range(1, current)):
            raise ValueError(
                f"steps lift the versions {sorted(self._steps)}, but every version from 1 to "
                f"{current - 1} needs one; add the missing steps or correct the version"
            )

    def lift(self, kind: str, raw: Json, version: int) -> Json:
        """Return ``raw``, a record of ``version``, in the form of the current version.

        BadData when a step cannot make sense of ``raw``, which nothing has checked yet.
        """
        lifted = raw
        for step_version in range(version, self.current):
            lifted = self._lift_once(kind, lifted, step_version)
        return lifted

    def _lift_once(self, kind: str, raw: Json, version: int) -> Json:
        try:
            return self._steps[version](kind, raw)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            problem = f"not a {kind} of format version {version}: {type(error).__name__}: {error}"
            raise BadData((Fault("$", problem),)) from error


UPGRADES: Final = Upgrades(CURRENT_VERSION, ())
