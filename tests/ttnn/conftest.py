"""ttnn for the tests of this folder: one process per test, or the mock Galaxy in this process.

ttnn settles on one board per process. Tests that need another board, or a fresh process, run a
script through ``run_python``; all others share the Galaxy, which has every mesh shape.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import optrove
from forked_python import python
from optrove.frameworks.ttnn.probe import fast_path
from parts import C_EXTENSION, leave_out

LIMIT_SECONDS = 180
WITHOUT_TORCH = str(Path(__file__).parents[1] / "support" / "without_torch")


@pytest.fixture(autouse=True, scope="module")
def hidden_torch(request):
    """Hide torch from the processes that tests start, unless these are marked with it.

    ttnn imports torch where it is installed, and that takes four times as long as importing ttnn,
    opening a board and calling an op together; ttnn itself does without.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("torch") is None:
            patch.setenv("PYTHONPATH", WITHOUT_TORCH, prepend=os.pathsep)
        yield


@pytest.fixture(autouse=True)
def found_torch(hidden_torch, request, monkeypatch):
    """Show torch to the processes of a test that is marked with it."""
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if request.node.get_closest_marker("torch") and WITHOUT_TORCH in places:
        places.remove(WITHOUT_TORCH)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))


@pytest.fixture(scope="session")
def ttnn():
    """The ttnn module, on a mock Galaxy; the environment is clean for processes of other tests."""
    with optrove.mock_board("galaxy"):
        import ttnn
    return ttnn


@pytest.fixture(scope="session")
def mesh(ttnn):
    """An open 4x8 mesh with a fabric, so that collective ops run."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(4, 8))
    yield mesh
    ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


@pytest.fixture(scope="module")
def all_chips(mesh, ttnn):
    """All chips; not the mesh itself, since a mesh in use keeps its parts from being closed."""
    submesh = mesh.create_submesh(ttnn.MeshShape(4, 8))
    yield submesh
    ttnn.close_mesh_device(submesh)


@pytest.fixture(scope="module")
def device(mesh, ttnn):
    """One chip of the Galaxy."""
    submesh = mesh.create_submesh(ttnn.MeshShape(1, 1))
    yield submesh
    ttnn.close_mesh_device(submesh)


@pytest.fixture(scope="module")
def row(mesh, ttnn):
    """A row of chips, joined by the fabric."""
    submesh = mesh.create_submesh(ttnn.MeshShape(1, 8), ttnn.MeshCoordinate(2, 0))
    yield submesh
    ttnn.close_mesh_device(submesh)


@pytest.fixture
def record_by(monkeypatch):
    """Record by the part that is written in C or by the one in Python from now on."""

    def record_by(way):
        if way == "in Python":
            monkeypatch.setattr(fast_path, "_extension", None)
        elif not fast_path.is_native():
            leave_out(C_EXTENSION, "it was not built")

    return record_by


@pytest.fixture(params=["in C", "in Python"])
def either_way(request, record_by):
    """Run the test once for each of the two ways of recording."""
    record_by(request.param)


@pytest.fixture
def put(ttnn, device):
    """Put numbers of torch on one chip, by default as bfloat16 in tiles."""

    def put(numbers, dtype=None, **keywords):
        keywords = {"layout": ttnn.TILE_LAYOUT, "device": device} | keywords
        return ttnn.from_torch(numbers, dtype or ttnn.bfloat16, **keywords)

    return put


@pytest.fixture
def make(ttnn, device):
    """Create a tensor of zeros, in tiles on one chip."""

    def make(*shape, **keywords):
        options = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": device} | keywords
        return ttnn.zeros(shape or (32, 32), **options)

    return make


@pytest.fixture
def report(ttnn):
    """The report of the shadow, which is on during the test and rounds each result once."""
    with optrove.mock_board("galaxy", shadow=True, numerics="ideal"):
        from optrove.frameworks.ttnn.shadow.shadow import active_report

        yield active_report()


def fresh_python(*words, **options):
    """Run Python in a process of its own."""
    command = [sys.executable, *words]
    keywords = {"capture_output": True, "text": True, "timeout": LIMIT_SECONDS}
    return subprocess.run(command, check=False, **keywords, **options)


@pytest.fixture
def run_python(tmp_path):
    """Run a script in a process and an empty directory of its own; return what it printed."""
    directory = tmp_path / "working"
    directory.mkdir()

    def run(script, *arguments, **variables):
        start = fresh_python if WITHOUT_TORCH in os.environ.get("PYTHONPATH", "") else python
        done = start("-c", script, *arguments, cwd=directory, env=os.environ | variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert list(directory.iterdir()) == [], "files were left in the working directory"
        return done.stdout

    return run
