"""Copy functions of ``optrove.portable`` into generated programs, with all that they reach.

The modules are read as text, never imported, so that programs can be generated without torch.
Programs have to begin with ``from __future__ import annotations``: copies have annotations, but
not what these name.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_OWN: Final = "optrove.portable"
_NOT_COPIED: Final = frozenset({"annotations", "TYPE_CHECKING"})


@dataclass(frozen=True, slots=True)
class PortableSource:
    """The import statements that a copy needs, each of one name, and its definitions."""

    imports: tuple[str, ...]
    definitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Definition:
    names: tuple[str, ...]
    text: str
    uses: frozenset[str]


def portable_source(wanted: Iterable[str]) -> PortableSource:
    """Return copies of the definitions with these names and of all that they use.

    They are in an order in which Python can run them. KeyError for a name that is not defined.
    """
    definitions, imports = _library()
    reached: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            uses = definitions[name].uses
            waiting += uses & definitions.keys()
    chosen = {id(definitions[name]): definitions[name] for name in definitions if name in reached}
    used = frozenset().union(*(definition.uses for definition in chosen.values()))
    return PortableSource(
        tuple(sorted({imports[name] for name in used & imports.keys()})),
        tuple(definition.text for definition in chosen.values()),
    )


@cache
def _library() -> tuple[Mapping[str, _Definition], Mapping[str, str]]:
    """Return every definition by its name, those that others use first, and every import."""
    folder = files(_OWN)
    texts = {
        path.name.removesuffix(".py"): path.read_text("utf-8")
        for path in folder.iterdir()
        if path.name.endswith(".py")
    }
    definitions: dict[str, _Definition] = {}
    imports: dict[str, str] = {}
    for module in _ordered(texts):
        lines = texts[module].splitlines()
        for node, last in _statements(ast.parse(texts[module])):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imports |= _imports(node)
                continue
            definition = _definition(node, lines, last)
            for name in definition.names:
                if name in definitions:
                    raise ValueError(f"{_OWN}: two modules define {name}; copies need one name")
                definitions[name] = definition
    return definitions, imports


def _ordered(texts: Mapping[str, str]) -> list[str]:
    """Return the names of the modules, each after those that it imports."""
    ordered: list[str] = []

    def add(module: str) -> None:
        if module in ordered:
            return
        for node in ast.walk(ast.parse(texts[module])):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{_OWN}."):
                add(str(node.module).removeprefix(f"{_OWN}."))
        ordered.append(module)

    for module in sorted(texts):
        add(module)
    return ordered


def _statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, int]]:
    """Yield the statements of a module with their last lines.

    The text below a constant belongs to it. Imports for types alone are imports like others.
    """
    rows: list[tuple[ast.stmt, int]] = []
    for node in tree.body:
        if isinstance(node, ast.If):
            rows += [(inner, inner.end_lineno or 0) for inner in node.body]
        elif not isinstance(node, ast.Expr):
            rows.append((node, node.end_lineno or 0))
        elif rows:
            rows[-1] = (rows[-1][0], node.end_lineno or 0)
    yield from rows


def _imports(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return a statement for each name; none for names of other portable modules."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_OWN):
        return {}
    return {
        alias.asname or alias.name.partition(".")[0]: ast.unparse(_with_one(node, alias))
        for alias in node.names
        if alias.name not in _NOT_COPIED
    }


def _with_one(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.stmt:
    if isinstance(node, ast.Import):
        return ast.Import(names=[alias])
    return ast.ImportFrom(module=node.module, names=[alias], level=0)


def _definition(node: ast.stmt, lines: list[str], last: int) -> _Definition:
    """Return a definition with the comments above it, and the first line of its docstring."""
    first = min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))])
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    used = [part for part in _evaluated(node) if isinstance(part, ast.Name)]
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        names: tuple[str, ...] = (node.name,)
    else:
        names = tuple(part.id for part in used if isinstance(part.ctx, ast.Store))
    uses = frozenset(part.id for part in used).difference(names)
    kept = lines[first - 1 : last]
    docstring = node.body[0] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else None
    if isinstance(docstring, ast.Expr) and docstring.end_lineno != docstring.lineno:
        start, end = docstring.lineno - first, (docstring.end_lineno or 0) - first
        kept = [*kept[:start], f'{kept[start]}"""', *kept[end + 1 :]]
    return _Definition(names, "\n".join(kept), uses)


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is in it, without annotations, which are only text."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("returns", "annotation"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _evaluated(part)


JUDGE: Final = ("by_moves", "by_rounding", "faults", "only_moves", "rounded_alike")
"""What generated tests judge the numbers of a device with, apart from PCC."""
