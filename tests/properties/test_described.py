"""Cases are described alike on every way, whatever they hold and however they are spelled."""

import hashlib
import random
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from optrove.journal.calls import Dictionary
from optrove.journal.format import LINES
from optrove.journal.reader import JournalReader
from optrove.journal.writer import Journal, Numbering
from optrove.model.case import obstacles
from optrove.model.values import TtnnPlacement
from optrove.serializer import plain
from optrove.serializer.describe import Describer
from optrove.serializer.described import Descriptions, WrittenParts, case_of, describe_case, part_of
from optrove.serializer.hashes import family_of, fingerprint, placement_hash, semantics
from optrove.serializer.tables import Tables
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode, encode

bounded = settings(max_examples=100, deadline=None)
tensors = strategies.tensors_of(strategies.structs_of(strategies.leaves))


@bounded
@given(st.lists(strategies.cases, max_size=5))
def test_many_cases_are_described_as_each_alone(cases):
    descriptions = Descriptions()
    repeated = [*cases, *cases]
    assert [descriptions.of(case) for case in repeated] == list(map(describe_case, repeated))


@bounded
@given(strategies.cases)
def test_a_described_case_has_the_hashes_of_the_plain_way(case):
    described = describe_case(case)
    assert described.case_id == placement_hash(case)
    assert described.case_id == hashlib.sha256(described.content.encode("ascii")).hexdigest()
    computed = {name: semantics(value) for name, value in case.arguments}
    kept = {name: encode(value) for name, value in computed.items() if value is not None}
    assert described.semantic_id == fingerprint({"op": case.op, "arguments": kept})
    families = {name: encode(family_of(value)) for name, value in case.arguments}
    assert described.family_id == fingerprint({"op": case.op, "arguments": families})
    assert described.replayable == (not obstacles(case))
    assert case_of(described.content) == case
    assert [each.place for each in described.tensors] == [*range(len(described.tensors))]


def respelled(data, chance):
    """Return data that says the same with other orders where these do not count."""
    if isinstance(data, list):
        return [respelled(item, chance) for item in data]
    if not isinstance(data, dict):
        return data
    items = [(key, respelled(item, chance)) for key, item in data.items()]
    chance.shuffle(items)
    for key, item in items:
        if key in ("$set", "$frozenset", "$map"):
            chance.shuffle(item)
    return dict(items)


@bounded
@given(st.lists(strategies.values, max_size=3), st.integers(0, 1000))
def test_the_spelling_of_a_value_does_not_count(values, seed):
    chance = random.Random(seed)  # noqa: S311 - orders, not secrets
    written = WrittenParts()
    for value in values * 2:
        assert written.part(read(write(respelled(encode(value), chance)))) == part_of(value)


@bounded
@given(tensors, strategies.sizes, strategies.sizes, st.tuples(*[strategies.numbers] * 3))
def test_tensors_that_differ_in_shapes_and_numbers_are_described_as_by_themselves(
    spec, shape, padded, numbers
):
    written = WrittenParts()
    other = encode(spec)
    other["$tensor"]["shape"] = list(shape)
    if isinstance(spec.placement, TtnnPlacement):
        other["$tensor"]["placement"]["padded_shape"] = list(padded)
    identity, storage, device = numbers
    for data in (encode(spec), other, encode(spec)):
        parts = written.tensor(data)
        assert parts.own() == part_of(decode(data))
        expected = numbered(decode(data), identity, storage, device)
        assert parts.part(identity, storage, device) == part_of(expected)


def numbered(spec, identity, storage, device):
    """Return a tensor with the numbers that it has within a call."""
    placement = spec.placement
    if isinstance(placement, TtnnPlacement):
        placement = replace(placement, device=device)
    return replace(spec, identity=identity, storage=storage, placement=placement)


@settings(max_examples=30, deadline=None)
@given(st.lists(strategies.cases, max_size=4), st.lists(strategies.values, max_size=4))
def test_a_journal_gives_cases_and_outputs_as_they_were_described(cases, results):
    with tempfile.TemporaryDirectory() as name:
        journal = Journal(Path(name), 0)
        numbering = Numbering(journal)
        numbers = {}
        for case in cases:
            session = Describer(Tables([plain.table()]))
            made = numbering.case(case.op, dict(case.arguments), session, keep=True)
            numbers[made.number] = case
        numbering.outputs(results, Describer(Tables([plain.table()])))
        journal.close()
        lines = journal.path.with_name(journal.path.name + LINES)
        reader = JournalReader(lines)
        assert reader.case_ids().keys() == numbers.keys()
        for number, case in numbers.items():
            assert reader.case(number) == describe_case(case)
            assert case_of(reader.case(number).content) == case
        ((number, is_error, text),) = reader.endings()
        assert (number, is_error) == (1, False)
        assert text == write([encode(value) for value in results])
        known = Dictionary(reader.dictionary())
        assert known.entry("outputs", 1) == [encode(value) for value in results]
        ids = {int(each): case_id for each, case_id in known.table("cases")}
        assert ids == {number: placement_hash(case) for number, case in numbers.items()}
