"""torch's tensors and constants come apart and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optrove.backends import plain
from optrove.backends import torch as backend
from optrove.backends.base import Tables
from optrove.backends.build import build
from optrove.backends.describe import Describer, describe
from optrove.flows.serialize import from_jsonable, to_jsonable
from optrove.model.values import Handle, Opaque, Symbol, TensorSpec, TorchPlacement

torch = pytest.importorskip("torch")
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
        (4, 2, 3), "torch.bfloat16", TorchPlacement((1, 12, 4), "strided", "cpu", False), 0
    )


def test_a_scalar_tensor_and_an_empty_one_are_told_apart(tables):
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


def test_a_generator_is_made_anew_with_its_seed(tables):
    generator = torch.Generator().manual_seed(42)
    recorded = describe(generator, tables)
    assert isinstance(recorded, Handle)
    made = build(recorded, tables, mesh_device=object())
    assert made is not generator
    assert torch.equal(torch.rand(4, generator=made), torch.rand(4, generator=generator))
