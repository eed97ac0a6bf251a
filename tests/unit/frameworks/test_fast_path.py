"""The C extension fits the journal, and its table of integers behaves as a dict does."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optrove.frameworks import extensions
from optrove.frameworks.ttnn.probe import fast_path
from parts import C_EXTENSION, leave_out

if not fast_path.is_native():
    leave_out(C_EXTENSION, "it was not built")


@pytest.mark.parametrize("name", ["_fast_path", "_torch_fast_path"])
def test_the_extensions_write_the_records_that_the_journal_reads(name):
    extension = extensions.load_extension(name)
    assert {name: getattr(extension, name) for name in extensions.RECORD_LAYOUT} == {
        "SITE_OFFSET": 8,
        "SCOPE_OFFSET": 12,
        "ENTERED_OFFSET": 16,
        "EXIT_OFFSET": 32,
        "NUMBER_OFFSET": 40,
        "OUTCOME_OFFSET": 44,
        "RECORD_SIZE": 48,
        "RETURNED": 1,
        "RAISED": 2,
    }


@pytest.mark.parametrize("name", extensions.RECORD_LAYOUT)
def test_an_extension_for_another_layout_is_not_used(name, monkeypatch, caplog):
    monkeypatch.setitem(extensions.RECORD_LAYOUT, name, 99)
    assert extensions.load_extension("_fast_path") is None
    assert "another record layout" in caplog.text


# Close together, as the numbers of tensors are, and far apart, as addresses; many share a place.
KEYS = st.one_of(
    st.integers(0, 200), st.integers(0, 2**60 - 1).map(lambda k: k * 16), st.just(2**64 - 1)
)
VALUES = st.one_of(st.integers(-(2**63), -1), st.integers(1, 2**63 - 1))
ACTIONS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("pop"), KEYS, st.just(0)),
    st.tuples(st.just("clear"), st.just(0), st.just(0)),
)


def act(table, action, key, value):
    """Do one thing to a table."""
    if action == "put":
        table[key] = value
    elif action == "pop":
        return table.pop(key, None)
    else:
        table.clear()
    return None


@given(st.lists(ACTIONS, max_size=300))
def test_it_holds_what_a_dict_holds(actions):
    numbers, model = fast_path.int_table(), {}
    for action in actions:
        assert act(numbers, *action) == act(model, *action)
        assert len(numbers) == len(model)
    for _, key, _ in actions:
        assert numbers.get(key) == model.get(key)
        assert numbers.get(key, 7) == model.get(key, 7)
        assert (key in numbers) == (key in model)
    assert {key: numbers[key] for key in model} == model


@given(st.sets(KEYS, min_size=1), st.data())
def test_what_is_taken_out_leaves_the_rest(keys, data):
    numbers = fast_path.int_table()
    for key in keys:
        numbers[key] = key + 1 if key < 2**63 - 1 else -1
    gone = data.draw(st.sets(st.sampled_from(sorted(keys))))
    for key in gone:
        del numbers[key]
    assert {key for key in keys if key in numbers} == keys - gone


def test_it_grows_and_shrinks():
    numbers = fast_path.int_table()
    for key in range(50_000):
        numbers[key] = key + 1
    assert len(numbers) == 50_000
    assert all(numbers[key] == key + 1 for key in range(50_000))
    for key in range(0, 50_000, 2):
        assert numbers.pop(key, None) == key + 1
    assert len(numbers) == 25_000
    assert all(numbers.get(key) == (key + 1 if key % 2 else None) for key in range(50_000))
    numbers.clear()
    assert len(numbers) == 0
    assert 1 not in numbers


def test_what_it_cannot_hold_is_refused():
    numbers = fast_path.int_table()
    with pytest.raises(KeyError):
        numbers[1]
    with pytest.raises(KeyError):
        del numbers[1]
    with pytest.raises(ValueError, match="zero"):
        numbers[1] = 0
    for wrong in (-1, 2**64):
        with pytest.raises(OverflowError):
            numbers[wrong] = 1
    with pytest.raises(OverflowError):
        numbers[1] = 2**63
    for wrong in (None, "1", 1.0):
        with pytest.raises(TypeError):
            numbers.get(wrong)
        with pytest.raises(TypeError):
            numbers[1] = wrong
    assert len(numbers) == 0


def test_it_keeps_no_object():
    # Made here, so that nothing else holds them.
    numbers, key, value, otherwise = fast_path.int_table(), int("1" * 12), int("2" * 12), object()
    before = [sys.getrefcount(each) for each in (key, value, otherwise)]
    for _ in range(100):
        numbers[key] = value
        assert numbers.pop(key, otherwise) == value
        assert numbers.get(key, otherwise) is numbers.pop(key, otherwise) is otherwise
    assert [sys.getrefcount(each) for each in (key, value, otherwise)] == before
