"""Laws of the converters of Python's own classes, user classes and numpy, for generated objects."""

import copy
import dataclasses
import enum
import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from functools import partial
from itertools import combinations
from math import isnan, prod
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from optrove.frameworks import numpy as numpy_backend
from optrove.model.values import NumpyPlacement, TensorSpec
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer import plain
from optrove.serializer.describe import describe
from optrove.serializer.hashes import canonical_bytes
from optrove.serializer.tables import Tables
from optrove.serializer.wire import decode

bounded = settings(max_examples=15)
T = TypeVar("T")


class Colour(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - an alias, on purpose
    BLUE = "blue"
    LIST = [1]  # noqa: RUF012 - a member whose value cannot be hashed


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(str, enum.Enum):
    YES = "yes"
    NO = "no"


class Mode(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Bits(enum.IntFlag):
    ONE = 1
    FOUR = 4


@dataclasses.dataclass
class Config:
    size: object
    inner: object = None
    area: object = dataclasses.field(default=0, init=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: object
    hidden: object = dataclasses.field(default=3, init=False)


@dataclasses.dataclass(kw_only=True)
class Derived(Config, Generic[T]):
    self: object
    extra: object = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Empty:
    pass


class Point(NamedTuple):
    x: object
    y: object = 0


Old = namedtuple("Old", "left class right", rename=True)
Nothing = namedtuple("Nothing", "")

NUMBERS = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "longlong"), "int"),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64", "ulonglong"), "int"),
    "float16": 16,
    "float32": 32,
    "float64": 64,
    "complex64": 64,
    "complex128": 128,
}
DTYPES = {"bool": np.dtype(bool), **{name: np.dtype(getattr(np, name)) for name in NUMBERS}}


def numbers(name):
    """Return every number of a numpy class, with both zeros, infinities and NaNs."""
    kind, size = getattr(np, name), NUMBERS[name]
    if size == "int":
        limits = np.iinfo(kind)
        return st.integers(int(limits.min), int(limits.max)).map(kind)
    drawn = st.complex_numbers if name.startswith("complex") else st.floats

    def make(number):
        with np.errstate(all="ignore"):  # a signalling NaN is a number like any other here
            return kind(number)

    return drawn(width=size).map(make)


def dtypes(dtype):
    return st.sampled_from([dtype, dtype.newbyteorder(), dtype.newbyteorder("=")])


# Separators, drives and dots, of which paths are made that look alike.
path_texts = strategies.texts | st.text("/\\.:acA", max_size=8)
windows_texts = path_texts.filter(lambda text: is_stable(PureWindowsPath(text)))


def is_stable(path):
    """Return whether a path is what its text says.

    Left out are those that are not: up to Python 3.11 the text of ``PureWindowsPath("./c:a")`` is
    ``c:a``, a path on drive C, and the text is all that the converter records.
    """
    return type(path)(str(path)).parts == path.parts


bounds = strategies.integers | st.booleans()
steps = bounds.filter(bool)
keys = strategies.hashables | st.builds(PosixPath, path_texts) | st.sampled_from(Mode)


def slices(parts):
    return st.builds(slice, parts, parts, parts)


def ordered_dicts(parts):
    return st.lists(st.tuples(keys, parts), max_size=4).map(OrderedDict)


def changed(live, name, part):
    """Return ``live`` with another content in a field that its constructor does not take."""
    object.__setattr__(live, name, part)
    return live


def configs(parts):
    return st.builds(changed, st.builds(Config, parts, parts), st.just("area"), parts)


