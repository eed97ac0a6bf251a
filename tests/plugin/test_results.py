import csv
import json
import signal
import subprocess
import sys

import pytest

HEADER = (
    "test_nodeid,module,mode,seq_len,batch_size,hf_max_seq_len,mesh_shape,mesh_num_devices,"
    "weights_type,module_path,metrics_json,outcome,duration_sec,error,run_id,session_timestamp,"
    "hostname,git_commit,ttnn_version,start_timestamp,end_timestamp,setup_sec,call_sec,"
    "teardown_sec,worker,parameters_json,properties_json,ran_on"
)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv("TT_TEST_RESULTS_CSV", raising=False)


@pytest.fixture(params=[(), ("-n", "2")], ids=["alone", "xdist"])
def processes(request):
    return request.param


def rows(pytester, name="results.csv"):
    with (pytester.path / name).open(newline="") as file:
        return list(csv.DictReader(file))


def by_test(pytester):
    found = {row["test_nodeid"].partition("::")[2]: row for row in rows(pytester)}
    assert len(found) == len(rows(pytester)), "one row per test"
    return found


def run(pytester, *options, source=None, **files):
    if source is not None:
        pytester.makepyfile(source)
    if files:
        pytester.makepyfile(**files)
    return pytester.runpytest_subprocess("--results-csv", "results.csv", *options)


OUTCOMES = """
    import pytest

    @pytest.fixture
    def broken():
        raise RuntimeError("no board")

    @pytest.fixture
    def breaks_later():
        yield
        raise RuntimeError("cannot close")

    def test_passes(): pass
    def test_fails(): assert 1 == 2
    def test_skips(): pytest.skip("not today")
    @pytest.mark.skip(reason="never")
    def test_skipped(): pass
    def test_setup(broken): pass
    def test_teardown(breaks_later): pass
    def test_fails_twice(breaks_later): assert 3 == 4
    @pytest.mark.xfail(reason="known")
    def test_xfails(): assert 0
    @pytest.mark.xfail(reason="thought so")
    def test_xpasses(): pass
    @pytest.mark.xfail(strict=True, reason="was sure")
    def test_xpasses_strictly(): pass
"""


def test_every_outcome_has_its_row(pytester, processes):
    result = run(pytester, *processes, source=OUTCOMES)
    result.stdout.fnmatch_lines(["*optrove: 10 results appended to *results.csv*"])
    found = by_test(pytester)
    assert {name: row["outcome"] for name, row in found.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_skipped": "skipped",
        "test_setup": "error",
        "test_teardown": "error",
        "test_fails_twice": "failed",
        "test_xfails": "xfailed",
        "test_xpasses": "xpassed",
        "test_xpasses_strictly": "failed",
    }
    errors = {name: row["error"] for name, row in found.items()}
    assert errors["test_passes"] == ""
    assert "assert 1 == 2" in errors["test_fails"]
    assert errors["test_skips"] == "Skipped: not today"
    assert errors["test_skipped"] == "setup: Skipped: never"
    assert errors["test_setup"].startswith("setup: ")
    assert errors["test_setup"].endswith("RuntimeError: no board")
    assert errors["test_teardown"].startswith("teardown: ")
    assert "assert 3 == 4" in errors["test_fails_twice"]
    assert "cannot close" in errors["test_fails_twice"]
    assert errors["test_xfails"] == "xfail: known"
    assert "XPASS(strict)" in errors["test_xpasses_strictly"]


def test_the_header_is_as_documented_and_a_row_is_a_line(pytester):
    run(pytester, source="def test_fails(): assert 'a' == '''b\\n,c\\x00\"d'''")
    text = (pytester.path / "results.csv").read_text()
    assert text.startswith(HEADER + "\n")
    assert len(text.splitlines()) == 2
    assert rows(pytester)[0]["outcome"] == "failed"


def test_a_file_of_an_earlier_version_keeps_its_columns(pytester):
    earlier = HEADER.removesuffix(",ran_on")
    (pytester.path / "results.csv").write_text(earlier + "\n")
    run(pytester, source="def test_one(): pass")
    assert (pytester.path / "results.csv").read_text().startswith(earlier + "\n")
    assert [row["outcome"] for row in rows(pytester)] == ["passed"]


