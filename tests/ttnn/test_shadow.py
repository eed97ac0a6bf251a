import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path

import pytest
import torch

import optrove
from optrove.errors import FrameworkMissing, NoNumbers
from optrove.frameworks.ttnn.ops import OPS, WITHOUT_NUMBERS
from optrove.frameworks.ttnn.probe.probe import METHODS
from optrove.frameworks.ttnn.shadow import expected_outputs
from optrove.frameworks.ttnn.shadow import shadow as module
from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirrors
from optrove.frameworks.ttnn.shadow.shadow import active_report, is_shadow_call, shadow_numerics
from optrove.frameworks.ttnn.signatures import Signatures

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]


@pytest.fixture
def numbers():
    return torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))


def patched_names(ttnn):
    owners = (ttnn.decorators.FastOperation, ttnn.decorators.Operation, ttnn.Tensor, ttnn)
    return [(owner, name, value) for owner in owners for name, value in vars(owner).items()]


def test_without_the_shadow_numbers_mean_nothing(ttnn, mesh, numbers, put):
    assert not torch.equal(ttnn.to_torch(put(numbers)), numbers.bfloat16())


def test_what_goes_to_the_device_comes_back_rounded(ttnn, report, numbers, put):
    for dtype in (ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b, ttnn.float32):
        host = ttnn.to_torch(put(numbers, dtype, device=None))
        assert torch.equal(ttnn.to_torch(put(numbers, dtype)), host)


def test_an_op_gives_the_golden_result_rounded_once(ttnn, report, numbers, put):
    product = ttnn.to_torch(ttnn.matmul(put(numbers), put(numbers)))
    exact = numbers.bfloat16().float() @ numbers.bfloat16().float()
    assert torch.equal(product, exact.bfloat16())
    assert report.computed["ttnn.matmul"] == 1


def test_torch_rounds_to_bfloat16_as_the_packing_of_ttnn_does(ttnn):
    # Every bfloat16, one step of float32 to either side of it and of the middle to the next one.
    whole = torch.arange(-(2**15), 2**15, dtype=torch.int32).repeat(6, 1) * 2**16
    steps = torch.tensor([-1, 0, 1, 2**15 - 1, 2**15, 2**15 + 1], dtype=torch.int32)
    numbers = (whole + steps[:, None]).view(torch.float32)
    packed = ttnn.from_torch(numbers, dtype=ttnn.bfloat16).to_torch()
    assert torch.equal(packed.isnan(), numbers.isnan())
    defined = ~numbers.isnan()
    rounded = numbers.to(torch.bfloat16)
    assert torch.equal(packed.view(torch.int16)[defined], rounded.view(torch.int16)[defined])


def test_what_is_read_back_has_the_spec_of_the_device_tensor(ttnn, report, numbers, put):
    tensor = ttnn.relu(put(numbers))
    host = ttnn.from_device(tensor)
    assert host.spec == tensor.spec
    assert "Layout::TILE" in str(tensor)
    assert torch.equal(host.to_torch(), ttnn.to_torch(tensor))


def test_an_output_in_a_block_float_is_packed_as_one(ttnn, report, numbers, put):
    result = ttnn.add(put(numbers), put(numbers), dtype=ttnn.bfloat8_b)
    packed = put(2 * numbers.bfloat16().float(), ttnn.bfloat8_b, device=None)
    assert torch.equal(ttnn.to_torch(result), ttnn.to_torch(packed))
    assert not torch.equal(ttnn.to_torch(result), 2 * numbers.bfloat16().float())


def test_numbers_follow_data_movement(ttnn, report, numbers, put):
    grid = ttnn.CoreGrid(y=2, x=2)
    sharded = ttnn.create_sharded_memory_config((1, 1, 64, 64), grid, ttnn.ShardStrategy.BLOCK)
    tensor = ttnn.to_memory_config(put(numbers), sharded)
    host = tensor.cpu()
    assert host.spec == tensor.spec
    tensor = ttnn.to_layout(ttnn.sharded_to_interleaved(tensor), ttnn.ROW_MAJOR_LAYOUT)
    tensor = ttnn.typecast(ttnn.to_layout(tensor, ttnn.TILE_LAYOUT), ttnn.float32)
    tensor = ttnn.permute(ttnn.reshape(tensor, (1, 64, 64)), (0, 2, 1))
    expected = numbers.bfloat16()
    assert torch.equal(host.to_torch(), expected)
    assert torch.equal(ttnn.to_torch(tensor), expected[0].mT.float())
    assert torch.equal(ttnn.from_device(tensor).to_torch(), expected[0].mT.float())
    assert torch.equal(ttnn.to_torch(put(numbers)[:, :, :32]), expected[:, :, :32])
    assert torch.equal(put(numbers).reshape((64, 64)).to_torch(), expected[0, 0])


