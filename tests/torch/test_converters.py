"""torch's tensors and constants come apart and back; test_properties.py has the laws."""

import json

import pytest
import torch

from optrove.errors import BadData
from optrove.frameworks.torch import convert as backend
from optrove.model.case import Case
from optrove.model.values import Handle, List, Opaque, Symbol, TensorSpec
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer import plain
from optrove.serializer.build import build
from optrove.serializer.describe import describe
from optrove.serializer.described import case_of, describe_case
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


def test_parameters_and_other_subclasses_are_tensors(tables):
    class Named(torch.Tensor):
        pass

    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    assert describe(parameter, tables).placement.requires_grad is True
    assert describe(torch.zeros(2).as_subclass(Named), tables).shape == (2,)


class Refuse(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        pytest.fail(f"{func} ran")


def test_no_mode_notices_that_a_tensor_is_described(tables):
    live = torch.zeros(2, 3)
    with Refuse():
        assert isinstance(describe([live, live.dtype, live.shape], tables).items[0], TensorSpec)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_has_the_shapes_of_its_parts(tables, layout):
    nested = torch.nested.nested_tensor([torch.zeros(2, 4), torch.zeros(3, 4)], layout=layout)
    with Refuse():
        recorded = describe(nested, tables)
    assert recorded.shape == (2, 3, 4)
    assert recorded.placement.components == ((2, 4), (3, 4))
    case = Case("torch.sin", (("self", recorded),))
    assert case_of(describe_case(case).content) == case


def test_a_tensor_whose_size_is_a_symbol_is_opaque(tables):
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = torch._subclasses.FakeTensorMode(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.zeros(4, 3), static_shapes=False)
    assert isinstance(describe(fake, tables), Opaque)


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


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_tensors_without_one_storage_count_by_themselves(tables, layout):
    one, other = (getattr(torch.eye(3), layout)() for _ in range(2))
    assert [spec.storage for spec in describe([one, other, one], tables).items] == [0, 1, 0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_quantized_tensor_has_its_scale_or_its_axis(tables):
    live = torch.quantize_per_tensor(torch.zeros(3), 0.5, 2, torch.qint8)
    zeros = torch.zeros(2, dtype=torch.long)
    channels = torch.quantize_per_channel(torch.zeros(3, 2), torch.ones(2), zeros, 1, torch.quint8)
    with Refuse():
        one, other = describe([live, channels], tables).items
    assert (one.placement.scale, one.placement.zero_point, one.placement.axis) == (0.5, 2, None)
    assert (other.placement.scheme, other.placement.axis) == ("per_channel_affine", 1)
    case = Case("torch.dequantize", (("tensors", List((one, other))),))
    assert case_of(describe_case(case).content) == case


def test_a_storage_is_recreated_with_its_size(tables):
    storage = torch.zeros(5).untyped_storage()
    made = build(describe(storage, tables), tables)
    assert isinstance(made, torch.UntypedStorage)
    assert made.nbytes() == 20


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_script_object_is_known_by_its_class_and_not_recreated(tables):
    weight = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, None)
    recorded = describe([packed, packed], tables)
    assert isinstance(recorded.items[0], Handle)
    with pytest.raises(BadData, match=r"quantized.LinearPackedParamsBase cannot be recreated"):
        build(recorded, tables)


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
