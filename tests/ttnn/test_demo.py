import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import optrove
from example_runs import users_environment

pytestmark = [pytest.mark.ttnn, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
# Python imports this before anything else: no process of the demo finds torch.
NO_TORCH = "import sys\nsys.modules['torch'] = None\n"


def run(*command, cwd, **more):
    """Run a command with the environment of a user, and return its output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**users_environment(), **more},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build an sdist of the checkout, and from the sdist alone a wheel."""
    place = tmp_path_factory.mktemp("built")
    build = (sys.executable, "-m", "hatchling", "build", "-d", str(place), "-t")
    run(*build, "sdist", cwd=ROOT)
    (sdist,) = place.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    run(*build, "wheel", cwd=place / sdist.name.removesuffix(".tar.gz"))
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return the scripts of a new environment with the wheel.

    It finds all other packages, ttnn among them, where the running Python does: without a download.
    """
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install")
    # make names its file of constraints by a path that is relative to the checkout.
    run(*pip, "--no-deps", "--no-index", str(wheel), cwd=place, PIP_CONSTRAINT="")
    (site,) = place.glob("lib/python3*/site-packages")
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "others.pth").write_text("\n".join(others))
    return place / "bin"


def test_the_wheel_has_the_examples_and_no_sources_in_c(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "optrove/_examples/encoder/test_encoder.py" in names
    assert "optrove/trove/schema.sql" in names
    assert "optrove/py.typed" in names
    assert [name for name in names if name.endswith((".c", ".h", ".pyc"))] == []
    # All modules in C are there, or, without a compiler, none is.
    assert len([name for name in names if name.endswith(".so")]) == (
        0 if wheel.name.endswith("-none-any.whl") else 3
    )


def test_the_command_of_the_wheel_is_not_that_of_the_checkout(installed, tmp_path):
    shown = run(str(installed / "optrove"), "--version", cwd=tmp_path)
    assert shown == f"optrove {optrove.__version__}\n"
    where = "import optrove; print(optrove.__file__)"
    found = run(str(installed / "python"), "-c", where, cwd=tmp_path)
    assert Path(found.strip()).is_relative_to(installed.parent)


def test_the_demo_of_the_wheel_needs_no_torch_and_leaves_a_trove_and_a_report(installed, tmp_path):
    hiding, home = tmp_path / "hiding", tmp_path / "home"
    hiding.mkdir()
    home.mkdir()
    (hiding / "sitecustomize.py").write_text(NO_TORCH)
    shown = run(str(installed / "optrove"), "demo", cwd=home, PYTHONPATH=str(hiding))
    assert "No numbers without torch" in shown
    assert "$ optrove trace .optrove/examples/encoder/test_encoder.py" in shown
    assert "$ optrove check-board p300 --model llama" in shown
    assert "equal hash" in shown
    assert "all good" in shown
    assert str(ROOT) not in shown
    assert [path.name for path in home.iterdir()] == [".optrove"]
    left = {path.name for path in (home / ".optrove").iterdir()}
    assert {"demo.db", "demo.html", "examples"} <= left
    files = {"demo.db", "demo.db-shm", "demo.db-wal", "demo.db.journals", "demo.html", "examples"}
    assert left <= files
