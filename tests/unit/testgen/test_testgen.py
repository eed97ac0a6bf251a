"""Tests of recorded cases are generated as text; no framework is needed for it."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from optrove.frameworks.kept_tensors import KeptTensor
from optrove.model.capsules import Capsule
from optrove.model.case import Case
from optrove.model.records import DeviceParameters
from optrove.model.values import (
    Bytes,
    Callable,
    DeviceRef,
    Float,
    Handle,
    List,
    Mapping,
    MeshPlacement,
    Opaque,
    Struct,
    Symbol,
    Text,
    TorchPlacement,
    TtnnPlacement,
)
from optrove.model.values import TensorSpec as Spec
from optrove.serializer.hashes import placement_hash
from optrove.testgen.cases import DrawnValues, Filling, RecordedCase
from optrove.testgen.expressions import NotExpressible, expression_of
from optrove.testgen.files import generate
from trove_rows import case, memory, shard, tensor, value

ROOT = Path(__file__).parents[3]
SHARDED = memory("L1_WIDTH_SHARDED", shard((32, 64), (7, 0)))


def recorded(one, **more):
    return RecordedCase(placement_hash(one), one, **more)


KEPT = KeptTensor("tensor_0123456789", Capsule("run", 0, 7, ()), tensor(32, 32), as_storage=False)


def texts(*cases, standalone=False):
    generated = generate(cases, standalone=standalone)
    assert not generated.left_out
    return [file.text for file in generated.files]


def add(rows=32, dtype="bfloat16", **more):
    return case(
        "ttnn.add",
        input_tensor_a=tensor(1, 1, rows, 64, dtype=dtype),
        input_tensor_b=tensor(1, 1, rows, 64, number=1),
        **more,
    )


def calls(text, name):
    """Return all calls of a function in a text, as they are written."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name
    ]


def functions(text):
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def ids(text):
    rows = [ast.parse(row, mode="eval").body for row in calls(text, "pytest.param")]
    return [key.value.value for row in rows for key in row.keywords if key.arg == "id"]


def on_mesh(one, placements, shape=(2, 4), chips=None):
    rows, columns = shape
    every = tuple((row, column) for row in range(rows) for column in range(columns))
    placement = MeshPlacement(
        shape if len(placements) > 1 else (rows * columns,), placements, chips or every
    )
    changed = {"mesh_shape": shape, "mesh": placement}
    kept = {name: getattr(one.placement, name) for name in one.placement.__slots__}
    return Spec(one.shape, one.dtype, TtnnPlacement(**{**kept, **changed}), one.identity)


class TestFiles:
    def test_are_one_per_op_with_a_function_per_signature(self):
        generated = generate(
            [
                recorded(add()),
                recorded(add(memory_config=SHARDED)),
                recorded(add(64)),
                recorded(case("ttnn.relu", input_tensor=tensor(32, 32))),
            ]
        )
        assert [(file.name, file.cases) for file in generated.files] == [
            ("test_add.py", 3),
            ("test_relu.py", 1),
        ]
        assert {"test_add", "test_add_with_memory"} <= functions(generated.files[0].text)

    def test_are_one_per_device_where_there_are_several(self):
        one = recorded(add(), device=DeviceParameters(mesh_shape=(1, 1)))
        other = recorded(add(64), device=DeviceParameters(mesh_shape=(2, 4)))
        names = [file.name for file in generate([one, other]).files]
        assert names == ["test_add_on_1x1.py", "test_add_on_2x4.py"]

    def test_standalone_ones_are_one_per_case_and_need_no_pytest(self):
        first, second = texts(recorded(add()), recorded(add(64)), standalone=True)
        assert first != second
        assert "pytest" not in [
            name.name
            for node in ast.walk(ast.parse(first))
            if isinstance(node, ast.Import)
            for name in node.names
        ]
        assert 'if __name__ == "__main__":\n    test_add()' in first

    def test_import_nothing_of_optrove(self):
        for text in (*texts(recorded(add())), *texts(recorded(add()), standalone=True)):
            assert "import optrove" not in text
            assert "from optrove" not in text

    def test_are_the_same_each_time(self):
        cases = [recorded(add(rows)) for rows in (32, 64, 96)]
        assert texts(*cases) == texts(*cases)


