"""Bisection over releases: stand-in releases, and environments from an index of files."""

import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from optrove.errors import NotFound, UnusableRelease
from optrove.model.case import Case
from optrove.model.records import Attempt, AttemptedCase, DeviceKind, Job, Outcome
from optrove.model.values import Int, Opaque
from optrove.replay import bisect as module
from optrove.replay.bisect import (
    COMMAND,
    bisect,
    bisection_data,
    bisection_document,
    case_evaluation,
    check_ends,
    command_evaluation,
)
from optrove.replay.device_choice import TargetDevice
from optrove.replay.environments import (
    Environments,
    Release,
    releases_between,
    run_in,
    version_key,
)
from optrove.replay.planning import PlannedJob
from optrove.replay.runner import run_jobs
from optrove.report.draw_text import draw_text
from optrove.serializer.hashes import placement_hash
from trove_rows import tensor

WORKER = str(Path(__file__).parents[2] / "support" / "release_worker.py")
RELEASES = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5")


@pytest.fixture
def evaluate(monkeypatch):
    """Execute made-up ops with stand-in releases; return the function and what it was asked."""
    cases = [Case(f"made.{op}", (("a", Int(1)),)) for op in ("up", "numbers", "steady", "gap")]
    planned = [PlannedJob(Job(each, DeviceKind.HOST), placement_hash(each)) for each in cases]

    class Fake:
        def python(self, release):
            return release

    def run(jobs, *, workers, **options):
        release = workers.command[0]
        command = (sys.executable, WORKER, release)
        return run_jobs(jobs, workers=type(workers)(1, command), **options)

    monkeypatch.setattr(module, "run_jobs", run)
    return case_evaluation({TargetDevice(DeviceKind.HOST): planned}, Fake()), [
        each.case_id for each in planned
    ]


def test_each_changed_case_gets_its_pair_of_releases(evaluate):
    function, ids = evaluate
    found = bisect("made", ids, RELEASES, function, lambda _: None)
    pairs = {each.change.after.op: (each.last_good, each.first_bad) for each in found.boundaries}
    assert pairs == {
        "made.up": ("1.2", "1.3"),
        "made.numbers": ("1.1", "1.2"),
        "made.gap": ("1.1", "1.3"),
    }
    assert found.unchanged == 1
    assert all(each.confirmed for each in found.boundaries)
    gap = next(each for each in found.boundaries if each.change.after.op == "made.gap")
    assert gap.untested == ("1.2",)
    assert [version for version, _ in found.tested] == ["1.0", "1.1", "1.2", "1.3", "1.5"]
    text = "\n".join(draw_text(bisection_document(found), 100))
    assert "made 1.0 to 1.5: 4 cases, 3 changed, 1 unchanged" in text
    assert "made 1.2 -> 1.3" in text
    assert "made.up broken: rejected: no" in text
    data = bisection_data(found)
    assert {each["op"]: each["worse"] for each in data["changed"]} == {
        "made.up": True,
        "made.numbers": False,
        "made.gap": True,
    }


def result(op, case_id, outcome, **more):
    return AttemptedCase(op, Attempt("", case_id, outcome, DeviceKind.HOST, **more))


def scripted(bad_from, calls=None, **special):
    """Return an evaluation of one case that is rejected from a release on."""

    def evaluate(release, ids):
        if calls is not None:
            calls.append(release)
        outcome = Outcome.REJECTED if release >= bad_from else Outcome.PASSED
        outcome = special.get(f"r{release.replace('.', '')}", outcome)
        return {each: result("made.up", each, outcome) for each in ids}

    return evaluate


def test_a_search_needs_few_releases():
    releases = tuple(f"{number:03}" for number in range(100))
    calls = []
    found = bisect("made", ["a"], releases, scripted("037", calls), lambda _: None)
    (boundary,) = found.boundaries
    assert (boundary.last_good, boundary.first_bad) == ("036", "037")
    assert len(set(calls)) <= 9
    assert calls[-4:] == ["036", "037"] * 2  # both ends twice more


