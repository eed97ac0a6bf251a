from optrove.report.document import Column
from optrove.report.draw_text import shortened, table_lines, wrapped
from optrove.report.wording import clipped, plural

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


def test_of_prose_the_first_words_are_kept_and_of_a_long_word_its_beginning():
    assert clipped("one two three", 13) == "one two three"
    assert clipped("one two three", 12) == "one two ..."
    assert clipped("one two three", 10) == "one ..."
    assert clipped("a" * 20, 10) == "aaaaaa ..."
    columns = (Column("op"), Column("why", flexible=True, prose=True))
    assert (
        table_lines(columns, [("add", "no bank for this shard")], 22)[1] == "add  no bank for ..."
    )


def test_a_last_column_that_is_to_stay_whole_goes_on_in_further_lines():
    columns = (Column("calls", right=True), Column("by", flexible=True, whole=True))
    rows = [("7", "a=L1_INTERLEAVED, b=DRAM_INTERLEAVED"), ("12", "a=L1")]
    assert table_lines(columns, rows, 30) == [
        "calls  by",
        "    7  a=L1_INTERLEAVED,",
        "       b=DRAM_INTERLEAVED",
        "   12  a=L1",
    ]
    assert table_lines(columns, rows)[1] == "    7  a=L1_INTERLEAVED, b=DRAM_INTERLEAVED"


def test_the_title_of_a_column_is_never_cut():
    columns = (Column("run"), Column("model or source", flexible=True))
    assert table_lines(columns, [("a" * 12, "b" * 40)], 10)[0] == f"{'run':12}  model or source"


def test_lines_break_between_words_and_lose_nothing():
    assert wrapped("  3x ", "no bank for-this shard", 16) == [
        "  3x no bank",
        "     for-this",
        "     shard",
    ]
    assert wrapped("", "x" * 200, 100) == ["x" * 200]
    assert wrapped("note: ", "", 100) == ["note:"]


def test_counts_are_spelled_with_their_noun():
    assert [plural(count, "case") for count in (0, 1, 1200)] == ["0 cases", "1 case", "1,200 cases"]
