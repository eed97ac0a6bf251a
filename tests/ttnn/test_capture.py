"""Every form of an op call is seen once, with its tree, its line, its case and its outputs."""

import sys

import pytest

import optrove
from optrove.model.case import obstacles
from optrove.model.values import TensorSpec
from optrove.serializer.wire import encode
from parts import needs
from tracing import tracing

pytestmark = pytest.mark.ttnn


def here():
    """Return the number of the caller's line."""
    return sys._getframe(1).f_lineno


def test_a_function_is_seen_with_its_line_its_arguments_and_its_output(tmp_path, ttnn, make):
    a, b = make(), make()
    with tracing(tmp_path) as traced:
        result = ttnn.add(a, b, dtype=ttnn.bfloat8_b)
        line = here() - 1
    (call,) = traced.calls
    assert (call.op, call.kind, call.outcome) == ("ttnn.add", "case", "returned")
    assert (call.file, call.line) == (__file__, line)
    assert (call.call.parent, call.call.depth) == (None, 0)
    assert sorted(dict(call.case.arguments)) == ["dtype", "input_tensor_a", "input_tensor_b"]
    assert call["input_tensor_a"].shape == (32, 32)
    (output,) = call.call.outputs
    assert isinstance(output, TensorSpec)
    assert (output.shape, output.dtype) == (tuple(result.shape), "ttnn.bfloat8_b")
    assert output.identity == 2
    assert not obstacles(call.case)


OPERATORS = {
    "ttnn.add": lambda a, b: a + b,
    "ttnn.multiply": lambda a, b: 2 * a,
    "ttnn.matmul": lambda a, b: a @ b,
    "ttnn.eq": lambda a, b: a == b,
    "ttnn.ne": lambda a, b: a != b,
    "ttnn.subtract": lambda a, b: a - b,
    "ttnn.lt": lambda a, b: a < b,
    "ttnn.Tensor.reshape": lambda a, b: a.reshape([16, 64]),
    "ttnn.Tensor.cpu": lambda a, b: a.cpu(),
    "ttnn.Tensor.to": lambda a, b: a.cpu().to(a.layout),
}


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_and_methods_are_seen_once_at_their_line(tmp_path, make, op):
    a, b = make(), make()
    with tracing(tmp_path) as traced:
        for _ in range(3):
            OPERATORS[op](a, b)
    calls = traced.of(op)
    assert len(calls) == 3
    assert len(traced.calls) == (6 if op == "ttnn.Tensor.to" else 3)
    assert {call.file for call in traced.calls} == {__file__}
    assert {call.line for call in calls} == {OPERATORS[op].__code__.co_firstlineno}
    assert len({call.hash for call in calls}) == 1
    assert [call.call.parent for call in calls] == [None] * 3


def test_indexing_is_an_op_that_calls_others(tmp_path, make):
    a = make()
    with tracing(tmp_path) as traced:
        a[0:1, :]
        line = here() - 1
    outer, *inner = traced.calls
    assert outer.op == "ttnn.Tensor.__getitem__"
    assert "ttnn.slice" in [call.op for call in inner]
    assert [call.call.parent for call in inner] == [0] * len(inner)
    assert {(call.file, call.line) for call in traced.calls} == {(__file__, line)}


def test_a_composite_op_is_the_parent_of_what_it_calls(tmp_path, ttnn, device):
    needs("torch")
    import torch

    with tracing(tmp_path, backend="ttnn") as traced:
        a = ttnn.from_torch(torch.zeros(32, 32), layout=ttnn.TILE_LAYOUT, device=device)
        ttnn.to_torch(a)
    tops = [call for call in traced.calls if call.call.parent is None]
    assert [call.op for call in tops] == ["ttnn.from_torch", "ttnn.to_torch"]
    by_index = {call.call.op_index: call for call in traced.calls}
    for call in traced.calls:
        if call.call.parent is not None:
            assert call.call.depth == by_index[call.call.parent].call.depth + 1
            assert call.call.parent < call.call.op_index


@pytest.fixture
def own_op(ttnn):
    """An op that is registered from Python, and taken away again."""
    made = []

    def register(name, function):
        made.append(name)
        return ttnn.register_python_operation(name=f"ttnn.{name}")(function)

    yield register
    registered = ttnn.decorators.REGISTERED_OPERATIONS.operations
    for name in made:
        operation = getattr(ttnn, name)
        registered.discard(operation)
        delattr(ttnn, name)


def test_ops_registered_from_python_are_seen_however_early_or_late(tmp_path, ttnn, make, own_op):
    def twice(a):
        return ttnn.add(a, a)

    a = make()
    own_op("twice_before", twice)
    functions = [ttnn.twice_before.function]
    with tracing(tmp_path) as traced:
        own_op("twice_meanwhile", twice)
        ttnn.twice_before(a)
        ttnn.twice_meanwhile(a)
        ttnn.twice_meanwhile(a)
    assert [(call.op, call.call.parent) for call in traced.calls] == [
        ("ttnn.twice_before", None),
        ("ttnn.add", 0),
        ("ttnn.twice_meanwhile", None),
        ("ttnn.add", 2),
        ("ttnn.twice_meanwhile", None),
        ("ttnn.add", 4),
    ]
    assert ttnn.twice_before.function is functions[0]
    assert ttnn.twice_meanwhile.function is twice