def test_a_change_that_does_not_repeat_is_not_confirmed():
    seen = []

    def evaluate(release, ids):
        seen.append(release)
        bad = release == "1.1" and seen.count("1.1") == 1
        return {each: result("x", each, Outcome.HUNG if bad else Outcome.PASSED) for each in ids}

    found = bisect("made", ["a"], ("1.0", "1.1"), evaluate, lambda _: None)
    assert [each.confirmed for each in found.boundaries] == [False]
    assert "a further test differed" in "\n".join(draw_text(bisection_document(found), 100))


def test_outputs_that_cannot_be_described_are_not_compared():
    def evaluate(release, ids):
        output = Opaque("ttnn.Tensor", release) if release < "1.3" else Int(1)
        return {each: result("x", each, Outcome.PASSED, outputs=(output,)) for each in ids}

    found = bisect("made", ["a"], RELEASES, evaluate, lambda _: None)
    assert (found.boundaries, found.unchanged) == ((), 1)


def test_tensors_are_not_numbered_alike_where_the_arguments_cannot_be_described():
    def evaluate(release, ids):
        dtype = "bfloat16" if release < "1.4" else "float32"
        output = tensor(32, 32, dtype=dtype, number=int(release > "1.2"))
        return {each: result("x", each, Outcome.PASSED, outputs=(output,)) for each in ids}

    (found,) = bisect("made", ["a"], RELEASES, evaluate, lambda _: None).boundaries
    assert (found.last_good, found.first_bad) == ("1.3", "1.4")


def test_a_call_that_was_rejected_before_it_passed_is_confirmed():
    """The rejected call was never reached, so the tensors of the other are compared unnumbered."""

    def evaluate(release, ids):
        passed = {"outputs": (tensor(32, 32, number=1),), "replayed_case_id": "a"}
        outcome, more = (Outcome.REJECTED, {}) if release < "1.2" else (Outcome.PASSED, passed)
        return {each: result("x", each, outcome, **more) for each in ids}

    (found,) = bisect("made", ["a"], RELEASES, evaluate, lambda _: None).boundaries
    assert (found.last_good, found.first_bad, found.confirmed) == ("1.1", "1.2", True)


def test_nothing_that_ran_with_both_is_an_error():
    lost = scripted("9", r10=Outcome.NOT_RUN)
    with pytest.raises(NotFound, match=r"no case ran with both 1.0 and 1.5 of made"):
        check_ends(bisect("made", ["a"], RELEASES, lost, lambda _: None))


@pytest.mark.parametrize(
    ("command", "outcome"),
    [("exit 0", Outcome.PASSED), ("exit 3", Outcome.RAISED), ("exit 125", Outcome.NOT_RUN)],
)
def test_the_exit_code_of_a_command_decides(command, outcome, tmp_path):
    class Fake:
        def python(self, release):
            return tmp_path / "bin" / "python"

    result = command_evaluation(command, Fake(), seconds=60)("1.0", [COMMAND])[COMMAND]
    assert result.attempt.outcome is outcome


def test_a_command_that_takes_too_long_ends_with_its_processes(tmp_path):
    command = f"(sleep 1; touch {tmp_path}/late) & wait"
    assert run_in(tmp_path / "bin" / "python", command, 0.1) == (None, "")
    time.sleep(2)
    assert not (tmp_path / "late").exists()


def test_a_release_that_cannot_be_installed_is_not_run(tmp_path):
    class Fake:
        def python(self, release):
            raise UnusableRelease("no space")

    found = command_evaluation("true", Fake(), seconds=None)("1.0", [COMMAND])[COMMAND].attempt
    assert (found.outcome, found.cause) == (Outcome.NOT_RUN, "no space")


