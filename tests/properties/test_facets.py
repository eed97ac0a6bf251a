"""What is counted with sets of bits is what looking at every case would give."""

from hypothesis import given
from hypothesis import strategies as st

from optrove.report.facets import FACETS, NONE, Cases, Choice, numbers_in

MODELS, BOARDS = ("m", "n"), ("b", NONE)
TENSORS = st.tuples(
    *(st.sampled_from(values) for values in (("x", "y"), ("T",), ("L1", "D"), ("1x2", NONE)))
)
CASE = st.fixed_dictionaries(
    {
        "tensors": st.lists(TENSORS, max_size=3),
        "calls": st.dictionaries(
            st.tuples(st.sampled_from(MODELS), st.sampled_from(BOARDS)), st.integers(1, 1000)
        ),
        "outcome": st.sampled_from((NONE, "passed", "raised")),
    }
)
CHOICE = st.builds(
    Choice,
    model=st.sampled_from((None, *MODELS)),
    board=st.sampled_from((None, *BOARDS)),
    dtype=st.sampled_from((None, "x", "y")),
    memory=st.sampled_from((None, "L1", "D")),
    mesh=st.sampled_from((None, "1x2", NONE)),
    outcome=st.sampled_from((None, NONE, "passed", "raised")),
)


def made(cases):
    """Return the cases as they are indexed."""
    found, tensors, origins = Cases(), {}, {}
    for number, case in enumerate(cases):
        found.keys.append(number)
        found.calls.append(sum(case["calls"].values()))
        if case["calls"]:
            found.outermost |= 1 << number
        if case["outcome"] != NONE:
            found.outcomes[case["outcome"]] = found.outcomes.get(case["outcome"], 0) | 1 << number
        for kind in case["tensors"]:
            bits = tensors.setdefault(kind, bytearray(len(cases) // 8 + 1))
            bits[number >> 3] |= 1 << (number & 7)
        for origin, calls in case["calls"].items():
            origins.setdefault(origin, {})[number] = calls
    found.fill(tensors, origins)
    return found


def fits(case, choice):
    """Tell whether a case is meant, looking at it alone."""
    wanted = (choice.dtype, choice.layout, choice.memory, choice.mesh)
    tensors = any(
        all(want in (None, fact) for want, fact in zip(wanted, kind, strict=True))
        for kind in case["tensors"]
    )
    return (
        bool(case["calls"])
        and (wanted == (None,) * 4 or tensors)
        and (choice.model is choice.board is None or bool(counted(case, choice)))
        and choice.outcome in (None, case["outcome"])
    )


def counted(case, choice):
    """Return the calls of a case that are meant."""
    return sum(
        calls
        for (model, board), calls in case["calls"].items()
        if choice.model in (None, model) and choice.board in (None, board)
    )


@given(st.lists(CASE, max_size=20), CHOICE)
def test_sets_count_as_looking_at_every_case_does(cases, choice):
    index = made(cases)
    chosen = index.chosen(choice)
    expected = [number for number, case in enumerate(cases) if fits(case, choice)]
    assert list(numbers_in(chosen)) == expected
    assert index.calls_of(chosen, choice) == sum(counted(cases[n], choice) for n in expected)
    for after in (-1, 0, 5):
        assert list(numbers_in(chosen, after)) == [n for n in expected if n > after]


@given(st.lists(CASE, max_size=20), CHOICE)
def test_a_facet_tells_how_many_cases_each_value_would_leave(cases, choice):
    index = made(cases)
    for name in FACETS:
        for value, count in index.values(name, choice).items():
            facts = {each: getattr(choice, each) for each in FACETS}
            narrowed = Choice(**{**facts, name: value})
            assert count == index.chosen(narrowed).bit_count() > 0
