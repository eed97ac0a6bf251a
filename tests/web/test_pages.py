import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from asking import ask
from optrove.model.records import Query
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from optrove.web.answering import TroveSite
from optrove.web.app import make_app
from optrove.web.pages import PAGES
from small_trove import LLAMA, LLAMA_RUN, RESNET_RUN, imported, run_of
from web_trove import (
    AFTER,
    BEFORE,
    ELSEWHERE,
    MARKUP,
    MOCKED,
    SOFTMAX_CASES,
    SWEEP,
    TRACED,
    begin_sweep,
    make_web_trove,
)

MOST_PAGES = 150
LARGEST = 2_000_000


@pytest.fixture
def app(site):
    return make_app(site)


@pytest.fixture
def reader(web_trove):
    with open_reader(place_of(str(web_trove))) as reader:
        yield reader


class Checked(HTMLParser):
    """Notes what a strict policy would refuse, and what is not closed."""

    VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})

    def __init__(self, text):
        super().__init__()
        self.open, self.faults = [], []
        self.feed(text)
        self.close()
        self.faults += [f"{name} is not closed" for name in self.open]

    def handle_starttag(self, tag, attrs):
        names = dict(attrs)
        self.faults += [f"{tag} {name}" for name in names if name.startswith("on")]
        self.faults += [f"{tag} style"] if "style" in names else []
        if tag == "script" and names.get("src") != "/static/script.js":
            self.faults.append(f"script {names}")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        if self.open[-1:] == [tag]:
            self.open.pop()
        else:
            self.faults.append(f"{tag} is closed, {self.open[-1:]} was open")


def crawled(app):
    """Yield every page that links lead to, each kind about equally often."""
    waiting, seen = ["/"], {"/"}
    while waiting and len(seen) < MOST_PAGES * 4:
        address = waiting.pop(0)
        answer = ask(app, address)
        yield address, answer
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        for link in answer.links:
            kind = re.sub(r"=[^&]*", "", link)
            alike = sum(re.sub(r"=[^&]*", "", other) == kind for other in seen)
            if link not in seen and alike < 6 and len(seen) < MOST_PAGES:
                seen.add(link)
                waiting.append(link)


@pytest.mark.parametrize("kind", ["site", "hostile_site"])
def test_every_link_leads_to_a_page_that_is_sound_and_has_json(kind, request):
    app = make_app(request.getfixturevalue(kind))
    paths = set()
    for address, answer in crawled(app):
        assert answer.status == 200, (address, answer.text[-500:])
        assert len(answer.body) < LARGEST, address
        paths.add(address.partition("?")[0])
        if answer.headers["content-type"].startswith("text/html"):
            assert Checked(answer.text).faults == [], address
            assert MARKUP not in answer.text
            as_json = ask(app, address, format="json")
            assert as_json.status == 200
            assert len(as_json.body) < LARGEST
            json.loads(as_json.body, parse_constant=pytest.fail)
    assert {page.path for page in PAGES} - {"/progress", "/memory"} <= paths


def test_the_memory_of_a_run_without_flow_says_how_to_record_it(site):
    app = make_app(site)
    assert f"/memory?id={TRACED}" in ask(app, "/run", id=TRACED).links
    page = ask(app, "/memory", id=TRACED)
    assert Checked(page.text).faults == []
    assert "trace it again with --flow" in page.text
    data = ask(app, "/memory", id=TRACED, format="json").data
    assert (data["calls"], data["peaks"]) == ([], {})
    assert "--flow" in data["problem"]
    assert ask(app, "/memory", id="ffffffff").status == 404


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"model": LLAMA},
        {"board": "n150"},
        {"dtype": "bfloat8_b"},
        {"memory": "L1_WIDTH_SHARDED", "dtype": "bfloat8_b"},
        {"memory": "L1_WIDTH_SHARDED", "dtype": "bfloat16"},
        {"model": LLAMA, "dtype": "bfloat16", "layout": "TILE"},
    ],
    ids=str,
)
def test_ops_are_counted_as_the_command_line_counts_them(app, reader, chosen):
    rows = ask(app, "/ops", format="json", **chosen).data["ops"]
    found = [(row["op"], row["cases"], row["calls"], row["models"]) for row in rows]
    expected = [
        (row.op, row.cases, row.calls, len(row.models)) for row in reader.ops(Query(**chosen))
    ]
    # A filter on the calls of a case also restricts the models that are shown.
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    if not chosen.keys() & {"model", "board"}:
        assert found == expected


