"""Give Jobs the recorded values of their cases, from the capsules of a trove."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound
from optrove.trove.capsules import capsules_of, local_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.model.capsules import Capsule
    from optrove.replay.planning import PlannedJob
    from optrove.trove.place import Place

SEED: Final = "seed"
CAPSULE: Final = "capsule"
SOURCES: Final = (SEED, CAPSULE)
"""Where the values of inputs come from."""

FROM_SEED: Final = "there is no capsule of this case; its values were made from the seed"


@contextmanager
def with_values(
    place: Place, cases: Sequence[PlannedJob], values: str
) -> Iterator[tuple[PlannedJob, ...]]:
    """Yield Jobs whose inputs have the recorded values, or those of the seed.

    A case without a capsule gets a note. NotFound if no case has one.
    """
    if values == SEED:
        yield tuple(cases)
        return
    found = check_values(place, cases)
    every = [capsule for capsules in found.values() for capsule in capsules]
    with local_tensors(place, every) as directory:
        yield tuple(_with_capsules(each, str(directory), found) for each in cases)


def check_values(place: Place, cases: Iterable[PlannedJob]) -> dict[str, list[Capsule]]:
    """Return the capsules of cases, by case id; NotFound without any."""
    found = capsules_of(place, (each.case_id for each in cases))
    if not found:
        raise NotFound(
            f"the trove {place} has no capsule of these cases; record their values with "
            f"optrove trace --capsule OP, or leave out --values"
        )
    return found


def _with_capsules(
    planned: PlannedJob, directory: str, found: dict[str, list[Capsule]]
) -> PlannedJob:
    capsules = found.get(planned.case_id)
    if capsules is None:
        return replace(planned, notes=(*planned.notes, FROM_SEED))
    # Calls with equal inputs have equal results.
    distinct = {each.inputs: replace(each, directory=directory) for each in reversed(capsules)}
    job = replace(planned.job, capsules=tuple(reversed(distinct.values())))
    return replace(planned, job=job)