def test_an_op_made_of_other_ops_counts_as_those(ttnn, report, numbers, put):
    tensor = put(numbers)
    assert torch.equal(ttnn.to_torch(tensor[0, 0]), numbers.bfloat16()[0, 0])
    assert torch.equal(ttnn.to_torch(tensor), numbers.bfloat16())
    assert set(report.computed) == {"ttnn.slice", "ttnn.squeeze"}
    assert not report.missing


def test_a_host_tensor_keeps_its_numbers_on_the_way(ttnn, report, device):
    import numpy

    array = numpy.arange(1024, dtype=numpy.float32).reshape(32, 32)
    host = ttnn.Tensor(array, ttnn.float32)
    for tensor in (ttnn.to_device(host, device), host.to(ttnn.TILE_LAYOUT).to(device)):
        assert ttnn.to_torch(tensor).flatten().tolist() == list(range(1024))


def test_later_changes_of_the_source_do_not_reach_the_device(ttnn, report, device):
    source = torch.ones(32, 32)
    first = ttnn.from_torch(source, device=device)
    second = ttnn.to_device(ttnn.from_torch(source), device)
    source.zero_()
    assert ttnn.to_torch(first).sum() == ttnn.to_torch(second).sum() == 1024


def test_in_place_ops_and_output_arguments_update_their_target(ttnn, report, numbers, put):
    tensor, expected = put(numbers), numbers.bfloat16()
    ttnn.add_(tensor, 1.0)
    assert torch.equal(ttnn.to_torch(tensor), (expected.float() + 1).bfloat16())
    target = ttnn.empty_like(tensor)
    ttnn.relu(put(numbers), output_tensor=target)
    assert torch.equal(ttnn.to_torch(target), expected.relu())
    ttnn.softmax_in_place(target)
    assert ttnn.to_torch(target).float().sum(-1) == pytest.approx(torch.ones(1, 1, 64), abs=0.02)
    ttnn.copy(tensor, target)
    assert torch.equal(ttnn.to_torch(target), ttnn.to_torch(tensor))
    ttnn.copy_host_to_device_tensor(put(numbers, device=None), target)
    assert torch.equal(ttnn.to_torch(target), expected)
    assert not report.missing


def test_a_view_of_another_form_is_not_trusted_after_a_write(ttnn, report, numbers, put):
    tensor = put(numbers)
    view = ttnn.reshape(tensor, (64, 64))
    assert torch.equal(ttnn.to_torch(view), numbers.bfloat16()[0, 0])
    ttnn.multiply_(tensor, 2.0)
    with pytest.raises(NoNumbers, match=r"ttnn.multiply_: it wrote through a view"):
        ttnn.to_torch(view)


