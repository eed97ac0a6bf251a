"""Mutated documents of real ttnn objects end in success or in BadData, and in nothing else."""

import copy
import random

import pytest

from mutations import ends_well, mutate, places
from optrove.frameworks.ttnn.convert import table as values
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer.tables import StructConverter
from ttnn_samples import Samples, sharded_memories, sharded_specs

pytestmark = pytest.mark.ttnn

DOCUMENTS = 15_000
EDGE_DOCUMENTS = 3_000


@pytest.fixture(scope="module")
def seeds(ttnn):
    found, table = values.find(ttnn), values.table()
    samples = Samples(ttnn, found, table)
    return [
        to_jsonable(live)
        for cls in found.values
        if isinstance(table.by_type.get(cls), StructConverter)
        for live in samples.of_class(cls)
    ]


@pytest.fixture(scope="module")
def placements(ttnn):
    """Documents of shards, tensor specs and ranges: what ttnn computes with when it is made."""
    samples = Samples(ttnn, values.find(ttnn), values.table())
    live = [
        *sharded_memories(ttnn),
        *sharded_specs(ttnn),
        *samples.of_class(ttnn.MeshCoordinateRange),
    ]
    return [to_jsonable(item) for item in live]


@pytest.mark.slow
def test_mutated_configurations_end_in_success_or_bad_data(seeds):
    chance = random.Random(20260103)  # noqa: S311 - a repeatable test, not a secret
    counts = {True: 0, False: 0}
    for _ in range(DOCUMENTS):
        holder = [copy.deepcopy(chance.choice(seeds))]
        mutate(holder, chance)
        counts[ends_well(from_jsonable, holder)] += 1
    assert min(counts.values()) > DOCUMENTS // 50


EDGES = (0, 1, 3, 32, 33, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, -1)


def set_edges(data, chance, table):
    """Put edge cases of their own kind in place of one to three numbers or symbols."""
    spots = [
        (container, key)
        for container, key in places(data)
        if type(container[key]) is int or key == "name"
    ]
    for container, key in chance.choices(spots, k=chance.randint(1, 3)):
        if key == "name":
            members = table.by_name[container["$symbol"]].members
            container[key] = chance.choice(list(members))
        else:
            container[key] = chance.choice(EDGES)


def test_edge_cases_of_sizes_never_end_the_process(ttnn, placements):
    """A size of zero divides by zero in C++, a count that wraps around does too."""
    chance, table = random.Random(7), values.table()  # noqa: S311 - a repeatable test, not a secret
    counts = {True: 0, False: 0}
    for _ in range(EDGE_DOCUMENTS):
        holder = [copy.deepcopy(chance.choice(placements))]
        set_edges(holder, chance, table)
        counts[ends_well(lambda data: to_jsonable(from_jsonable(data)), holder)] += 1
    assert min(counts.values()) > EDGE_DOCUMENTS // 50
