"""Both kinds of troves answer browsing queries, and notice what others write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from optrove.errors import TookTooLong
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from optrove.web.page_request import PageRequest, read_parameters
from optrove.web.pages import PAGES
from small_trove import LLAMA_RUN, RESNET_RUN
from trove_rows import case
from troves import imported
from web_trove import AFTER, BEFORE, MOCKED, SWEEP, TRACED, fill_web_trove

SUPPORT = Path(__file__).parents[1] / "support"
WRITE = """
import sys
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from trove_rows import case
from troves import imported
with open_trove(place_of(sys.argv[1]), create=False) as trove:
    trove.add_imported(imported("second", case("ttnn.sub", b=2)))
"""
FOR_EVER = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n > 0)
SELECT count(*) FROM numbers
"""
ASKED = (
    ("overview", {}),
    ("ops", {"dtype": "bfloat8_b", "model": "meta-llama/Llama-3.2-1B-Instruct"}),
    ("op", {"name": "softmax", "board": "n300"}),
    ("op", {"name": "matmul", "model": "meta-llama/Llama-3.2-1B-Instruct"}),
    ("op", {"name": "paged_fill_cache", "view": "families"}),
    ("models", {}),
    ("model", {"name": "Llama"}),
    ("runs", {"kind": "check-board"}),
    ("run", {"id": TRACED}),
    ("run", {"id": AFTER, "outcome": "rejected"}),
    ("progress", {"run": SWEEP}),
    ("compare", {"a": BEFORE, "b": AFTER}),
    ("compare", {"a": AFTER, "b": MOCKED}),
    ("compare", {"a": LLAMA_RUN, "b": RESNET_RUN, "kind": "only_a"}),
    ("boards", {"op": "ttnn.matmul"}),
)


def said(place):
    """Return the answers of the pages about a trove, without the times of this run."""
    pages = {page.name: page for page in PAGES}
    with open_reader(place) as reader, reader.connection.snapshot(), reader.connection.within(60):

        def view(name, asked):
            page = pages[name]
            values = read_parameters(asked.items(), page.parameters)
            return page.make(PageRequest(reader, values)).data

        found = [view(name, asked) for name, asked in ASKED]
        (row, *_) = view("op", {"name": "matmul"})["rows"]
        return [_timeless(each) for each in (*found, view("case", {"id": row["case_id"]}))]


def _timeless(data):
    if isinstance(data, dict):
        kept = {name for name in data if not name.endswith("_ns")}
        return {name: _timeless(data[name]) for name in sorted(kept)}
    return [_timeless(each) for each in data] if isinstance(data, list) else data


def test_every_page_says_the_same_of_a_trove_wherever_it_is(place, tmp_path):
    fill_web_trove(place, tmp_path / "one")
    other = place_of(str(tmp_path / "other.db"))
    fill_web_trove(other, tmp_path / "other")
    assert said(place) == said(other)


def test_a_question_that_takes_too_long_is_given_up(place):
    with open_trove(place, create=True) as trove:
        trove.add_imported(imported("first", case("ttnn.add", b=1)))
    with open_reader(place) as reader:
        with (
            pytest.raises(TookTooLong, match="ask for less"),
            reader.connection.snapshot(),
            reader.connection.within(0.05),
        ):
            list(reader.connection.rows(FOR_EVER, {}))
        assert reader.op_names() == ("ttnn.add",)


def test_readers_of_one_process_notice_what_others_write(place):
    with open_trove(place, create=True) as trove:
        trove.add_imported(imported("first", case("ttnn.add", b=1)))
    # SQLite keeps locks by process: opening another reader must not cost the first its own.
    with open_reader(place) as first, open_reader(place) as second:
        before = first.connection.state()
        assert first.connection.state() == before
        command = [sys.executable, "-c", WRITE, str(place.url or place.path)]
        subprocess.run(
            command, check=True, env=os.environ | {"PYTHONPATH": str(SUPPORT)}, timeout=60
        )
        assert first.connection.state() != before
        for reader in (first, second):
            assert reader.op_names() == ("ttnn.add", "ttnn.sub")
