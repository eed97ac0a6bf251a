import pytest

from optrove.errors import BadTarget
from optrove.sweep.permutations import permutations


def test_every_combination_is_made_with_the_last_parameter_fastest():
    vectors = list(permutations("nightly", {"shape": [[1], [2]], "dtype": ("a", "b")}))
    assert [(each["shape"][0], each["dtype"]) for each in vectors] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]


def test_a_name_with_commas_keeps_values_together():
    vectors = list(permutations("s", {"shape,dtype": [([1], "a"), ([2], "b")], "dim": [0]}))
    assert vectors == [
        {"shape": [1], "dtype": "a", "dim": 0},
        {"shape": [2], "dtype": "b", "dim": 0},
    ]


def test_a_suite_without_parameters_or_values_makes_no_vectors():
    assert list(permutations("empty", {})) == []
    assert list(permutations("empty", {"dtype": [], "dim": [1]})) == []


def test_ten_thousand_are_allowed_and_one_more_names_suite_and_count():
    assert len(list(permutations("big", {"a": range(100), "b": range(100)}))) == 10_000
    with pytest.raises(BadTarget, match=r"'big' has 10,100 permutations \(101 a x 100 b\)"):
        permutations("big", {"a": range(101), "b": range(100)})


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ([1, 2], "is of list"),
        ({"dtype": "bfloat16"}, "'dtype' .* is of str"),
        ({"dim": 3}, "'dim' .* is of int"),
        ({"shape,dtype": [[1]]}, "shape,dtype that is no tuple of 2"),
    ],
)
def test_what_is_not_a_suite_is_refused(parameters, problem):
    with pytest.raises(BadTarget, match=problem):
        permutations("odd", parameters)
