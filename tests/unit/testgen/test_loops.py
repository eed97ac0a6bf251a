"""Statements that repeat are folded into loops that compute and free the same."""

import re

import pytest

from optrove.testgen.loops import Statement, folded


def statements(*texts):
    """Return a statement per text, whose lines are separated by semicolons."""
    return [Statement("", tuple(text.split("; "))) for text in texts]


def names_in(texts):
    return set(re.findall(r"\b[a-z]+_\d+\b", " ".join(texts)))


class Freed:
    """A number that notes when it is freed."""

    def __init__(self, number, events):
        self.number = number
        self._events = events

    def __del__(self):
        self._events.append(("freed", self.number))


def events_of(lines):
    """Run a program; return all calls and all that was freed before the last one, in order."""
    events = []

    def op(*given):
        number = hash(tuple(each.number for each in given))
        events.append(("call", number))
        return Freed(number, events)

    def make(number):
        return Freed(number, events)

    body = "\n".join(f"    {line}" for part in lines for line in part.split("\n"))
    space = {"op": op, "make": make}
    exec(f"def program():\n{body}", space)  # noqa: S102 - our own lines
    result = space["program"]()
    last = max(place for place, (kind, _) in enumerate(events) if kind == "call")
    return [*events[: last + 1], result and result.number]


LAYERS = (
    *(f"w_{n} = make({n})" for n in range(1, 6)),
    "x_1 = make(77)",
    *(
        text
        for n in range(1, 6)
        for text in (
            f"a_{n} = op(x_{n}, w_{n})",
            f"b_{n} = op(a_{n}); del a_{n}",
            f"c_{n} = op(b_{n}, x_{n}); del b_{n}",
            f"x_{n + 1} = op(c_{n}); del c_{n}, x_{n}",
        )
    ),
    "y_1 = op(x_6); del x_6",
    "return y_1",
)


def test_layers_become_a_loop_over_their_weights():
    lines = folded(statements(*LAYERS), names_in(LAYERS))
    assert "for w_1_each in [w_1, w_2, w_3, w_4, w_5]:" in lines
    assert len(lines) < len(LAYERS)
    plain = [line for text in LAYERS for line in text.split("; ")]
    assert events_of(lines) == events_of(plain)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("del c_2, x_2", "del c_2"),
        ("c_3 = op(b_3, x_3)", "c_3 = op(b_3, x_1)"),
        ("y_1 = op(x_6)", "y_1 = op(x_6, a_9)"),
        ("b_4 = op(a_4)", "b_4 = op(w_4)"),
    ],
)
def test_rounds_that_differ_are_not_in_the_loop(old, new):
    texts = [text.replace(old, new) for text in LAYERS]
    if "x_1)" in new:
        texts = [text.replace("del c_1, x_1", "del c_1") for text in texts]
    if "a_9" in new:
        texts.insert(0, "a_9 = make(9)")
    plain = [line for text in texts for line in text.split("; ")]
    lines = folded(statements(*texts), names_in(texts))
    assert events_of(lines) == events_of(plain)


def test_results_that_stay_alive_are_not_in_a_loop():
    texts = [
        "x_1 = make(1)",
        *(f"a_{n} = op(x_{n}); x_{n + 1} = op(a_{n}); del x_{n}" for n in range(1, 12)),
        "return x_12",
    ]
    lines = folded(statements(*texts), names_in(texts))
    assert lines == [line for text in texts for line in text.split("; ")]


def test_two_weights_and_places_are_kept():
    texts = [
        *(f"w_{n} = make({n})" for n in range(1, 9)),
        *(f"a_{n} = op(w_{n}, w_{n + 4}); del a_{n}" for n in range(1, 5)),
    ]
    some = [Statement("# model.py:3", tuple(text.split("; "))) for text in texts]
    lines = folded(some, names_in(texts))
    assert lines.count("# model.py:3") == 1
    longer = [f"a_{n} = op(w_{n % 4 + 1}, w_{n % 2 + 5}); del a_{n}" for n in range(1, 13)]
    every = statements(*texts[:8], *longer)
    lines = folded(every, names_in([*texts, *longer]))
    assert any(line.startswith("for w_2_each, w_6_each in [") for line in lines)
    plain = [line for each in every for line in each.lines]
    assert events_of([*lines, "return None"]) == events_of([*plain, "return None"])


def test_a_loop_begins_where_the_model_does_and_line_breaks_do_not_matter():
    texts = [text for text in LAYERS if "make" not in text and "return" not in text]
    some = [Statement(f"# m.py:{'abcxy'.index(t[0]) + 1}", tuple(t.split("; "))) for t in texts]
    long = some[9].lines[0].replace("op(", "op(\n    ").replace(")", ",\n)")
    some[9] = Statement(some[9].site, (long, *some[9].lines[1:]))
    lines = folded(some[1:], names_in(texts))
    begin = next(at for at, line in enumerate(lines) if line.startswith("for "))
    assert lines[begin] == "for w_2_each in [w_2, w_3, w_4, w_5]:"
    assert lines[begin + 1] == "    # m.py:1"
