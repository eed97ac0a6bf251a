"""The calls of a recorded run, and the values that they returned."""

from __future__ import annotations

from optrove.trove.capsules import capsules_of
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader


def cases_of(path):
    """Return the cases of the outermost calls of the only trace, in their order."""
    with open_reader(place_of(str(path))) as reader:
        row = next(row for row in reader.runs() if row.run.kind.value == "trace")
        return [call.case_id for call in reader.calls(row.run.id) if call.depth == 0]


def results_of(path):
    """Return the hashes of the values that calls of ttnn.to_torch returned, in their order."""
    place = place_of(str(path))
    found = capsules_of(place)
    with open_reader(place) as reader:
        ops = reader.ops_of(set(found))
    read = [each for case in found if ops[case] == "ttnn.to_torch" for each in found[case]]
    return [each.outputs for each in sorted(read, key=lambda each: each.op_index)]