def test_every_value_of_a_facet_leaves_as_many_cases_as_it_says(app):
    for chosen in ({}, {"dtype": "bfloat8_b"}, {"model": LLAMA}):
        facets = ask(app, "/ops", format="json", **chosen).data["facets"]
        for name, values in facets.items():
            for each in values:
                narrowed = ask(app, "/ops", format="json", **{**chosen, name: each["value"]}).data
                assert narrowed["totals"]["cases"] == each["cases"], (chosen, name, each)


def test_the_cases_of_an_op_are_all_there_once_page_by_page(app, reader):
    found, after = [], {}
    while True:
        page = ask(app, "/op", format="json", name="softmax", **after).data
        found += [row["case_id"] for row in page["rows"]]
        if page["next"] is None:
            break
        assert len(page["rows"]) == 50
        after = {"after": page["next"]}
    assert found == [row.case_id for row in reader.cases(Query(op="ttnn.softmax"))]


def test_families_tell_what_varies(app):
    page = ask(app, "/op", format="json", name="paged_fill_cache", view="families").data
    (family,) = page["rows"]
    assert (family["cases"], family["calls"]) == (8, 16)
    assert family["varies"] == {"batch_idx": "8 values 0..7"}


def test_ops_that_only_move_data_are_shown_when_asked_for(app):
    assert "ttnn.to_device" not in ask(app, "/ops").text
    assert "ttnn.to_device" in ask(app, "/ops", all_ops="yes").text
    assert ask(app, "/op", name="to_device").status == 200


def test_search_takes_parts_and_both_spellings(app):
    def found(search):
        return [row["op"] for row in ask(app, "/ops", format="json", search=search).data["ops"]]

    assert found("fill cache") == ["ttnn.experimental.paged_fill_cache"]
    assert found("ttnn::MAT") == ["ttnn.matmul"]
    assert found("nothing like it") == []


def test_a_case_shows_its_arguments_shards_commands_and_attempts(app):
    (row,) = ask(app, "/op", format="json", name="matmul", memory="L1_WIDTH_SHARDED").data["rows"]
    answer = ask(app, "/case", id=row["case_id"][:10])
    assert "shard_shape=[64, 8]" in answer.text
    assert answer.text.count('class="shards"') == 1
    assert f"optrove replay {row['case_id'][:12]} --store web.db" in answer.text
    data = ask(app, "/case", id=row["case_id"], format="json").data
    assert data["calls"] == 40
    assert [each["run_id"] for each in data["attempts"]] == [ELSEWHERE, AFTER, BEFORE]
    assert data["attempts"][0]["measurements"][0]["value"] == 0.97


def test_a_run_shows_tests_and_calls_in_pages(app):
    data = ask(app, "/run", id=TRACED[:6], format="json").data
    assert data["tests"] == {"failed": 1, "passed": 54}
    assert len(data["tests_listed"]) == 50
    rest = ask(app, "/run", id=TRACED, format="json", tests_after=data["next_test"]).data
    assert [each["test"] for each in rest["tests_listed"]] == [
        f"tests/test_model.py::test_layer[{number}]" for number in range(50, 55)
    ]
    calls = data["timeline"]["calls"]
    assert [call["op_index"] for call in calls] == list(range(200))
    assert {call["op"]: call["depth"] for call in calls} == {
        "ttnn.traced_op": 0,
        "ttnn.outer": 0,
        "ttnn.inner": 1,
    }
    later = ask(app, "/run", id=TRACED, format="json", first=data["timeline"]["next"]).data
    assert [call["op_index"] for call in later["timeline"]["calls"]] == list(range(200, 330))
    (failed,) = ask(app, "/run", id=TRACED, format="json", tests="failed").data["tests_listed"]
    assert failed["test"].endswith("[7]")


def test_two_runs_are_compared_by_the_results_of_the_same_cases(app):
    data = ask(app, "/compare", a=BEFORE, b=AFTER, format="json").data
    counts = {name: count for name, count in data["counts"].items() if count}
    assert counts == {"broken": 1, "fixed": 1, "slower": 1, "same": 60}
    assert data["kind"] == "broken"
    (broken,) = data["cases"]
    assert (broken["a"]["outcome"], broken["b"]["outcome"]) == ("passed", "rejected")
    same = ask(app, "/compare", a=BEFORE, b=AFTER, kind="same", format="json").data
    rest = ask(app, "/compare", a=BEFORE, b=AFTER, kind="same", format="json", after=same["next"])
    assert len(same["cases"]) + len(rest.data["cases"]) == 60


