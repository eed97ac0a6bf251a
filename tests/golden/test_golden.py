"""Files of every format version must load for ever, and hashes must never change."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from optrove.model.case import Case
from optrove.model.records import Attempt, Call, Job, Query, Run, TestResult
from optrove.serializer.described import describe_case
from optrove.serializer.hashes import canonical_bytes, fingerprint, placement_hash
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.serializer.wire import decode, encode

HERE = Path(__file__).parent
# The first line is a header with the version of the format.
RECORDS = [json.loads(line) for line in (HERE / "records-1.jsonl").read_bytes().splitlines()[1:]]
KINDS = {
    "case": Case,
    "run": Run,
    "test_result": TestResult,
    "call": Call,
    "job": Job,
    "attempt": Attempt,
    "query": Query,
}
CANONICAL = json.loads((HERE / "canonical-1.json").read_text(encoding="ascii"))


def by_name(kind):
    return {"argvalues": list(CANONICAL[kind].values()), "ids": list(CANONICAL[kind])}


@pytest.mark.parametrize("line", RECORDS, ids=[line["kind"] for line in RECORDS])
def test_every_record_loads_and_is_written_as_it_was(line):
    record = record_from_builtins(line["record"], KINDS[line["kind"]])
    assert record_to_builtins(record) == line["record"]


def test_there_is_a_golden_record_of_every_kind():
    assert {line["kind"] for line in RECORDS} == set(KINDS)


@pytest.mark.parametrize("example", **by_name("values"))
def test_a_value_has_the_bytes_and_the_hash_that_it_always_had(example):
    value = decode(example["data"])
    assert canonical_bytes(value).decode("ascii") == example["canonical"]
    assert fingerprint(encode(value)) == example["sha256"]


@pytest.mark.parametrize("example", **by_name("cases"))
def test_a_case_has_the_hashes_that_it_always_had(example):
    case = record_from_builtins(example["data"], Case)
    assert placement_hash(case) == example["placement"]
    assert describe_case(case).semantic_id == example["semantic"]


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