LEAVES = {
    "python.PosixPath": st.builds(PosixPath, path_texts),
    "python.PurePosixPath": st.builds(PurePosixPath, path_texts),
    "python.PureWindowsPath": st.builds(PureWindowsPath, windows_texts),
    "python.range": st.builds(range, bounds, bounds, steps),
    "python.bytearray": st.binary(max_size=8).map(bytearray),
    "python.Ellipsis": st.just(Ellipsis),
    "python.NotImplemented": st.just(NotImplemented),
    "numpy.bool_": st.booleans().map(np.bool_),
    **{f"numpy.{name}": numbers(name) for name in NUMBERS},
    **{f"numpy.dtype.{name}": dtypes(dtype) for name, dtype in DTYPES.items()},
}
CHOICES = {
    Colour: st.sampled_from(list(Colour.__members__.values())),
    Level: st.sampled_from(Level),
    Word: st.sampled_from(Word),
    Mode: st.integers(0, 7).map(Mode),
    Bits: st.integers(-20, 20).map(Bits),
    Empty: st.builds(Empty),
    Nothing: st.builds(Nothing),
}
# Without numbers of numpy: a NaN among them would make a container unequal to its copy.
_leaves = [drawn for name, drawn in LEAVES.items() if not name.startswith("numpy.")]
_dtypes = st.sampled_from(list(DTYPES.values()))
parts = st.recursive(
    st.one_of(strategies.plain_objects, *_leaves, *CHOICES.values(), _dtypes),
    lambda inner: st.one_of(
        slices(inner), ordered_dicts(inner), configs(inner), st.builds(Point, inner, inner)
    ),
    max_leaves=4,
)
KINDS = {
    **LEAVES,
    "python.slice": slices(parts),
    "python.OrderedDict": ordered_dicts(parts),
    "python.defaultdict": ordered_dicts(parts).map(lambda live: defaultdict(list, live)),
    "python.deque": st.builds(deque, st.lists(parts, max_size=3), st.sampled_from([None, 3])),
    "python.partial": st.builds(lambda *given: partial(dict, *given), parts, parts),
}
USER_KINDS = {
    **CHOICES,
    Config: configs(parts),
    Frozen: st.builds(changed, st.builds(Frozen, parts), st.just("hidden"), parts),
    Derived: st.builds(Derived, size=parts, inner=parts, self=parts, extra=parts),
    Point: st.builds(Point, parts, parts),
    Old: st.builds(Old, parts, parts, parts),
}
USER_NAMES = {name: kind for kind in USER_KINDS for name in plain.user_table([kind]).by_name}
ALL = {**KINDS, **{name: USER_KINDS[kind] for name, kind in USER_NAMES.items()}}
ARRAY = "numpy.ndarray"


@pytest.fixture(scope="module")
def tables():
    return Tables([plain.table(), numpy_backend.table()])


def exact(live):
    """Return a key for a stricter ``==``: classes, signs of zeros, every NaN as one."""
    kind = type(live)
    base = next(base for base in kind.__mro__ if base in CONTENT)
    return kind, CONTENT[base](live)


def exact_items(live):
    return tuple(map(exact, live))


def exact_fields(live):
    return tuple(exact(getattr(live, field.name)) for field in dataclasses.fields(live))


def exact_bytes(live):
    return tuple(b"nan" if np.isnan(part) else part.tobytes() for part in (live.real, live.imag))


CONTENT = {
    float: lambda live: "nan" if isnan(live) else live.hex(),
    complex: lambda live: exact_items((live.real, live.imag)),
    list: exact_items,
    tuple: exact_items,
    set: lambda live: frozenset(exact_items(live)),
    frozenset: lambda live: frozenset(exact_items(live)),
    dict: lambda live: frozenset(exact_items(live.items())),
    OrderedDict: lambda live: exact_items(live.items()),
    defaultdict: lambda live: (live.default_factory, *exact_items(live.items())),
    deque: lambda live: (live.maxlen, *exact_items(live)),
    partial: lambda live: (live.func, *exact_items(live.args)),
    slice: lambda live: exact_items((live.start, live.stop, live.step)),
    range: lambda live: exact_items((live.start, live.stop, live.step)),
    bytearray: bytes,
    PurePath: lambda live: (str(live), live.parts),
    enum.Flag: lambda live: live.value,
    enum.Enum: lambda live: live.name,
    np.generic: exact_bytes,
    np.dtype: lambda live: live.str,
    object: lambda live: exact_fields(live) if dataclasses.is_dataclass(live) else live,
}


def round_trip(live):
    return from_jsonable(json.loads(json.dumps(to_jsonable(live))), types=USER_KINDS)


def test_every_converter_of_python_and_numpy_has_generated_objects():
    known = {*plain.table().by_name, *numpy_backend.table().by_name}
    assert {*KINDS, ARRAY} == known


def test_every_kind_of_user_class_has_generated_objects():
    assert {f"{name.partition(':')[0]}:" for name in USER_NAMES} == set(plain.USER_KINDS)
    assert len(USER_NAMES) == len(USER_KINDS)


@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
@bounded
def test_an_object_is_described_by_its_converter_and_comes_back_equal(name, data, tables):
    live = data.draw(ALL[name])
    assert describe(live, tables).type == name
    again = round_trip(live)
    assert exact(again) == exact(live)
    # A NaN is not equal to itself, and a partial function only to itself.
    assert again == live or live != live or type(live) is partial  # noqa: PLR0124 - see above
    assert to_jsonable(again) == to_jsonable(live)


@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
@bounded
def test_objects_are_the_same_exactly_when_their_canonical_bytes_are(name, data, tables):
    left = data.draw(ALL[name])
    right = data.draw(ALL[name] | st.builds(copy.deepcopy, st.just(left)))
    values = [describe(live, tables) for live in (left, right)]
    written = [canonical_bytes(value) for value in values]
    assert (exact(left) == exact(right)) == (written[0] == written[1])
    assert (values[0] == values[1]) == (written[0] == written[1])


