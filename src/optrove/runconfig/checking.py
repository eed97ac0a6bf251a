"""Check a configuration before anything is loaded, naming every fault by path."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from itertools import groupby
from typing import TYPE_CHECKING, Any

from optrove.errors import Fault
from optrove.frameworks.installed import is_loaded, loaded_tables
from optrove.model.values import Callable, Handle, Opaque, TensorSpec, walk
from optrove.runconfig.opconfig import FromWeight, MeshDeviceStub, OpConfig, names_of
from optrove.runconfig.ranges import children, ends, is_inner, range_text, step
from optrove.serializer.describe import describe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.frameworks.ttnn.execute.invoking import OpParameters
    from optrove.runconfig.ranges import Tree


def gathered(paths: Iterable[str]) -> list[str]:
    """Return paths with runs of numbers written as ranges, in the given order."""
    rows = [tuple(path.split(".")) for path in dict.fromkeys(paths)]
    longest = max(map(len, rows), default=0)
    # From the end: layers whose experts are the same ranges can be joined afterwards.
    for place in reversed(range(longest)):
        rows = _gathered_at(rows, place)
    return [".".join(row) for row in rows]


def gathered_faults(faults: Iterable[Fault]) -> list[Fault]:
    """Return faults; equal ones of several layers become one, with a range in its path."""
    by_problem: dict[str, list[str]] = {}
    for fault in faults:
        by_problem.setdefault(fault.problem, []).append(fault.path)
    return [
        Fault(path, problem) for problem, paths in by_problem.items() for path in gathered(paths)
    ]


def _gathered_at(rows: list[tuple[str, ...]], place: int) -> list[tuple[str, ...]]:
    found: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    for row in rows:
        if place < len(row) and row[place].isdecimal():
            found.setdefault((row[:place], row[place + 1 :]), []).append(int(row[place]))
        else:
            found[(row,)] = []
    return [
        (*key[0], _ranges_text(sorted(numbers)), *key[1]) if numbers else key[0]
        for key, numbers in found.items()
    ]


def _ranges_text(numbers: list[int]) -> str:
    """Return ``0-2,5`` for 0, 1, 2, 5."""
    runs = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(range_text(members[0], members[-1]))
    return ",".join(runs)


class Signatures:
    """The arguments that the ops of ttnn take; each combination is looked up once.

    Without ``parameters`` every combination is accepted.
    """

    def __init__(self, parameters: OpParameters | None) -> None:
        self._parameters = parameters
        self._known: dict[tuple[type, frozenset[str]], str | None] = {}

    def problem(self, config: OpConfig, names: frozenset[str]) -> str | None:
        """Return why no op that a config is for takes these arguments; None if one does."""
        if self._parameters is None or not config.ops or config.unchecked():
            return None
        key = (type(config), names)
        if key not in self._known:
            self._known[key] = self._parameters.problem(config.ops, names)
        return self._known[key]


def loaded_signatures() -> Signatures:
    """Return the signatures of ttnn if this process has imported it; otherwise empty ones."""
    if not is_loaded("ttnn"):
        return Signatures(None)
    from optrove.frameworks.ttnn.execute.invoking import OpParameters

    return Signatures(OpParameters(sys.modules["ttnn"]))


class Checker:
    """Walks a model configuration and its weights together, and collects the faults.

    ``asked`` has the files to load: by the path of the argument, the entry of the weight
    configuration and the FromWeight of the model configuration. ``added`` has the names of weights
    that plain dictionaries of arguments do not have yet, by the path of the dictionary;
    ``changed`` has the fields of op configurations that get a weight or the mesh, likewise.
    """

    def __init__(
        self,
        mesh_shape: tuple[int, ...] | None,
        signatures: Signatures,
        *,
        needs_weights: bool = True,
    ) -> None:
        self.faults: list[Fault] = []
        self.asked: dict[str, tuple[Any, FromWeight | None]] = {}
        self.added: dict[str, list[Any]] = {}
        self.changed: dict[str, list[str]] = {}
        self.unused: dict[str, Any] = {}
        self._mesh_shape = mesh_shape
        self._signatures = signatures
        self._needs_weights = needs_weights
        self._known: dict[int, tuple[frozenset[str], dict[str, Any]]] = {}

    def check(self, model: Tree, weights: Tree, path: str) -> None:
        """Check one part of the configuration; ``weights`` is None where it has no weights."""
        if isinstance(model, OpConfig):
            self._op(model, weights, path)
        elif not is_inner(model):
            self._end(model, weights, path)
        elif weights is not None and not is_inner(weights):
            self._fault(path, "a weight is given here, where the model has further entries")
        else:
            self._inner(model, weights, path)

    def _inner(self, model: Tree, weights: Tree, path: str) -> None:
        below = {} if weights is None else dict(children(weights))
        for key, child in children(model):
            self.check(child, below.pop(key, None), step(path, key))
        for key, child in below.items():
            place = step(path, key)
            if is_op_dict(model) and not is_inner(child):
                self.asked[place] = (child, None)
                self.added.setdefault(path, []).append(key)
            else:
                self.unused.update(ends(child, place))

    def _end(self, value: Any, weights: Tree, path: str) -> None:
        if isinstance(value, FromWeight):
            self._weight(value, weights, path)
        elif weights is not None:
            self._fault(path, "given by the model configuration and by the weights; keep one")
        elif isinstance(value, MeshDeviceStub):
            self._stub(value, path)

    def _op(self, config: OpConfig, weights: Tree, path: str) -> None:
        if not is_dataclass(config):
            self._fault(path, f"{type(config).__name__} is not a dataclass; declare it as one")
            return
        if weights is not None and not isinstance(weights, Mapping):
            self._fault(path, "its weights must be named: {argument: file}")
            return
        given, placeholders = self._facts(config)
        names = names_of(type(config))
        for name, entry in (weights or {}).items():
            if name not in names:
                self._no_field(config, str(name), path)
            elif name not in placeholders:
                self._field(getattr(config, name), entry, path, name)
        for name, value in placeholders.items():
            self._field(value, None if weights is None else weights.get(name), path, name)
        problem = self._signatures.problem(
            config, given.union(name for name in weights or () if name in names)
        )
        if problem is not None:
            self._fault(path, problem)

    def _facts(self, config: OpConfig) -> tuple[frozenset[str], dict[str, Any]]:
        """Return the names of the given fields, and the placeholders; layers share configs."""
        found = self._known.get(id(config))
        if found is None:
            given = frozenset(config)
            held = {name: getattr(config, name) for name in given}
            kinds = (FromWeight, MeshDeviceStub)
            found = given, {name: each for name, each in held.items() if isinstance(each, kinds)}
            self._known[id(config)] = found
        return found

    def _field(self, value: Any, entry: Any, path: str, name: str) -> None:
        place = step(path, name)
        self.changed.setdefault(path, []).append(name)
        if value is None:
            self.asked[place] = (entry, None)
        else:
            self._end(value, entry, place)

    def _no_field(self, config: OpConfig, name: str, path: str) -> None:
        names = names_of(type(config))
        close = get_close_matches(name, names, n=1) or ["input_tensor_b"]
        hint = f", such as {close[0]}" if close[0] in names else ""
        self._fault(
            step(path, name),
            f"a weight is given for it, but {type(config).__name__} has no such field; weights "
            f"are called as the op calls its argument{hint}",
        )

    def _weight(self, expected: FromWeight, entry: Any, path: str) -> None:
        if entry is None and not self._needs_weights:
            return
        if entry is None:
            self._fault(path, "no weight is given for it; does convert_weights write it?")
            return
        if expected.mesh_device is not None:
            self._stub(expected.mesh_device, path)
        self.asked[path] = (entry, expected)

    def _stub(self, stub: MeshDeviceStub, path: str) -> None:
        if self._mesh_shape is not None and stub.mesh_shape != self._mesh_shape:
            made, found = (shape_text(shape) for shape in (stub.mesh_shape, self._mesh_shape))
            self._fault(path, f"configured for a {made} mesh, this one is {found}")

    def _fault(self, path: str, problem: str) -> None:
        self.faults.append(Fault(path or "the configuration", problem))


def is_op_dict(tree: Tree) -> bool:
    """Return whether a dictionary holds the arguments of an op, rather than further entries."""
    return isinstance(tree, Mapping) and not any(
        isinstance(child, OpConfig) or is_inner(child) for child in tree.values()
    )


def dynamic_faults(config: Tree, path: str = "") -> list[Fault]:
    """Return a fault for each part that JSON cannot hold: functions, tensors, handles."""
    tables = loaded_tables()
    found = []
    for place, entry in ends(config, path):
        parts = [(place, entry)]
        if isinstance(entry, OpConfig) and is_dataclass(entry):
            named = names_of(type(entry))
            parts = [(step(place, name), getattr(entry, name)) for name in named]
        for where, live in parts:
            for _, value in walk(describe(live, tables)):
                problem = _dynamic(value)
                if problem is not None:
                    found.append(Fault(where, problem))
    return found


def _dynamic(value: Any) -> str | None:
    advice = "set it in the constructor of the module and pass it in forward"
    match value:
        case Opaque(type_name, _):
            return f"a {type_name} depends on the run and cannot be written; {advice}"
        case Callable(name):
            return f"the function {name} cannot be written; {advice}"
        case TensorSpec():
            return "a tensor cannot be written; let the weights give it (FromWeight)"
        case Handle(type_name, _):
            return f"a {type_name} belongs to one device and cannot be written; {advice}"
    return None


def shape_text(shape: tuple[int, ...]) -> str:
    """Return ``4x8``."""
    return "x".join(map(str, shape))
