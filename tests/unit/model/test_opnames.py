import pytest

from optrove.model.ops import full_pattern, meant_ops, op_pattern

KNOWN = (
    "torch.add",
    "torch.nn.functional.linear",
    "torch.ops.aten.addmm.default",
    "torch.ops.aten.addmm_.default",
    "torch.ops.aten.sub.Scalar",
    "torch.ops.aten.sub.Tensor",
    "ttnn.add",
    "ttnn.add_",
    "ttnn.experimental.paged_fill_cache",
    "ttnn.linear",
    "ttnn.transformer.scaled_dot_product_attention",
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ttnn.add", ("ttnn.add",)),
        ("ttnn::add", ("ttnn.add",)),
        ("add", ("torch.add", "ttnn.add")),
        ("ttnn::experimental::paged_fill_cache", ("ttnn.experimental.paged_fill_cache",)),
        ("experimental.paged_fill_cache", ("ttnn.experimental.paged_fill_cache",)),
        ("paged_fill_cache", ("ttnn.experimental.paged_fill_cache",)),
        ("linear", ("torch.nn.functional.linear", "ttnn.linear")),
        ("ttnn.add*", ("ttnn.add", "ttnn.add_")),
        ("*attention", ("ttnn.transformer.scaled_dot_product_attention",)),
        ("addmm", ("torch.ops.aten.addmm.default",)),
        ("aten.addmm", ("torch.ops.aten.addmm.default",)),
        ("aten::addmm", ("torch.ops.aten.addmm.default",)),
        ("torch.ops.aten.addmm", ("torch.ops.aten.addmm.default",)),
        ("aten.addmm.default", ("torch.ops.aten.addmm.default",)),
        ("sub", ("torch.ops.aten.sub.Scalar", "torch.ops.aten.sub.Tensor")),
        ("aten.sub", ("torch.ops.aten.sub.Scalar", "torch.ops.aten.sub.Tensor")),
        ("aten.sub.Tensor", ("torch.ops.aten.sub.Tensor",)),
        ("ad", ()),
        ("ttnn.ad.", ()),
        ("", ()),
    ],
)
def test_a_name_means_the_ops_that_a_reader_would_expect(name, meant):
    assert meant_ops(name, KNOWN) == meant


def test_a_star_means_everything():
    assert meant_ops("*", KNOWN) == KNOWN


def test_a_point_is_a_point():
    assert not op_pattern("ttnn.add").fullmatch("ttnnxadd")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("ttnn::add", "ttnn.add"),
        ("paged_fill_cache", "ttnn.experimental.paged_fill_cache"),
        ("ttnn.add*", "ttnn.add*"),
        ("add_*", "ttnn.add_"),
        ("*", "*"),
        ("add*", "*.add*"),
        ("linear", "*.linear"),
        ("aten.addmm", "torch.ops.aten.addmm.default"),
        ("sub", "torch.ops.*sub.*"),
        ("nothing", None),
    ],
)
def test_a_name_has_one_full_pattern_that_means_the_same(name, pattern):
    assert full_pattern(name, KNOWN) == pattern
