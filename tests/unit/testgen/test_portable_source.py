"""Generated programs hold copies of the portable functions that they reach."""

from textwrap import dedent

import pytest

from optrove.testgen import portable_source


@pytest.fixture
def source_of(tmp_path, monkeypatch):
    """Return a function that copies definitions from modules with the given texts."""

    def copied(wanted, **modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(dedent(text).lstrip(), encoding="utf-8")
        monkeypatch.setattr(portable_source, "files", lambda package: tmp_path)
        portable_source._library.cache_clear()
        return portable_source.portable_source(wanted)

    yield copied
    portable_source._library.cache_clear()


LOW = '''
    """Low."""

    from __future__ import annotations

    import math
    from typing import TYPE_CHECKING, Final

    if TYPE_CHECKING:
        from collections.abc import Iterable

    # Half a turn.
    HALF: Final = math.pi
    """In radians."""

    UNUSED: Final = 3


    def turns(numbers: Iterable[float]) -> list[float]:
        """Return full turns."""
        return [number / (2 * HALF) for number in numbers]
'''
HIGH = '''
    """High."""

    from dataclasses import dataclass
    from optrove.portable.low import turns


    @dataclass(frozen=True)
    class Angle:
        """An angle.

        Not more than a turn.
        """

        size: float

        def turn(self) -> float:
            return turns([self.size])[0]


    def other():
        return None
'''


def test_a_copy_has_what_its_functions_reach_and_nothing_else(source_of):
    source = source_of(["Angle"], high=HIGH, low=LOW)
    assert source.imports == (
        "from dataclasses import dataclass",
        "import math",
    )
    half, turns, angle = source.definitions
    assert half == '# Half a turn.\nHALF: Final = math.pi\n"""In radians."""'
    assert turns.startswith("def turns(")
    assert angle.startswith(
        '@dataclass(frozen=True)\nclass Angle:\n    """An angle."""\n\n    size: float\n'
    )


def test_a_copy_runs(source_of):
    source = source_of(["Angle"], high=HIGH, low=LOW)
    space = {"__name__": __name__}
    future = "from __future__ import annotations"
    program = "\n".join([future, *source.imports, *source.definitions])
    exec(compile(program, "copied", "exec"), space)  # noqa: S102 - it was written here
    assert space["Angle"](3.141592653589793).turn() == 0.5


def test_two_definitions_of_one_name_are_refused(source_of):
    with pytest.raises(ValueError, match="two modules define turns"):
        source_of(["turns"], low=LOW, other="def turns():\n    return 1\n")


def test_an_unknown_name_is_refused(source_of):
    with pytest.raises(KeyError):
        source_of(["nothing"], low=LOW)
