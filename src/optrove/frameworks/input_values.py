"""Recreate the torch tensors and numpy arrays of a recorded call, with suitable numbers.

Tensors that shared a storage share one again, each with its own strides and offset; a tensor that
was passed twice is one tensor again.

Random numbers break operations that use some of their inputs as indices: a page that does not
exist, a position beyond the end. So one table maps the names of parameters to roles; there are no
rules for single operations. Arguments without a role are drawn from a normal distribution, whole
numbers from a range in which every index exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from math import gcd, prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.frameworks.kept_tensors import KeptValues
from optrove.model.values import (
    NESTED,
    Int,
    List,
    NestedPlacement,
    NumpyPlacement,
    QuantizedPlacement,
    TensorSpec,
    TorchPlacement,
    Tuple,
    Value,
    storage_lengths,
    tensors_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Draw: TypeAlias = "Callable[[Drawing], Any]"

MASKED: Final = -1e5
"""The number of a mask where nothing is visible; finite, since block formats have no infinity."""

UNKNOWN_SIZE: Final = 8
"""The bound of whole numbers if the number of indices is unknown."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """One tensor to fill: its shape, the random generator, and the bound of whole numbers."""

    torch: Any
    generator: Any
    shape: tuple[int, ...]
    below: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The source of the bound of whole numbers: a size of another argument."""

    arguments: re.Pattern[str]
    axis: int


@dataclass(frozen=True, slots=True)
class Role:
    """The numbers of arguments with these names; ``bounds`` are tried in their order."""

    names: re.Pattern[str]
    draw: Draw
    bounds: tuple[Bound, ...] = ()


def normal(drawing: Drawing) -> Any:
    """Return numbers around zero."""
    return drawing.torch.randn(drawing.shape, generator=drawing.generator)


def whole(drawing: Drawing) -> Any:
    """Return whole numbers from zero to the bound."""
    return drawing.torch.randint(
        0, max(1, drawing.below), drawing.shape, generator=drawing.generator
    )


def nonzero(drawing: Drawing) -> Any:
    """Return whole numbers from one to the bound."""
    return drawing.torch.randint(
        1, max(2, drawing.below), drawing.shape, generator=drawing.generator
    )