def test_versions_have_an_order():
    ordered = ["0.9.dev1", "0.9", "0.76.0rc1", "0.76", "0.76.0.post1", "0.76.1", "0.80.0", "1"]
    assert sorted({*ordered}, key=version_key) == ordered
    assert version_key("0.76") == version_key("0.76.0")
    with pytest.raises(UnusableRelease, match="is not a version"):
        version_key("newest")


def wheel(directory, version):
    """Write a wheel of a package that knows its version."""
    name = f"made_up-{version}"
    files = {
        "made_up.py": f"version = {version!r}\n",
        f"{name}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: made-up\nVersion: {version}\n",
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}.dist-info/RECORD": "",
    }
    path = directory / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in files.items():
            archive.writestr(member, text)
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index of files with four releases, one of them a pre-release."""
    place = tmp_path / "simple" / "made-up"
    place.mkdir(parents=True)
    links = [wheel(place, version) for version in ("1.0", "1.1", "1.2rc1", "1.2")]
    old = "<a href='made_up-0.9-cp27-cp27m-win32.whl'>made_up-0.9-cp27-cp27m-win32.whl</a>"
    page = "\n".join(f'<a href="{each.name}">{each.name}</a>' for each in links)
    (place / "index.html").write_text(f"<html><body>{page}\n{old}</body></html>")
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{tmp_path}/simple")
    monkeypatch.setenv("UV_INDEX_URL", f"file://{tmp_path}/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("OPTROVE_CACHE", str(tmp_path / "cache"))
    return place


@pytest.fixture
def readable(monkeypatch, index):
    """Read the page of the index as a web server would send it."""
    from optrove.replay import environments

    real = environments.urllib.request.urlopen

    def urlopen(request, **options):
        return real(f"{request.full_url}index.html", **options)

    monkeypatch.setattr(environments.urllib.request, "urlopen", urlopen)


@pytest.mark.usefixtures("readable")
def test_the_index_lists_the_releases_for_this_python():
    def versions(*ends, **options):
        return [each.version for each in releases_between("made_up", *ends, **options)]

    assert versions("1.0", "1.2") == ["1.0", "1.1", "1.2"]
    assert versions("1", "1.2.0", pre=True) == ["1.0", "1.1", "1.2rc1", "1.2"]
    assert versions("1.2", "1.1") == ["1.2", "1.1"]
    with pytest.raises(UnusableRelease, match=r"has no made_up 0.9 for Python"):
        versions("0.9", "1.2")


def test_an_index_that_cannot_be_read_is_named(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "file:///nowhere")
    with pytest.raises(UnusableRelease, match="set PIP_INDEX_URL to a package index"):
        releases_between("made_up", "1", "2")


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_an_environment_has_the_release_optrove_and_everything_else_of_this_one():
    environments = Environments("made-up")
    try:
        for version in ("1.0", "1.2"):
            python = environments.python(version)
            script = "import made_up, optrove, click; print(made_up.version, optrove.__version__)"
            done = subprocess.run(
                [python, "-c", script], capture_output=True, text=True, check=True, cwd="/"
            )
            assert done.stdout.split()[0] == version
        command = "python -c 'import made_up, sys; sys.exit(made_up.version > \"1.1\")'"
        evaluate = command_evaluation(command, environments, seconds=60)
        found = bisect("made-up", [COMMAND], ("1.0", "1.1", "1.2"), evaluate, lambda _: None)
        assert [(each.last_good, each.first_bad) for each in found.boundaries] == [("1.1", "1.2")]
        kept = Environments("made-up")
        kept.python("1.0")
        kept.remove()
        assert kept.has("1.0")  # made before
        places = list(environments.used.values())
    finally:
        environments.remove()
    assert len(places) == 3
    assert not any(place.exists() for place in places)


def test_a_pre_release_is_not_final():
    assert Release("1.0").is_final
    assert Release("1.0.post2").is_final
    assert not Release("1.0rc1").is_final
