"""Hypothesis strategies for every kind of Value, and for plain Python objects."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from optrove.model.case import Case
from optrove.model.values import (
    Bool,
    Bytes,
    Callable,
    Complex,
    DeviceRef,
    Float,
    FrozenSet,
    Handle,
    Int,
    List,
    Mapping,
    MeshPlacement,
    Null,
    NumpyPlacement,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tile,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
)
from optrove.serializer.text import MAX_INT_BITS

# Surrogates included: lone ones come from file names, and pairs must not be joined.
texts = st.text(st.characters(), max_size=8) | st.text(
    st.sampled_from("\ud800\udbff\udc00\udfff$a\U00010000"), max_size=6
)
names = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
powers = st.integers(0, MAX_INT_BITS - 1).map(lambda bits: 2**bits)
integers = st.integers(-(2**70), 2**70) | powers | powers.map(lambda power: -power)
sizes = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)
signed_sizes = st.lists(st.integers(-(2**40), 2**40), max_size=4).map(tuple)
size_pairs = st.tuples(st.integers(0, 64), st.integers(0, 64))
numbers = st.integers(0, 9)

floats = st.builds(Float, st.floats())
scalars = (
    st.builds(Null)
    | st.builds(Bool, st.booleans())
    | st.builds(Int, integers)
    | floats
    | st.builds(Complex, floats, floats)
    | st.builds(Text, texts)
    | st.builds(Bytes, st.binary(max_size=8))
)
symbols = st.builds(Symbol, names, names)
devices = st.builds(DeviceRef, names, sizes, numbers)
callables = st.builds(Callable, names)
opaques = st.builds(Opaque, names, names)
leaves = scalars | symbols | devices | callables | opaques

tiles = st.builds(Tile, size_pairs, size_pairs, st.booleans(), st.booleans())
mesh_placements = st.builds(
    MeshPlacement,
    sizes,
    st.lists(st.none() | st.integers(-4, 4), max_size=3).map(tuple),
    st.lists(sizes, max_size=3).map(tuple),
)


def structs_of(values):
    """Return a strategy for structs whose fields are of ``values``."""
    fields = st.dictionaries(names, values, max_size=4).map(lambda found: tuple(found.items()))
    return st.builds(Struct, names, fields)


def placements_of(structs):
    """Return a strategy for every kind of placement."""
    return (
        st.builds(
            TtnnPlacement,
            padded_shape=sizes,
            layout=names,
            tile=st.none() | tiles,
            storage=names,
            memory=st.none() | structs,
            mesh_shape=st.none() | sizes,
            mesh=st.none() | mesh_placements,
            device=st.none() | numbers,
        )
        | st.builds(
            TorchPlacement,
            signed_sizes,
            names,
            names,
            st.booleans(),
            offset=st.integers(0, 2**40),
            conjugate=st.booleans(),
            negative=st.booleans(),
        )
        | st.builds(NumpyPlacement, signed_sizes, st.integers(-(2**40), 2**40))
    )


def tensors_of(structs):
    """Return a strategy for tensor specs."""
    return st.builds(TensorSpec, sizes, names, placements_of(structs), numbers, numbers)


@st.composite
def _larger(draw, values):
    """Draw a container of ``values``; composite, because its spelled-out repr would be huge."""
    return draw(_containers_of(values))


@cache
def _containers_of(values):
    items = st.lists(values, max_size=4).map(tuple)
    structs = structs_of(values)
    plain_mappings = st.dictionaries(st.builds(Text, texts), values, max_size=4)
    mappings = st.dictionaries(values, values, max_size=4) | plain_mappings
    return (
        st.builds(List, items)
        | st.builds(Tuple, items)
        | st.builds(Set, st.frozensets(values, max_size=4))
        | st.builds(FrozenSet, st.frozensets(values, max_size=4))
        | st.builds(Mapping, mappings.map(lambda found: frozenset(found.items())))
        | structs
        | tensors_of(structs)
        | st.builds(Handle, names, st.none() | structs, numbers)
    )


values = st.recursive(leaves, _larger, max_leaves=12)

cases = st.builds(
    Case,
    names,
    st.dictionaries(names, values, max_size=4).map(lambda found: tuple(found.items())),
)

plain_scalars = (
    st.none()
    | st.booleans()
    | integers
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | texts
    | st.binary(max_size=8)
)
# Python takes True for 1 and 1.0 for 1, so keys of one dict are drawn from unlike kinds.
plain_keys = texts | st.binary(max_size=8) | st.none() | st.integers(2, 2**70)
hashables = st.recursive(
    plain_keys,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
plain_objects = st.recursive(
    plain_scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(hashables, max_size=4)
        | st.frozensets(hashables, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
    ),
    max_leaves=12,
)
