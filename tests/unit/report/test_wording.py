import pytest

from optrove.report.wording import duration, moment, percent


@pytest.mark.parametrize(
    ("nanoseconds", "words"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.5 us"),
        (12_500_000, "12.5 ms"),
        (1_000_000_000, "1 s"),
        (75_000_000_000, "1:15 min"),
        (7_500_000_000_000, "2:05 h"),
    ],
)
def test_durations_have_the_unit_that_fits(nanoseconds, words):
    assert duration(nanoseconds) == words


def test_moments_are_to_the_minute_and_other_texts_stay():
    assert moment("2026-11-06T06:40:12.000000Z") == "2026-11-06 06:40"
    assert moment("long ago") == "long ago"


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0%"), (0.0001, "1%"), (0.5, "50%"), (0.9999, "99%"), (1.0, "100%")]
)
def test_only_all_is_a_hundred_percent_and_only_nothing_is_zero(share, text):
    assert percent(share, 0) == text
