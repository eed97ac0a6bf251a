"""Attempts at Cases are kept, with their measurements."""

import pytest

from optrove.errors import BadData
from optrove.model.records import Outcome
from optrove.model.values import Text
from optrove.serializer.described import describe_case
from trove_rows import case, tensor
from troves import attempt_of, content_of, imported, run_of

ADD = case("ttnn.add", a=tensor(32, 32), b=1.5)
ADD_ID = describe_case(ADD).case_id


def test_attempts_are_read_as_they_were_added(trove):
    trove.add_imported(imported("first", ADD))
    attempts = [
        attempt_of(ADD_ID, "replay", detail="\0", outputs=(Text("\0\ud800"),)),
        attempt_of(
            ADD_ID, "replay", Outcome.REJECTED, detail="no \0 room", seed=2**70, board="t3k"
        ),
        attempt_of(ADD_ID, "replay", Outcome.HUNG, started_at="2026-01-03T00:00:00Z"),
    ]
    assert trove.add_attempts(run_of("replay"), attempts) == 3
    assert trove.add_attempts(run_of("replay"), attempts) == 0
    with trove.reader() as reader:
        assert set(reader.attempts("replay")) == set(attempts)
        assert list(reader.attempts("first")) == []
        assert reader.runs("replay")[0].run == run_of("replay")


def test_an_attempt_of_an_unknown_case_is_refused_and_changes_nothing(trove, place):
    trove.add_imported(imported("first", ADD))
    before = content_of(place)
    with pytest.raises(BadData, match="is not in the trove"):
        trove.add_attempts(run_of("replay"), [attempt_of(ADD_ID), attempt_of("0" * 64)])
    assert content_of(place) == before