class TestCalls:
    def test_pass_operands_by_place_and_the_rest_by_name(self):
        (text,) = texts(recorded(add(memory_config=SHARDED, dtype_wanted=1.5)))
        (call,) = calls(text, "partial")[:1]
        assert call.startswith("partial(ttnn.add, make(input_tensor_a), make(input_tensor_b), ")
        assert "dtype_wanted=1.5" in call
        assert "memory_config=L1_WIDTH_SHARDED_32X64_ON_8X1" in call

    def test_have_what_differs_from_case_to_case_as_parameters(self):
        (text,) = texts(recorded(add(alpha=1, beta=2)), recorded(add(alpha=3, beta=2)))
        (decorator,) = calls(text, "pytest.mark.parametrize")
        assert decorator.startswith(
            "pytest.mark.parametrize(('input_tensor_a', 'input_tensor_b', 'alpha')"
        )
        assert "alpha=alpha, beta=2" in calls(text, "partial")[0]

    def test_of_places_keep_their_order_and_get_the_names_of_parameters(self):
        one = case("ttnn.topk", arg0=tensor(32, 64), arg1=32, arg10=True, arg2=-1)
        places = ("arg0", "arg1", "arg2", "arg10")
        (text,) = texts(recorded(one, places=places, roles=(("arg0", "input_tensor"),)))
        assert calls(text, "partial")[0] == "partial(ttnn.topk, make(input_tensor), 32, -1, True)"

    def test_of_one_tensor_that_is_passed_twice_make_it_once(self):
        one = tensor(32, 32)
        (text,) = texts(recorded(case("ttnn.add", input_tensor_a=one, input_tensor_b=one)))
        assert "input_tensor_a = make(input_tensor_a)" in text
        assert calls(text, "partial")[0] == "partial(ttnn.add, input_tensor_a, input_tensor_a)"

    def test_take_lists_of_tensors(self):
        both = List((tensor(32, 32), tensor(32, 64, number=1)))
        (text,) = texts(recorded(case("ttnn.concat", tensors=both, dim=-1)))
        assert "make(tensors)" in text
        assert len(calls(text, "Spec")) == 2

    def test_never_shadow_what_python_or_the_file_calls_its_own(self):
        one = case("ttnn.scatter", input=tensor(32, 32), device=2, output=3)
        (text,) = texts(recorded(one), recorded(case("ttnn.scatter", **{**PLAIN, "device": 4})))
        assert "make(input_)" in text
        assert "device=device_" in text

    def test_have_parameters_of_different_names_even_where_case_alone_tells_them_apart(self):
        one = case("ttnn.odd", x=tensor(32, 32), X=tensor(32, 32, number=1))
        (text,) = texts(recorded(one))
        ast.parse(text)
        assert "X=make(x), x=make(x_)" in text

    def test_recreate_semaphores_and_say_where_no_recipe_was_recorded(self):
        unknown = Handle("ttnn.GlobalSemaphore", None)
        mesh = DeviceRef("ttnn.MeshDevice", (1, 8))
        one = case("ttnn.all_gather", input_tensor=tensor(32, 32), semaphore=unknown, mesh=mesh)
        (text,) = texts(recorded(one))
        assert "semaphore=ttnn.create_global_semaphore(device, all_cores(device), 0)" in text
        assert "mesh=device" in text
        assert "all_cores" in functions(text)

    def test_between_chips_are_not_compared_with_golden_functions(self):
        one = case(
            "ttnn.all_gather", input_tensor=on_mesh(tensor(32, 32), (None, 1)), cluster_axis=1
        )
        (text,) = texts(recorded(one, device=DeviceParameters(mesh_shape=(2, 4))))
        assert "check(call, golden=False)" in text


PLAIN = {"input": tensor(32, 32), "device": 2, "output": 3}


class TestTensors:
    def test_on_a_mesh_say_which_dimension_is_split(self):
        split = on_mesh(tensor(1, 1, 32, 64), (2, None))
        flat = on_mesh(tensor(64, 64, number=1), (0,))
        one = case("ttnn.add", input_tensor_a=split, input_tensor_b=flat)
        (text,) = texts(recorded(one, device=DeviceParameters(mesh_shape=(2, 4))))
        assert "mesh=(2, None))" in text
        assert "mesh=(0,))" in text
        assert "ttnn.open_mesh_device(ttnn.MeshShape(2, 4))" in text
        assert "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)" in text
        assert "not recorded: the fabric, FABRIC_1D" in text

    def test_are_filled_by_what_they_are_for(self):
        places = tensor(1, 32, dtype="uint32")
        one = case("ttnn.embedding", input_tensor=places, cos=tensor(32, 32, number=1))
        fillings = {
            "input_tensor": Filling(DrawnValues.WHOLE, 1000),
            "cos": Filling(DrawnValues.COSINES),
        }
        (text,) = texts(recorded(one, fillings=fillings))
        assert "values=whole(1000)" in text
        assert "values=cosines" in text
        assert {"whole", "cosines", "angles"} <= functions(text)
        assert "sines" not in functions(text)

    def test_of_integers_never_hold_fractions(self):
        (text,) = texts(recorded(case("ttnn.add", input_tensor=tensor(32, 32, dtype="int32"))))
        assert "values=whole(8)" in text

    def test_of_the_result_are_expected_where_they_were_recorded(self):
        result = tensor(1, 1, 32, 64, where=SHARDED, number=2)
        (text,) = texts(recorded(add(), outputs=(result,)))
        (decorator,) = calls(text, "pytest.mark.parametrize")
        assert "'output')" in decorator
        assert "check(call, output)" in text
        (silent,) = texts(recorded(add()))
        assert "the output was not recorded" in silent


