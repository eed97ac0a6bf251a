"""List the ttnn ops that the models of tt-metal call, and whether mock boards have their numbers.

    python tools/model_ops.py CHECKOUT [--json] [--all]
    python tools/model_ops.py --docs

CHECKOUT is a checkout of tt-metal; its files are parsed, not imported. A place is one expression of
the source that names an op (a call, an alias, an argument), or a call of a method that only
``ttnn.Tensor`` has. Ops with the most places come first. Each op is in one of these states:

    rule          it moves tensors, and so do their numbers
    own           optrove computes it itself, or changes the arguments of ttnn's golden function
    chips         optrove computes it over the chips of a mesh
    golden        ttnn's golden function computes it
    one chip      ttnn's golden function computes it, but not on a mesh
    no tensors    it returns no tensor that has numbers
    none          it has no numbers; the reason follows
    unknown       the installed ttnn does not have it

Without ``--all``, the states that need nothing (all but the last four) are only counted. ``--docs``
prints the table of docs/boards.md, which needs no checkout.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optrove.frameworks.ttnn.ops import WITHOUT_NUMBERS, op_of
from optrove.frameworks.ttnn.shadow.expected_outputs import talks_between_chips
from optrove.frameworks.ttnn.shadow.golden import QUASAR, lacking
from optrove.frameworks.ttnn.shadow.transfers import Transfers
from optrove.frameworks.ttnn.signatures import Signatures

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTLED = ("rule", "own", "chips", "golden")
ONE_CHIP = "computed on one chip only: across chips there is no rule for it"
NOBODY = "nobody has written a reference implementation for it yet"
TESTS = "its golden function needs a file of tt-metal's tests"


@dataclass
class Places:
    """How often each name is in the sources of models, and in which of them."""

    counts: Counter[str] = field(default_factory=Counter)
    models: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, name: str, model: str, count: int = 1) -> None:
        """Count places of a name in a model."""
        self.counts[name] += count
        self.models[name].add(model)


class Names(ast.NodeVisitor):
    """The names below ``ttnn`` in one file, through imports, aliases and assignments."""

    def __init__(self, methods: frozenset[str]) -> None:
        self.counts: Counter[str] = Counter()
        self._methods = methods
        self._known: dict[str, tuple[str, ...]] = {}

    def visit_Import(self, node: ast.Import) -> None:
        """Note what ``import ttnn`` binds."""
        for alias in node.names:
            parts = tuple(alias.name.split("."))
            if parts[0] == "ttnn":
                self._known[alias.asname or "ttnn"] = parts if alias.asname else ("ttnn",)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note what ``from ttnn import`` binds."""
        home = tuple((node.module or "").split("."))
        if home[0] == "ttnn":
            for alias in node.names:
                self._known[alias.asname or alias.name] = (*home, alias.name)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note another name for an op."""
        path, target = self._path(node.value), node.targets[0]
        if path and isinstance(target, ast.Name):
            self._known[target.id] = path
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Count a whole dotted name."""
        path = self._path(node)
        if path:
            self.counts[".".join(path)] += 1
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Count calls of methods of tensors, and of ops by other names."""
        function = node.func
        if isinstance(function, ast.Name) and function.id in self._known:
            self.counts[".".join(self._known[function.id])] += 1
        if isinstance(function, ast.Attribute) and function.attr in self._methods:
            self.counts[f"ttnn.Tensor.{function.attr}"] += not self._path(function)
        self.generic_visit(node)

    def _path(self, node: ast.expr) -> tuple[str, ...]:
        """Return a dotted name from ``ttnn`` on; nothing for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        home = self._known.get(node.id, ()) if isinstance(node, ast.Name) else ()
        return (*home, *reversed(parts)) if home else ()


def places_in(models: Path, methods: frozenset[str]) -> Places:
    """Return the names below ``ttnn`` in all files of a directory."""
    places = Places()
    for path in sorted(models.rglob("*.py")):
        if not path.is_file():  # a link that leads out of a partial checkout
            continue
        names = Names(methods)
        names.visit(ast.parse(path.read_text()))
        model = "/".join(path.relative_to(models).parts[:2])
        for name, count in names.counts.items():
            places.add(name, model, count)
    return places


