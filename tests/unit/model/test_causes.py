"""The line of a text that states a problem."""

import pytest

from optrove.model.causes import ttnn_problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("TT_FATAL @ a.cpp:1: x\ninfo:\n\n  no such core \nbacktrace:\n --- b", "no such core"),
        ("TT_FATAL @ a.cpp:1: x\ninfo:\n", None),
        ("there is 1 chip here", None),
        ("more info: none", None),
    ],
)
def test_ttnn_states_the_problem_below_its_place_in_the_source(text, problem):
    assert ttnn_problem(text) == problem