class TestErrors:
    @pytest.mark.parametrize(
        ("raised", "error"),
        [
            ("RuntimeError: TT_FATAL @ matmul.cpp:1: a == b\ninfo:\nlong", "RuntimeError"),
            ("TypeError", "TypeError"),
            ("mine.Odd: no", "Exception"),
            ("KeyboardInterrupt: ", "Exception"),
            ("print: no", "Exception"),
        ],
    )
    def test_are_expected_of_cases_that_raised_when_they_were_recorded(self, raised, error):
        (text,) = texts(recorded(add(), raised=raised))
        assert "test_add_raises" in functions(text)
        assert f"    with pytest.raises({error}):\n        call()" in text
        assert f"it raised {error} when it was recorded." in text
        assert "the output was not recorded" not in text
        (alone,) = texts(recorded(add(), raised=raised), standalone=True)
        assert f"    except {error}:\n        return\n    raise AssertionError(" in alone

    def test_are_not_expected_of_other_cases_of_the_op(self):
        (text,) = texts(recorded(add()), recorded(add(64), raised="RuntimeError: no"))
        assert {"test_add", "test_add_raises"} <= functions(text)
        assert text.count("pytest.raises(") == 1


class TestIds:
    def test_tell_the_first_tensor_and_what_varies(self):
        sharded = case(
            "ttnn.add",
            input_tensor_a=tensor(1, 1, 32, 512, dtype="bfloat8_b", where=SHARDED),
            input_tensor_b=tensor(1, 1, 32, 512, number=1),
        )
        (text,) = texts(recorded(sharded), recorded(add(64)))
        assert ids(text) == [
            "1x1x32x512-bfloat8_b-L1_WIDTH_SHARDED-1x1x32x512",
            "1x1x64x64-bfloat16-DRAM_INTERLEAVED-1x1x64x64",
        ]

    def test_name_scalars_that_vary(self):
        (text,) = texts(*(recorded(add(batch_idx=number)) for number in range(3)))
        assert [each.rpartition("-")[2] for each in ids(text)] == [
            "batch_idx=0",
            "batch_idx=1",
            "batch_idx=2",
        ]

    def test_are_unique_and_short_whatever_the_case(self):
        programs = [Struct("ttnn.ProgramConfig", (("rows", value(number)),)) for number in range(5)]
        (text,) = texts(*(recorded(add(program_config=each)) for each in programs))
        assert len(set(ids(text))) == 5
        assert max(map(len, ids(text))) <= 76


class TestLeftOut:
    @pytest.mark.parametrize(
        ("part", "reason"),
        [
            (Opaque("ttnn.Odd", "x"), "no converter knew this ttnn.Odd"),
            (Callable("mine.activation"), "recorded by name only"),
            (Handle("ttnn.SubDevice", None), "made by the program that uses it"),
            (Struct("user:mine.Config", ()), "belongs to a program"),
            (Struct("ttnn.MatmulParams", ()), "no constructor of ttnn.MatmulParams"),
            (Symbol("ttnn.Layout", "A B"), "not a name"),
        ],
    )
    def test_cases_are_named_with_the_part_that_no_expression_makes(self, part, reason):
        odd = recorded(add(odd=List((part,))))
        generated = generate([recorded(add()), odd])
        (left,) = generated.left_out
        assert left.case_id == odd.case_id
        assert left.path.startswith("$.arguments.odd[0]")
        assert reason in left.reason
        (file,) = generated.files
        assert file.cases == 1
        assert f"# - case {odd.case_id[:12]}: $.arguments.odd[0]" in file.text

    def test_tensors_that_cannot_be_placed_are_named(self):
        part = on_mesh(tensor(32, 32), (None, None), chips=((0, 0), (0, 1)))
        one = recorded(
            case("ttnn.relu", input_tensor=part), device=DeviceParameters(mesh_shape=(2, 4))
        )
        (left,) = generate([one]).left_out
        assert left.reason == "it is only on a part of the mesh"

    def test_cases_that_name_a_file_of_the_model_are_named(self):
        dumped = case("ttnn.dump_tensor", file_name=Text("/models/w.tensorbin"), tensor=tensor(32))
        (left,) = generate([recorded(dumped, file="$.arguments.file_name")]).left_out
        assert left.path == "$.arguments.file_name"
        assert "names a file of the model" in left.reason

    def test_strided_tensors_of_torch_are_named(self):
        strided = Spec((4, 4), "torch.float32", TorchPlacement((1, 4), "strided", "cpu", False))
        (left,) = generate([recorded(case("ttnn.from_torch", tensor=strided))]).left_out
        assert "not contiguous" in left.reason

    def test_ops_of_other_frameworks_have_no_tests(self):
        cases = [Case("torch.relu", ()), Case("ttnn.a b", ()), Case("ttnn.x;import os", ())]
        generated = generate([recorded(each) for each in cases])
        assert generated.files == ()
        assert [each.path for each in generated.left_out] == ["$.op"] * 3


