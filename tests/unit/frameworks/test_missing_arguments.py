"""Arguments that a recording lacks are supplied, and a refusal is blamed on the recording."""

import inspect

import pytest

from optrove.frameworks.executor import Raised
from optrove.frameworks.ttnn.execute.invoking import Target
from optrove.frameworks.ttnn.execute.missing_arguments import MissingArguments
from optrove.frameworks.ttnn.execute.positional_arguments import argument_passing
from optrove.frameworks.ttnn.signatures import read_stub
from optrove.model.values import Handle, Int, List, Mapping, Null, Opaque, Text

SEMAPHORE = "ttnn._ttnn.global_semaphore.global_semaphore"
GATHER = Target(
    None,
    (
        read_stub(
            "def all_gather_async(self, x: int, dim: int, "
            f"multi_device_global_semaphore: collections.abc.Sequence[{SEMAPHORE}], *, "
            f"barrier_semaphore: {SEMAPHORE} | None = \\0, num_links: int = \\1) -> int"
        ),
    ),
)
REFUSED = Raised("RuntimeError", "TT_FATAL: no")
NOT_TAKEN = Raised("TypeError", "all_gather_async(): incompatible function arguments.")


def filled(target, **arguments):
    missing = MissingArguments()
    passing = argument_passing(target, arguments)
    return missing.fill(target, passing), missing


@pytest.mark.parametrize("names", [("x", "dim"), ("arg0", "arg1"), ("arg0", "dim")])
def test_required_semaphores_are_supplied_and_optional_ones_are_not(names):
    values, missing = filled(GATHER, **dict.fromkeys(names, Int(3)), num_links=Int(1))
    supplied = values["multi_device_global_semaphore"]
    assert supplied == List(tuple(Handle("ttnn.GlobalSemaphore", None, n) for n in (1000, 1001)))
    assert "barrier_semaphore" not in values
    (note,) = missing.notes
    assert note.startswith("multi_device_global_semaphore was not recorded; used instead")
    assert missing.excuse(REFUSED) is None
    assert missing.excuse(NOT_TAKEN) is None


def test_semaphores_that_were_recorded_stay():
    own = List((Handle("ttnn.GlobalSemaphore", None, 0),))
    values, missing = filled(GATHER, x=Int(1), dim=Int(3), multi_device_global_semaphore=own)
    assert values["multi_device_global_semaphore"] == own
    assert missing.notes == []


def test_another_required_argument_is_named_and_nothing_is_supplied():
    values, missing = filled(GATHER, x=Int(1), num_links=Int(1))
    assert "multi_device_global_semaphore" not in values
    excuse = missing.excuse(NOT_TAKEN)
    assert excuse is not None
    assert excuse.startswith("the recording lacks the required argument dim")
    assert missing.excuse(REFUSED) is None


def test_a_refusal_for_the_sake_of_semaphores_is_no_verdict():
    _, missing = filled(GATHER, x=Int(1), dim=Int(3))
    refused = Raised("RuntimeError", "TT_FATAL: expected 4 semaphores\nbacktrace: ...")
    excuse = missing.excuse(refused)
    names = "barrier_semaphore, multi_device_global_semaphore"
    assert excuse == f"the recording lacks the semaphores {names}"
    other = Raised("RuntimeError", "TT_FATAL: no\nbacktrace: global_semaphore.cpp")
    assert missing.excuse(other) is None


def test_an_argument_without_a_parameter_is_named_or_left_out_if_it_is_none():
    values, missing = filled(GATHER, x=Int(1), dim=Int(3), newer=Null(), other=Int(1))
    assert "newer" not in values
    assert values["other"] == Int(1)
    assert any("no parameter newer" in note for note in missing.notes)
    assert "no parameter for other" in (missing.excuse(NOT_TAKEN) or "")


def test_a_value_that_cannot_be_converted_is_named():
    odd = Mapping(frozenset({(Text("a"), Int(1))}))
    _, missing = filled(GATHER, x=Int(1), dim=odd)
    assert "cannot be converted: dim" in (missing.excuse(NOT_TAKEN) or "")


def test_a_refusal_of_a_call_with_a_lost_argument_is_no_verdict():
    lost = Opaque("std::array<int>", "[ unsupported type , std::array<int>]")
    conv = Target(None, (read_stub("def conv(self, x: int, stride: int = \\0) -> int"),))
    values, missing = filled(conv, x=Int(1), stride=lost)
    assert "stride" not in values
    assert missing.notes == ["stride was not recorded; left at its default"]
    excuse = missing.excuse(REFUSED)
    assert excuse is not None
    assert excuse.startswith("the recording lost the value of stride")


def test_a_required_argument_of_a_python_function_is_named():
    signature = inspect.signature(lambda x, dim, *, scale, mode=1: None)
    _, missing = filled(Target(None, (), signature), arg0=Int(1))
    excuse = missing.excuse(Raised("TypeError", "missing 2 required arguments"))
    assert excuse == "the recording lacks the required argument dim, scale"
