"""Print how large and how tangled the source tree is.

    python tools/house_numbers.py [SRC]

How it counts:

- A module is a Python file of the package. Its lines are all lines, empty ones too.
- Imports are read from the syntax tree: at the top, in functions and for type checkers. Importing
  a name from a package counts as importing the package. Names of modules in strings
  (``import_module("optrove.x")``) do not count.
- The way of one ``ttnn.add``: a script with one ``ttnn.add`` is traced on a mock board, and then
  ``optrove report`` writes its page. A module is passed if at least one of its functions runs in
  any of the processes (lambdas, generator expressions and class bodies are no functions here;
  functions that run while modules are imported count). What C code does is not seen.
- The length of a function is that of its ``def`` with its body, without decorators. Its depth is
  the number of blocks (if, for, while, with, try, match) inside one another; ``elif`` is no deeper
  than its ``if``.

Nothing is enforced. ``--static`` leaves out the traced call, which needs ttnn.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = "optrove"
LONG: Final = 50
DEEP: Final = 4
BLOCKS: Final = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match),
)
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
WIRING: Final = re.compile(r"optrove\.(cli|flows)(_\w+)?(\.|$)")

# Put into every process as sitecustomize.py: notes each file of the package once, as soon as a
# function of it runs, so that nothing is lost when a process is killed.
WATCHER: Final = """
import os, sys
FOLDER, NOTES = {folder!r} + os.sep, {notes!r}
seen = set()


def note(code, *_):
    function = code.co_flags & 1 and not code.co_name.startswith("<")
    if function and code.co_filename.startswith(FOLDER) and code.co_filename not in seen:
        seen.add(code.co_filename)
        with open(NOTES, "a") as notes:
            notes.write(code.co_filename + chr(10))
    return sys.monitoring.DISABLE if hasattr(sys, "monitoring") else None


if hasattr(sys, "monitoring"):
    sys.monitoring.use_tool_id(sys.monitoring.PROFILER_ID, "house_numbers")
    sys.monitoring.register_callback(
        sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START, note
    )
    sys.monitoring.set_events(sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START)
else:
    import threading

    def profile(frame, event, _):
        note(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
"""
SCRIPT: Final = """
import ttnn

device = ttnn.open_device(device_id=0)
x = ttnn.ones([1, 1, 32, 64], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
ttnn.add(x, x)
ttnn.close_device(device)
"""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Print how large and tangled the source is.")
    parser.add_argument("source", nargs="?", type=Path, default=ROOT / "src")
    parser.add_argument("--static", action="store_true", help="leave out the traced call")
    asked = parser.parse_args()
    source = asked.source.resolve()
    texts = {module_name(path, source): path.read_text() for path in sources(source)}
    rows = [*size_rows(texts), *function_rows(texts)]
    if not asked.static:
        passed = modules_passed(source)
        rows.append(("modules that one ttnn.add passes on its way to the report", str(len(passed))))
    width = max(len(name) for name, _ in rows)
    for name, number in rows:
        print(f"{name:{width}}  {number}")
    return 0


def sources(source: Path) -> list[Path]:
    """Return the Python files of the package."""
    return sorted((source / PACKAGE).rglob("*.py"))


def module_name(path: Path, source: Path) -> str:
    """Return the name by which a file is imported."""
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def size_rows(texts: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Count modules, lines, and modules that one other imports."""
    lines = {name: len(text.splitlines()) for name, text in texts.items()}
    importers = importers_of(texts)
    once = [name for name in texts if len(importers[name]) == 1]
    wiring = sum(count for name, count in lines.items() if WIRING.match(name))
    yield "modules", f"{len(texts):,}"
    yield "lines", f"{sum(lines.values()):,}"
    yield "modules imported by exactly one other", f"{len(once):,}"
    yield "lines of these", f"{sum(lines[name] for name in once):,}"
    yield "lines of wiring (cli and flows)", f"{wiring:,}"


def importers_of(texts: dict[str, str]) -> dict[str, set[str]]:
    """Return, for each module, the modules that import it."""
    found: dict[str, set[str]] = {name: set() for name in texts}
    for name, text in texts.items():
        for imported in imports_of(ast.parse(text), found):
            if imported != name:
                found[imported].add(name)
    return found


def imports_of(tree: ast.Module, known: Iterable[str]) -> set[str]:
    """Return the modules of the package that a module imports."""
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {imported_from(node.module, alias.name, known) for alias in node.names}
    return named & set(known)


def imported_from(module: str, name: str, known: Iterable[str]) -> str:
    """Return the module that ``from module import name`` is about."""
    whole = f"{module}.{name}"
    return whole if whole in known else module


def function_rows(texts: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Measure functions."""
    functions = [
        node
        for text in texts.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, FUNCTIONS)
    ]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    depths = Counter(min(depth(node.body), DEEP) for node in functions)
    yield "functions", f"{len(functions):,}"
    yield "median lines of a function", f"{statistics.median(lengths):.0f}"
    yield f"functions of more than {LONG} lines", f"{sum(each > LONG for each in lengths)}"
    yield f"functions with blocks {DEEP} deep or more", f"{depths[DEEP] / len(functions):.1%}"


def depth(nodes: Iterable[ast.AST]) -> int:
    """Return how many blocks are inside one another, without those of inner functions."""
    return max((_depth(node) for node in nodes), default=0)


def _depth(node: ast.AST) -> int:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return 0
    if isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        return max(1 + depth([node.test, *node.body]), _depth(node.orelse[0]))
    return depth(ast.iter_child_nodes(node)) + isinstance(node, BLOCKS)


def modules_passed(source: Path) -> set[str]:
    """Trace one ttnn.add, write the report, and return the modules of which functions ran."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        notes = directory / "notes.txt"
        watcher = WATCHER.format(folder=str(source / PACKAGE), notes=str(notes))
        (directory / "sitecustomize.py").write_text(watcher)
        (directory / "add.py").write_text(SCRIPT.lstrip())
        path = os.pathsep.join((name, str(source)))
        for words in (("trace", "add.py", "--board", "n150"), ("report", "-o", "add.html")):
            command = [sys.executable, "-m", PACKAGE, *words, "--store", "add.db"]
            subprocess.run(  # noqa: S603 - our own command
                ["/usr/bin/env", f"PYTHONPATH={path}", *command],
                cwd=directory,
                stdout=subprocess.DEVNULL,
                check=True,
            )
        assert "ttnn.add" in (directory / "add.html").read_text()
        return {module_name(Path(line), source) for line in notes.read_text().splitlines()}


if __name__ == "__main__":
    sys.exit(main())
