import subprocess
import sys
from pathlib import Path

import pytest

import optrove

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("name", optrove.__all__)
def test_every_public_name_can_be_had(name):
    assert getattr(optrove, name) is not None


def test_a_name_that_is_not_there_is_an_ordinary_error():
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = optrove.no_such_name


def test_importing_optrove_imports_nothing_else():
    script = "import sys, optrove; print([m for m in sys.modules if m.startswith('optrove.')])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_asking_for_a_board_without_ttnn_names_the_extra_and_the_python_versions():
    # -S leaves site-packages out, so there is no ttnn, whatever is installed.
    script = f"""
import sys
sys.path.insert(0, {str(SOURCE)!r})
import optrove
from optrove.errors import FrameworkMissing
try:
    with optrove.mock_board("n300"):
        raise SystemExit("entered")
except FrameworkMissing as error:
    print(error)
"""
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "optrove[ttnn]" in done.stdout
    assert "3.10 and 3.12" in done.stdout
