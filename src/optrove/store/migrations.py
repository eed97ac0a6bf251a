"""Bring troves of older versions up to date, one numbered step at a time.

A step is never changed once it was released. Each is the SQL that leads from the version before to
its own, in statements that SQLite and PostgreSQL both understand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlalchemy import Connection

FIRST: Final = 1


@dataclass(frozen=True, slots=True)
class Step:
    """What leads to ``version`` from the one before."""

    version: int
    statements: tuple[str, ...]


class Migrations:
    """The steps from every older version to the current one."""

    __slots__ = ("current", "steps")

    def __init__(self, steps: tuple[Step, ...]) -> None:
        """Take the steps in their order; ValueError when a version has none or two."""
        expected = tuple(range(FIRST + 1, FIRST + 1 + len(steps)))
        if tuple(step.version for step in steps) != expected:
            raise ValueError(f"the steps have to lead to the versions {expected}, in this order")
        self.steps = steps
        self.current = FIRST + len(steps)

    def apply(self, connection: Connection, version: int) -> None:
        """Bring a trove of ``version`` up to date, within the transaction of ``connection``."""
        for step in self.steps:
            if step.version > version:
                for statement in step.statements:
                    connection.exec_driver_sql(statement)


MIGRATIONS: Final = Migrations(())
