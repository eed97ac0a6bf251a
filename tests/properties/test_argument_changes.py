from hypothesis import given

from optrove.codec.described import case_of, describe_case
from optrove.codec.text import read
from optrove.report.argument_changes import argument_changes
from optrove.report.families import differing
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