def test_in_place_ops_give_what_they_were_given(tmp_path, ttnn, make):
    a, b, c = make(), make(), make()
    with tracing(tmp_path) as traced:
        for _ in range(3):
            ttnn.add_(a, b)
            ttnn.add(a, b, output_tensor=c)
    for call in traced.of("ttnn.add_"):
        assert call.call.outputs[0].identity == call["input_tensor_a"].identity
    for call in traced.of("ttnn.add"):
        (output,) = call.call.outputs
        assert output.storage == call["output_tensor"].storage
        assert output.storage not in (
            call["input_tensor_a"].storage,
            call["input_tensor_b"].storage,
        )
    assert len({call.hash for call in traced.calls}) == 2


def test_several_outputs_are_all_there(tmp_path, ttnn, make):
    a = make(1, 1, 32, 64)
    with tracing(tmp_path) as traced:
        for _ in range(2):
            ttnn.split(a, 32, 3)
            ttnn.topk(a, 32)
    for call in traced.of("ttnn.split"):
        (outputs,) = call.call.outputs
        assert [part.shape for part in outputs.items] == [(1, 1, 32, 32)] * 2
    for call in traced.of("ttnn.topk"):
        (outputs,) = call.call.outputs
        assert [part.dtype for part in outputs.items] == ["ttnn.bfloat16", "ttnn.uint16"]
    assert len({call.hash for call in traced.calls}) == 2


def test_a_view_and_its_tensor_in_one_call_share_a_buffer(tmp_path, ttnn, make):
    with tracing(tmp_path) as traced:
        for _ in range(3):
            a, b = make(), make()
            view = ttnn.reshape(a, (1, 32, 32))
            ttnn.add(a, ttnn.reshape(b, (1, 32, 32)))
            ttnn.add(a, view)
            ttnn.add(view, view)
    calls = traced.of("ttnn.add")
    assert len({call.hash for call in calls}) == 3
    numbers = [(call["input_tensor_b"].identity, call["input_tensor_b"].storage) for call in calls]
    assert numbers == [(1, 1), (1, 0), (0, 0)] * 3


def test_one_tensor_twice_in_a_list_is_another_case_than_two_tensors(tmp_path, ttnn, make):
    a, b = make(), make()
    with tracing(tmp_path) as traced:
        a, b = ttnn.relu(a), ttnn.relu(b)
        for pair in ([a, b], [a, b], [a, a], [b, a], [b, b]):
            ttnn.concat(pair, 0)
    hashes = [call.hash for call in traced.of("ttnn.concat")]
    assert hashes[0] == hashes[1] == hashes[3]
    assert hashes[2] == hashes[4] != hashes[0]


def test_an_op_that_fails_is_recorded_with_its_text_and_raises_the_same(tmp_path, ttnn, make):
    a, b = make(), make(64, 32)

    def messages():
        for _ in range(2):
            with pytest.raises(RuntimeError) as raised:
                ttnn.matmul(a, b)
            yield first_lines(str(raised.value))

    untraced = [*messages()]
    with tracing(tmp_path) as traced:
        assert [*messages()] == untraced
    for call in traced.calls:
        assert call.outcome == "raised"
        assert first_lines(call.call.error.removeprefix("RuntimeError: ")) == untraced[0]
    assert traced.summary.ops[0].raised == 2


def first_lines(text):
    """Return a TT_FATAL without its backtrace, whose addresses differ."""
    return text.partition("backtrace")[0]


def test_positional_and_named_arguments_are_one_case(tmp_path, ttnn, make):
    a, b = make(), make()
    with tracing(tmp_path) as traced:
        for _ in range(2):
            ttnn.add(a, b)
            ttnn.add(a, input_tensor_b=b)
            ttnn.add(input_tensor_b=b, input_tensor_a=a)
            a + b
    assert len(traced.calls) == 8
    assert len({call.hash for call in traced.calls}) == 1


def test_a_tensor_made_before_is_known_as_one_made_meanwhile(tmp_path, ttnn, make):
    before = make()
    with tracing(tmp_path) as traced:
        meanwhile = make()
        for tensor in (before, meanwhile, before, meanwhile):
            ttnn.relu(tensor)
    assert len({call.hash for call in traced.of("ttnn.relu")}) == 1


def test_a_deallocated_tensor_is_no_longer_on_a_device(tmp_path, ttnn, make):
    with tracing(tmp_path) as traced:
        for _ in range(3):
            a = make()
            ttnn.deallocate(a)
            ttnn.deallocate(a)
            b = make()
            b.deallocate()
    devices = [call["tensor"].placement.mesh for call in traced.of("ttnn.deallocate")]
    assert [each is not None for each in devices] == [True] * 6
    assert len({call.hash for call in traced.of("ttnn.deallocate")}) == 2
    assert [call.outcome for call in traced.calls] == ["returned"] * 15


