import pytest

from optrove.trove.query import near

OPS = [f"torch.ops.aten.{name}" for name in ("_softmax.default", "addmm.default", "mean.dim")]
OPS += ["torch.ops.aten.mul.Tensor", "torch.ops.aten.sum.default", "ttnn.matmul"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("admm", "torch.ops.aten.addmm.default"),
        ("aten::softmx", "torch.ops.aten._softmax.default"),
        ("addmm.defualt", "torch.ops.aten.addmm.default"),
        ("matmull", "ttnn.matmul"),
        ("ttnn.matmull", "ttnn.matmul"),
        ("xyz", ""),
    ],
)
def test_a_name_is_compared_with_every_part_of_the_known_ones(asked, found):
    assert near(asked, OPS).partition(", ")[0] == found


def test_a_name_without_known_ones_has_none_like_it():
    assert near("add", []) == ""
