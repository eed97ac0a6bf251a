import numpy
import pytest

from optrove.frameworks.installed import loaded_tables
from optrove.journal import writer as module
from optrove.journal.calls import Dictionary
from optrove.journal.writer import Journal, Numbering
from optrove.model.records import Scope
from optrove.serializer.describe import Describer
from optrove.serializer.hashes import placement_hash
from optrove.serializer.wire import decode
from tracing import case_in, readers_in


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path, 0)
    yield journal
    journal.close()


@pytest.fixture
def numbering(journal):
    return Numbering(journal)


def session():
    return Describer(loaded_tables())


def case(numbering, **arguments):
    return numbering.case("fake.op", arguments, session()).number


def read_case(tmp_path, number):
    (reader,) = readers_in(tmp_path)
    return case_in(reader, number)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (1.0, True),
        (0.0, -0.0),
        ([1, 2], (1, 2)),
        ([1], [1.0]),
        ([0.0], [-0.0]),
        ({"a": 1}, {"a": True}),
        (None, "None"),
        ("1", 1),
        (b"a", "a"),
        ([], ()),
        ([[], []], [[[]]]),
    ],
)
def test_values_that_python_takes_for_equal_are_different_cases(numbering, tmp_path, one, other):
    numbers = [case(numbering, a=value) for value in (one, other, one, other)]
    assert numbers[0] == numbers[2] != numbers[1] == numbers[3]
    hashes = {placement_hash(read_case(tmp_path, number)) for number in numbers}
    assert len(hashes) == 2


def test_the_order_of_arguments_does_not_matter(numbering):
    a, b = numpy.zeros(2), numpy.zeros(3)
    assert case(numbering, x=a, y=b) == case(numbering, y=b, x=a)


def test_a_tensor_that_comes_twice_is_another_case_than_two(numbering, tmp_path):
    a, b = numpy.zeros(2), numpy.zeros(2)
    twice, two, view = (case(numbering, x=a, y=other) for other in (a, b, a[:]))
    assert len({twice, two, view}) == 3
    read = [dict(read_case(tmp_path, number).arguments) for number in (twice, two, view)]
    assert [arguments["y"].identity for arguments in read] == [0, 1, 1]
    assert [arguments["y"].storage for arguments in read] == [0, 1, 0]


def test_what_was_forgotten_gets_a_new_number_and_stays_the_same_case(
    numbering, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "MAX_REMEMBERED", 5)
    first = [case(numbering, a=number) for number in range(20)]
    again = [case(numbering, a=number) for number in range(20)]
    assert len(numbering._cases) <= 5
    assert len(numbering._values) <= 5
    assert not {*first} & {*again}
    (reader,) = readers_in(tmp_path)
    for one, other in zip(first, again, strict=True):
        assert reader.case(one) == reader.case(other)


def test_a_number_is_readable_as_soon_as_it_is_handed_out(numbering, tmp_path):
    numbers = [
        numbering.site("a.py", 3),
        numbering.scope(Scope("t.py::a")),
        numbering.reason("filtered", "why"),
        numbering.error("x" * 30_000),
        numbering.outputs((numpy.zeros(4), [1]), session()),
    ]
    assert numbers == [1] * 5
    (reader,) = readers_in(tmp_path)
    known = Dictionary(reader.dictionary())
    assert known.entry("sites", 1) == ["a.py", 3]
    assert known.entry("scopes", 1) == {"test_id": "t.py::a"}
    assert reader.reason(1) == "why"
    assert known.entry("errors", 1).startswith("x" * module.MAX_ERROR)
    assert len(known.entry("errors", 1)) < 30_000
    assert decode(known.entry("outputs", 1)[0]).shape == (4,)


def test_a_line_that_could_not_be_written_gives_no_number_away(numbering, journal, monkeypatch):
    def refuse(data):
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write", refuse)
        with pytest.raises(OSError):  # noqa: PT011 - there is but one
            numbering.site("a.py", 1)
    assert numbering.site("b.py", 1) == 1
    assert numbering.site("a.py", 1) == 2
