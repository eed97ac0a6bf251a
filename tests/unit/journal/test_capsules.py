"""Files of tensors: named by their content, whole or not there, within a limit."""

import errno
from pathlib import Path

import pytest

from optrove.errors import BadData
from optrove.journal.capsules import COMPRESSED, PLAIN, Budget, TensorFiles, digest_of, packed


@pytest.fixture
def files(tmp_path):
    return TensorFiles(tmp_path / "tensors")


def put(files, document):
    digest = digest_of(document)
    files.write(digest, *packed(document))
    return digest


@pytest.mark.parametrize(("document", "suffix"), [(bytes(100_000), COMPRESSED), (b"ab", PLAIN)])
def test_a_document_is_read_as_it_was_written(files, document, suffix):
    digest = put(files, document)
    assert files.path(digest).name == digest + suffix
    assert files.read(digest) == document
    assert list(files) == [digest]


def test_a_changed_file_is_a_fault_with_its_path(files):
    digest = put(files, b"ab")
    files.path(digest).write_bytes(b"ac")
    with pytest.raises(BadData, match="was changed"):
        files.read(digest)


def test_a_missing_tensor_is_a_fault(files):
    with pytest.raises(BadData, match="is not in"):
        files.read("0" * 64)


def test_a_name_that_is_no_hash_leads_nowhere(files):
    assert files.path("../../etc/passwd") is None


def test_a_full_disk_leaves_no_part_of_a_file(files, monkeypatch):
    def write_bytes(path, _):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(OSError, match="No space"):
        put(files, b"ab")
    assert list(files.directory.iterdir()) == []


def test_all_processes_of_a_run_share_one_limit(tmp_path):
    one, other = (Budget(tmp_path / "used", 100) for _ in range(2))
    assert one.take(60)
    assert not other.take(41)
    assert other.take(40)
    one.give_back(60)
    assert other.take(60)
