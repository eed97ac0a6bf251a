from hypothesis import given

from optrove.report.cases import differing
from optrove.report.describe import argument_changes
from optrove.serializer.described import case_of, describe_case
from optrove.serializer.text import read
from strategies import cases


@given(cases)
def test_a_case_does_not_differ_from_itself(case):
    again = case_of(describe_case(case).content)
    assert argument_changes(case, again) == ()


@given(cases, cases)
def test_two_cases_differ_in_some_argument_or_have_the_same(one, other):
    changes = argument_changes(one, other)
    assert bool(changes) == (one.arguments != other.arguments)


@given(cases, cases)
def test_two_contents_differ_at_some_path_or_are_the_same(one, other):
    contents = [read(describe_case(case).content)["arguments"] for case in (one, other)]
    assert bool(list(differing(*contents))) == (one.arguments != other.arguments)
