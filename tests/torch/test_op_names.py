"""No name that can be reached from torch leads to anything but an operation."""

from types import ModuleType

import pytest
import torch

from optrove.errors import NotReplayable
from optrove.frameworks.op_names import FILES, torch_operation
from optrove.frameworks.torch.probe import GETTERS, is_operation

pytestmark = pytest.mark.torch

OVERRIDABLE = torch.overrides.get_testing_overrides()
DEPTH = 3


def reachable(live, name, depth, above=()):
    """Yield every name below an object, also through modules of other packages."""
    for part in dir(live):
        full = f"{name}.{part}"
        yield full
        if part.startswith("__") or depth == 1:
            continue
        try:
            member = getattr(live, part)
        except Exception:  # noqa: BLE001, S112 - some attributes only raise an error
            continue
        if isinstance(member, (ModuleType, type)) and id(member) not in above:
            yield from reachable(member, full, depth - 1, (*above, id(member)))


def found(op):
    try:
        return torch_operation(torch, OVERRIDABLE, op)
    except NotReplayable:
        return None


@pytest.mark.filterwarnings("ignore")  # torch warns of what is deprecated when it is looked up
def test_only_operations_are_found_by_name():
    builtins = [getattr(torch, name, None) for name in dir(torch._C._VariableFunctions)]
    names = set(reachable(torch, "torch", DEPTH))
    accepted = {name: live for name in names if (live := found(name)) is not None}
    for name, live in accepted.items():
        last = name.rpartition(".")[2]
        assert is_operation(last), name
        assert live in OVERRIDABLE or live in builtins or last in GETTERS or "autograd" in name
        assert not FILES & set(name.split(".")), name
        assert "os" not in name.split("."), name
    assert len(accepted) > 1000


def test_every_operation_of_the_dispatcher_is_found_unless_it_uses_files():
    refused = set()
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        last, _, overload = rest.partition(".")
        op = f"torch.ops.{space}.{last}.{overload or 'default'}"
        try:
            live = getattr(getattr(getattr(torch.ops, space), last), overload or "default")
        except AttributeError:  # the dispatcher knows it, torch.ops does not
            continue
        if found(op) is not live:
            refused.add(op)
    assert {op for op in refused if ".profiler." not in op} == {
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.from_file.out",
        "torch.ops.debugprims.load_tensor.default",
    }


@pytest.mark.parametrize(
    "op",
    [
        "torch.os.system",
        "torch.sys.exit",
        "torch.hub.load",
        "torch.load",
        "torch.save",
        "torch.from_file",
        "torch.utils.cpp_extension.load",
        "torch.serialization.load",
        "torch.classes",
        "torch.classes.load_library",
        "torch.ops.load_library",
        "torch.ops.load_library.__call__.__call__",
        "torch.ops.os.system.default",
        "torch.ops.aten.add.default.__call__",
        "torch.ops.aten.add.__class__",
        "torch.ops.aten.__init__.__globals__",
        "torch.ops.aten.add.overloads",
        "torch.ops.higher_order.cond",
        "torch.__setattr__",
        "torch.__getattribute__",
        "torch.__class__",
        "torch.Tensor.__class__",
        "torch.Tensor.__init__",
        "torch.Tensor.__setattr__",
        "torch.nn.functional.torch.add",
        "torch.compile",
        "torch.add\n",
        "torch.add(); print()",
        "torch.\uff41dd",
        "torch." + "a" * 10_000,
        "torchvision.os.system",
        "torch",
    ],
)
def test_hostile_names_are_refused_in_one_line(op):
    with pytest.raises(NotReplayable) as error:
        torch_operation(torch, OVERRIDABLE, op)
    message = str(error.value)
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 500
