"""A view of a trove as BI tools see it: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ColumnKind(Enum):
    """What the values of a column are, on every database."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    """0 or 1."""
    TIME = "time"


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column that is promised: its name, what its values are, and what they mean."""

    name: str
    kind: ColumnKind
    meaning: str


@dataclass(frozen=True, slots=True)
class View:
    """A view that is promised: its name, its columns, and what a row is."""

    name: str
    row: str
    columns: tuple[ViewColumn, ...]