def test_runs_that_tried_nothing_are_compared_by_their_calls(app):
    runs = {"a": LLAMA_RUN, "b": RESNET_RUN, "format": "json"}
    counts = ask(app, "/compare", **runs).data["counts"]
    found = {name: count for name, count in counts.items() if count}
    assert found == {"only_a": 10, "only_b": 1, "called_less": 1}
    (only,) = ask(app, "/compare", **runs, kind="only_b").data["cases"]
    assert (only["op"], only["a"], only["b"]["calls"]) == ("ttnn.add", None, 50)


def test_what_was_tried_on_another_kind_of_device_is_reported_and_not_compared(app):
    data = ask(app, "/compare", a=AFTER, b=MOCKED, kind="unlike", format="json").data
    counts = {name: count for name, count in data["counts"].items() if count}
    assert counts == {"unlike": 3, "only_a": 60}
    assert {(row["a"]["device"], row["b"]["device"]) for row in data["cases"]} == {
        ("shadow", "mock")
    }
    assert "3 cases were tried on another kind" in ask(app, "/compare", a=AFTER, b=MOCKED).text
    assert ask(app, "/run", id=MOCKED, format="json").data["previous"] is None


def test_the_board_matrix_tells_what_the_last_attempt_on_each_kind_of_board_gave(app):
    data = ask(app, "/boards", format="json").data
    names = ["n150 mock", "n150 shadow", "n300 shadow", "t3k shadow"]
    assert [each["name"] for each in data["boards"]] == names
    assert data["totals"]["n150 shadow"] == {"passed": 62, "rejected": 1}
    assert data["totals"]["n150 mock"] == {"passed": 3}
    by_op = {row["op"]: row["boards"] for row in data["rows"]}
    assert by_op["ttnn.softmax"]["n300 shadow"] == {"passed": 20}
    rows = ask(app, "/boards", op="ttnn.matmul", format="json").data["rows"]
    outcomes = [[(cell or {}).get("outcome") for cell in row["boards"].values()] for row in rows]
    assert outcomes == [
        [None, "rejected", None, "out_of_memory"],
        [None, "passed", None, "passed"],
        [None, "passed", None, "not_run"],
    ]
    assert "TT_FATAL: out_of_memory" in ask(app, "/boards", op="ttnn.matmul").text
    only = ask(app, "/boards", op="ttnn.matmul", outcome="rejected", format="json").data["rows"]
    assert len(only) == 1
    mock = ask(app, "/boards", device="mock", format="json").data
    assert [each["name"] for each in mock["boards"]] == ["n150 mock"]
    assert [row["op"] for row in mock["rows"]] == ["ttnn.softmax"]
    assert ask(app, "/boards", device="hw", format="json").data["rows"] == []


def test_runs_of_check_board_are_distinguished_from_replays(app):
    data = ask(app, "/runs", kind="check-board", format="json").data
    assert data["kinds"] == {"check-board": 4, "import": 3, "sweep": 1, "trace": 1}
    assert [row["run_id"] for row in data["runs"]] == [MOCKED, ELSEWHERE, AFTER, BEFORE]
    assert {row["kind"] for row in data["runs"]} == {"check-board"}
    assert ask(app, "/runs", kind="replay", format="json").data["runs"] == []


def test_every_model_has_a_page_with_its_ops_and_runs(app, reader):
    listed = ask(app, "/models", format="json").data
    assert {(row["model"], row["runs"]) for row in listed["models"]} == {
        (row.model, row.runs) for row in reader.models()
    }
    page = ask(app, "/model", name="LLAMA", format="json").data
    ops = ask(app, "/ops", model=LLAMA, format="json").data
    assert [row["op"] for row in page["ops_listed"]] == [row["op"] for row in ops["ops"]]
    assert {name: page[name] for name in ops["totals"]} == ops["totals"]
    assert [row["run_id"] for row in page["runs_listed"]] == [LLAMA_RUN]
    (found,) = ask(app, "/models", search=LLAMA[-5:].upper(), format="json").data["models"]
    assert found["model"] == LLAMA


