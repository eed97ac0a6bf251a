"""The commands push, pull and roles, and the export for BI tools, on real troves."""

import io
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from commands import ask, run
from executed_runs import make_executed
from optrove.interop.superset import superset_uri, write_bundle
from optrove.trove.place import place_of
from optrove.trove.views import VIEWS
from small_trove import LLAMA_IMPORT, RESNET_IMPORT, make_trove
from troves import content_of

pytestmark = pytest.mark.usefixtures("working_directory")


def contents(bundle):
    with zipfile.ZipFile(io.BytesIO(bundle)) as file:
        return {name: json.loads(file.read(name)) for name in file.namelist()}


def test_push_and_pull_send_what_the_other_side_lacks():
    make_trove("mine.db", LLAMA_IMPORT)
    make_trove("ours.db", RESNET_IMPORT)
    sent = ask("push", "ours.db", "--store", "mine.db", "--json")
    numbers = {name: sent[name] for name in ("runs", "recordings", "attempts", "cases")}
    assert numbers == {"runs": 1, "recordings": 1, "attempts": 0, "cases": 11}
    assert (sent["from"], sent["to"], sent["calls"]) == ("mine.db", "ours.db", 172)
    output = run("pull", "ours.db", "--store", "mine.db").stdout
    assert output == "sent 1 runs to mine.db: 53 calls, 0 attempts, 1 new cases\n"
    assert content_of(place_of("mine.db")) == content_of(place_of("ours.db"))
    again = run("push", "ours.db", "--store", "mine.db")
    assert (again.exit_code, again.stdout) == (0, "nothing new: ours.db has all of it\n")


def test_pull_creates_a_missing_trove():
    make_trove("ours.db", LLAMA_IMPORT)
    assert ask("pull", "ours.db", "--json")["runs"] == 1
    assert content_of(place_of(".optrove/trove.db")) == content_of(place_of("ours.db"))


def test_what_cannot_be_reached_is_named_and_nothing_is_made():
    missing = run("push", "ours.db", "--store", "missing.db")
    assert missing.exit_code == 2
    assert "there is no trove at missing.db" in missing.stderr
    assert not Path("ours.db").exists()
    Path("text.db").write_text("not a trove")
    make_trove("mine.db", LLAMA_IMPORT)
    foreign = run("push", "text.db", "--store", "mine.db")
    assert foreign.exit_code == 2
    assert "text.db is not a trove" in foreign.stderr


def test_roles_are_printed_as_sql_and_odd_names_refused():
    output = run("roles", "--reader", "team-read", "--writer", "team_write").stdout
    assert "GRANT SELECT ON " in output
    assert 'CREATE ROLE "team-read" NOLOGIN' in output
    odd = run("roles", "--reader", 'x"; DROP TABLE runs; --')
    assert odd.exit_code == 2
    assert "cannot be the name of a role" in odd.stderr


def test_the_superset_bundle_refers_only_to_what_is_in_it():
    make_executed("trove.db")
    output = ask(
        "export", "bi", "--format", "superset", "--install", "--store", "trove.db", "--json"
    )
    assert output["installed"] is True
    files = contents(Path(output["bundle"]).read_bytes())
    datasets = {each["uuid"]: each for name, each in files.items() if "/datasets/" in name}
    charts = {each["uuid"]: each for name, each in files.items() if "/charts/" in name}
    database, dashboard = (
        files["optrove/databases/optrove.yaml"],
        files["optrove/dashboards/optrove.yaml"],
    )
    assert {each["database_uuid"] for each in datasets.values()} == {database["uuid"]}
    assert {each["table_name"] for each in datasets.values()} == {view.name for view in VIEWS}
    placed = [
        each["meta"]["uuid"]
        for name, each in dashboard["position"].items()
        if name.startswith("CHART-")
    ]
    assert sorted(placed) == sorted(charts)
    with closing(sqlite3.connect("trove.db")) as connection:
        for chart in charts.values():
            dataset = datasets[chart["dataset_uuid"]]
            metrics = {each["metric_name"]: each["expression"] for each in dataset["metrics"]}
            (query,) = json.loads(chart["query_context"])["queries"]
            asked = [metrics[name] for name in query["metrics"] or ()]
            columns = [
                each if isinstance(each, str) else each["sqlExpression"]
                for each in query["columns"]
            ]
            grouped = f"GROUP BY {', '.join(columns)}" if asked and columns else ""
            sql = f"SELECT {', '.join([*columns, *asked])} FROM {dataset['table_name']} {grouped}"  # noqa: S608 - ours
            assert connection.execute(sql).fetchall() or chart["slice_name"] == "Tests"


def test_the_sql_file_makes_the_same_views_as_install_does():
    make_executed("trove.db")
    output = ask("export", "bi", "--format", "superset", "--store", "trove.db", "--json")
    with closing(sqlite3.connect("trove.db")) as connection:
        assert not connection.execute("SELECT * FROM sqlite_master WHERE type = 'view'").fetchall()
        for _ in range(2):
            connection.executescript(Path(output["views"]).read_text())
        made = "SELECT name, trim(sql) FROM sqlite_master WHERE type = 'view' ORDER BY name"
        views = connection.execute(made).fetchall()
        ask("export", "bi", "--format", "superset", "--install", "--store", "trove.db", "--json")
        assert [name for name, _ in views] == sorted(view.name for view in VIEWS)
        assert connection.execute(made).fetchall() == views


def test_a_bundle_has_no_password_and_ids_of_its_own_trove():
    uri = superset_uri(place_of("postgresql://me:hunter2@db/team?sslmode=require"))
    assert uri == "postgresql://me:XXXXXXXXXX@db/team?sslmode=require"
    one = write_bundle(uri, "team", VIEWS)
    assert one == write_bundle(uri, "team", VIEWS)
    other = write_bundle("sqlite:////x/y.db", "y", VIEWS)
    ids = [
        {each.get("uuid") for each in contents(bundle).values()} - {None} for bundle in (one, other)
    ]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("words", [("--scrub",), ("--op", "add"), ("--run", "1f")])
def test_options_that_say_nothing_to_the_bundle_are_refused(words):
    make_trove("trove.db", LLAMA_IMPORT)
    refused = run("export", "bi", "--format", "superset", "--store", "trove.db", *words)
    assert refused.exit_code == 2
    assert "superset has views of all runs" in refused.stderr
    assert not Path("bi").exists()
    lone = run("export", "x.json", "--install", "--store", "trove.db")
    assert lone.exit_code == 2
