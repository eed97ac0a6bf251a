import pytest


def test_an_unknown_board_is_a_usage_error_that_lists_the_known(pytester):
    result = pytester.runpytest_subprocess("--optrove-board", "n3000")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no board is called 'n3000'*n300*bh-galaxy*"])


def test_an_empty_board_name_is_a_usage_error(pytester):
    result = pytester.runpytest_subprocess("--optrove-board", "")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no board is called ''*"])


def test_shadow_without_a_board_is_a_usage_error(pytester, monkeypatch):
    monkeypatch.delenv("OPTROVE_BOARD", raising=False)
    result = pytester.runpytest_subprocess("--optrove-shadow")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--optrove-shadow needs a mock board: add --optrove-board NAME*"])


def test_without_an_option_nothing_is_imported(pytester):
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            assert "ttnn" not in sys.modules
            assert not [name for name in sys.modules if name.startswith("optrove.frameworks")]
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_options_explain_themselves(pytester):
    result = pytester.runpytest_subprocess("--help")
    result.stdout.fnmatch_lines(["*--optrove-board=NAME*", "*--optrove-shadow*"])
