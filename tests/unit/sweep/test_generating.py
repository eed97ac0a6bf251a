"""Vectors are made of modules that need no framework, in this process."""

import json

import pytest

from optrove.errors import BadTarget
from optrove.sweep.generating import NOT_SAMPLED, Sample, Suite, generate, main

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


def arguments(found):
    """Return suite and arguments of each vector, as JSON."""
    return [
        (
            suite,
            {found.arguments[number][0]: json.loads(found.arguments[number][1]) for number in n},
        )
        for suite, _, n in found.vectors
    ]


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
    assert arguments(found)[0] == ("nightly", {"size": 1, "shape": [1, 2]})


def test_ids_are_the_same_each_time_and_differ_between_suites(made):
    again = [[each[:2] for each in made(MODULE).vectors] for _ in range(2)]
    assert again[0] == again[1]
    only = [each[:2] for each in made(MODULE, suite="xfail_odd").vectors]
    assert [suite for suite, _ in only] == ["xfail_odd", "xfail_odd"]
    assert set(only) <= set(again[0])


def test_what_could_not_be_made_again_is_left_out_with_its_reason(made):
    text = """
class Mine:
    pass

parameters = {"s": {"what": [1, Mine(), print, [len]]}}

def run(what, device):
    return True, ""
"""
    found = made(text)
    assert arguments(found) == [("s", {"what": 1})]
    assert sum(found.left_out.values()) == 3
    assert all(reason.startswith("cannot be recorded: ") for reason in found.left_out)
    assert any("a function or class" in reason for reason in found.left_out)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
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


@pytest.mark.parametrize(
    ("signature", "problem"),
    [("b, device", "missing a required argument: 'b'"), ("a", "unexpected keyword argument 'dev")],
)
def test_a_suite_that_run_does_not_take_is_left_out_and_the_others_are_not(
    made, signature, problem
):
    found = made(f"parameters = {{'s': {{'a': [1, 2]}}}}\ndef run({signature}): pass")
    ((reason, count),) = found.left_out.items()
    assert (count, found.vectors) == (2, [])
    assert "of suite 's', with whose parameters run of" in reason
    assert problem in reason


def permutations(name, parameters):
    suite = Suite(name, parameters)
    return [suite.vector(suite.rows(number)) for number in range(suite.count)]


def test_every_combination_is_made_with_the_last_parameter_fastest():
    vectors = permutations("nightly", {"shape": [[1], [2]], "dtype": ("a", "b")})
    assert [(each["shape"][0], each["dtype"]) for each in vectors] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]


def test_a_name_with_commas_keeps_values_together():
    vectors = permutations("s", {"shape,dtype": [([1], "a"), ([2], "b")], "dim": [0]})
    assert vectors == [
        {"shape": [1], "dtype": "a", "dim": 0},
        {"shape": [2], "dtype": "b", "dim": 0},
    ]


def test_a_suite_without_parameters_or_values_makes_no_vectors():
    assert permutations("empty", {}) == []
    assert permutations("empty", {"dtype": [], "dim": [1]}) == []


MANY = """
parameters = {
    "huge": {name: range(100) for name in "abcde"},
    "small": {name: [1] for name in "abcde"},
}

def invalidate_vector(vector):
    return vector["a"] % 2 and vector["suite_name"] == "huge", "odd"

def run(a, b, c, d, e, device):
    return True, ""
"""


def test_a_sample_of_any_number_of_permutations_is_valid_and_divided_among_the_suites(made):
    found = made(MANY, sample=Sample(9, seed=3))
    assert [suite for suite, _ in arguments(found)] == ["huge"] * 8 + ["small"]
    assert all(vector["a"] % 2 == 0 for suite, vector in arguments(found) if suite == "huge")
    assert found.permutations == 100**5 + 1 == 9 + sum(found.left_out.values())
    assert found.left_out[NOT_SAMPLED] > 100**4
    again, other = (made(MANY, sample=Sample(9, seed=seed)).vectors for seed in (3, 4))
    assert found.vectors == again != other


def test_more_than_ten_thousand_permutations_are_all_made_and_counted(made):
    found = made(
        "parameters = {'s': {'a': range(101), 'b': range(100)}}\nrun = lambda a, b, device: 0"
    )
    assert len(found.vectors) == 10_100
    assert found.notes == ["suite s has 10,100 permutations; --limit N takes a sample"]


OWN = """
import enum
from dataclasses import dataclass

class Outer:
    class Kind(enum.Enum):
        ROUND = enum.auto()

class Flavor(enum.Enum):
    SWEET = "sweet"

@dataclass
class Size:
    width: int

parameters = {"s": {"what": [Flavor.SWEET, Outer.Kind.ROUND, Size(3)]}}

def run(what, device):
    return True, ""
"""


def test_enums_and_dataclasses_of_a_module_can_be_values(made):
    found = made(OWN)
    values = [vector["what"] for _, vector in arguments(found)]
    assert found.left_out == {}
    assert values[0] == {"$symbol": "python.enum:sweeps.mine:Flavor", "name": "SWEET"}
    assert len(values) == 3


def test_texts_that_are_literals_are_values_as_in_tt_metal(made):
    texts = ["(1, 2)", "None", "[4, 8]", "sum", "relu", "__ABSENT__", "1.5", "{[]}", "a.b"]
    found = made(f"parameters = {{'s': {{'x': {texts!r}}}}}\nrun = lambda x, device: 0")
    values = [vector["x"] for _, vector in arguments(found)]
    assert values == [
        {"$tuple": [1, 2]},
        None,
        [4, 8],
        "sum",
        "relu",
        "__ABSENT__",
        1.5,
        "{[]}",
        "a.b",
    ]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ([1, 2], "is of list"),
        ({"dtype": "bfloat16"}, "'dtype' .* is of str"),
        ({"dim": 3}, "'dim' .* is of int"),
        ({"shape,dtype": [[1]]}, "shape,dtype that is not a tuple of 2"),
    ],
)
def test_what_is_not_a_suite_is_refused(parameters, problem):
    with pytest.raises(BadTarget, match=problem):
        Suite("odd", parameters)