class Numbers:
    """What the installed ttnn and optrove know about each op."""

    def __init__(self, ttnn: Any) -> None:
        self._ttnn = ttnn
        self._signatures = Signatures()
        self._moving = Transfers(ttnn, *[None] * 3).ops.keys()  # type: ignore[arg-type]
        self.kinds = (ttnn.decorators.FastOperation, ttnn.decorators.Operation)

    def operations(self) -> dict[str, Any]:
        """Return all ops by their names."""
        registered = self._ttnn.query_registered_operations(include_experimental=True)
        return {each.python_fully_qualified_name: each for each in registered}

    def find(self, name: str) -> Any:
        """Return the op of a name; None if the installed ttnn has no op there."""
        try:
            value = attrgetter(name.removeprefix("ttnn."))(self._ttnn)
        except AttributeError:
            return None
        return value if isinstance(value, self.kinds) else None

    def _reason(self, name: str) -> str:
        return lacking(name).removeprefix(": ") or NOBODY

    def state(self, operation: Any) -> tuple[str, str]:  # noqa: PLR0911 - one line a state
        """Return the state of an op, and why it has no numbers."""
        name = operation.python_fully_qualified_name
        if name.startswith(QUASAR):
            path = name.removeprefix(QUASAR)
            twin = self.find(f"ttnn.{path}") or self.find(f"ttnn.experimental.{path}")
            return self.state(twin) if twin is not None else ("none", self._reason(name))
        op = op_of(name)
        if op.writes_nothing or op.has_no_tensors:
            return "no tensors", ""
        if name in self._moving:
            return "rule", ""
        if op.collective or op.collective_with_product or op.line_golden:
            return "chips", ""
        if op.golden or op.adapter:
            return "own", ""
        if operation.golden_function is None:
            return "none", self._reason(name)
        function = inspect.unwrap(operation.golden_function)
        if inspect.isfunction(function) and "from tests" in inspect.getsource(function):
            return "none", TESTS
        if talks_between_chips(operation, self._signatures.parameters(operation)):
            return "one chip", ONE_CHIP
        return "golden", ""


def markdown(numbers: Numbers) -> Iterator[str]:
    """Yield the table of all ops of the installed ttnn without numbers, by reason."""
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for name, operation in sorted(numbers.operations().items()):
        state, reason = numbers.state(operation)
        if state in ("none", "one chip"):
            by_reason[reason].append(f"`{name.removeprefix('ttnn.')}`")
    yield "| why | ops |"
    yield "|---|---|"
    for reason in (*WITHOUT_NUMBERS, *sorted(by_reason.keys() - WITHOUT_NUMBERS.keys())):
        if reason in by_reason:
            yield f"| {reason} | {', '.join(by_reason[reason])} |"


def report(numbers: Numbers, places: Places) -> list[dict[str, Any]]:
    """Return a row for each op or method that models name, most places first."""
    rows = []
    for name, count in places.counts.most_common():
        operation = numbers.find(name)
        is_method = name.startswith("ttnn.Tensor.")
        if operation is None and not is_method:
            continue
        state, reason = ("rule", "") if operation is None else numbers.state(operation)
        models = sorted(places.models[name])
        rows.append(
            {"op": name, "places": count, "models": models, "state": state, "reason": reason}
        )
    return rows


def main() -> None:
    """Print the list."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, nargs="?")
    parser.add_argument("--docs", action="store_true", help="print the table of docs/boards.md")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--all", action="store_true", help="also list ops with numbers")
    asked = parser.parse_args()
    import torch
    import ttnn

    numbers = Numbers(ttnn)
    if asked.docs:
        print("\n".join(markdown(numbers)))
        return
    if asked.checkout is None:
        parser.error("which checkout of tt-metal? Only --docs needs none")
    methods = frozenset(set(dir(ttnn.Tensor)) - set(dir(torch.Tensor)) - {"from_torch"})
    rows = report(numbers, places_in(asked.checkout / "models", methods))
    if asked.json:
        print(json.dumps(rows, indent=1))
        return
    total: Counter[str] = Counter()
    for row in rows:
        total[row["state"]] += row["places"]
        if asked.all or row["state"] not in SETTLED:
            where = ", ".join(row["models"][:4]) + (" ..." if row["models"][4:] else "")
            print(f"{row['places']:6} {row['state']:10} {row['op']}  ({where}) {row['reason']}")
    print(f"{total.total()} places, {len(rows)} ops: {dict(total.most_common())}")


if __name__ == "__main__":
    main()
