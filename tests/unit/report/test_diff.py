from drawn import drawn_lines
from optrove.model.values import Opaque
from optrove.report.describe import NOT_GIVEN, ArgumentChange, argument_changes
from optrove.report.diff import (
    CaseSide,
    Kind,
    compare,
    counted,
    diff_data,
    diff_document,
)
from trove_rows import case, case_row, memory, shard, tensor


def matmul(where="DRAM_INTERLEAVED", shards=None, rows=32, **more):
    weights = tensor(64, 64, dtype="bfloat8_b", where=memory(where, shards), number=1)
    return case("ttnn.matmul", input_tensor_a=tensor(rows, 64), input_tensor_b=weights, **more)


ADD = case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=1.5)


class Sides:
    """Two collections of cases, each a list of (case, calls), and their difference."""

    def __init__(self, a, b, **options):
        rows = [[case_row(one, calls) for one, calls in side] for side in (a, b)]
        contents = {row.case_id: row.content for side in rows for row in side}
        a, b = (
            CaseSide(name, "run", counted(side), contents.get)
            for name, side in zip(("old", "new"), rows, strict=True)
        )
        self.comparison = compare(a, b, **options)

    @property
    def kinds(self):
        return [change.kind for change in self.comparison.changes]

    @property
    def brief(self):
        return drawn_lines(diff_document(self.comparison, brief=True))

    @property
    def lines(self):
        """The changes, below what is always shown."""
        return drawn_lines(diff_document(self.comparison, brief=False))[len(self.brief) :]


def test_equal_sides_have_no_difference():
    sides = Sides([(ADD, 3), (matmul(), 1)], [(matmul(), 1), (ADD, 3)])
    assert sides.comparison.is_equal
    assert sides.brief[-1] == "nothing differs"
    assert sides.lines == []


def test_the_same_computation_placed_otherwise_is_a_changed_case():
    sides = Sides([(matmul(), 4)], [(matmul("L1_WIDTH_SHARDED", shard((64, 8), (7, 0))), 4)])
    assert sides.kinds == [Kind.CHANGED]
    text = "\n".join(sides.lines)
    assert "input_tensor_b.memory.buffer_type: BufferType.DRAM -> BufferType.L1" in text
    assert "input_tensor_b.memory.memory_layout:" in text
    assert "-> shard(shard_shape=[64, 8], grid=[(0,0)->(7,0)], orientation=ROW_MAJOR)" in text
    assert "input_tensor_a" not in text


def test_another_computation_is_a_case_that_went_and_one_that_came():
    sides = Sides([(matmul(), 4)], [(matmul(rows=64), 5)])
    assert sides.kinds == [Kind.ADDED, Kind.REMOVED]
    (op,) = sides.comparison.ops
    assert (op.added, op.removed, op.changed, op.calls_a, op.calls_b) == (1, 1, 0, 4, 5)
    assert "    input_tensor_a: Tensor(shape=[64, 64], dtype=BFLOAT16," in "\n".join(sides.lines)


def test_a_case_that_is_called_more_often_is_recounted_unless_calls_do_not_matter():
    sides = Sides([(ADD, 3)], [(ADD, 6)])
    assert sides.kinds == [Kind.RECOUNTED]
    assert sides.lines[-1].endswith(", 3 -> 6 calls")
    assert Sides([(ADD, 3)], [(ADD, 6)], calls=False).comparison.is_equal


def test_of_several_possible_pairs_those_that_differ_least_are_formed():
    near, far = shard((64, 8), (7, 0)), shard((64, 64), (0, 0), "COL_MAJOR")
    moved = shard((64, 8), (7, 1))
    a = [(matmul("L1_WIDTH_SHARDED", near), 1), (matmul("DRAM_WIDTH_SHARDED", far), 9)]
    b = [(matmul("L1_WIDTH_SHARDED", moved), 9)]
    sides = Sides(a, b)
    assert sides.kinds == [Kind.REMOVED, Kind.CHANGED]
    text = "\n".join(sides.lines)
    assert "input_tensor_b.memory.shard_spec.grid: [(0,0)->(7,0)] -> [(0,0)->(7,1)]" in text


