"""The quick ways of recording and the thorough one agree, in every mode of ttnn."""

import contextlib
import gc
import threading

import pytest

import optrove
from optrove.capture.tracing import active_tracing
from optrove.frameworks import fingerprints as plain_fingerprints
from optrove.frameworks.ttnn.probe import fingerprints
from optrove.model.records import Scope
from tracing import tracing
from ttnn_calls import program, table_of_calls

pytestmark = pytest.mark.ttnn


def fingerprints_in_use(ttnn):
    """Return the creations that the current trace has observed."""
    return ttnn.__optrove_attachment__._probe._fingerprints


def forget_everything(ttnn):
    """Make the next call of everything a first one."""
    known = fingerprints_in_use(ttnn)
    known.tensor_parts.clear()
    known._parts.clear()
    known.release()
    active_tracing().recorder.fast_path_state.forget()


def grouped(traced):
    """Return the facts of calls that have to agree, by scope."""
    groups = {}
    for call in traced.calls:
        facts = (call.op, call.hash, call.call.outputs, call.outcome, call.call.depth, call.line)
        groups.setdefault(call.call.test_id, []).append(facts)
    return groups


def test_a_call_is_the_same_case_however_it_is_recorded(tmp_path, ttnn, device, make, either_way):
    calls = table_of_calls(ttnn, make, device)
    with tracing(tmp_path, backend="ttnn") as traced:
        for name, call in calls.items():
            for turn in range(5):
                active_tracing().enter(Scope(f"{name}: {turn}"))
                if turn == 3:
                    forget_everything(ttnn)
                with contextlib.suppress(RuntimeError, TypeError):
                    call()
    groups = grouped(traced)
    for name in calls:
        first, *others = [groups.get(f"{name}: {turn}") for turn in range(5)]
        assert others == [first] * 4, name
    recorded = [name for name in calls if f"{name}: 0" in groups]
    # Methods that were fetched before the trace are not recorded.
    assert recorded == [name for name in calls if not name.endswith("from before")]
    outcomes = {name for name in recorded for facts in groups[f"{name}: 0"] if facts[3] == "raised"}
    assert outcomes == {name for name in calls if name.startswith("wrong")}


CONFIGURATIONS = {
    "compute kernel": lambda ttnn: ttnn.WormholeComputeKernelConfig(math_approx_mode=True),
    "program": program,
    "convolution": lambda ttnn: ttnn.Conv2dConfig(weights_dtype=ttnn.bfloat16),
}
CHANGES = {
    "compute kernel": lambda config: setattr(config, "math_approx_mode", False),
    "program": lambda config: setattr(config, "in0_block_w", 2),
    "convolution": lambda config: setattr(config, "deallocate_activation", True),
}


@pytest.fixture
def configured(ttnn):
    """An op that takes any configuration, and is taken away again."""

    @ttnn.register_python_operation(name="ttnn.configured")
    def configured(a, config):
        return a

    yield configured
    ttnn.decorators.REGISTERED_OPERATIONS.operations.discard(ttnn.configured)
    del ttnn.configured


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_a_configuration_is_another_case_only_after_a_change(
    tmp_path, ttnn, make, configured, kind
):
    a = make()
    config = CONFIGURATIONS[kind](ttnn)
    with tracing(tmp_path) as traced:
        for _ in range(3):
            configured(a, config)
            configured(a, CONFIGURATIONS[kind](ttnn))
        CHANGES[kind](config)
        for _ in range(3):
            configured(a, config)
    hashes = [call.hash for call in traced.calls]
    assert hashes == [hashes[0]] * 6 + [hashes[6]] * 3
    assert hashes[0] != hashes[6]


def test_a_configuration_whose_part_was_changed_is_another_case(
    tmp_path, ttnn, make, configured, either_way
):
    a = make()
    part = ttnn.WormholeComputeKernelConfig(math_approx_mode=True)
    with tracing(tmp_path) as traced:
        for approximate in (True, True, False, False, True):
            part.math_approx_mode = approximate
            configured(a, [part, (part, {"inside": part})])
    hashes = [call.hash for call in traced.calls]
    assert hashes[0] == hashes[1] == hashes[4] != hashes[2] == hashes[3]


