from optrove.report.sweep import DrawnGroup, DrawnVector, DrawnVectors, vector_data, vector_lines
from trove_rows import case

VECTORS = [
    DrawnVector("ab" * 32, case("sweep.mine.nightly", size=1), "nightly"),
    DrawnVector("cd" * 32, case("sweep.mine.xfail_x", text="long " * 30), "xfail_x"),
]
DRAWING = DrawnVectors(
    "mine",
    VECTORS,
    [DrawnGroup("n300", None, 1), DrawnGroup(None, "4x8", 1)],
    (("invalid: no", 2),),
)


def test_vectors_groups_and_what_was_left_out_are_told():
    assert list(vector_lines(DRAWING, 40)) == [
        "abababababab  nightly  size=1",
        "cdcdcdcdcdcd  xfail_x  text='long ...",
        "",
        "vectors  hardware  mesh",
        "      1  n300      1x1",
        "      1  any       4x8",
        "mine: 2 vectors (nightly 1, xfail_x 1)",
        "left out: 2 invalid: no",
    ]


def test_machines_are_told_the_same():
    told = vector_data(DRAWING)
    assert told["left_out"] == [{"reason": "invalid: no", "count": 2}]
    assert told["vectors"][0] == {
        "id": "ab" * 32,
        "op": "sweep.mine.nightly",
        "suite": "nightly",
        "calls": None,
        "arguments": {"size": 1},
    }