def test_ever_so_many_placements_of_one_computation_are_still_compared():
    a = [(matmul("L1_WIDTH_SHARDED", shard((64, 1), (0, y))), 1) for y in range(30)]
    b = [(matmul("L1_WIDTH_SHARDED", shard((64, 2), (0, y))), 1) for y in range(25)]
    kinds = Sides(a, b).kinds
    assert (kinds.count(Kind.CHANGED), kinds.count(Kind.REMOVED)) == (25, 5)


def test_what_no_converter_knows_is_compared_by_its_type():
    a = [(matmul(extra=Opaque("ttnn.Strange", f"a{number}")), 1) for number in range(3)]
    b = [(matmul(extra=Opaque("ttnn.Strange", f"b{number}")), 1) for number in range(3)]
    sides = Sides(a, b)
    assert sides.comparison.is_equal
    assert sides.comparison.opaque == 1
    assert "compared by their types only" in sides.brief[-1]
    other = [(matmul(extra=Opaque("ttnn.Stranger", "b")), 3)]
    assert not Sides(a, other).comparison.is_equal


def test_the_table_counts_by_op():
    sides = Sides([(ADD, 3), (matmul(), 1)], [(ADD, 1200), (matmul("L1_INTERLEAVED"), 1)])
    assert sides.brief == [
        "A: run old, 2 cases, 4 calls",
        "B: run new, 2 cases, 1,201 calls",
        "",
        "op           added  removed  changed  more/less often  calls in A   in B",
        "ttnn.add                                            1           3  1,200",
        "ttnn.matmul                        1                            1      1",
        "",
        "cases: 0 added, 0 removed, 1 changed, 1 called more or less often",
    ]


def test_lines_keep_within_80_columns_where_commas_allow_it():
    sides = Sides(
        [(matmul(), 4)], [(matmul("L1_WIDTH_SHARDED", shard((64, 8), (7, 0))), 4), (ADD, 1)]
    )
    assert max(map(len, sides.lines)) <= 80


def test_machines_get_every_change_with_its_parts():
    sides = Sides([(matmul(), 4), (ADD, 1)], [(matmul("L1_INTERLEAVED"), 5)])
    data = diff_data(sides.comparison)
    assert data["equal"] is False
    assert (data["a"]["calls"], data["b"]["cases"]) == (5, 1)
    (changed,) = data["changed"]
    assert (changed["calls_a"], changed["calls_b"]) == (4, 5)
    assert changed["arguments"] == [
        {
            "path": "input_tensor_b.memory.buffer_type",
            "a": "BufferType.DRAM",
            "b": "BufferType.L1",
        }
    ]
    (removed,) = data["removed"]
    assert removed["arguments"]["input_tensor_b"] == 1.5
    assert (data["added"], data["recounted"]) == ([], [])
    assert [op["op"] for op in data["ops"]] == ["ttnn.add", "ttnn.matmul"]


def test_arguments_that_are_given_on_one_side_only_are_reported():
    (change,) = argument_changes(matmul(), matmul(transpose_a=True))
    assert change == ArgumentChange("transpose_a", NOT_GIVEN, "True")


def test_parts_of_lists_tensors_and_structs_are_reported_by_their_paths():
    before = case("ttnn.pad", x=tensor(32, 32), padding=[0, 1, (2, 3)], value=0.0)
    after = case("ttnn.pad", x=tensor(32, 32, mesh=(1, 2)), padding=[0, 1, (2, 4)], value=None)
    assert argument_changes(before, after) == (
        ArgumentChange("padding[2][1]", "3", "4"),
        ArgumentChange("value", "0.0", "None"),
        ArgumentChange("x.mesh_shape", "[1, 1]", "[1, 2]"),
    )


def test_lists_of_other_lengths_differ_by_what_is_there():
    before, after = case("ttnn.pad", p=[1, 2]), case("ttnn.pad", p=[1, 2, 3])
    assert argument_changes(before, after) == (ArgumentChange("p[2]", NOT_GIVEN, "3"),)
