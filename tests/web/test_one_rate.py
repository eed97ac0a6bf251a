"""Every command, page and export states the same pass rate of a run."""

import re

import pytest

import commands
from asking import ask
from executed_runs import NEW, OLD, SWEEP, make_executed
from optrove.interop.superset import METRICS
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from optrove.trove.views import make_views
from optrove.web.answering import TroveSite
from optrove.web.app import make_app

RATES = {OLD: (7, 8), NEW: (5, 7), SWEEP: (3, 4)}
"""The cases that passed or failed as expected, and those that ran."""


@pytest.fixture(scope="module")
def trove(tmp_path_factory):
    return make_executed(tmp_path_factory.mktemp("rates") / "trove.db")


@pytest.fixture(scope="module")
def app(trove):
    site = TroveSite(place_of(str(trove)), "trove.db")
    yield make_app(site)
    site.close()


@pytest.mark.parametrize("run", RATES)
def test_the_results_of_a_run(trove, tmp_path, run):
    passed, ran = RATES[run]
    markdown = tmp_path / "summary.md"
    words = ("results", run, "--store", trove)
    data = commands.ask(*words, "--json", exit_code=1)
    assert (data["good"], data["ran"], data["pass_share"]) == (passed, ran, passed / ran)
    rate = f"{100 * passed / ran:.1f}% passed of {ran} cases that ran"
    shown = commands.ask(*words, "--markdown", markdown, exit_code=1)
    assert rate in shown
    assert rate in markdown.read_text()
    report = tmp_path / "report.html"
    commands.run("report", run, "--store", trove, "-o", report)
    assert rate in report.read_text()


def test_the_list_of_runs(trove):
    rows = {row["run_id"]: row for row in commands.ask("runs", "--store", trove, "--json")}
    text = commands.ask("runs", "--store", trove)
    for run, (passed, ran) in RATES.items():
        row = rows[run]
        assert (row["good"], row["ran"], row["pass_share"]) == (passed, ran, passed / ran)
        (line,) = [line for line in text.splitlines() if line.startswith(run[:12])]
        assert f" {passed}/{ran} " in line


@pytest.mark.parametrize("run", RATES)
def test_the_pages_of_a_run(app, run):
    passed, ran = RATES[run]
    (row,) = [row for row in ask(app, "/runs", format="json").data["runs"] if row["run_id"] == run]
    assert (row["passed"], row["ran"]) == (passed, ran)
    assert f"{passed}/{ran}" in ask(app, "/runs").text
    page = ask(app, "/run", id=run).text
    assert re.search(rf"<dd>{passed}<span class=\"of\">/{ran}</span></dd>", page)
    data = ask(app, "/progress", run=run, format="json").data
    assert (data["passed"], data["ran"]) == (passed, ran)


def test_the_share_of_an_op_is_of_what_ran(app):
    (row,) = [row for row in ask(app, "/ops", format="json").data["ops"] if row["op"] == "ttnn.add"]
    # The last attempt at one of six cases has failed, and that at another did not run.
    assert (row["tried"], row["ran"], row["passed"]) == (6, 5, 4)
    assert '<span class="num">80%</span> <span class="soft nowrap">of 5 that ran' in (
        ask(app, "/ops").text
    )


def test_the_views_for_dashboards(trove):
    with open_trove(place_of(str(trove)), create=False) as opened:
        with opened.connection.transaction():
            make_views(opened.connection)
        (share,) = [each.expression for each in METRICS["v_attempts"] if each.name == "pass_share"]
        found = dict(
            opened.connection.fetch(
                f"SELECT run_id, {share} FROM v_attempts GROUP BY run_id",  # noqa: S608 - ours
                {},
            )
        )
    assert found == {run: passed / ran for run, (passed, ran) in RATES.items()}


def test_each_outcome_has_one_color_everywhere(app, trove, tmp_path):
    report = tmp_path / "report.html"
    commands.run("report", OLD, "--store", trove, "-o", report)
    assert '<span class="dot bad"></span>1 rejected</li>' in report.read_text()
    page = ask(app, "/run", id=OLD).text
    assert re.search(r'<span class="badge bad">rejected</span>', page)
    assert not re.search(r'class="(badge|dot) rejected', page)