def test_models_are_all_there_once_page_by_page(tmp_path):
    place = place_of(str(tmp_path / "many.db"))
    with open_trove(place, create=True) as trove:
        for number in range(120):
            run = run_of(f"{number:032}", "x.py", model=f"model {number}")
            trove.add_imported(imported(run, [(SOFTMAX_CASES[number % 3][0], 1 + number // 2)]))
    site = TroveSite(place)
    try:
        app, found, after = make_app(site), [], {}
        while after is not None:
            page = ask(app, "/models", format="json", **after).data
            found += [row["model"] for row in page["models"]]
            after = None if page["next"] is None else {"after": page["next"]}
        assert len(found) == page["total"] == len(set(found)) == 120
        assert found[:3] == ["model 118", "model 119", "model 116"]
    finally:
        site.close()


def test_a_share_of_some_cases_tells_how_many_ran(tmp_path):
    path = make_web_trove(tmp_path)
    with open_trove(place_of(str(path)), create=False) as trove:
        for run_id in (BEFORE, AFTER, ELSEWHERE):
            trove.remove_run(run_id)
    site = TroveSite(place_of(str(path)))
    app = make_app(site)
    try:
        (row,) = (row for row in ask(app, "/", format="json").data["ops"] if row["tried"])
        assert 0 < row["ran"] < row["cases"]
        for address in ("/", "/ops"):
            assert ask(app, address).text.count(f"of {row['ran']} that ran</span>") == 1
    finally:
        site.close()


def test_pages_follow_a_sweep_that_goes_on(tmp_path):
    path = make_web_trove(tmp_path)
    site = TroveSite(place_of(str(path)))
    app = make_app(site)

    def message():
        data = ask(app, "/progress", run=SWEEP, format="json").data
        overview = ask(app, "/", format="json").data["running"]
        matrix = ask(app, "/boards", format="json").data["totals"]["n300 shadow"]
        return data["tried"], data["planned"], [row["tried"] for row in overview], matrix

    try:
        assert message() == (20, 60, [20], {"passed": 20})
        assert message() == (20, 60, [20], {"passed": 20})
        with open_trove(place_of(str(path)), create=False) as trove:
            begin_sweep(trove, 45)
        assert message() == (45, 60, [45], {"passed": 45})
        with open_trove(place_of(str(path)), create=False) as trove:
            trove.remove_run(SWEEP)
        assert ask(app, "/progress", run=SWEEP, format="json").status == 404
        assert "n300 shadow" not in ask(app, "/boards", format="json").data["totals"]
        assert ask(app, "/", format="json").data["running"] == []
        assert len(SOFTMAX_CASES) == ask(app, "/op", name="softmax", format="json").data["cases"]
    finally:
        site.close()


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/nothing", 404, "The pages are"),
        ("/nothing", 404, "/nothing"),
        ("/op", 400, "needs the parameter"),
        ("/op", 400, "name of the op"),
        ("/model?name=lalma", 404, "no model here"),
        ("/model?name=-", 404, "models have '-' in their names"),
        ("/models?after=zzz", 404, "zzz"),
        ("/op?name=matmull", 404, "ttnn.matmul"),
        ("/op?name=*", 404, "no op here"),
        ("/ops?colour=red", 400, "no parameter"),
        ("/ops?dtype=a&dtype=b", 400, "2 times"),
        ("/case?id=zzz", 400, "zzz"),
        ("/case?id=zzz", 400, "6 to 64 digits 0-9 and a-f"),
        ("/case?id=00000000", 404, "no case here"),
        ("/run?id=zzz", 404, "no run here"),
        ("/run?id=be4&first=-1", 400, "whole number"),
        ("/compare?a=be4&b=af&kind=better", 400, "one of"),
        ("/runs?after=zzz", 404, "start from the beginning"),
        ("/run?id=5", 404, "several runs begin with"),
        ("/boards?device=phone", 400, "one of hw, mock, shadow"),
        (f"/ops?search={'x' * 501}", 400, "1 to 500"),
    ],
)
def test_what_cannot_be_answered_is_said_with_what_to_do(app, address, status, words):
    answer = ask(app, address)
    assert answer.status == status
    assert words in unescape(answer.text)
    assert words in ask(app, address, format="json").data["error"]


def test_a_page_that_has_not_changed_is_not_sent_again(app):
    answer = ask(app, "/ops")
    again = ask(app, "/ops", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
