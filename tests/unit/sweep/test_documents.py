from drawn import drawn_lines
from optrove.model.records import DeviceKind, DeviceParameters, Job
from optrove.replay.planning import PlannedJob
from optrove.sweep.documents import vectors_data, vectors_document
from optrove.sweep.vectors import SweepPlan
from trove_rows import case


def vector(letters, suite, mesh=None, board=None, **arguments):
    one = case(f"sweep.mine.{suite}", **arguments)
    job = Job(one, DeviceKind.MOCK, device=DeviceParameters(mesh_shape=mesh))
    return PlannedJob(job, letters * 32, board=board, suite=suite)


FOUND = SweepPlan(
    (
        vector("ab", "nightly", board="n300", size=1),
        vector("cd", "xfail_x", mesh=(4, 8), text="long " * 30),
    ),
    (("invalid: no", 2),),
)


def test_vectors_groups_and_left_out_vectors_are_shown():
    assert drawn_lines(vectors_document("mine", FOUND), 40) == [
        "vector        suite    arguments",
        "abababababab  nightly  size=1",
        "cdcdcdcdcdcd  xfail_x  text='long ...",
        "",
        "vectors  hardware  mesh",
        "      1  n300      1x1",
        "      1  any       4x8",
        "",
        "mine: 2 vectors (nightly 1, xfail_x 1)",
        "left out: 2 invalid: no",
        "",
        '--json shows the texts that "..." cuts short',
    ]


def test_the_data_has_the_same():
    data = vectors_data("mine", FOUND)
    assert data["left_out"] == [{"reason": "invalid: no", "count": 2}]
    assert data["vectors"][0] == {
        "id": "ab" * 32,
        "op": "sweep.mine.nightly",
        "suite": "nightly",
        "calls": None,
        "arguments": {"size": 1},
    }
