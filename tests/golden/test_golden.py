"""Files of every format version must load for ever, and hashes must never change."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from optrove.model.case import Case
from optrove.serializer.hashes import canonical_bytes, fingerprint, placement_hash, semantic_hash
from optrove.serializer.lines import CURRENT_VERSION, read_lines, write_lines
from optrove.serializer.records import KINDS, record_from_builtins
from optrove.serializer.wire import decode, encode

HERE = Path(__file__).parent
RECORD_FILES = sorted(HERE.glob("records-*.jsonl"))
CANONICAL = json.loads((HERE / "canonical-1.json").read_text(encoding="ascii"))


def by_name(kind):
    return {"argvalues": list(CANONICAL[kind].values()), "ids": list(CANONICAL[kind])}


def test_there_is_a_golden_file_of_every_version():
    versions = range(1, CURRENT_VERSION + 1)
    assert [path.name for path in RECORD_FILES] == [f"records-{each}.jsonl" for each in versions]


@pytest.mark.parametrize("path", RECORD_FILES, ids=[path.name for path in RECORD_FILES])
def test_every_record_of_every_version_loads(path):
    with path.open("rb") as stream:
        records = read_lines(stream)
    assert {type(record) for record in records} == set(KINDS.values())
    assert len(records) == len(path.read_bytes().splitlines()) - 1


def test_the_current_version_is_written_as_it_was():
    path = HERE / f"records-{CURRENT_VERSION}.jsonl"
    with path.open("rb") as stream:
        records = read_lines(stream)
    again = io.BytesIO()
    write_lines(again, records)
    assert again.getvalue() == path.read_bytes()


@pytest.mark.parametrize("example", **by_name("values"))
def test_a_value_has_the_bytes_and_the_hash_that_it_always_had(example):
    value = decode(example["data"])
    assert canonical_bytes(value).decode("ascii") == example["canonical"]
    assert fingerprint(encode(value)) == example["sha256"]


@pytest.mark.parametrize("example", **by_name("cases"))
def test_a_case_has_the_hashes_that_it_always_had(example):
    case = record_from_builtins(example["data"], Case)
    assert placement_hash(case) == example["placement"]
    assert semantic_hash(case) == example["semantic"]


PRINT_HASH = """
import sys
from optrove.serializer.hashes import fingerprint
from optrove.serializer.wire import encode
from optrove.model.values import Int, List, Mapping, Set, Text
texts = [Text(str(number)) for number in range(50)]
mixed = Set(frozenset([*texts, *map(Int, range(50))]))
mapping = Mapping(frozenset((text, mixed) for text in texts))
keyed = Mapping(frozenset((Int(number), mapping) for number in range(5)))
sys.stdout.write(fingerprint(encode(List((mixed, mapping, keyed)))))
"""


def test_hashes_do_not_depend_on_the_hash_seed():
    found = {
        subprocess.run(
            [sys.executable, "-c", PRINT_HASH],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert len(found) == 1
