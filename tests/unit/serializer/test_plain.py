"""Python's own classes and numpy's; tests/properties/test_converters.py has the laws."""

import dataclasses
import enum
import functools
import subprocess
import sys
from collections import defaultdict, deque
from pathlib import PureWindowsPath
from typing import NamedTuple

import numpy as np
import pytest

from optrove.errors import BadData
from optrove.model.values import MAX_DEPTH, Callable, Int, List, Opaque, Struct, Symbol, Tuple, walk
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer import plain
from optrove.serializer.describe import Describer, describe
from optrove.serializer.tables import Tables
from optrove.serializer.wire import decode, encode


class Colour(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - an alias, on purpose
    BLUE = 2


@dataclasses.dataclass
class Config:
    size: int
    colour: Colour = Colour.RED
    inner: object = None
    area: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.area = self.size * self.size


class Undeclared(Config):
    """Inherits its fields, and may hold more than they tell."""


@dataclasses.dataclass
class Listed(list):
    size: int = 0


class Point(NamedTuple):
    x: int
    y: int = 0


@pytest.fixture
def tables():
    return Tables([plain.table()])


def function():
    """Stand for any function of a module."""


def test_what_a_container_does_beyond_its_items_comes_back():
    default, longest, bound = (
        defaultdict(list),
        deque([1], maxlen=2),
        functools.partial(int, base=2),
    )
    again = [from_jsonable(to_jsonable(live)) for live in (default, longest, bound)]
    assert again[0].default_factory is list
    assert again[1].maxlen == 2
    assert again[2]("101") == 5


@pytest.mark.parametrize(
    "live", [functools.partial(print), defaultdict(dataclasses.make_dataclass)]
)
def test_a_recorded_function_is_not_looked_up(live):
    data = to_jsonable(live)
    with pytest.raises(BadData, match="not looked up"):
        from_jsonable(data)


def test_classes_that_the_caller_does_not_name_stay_inert():
    data = to_jsonable([Config(3), Colour.RED, Point(1)])
    config, colour, point = from_jsonable(data)
    assert isinstance(config, Struct)
    assert config.type == f"python.dataclass:{__name__}:Config"
    assert colour == Symbol(f"python.enum:{__name__}:Colour", "RED")
    assert isinstance(point, Struct)
    assert to_jsonable([config, colour, point]) == data


def test_a_class_that_is_not_imported_is_not_looked_for():
    data = {"$struct": "python.dataclass:antigravity:Config", "fields": {"a": 1}}
    assert from_jsonable(data) == Struct("python.dataclass:antigravity:Config", (("a", Int(1)),))
    assert "antigravity" not in sys.modules


def test_a_type_without_a_known_form_is_refused():
    with pytest.raises(TypeError, match="not a dataclass, enum or named tuple"):
        from_jsonable(1, types=(int,))


@pytest.mark.parametrize(
    "live",
    [
        object(),
        Undeclared(1),
        Listed(2),
        lambda: None,
        [].append,
        iter(()),
        sys,
        type("str", (str,), {})("a"),
        type("list", (list,), {})(),
        1 << 5000,
        {float("nan"): 1, -float("nan"): 2},
        {float("nan"), -float("nan")},
    ],
    ids=lambda live: type(live).__name__,
)
def test_what_is_not_fully_known_is_opaque_and_never_equal(live, tables):
    first, second = describe(live, tables), describe(live, tables)
    assert isinstance(first, Opaque)
    assert first.type == f"{type(live).__module__}.{type(live).__qualname__}"
    assert first != second
    assert decode(encode(first)) == first


@pytest.mark.parametrize("strange", [3, None, "\ud800"])
def test_a_class_with_a_strange_name_is_opaque(strange, tables):
    kind = type("Strange", (), {"__module__": strange})
    value = describe(kind(), tables)
    assert isinstance(value, Opaque)
    assert decode(encode(value)) == value


def test_an_object_that_misbehaves_is_opaque(tables):
    class Misbehaving:
        def __getattribute__(self, name):
            raise KeyError(name)

        __eq__ = __hash__ = __repr__ = __str__ = __class_getitem__ = None

    assert isinstance(describe([Misbehaving()], tables).items[0], Opaque)


def test_functions_and_classes_are_recorded_by_name(tables):
    assert describe(len, tables) == Callable("builtins:len")
    assert describe(function, tables) == Callable(f"{__name__}:function")
    assert describe(Config, tables) == Callable(f"{__name__}:Config")
    assert describe(Colour, tables) == Callable(f"{__name__}:Colour")
    assert from_jsonable(to_jsonable(len)) == Callable("builtins:len")


def test_a_list_that_contains_itself_is_cut(tables):
    live = [1]
    live.append({"again": live})
    found = [part for _, part in walk(describe(live, tables)) if isinstance(part, Opaque)]
    assert [part.type for part in found] == ["builtins.list"]


def test_the_same_list_twice_is_not_a_cycle(tables):
    shared = [1]
    assert describe((shared, shared), tables) == Tuple((List((Int(1),)), List((Int(1),))))


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 100_000])
def test_what_is_described_can_be_read_again_however_deep_it_was(levels, tables):
    live = 1 + 2j
    for _ in range(levels):
        live = (live,)
    value = describe(live, tables)
    assert decode(encode(value)) == value
    is_cut = any(isinstance(part, Opaque) for _, part in walk(value))
    assert is_cut == (levels > MAX_DEPTH)
    while isinstance(live, tuple):  # taken apart here, since Python would recurse to free it
        (live,) = live


def test_lists_that_unfold_without_end_are_cut(tables):
    live = []
    for _ in range(60):
        live = [live, live]
    value = Describer(tables, max_parts=1000).describe(live)
    assert sum(1 for _ in walk(value)) <= 2000


def test_numpy_is_not_imported_by_describing():
    script = (
        "import sys, pathlib, optrove; optrove.to_jsonable({'a': [1, pathlib.Path('x')]}); "
        "print('numpy' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    "live",
    [np.longdouble("0.1"), np.dtype([("a", "i4")]), np.array([object()])],
    ids=["long double", "structure", "objects"],
)
def test_numbers_of_numpy_that_no_other_program_has_are_opaque(live):
    assert "$opaque" in to_jsonable(live)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int8", 300),
        ("int8", 1.0),
        ("int8", "1"),
        ("float32", "1.5"),
        ("float32", [1.5]),
        ("float32", 0.1),
        ("float32", 1e300),
        ("bool_", 1),
    ],
)
def test_numpy_scalars_are_not_made_from_something_similar(name, value):
    with pytest.raises(BadData, match="refused"):
        from_jsonable({"$struct": f"numpy.{name}", "fields": {"value": value}})


def test_bytes_are_not_made_from_a_number():
    with pytest.raises(BadData, match="expected bytes"):
        from_jsonable({"$struct": "python.bytearray", "fields": {"content": 10**15}})


def test_a_path_is_never_recorded_as_another_one():
    live = PureWindowsPath("./c:a")
    data = to_jsonable(live)
    assert "$opaque" in data or from_jsonable(data) == live
