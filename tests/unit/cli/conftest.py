import pytest


@pytest.fixture
def working_directory(tmp_path, monkeypatch):
    """An empty directory, without a trove in it or above it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPTROVE_STORE", raising=False)
    return tmp_path
