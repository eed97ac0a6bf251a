import os
import pwd
import stat
import tempfile
from pathlib import Path

import pytest

from optrove.errors import BadSetting
from optrove.settings import (
    BOARD,
    SHADOW,
    cache_directory,
    environment,
    home_for_ttnn,
    with_defaults,
)


def test_an_empty_environment_gives_the_defaults(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    for name in ("OPTROVE_BOARD", "OPTROVE_SHADOW", "OPTROVE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert (BOARD.value, SHADOW.is_on) == (None, False)
    assert cache_directory() == Path("/home/somebody/.cache/optrove")


def test_variables_are_read(monkeypatch, tmp_path):
    monkeypatch.setenv("OPTROVE_BOARD", "t3k")
    monkeypatch.setenv("OPTROVE_SHADOW", "Yes")
    monkeypatch.setenv("OPTROVE_CACHE", str(tmp_path))
    assert (BOARD.value, SHADOW.is_on) == ("t3k", True)
    assert cache_directory() == tmp_path


def test_a_relative_cache_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPTROVE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert cache_directory() == tmp_path / "here" / "optrove"


def test_a_default_cache_with_a_space_in_its_path_gives_way_to_a_private_one(monkeypatch, tmp_path):
    monkeypatch.delenv("OPTROVE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/some body")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = cache_directory()
    assert found == tmp_path / f"optrove-{os.getuid()}"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    found.chmod(0o777)
    with pytest.raises(BadSetting, match="other users may write; set OPTROVE_CACHE"):
        cache_directory()


def test_a_home_that_cannot_be_found_is_an_error_that_says_what_to_set(monkeypatch):
    monkeypatch.setenv("OPTROVE_CACHE", "~no-such-user/cache")
    with pytest.raises(BadSetting, match="set OPTROVE_CACHE to a directory"):
        cache_directory()


def test_other_processes_have_a_home_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert with_defaults({})["HOME"] == "/home/somebody"
    assert home_for_ttnn() == {}
    monkeypatch.delenv("HOME")
    known = pwd.getpwuid(os.getuid()).pw_dir
    assert with_defaults({})["HOME"] == home_for_ttnn()["HOME"] == known


def test_a_user_without_a_home_directory_is_told_what_to_set(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 123_456_789)
    assert "HOME" not in with_defaults({})
    with pytest.raises(BadSetting, match="ttnn crashes without one; set HOME to a directory"):
        home_for_ttnn()


def test_a_switch_that_means_nothing_is_an_error_that_says_what_to_set(monkeypatch):
    monkeypatch.setenv("OPTROVE_SHADOW", "maybe")
    with pytest.raises(BadSetting, match="OPTROVE_SHADOW is 'maybe'; set it to 1 or 0"):
        _ = SHADOW.is_on


def look_and_fail(names, seen):
    seen.update({name: os.environ.get(name) for name in names})
    raise KeyError


def test_the_environment_is_as_before_even_after_an_error(monkeypatch):
    monkeypatch.setenv("OPTROVE_TEST_A", "old")
    monkeypatch.delenv("OPTROVE_TEST_B", raising=False)
    before = dict(os.environ)
    changes = {"OPTROVE_TEST_A": None, "OPTROVE_TEST_B": "new"}
    seen = {}
    with pytest.raises(KeyError), environment(changes):
        look_and_fail(changes, seen)
    assert seen == changes
    assert dict(os.environ) == before