class TestSpelling:
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (value(None), "None"),
            (value("it's"), '"it\'s"'),
            (value('say "hi"'), "'say \"hi\"'"),
            (value("\n\u1234"), '"\\n\\u1234"'),
            (Bytes(b"\x00"), 'b"\\x00"'),
            (Float(float("-inf")), 'float("-inf")'),
            (value((1,)), "(1,)"),
            (Mapping(frozenset({(Text("a"), Float(1.0))})), "{'a': 1.0}"),
            (Symbol("ttnn.DataType", "BFLOAT8_B"), "ttnn.bfloat8_b"),
            (Symbol("ttnn.Layout", "TILE"), "ttnn.TILE_LAYOUT"),
            (Symbol("ttnn.CBIndex", "c_0"), "ttnn._ttnn.program_descriptor.CBIndex.c_0"),
            (memory("L1_INTERLEAVED"), "ttnn.L1_MEMORY_CONFIG"),
        ],
    )
    def test_is_python(self, given, text):
        from optrove.testgen.expressions import flat

        found = flat(expression_of(given))
        assert ast.unparse(ast.parse(found)) == ast.unparse(ast.parse(text))

    def test_says_where_something_has_no_text(self):
        deep = List((value(1), Struct("ttnn.Shape", (("shape", List((Opaque("x.Y", "t"),))),))))
        with pytest.raises(NotExpressible) as caught:
            expression_of(deep, "$.arguments.x")
        assert caught.value.path == "$.arguments.x[1].fields.shape[0]"


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
def test_files_pass_the_linter_and_the_formatter(tmp_path):
    mesh = recorded(
        case("ttnn.add", input_tensor_a=on_mesh(tensor(1, 1, 32, 64), (2, None)), flag=True),
        device=DeviceParameters(mesh_shape=(2, 4), l1_small_size=24576, fabric_config="FABRIC_2D"),
    )
    long = Struct(
        "ttnn.MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig",
        tuple((f"a_field_with_a_long_name_{number}", value(number)) for number in range(9)),
    )
    fillings = {f"x{place}": Filling(each, 9) for place, each in enumerate(DrawnValues)}
    filled = case(
        "ttnn.many",
        **{name: tensor(32, 32, number=at) for at, name in enumerate(fillings)},
    )
    cases = [
        recorded(add(program_config=long, text="x" * 150), calls=7, outputs=(tensor(32, 32),)),
        recorded(add(64, program_config=long, flag=False), calls=1),
        recorded(case("ttnn.zeros", shape=[32, 32], dtype=1.5)),
        recorded(filled, fillings=fillings),
        recorded(add(odd=Opaque("x.Y" * 50, "t"))),
        recorded(case("ttnn.relu", x=tensor(32, 32)), kept={0: KEPT}, kept_from=7),
        recorded(case("ttnn.relu", x=tensor(64, 32)), raised="RuntimeError: no"),
        recorded(case("ttnn.relu", x=tensor(96, 32)), raised="mine.Odd: no"),
        recorded(case("ttnn.zeros", shape=[0]), raised="ValueError: no"),
        mesh,
    ]
    for folder, standalone in (("grouped", False), ("alone", True)):
        directory = tmp_path / folder
        directory.mkdir()
        generated = generate(cases, standalone=standalone)
        for file in generated.files:
            (directory / file.name).write_text(file.text)
        settings = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), str(directory)]
        for words in (["check"], ["format", "--check", "--diff"]):
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *words, *settings],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
