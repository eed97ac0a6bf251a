from optrove.report.tables import Column, plural, shortened, table_lines

COLUMNS = (Column("op", flexible=True), Column("calls", right=True), Column("test", flexible=True))


def test_columns_are_aligned_and_lines_have_no_spaces_at_their_end():
    rows = [("ttnn.add", "1,024", "a"), ("ttnn.matmul", "7", "")]
    assert table_lines(COLUMNS, rows) == [
        "op           calls  test",
        "ttnn.add     1,024  a",
        "ttnn.matmul      7",
    ]


def test_what_is_too_wide_is_cut_from_the_left_and_the_last_column_gives_way_first():
    rows = [("ttnn.matmul", "7", "tests/models/test_transformer.py::test_decode")]
    (_, line) = table_lines(COLUMNS, rows, width=48)
    assert line == "ttnn.matmul      7  ...ansformer.py::test_decode"
    assert len(line) == 48


def test_a_table_without_a_width_is_never_cut():
    long = "x" * 300
    assert table_lines(COLUMNS, [(long, "1", long)])[1].count("x") == 600


def test_a_table_that_cannot_be_narrow_enough_stays_readable():
    rows = [("ttnn.experimental.paged_fill_cache", "1,000,000", "a_long_name_of_a_test")]
    (_, line) = table_lines(COLUMNS, rows, width=10)
    assert line == "...ill_cache  1,000,000  ...of_a_test"


def test_a_table_without_rows_is_its_heading():
    assert table_lines(COLUMNS, []) == ["op  calls  test"]


def test_a_text_that_fits_is_not_shortened():
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefgh", 6) == "...fgh"


def test_counts_are_spelled_with_their_noun():
    assert [plural(count, "case") for count in (0, 1, 1200)] == ["0 cases", "1 case", "1,200 cases"]
