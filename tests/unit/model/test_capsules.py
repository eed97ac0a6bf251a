"""The calls that ``--capsule`` chooses."""

import pytest

from optrove.errors import BadTarget
from optrove.model.capsules import DEFAULT_LIMIT, CapsuleChoice, capsule_choice

HASH = "1f3a9c02d4e5"


@pytest.mark.parametrize(
    ("asked", "choice"),
    [
        (["all"], CapsuleChoice("all")),
        (["worst:200MB"], CapsuleChoice("worst", limit=200_000_000)),
        (["first", "softmax"], CapsuleChoice("first", ops=("softmax",))),
        (["every:10"], CapsuleChoice("every", 10)),
        ([HASH, "ttnn.add"], CapsuleChoice("all", ops=("ttnn.add",), cases=(HASH,))),
        (["add"], CapsuleChoice("all", ops=("add",))),
        (["all:1.5kB"], CapsuleChoice("all", limit=1500)),
    ],
)
def test_a_choice_is_read(asked, choice):
    assert capsule_choice(asked) == choice


def test_nothing_asked_is_no_choice():
    assert capsule_choice([]) is None


def test_the_limit_has_a_default():
    assert capsule_choice(["softmax"]).limit == DEFAULT_LIMIT
    assert capsule_choice(["softmax"], "2GB").limit == 2_000_000_000


@pytest.mark.parametrize(
    ("asked", "limit", "words"),
    [
        (["worst", "first"], None, "contradict"),
        (["every:0"], None, "every:100"),
        (["every"], None, "every:100"),
        (["all:much"], None, "500MB"),
        (["all"], "-3", "500MB"),
        ([""], None, "empty"),
    ],
)
def test_a_bad_choice_says_what_to_write(asked, limit, words):
    with pytest.raises(BadTarget, match=words):
        capsule_choice(asked, limit)
