"""torch's tensors and constants come apart and back."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from optrove.frameworks.torch import convert as backend
from optrove.model.case import Case
from optrove.model.values import Handle, Opaque, Symbol, TensorSpec, TorchPlacement
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer import plain
from optrove.serializer.build import build
from optrove.serializer.describe import Describer, describe
from optrove.serializer.described import describe_case
from optrove.serializer.hashes import placement_hash
from optrove.serializer.tables import Tables

pytestmark = pytest.mark.torch


CONSTANTS = [
    member
    for kind in (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
    for member in vars(torch).values()
    if isinstance(member, kind)
]


@pytest.fixture(scope="module")
def tables():
    return Tables([backend.table(), plain.table()])


def round_trip(live):
    return from_jsonable(json.loads(json.dumps(to_jsonable(live))))


def test_every_constant_of_the_installed_torch_round_trips():
    assert len(CONSTANTS) > 40
    for constant in CONSTANTS:
        assert round_trip(constant) is constant


def test_an_alias_has_the_name_of_what_it_is(tables):
    assert describe(torch.half, tables) == Symbol("torch.dtype", "float16")
    assert describe(torch.channels_last, tables) == Symbol("torch.memory_format", "channels_last")


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "cuda", "meta"])
def test_devices_round_trip(device):
    made = round_trip(torch.device(device))
    assert isinstance(made, torch.device)
    assert made == torch.device(device)


@given(st.lists(st.integers(0, 2**40), max_size=6))
def test_a_size_is_a_size_and_no_tuple(sizes):
    size = torch.Size(sizes)
    assert type(round_trip(size)) is torch.Size
    assert round_trip(size) == size
    assert to_jsonable(size) != to_jsonable(tuple(sizes))
    assert type(round_trip(tuple(sizes))) is tuple


def test_a_tensor_tells_size_strides_dtype_device_and_gradient(tables):
    live = torch.zeros(2, 3, 4, dtype=torch.bfloat16).permute(2, 0, 1)
    assert describe(live, tables) == TensorSpec(
        (4, 2, 3), "torch.bfloat16", TorchPlacement((1, 12, 4), "strided", "cpu", False), 0, 0
    )


def test_a_scalar_tensor_and_an_empty_one_are_distinguished(tables):
    assert describe(torch.zeros(()), tables).shape == ()
    assert describe(torch.zeros(0), tables).shape == (0,)


def test_a_sparse_tensor_has_no_strides(tables):
    placement = describe(torch.eye(3).to_sparse(), tables).placement
    assert (placement.layout, placement.strides) == ("sparse_coo", ())


def test_a_tensor_without_storage_is_described(tables):
    assert describe(torch.empty(5, device="meta"), tables).placement.device == "meta"


def test_parameters_and_other_subclasses_are_tensors(tables):
    class Named(torch.Tensor):
        pass

    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    assert describe(parameter, tables).placement.requires_grad is True
    assert describe(torch.zeros(2).as_subclass(Named), tables).shape == (2,)


def test_a_tensor_keeps_its_number_and_another_gets_its_own(tables):
    session = Describer(tables)
    one, other = torch.zeros(2), torch.zeros(2)
    assert [session.describe(live).identity for live in (one, other, one)] == [0, 1, 0]


def test_a_tensor_stays_a_reference_on_the_way_back(tables):
    assert round_trip(torch.zeros(3)) == describe(torch.zeros(3), tables)


def test_describing_a_tensor_runs_no_operation(tables):
    class Refuse(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            pytest.fail(f"{func} ran")

    live = torch.zeros(2, 3)
    with Refuse():
        assert isinstance(describe([live, live.dtype, live.shape], tables).items[0], TensorSpec)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_that_does_not_tell_its_size_is_opaque(tables):
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    assert isinstance(describe(nested, tables), Opaque)


def test_a_generator_is_recreated_with_its_seed_and_needs_no_device(tables):
    generator = torch.Generator().manual_seed(42)
    recorded = describe(generator, tables)
    assert isinstance(recorded, Handle)
    made = build(recorded, tables)
    assert made is not generator
    assert torch.equal(torch.rand(4, generator=made), torch.rand(4, generator=generator))
    one, same, other = round_trip([generator, generator, torch.Generator()])
    assert isinstance(one, torch.Generator)
    assert one is same
    assert one is not other


class Loud(torch.Tensor):
    """A tensor that objects to every function of torch it passes through."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise OSError(f"{func} ran")