def test_rows_tell_the_session(pytester, processes):
    run(pytester, *processes, source="def test_one(): pass\ndef test_two(): pass")
    run(pytester, *processes)
    found = rows(pytester)
    assert len(found) == 4
    assert len({row["run_id"] for row in found}) == 2
    for row in found:
        assert row["hostname"]
        assert row["session_timestamp"] <= row["start_timestamp"] <= row["end_timestamp"]
        phases = [float(row[f"{phase}_sec"]) for phase in ("setup", "call", "teardown")]
        assert float(row["duration_sec"]) == pytest.approx(sum(phases), abs=1e-5)
        assert row["worker"] in (("gw0", "gw1") if processes else ("",))


def test_the_commit_of_the_tests_is_recorded(pytester):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=pytester.path, check=True)
    commit = [*git, "commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(commit, cwd=pytester.path, check=True)
    shown = subprocess.run(
        [*git, "rev-parse", "HEAD"], cwd=pytester.path, check=True, capture_output=True, text=True
    )
    run(pytester, source="def test_one(): pass")
    assert rows(pytester)[0]["git_commit"] == shown.stdout.strip()


FACTS = """
    import pytest
    from types import SimpleNamespace

    class Attention: pass

    class Mesh:
        open = True
        shape = (4, 8)
        def get_num_devices(self):
            assert self.open
            return 32

    @pytest.fixture
    def mesh_device(request):
        mesh = Mesh()
        assert request.param == (4, 8)
        yield mesh
        mesh.open = False

    @pytest.fixture
    def hf_config():
        return SimpleNamespace(max_position_embeddings=4096)

    @pytest.mark.parametrize("mesh_device", [(4, 8)], indirect=True, ids=["mesh"])
    @pytest.mark.parametrize("ModuleClass, mode", [(Attention, "decode")])
    @pytest.mark.parametrize("seq_len, batch_size", [(128, 32)])
    @pytest.mark.parametrize("weights_type, module_path", [("random", "model.layers.0")])
    def test_model(
        mesh_device, hf_config, ModuleClass, mode, seq_len, batch_size, weights_type, module_path
    ):
        assert seq_len == 0

    @pytest.mark.parametrize("mesh_device", [(1, 8)], indirect=True, ids=["mesh"])
    def test_no_such_mesh(mesh_device): pass
"""


def test_the_facts_of_a_test_come_from_its_parameters_and_fixtures(pytester, processes):
    run(pytester, *processes, source=FACTS)
    model, other = rows(pytester)
    if "no_such" in model["test_nodeid"]:
        model, other = other, model
    assert model["outcome"] == "failed"
    assert (model["module"], model["mode"]) == ("Attention", "decode")
    assert (model["seq_len"], model["batch_size"], model["hf_max_seq_len"]) == ("128", "32", "4096")
    assert (model["mesh_shape"], model["mesh_num_devices"]) == ("4x8", "32")
    assert (model["weights_type"], model["module_path"]) == ("random", "model.layers.0")
    parameters = json.loads(model["parameters_json"])
    assert parameters["ModuleClass"] == "Attention"
    assert parameters["mesh_device"] == [4, 8]
    assert (other["outcome"], other["mesh_shape"], other["mesh_num_devices"]) == (
        "error",
        "1x8",
        "",
    )
    file = other["test_nodeid"].partition(".py")[0].removeprefix("test_")
    assert other["module"] == file


def test_a_fixture_that_cannot_answer_costs_a_column_and_is_reported(pytester):
    source = """
        import pytest

        class Device:
            def get_num_devices(self): raise RuntimeError("device is gone")

        @pytest.fixture
        def device(): return Device()

        def test_one(device): pass
    """
    result = run(pytester, source=source)
    assert rows(pytester)[0]["outcome"] == "passed"
    result.stdout.fnmatch_lines(["*test_one: RuntimeError: device is gone*"])


METRICS = """
    import math
    import pytest
    from optrove import metrics

    def test_fixture(record_metric):
        record_metric("pcc", 0.5, threshold=0.9, passed=False)
        record_metric("tokens_per_second", 12)
        record_metric("pcc", float("nan"))

    def test_property(record_property):
        record_property("k_cache_pcc", 0.75)
        record_property("max_ULP", 3)
        record_property("pcc", "a text")
        record_property("color", 7)

    def test_own():
        metrics.assert_with_pcc([1, 2], [2, 4])
        metrics.allclose([1.0], [math.inf])
        metrics.assert_with_pcc([1, 2], [2, 1])

    def test_none(): pass
"""


def test_metrics_arrive_from_all_sides(pytester, processes):
    run(pytester, *processes, source=METRICS)
    found = {name: json.loads(row["metrics_json"]) for name, row in by_test(pytester).items()}

    def metric(name, value, threshold=None, passed=None):
        return {"type": name, "value": value, "threshold": threshold, "passed": passed}

    assert found["test_fixture"] == [
        metric("pcc", 0.5, 0.9, passed=False),
        metric("tokens_per_second", 12),
        metric("pcc", "nan"),
    ]
    assert found["test_property"] == [metric("k_cache_pcc", 0.75), metric("max_ULP", 3)]
    close, no = metric("allclose", "inf", passed=False), metric("pcc", -1.0, 0.9999, passed=False)
    passed, infinite, failed = found["test_own"]
    assert passed == metric("pcc", pytest.approx(1.0), 0.9999, passed=True)
    assert infinite == close
    assert failed == no | {"value": pytest.approx(-1.0)}
    assert found["test_none"] == []
    properties = json.loads(by_test(pytester)["test_property"]["properties_json"])
    assert properties == [["k_cache_pcc", 0.75], ["max_ULP", 3], ["pcc", "a text"], ["color", 7]]


def test_the_fixture_for_metrics_works_without_the_flag(pytester):
    pytester.makepyfile("def test_one(record_metric): record_metric('pcc', 0.5)")
    pytester.runpytest_subprocess("--junitxml", "junit.xml").assert_outcomes(passed=1)
    assert '<property name="pcc" value="0.5"' in (pytester.path / "junit.xml").read_text()


def test_a_file_that_cannot_be_collected_has_a_row(pytester, processes):
    files = {"test_bad": "import no_such_module", "test_good": "def test_one(): pass"}
    run(pytester, *processes, "--continue-on-collection-errors", **files)
    found = {row["test_nodeid"]: row for row in rows(pytester)}
    assert found["test_bad.py"]["outcome"] == "error"
    assert found["test_bad.py"]["module"] == "bad"
    assert "No module named 'no_such_module'" in found["test_bad.py"]["error"]
    assert len(found) == len(rows(pytester))


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "pytest.exit('enough')"])
def test_a_test_that_is_interrupted_has_a_row_with_what_is_known(pytester, end):
    source = f"""
        import pytest

        def test_before(): pass

        @pytest.mark.parametrize("mode", ["prefill"])
        def test_running(mode, record_metric):
            record_metric("pcc", 0.5)
            {end}

        def test_after(): pass
    """
    run(pytester, source=source)
    found = by_test(pytester)
    assert {name: row["outcome"] for name, row in found.items()} == {
        "test_before": "passed",
        "test_running[prefill]": "unfinished",
    }
    row = found["test_running[prefill]"]
    assert row["mode"] == "prefill"
    assert json.loads(row["metrics_json"])[0]["value"] == 0.5
    assert "the session was interrupted" in row["error"]
    assert row["start_timestamp"]


