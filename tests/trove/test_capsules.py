"""The capsules of a trove go where its runs go, and with them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from optrove.errors import BadData
from optrove.journal.capsules import digest_of, packed
from optrove.trove.capsules import (
    FilesInDatabase,
    FilesInDirectory,
    capsules_of,
    copy_capsules,
    local_tensors,
    reading_capsules,
    remove_capsules,
    writing_capsules,
)
from optrove.trove.trove import open_trove

SHARED, OWN, OTHER = b"weights", b"first", b"second"


@pytest.fixture
def filled(place):
    """A trove with two runs, each with a capsule; they share one tensor."""
    with open_trove(place, create=True):
        pass
    with writing_capsules(place) as files:
        for document in (SHARED, OWN, OTHER):
            content, suffix = packed(document)
            files.write(digest_of(document) + suffix, content)
        for run, document in (("a" * 32, OWN), ("b" * 32, OTHER)):
            inputs = {"tensor 0": [digest_of(SHARED)], "tensor 1": [digest_of(document)]}
            line = {"call": 7, "case": "c" * 64, "inputs": inputs}
            files.write(f"{run}.0.jsonl", json.dumps(line).encode() + b"\n")
    return place


def tensors(place):
    with reading_capsules(place) as files:
        names = [name.partition(".")[0] for name in files.names()]
        return {name for name in names if len(name) == 64}


def test_capsules_are_found_by_case(filled):
    found = capsules_of(filled, ["c" * 64])["c" * 64]
    assert [(each.run_id[0], each.op_index) for each in found] == [("a", 7), ("b", 7)]
    assert capsules_of(filled, ["d" * 64]) == {}


def test_a_removed_run_takes_its_own_tensors_with_it(filled):
    remove_capsules(filled, ["a" * 32])
    assert tensors(filled) == {digest_of(SHARED), digest_of(OTHER)}
    remove_capsules(filled, ["b" * 32])
    assert tensors(filled) == set()


def test_a_merged_trove_has_the_capsules_of_both(filled, new_place):
    target = new_place()
    with open_trove(target, create=True):
        pass
    assert copy_capsules(filled, target) == 5
    assert copy_capsules(filled, target) == 0
    assert capsules_of(target) == capsules_of(filled)


def test_tensors_are_files_for_the_time_of_a_replay(filled):
    (capsule, _) = capsules_of(filled)["c" * 64]
    with local_tensors(filled, [replace(capsule)]) as directory:
        held = {each.name.partition(".")[0] for each in Path(directory).iterdir()}
        assert {digest_of(SHARED), digest_of(OWN)} <= held


ELSEWHERE = ["../x.0.jsonl", "/../../conftest.py", f"{'a' * 64}/../../x", "x.py", "", ".."]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_no_file_of_capsules_gets_a_name_that_leads_elsewhere(filled, tmp_path, name):
    with open_trove(filled, create=False) as trove:
        files = FilesInDatabase(trove.connection)
        trove.connection.execute(
            "INSERT INTO capsule_files (name, content) VALUES (:name, :content)",
            {"name": name, "content": b"x"},
        )
        assert name not in files.names()
        trove.connection.execute("DELETE FROM capsule_files WHERE name = :name", {"name": name})
    directory = tmp_path / "a" / "b" / "c.capsules"
    before = {*tmp_path.rglob("*")}
    with pytest.raises(BadData, match="not the name of a file of capsules"):
        FilesInDirectory(directory).write(name, b"x")
    assert {*tmp_path.rglob("*")} == before
