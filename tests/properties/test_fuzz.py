"""Mutated documents end in success or in BadData, and in nothing else."""

import copy
import io
import random
from pathlib import Path

import pytest

from mutations import ends_well, mutate
from optrove.model.case import Case
from optrove.model.records import Attempt, Call, Job, Query, Run, TestResult
from optrove.runconfig import jsonable
from optrove.runconfig.jsonable import from_jsonable
from optrove.serializer.op_lines import read_op_lines
from optrove.serializer.records import record_from_builtins
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode, encode

KINDS = {
    "case": Case,
    "run": Run,
    "test_result": TestResult,
    "call": Call,
    "job": Job,
    "attempt": Attempt,
    "query": Query,
}
GOLDEN = Path(__file__).parents[1] / "golden"
DOCUMENTS = 30_000


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(jsonable, "is_importable", lambda framework: False)


def seeds():
    lines = (GOLDEN / "records-1.jsonl").read_bytes().splitlines()[1:]
    documents = [read(line) for line in lines]
    values = [
        item
        for document in documents
        if document["kind"] == "case"
        for item in document["record"]["arguments"].values()
    ]
    return documents, values


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_installed")
def test_mutated_documents_end_in_success_or_bad_data():
    chance = random.Random(20260101)  # noqa: S311 - a repeatable test, not a secret
    records, values = seeds()
    counts = {True: 0, False: 0}
    for number in range(DOCUMENTS):
        if number % 10 == 0:
            document = copy.deepcopy(chance.choice(records))
            mutate(document["record"], chance)
            good = ends_well(record_from_builtins, document["record"], KINDS[document["kind"]])
        else:
            holder = [copy.deepcopy(chance.choice(values))]
            mutate(holder, chance)
            good = ends_well(from_jsonable, holder)
            if ends_well(decode, holder):
                assert decode(read(write(encode(decode(holder))))) == decode(holder)
        counts[good] += 1
    assert min(counts.values()) > DOCUMENTS // 50


@pytest.mark.usefixtures("nothing_installed")
def test_mutated_bytes_end_in_success_or_bad_data():
    chance = random.Random(20260102)  # noqa: S311 - a repeatable test, not a secret
    _, values = seeds()
    call = {"run_id": "r", "test_nodeid": None, "module": None, "op_index": 0, "op_name": "ttnn.x"}
    lines = [
        f"{write({**call, 'inputs': [value], 'kwargs': {'a': value}, 'output': value})}\n".encode()
        for value in values
    ]
    for _ in range(2000):
        content = bytearray(b"".join(chance.sample(lines, 2)))
        for _ in range(chance.randint(1, 4)):
            start = chance.randrange(len(content))
            content[start : start + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        if chance.random() < 0.3:
            del content[chance.randrange(len(content)) :]
        list(read_op_lines(io.BytesIO(bytes(content))))