@pytest.fixture
def slowly(ttnn):
    """Switch ttnn's slow mode on and off."""

    def slowly(slow):
        ttnn.CONFIG.enable_fast_runtime_mode = not slow

    yield slowly
    ttnn.CONFIG.enable_fast_runtime_mode = True


def test_the_slow_mode_gives_the_same_calls_also_when_switched_meanwhile(
    tmp_path, ttnn, make, slowly
):
    a, b = make(), make()

    def work():
        ttnn.relu(a + b)
        ttnn.matmul(a, b, dtype=ttnn.float32).cpu()

    slowly(True)
    work()  # now ttnn has made the slow twins of these ops
    slowly(False)
    with tracing(tmp_path) as traced:
        for slow in (False, True, False, True, True):
            slowly(slow)
            work()
    facts = [(call.op, call.hash, call.call.outputs, call.line) for call in traced.calls]
    assert [op for op, *_ in facts[:4]] == [
        "ttnn.add",
        "ttnn.relu",
        "ttnn.matmul",
        "ttnn.Tensor.cpu",
    ]
    assert facts == facts[:4] * 5
    assert {call.file for call in traced.calls} == {__file__}
    before = traced.summary.accounting.observed
    work()
    slowly(False)
    work()
    assert traced.summary.accounting.observed == before


SLOW_FROM_THE_BEGINNING = """
import sys
import optrove
from pathlib import Path
with optrove.mock_board("n150"):
    import ttnn
assert not ttnn.CONFIG.enable_fast_runtime_mode
device = ttnn.open_device(device_id=0)
a = ttnn.zeros((32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
for turn in range(2):
    with optrove.trace(Path(sys.argv[1]) / f"{turn}.db") as t:
        for _ in range(3):
            ttnn.relu(a + a)[0:1]
    found = t.summary()
    ops = [(op.op, op.calls + op.nested_calls, op.cases + op.nested_cases) for op in found.ops]
    print(sorted(ops), found.faults)
ttnn.relu(a)
"""


@pytest.mark.torch  # which the slow mode cannot do without
def test_a_ttnn_that_was_imported_in_slow_mode_is_traced_all_the_same(tmp_path, run_python):
    overrides = '{"enable_fast_runtime_mode": false}'
    facts = run_python(SLOW_FROM_THE_BEGINNING, str(tmp_path), TTNN_CONFIG_OVERRIDES=overrides)
    ops = ["ttnn.Tensor.__getitem__", "ttnn.add", "ttnn.relu", "ttnn.slice"]
    expected = f"{[(op, 3, 1) for op in ops]} ()"
    assert facts.splitlines() == [expected] * 2


def test_calls_above_the_shadow_are_the_same_as_without_it(tmp_path, ttnn, make):
    a, b = make(), make()

    def work():
        ttnn.relu(a + b)
        ttnn.matmul(a, b, dtype=ttnn.float32)
        read = ttnn.add(make(), make(64, 32)[0:32], queue_id=0)
        ttnn.to_torch(read)
        ttnn.from_device(read, queue_id=None).to(ttnn.ROW_MAJOR_LAYOUT).to_torch()
        read.cpu().to_list()

    def facts(traced):
        return [(call.op, call.hash, call.call.outputs, call.line) for call in traced.calls]

    with tracing(tmp_path / "without", backend="ttnn") as without:
        work()
    with (
        optrove.mock_board("galaxy", shadow=True),
        tracing(tmp_path / "before", backend="ttnn") as before,
    ):
        work()
    with tracing(tmp_path / "meanwhile", backend="ttnn") as meanwhile:
        work()
        with optrove.mock_board("galaxy", shadow=True):
            work()
        work()
    assert facts(before) == facts(without)
    assert facts(meanwhile) == facts(without) * 3


