"""Laws of torch's converters, for generated objects."""

import json
from dataclasses import dataclass, replace
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from optrove.frameworks.torch import convert as backend
from optrove.model.values import Handle, Int, Null, Struct, TensorSpec, Text, TorchPlacement
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer import plain
from optrove.serializer.describe import describe
from optrove.serializer.hashes import canonical_bytes
from optrove.serializer.tables import Tables
from optrove.serializer.wire import decode, encode

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:B?Complex(Half|32) support is experimental"),
    pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta"),
]

LONG = 2**63
DEVICE_TYPES = [
    "cpu",
    "cuda",
    "xpu",
    "mps",
    "hpu",
    "xla",
    "meta",
    "mtia",
    "vulkan",
    "privateuseone",
]
TENSOR, GENERATOR = "torch.Tensor", "torch.Generator"


def constants(kind):
    """Return all constants of a class, those with two names twice."""
    return [member for member in vars(torch).values() if isinstance(member, kind)]


def results(kind):
    parts = st.none() | st.booleans() | st.integers(0, 3) | strategies.texts
    return st.lists(parts, min_size=kind.n_fields, max_size=kind.n_fields).map(kind)


RESULTS = {kind for kind in vars(torch.return_types).values() if hasattr(kind, "n_fields")}
KINDS = {
    "torch.dtype": st.sampled_from(constants(torch.dtype)),
    "torch.layout": st.sampled_from(constants(torch.layout)),
    "torch.memory_format": st.sampled_from(constants(torch.memory_format)),
    "torch.qscheme": st.sampled_from(constants(torch.qscheme)),
    "torch.device": st.builds(
        torch.device,
        st.sampled_from(DEVICE_TYPES),
        st.none() | st.integers(0, 127),
    ),
    "torch.Size": st.lists(st.integers(-LONG, LONG - 1) | st.integers(0, 1), max_size=6).map(
        torch.Size
    ),
    **{f"torch.return_types.{kind.__name__}": results(kind) for kind in RESULTS},
    "torch.nn.attention.SDPBackend": st.sampled_from(
        [*torch.nn.attention.SDPBackend.__members__.values()]
    ),
    "torch.distributed.ReduceOp": st.sampled_from(
        [*torch.distributed.ReduceOp.RedOpType.__members__.values()]
    ),
}


@pytest.fixture(scope="module")
def tables():
    return Tables([backend.table(), plain.table()])


def round_trip(live):
    return from_jsonable(json.loads(json.dumps(to_jsonable(live))))


def exact(live):
    """Return a key for a stricter ``==``: the class, and the classes of the parts."""
    content = [(type(part), part) for part in live] if isinstance(live, tuple) else live
    return type(live), content


def test_every_converter_of_torch_has_generated_objects():
    others = {TENSOR, GENERATOR, "torch.UntypedStorage", "torch.ScriptObject"}
    assert {*KINDS, *others} == set(backend.table().by_name)


@pytest.mark.parametrize("name", sorted(KINDS))
@given(data=st.data())
@settings(max_examples=8)
def test_objects_come_back_equal_and_are_equal_exactly_when_their_bytes_are(name, data, tables):
    left = data.draw(KINDS[name])
    again = round_trip(left)
    right = data.draw(KINDS[name] | st.just(again))
    assert again == left
    assert exact(again) == exact(left)
    values = [describe(live, tables) for live in (left, right)]
    written = [canonical_bytes(value) for value in values]
    assert values[0].type == name
    assert (exact(left) == exact(right)) == (written[0] == written[1])
    assert (values[0] == values[1]) == (written[0] == written[1])


@pytest.mark.parametrize("kind", ["dtype", "layout", "memory_format", "qscheme"])
def test_no_two_constants_have_the_same_canonical_bytes(kind, tables):
    found = set(constants(getattr(torch, kind)))
    assert len({canonical_bytes(describe(live, tables)) for live in found}) == len(found) > 3


@given(st.lists(st.integers(0, 9), min_size=2, max_size=2))
@settings(max_examples=20)
def test_the_same_content_in_another_class_has_other_canonical_bytes(tables, parts):
    kinds = [list, tuple, torch.Size, *(kind for kind in RESULTS if kind.n_fields == len(parts))]
    written = [canonical_bytes(describe(kind(parts), tables)) for kind in kinds]
    assert all(left != right for left, right in combinations(written, 2))


# Quantized tensors have no recorded form, for their scales.
QUANTIZED = {torch.qint8, torch.qint32, torch.quint8, torch.quint4x2, torch.quint2x4}
DTYPES = {str(dtype): dtype for dtype in constants(torch.dtype) if dtype not in QUANTIZED}
COMPLEX = sorted(name for name, dtype in DTYPES.items() if dtype.is_complex)


@dataclass(frozen=True)
class Strided:
    """A tensor anywhere in a storage, by the arguments that create it."""

    size: tuple
    strides: tuple
    offset: int
    dtype: str
    device: str
    requires_grad: bool
    conjugate: bool
    negative: bool

    def storage(self):
        reach = sum(
            (size - 1) * stride for size, stride in zip(self.size, self.strides, strict=True)
        )
        count = self.offset + 1 + (reach if 0 not in self.size else 0)
        return torch.empty(count, dtype=DTYPES[self.dtype], device=self.device)

    def of(self, storage):
        live = torch.as_strided(storage, self.size, self.strides, self.offset)
        live = live.conj() if self.conjugate else live
        live = torch._neg_view(live) if self.negative else live
        return live.requires_grad_(self.requires_grad)

    def expected(self):
        placement = TorchPlacement(
            strides=self.strides,
            layout="strided",
            device=self.device,
            requires_grad=self.requires_grad,
            offset=self.offset,
            conjugate=self.conjugate,
            negative=self.negative,
        )
        return TensorSpec(self.size, self.dtype, placement)


