"""Mutated documents of real ttnn objects end in success or in BadData, and in nothing else."""

import copy
import random

import pytest

from mutations import ends_well, mutate
from optrove.backends.base import StructConverter
from optrove.backends.ttnn import classes, values
from optrove.flows.serialize import from_jsonable, to_jsonable
from ttnn_samples import Samples

pytestmark = pytest.mark.ttnn

DOCUMENTS = 100_000


@pytest.fixture(scope="module")
def seeds(ttnn):
    found, table = classes.find(ttnn), values.table()
    samples = Samples(ttnn, found, table)
    return [
        to_jsonable(live)
        for cls in found.values
        if isinstance(table.by_type.get(cls), StructConverter)
        for live in samples.of_class(cls)
    ]


@pytest.mark.slow
def test_mutated_configurations_end_in_success_or_bad_data(seeds):
    chance = random.Random(20260103)  # noqa: S311 - a repeatable test, not a secret
    counts = {True: 0, False: 0}
    for _ in range(DOCUMENTS):
        holder = [copy.deepcopy(chance.choice(seeds))]
        mutate(holder, chance)
        counts[ends_well(from_jsonable, holder)] += 1
    assert min(counts.values()) > DOCUMENTS // 50
