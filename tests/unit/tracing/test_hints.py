"""What is hinted at after a traced program has failed, and that nothing is where nothing helps."""

from dataclasses import replace

import pytest

from optrove.model.records import DeviceKind
from optrove.replay import device_choice
from optrove.report.summary import is_assertion, summarize
from optrove.tracing.results import PLUGIN, hints
from troves import ENVIRONMENT, run_of


@pytest.fixture(autouse=True)
def devices(monkeypatch, tmp_path):
    """A machine without a board."""
    monkeypatch.setattr(device_choice, "DEVICE_DIRECTORY", tmp_path / "tenstorrent")
    return tmp_path / "tenstorrent"


def summary(kind, asserted=0, **tests):
    run = run_of(environment=replace(ENVIRONMENT, device_kind=kind))
    return replace(summarize([]), run=run, tests=tuple(tests.items()), asserted=asserted)


def test_a_missing_board_gives_a_hint_about_mock_boards(devices):
    for failed in (
        hints(summary(DeviceKind.HARDWARE, error=2), 1),
        hints(summary(DeviceKind.HARDWARE, failed=3, asserted=2), 1),
        hints(summary(DeviceKind.HARDWARE), 1),  # a script, or tests that cannot be imported
    ):
        (hint,) = failed
        assert "no Tenstorrent device was found" in hint
        assert "--board n150" in hint
        assert "optrove boards" in hint
    (hint,) = hints(summary(DeviceKind.HARDWARE, error=2), 1, PLUGIN)
    assert "--optrove-board n150" in hint
    devices.mkdir()
    (devices / "0").touch()
    assert hints(summary(DeviceKind.HARDWARE, error=2), 1) == ()


def test_failed_comparisons_on_a_mock_board_give_a_hint_about_the_shadow():
    (hint,) = hints(summary(DeviceKind.MOCK, failed=2, asserted=1), 1)
    assert hint.startswith("assertions failed in 1 test. ")
    assert " --shadow has torch compute them" in hint


@pytest.mark.parametrize(
    ("found", "exit_code"),
    [
        (summary(DeviceKind.HARDWARE, passed=2), 0),
        (summary(DeviceKind.HARDWARE, failed=2, asserted=2), 1),
        (summary(DeviceKind.HARDWARE), 5),
        (summary(DeviceKind.HOST, failed=2), 1),
        (summary(DeviceKind.MOCK, failed=2), 1),
        (summary(DeviceKind.SHADOW, failed=2, asserted=2), 1),
        (summarize([]), 1),
    ],
)
def test_nothing_is_hinted_at_where_it_would_not_help(found, exit_code):
    assert hints(found, exit_code) == ()


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        ("/a/test_x.py:13: assert False\n +  where False = allclose()", True),
        ("/a/test_x.py:13: AssertionError: PCC 0.1 < 0.99", True),
        ("AssertionError", True),
        ("/a/ttnn.py:12: RuntimeError: TT_FATAL @ a.cpp:79: a == b", False),
        ("/a/ttnn.py:12: RuntimeError: no\nassert False", False),
        ("/a/x.py:1: ValueError: assertion", False),
        ("", False),
    ],
)
def test_a_failed_assertion_is_known_by_the_words_of_pytest(error, is_one):
    assert is_assertion(error) is is_one
