"""Vectors are made of modules that need no framework, in this process."""

import json

import pytest

from optrove.errors import BadTarget
from optrove.model.values import Int, List
from optrove.serializer.described import case_of
from optrove.sweep.generating import generate, main, permutations

MODULE = """
TIMEOUT = 7
parameters = {
    "nightly": {"size": [1, 2, 2, 3], "shape": [[1, 2]]},
    "xfail_odd": {"size,shape": [(4, (1,)), (5, None)]},
    "empty": {"size": []},
}


def invalidate_vector(vector):
    if vector["suite_name"] == "nightly" and vector["size"] == 3:
        return True, "three is too many\\nby far"
    return False, None


def run(size, shape, *, device):
    return True, ""
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    monkeypatch.setattr("sys.path", list(__import__("sys").path))


@pytest.fixture
def made(tmp_path):
    def write(text, **how):
        (tmp_path / "sweeps").mkdir(exist_ok=True)
        file = tmp_path / "sweeps" / "mine.py"
        file.write_text(text)
        return generate(file, **how)

    return write


def test_every_permutation_is_a_vector_or_counted_as_left_out(made):
    found = made(MODULE)
    assert (found.name, found.timeout) == ("mine", 7.0)
    assert found.permutations == 6 == len(found.vectors) + sum(found.left_out.values())
    assert found.left_out == {
        "the same as another vector": 1,
        "invalid: three is too many": 1,
    }
    assert found.suites == ["nightly", "xfail_odd", "empty"]
    assert found.notes == ["suite empty has no vectors: a list of its parameters is empty"]
    suite, _, content = found.vectors[0]
    one = case_of(content)
    assert (suite, one.op) == ("nightly", "sweep.mine.nightly")
    assert dict(one.arguments) == {"size": Int(1), "shape": List((Int(1), Int(2)))}


def test_ids_are_the_same_each_time_and_differ_between_suites(made):
    again = [made(MODULE).vectors for _ in range(2)]
    assert again[0] == again[1]
    only = made(MODULE, suite="xfail_odd")
    assert [each[0] for each in only.vectors] == ["xfail_odd", "xfail_odd"]
    assert set(only.vectors) <= set(again[0])


def test_what_could_not_be_made_again_is_left_out_with_its_reason(made):
    text = """
class Mine:
    pass

parameters = {"s": {"what": [1, Mine(), print, [len]]}}

def run(what, device):
    return True, ""
"""
    found = made(text)
    assert [json.loads(content)["arguments"] for _, _, content in found.vectors] == [{"what": 1}]
    assert sum(found.left_out.values()) == 3
    assert all(reason.startswith("cannot be recorded: ") for reason in found.left_out)
    assert any("a function or class" in reason for reason in found.left_out)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("parameters = {'s': {'a': [1]}}\ndef run(b, device): pass", "missing a required argument"),
        (
            "parameters = {'s': {'a': [1]}}\ndef run(a): pass",
            "unexpected keyword argument 'device'",
        ),
        ("parameters = {'s': 3}\ndef run(device): pass", "suite 's' is of int"),
        ("parameters = {'$s': {}}\nrun = print", "give it a name that can be read"),
        ("parameters = {}\nrun = print\nTIMEOUT = 'long'", "TIMEOUT of .* is 'long'"),
        (
            (
                "parameters = {'s': {'a': [1]}}\nrun = lambda a, device: 0\n"
                "invalidate_vector = lambda v: v['b']"
            ),
            "invalidate_vector of .* failed on a vector of suite 's': KeyError",
        ),
        ("import sys\nsys.exit('bye')", r"sys\.exit\('bye'\)"),
    ],
)
def test_the_faults_of_a_module_are_named(made, text, problem):
    with pytest.raises(BadTarget, match=problem):
        made(text)


def test_an_unknown_suite_lists_those_there_are(made):
    with pytest.raises(BadTarget, match=r"no suite 'weekly'; it has nightly, xfail_odd, empty"):
        made(MODULE, suite="weekly")


def test_what_loaders_log_is_a_note(made):
    found = made(
        "import logging\nlogging.getLogger('optrove.x').info('81 traced, 67 distinct')\n"
        "parameters = {}\nrun = print"
    )
    assert found.notes == ["81 traced, 67 distinct"]
    assert not logging_handlers()


def logging_handlers():
    import logging

    return logging.getLogger("optrove").handlers


def test_the_process_writes_down_what_it_made_or_what_was_wrong(tmp_path):
    file, output = tmp_path / "mine.py", tmp_path / "out.json"
    file.write_text(MODULE)
    assert main([str(file), str(output), "--suite", "nightly"]) == 0
    assert len(json.loads(output.read_text())["vectors"]) == 2
    file.write_text("1 / 0")
    assert main([str(file), str(output)]) == 0
    assert "ZeroDivisionError" in json.loads(output.read_text())["error"]


def test_every_combination_is_made_with_the_last_parameter_fastest():
    vectors = list(permutations("nightly", {"shape": [[1], [2]], "dtype": ("a", "b")}))
    assert [(each["shape"][0], each["dtype"]) for each in vectors] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]


def test_a_name_with_commas_keeps_values_together():
    vectors = list(permutations("s", {"shape,dtype": [([1], "a"), ([2], "b")], "dim": [0]}))
    assert vectors == [
        {"shape": [1], "dtype": "a", "dim": 0},
        {"shape": [2], "dtype": "b", "dim": 0},
    ]


def test_a_suite_without_parameters_or_values_makes_no_vectors():
    assert list(permutations("empty", {})) == []
    assert list(permutations("empty", {"dtype": [], "dim": [1]})) == []


def test_ten_thousand_are_allowed_and_one_more_names_suite_and_count():
    assert len(list(permutations("big", {"a": range(100), "b": range(100)}))) == 10_000
    with pytest.raises(BadTarget, match=r"'big' has 10,100 permutations \(101 a x 100 b\)"):
        permutations("big", {"a": range(101), "b": range(100)})


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ([1, 2], "is of list"),
        ({"dtype": "bfloat16"}, "'dtype' .* is of str"),
        ({"dim": 3}, "'dim' .* is of int"),
        ({"shape,dtype": [[1]]}, "shape,dtype that is no tuple of 2"),
    ],
)
def test_what_is_not_a_suite_is_refused(parameters, problem):
    with pytest.raises(BadTarget, match=problem):
        permutations("odd", parameters)
