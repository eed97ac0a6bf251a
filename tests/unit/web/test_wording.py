from optrove.web.wording import FILTERS, address, count, cut, finite, moment, plain, share, sizes


def test_what_is_not_known_is_empty():
    assert FILTERS["duration"](None) == FILTERS["number"](None) == moment(None) == ""
    assert FILTERS["duration"](12_500_000) == "12.5 ms"


def test_what_would_not_be_seen_is_spelled_out():
    assert plain("a\0b\u202ec\x1b[31m") == "a\\x00b\\x202ec\\x1b[31m"
    assert plain("x" * 500, 10) == "x" * 10 + "\N{HORIZONTAL ELLIPSIS}"
    assert cut("x" * 3000, 5) == "xxxxx... (3,000 characters)"


def test_only_all_is_everything_and_only_nothing_is_nothing():
    assert [share(*pair) for pair in ((0, 9), (1, 999), (998, 999), (9, 9), (0, 0))] == [
        *("0%", "1%", "99%", "100%", ""),
    ]


def test_numbers_that_json_has_not_are_left_out():
    assert [finite(each) for each in (1.5, float("nan"), float("inf"), None)] == [1.5, *[None] * 3]
    assert (count(1234567), count(None), sizes("1x32")) == (
        "1,234,567",
        "",
        "1\N{MULTIPLICATION SIGN}32",
    )


def test_addresses_have_what_is_given_and_escape_it():
    assert address("/op", name="a&b=c #", after=None, board="") == "/op?name=a%26b%3Dc+%23"
    assert address("/ops", search=None) == "/ops"