def test_describing_runs_no_code_of_a_subclass(tables):
    with torch._C.DisableTorchFunction():
        live = torch.zeros(2, 3).as_subclass(Loud)
    assert describe(live, tables).shape == (2, 3)


def test_describing_is_not_seen_by_a_function_mode(tables):
    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            pytest.fail(f"{func} ran")

    live = torch.zeros(2, 3)
    with Watch():
        found = describe([live, live], tables)
    assert found.items[0].shape == (2, 3)


def test_a_tensor_of_symbolic_size_is_opaque():
    from torch._subclasses import fake_tensor as fake
    from torch.fx.experimental import symbolic_shapes as symbolic

    with_symbols = fake.FakeTensorMode(shape_env=symbolic.ShapeEnv())
    recorded = to_jsonable(with_symbols.from_tensor(torch.zeros(5, 7)))
    assert "$opaque" in recorded
    assert json.loads(json.dumps(recorded)) == recorded
    sized = to_jsonable(fake.FakeTensorMode().from_tensor(torch.zeros(5, 7)))
    assert "$opaque" not in sized


def test_a_view_shares_the_storage_of_what_it_views(tables):
    live = torch.zeros(4, 3)
    views = [live, live.view(12), live.detach(), live[1:], live.clone()]
    assert [spec.storage for spec in describe(views, tables).items] == [0, 0, 0, 0, 1]
    assert [spec.identity for spec in describe(views, tables).items] == [0, 1, 2, 3, 4]


def test_where_a_view_begins_tells_it_from_others(tables):
    live = torch.zeros(4, 3)
    first, second = describe([live[0], live[1]], tables).items
    assert (first.placement.offset, second.placement.offset) == (0, 3)


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_tensors_without_one_storage_count_by_themselves(tables, layout):
    one, other = (getattr(torch.eye(3), layout)() for _ in range(2))
    assert [spec.storage for spec in describe([one, other, one], tables).items] == [0, 1, 0]


def test_pending_conjugation_and_negation_are_recorded(tables):
    live = torch.zeros(2, dtype=torch.complex64)
    conjugate = describe(live.conj(), tables).placement
    negative = describe(live.conj().imag, tables).placement
    assert (conjugate.conjugate, conjugate.negative) == (True, False)
    assert (negative.conjugate, negative.negative) == (False, True)
    assert describe(live, tables) != describe(live.conj(), tables)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_quantized_tensor_is_opaque(tables):
    """Its scale and zero point have no place in a recorded tensor."""
    live = torch.quantize_per_tensor(torch.zeros(3), 0.5, 0, torch.qint8)
    assert isinstance(describe(live, tables), Opaque)


def test_named_results_are_structs_of_their_parts(tables):
    result = torch.max(torch.zeros(4, 3), dim=0)
    recorded = describe(result, tables)
    assert recorded.type == "torch.return_types.max"
    assert [(name, part.dtype) for name, part in recorded.fields] == [
        ("indices", "torch.int64"),
        ("values", "torch.float32"),
    ]
    made = round_trip(result)
    assert type(made) is torch.return_types.max
    assert made.values == dict(recorded.fields)["values"]


def test_every_named_result_of_the_installed_torch_round_trips():
    kinds = {k for k in vars(torch.return_types).values() if getattr(k, "n_fields", 0)}
    assert len(kinds) > 40
    for kind in kinds:
        live = kind(range(kind.n_fields))
        assert type(round_trip(live)) is kind
        assert round_trip(live) == live
        assert to_jsonable(live)["$struct"] == f"torch.return_types.{kind.__name__}"


def test_the_parts_of_a_result_belong_to_the_same_call(tables):
    live = torch.zeros(4, 3)
    first, result, again = describe([live, torch.max(live, dim=0), live], tables).items
    assert first.identity == again.identity == 0
    assert sorted(part.identity for _, part in result.fields) == [1, 2]


def test_hashes_do_not_depend_on_the_order_of_a_dictionary_of_tensors(tables):
    def hashes(argument):
        case = Case("op", (("x", describe(argument, tables)),))
        return placement_hash(case), describe_case(case).semantic_id

    x, z = torch.zeros(2), torch.zeros(2)
    assert hashes([{"a": x, "b": z}, x]) == hashes([{"b": z, "a": x}, x])
    assert hashes([{"a": x, "b": z}, x]) != hashes([{"a": z, "b": x}, x])
    assert hashes({1: x, (2,): z}) == hashes({(2,): z, 1: x})
    first, second = torch.Generator(), torch.Generator()
    assert hashes({"a": first, "b": second}) == hashes({"b": second, "a": first})