def test_memory_that_nothing_wrote_to_has_no_numbers(ttnn, report, device):
    tensor = ttnn.empty([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device)
    with pytest.raises(NoNumbers, match=r"ttnn.empty: it allocates memory"):
        ttnn.to_torch(tensor)
    assert not report.missing


def test_an_op_without_a_golden_function_leaves_no_numbers(ttnn, report, numbers, put):
    heads = ttnn.experimental.nlp_concat_heads_boltz(put(numbers))
    assert tuple(heads.shape) == (1, 1, 64, 64)
    later = ttnn.relu(heads)
    for read in (ttnn.to_torch, ttnn.Tensor.to_list, lambda tensor: tensor.cpu().to_torch()):
        with pytest.raises(NoNumbers, match="nlp_concat_heads_boltz: it has no golden function"):
            read(later)
    assert "nlp_concat_heads_boltz: it has no golden function" in repr(later)
    assert [missing.op for missing in report.missing] == [
        "ttnn.experimental.nlp_concat_heads_boltz",
        "ttnn.relu",
    ]
    assert report.lines() == [
        "0 op calls computed, 2 without numbers",
        (
            "1 x ttnn.experimental.nlp_concat_heads_boltz: it has no golden function; "
            "1 calls after it have none either"
        ),
    ]


@pytest.mark.parametrize(
    ("golden", "reason"),
    [
        (lambda tensor, **_: tensor[..., :32], "gave the shape (1, 1, 64, 32)"),
        (lambda tensor, **_: 1 / 0, "raised ZeroDivisionError"),
        (lambda tensor, **_: "numbers", "gave str for a tensor"),
    ],
)
def test_a_golden_function_that_fails_is_counted_not_raised(
    report, put, monkeypatch, golden, reason
):
    import ttnn

    numbers = torch.ones(1, 1, 64, 64)
    monkeypatch.setattr(ttnn.relu, "golden_function", golden)
    result = ttnn.relu(put(numbers))
    (missing,) = report.missing
    assert missing.op == "ttnn.relu"
    assert reason in missing.reason
    with pytest.raises(NoNumbers):
        ttnn.to_torch(result)


def test_a_wrong_golden_function_shows_in_the_numbers(ttnn, report, numbers, put, monkeypatch):
    right = ttnn.to_torch(ttnn.relu(put(numbers)))
    monkeypatch.setattr(ttnn.relu, "golden_function", lambda tensor, **_: tensor)
    assert not torch.equal(ttnn.to_torch(ttnn.relu(put(numbers))), right)


def test_an_op_that_ttnn_rejects_still_raises(ttnn, report, numbers, put):
    with pytest.raises(RuntimeError, match="TT_FATAL"):
        ttnn.matmul(put(numbers), put(numbers[..., :32, :]))
    assert not report.computed


def test_numbers_of_dead_tensors_are_dropped(ttnn, numbers, put, monkeypatch):
    books = []

    def kept(ttnn):
        books.append(HostMirrors(ttnn))
        return books[0]

    monkeypatch.setattr(expected_outputs, "HostMirrors", kept)
    with shadow_numerics(ttnn):
        tensor = put(numbers)
        for _ in range(50):
            tensor = ttnn.relu(tensor)
        assert len(books[0]) < 10
        ttnn.deallocate(tensor)
        left = len(books[0])
        tensor = put(numbers)
        assert len(books[0]) <= left + 1


def test_patches_are_gone_afterwards_also_after_an_error(ttnn, mesh):
    before = patched_names(ttnn)
    during = []

    def fail():
        with shadow_numerics(ttnn):
            during.extend(patched_names(ttnn))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert during != before
    assert patched_names(ttnn) == before
    assert active_report() is None


def test_entered_again_it_gives_the_report_that_is_on(ttnn, report):
    with shadow_numerics(ttnn) as inner:
        assert inner is report
    assert active_report() is report


def test_in_another_thread_it_gives_the_report_that_is_on(ttnn, report, numbers, put):
    before = patched_names(ttnn)

    def enter():
        with optrove.mock_board("galaxy", shadow=True):
            ttnn.relu(put(numbers))
            return active_report(), patched_names(ttnn) == before

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(enter).result() == (report, True)
    assert patched_names(ttnn) == before
    assert report.computed["ttnn.relu"] == 1


def test_it_stays_on_until_the_last_block_ends(ttnn, mesh, numbers, put):
    before = patched_names(ttnn)
    first, second = ExitStack(), ExitStack()
    first.enter_context(shadow_numerics(ttnn))
    second.enter_context(shadow_numerics(ttnn))
    first.close()
    assert torch.equal(ttnn.to_torch(put(numbers)), numbers.bfloat16())
    second.close()
    assert patched_names(ttnn) == before


def test_its_own_calls_are_distinguished_from_the_models(ttnn, report, numbers, put, monkeypatch):
    operation = ttnn.decorators.FastOperation
    original, seen = operation.__call__, []

    def spy(self, *arguments, **keywords):
        seen.append((self.python_fully_qualified_name, is_shadow_call()))
        return original(self, *arguments, **keywords)

    tensor = put(numbers)
    with monkeypatch.context() as patch:  # gone before the shadow takes its own patches away
        patch.setattr(operation, "__call__", spy)
        ttnn.relu(tensor)
    assert [name for name, own in seen if not own] == ["ttnn.relu"]
    assert not is_shadow_call()


def test_torch_missing_names_the_extra(ttnn, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(module.importlib, "import_module", missing)
    with pytest.raises(FrameworkMissing, match=r"optrove\[torch\]"), shadow_numerics(ttnn):
        pass


def test_the_table_names_ops_that_exist_and_their_parameters(ttnn):
    registered = ttnn.query_registered_operations(include_experimental=True)
    known = {operation.python_fully_qualified_name: operation for operation in registered}
    methods = {f"ttnn.Tensor.{name}" for name in METHODS}
    assert OPS.keys() <= known.keys() | methods
    for name in (name for names in WITHOUT_NUMBERS.values() for name in names):
        assert any(each.startswith(name) for each in known)
    for name in OPS.keys() & known.keys():
        op, parameters = OPS[name], Signatures().parameters(known[name])
        assert {*op.writes, *op.weights} <= parameters
        stated = op.adapter.adapt if op.adapter is not None else op.golden
        found = () if stated is None else signature(stated).parameters.values()
        named = {
            each.name for each in found if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        }
        assert named - {"is_sharded", "shard_width"} <= parameters


def test_replicated_and_sharded_tensors_compute_chip_by_chip(ttnn, report, row):
    inputs, weights = torch.randn(1, 1, 32, 64), torch.randn(1, 1, 64, 256)
    tiled = {"dtype": ttnn.float32, "layout": ttnn.TILE_LAYOUT, "device": row}
    left = ttnn.from_torch(inputs, mesh_mapper=ttnn.ReplicateTensorToMesh(row), **tiled)
    right = ttnn.from_torch(weights, mesh_mapper=ttnn.ShardTensorToMesh(row, dim=3), **tiled)
    product = ttnn.matmul(left, right)
    assert tuple(product.shape) == (1, 1, 32, 32)
    expected = inputs @ weights
    joined = ttnn.to_torch(product, mesh_composer=ttnn.ConcatMeshToTensor(row, dim=3))
    assert torch.allclose(joined, expected, atol=1e-4)
    parts = ttnn.get_device_tensors(product)
    assert torch.allclose(ttnn.to_torch(parts[3]), expected[..., 96:128], atol=1e-4)


@pytest.mark.parametrize("collective", ["all_gather", "all_reduce", "reduce_scatter"])
def test_collectives_join_the_chips(ttnn, report, row, collective):
    whole = torch.randn(1, 1, 32, 8 * 256)
    split = ttnn.ShardTensorToMesh(row, dim=3)
    keywords = {"dtype": ttnn.float32, "layout": ttnn.TILE_LAYOUT, "device": row}
    tensor = ttnn.from_torch(whole, mesh_mapper=split, **keywords)
    dim = () if collective == "all_reduce" else (3,)
    result = getattr(ttnn, collective)(tensor, *dim)
    total = torch.stack(whole.split(256, dim=3)).sum(0)
    expected = {
        "all_gather": whole.repeat(1, 1, 1, 8),
        "all_reduce": total.repeat(1, 1, 1, 8),
        "reduce_scatter": total,
    }
    joined = ttnn.to_torch(result, mesh_composer=ttnn.ConcatMeshToTensor(row, dim=3))
    assert torch.allclose(joined, expected[collective], atol=1e-5)


def test_the_encoder_example_needs_its_weights_to_reach_its_pcc(run_python, request):
    folder = request.config.rootpath / "examples" / "encoder"
    output = run_python(ENCODER, str(folder))
    right, sharded, swapped, perturbed = map(float, output.split())
    assert right > 0.9999
    assert sharded > 0.9999
    assert swapped < 0.5
    assert perturbed < 0.999


ENCODER = """
import sys
sys.path.insert(0, sys.argv[1])
import dataclasses
import optrove
with optrove.mock_board("n300", shadow=True):
    import ttnn, encoder, reference, weights
    device = ttnn.open_device(device_id=0)
    right, inputs = weights.make_weights(), weights.make_input()
    noise = 0.2 * weights.make_weights(seed=7).up.weight
    up = weights.Dense(right.up.weight + noise, right.up.bias)
    perturbed = dataclasses.replace(right, up=up)
    runs = (
        (encoder.encoder, right, inputs),
        (encoder.sharded_encoder, right, inputs),
        (encoder.sharded_encoder, right, weights.make_input(seed=2)),
        (encoder.encoder, perturbed, inputs),
    )
    expected = reference.encoder(inputs, right)
    for block, chosen, given in runs:
        output = block(encoder.to_device(given, device), encoder.load(chosen, device))
        print(reference.pcc(expected, ttnn.to_torch(output).float()))
    ttnn.close_device(device)
"""


def test_the_docs_name_every_op_without_numbers(ttnn):
    path = Path(__file__).parents[2] / "tools" / "model_ops.py"
    specification = spec_from_file_location("model_ops", path)
    tool = module_from_spec(specification)
    sys.modules["model_ops"] = tool
    specification.loader.exec_module(tool)
    table = list(tool.markdown(tool.Numbers(ttnn)))
    docs = (path.parents[1] / "docs" / "boards.md").read_text().splitlines()
    assert [line for line in table if line not in docs] == [], "run tools/model_ops.py --docs"
