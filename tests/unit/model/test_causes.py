"""The line of a text that states a problem."""

import pytest

from optrove.model.causes import error_line, ttnn_problem


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


L1 = "circular buffers grow to 2334048 B which is beyond max L1 size of 1499136 B"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            f"RuntimeError: TT_THROW @ program.cpp:1: x\ninfo:\n{L1}\nbacktrace:\n --- b",
            f"RuntimeError: {L1} (TT_THROW @ program.cpp:1: x)",
        ),
        ("RuntimeError: TT_FATAL @ a.cpp:1: x\ninfo:\n", "RuntimeError: TT_FATAL @ a.cpp:1: x"),
        ("TypeError: no\nmore", "TypeError: no"),
        ("RuntimeError: \n  the reason\nmore", "RuntimeError: the reason"),
        ("ValueError: ", "ValueError:"),
        ("", ""),
    ],
)
def test_the_line_of_a_recorded_error_has_its_reason(text, line):
    assert error_line(text) == line
