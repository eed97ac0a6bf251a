"""The targets of ``optrove trace``: tests for pytest, or a Python script.

A node id (with ``::``) and a directory are for pytest. A ``.py`` file is for pytest when pytest
would find tests in it by its usual rules, which is seen from its name or its source; no code of
the target runs here. Everything else that ends in ``.py`` is a script.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from optrove.errors import BadTarget

_TEST_FILES: Final = ("test_*.py", "*_test.py")
_NODE: Final = "::"


class TargetKind(Enum):
    """Who runs a target."""

    PYTEST = "pytest"
    SCRIPT = "script"


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """Something to be traced, as the user named it."""

    name: str
    kind: TargetKind


def find_target(name: str) -> TraceTarget:
    """Return the target called ``name``; BadTarget if there is nothing to run."""
    file, node, _ = name.partition(_NODE)
    path = Path(file)
    if not path.exists():
        raise BadTarget(f"{name!r} cannot be traced: there is no file {file!r} here{_near(path)}")
    if node or path.is_dir():
        return _for_pytest(name)
    if path.suffix != ".py":
        raise BadTarget(
            f"{name!r} cannot be traced: it is neither a Python file (.py) nor a directory of "
            f"tests; name a script, a test file, a directory or a pytest node id"
        )
    return _for_pytest(name) if _holds_tests(path) else TraceTarget(name, TargetKind.SCRIPT)


def _for_pytest(name: str) -> TraceTarget:
    if find_spec("pytest") is None:
        raise BadTarget(
            f"{name!r} is for pytest, which this Python does not have; "
            f"install it with: pip install pytest"
        )
    return TraceTarget(name, TargetKind.PYTEST)


def _near(path: Path) -> str:
    """Return advice for a missing file: a file with a similar name."""
    if not path.parent.is_dir():
        return f", and no directory {str(path.parent)!r} either; check the working directory"
    alike = get_close_matches(path.name, [each.name for each in path.parent.iterdir()], n=1)
    if not alike:
        return "; check the spelling and the working directory"
    return f"; is it {str(path.with_name(alike[0]))!r}?"


def _holds_tests(path: Path) -> bool:
    if any(fnmatch(path.name, pattern) for pattern in _TEST_FILES):
        return True
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        # Python reports it when it runs the file.
        return False
    except OSError as error:
        raise BadTarget(f"{str(path)!r} cannot be read: {error}; check its permissions") from error
    return any(map(_is_test, tree.body))


def _is_test(node: ast.stmt) -> bool:
    """Return whether a statement defines a test.

    A function that is called just ``test`` does not count: in scripts it is the counterpart of
    ``train``.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name.startswith("test_")
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test") and any(map(_is_test, node.body))
    return False