def distinct(drawing: Drawing) -> Any:
    """Return whole numbers below the bound; none repeats before all are used."""
    torch, size, count = drawing.torch, max(1, drawing.below), prod(drawing.shape)
    places = torch.randperm(size, generator=drawing.generator)
    return places.repeat(-(-max(count, 1) // size))[:count].reshape(drawing.shape)


def positive(drawing: Drawing) -> Any:
    """Return numbers well above zero, for variances."""
    return drawing.torch.rand(drawing.shape, generator=drawing.generator) + 0.5


def share(drawing: Drawing) -> Any:
    """Return numbers between zero and one."""
    return drawing.torch.rand(drawing.shape, generator=drawing.generator)


def causal_mask(drawing: Drawing) -> Any:
    """Return a mask with zeros at and before each position."""
    torch = drawing.torch
    return torch.full(drawing.shape, MASKED).triu(1) if len(drawing.shape) > 1 else normal(drawing)


def _angles(drawing: Drawing) -> Any:
    """Return the angles of a rope table: position by row, rate by pair of columns.

    If each user has its own row, [1, user, 1, size], the users are at different positions.
    """
    torch, shape = drawing.torch, drawing.shape
    if not shape:
        return torch.zeros(())
    width = shape[-1]
    by_user = len(shape) > 2 and shape[-2] == 1  # noqa: PLR2004 - users come before a row of numbers
    rows = shape[-3:-1] if by_user else shape[-2:-1]
    rates = 10000.0 ** (-(torch.arange(width) // 2).float() * 2 / max(width, 1))
    table = torch.arange(prod(rows)).float()[:, None] * rates[None, :]
    return table.reshape(*rows, width).expand(shape).clone()


def cosines(drawing: Drawing) -> Any:
    """Return the cosines of a rope table."""
    return _angles(drawing).cos()


def sines(drawing: Drawing) -> Any:
    """Return the sines of a rope table."""
    return _angles(drawing).sin()


def rotation(drawing: Drawing) -> Any:
    """Return the matrix that swaps the numbers of each pair and negates the second.

    If there are more rows than columns, the matrix is repeated downward.
    """
    torch, shape = drawing.torch, drawing.shape
    matrix = torch.zeros(shape)
    if len(shape) > 1:
        even = torch.arange(0, shape[-2] - 1, 2)
        even = even[even % shape[-1] + 1 < shape[-1]]
        columns = even % shape[-1]
        matrix[..., even, columns + 1] = 1.0
        matrix[..., even + 1, columns] = -1.0
    return matrix


_CACHE: Final = re.compile(r".*cache.*|k|v|keys?|values?|input_tensor_[kv]")
_TABLE: Final = re.compile(r"weights?|embedding.*|table")
_INPUT: Final = re.compile(r"input(_tensor)?(_a)?|self")

ROLES: Final = (
    Role(re.compile(r".*(page|block)_table.*"), distinct, (Bound(_CACHE, 0),)),
    Role(
        re.compile(r"(update_)?idxs?(_tensor)?|cur(rent)?_pos.*|.*positions?(_ids|_idxs)?|.*_pos"),
        whole,
        (Bound(_CACHE, -2),),
    ),
    Role(
        re.compile(r"ind(ex|ices|exes)(_tensor)?|.*_ids?|.*_indices"),
        whole,
        (Bound(_TABLE, -2), Bound(_INPUT, -1)),
    ),
    Role(re.compile(r".*mask.*"), causal_mask),
    Role(re.compile(r"cos(ine)?s?(_.*)?|.*_cos"), cosines),
    Role(re.compile(r"sin(e)?s?(_.*)?|.*_sin"), sines),
    Role(re.compile(r"trans(formation)?_mat(rix)?|rot_mats?"), rotation),
    Role(re.compile(r".*var(iance)?|.*_rstd|rstd"), positive),
    Role(re.compile(r".*prob(abilitie)?s?"), share),
)
"""The roles of arguments by the names of their parameters; the first that fits."""


def way_to_draw(name: str, arguments: Mapping[str, Value], *, integers: bool) -> tuple[Draw, int]:
    """Return the function that draws the numbers of an argument, and the bound of whole ones."""
    role = next((role for role in ROLES if role.names.fullmatch(name)), None)
    below = _below(role, name, arguments)
    if role is not None and (not integers or role.draw in (whole, distinct)):
        return role.draw, below
    return whole if integers else normal, below


def _below(role: Role | None, name: str, arguments: Mapping[str, Value]) -> int:
    """Return the bound of whole numbers for an argument."""
    if role is not None:
        for bound in role.bounds:
            size = _size(bound, name, arguments)
            if size is not None:
                return size
    others = [spec for other, spec in _tensors(arguments) if other != name]
    table = next((spec for other, spec in _tensors(arguments) if _TABLE.fullmatch(other)), None)
    if table is not None and len(table.shape) > 1:
        return table.shape[-2]
    return min([size for spec in others for size in spec.shape if size > 1] or [UNKNOWN_SIZE])


def _size(bound: Bound, name: str, arguments: Mapping[str, Value]) -> int | None:
    axis = arguments.get("dim")
    for other, spec in _tensors(arguments):
        if other == name or not bound.arguments.fullmatch(other):
            continue
        place = axis.value if bound.arguments is _INPUT and isinstance(axis, Int) else bound.axis
        if -len(spec.shape) <= place < len(spec.shape):
            return spec.shape[place]
    return None


def _tensors(arguments: Mapping[str, Value]) -> list[tuple[str, TensorSpec]]:
    found = []
    for name, value in arguments.items():
        items = value.items if isinstance(value, (List, Tuple)) else (value,)
        found += [(name, item) for item in items if isinstance(item, TensorSpec)]
    return found


Domain: TypeAlias = "Callable[[str, str, bool], tuple[Draw, int] | None]"
"""How the numbers of an argument are drawn: by its name, its path, and whether they are whole."""


Alter: TypeAlias = "Callable[[Any, Any], Any]"
"""How a row of numbers is changed: the row and the random generator."""


def _no_domain(_: str, __: str, ____: bool) -> None:  # noqa: FBT001 - the signature of a Domain
    return None


class TorchInputs:
    """The torch tensors of one call, each created once."""

    def __init__(  # noqa: PLR0913 - the sources of values
        self,
        torch: Any,
        arguments: Mapping[str, Value],
        seed: int,
        *,
        domain: Domain = _no_domain,
        dtypes: Mapping[Any, Any] | None = None,
        kept: KeptValues | None = None,
        known: Mapping[int, Any] | None = None,
        owners: Mapping[int, Any] | None = None,
        alter: Alter | None = None,
    ) -> None:
        """Recreate the tensors of ``arguments``, with ``kept`` values where there are some.

        ``known`` are tensors that exist already, and ``owners`` tensors that have the memory of
        others, both by identity.

        ``domain`` may say how the numbers of an argument are drawn, by its name and path.
        ``dtypes`` take the place of those of the recorded dtypes; the numbers stay the same.
        ``alter`` changes rows of numbers that may be any.
        """
        self._torch = torch
        self._alter = alter
        self._may_be_any = False
        self._arguments = arguments
        self._domain = domain
        self._wide = dtypes or {}
        self._kept = kept or KeptValues()
        self._generator = torch.Generator().manual_seed(seed)
        self._lengths = storage_lengths(arguments)
        self._storages: dict[tuple[int, str], Any] = {}
        self._offsets: dict[tuple[int, ...], Any] = {}
        self.made: dict[int, Any] = dict(known or {})
        self._owners = dict(owners or {})
        specs = [spec for value in arguments.values() for spec in tensors_in(value)]
        by_storage = {s.storage: self.made[s.identity] for s in specs if s.identity in self.made}
        self._owners |= {
            s.identity: by_storage[s.storage] for s in specs if s.storage in by_storage
        }
        self._path = ""

    def make(self, spec: TensorSpec, name: str, path: str = "") -> Any:
        """Return the tensor of a spec that belongs to the argument ``name``, at ``path`` in it."""
        if spec.identity not in self.made:
            self._path = path
            self.made[spec.identity] = self._make(spec, name)
        return self.made[spec.identity]

    def drawn(self, shape: tuple[int, ...], name: str, *, integers: bool) -> Any:
        """Return numbers for an argument, as float32 or int64."""
        draw, below = way_to_draw(name, self._arguments, integers=integers)
        domain = self._domain(name, self._path, integers)
        draw, below = domain or (draw, below)
        self._may_be_any = draw in (normal, nonzero, whole)
        return draw(Drawing(self._torch, self._generator, shape, below))

    def _make(self, spec: TensorSpec, name: str) -> Any:
        match spec.placement:
            case TorchPlacement():
                return self._torch_tensor(spec, spec.placement, name)
            case NumpyPlacement():
                return self._array(spec, name)
        raise ValueError("it is neither a torch tensor nor a numpy array")

    def _torch_tensor(self, spec: TensorSpec, placement: TorchPlacement, name: str) -> Any:
        if isinstance(placement, NestedPlacement):
            return self._nested(spec, placement, name)
        if isinstance(placement, QuantizedPlacement):
            if placement.axis is not None:
                return self._by_channel(spec, placement, name)
        elif placement.layout != "strided":
            return self._sparse(spec, placement, name)
        key = (spec.storage, spec.dtype)
        if key not in self._storages:
            shared = self._shared(spec)
            self._storages[key] = self._storage(spec, placement, name) if shared is None else shared
        base = self._storages[key]
        live = base.as_strided(spec.shape, placement.strides, placement.offset)
        if not live.requires_grad:
            # Autograd refuses some operations in place on its views; few recorded tensors are that.
            live = live.detach()
        if placement.conjugate:
            live = live.conj()
        if placement.negative:
            live = self._torch._neg_view(live)  # noqa: SLF001 - torch has no public function for this
        return live

    def _by_channel(self, spec: TensorSpec, placement: QuantizedPlacement, name: str) -> Any:
        """Return a quantized tensor whose channels have different scales."""
        torch, axis = self._torch, placement.axis or 0
        channels, device = spec.shape[axis], placement.device
        floats = placement.scheme.endswith("float_qparams")
        scales = torch.linspace(0.05, 0.1, channels, device=device)
        zeros = torch.zeros(channels, dtype=torch.float if floats else torch.long, device=device)
        drawn = self.drawn(spec.shape, name, integers=False).to(device)
        base = torch.empty_strided(spec.shape, placement.strides, device=device).copy_(drawn)
        return torch.quantize_per_channel(base, scales, zeros, axis, self._dtype(spec))

    def _nested(self, spec: TensorSpec, placement: NestedPlacement, name: str) -> Any:
        """Return a nested tensor; jagged ones with equal lengths share them, as torch demands."""
        torch = self._torch
        dtype = self._dtype(spec)
        exact = dtype.is_floating_point or dtype.is_complex
        rows = [self.drawn(shape, name, integers=not exact) for shape in placement.components]
        rows = [row.to(dtype).to(self._wide.get(dtype, dtype)).to(placement.device) for row in rows]
        if placement.layout == NESTED:
            made = torch.nested.nested_tensor(rows)
        else:
            lengths = [shape[placement.axis] for shape in placement.components]
            ends = (0, *accumulate(lengths))
            if ends not in self._offsets:
                self._offsets[ends] = torch.tensor(ends, device=placement.device)
            made = torch.nested.nested_tensor_from_jagged(
                torch.cat(rows, placement.axis),
                self._offsets[ends],
                jagged_dim=placement.axis + 1,
                min_seqlen=min(lengths, default=0),
                max_seqlen=max(lengths, default=0),
            )
        return made.requires_grad_().clone() if placement.requires_grad else made

    def _sparse(self, spec: TensorSpec, placement: TorchPlacement, name: str) -> Any:
        """Return a sparse tensor, of which about half of the elements are zero."""
        layout = getattr(self._torch, placement.layout, None)
        blocks = placement.layout in ("sparse_bsr", "sparse_bsc")
        if not blocks and placement.layout not in ("sparse_coo", "sparse_csr", "sparse_csc"):
            raise ValueError(f"a tensor with the layout {placement.layout} cannot be recreated")
        dtype = getattr(self._torch, spec.dtype.removeprefix("torch."))
        exact = dtype.is_floating_point or dtype.is_complex
        dense = self.drawn(spec.shape, name, integers=not exact).clamp(min=0).to(dtype)
        dense = dense.to(self._wide.get(dtype, dtype)).to(placement.device)
        if blocks:
            # The size of blocks is not recorded.
            return dense.to_sparse(layout=layout, blocksize=[gcd(n, 4) for n in spec.shape[-2:]])
        return dense.to_sparse(layout=layout)

    def _shared(self, spec: TensorSpec) -> Any:
        """Return the storage of another tensor as one row; None if it is missing or too small."""
        owner = self._owners.get(spec.identity)
        dtype = getattr(self._torch, spec.dtype.removeprefix("torch."), None)
        if owner is None or owner.dtype is not dtype or self._wide:
            return None
        storage, length = owner.untyped_storage(), self._lengths[spec.storage]
        if storage.nbytes() < length * owner.element_size():
            return None
        row = self._torch.empty(0, dtype=dtype, device=owner.device)
        return row.set_(storage, 0, (length,), (1,))

    def _storage(self, spec: TensorSpec, placement: TorchPlacement, name: str) -> Any:
        """Return the numbers of a storage as one row; its tensors are views of it."""
        dtype = self._dtype(spec)
        length = self._lengths[spec.storage]
        if isinstance(placement, QuantizedPlacement):
            drawn = self._row(spec, length, name, integers=False).to(placement.device)
            scale, zero_point = placement.scale, placement.zero_point
            return self._torch.quantize_per_tensor(drawn, scale, zero_point, dtype)
        exact = dtype.is_floating_point or dtype.is_complex
        wide = self._wide.get(dtype, dtype)
        if placement.device == "meta":
            row = self._torch.empty(length, dtype=wide, device="meta")
        else:
            parts = self._kept.parts(spec)
            row = parts[0] if parts else self._row(spec, length, name, integers=not exact)
            row = row.to(dtype)
            if self._alter is not None and self._may_be_any and not parts:
                row = self._alter(row, self._generator)
            row = row.to(wide).to(placement.device)
        if placement.requires_grad:
            # Not a leaf, since in-place operations refuse leaves.
            row = row.requires_grad_().clone()
        return row

    def _dtype(self, spec: TensorSpec) -> Any:
        dtype = getattr(self._torch, spec.dtype.removeprefix("torch."), None)
        if not isinstance(dtype, self._torch.dtype):
            raise TypeError(f"torch has no dtype called {spec.dtype!a}")
        return dtype

    def _row(self, spec: TensorSpec, length: int, name: str, *, integers: bool) -> Any:
        shape = spec.shape if prod(spec.shape) == length else (length,)
        return self.drawn(shape, name, integers=integers).reshape(length)

    def _array(self, spec: TensorSpec, name: str) -> Any:
        parts = self._kept.parts(spec)
        if parts:
            return parts[0].numpy()
        numpy: Any = import_module("numpy")
        dtype = numpy.dtype(spec.dtype.removeprefix("numpy."))
        drawn = self.drawn(spec.shape, name, integers=dtype.kind not in "fc")
        return drawn.numpy().astype(dtype)