def test_rows_are_there_while_the_session_runs(pytester):
    pytester.makepyfile(
        """
        import csv, signal, os

        def test_first(): pass

        def test_second():
            (row,) = csv.DictReader(open("results.csv"))
            assert row["test_nodeid"].endswith("test_first")
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    result = run(pytester)
    assert result.ret == -signal.SIGKILL
    assert [row["outcome"] for row in rows(pytester)] == ["passed"]


def test_a_test_whose_worker_crashed_has_a_row_with_what_is_known(pytester):
    source = """
        import os, pytest

        @pytest.mark.parametrize("mode", ["decode"])
        def test_crashes(mode): os._exit(1)

        def test_fine(): pass
    """
    run(pytester, "-n", "1", source=source)
    found = by_test(pytester)
    row = found["test_crashes[decode]"]
    assert row["outcome"] == "error"
    assert "crashed" in row["error"]
    assert (row["mode"], row["worker"]) == ("decode", "gw0")
    assert found["test_fine"]["outcome"] == "passed"


HEARING = """
    import pytest, time
    from pathlib import Path

    def wait_for(name):
        until = time.monotonic() + 120
        while not Path(name).exists():
            assert time.monotonic() < until
            time.sleep(0.01)

    class Controller:
        @pytest.hookimpl(trylast=True)
        def pytest_runtest_logstart(self, nodeid):
            Path("begun-" + nodeid.rpartition("::")[2]).touch()

        @pytest.hookimpl(trylast=True)
        def pytest_runtest_logreport(self, report):
            if report.failed:
                Path("failed").touch()

    def pytest_configure(config):
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Controller())
"""
"""A conftest.py that leaves files behind when the controller has heard what workers tell."""


def test_tests_that_run_in_workers_when_the_session_is_interrupted_have_rows(pytester):
    source = """
        import os, signal, time, pytest
        from conftest import wait_for

        @pytest.mark.parametrize("mode", ["decode"])
        def test_running(mode):
            wait_for("begun-test_running[decode]")
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(60)
    """
    pytester.makeconftest(HEARING)
    run(pytester, "-n", "1", source=source)
    (row,) = rows(pytester)
    assert (row["outcome"], row["mode"]) == ("unfinished", "decode")
    assert "KeyboardInterrupt" in row["error"]


def test_tests_that_still_run_after_maxfail_have_rows(pytester):
    source = """
        from conftest import wait_for

        def test_fails():
            wait_for("begun-test_slow")
            assert 0

        def test_slow():
            wait_for("failed")
    """
    pytester.makeconftest(HEARING)
    run(pytester, "-n", "2", "--maxfail", "1", source=source)
    found = {name: row["outcome"] for name, row in by_test(pytester).items()}
    assert found.pop("test_fails") == "failed"
    assert found in ({"test_slow": "passed"}, {"test_slow": "unfinished"})


def test_parts_of_a_test_count_if_they_fail(pytester):
    pytest.importorskip("_pytest.subtests", reason="this pytest has no subtests")
    source = """
        import pytest

        def test_parts(subtests):
            with subtests.test("good"): pass
            with subtests.test("bad"): assert 5 == 6
            with subtests.test("skipped"): pytest.skip("no")

        def test_good_parts(subtests):
            with subtests.test("good"): pass
            with subtests.test("skipped"): pytest.skip("no")
    """
    run(pytester, source=source)
    found = by_test(pytester)
    assert {name: row["outcome"] for name, row in found.items()} == {
        "test_parts": "failed",
        "test_good_parts": "passed",
    }
    assert "assert 5 == 6" in found["test_parts"]["error"]


def test_the_path_can_come_from_the_environment_and_the_option_wins(pytester, monkeypatch):
    monkeypatch.setenv("TT_TEST_RESULTS_CSV", "deep/er/one.csv")
    pytester.makepyfile("def test_one(tmp_path, monkeypatch): monkeypatch.chdir(tmp_path)")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
    assert len(rows(pytester, "deep/er/one.csv")) == 1
    run(pytester)
    assert len(rows(pytester)) == 1
    assert len(rows(pytester, "deep/er/one.csv")) == 1


@pytest.mark.parametrize("text", ["a,b,c\n1,2,3\n", "test_nodeid,module\n", HEADER + ",more\n"])
def test_a_file_with_other_columns_is_an_error_before_any_test(pytester, text):
    (pytester.path / "results.csv").write_text(text)
    result = run(pytester, source="def test_one(): open('ran', 'w')")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*results.csv does not have the columns*choose another file*"])
    assert not (pytester.path / "ran").exists()
    assert (pytester.path / "results.csv").read_text() == text


def test_a_path_that_cannot_be_written_is_an_error_before_any_test(pytester):
    (pytester.path / "results.csv").mkdir()
    result = run(pytester, source="def test_one(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*cannot write results to *results.csv: Is a directory*"])


def test_collecting_only_writes_nothing(pytester):
    run(pytester, "--collect-only", source="def test_one(): pass")
    assert not (pytester.path / "results.csv").exists()


def test_a_row_that_cannot_be_written_fails_the_session_and_is_named(pytester):
    source = """
        import os

        def test_one():
            os.remove("results.csv")
            os.mkdir("results.csv")
    """
    result = run(pytester, source=source)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["*0 results appended*", "*no row for *test_one*Is a directory*"])


def test_sessions_at_once_share_a_file(pytester):
    source = "import pytest\n@pytest.mark.parametrize('n', range(40))\ndef test_one(n): pass"
    pytester.makepyfile(source)
    command = [sys.executable, "-m", "pytest", "-q", "--results-csv", "results.csv"]
    sessions = [
        subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL) for _ in range(3)
    ]
    assert [session.wait() for session in sessions] == [0, 0, 0]
    found = rows(pytester)
    assert len(found) == 120
    assert {row["outcome"] for row in found} == {"passed"}
    assert len({row["run_id"] for row in found}) == 3
