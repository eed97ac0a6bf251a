"""Each rule is one test that names all modules and lines that break it; each is parsed once."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CODE = [
    *SOURCES,
    *(path for name in ("examples", "tools", "benchmarks") for path in (ROOT / name).rglob("*.py")),
]
EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf]")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "util", "helper"}


@cache
def text_of(path):
    return path.read_text()


@cache
def nodes_of(path):
    return list(ast.walk(ast.parse(text_of(path))))


def breaking(paths, breaks):
    """Return where a rule is broken: ``breaks`` gives what is wrong with a module, if anything."""
    found = {str(path.relative_to(ROOT)): breaks(path) for path in paths}
    return {name: wrong for name, wrong in found.items() if wrong}


def test_there_is_source_code_to_judge():
    assert len(SOURCES) > 10
    assert breaking([Path(__file__)], lambda path: nodes_of(path)[:1])


def test_a_module_says_in_its_first_line_what_it_is_for():
    def breaks(path):
        docstring = ast.get_docstring(nodes_of(path)[0])
        return not docstring or len(docstring.splitlines()[0]) > 100

    assert not breaking(CODE, breaks)


def test_a_module_has_a_telling_name():
    assert not breaking(
        CODE, lambda path: path.stem in FORBIDDEN_NAMES or re.search(r"_v\d+$", path.stem)
    )


def test_there_is_no_emoji():
    assert not breaking(CODE, lambda path: EMOJI.search(text_of(path)))


def evaluates_or_keeps_globals(path):
    nodes = nodes_of(path)
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
    return [
        *((names | attributes) & {"eval", "exec", "__import__", "compile"}),
        *(imports & {"pickle", "cPickle", "marshal", "shelve", "dill", "builtins"}),
        *(f"global, line {node.lineno}" for node in nodes if isinstance(node, ast.Global)),
    ]


def test_nothing_evaluates_data_or_keeps_globals():
    assert not breaking(SOURCES, evaluates_or_keeps_globals)


def test_only_the_command_line_prints():
    def breaks(path):
        return [
            node.lineno
            for node in nodes_of(path)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
            and path.parent.name != "cli"
        ]

    assert not breaking(SOURCES, breaks)


def is_muted(handler):
    kind = handler.type
    broad = kind is None or (isinstance(kind, ast.Name) and "Exception" in kind.id)
    return broad and all(isinstance(line, ast.Pass | ast.Continue) for line in handler.body)


def test_no_exception_is_muted():
    def breaks(path):
        handlers = [node for node in nodes_of(path) if isinstance(node, ast.ExceptHandler)]
        return [handler.lineno for handler in handlers if is_muted(handler)]

    assert not breaking(SOURCES, breaks)
