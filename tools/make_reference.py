"""Write the reference of everything that Python programs may use, from the code itself."""

from __future__ import annotations

import inspect
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optrove import errors
from optrove.runconfig import OpConfig
from optrove.settings import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
MODULES = ("optrove", "optrove.metrics", "optrove.sweep", "optrove.runconfig")
WIDTH = 100
HEAD = """\
# Reference

The public Python interface, from the docstrings of the code (`tools/make_reference.py` writes this
page). [The command line](command-line.md) has the commands, [pytest](pytest.md) the options of the
pytest plugin.
"""


def page() -> str:
    """Return the text of the whole page."""
    parts = [HEAD, *(part for name in MODULES for part in module_part(import_module(name)))]
    return "\n".join([*parts, *error_part(), *setting_part()])


def module_part(module: ModuleType) -> Iterator[str]:
    """Yield a heading for the module, and what it offers by name."""
    first, *_ = inspect.getdoc(module).splitlines()
    yield f"## `{module.__name__}`\n\n{first}\n"
    found = {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower)}
    configs = [each for each in found.values() if is_op_config(each)]
    for name, each in found.items():
        if callable(each) and not is_op_config(each):
            yield from entry(f"{module.__name__}.{name}", each)
    if configs:
        yield "### Op configs\n\n| class | ops | arguments |\n|---|---|---|"
        yield from (config_row(each) for each in configs)
        yield ""


def entry(name: str, thing: Any) -> Iterator[str]:
    """Yield the signature of a function or class, what it promises, and its methods."""
    yield f"### `{name}`\n\n```text\n{signature(name.rpartition('.')[2], thing)}\n```\n"
    yield f"{described(thing)}\n"
    if inspect.isclass(thing):
        for method, function in vars(thing).items():
            plain = getattr(function, "__func__", function)
            if inspect.isfunction(plain) and not method.startswith("_"):
                first = described(plain).splitlines()[0]
                yield f"- `{signature(method, plain, width=None)}`: {first}"
        yield ""


def signature(name: str, thing: Any, width: int | None = WIDTH) -> str:
    """Return how a thing is called, a parameter per line where one line does not hold them."""
    found = inspect.signature(thing)
    texts = list(_parameters(found))
    returned = found.return_annotation
    tail = "" if returned in (found.empty, None, "None") else f" -> {returned}"
    line = f"{name}({', '.join(texts)}){tail}"
    if width is None or len(line) <= width:
        return line
    return "\n".join([f"{name}(", *(f"    {text}," for text in texts), f"){tail}"])


def _parameters(found: inspect.Signature) -> Iterator[str]:
    marked = False
    for each in found.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not marked:
            marked = True
            yield "*"
        if each.name != "self":
            default = "" if each.default is each.empty else f" = {each.default!r}"
            yield f"{each.name}: {each.annotation}{default}"


def described(thing: Any) -> str:
    """Return the docstring, without its examples; whatever has none does not belong here."""
    text = inspect.getdoc(thing)
    assert text, f"{thing} has no docstring"
    return text.partition("\n>>> ")[0].rstrip()


def is_op_config(thing: Any) -> bool:
    """Return whether it is the config of certain ops, of which there are too many for an entry."""
    return inspect.isclass(thing) and issubclass(thing, OpConfig) and thing is not OpConfig


def config_row(config: type[Any]) -> str:
    """Return an op config as a row of a table."""
    ops = ", ".join(f"`{op}`" for op in config.ops)
    arguments = ", ".join(f"`{each.name}`" for each in fields(config))
    return f"| `{config.__name__}` | {ops} | {arguments} |"


def error_part() -> Iterator[str]:
    """Yield all exceptions that are raised on purpose."""
    yield "## `optrove.errors`\n\n| exception | is a | when |\n|---|---|---|"
    for name, each in vars(errors).items():
        if inspect.isclass(each) and issubclass(each, Exception):
            yield f"| `{name}` | `{each.__base__.__name__}` | {described(each).splitlines()[0]} |"
    yield ""


def setting_part() -> Iterator[str]:
    """Yield all environment variables."""
    yield "## Environment\n\n| variable | meaning |\n|---|---|"
    yield from (f"| `{each.name}` | {each.help} |" for each in VARIABLES)
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