def test_filtered_ops_are_counted_by_reason(tmp_path, ttnn, make):
    a = make()
    with tracing(tmp_path, exclude=["add", "ttnn.Tensor.*"]) as traced:
        for _ in range(3):
            ttnn.relu(a + a).cpu()
    assert [call.kind for call in traced.calls] == ["filtered", "case", "filtered"] * 3
    assert sum(count for _, count in traced.summary.accounting.filtered) == 6
    with tracing(tmp_path / "again", include=["relu"]) as traced:
        ttnn.relu(a + a)
    assert traced.ops == [None, "ttnn.relu"]


class Unknown:
    """Of a class that nobody knows."""


class Hostile:
    """Of a class that raises whatever is done with it."""

    def __getattribute__(self, name):
        raise RuntimeError(f"{name} was asked for")

    def _raise(self, *_):
        raise RuntimeError("hands off")

    __eq__ = __ne__ = __bool__ = __len__ = __iter__ = __repr__ = __str__ = _raise
    __hash__ = __getitem__ = __int__ = __index__ = __float__ = _raise


@pytest.mark.parametrize("kind", [Unknown, Hostile])
def test_an_argument_of_unknown_class_is_kept_counted_and_never_merged(
    tmp_path, ttnn, make, own_op, kind
):
    def ignore(a, thing):
        return a

    own_op("ignore", ignore)
    a, thing = make(), kind()
    with tracing(tmp_path) as traced:
        for _ in range(3):
            ttnn.ignore(a, thing)
            ttnn.ignore(a, thing=thing)
    calls = traced.calls
    assert [call.kind for call in calls] == ["opaque"] * 6
    assert len({call.hash for call in calls}) == 6
    assert all(obstacles(call.case) for call in calls)
    ((reason, count),) = traced.summary.accounting.untraceable
    assert kind.__name__ in reason
    assert count == 6
    assert encode(calls[0]["a"]) == encode(calls[1]["a"])


def test_numbers_that_are_read_are_not_recorded(tmp_path, ttnn, make):
    host = make().cpu()
    with tracing(tmp_path) as traced:
        host.to_list()
        make(1, 1).cpu().item()
    assert [call.call.outputs for call in traced.of("ttnn.Tensor.to_list")] == [()]
    assert [call.call.outputs for call in traced.of("ttnn.Tensor.item")] == [()]


def test_a_second_trace_is_refused_and_the_first_goes_on(tmp_path, ttnn, make):
    a = make()
    with tracing(tmp_path) as traced:
        with (
            pytest.raises(optrove.errors.AlreadyTracing, match="already being traced"),
            optrove.trace(tmp_path / "other.db"),
        ):
            pass
        ttnn.relu(a)
    assert traced.ops == ["ttnn.relu"]
    with tracing(tmp_path / "later") as later:
        ttnn.relu(a)
    assert later.ops == ["ttnn.relu"]
    assert later.calls[0].hash == traced.calls[0].hash


def everything(ttnn, kinds):
    """Return all that a trace may have replaced."""
    operations = [
        (operation, name, vars(operation).get(name))
        for operation in ttnn.query_registered_operations(include_experimental=True)
        for name in ("function", "_slow_operation")
    ]
    owners = {base for kind in kinds for base in kind.__mro__} | {
        *(ttnn, ttnn.Tensor, ttnn.decorators.FastOperation, ttnn.decorators.Operation)
    }
    members = [(owner, name, value) for owner in owners for name, value in vars(owner).items()]
    return [(id(owner), name, id(value)) for owner, name, value in operations + members]


def test_everything_is_as_it_was_afterwards(tmp_path, ttnn, make):
    from optrove.frameworks.installed import loaded_tables
    from optrove.frameworks.ttnn.probe.fingerprints import watchable

    kinds = watchable(loaded_tables())
    assert ttnn.MatmulMultiCoreReuseProgramConfig in kinds
    a = make()
    before = sorted(everything(ttnn, kinds))
    with tracing(tmp_path):
        ttnn.relu(a + a)
        ttnn.CONFIG.enable_fast_runtime_mode = False
        try:
            ttnn.relu(a + a)
        finally:
            ttnn.CONFIG.enable_fast_runtime_mode = True
        assert sorted(everything(ttnn, kinds)) != before
    assert sorted(everything(ttnn, kinds)) == before


def test_tracing_can_be_switched_on_and_off(tmp_path, ttnn, make, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a = make()
    assert not optrove.is_tracing_enabled()
    optrove.enable_tracing()
    try:
        assert optrove.is_tracing_enabled()
        ttnn.relu(a)
    finally:
        optrove.enable_tracing(False)
    assert not optrove.is_tracing_enabled()
    ttnn.relu(a)
    assert len([*tmp_path.rglob("*ttnn_relu*.json")]) == 1
