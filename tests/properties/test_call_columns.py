"""Calls survive their packed form, whatever their numbers."""

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from optrove.journal import format as layout
from optrove.journal.calls import columns_of, pack, unpack

large = st.integers(0, 2**32 - 1)
small = st.integers(0, 3)
numbers = small | large


@st.composite
def records(draw):
    """Draw the first op_index and the records of calls that follow one another."""
    first = draw(st.integers(0, 5) | st.integers(0, 2**40))
    steps = draw(st.lists(st.integers(1, 2**20) | st.integers(1, 2**50), min_size=1, max_size=20))
    found = []
    for op_index, entered in enumerate(accumulate(steps), start=first):
        word = layout.word(draw(numbers), draw(st.integers(1, 4)), draw(st.integers(0, 65_535)))
        parent = draw(st.just(0) | st.integers(0, op_index))
        outcome = draw(st.integers(0, 2))
        took, ending = draw(st.integers(0, 2**50)), draw(numbers)
        row = (word, draw(numbers), draw(numbers), entered, parent, entered + took, ending)
        found.append((*row, outcome))
    # Threads enter their calls in no order.
    return first, draw(st.permutations(found)) if not any(row[4] for row in found) else found


@settings(max_examples=200)
@given(records())
def test_unpacking_what_was_packed_gives_the_same_calls(drawn):
    first, rows = drawn
    columns = columns_of(b"".join(layout.RECORD.pack(*row) for row in rows), first)
    block = pack(columns)
    assert (block.first, block.count) == (first, len(rows))
    for found in (columns, unpack(block)):
        assert (found.first, len(found)) == (first, len(rows))
        assert [
            (word, site, scope, entered, parent, took, ending, outcome)
            for word, site, scope, entered, parent, took, ending, outcome in zip(
                *(found.words, found.sites, found.scopes, found.entered, found.parents),
                *(found.took, found.endings, found.outcomes),
                strict=True,
            )
        ] == [
            # A call that did not end took no time, and gave nothing.
            (*row[:5], row[5] - row[3], row[6], row[7]) if row[7] else (*row[:5], 0, 0, 0)
            for row in rows
        ]