@pytest.fixture
def difference(ttnn):
    """An op that calls another one, and is taken away again.

    Of ttnn's own such ops, none may be called by several threads: slicing then crashes by itself.
    """

    @ttnn.register_python_operation(name="ttnn.difference")
    def difference(a, b):
        return ttnn.subtract(a, b)

    yield difference
    ttnn.decorators.REGISTERED_OPERATIONS.operations.discard(ttnn.difference)
    del ttnn.difference


def test_several_threads_at_once_lose_nothing_and_mix_nothing_up(
    tmp_path, ttnn, make, difference, either_way
):
    rounds, count = 150, 3
    own = [(make(32, size), make(32, size), size) for size in (32, 64, 96)]

    def work(a, b, number):
        for _ in range(rounds):
            ttnn.add(a, number)
            with contextlib.suppress(TypeError):
                ttnn.multiply(a, "b")
            difference(a, b)
            ttnn.add_(a, b)

    with tracing(tmp_path) as traced:
        threads = [threading.Thread(target=work, args=each) for each in own]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls = {call.call.op_index: call for call in traced.calls}
    by_op = {}
    for call in calls.values():
        by_op.setdefault(call.op, []).append(call)
        assert call.outcome == ("raised" if call.op == "ttnn.multiply" else "returned")
        if call.op == "ttnn.subtract":
            assert calls[call.call.parent].op == "ttnn.difference"
        else:
            assert call.call.parent is None
        if call.op == "ttnn.add":
            assert call.call.outputs[0].shape == call["input_tensor_a"].shape
        if call.op == "ttnn.add_":
            assert call.call.outputs[0].identity == call["input_tensor_a"].identity
    assert {op: len(found) for op, found in by_op.items()} == dict.fromkeys(
        ["ttnn.add", "ttnn.multiply", "ttnn.difference", "ttnn.subtract", "ttnn.add_"],
        rounds * count,
    )
    assert {op: len({call.hash for call in found}) for op, found in by_op.items()} == (
        dict.fromkeys(by_op, count)
    )


def test_what_is_remembered_stays_bounded(tmp_path, ttnn, make, monkeypatch, either_way):
    monkeypatch.setattr(fingerprints, "MAX_FACTS", 20)
    monkeypatch.setattr(plain_fingerprints, "MAX_HELD", 20)
    a = make()
    config = ttnn.WormholeComputeKernelConfig(math_approx_mode=True)
    with tracing(tmp_path) as traced:
        remembered = fingerprints_in_use(ttnn)
        for number in range(100):
            config.math_approx_mode = number % 2 == 0
            ttnn.relu(ttnn.matmul(a, a, compute_kernel_config=config))
            ttnn.relu(a, memory_config=ttnn.MemoryConfig(buffer_type=ttnn.BufferType.L1))
            if number % 10 == 0:
                remembered.tidy()
            assert len(remembered._kept) <= 20
            assert len(remembered.object_parts) <= 20
            assert len(remembered._numbers) <= 20
            assert len(remembered.tensor_parts) <= 20 + 50
    assert traced.summary.cases == 4


def test_a_tensor_that_only_the_trace_has_seen_is_let_go(tmp_path, ttnn, make, either_way, device):
    host = ttnn.zeros((32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)

    def used():
        return ttnn.get_memory_view(device, ttnn.BufferType.L1).total_bytes_allocated_per_bank

    gc.collect()  # what tests before this one have left must not go meanwhile
    before = used()
    with tracing(tmp_path):
        for _ in range(3):
            tensor = make(memory_config=ttnn.L1_MEMORY_CONFIG)
            ttnn.copy_host_to_device_tensor(host, tensor)
            with pytest.raises(TypeError):
                ttnn.add(tensor, "text")
            ttnn.relu(tensor)
            del tensor
            assert used() == before


def test_device_parameters_are_in_the_scope_of_calls(tmp_path, ttnn, mesh):
    with tracing(tmp_path) as traced:
        part = mesh.create_submesh(ttnn.MeshShape(2, 4))
        ttnn.zeros((32, 32), layout=ttnn.TILE_LAYOUT, device=part)
        ttnn.close_mesh_device(part)
    (call,) = traced.of("ttnn.zeros")
    assert call.call.device is not None
    assert tuple(call.call.device.mesh_shape) == (2, 4)
