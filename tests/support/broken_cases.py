"""Cases of ttnn that are wrong on purpose, each in one known way, beside the right ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import trove_rows
from optrove.model.case import Case
from optrove.model.values import Int, List, Tuple
from trove_rows import memory
from trove_rows import shard as shards


def tensor(number, shape, dtype="bfloat16", stored_in=None, layout="TILE"):
    """Return a tensor on one chip."""
    made = trove_rows.tensor(*shape, dtype=dtype, where=stored_in, layout=layout, number=number)
    if layout != "TILE":
        return made
    padded = (*shape[:-2], *(-(-size // 32) * 32 for size in shape[-2:]))
    return replace(made, placement=replace(made.placement, padded_shape=padded))


def heights(rows, width, cores, shard=None):
    """Return a tensor in L1 whose rows are spread over cores."""
    last = (min(cores, 8) - 1, -(-cores // 8) - 1)
    stored_in = memory("L1_HEIGHT_SHARDED", shards(shard or (rows // cores, width), last))
    return tensor(0, (1, 1, rows, width), stored_in=stored_in)


def matmul(one, other):
    return Case("ttnn.matmul", (("input_tensor_a", one), ("input_tensor_b", other)))


def unary(op, one):
    return Case(op, (("input_tensor", one),))


SIZES = tuple(product((32, 64, 128, 256), (64, 128, 192)))


def right():
    """Yield cases that every board takes."""
    for rows, width in SIZES:
        yield matmul(tensor(0, (1, 1, rows, width)), tensor(1, (1, 1, width, 64)))
        yield unary("ttnn.relu", tensor(0, (1, 1, rows, width)))
        yield unary("ttnn.relu", heights(rows * 4, width, 4))


def wrong_inner_dimension():
    """Yield products of matrices that do not fit."""
    for (rows, width), more in product(SIZES, (32, 64, 96, 160, 1024)):
        yield matmul(tensor(0, (1, 1, rows, width)), tensor(1, (1, 1, width + more, 64)))


def grid_too_large():
    """Yield tensors on more cores than there are."""
    for (rows, width), columns in product(SIZES, (9, 12, 13, 16, 20, 64)):
        stored_in = memory("L1_HEIGHT_SHARDED", shards((rows, width), (columns - 1, 9)))
        yield unary("ttnn.relu", tensor(0, (1, 1, rows * columns * 10, width), stored_in=stored_in))


def too_large_for_l1():
    """Yield tensors that no L1 holds."""
    for (rows, width), op in product(SIZES, ("ttnn.relu", "ttnn.exp", "ttnn.neg")):
        yield unary(
            op, tensor(0, (1, 1, rows * 1024, width * 64), stored_in=memory("L1_INTERLEAVED"))
        )


def shards_across_tiles():
    """Yield tiled tensors whose shards are no whole tiles."""
    for (rows, width), cut in product(SIZES, (1, 8, 17)):
        yield unary("ttnn.relu", heights(rows * 4, width, 4, (rows - cut, width)))
        yield unary("ttnn.relu", heights(rows * 4, width, 4, (rows, width - cut)))


def wrong_dtype():
    """Yield tensors of numbers that an operation does not take."""
    for rows, width in SIZES:
        yield matmul(
            tensor(0, (1, 1, rows, width), "uint32"), tensor(1, (1, 1, width, 64), "uint32")
        )
        yield Case(
            "ttnn.embedding",
            (
                ("input_tensor", tensor(0, (1, rows), "bfloat8_b")),
                ("weight", tensor(1, (512, width), layout="ROW_MAJOR")),
            ),
        )


def wrong_shape():
    """Yield shapes and dimensions that an operation cannot do anything with."""
    for rows, width in SIZES:
        one = tensor(0, (1, 1, rows, width))
        other = tensor(1, (1, 1, rows + 32, width + 64))
        order = Tuple((Int(0), Int(1), Int(2), Int(7)))
        yield Case("ttnn.permute", (("input_tensor", one), ("dims", order)))
        size = List((Int(1), Int(1), Int(rows), Int(width + 32)))
        yield Case("ttnn.reshape", (("input_tensor", one), ("shape", size)))
        yield Case("ttnn.add", (("input_tensor_a", one), ("input_tensor_b", other)))
        yield Case("ttnn.concat", (("tensors", List((one, other))), ("dim", Int(3))))
        yield Case("ttnn.softmax", (("input_tensor", one), ("dim", Int(9))))


WRONG = {
    "wrong inner dimension": wrong_inner_dimension,
    "grid too large": grid_too_large,
    "too large for L1": too_large_for_l1,
    "shards across tiles": shards_across_tiles,
    "wrong dtype": wrong_dtype,
    "wrong shape": wrong_shape,
}
