"""The converters of numpy."""

import json

import numpy as np
import pytest

from optrove.model.values import TensorSpec
from optrove.runconfig.jsonable import from_jsonable, to_jsonable


def specs(*arrays):
    found = from_jsonable(json.loads(json.dumps(to_jsonable(list(arrays)))))
    assert all(isinstance(spec, TensorSpec) for spec in found)
    return found


def test_views_share_the_buffer_of_their_array():
    base = np.zeros(4)
    found = specs(base, base[:], base[1:], base.reshape(2, 2)[1:], base.copy())
    assert [spec.identity for spec in found] == [0, 1, 2, 3, 4]
    assert [spec.storage for spec in found] == [0, 0, 0, 0, 1]
    assert [spec.placement.offset for spec in found] == [0, 0, 8, 16, 0]


def test_a_view_is_not_a_copy_of_the_same_shape():
    base = np.zeros(4)
    assert to_jsonable([base, base[:]]) != to_jsonable([base, base[:].copy()])
    assert to_jsonable([base, base[1:]]) != to_jsonable([base, base[:-1]])


def test_a_reversed_view_begins_at_the_end():
    base = np.zeros(4)
    (spec,) = specs(base[::-1])
    assert (spec.placement.strides, spec.placement.offset) == ((-8,), 24)


@pytest.mark.parametrize("make", [bytes, bytearray])
def test_arrays_over_one_buffer_share_it(make):
    buffer = make(16)
    first, second = np.frombuffer(buffer, "u1"), np.frombuffer(buffer, "u1", offset=4)
    found = specs(first, second, second[1:], np.frombuffer(make(b"other"), "u1"))
    assert [spec.storage for spec in found] == [0, 0, 0, 1]
    assert [spec.placement.offset for spec in found] == [0, 4, 5, 0]


def test_an_array_whose_buffer_cannot_be_looked_into_is_described():
    class Lender:
        def __init__(self):
            self.array = np.zeros(3)

        @property
        def __array_interface__(self):
            return self.array.__array_interface__

    lender = Lender()
    found = specs(np.asarray(lender), np.asarray(lender)[1:])
    assert [spec.storage for spec in found] == [0, 0]
    assert [spec.placement.offset for spec in found] == [0, 8]


@pytest.mark.parametrize("name", ["longlong", "ulonglong", "int64", "uint64", "float32"])
@pytest.mark.parametrize("swapped", [False, True])
def test_every_class_of_dtype_comes_back(name, swapped):
    dtype = np.dtype(getattr(np, name))
    dtype = dtype.newbyteorder() if swapped else dtype
    again = from_jsonable(json.loads(json.dumps(to_jsonable(dtype))))
    assert again == dtype
    assert type(again) is type(dtype)
    assert again.str == dtype.str
