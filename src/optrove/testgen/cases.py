"""What a generated test is made from, and what generating gives: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optrove.model.case import Case
    from optrove.model.records import DeviceParameters
    from optrove.model.values import Value


class Numbers(Enum):
    """What a tensor is filled with; the values name the functions of the generated files."""

    NORMAL = "normal"
    WHOLE = "whole"
    DISTINCT = "distinct"
    POSITIVE = "positive"
    SHARE = "share"
    CAUSAL_MASK = "causal_mask"
    COSINES = "cosines"
    SINES = "sines"
    ROTATION = "rotation"


@dataclass(frozen=True, slots=True)
class Filling:
    """What the tensors of one argument hold: whole numbers are below a bound."""

    argument: str
    numbers: Numbers
    below: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """A case to be tested, with all that is known of it.

    ``places`` are the arguments that are passed by place, in order; ``roles`` the names of the
    parameters that take arguments of which only the place was recorded. ``outputs`` is None
    where it was not recorded what came out. ``notes`` tell what was supplied, ``board`` is the
    name of a mock board on which it can be called, ``file`` the path to what names a file.
    """

    case_id: str
    case: Case
    calls: int | None = None
    outputs: tuple[Value, ...] | None = None
    device: DeviceParameters | None = None
    places: tuple[str, ...] = ()
    roles: tuple[tuple[str, str], ...] = ()
    fillings: tuple[Filling, ...] = ()
    notes: tuple[str, ...] = ()
    board: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A case for which no test could be written: which part is in the way, and why."""

    case_id: str
    op: str
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class TestFile:
    """A generated file: its name, its text, how many cases it tests, and a mock board for them."""

    __test__ = False  # not a test, in spite of its name

    name: str
    op: str
    text: str
    cases: int
    board: str | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """All that was generated; every case is in a file or left out."""

    files: tuple[TestFile, ...]
    left_out: tuple[LeftOut, ...]
