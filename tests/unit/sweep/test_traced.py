import pytest

from optrove.errors import BadTarget, NotFound
from optrove.model.values import Struct
from optrove.sweep.traced import (
    combinations,
    distinct,
    read_name,
    tensors_of,
    traced_of,
    write_name,
)
from trove_rows import case, memory, shard, tensor

SHARDED = memory("L1_HEIGHT_SHARDED", shard((32, 64), (7, 3)))


def add(first, second, **more):
    return case("ttnn.add", input_tensor_a=first, input_tensor_b=second, **more)


def name_of(one):
    return write_name(traced_of(one))


class TestNames:
    def test_a_name_says_all_of_a_configuration(self):
        one = add(
            tensor(1, 1, 32, 64, where=SHARDED, mesh=(4, 8)),
            tensor(1, 1, 1, 64, dtype="float32", layout="ROW_MAJOR", number=1),
            memory_config=memory("DRAM_INTERLEAVED"),
        )
        assert name_of(one) == (
            "ttnn.add(1x1x32x64 bfloat16 TILE L1_HEIGHT_SHARDED[32x64 ROW_MAJOR 0,0-7,3] on 4x8"
            " | 1x1x1x64 float32 ROW_MAJOR DRAM_INTERLEAVED) -> DRAM_INTERLEAVED"
        )
        assert read_name(name_of(one)) == traced_of(one)

    def test_a_memory_that_words_do_not_tell_is_packed(self):
        fields = dict(SHARDED.fields) | {"nd_shard_spec": SHARDED}
        odd = Struct("ttnn.MemoryConfig", tuple(fields.items()))
        one = case("ttnn.relu", input_tensor=tensor(32, 64, where=odd))
        assert "L1_HEIGHT_SHARDED~" in name_of(one)
        assert read_name(name_of(one)) == traced_of(one)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "traced_0",
            "ttnn.add()",
            "ttnn.add(1x1 bfloat16 TILE)",
            "ttnn.add(1x1 bfloat16 TILE L1_FAR)",
            "ttnn.add(1x1 bfloat16 TILE L1_HEIGHT_SHARDED[1x1 ROW_MAJOR 0,0-x])",
            "ttnn.add(1x1 bfloat16 TILE L1_INTERLEAVED~eJyrVsrPVrJSUAIADXoCjA==)",
            "ttnn.add(1x1 bfloat16 TILE L1_INTERLEAVED~!!)",
            "ttnn.add(1x1 bfloat16 TILE L1_INTERLEAVED~AAAA)",
        ],
    )
    def test_what_is_no_such_name_is_refused(self, name):
        with pytest.raises(NotFound, match="not the name of a traced configuration"):
            read_name(name)


class TestDistinct:
    def test_the_same_inputs_count_once_and_all_are_accounted_for(self):
        one = tensor(32, 32)
        cases = [
            add(one, one),
            add(one, one, memory_config=memory("L1_INTERLEAVED")),
            add(one, tensor(1, 32, number=1)),
            add(one, 2.0),
            case("ttnn.add", input_tensor_a=1, input_tensor_b=2),
        ]
        found = distinct("ttnn.add", cases)
        assert list(map(write_name, found.kept)) == [name_of(cases[0]), name_of(cases[2])]
        assert (found.traced, found.arity, found.repeated) == (5, 2, 1)
        assert (found.other_arity, found.untensored) == (1, 1)
        assert str(found).startswith("ttnn.add: 5 traced, 2 distinct, 1 without 2 tensors left out")
        assert len(distinct("ttnn.add", cases, arity=1).kept) == 1

    def test_inputs_are_in_the_order_of_signatures_whatever_their_names(self):
        sizes = {"bias": 1, "input_tensor_b": 2, "input_tensor_a": 3, "output": 4, "mask": 5}
        given = {name: tensor(size, 32) for name, size in sizes.items()}
        assert [spec.shape[0] for spec in tensors_of(case("ttnn.linear", **given))] == [3, 2, 5, 1]
        placed = {f"arg{place}": tensor(place + 1, 32) for place in range(12)}
        assert [spec.shape[0] for spec in tensors_of(case("ttnn.concat", **placed))] == list(
            range(1, 13)
        )


class TestCombinations:
    def test_are_made_of_all_specs_that_were_traced(self):
        cases = [
            case("ttnn.relu", input_tensor=tensor(32, 32)),
            case("ttnn.relu", input_tensor=tensor(64, 64, dtype="float32", where=SHARDED)),
        ]
        _, found = combinations("ttnn.relu", cases)
        assert len(found) == 2 * 2 * 2
        assert set(cases) <= set(found)
        assert len({name_of(each) for each in found}) == 8

    def test_too_many_are_refused_unless_a_sample_is_wanted(self):
        cases = [
            add(
                tensor(32, 32 * size, where=memory("L1_HEIGHT_SHARDED", shard((32, size), (7, 3)))),
                tensor(32, 32, where=memory("L1_HEIGHT_SHARDED", shard((32, size), (7, 3)))),
            )
            for size in range(1, 31)
        ]
        with pytest.raises(BadTarget, match=r"27,000 combinations.*at most 10,000"):
            combinations("ttnn.add", cases)
        sampled = [combinations("ttnn.add", cases, limit=9, seed=seed)[1] for seed in (1, 1, 2)]
        assert [len(each) for each in sampled] == [9, 9, 9]
        assert sampled[0] == sampled[1] != sampled[2]

    def test_of_nothing_are_empty(self):
        assert combinations("ttnn.zeros", [case("ttnn.zeros", shape=3)])[1] == ()
