import signal

import pytest

from optrove.frameworks.executor import Raised
from optrove.model.records import Outcome
from optrove.replay.judge import classify, fatal_fault, machine_fault


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("TT_FATAL: No chips detected in the cluster", "no board"),
        ("TT_THROW: Failed to allocate TLB window. Look at", "held by another process"),
        ("tt_tlb_alloc failed with error code -12", "held by another process"),
        ("Sysmem mapped at unexpected NOC address", "host memory of the board"),
        ("Timed out waiting for ETH heartbeat", "links between the chips"),
        ("Read 0xffffffff from PCIE: you should reset the board.", "does not answer any more"),
        ("Read 0xffffffff over PCIe ID 0: the board should be reset.", "does not answer any more"),
        ("OSError: [Errno 28] No space left on device", "disk of the host is full"),
    ],
)
def test_what_the_machine_says_is_not_the_operations_failure(text, reason):
    assert reason in machine_fault(text)
    outcome, words = classify(Raised("RuntimeError", text))
    assert outcome is Outcome.NOT_RUN
    assert words.startswith("the machine failed, not the operation: ")
    assert text in words


@pytest.mark.parametrize(
    "text",
    [
        "TT_FATAL @ x.cpp:1: Shapes must agree",
        "Timeout waiting for physical cores to finish",
        "Out of Memory: Not enough space to allocate 5 B",
        "the search window should be reset first",
    ],
)
def test_what_the_operation_says_is_its_own(text):
    assert machine_fault(text) is None


def test_a_process_that_was_killed_from_outside_says_nothing_about_its_operation():
    assert "killed from outside" in fatal_fault(-signal.SIGKILL, "")
    assert "ended from outside" in fatal_fault(-signal.SIGTERM, "")
    assert "does not answer" in fatal_fault(-signal.SIGABRT, "Read 0xffffffff from PCIE")
    assert fatal_fault(-signal.SIGSEGV, "last words") is None
    assert fatal_fault(1, "") is None
