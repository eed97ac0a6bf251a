"""No name that can be reached from ttnn leads to anything but an operation."""

from types import FunctionType, ModuleType

import pytest

from optrove.errors import NotReplayable
from optrove.frameworks.op_names import FUNCTIONS, operations_of, refusal, ttnn_operation
from optrove.frameworks.ttnn.execute.invoking import Targets
from optrove.frameworks.ttnn.probe.probe import METHODS

pytestmark = pytest.mark.ttnn

DEPTH = 3


def reachable(live, name, depth, above=()):
    """Yield every name and object below an object, also through modules of other packages."""
    for part in dir(live):
        try:
            member = getattr(live, part)
        except Exception:  # noqa: BLE001, S112 - some attributes only raise an error
            continue
        full = f"{name}.{part}"
        yield full, member
        if depth > 1 and isinstance(member, (ModuleType, type)) and id(member) not in above:
            yield from reachable(member, full, depth - 1, (*above, id(member)))


@pytest.fixture(scope="module")
def names(ttnn):
    return dict(reachable(ttnn, "ttnn", DEPTH))


def is_operation(ttnn, op, live):
    kinds = (ttnn.decorators.FastOperation, ttnn.decorators.Operation)
    if isinstance(live, FunctionType):  # a mock board wraps some operations
        live = vars(live).get("__wrapped__")
    methods = {f"ttnn.Tensor.{name}" for name in (*METHODS, "__getitem__")}
    return isinstance(live, kinds) or op in methods | FUNCTIONS


def test_only_operations_are_found_by_name(ttnn, names):
    operations = operations_of(ttnn)
    found = [op for op in names if ttnn_operation(ttnn, operations, op) is not None]
    assert [op for op in found if not is_operation(ttnn, op, names[op])] == []
    assert len(found) > 800


def test_a_name_alone_is_enough_to_refuse_all_else_that_ttnn_has(ttnn, names):
    accepted = [op for op in names if refusal(op) is None]
    assert [op for op in accepted if not is_operation(ttnn, op, names[op])] == []


def test_every_operation_has_a_name_that_is_accepted(ttnn):
    assert [op for op in operations_of(ttnn) if refusal(op) is not None] == []


def test_listed_functions_are_ttnn_s_own(names):
    for op in FUNCTIONS & names.keys():
        assert isinstance(names[op], FunctionType)
        assert names[op].__module__.startswith("ttnn.operations.")


@pytest.mark.parametrize(
    "op",
    [
        "ttnn.os.system",
        "ttnn.operations.os",
        "ttnn.operations.core.os.system",
        "ttnn.__class__",
        "ttnn.Tensor.__init__",
        "ttnn.Tensor.__getitem__.__class__",
        "ttnn.add.__globals__",
        "ttnn.add.function",
        "ttnn.add.golden_function",
        "ttnn.operations.matmul._golden_function",
        "ttnn.ttnn.add",
        "ttnn._ttnn.tensor.Tensor",
        "ttnn.register_python_operation",
        "ttnn.open_device",
        "ttnn.SetRootDir",
        "ttnn.load_config_from_json_file",
        "ttnn.\uff41dd",
        "ttnn.add\n",
        "ttnn.add ",
        "ttnn.add()",
        "ttnn." + "a" * 10_000,
        "ttnn..add",
        "ttnn",
        "",
    ],
)
def test_hostile_names_are_refused_in_one_line(ttnn, op):
    with pytest.raises(
        NotReplayable, match=r"names no operation of ttnn|no operation called"
    ) as it:
        Targets(ttnn).find(op)
    message = str(it.value)
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 500