@given(st.one_of(*ALL.values()), st.one_of(*ALL.values()))
@settings(max_examples=100)
def test_objects_of_unlike_classes_never_have_the_same_canonical_bytes(left, right):
    written = [canonical_bytes(decode(to_jsonable(live))) for live in (left, right)]
    assert (exact(left) == exact(right)) == (written[0] == written[1])


def paths_alike(text):
    return [text, PosixPath(text), PurePosixPath(text), PureWindowsPath(text), Config(text)]


def triples_alike(triple):
    return [triple, list(triple), slice(*triple), range(*triple), Old(*triple)]


def numbers_alike(number):
    kinds = [getattr(np, name) for name in NUMBERS]
    return [number, *(kind(number) for kind in kinds), *([np.bool_(number)] if number < 2 else [])]


def entries_alike(entries):
    return [entries, list(entries.items()), OrderedDict(entries), list(entries)]


@given(
    st.one_of(
        path_texts.map(paths_alike),
        st.tuples(bounds, bounds, steps).map(triples_alike),
        st.integers(0, 127).map(numbers_alike),
        st.binary(max_size=4).map(lambda content: [content, bytearray(content), list(content)]),
        st.dictionaries(strategies.texts, parts, min_size=1, max_size=3).map(entries_alike),
        st.just([*Level, *Bits, *Mode, *Word, 1, 2, 4, "yes", "no"]),
        st.just([Empty(), Nothing(), (), [], {}, OrderedDict(), bytearray(), Mode(0), Bits(0)]),
        st.just([*DTYPES.values(), *(getattr(np, name)(0) for name in NUMBERS)]),
    )
)
@bounded
def test_the_same_content_in_another_class_has_other_canonical_bytes(tables, objects):
    written = [canonical_bytes(describe(live, tables)) for live in objects]
    assert all(left != right for left, right in combinations(written, 2))


@dataclasses.dataclass(frozen=True)
class View:
    """A view of an array: its part along each dimension, then its dimensions in another order."""

    dtype: np.dtype
    shape: tuple
    starts: tuple
    steps: tuple
    order: tuple

    def base(self):
        return np.zeros(self.shape, self.dtype)

    def of(self, base):
        ranges = zip(self.starts, self.steps, strict=True)
        index = (*(slice(start, None, step) for start, step in ranges), Ellipsis)
        return base[index].transpose(self.order)

    def expected(self):
        """Return the spec of this view, by the arithmetic of arrays that lie row by row."""
        rows = [self.dtype.itemsize * prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        shape = [
            len(range(size)[start::step])
            for size, start, step in zip(self.shape, self.starts, self.steps, strict=True)
        ]
        strides = [step * row for step, row in zip(self.steps, rows, strict=True)]
        return TensorSpec(
            tuple(shape[i] for i in self.order),
            f"numpy.{self.dtype.name if self.dtype.isnative else self.dtype.str}",
            NumpyPlacement(
                tuple(strides[i] for i in self.order),
                sum(start * row for start, row in zip(self.starts, rows, strict=True)),
            ),
        )


@st.composite
def views(draw):
    kinds = [*DTYPES.values(), *map(np.dtype, (np.longdouble, "M8[D]", "m8[s]", "U3", "S5"))]
    shape = draw(st.lists(st.integers(1, 4), max_size=3))
    return View(
        dtype=draw(st.sampled_from(kinds).flatmap(dtypes)),
        shape=tuple(shape),
        starts=tuple(draw(st.integers(0, size - 1)) for size in shape),
        steps=tuple(draw(st.sampled_from([1, 2, -1, -2])) for _ in shape),
        order=tuple(draw(st.permutations(range(len(shape))))),
    )


@given(views())
@settings(max_examples=50)
def test_an_array_is_described_by_size_strides_offset_dtype_and_buffer(view):
    base = view.base()
    live, other = view.of(base), view.of(view.base())
    expected = view.expected()
    found = round_trip([live, base, live, other])
    assert found[0] == found[2] == round_trip(live) == expected
    assert (found[1].identity, found[1].storage) == (1, 0)
    assert found[3] == dataclasses.replace(expected, identity=2, storage=1)


@given(views(), views(), st.booleans())
@settings(max_examples=50)
def test_arrays_lie_alike_exactly_when_their_canonical_bytes_are_equal(left, right, same):
    right = left if same else right
    written = [canonical_bytes(decode(to_jsonable(v.of(v.base())))) for v in (left, right)]
    assert (left.expected() == right.expected()) == (written[0] == written[1])
