"""Which numbers the arguments of some torch operations may hold.

Index tensors have to stay within the argument that they index, probabilities between zero and one.
Most of this follows from the names of parameters (``frameworks/input_values.py``); the rules here
are for operations whose parameters have other names or other bounds.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.input_values import UNKNOWN_SIZE, distinct, nonzero, positive, share, whole
from optrove.frameworks.torch.reference import last_name
from optrove.model.values import Bool, Int, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optrove.frameworks.input_values import Domain, Draw, Drawing
    from optrove.model.values import Value

    Shapes = Mapping[str, tuple[int, ...]]
    Bound = Callable[[Shapes, Mapping[str, Value], int], int | None]

_PLACE: Final = re.compile(r"\[(\d+)\]$")


def positive_definite(drawing: Drawing) -> Any:
    """Return symmetric matrices that have a Cholesky decomposition."""
    torch, shape = drawing.torch, drawing.shape
    if len(shape) < 2:  # noqa: PLR2004 - a matrix has two dimensions
        return positive(drawing)
    drawn = torch.randn(shape, generator=drawing.generator)
    return drawn @ drawn.mT + shape[-1] * torch.eye(shape[-1])


def longest(drawing: Drawing) -> Any:
    """Return the largest number for all, as lengths of sequences that have to be in order."""
    return drawing.torch.full(drawing.shape, drawing.below)


def ends(drawing: Drawing) -> Any:
    """Return where groups of about equal size end; the last one at the bound."""
    torch, count = drawing.torch, prod(drawing.shape)
    places = torch.arange(1, count + 1) * drawing.below // max(1, count)
    return places.reshape(drawing.shape)


def distinct_along(axis: int) -> Draw:
    """Return a function that draws whole numbers of which none repeats along an axis."""

    def distinct(drawing: Drawing) -> Any:
        drawn = drawing.torch.rand(drawing.shape, generator=drawing.generator)
        return drawn.argsort(axis) if drawing.shape else drawn.long()

    return distinct


def _steps(shapes: Shapes, arguments: Mapping[str, Value]) -> int:
    """Return the number of steps of a padded sequence."""
    shape = shapes.get("input", ())
    place = 1 if arguments.get("batch_first") == Bool(True) else 0  # noqa: FBT003 - a Value
    return shape[place] if place < len(shape) else 1


def _own_dimension(shapes: Shapes, _: Mapping[str, Value], place: int) -> int | None:
    shape = shapes.get("self", ())
    return shape[place] if place < len(shape) else None


def _classes(shapes: Shapes, _: Mapping[str, Value], __: int) -> int | None:
    shape = shapes.get("self", ())
    return shape[min(1, len(shape) - 1)] if shape else None


def _elements(shapes: Shapes, _: Mapping[str, Value], __: int) -> int | None:
    return prod(shapes["self"]) if "self" in shapes else None


def _pooled(shapes: Shapes, _: Mapping[str, Value], __: int) -> int | None:
    return prod(shapes["self"][-2:]) if "self" in shapes else None


def _number(name: str) -> Bound:
    def bound(_: Shapes, arguments: Mapping[str, Value], __: int) -> int | None:
        found = arguments.get(name)
        return found.value if isinstance(found, Int) and found.value > 0 else None

    return bound


def _along(shapes: Shapes, arguments: Mapping[str, Value]) -> int | None:
    """Return the size of the dimension that is named."""
    axis, shape = arguments.get("dim"), shapes.get("self", ())
    return (
        shape[axis.value]
        if isinstance(axis, Int) and -len(shape) <= axis.value < len(shape)
        else None
    )


def _grouped(shapes: Shapes) -> int | None:
    """Return the size of the dimension that a matrix product of groups divides."""
    match shapes.get("self"), shapes.get("mat2"):
        case ((rows, _), (_, _, _)):
            return rows
        case ((_, inner), (_, _)):
            return inner
        case ((_, _, _), (_, columns)):
            return columns
    return None


def _zero(_: Shapes, __: Mapping[str, Value], ____: int) -> int | None:
    return 1


_INDEXED: Final = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index",
                   "_unsafe_index_put", "_unsafe_masked_index")  # fmt: skip
_LOSSES: Final = ("nll_loss", "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward",
                  "nll_loss2d_backward", "nll_loss_nd", "cross_entropy_loss",
                  "multi_margin_loss")  # fmt: skip
_POOLS: Final = ("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
                 "adaptive_max_pool2d_backward", "max_unpool2d")  # fmt: skip

BOUNDS: Final[Mapping[tuple[str, str], Bound]] = {
    **{(op, "indices"): _own_dimension for op in _INDEXED},
    **{(op, "target"): _classes for op in _LOSSES},
    **{(op, "indices"): _pooled for op in _POOLS},
    ("embedding_dense_backward", "indices"): _number("num_weights"),
    ("one_hot", "self"): _number("num_classes"),
    ("take", "index"): _elements,
    ("put", "index"): _elements,
    ("put_", "index"): _elements,
    ("_embedding_bag", "offsets"): _zero,
    ("_embedding_bag_forward_only", "offsets"): _zero,
    ("embedding_bag", "offsets"): _zero,
    ("_linalg_check_errors", "info"): _zero,
}
"""The bounds of whole numbers, by operation and argument."""

DRAWS: Final[Mapping[tuple[str, str], Draw]] = {
    **{
        (op, argument): share
        for op in ("bernoulli", "bernoulli_", "binary_cross_entropy",
                   "binary_cross_entropy_backward", "multinomial")
        for argument in ("self", "input", "p", "target")
    },
    **{
        (op, argument): positive_definite
        for op in ("linalg_cholesky_ex", "linalg_cholesky", "cholesky", "linalg_eigh",
                   "_linalg_eigh", "cholesky_inverse", "eigh")
        for argument in ("self", "input", "A")  # the public functions have other names
    },
    ("fractional_max_pool2d", "random_samples"): share,
    ("fractional_max_pool3d", "random_samples"): share,
    ("normal", "std"): positive,
}  # fmt: skip
"""How floating-point numbers are drawn, by operation and argument."""

_WRITES: Final = frozenset(
    {(op, "indices") for op in ("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")}
    | {(op, "index") for op in ("index_copy", "index_copy_", "put", "put_")}
)
"""Arguments that say where numbers are written: of two at one place, either may stay."""

DIVISIONS: Final = frozenset(
    {"div", "div_", "floor_divide", "floor_divide_", "fmod", "fmod_", "remainder", "remainder_"}
)
"""Operations whose second argument must not be zero where it is whole."""

_SCATTERS: Final = frozenset({"scatter", "scatter_"})

_POSITIVE: Final = re.compile(r".*invstd|(max_)?exp_avg_sqs?|state_sums?|square_avgs?")


def repeats_indices(op: str, arguments: Mapping[str, Value]) -> bool:
    """Return whether an operation has indices that may be equal, with the same result each time."""
    name = last_name(op)
    written = name in _SCATTERS or any((name, argument) in _WRITES for argument in arguments)
    adds = arguments.get("accumulate") == Bool(True)  # noqa: FBT003 - a Value
    return not {"index", "indices"}.isdisjoint(arguments) and (adds or not written)


def domain_of(op: str, arguments: Mapping[str, Value]) -> Domain:
    """Return the domain of an operation's arguments."""
    name = last_name(op)
    shapes = {key: each.shape for key, each in arguments.items() if isinstance(each, TensorSpec)}

    def domain(argument: str, path: str, integers: bool) -> tuple[Draw, int] | None:  # noqa: FBT001 - the signature of a Domain
        if not integers:
            draw = DRAWS.get((name, argument))
            if draw is None and _POSITIVE.fullmatch(argument):
                draw = positive
            if argument == "rois":
                # The first column is a place in the batch: zero, rounded down.
                draw = share
            return None if draw is None else (draw, 0)
        if (name, argument) == ("_pack_padded_sequence", "lengths"):
            return longest, _steps(shapes, arguments)
        if argument == "offs" and _grouped(shapes) is not None:
            return ends, _grouped(shapes) or 0
        if name in DIVISIONS and argument == "other":
            return nonzero, UNKNOWN_SIZE
        bound = BOUNDS.get((name, argument))
        found = _PLACE.search(path)
        below = bound and bound(shapes, arguments, int(found[1]) if found else 0)
        if (name, argument) in _WRITES:
            below = below or _along(shapes, arguments)
            return None if below is None else (distinct, below)
        if name in _SCATTERS and argument == "index":
            axis = arguments.get("dim")
            along = axis.value if isinstance(axis, Int) else 0
            return distinct_along(along), shapes[argument][along] if shapes[argument] else 1
        return None if below is None else (whole, below)

    return domain