@st.composite
def strided(draw):
    # Half of them complex: only these can wait to be conjugated or negated.
    dtype = draw(st.sampled_from(sorted(DTYPES)) | st.sampled_from(COMPLEX))
    is_complex, is_floating = DTYPES[dtype].is_complex, DTYPES[dtype].is_floating_point
    size = draw(st.lists(st.integers(0, 4), max_size=4))
    return Strided(
        size=tuple(size),
        strides=tuple(draw(st.integers(0, 5)) for _ in size),
        offset=draw(st.integers(0, 3)),
        dtype=dtype,
        device=draw(st.sampled_from(["cpu", "meta"])),
        requires_grad=(is_floating or is_complex) and draw(st.booleans()),
        conjugate=is_complex and draw(st.booleans()),
        negative=is_complex and draw(st.booleans()),
    )


@given(strided())
def test_a_tensor_is_described_by_all_that_it_was_made_with(made):
    storage, other = made.storage(), made.storage()
    live, view = made.of(storage), made.of(storage)
    expected = made.expected()
    found = round_trip([live, view, live, storage, made.of(other)])
    assert found[0] == found[2] == round_trip(live) == expected
    assert found[1] == replace(expected, identity=1)
    assert (found[3].identity, found[3].storage) == (2, 0)
    assert found[4] == replace(expected, identity=3, storage=1)


@given(strided(), strided(), st.sets(st.sampled_from([*Strided.__dataclass_fields__])))
def test_tensors_lie_alike_exactly_when_their_canonical_bytes_are_equal(left, right, differing):
    right = mixed(left, right, differing)
    specs = [decode(to_jsonable(made.of(made.storage()))) for made in (left, right)]
    written = [canonical_bytes(spec) for spec in specs]
    assert (left == right) == (written[0] == written[1])
    assert (specs[0] == specs[1]) == (written[0] == written[1])


def mixed(left, right, differing):
    """Return ``left`` with some of what ``right`` is made with, where that makes a tensor."""
    one = replace(left, **{name: getattr(right, name) for name in differing})
    dtype = DTYPES[one.dtype]
    return replace(
        one,
        strides=(*one.strides, 1, 1, 1, 1)[: len(one.size)],
        requires_grad=one.requires_grad and (dtype.is_floating_point or dtype.is_complex),
        conjugate=one.conjugate and dtype.is_complex,
        negative=one.negative and dtype.is_complex,
    )


@given(
    st.sampled_from(["sparse_coo", "sparse_csr", "sparse_csc", "_mkldnn"]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
@settings(max_examples=30)
def test_a_tensor_of_another_layout_has_a_size_and_no_strides(layout, size):
    live = torch.empty(size, layout=getattr(torch, layout))
    placement = TorchPlacement((), layout, "cpu", requires_grad=False)
    assert round_trip(live) == TensorSpec(size, "torch.float32", placement)


@given(st.sampled_from(sorted(RESULTS, key=lambda kind: kind.__name__)), st.data())
@settings(max_examples=50)
def test_the_tensors_of_a_result_are_described_in_their_fields(tables, kind, data):
    count = kind.n_fields
    made = data.draw(st.lists(strided(), min_size=count, max_size=count))
    live = kind([one.of(one.storage()) for one in made])
    again = round_trip(live)
    assert type(again) is kind
    assert [replace(spec, identity=0, storage=0) for spec in again] == [
        one.expected() for one in made
    ]
    fields = dict(describe(live, tables).fields)
    assert fields == {name: getattr(again, name) for name in kind.__match_args__}


# Torch takes negative seeds for those that have the same 64 bits.
seeds = st.integers(-LONG, 2 * LONG - 1)


def generator(seed, drawn=0):
    made = torch.Generator().manual_seed(seed)
    torch.rand(drawn, generator=made)
    return made


@given(seeds, st.integers(0, 3))
def test_a_generator_is_a_handle_with_its_seed_and_starts_again(tables, seed, drawn):
    live = generator(seed, drawn)
    value = describe(live, tables)
    device = Struct("torch.device", (("type", Text("cpu")), ("index", Null())))
    recipe = Struct(GENERATOR, (("device", device), ("seed", Int(seed % (2 * LONG)))))
    assert value == decode(encode(value)) == Handle(GENERATOR, recipe)
    again = round_trip(live)
    assert type(again) is torch.Generator
    assert (again.initial_seed(), again.device) == (live.initial_seed(), live.device)
    expected = torch.rand(4, generator=generator(seed))
    assert torch.equal(torch.rand(4, generator=again), expected)


@given(seeds, seeds | st.integers(0, 1), st.booleans())
def test_generators_have_equal_seeds_exactly_when_their_canonical_bytes_are_equal(
    tables, left, right, same
):
    right = left if same else right
    written = [canonical_bytes(describe(generator(seed), tables)) for seed in (left, right)]
    assert ((left - right) % (2 * LONG) == 0) == (written[0] == written[1])
