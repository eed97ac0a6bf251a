import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CODE = [
    *SOURCES,
    *(path for name in ("examples", "tools", "benchmarks") for path in (ROOT / name).rglob("*.py")),
]
EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf]")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "util", "helper"}

by_path = {"argvalues": CODE, "ids": [str(path.relative_to(ROOT)) for path in CODE]}


def tree(path):
    return ast.parse(path.read_text())


def test_there_is_source_code_to_judge():
    assert len(SOURCES) > 10


@pytest.mark.parametrize("path", **by_path)
def test_a_module_has_at_most_400_lines(path):
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", **by_path)
def test_a_module_says_in_its_first_line_what_it_is_for(path):
    docstring = ast.get_docstring(tree(path))
    assert docstring
    assert len(docstring.splitlines()[0]) <= 100


@pytest.mark.parametrize("path", **by_path)
def test_a_module_has_a_telling_name(path):
    assert path.stem not in FORBIDDEN_NAMES
    assert not re.search(r"_v\d+$", path.stem)


@pytest.mark.parametrize("path", **by_path)
def test_a_function_has_at_most_50_lines(path):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = [
        node.name
        for node in ast.walk(tree(path))
        if isinstance(node, functions) and node.end_lineno - node.lineno >= 50
    ]
    assert not long


@pytest.mark.parametrize("path", **by_path)
def test_there_is_no_emoji(path):
    assert not EMOJI.search(path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES])
def test_nothing_evaluates_data_or_keeps_globals(path):
    nodes = list(ast.walk(tree(path)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("builtins", "__builtins__")
    }
    imports = {
        name.split(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
    }
    assert not (names | attributes) & {"eval", "exec", "__import__", "compile"}
    assert not imports & {"pickle", "cPickle", "marshal", "shelve", "dill", "builtins"}
    assert not any(isinstance(node, ast.Global) for node in nodes)


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES])
def test_only_the_command_line_prints(path):
    prints = [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert path.name == "cli.py" or not prints


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES])
def test_no_exception_is_muted(path):
    muted = [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and "Exception" in node.type.id))
        and all(isinstance(line, ast.Pass | ast.Continue) for line in node.body)
    ]
    assert not muted
