import pytest

from optrove.frameworks.ttnn.shadow.golden import by_place
from optrove.frameworks.ttnn.signatures import read_stub

REPEAT = [read_stub(r"def repeat(self, input_tensor: Tensor, repeat_dims: int, *, memory: M = \0)")]


def other_name(x, shape, **_):
    return x, shape


def same_name(x, repeat_dims, **_):
    return x, repeat_dims


def not_needed(x, shape=3, **_):
    return x, shape


def further(x, shape, extent, **_):
    return x, shape, extent


@pytest.mark.parametrize(
    ("function", "arguments", "keywords"),
    [
        (other_name, ("x", 2), {"memory": "m"}),
        (same_name, ("x",), {"repeat_dims": 2, "memory": "m"}),
        (not_needed, ("x",), {"repeat_dims": 2, "memory": "m"}),
        (further, ("x",), {"repeat_dims": 2, "memory": "m"}),
        (min, ("x",), {"repeat_dims": 2, "memory": "m"}),
    ],
)
def test_a_keyword_goes_by_place_only_where_the_golden_function_needs_it(
    function, arguments, keywords
):
    given = {"repeat_dims": 2, "memory": "m"}
    assert by_place(function, REPEAT, ("x",), given) == (arguments, keywords)


def test_what_was_given_by_place_stays_there():
    assert by_place(other_name, REPEAT, ("x", 2), {}) == (("x", 2), {})
    keywords = {"input_tensor": "x", "repeat_dims": 2}
    assert by_place(other_name, REPEAT, (), keywords) == (("x", 2), {})
