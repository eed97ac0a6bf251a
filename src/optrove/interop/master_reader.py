"""Read tt-metal's master files of both generations.

    {"operations": {NAME: {"configurations": [...]}}, "metadata": {...}}

Version 2 is written by Python's tracer. The key ``optrove``, which only our own export writes,
holds the exact Case where the arguments alone do not give it back, and is preferred:

    {"config_id": 1, "config_hash": ..., "arguments": {name: value},
     "executions": [{"source": ..., "machine_info": {...}, "count": 10}]}

Version 1 comes from the C++ graph trace: first a list of arguments alone, later with their source
and machines. It has no counts, so each configuration counts once per source; the source of a list
without one is the models that the metadata names:

    [{"arg0": value}, {"arg1": value}, {"UnparsedElement": {"element_info": text}}]
    {"arguments": [...], "source": ..., "machine_info": [{...}]}

The file is read as a whole or not at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault
from optrove.interop.fidelity import FidelityCounter, PartNotes, bad_file, expected
from optrove.interop.machines import (
    UNKNOWN,
    Execution,
    Source,
    model_of,
    moment_of,
    read_machine,
    runs_of,
)
from optrove.interop.master_values import UNPARSED, ArgumentReader, unparsed_element
from optrove.model.case import Case
from optrove.model.trove import Machine
from optrove.model.values import key_step
from optrove.serializer.hashes import fingerprint
from optrove.serializer.text import check_name
from optrove.serializer.wire import read_named_values, read_value

if TYPE_CHECKING:
    from optrove.model.trove import Fidelity, Imported
    from optrove.model.values import Value
    from optrove.serializer.text import Json


_MOST_KNOWN: Final = 8192


class CaseReader:
    """Reads the exact Cases of one file; Values that repeat are read once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Value] = {}

    def read(self, data: Json, path: str, faults: list[Fault]) -> Case | None:
        """Return the Case that ``data`` spells; None after noting its faults."""
        match data:
            case {"op": str(op), "arguments": dict(arguments), **rest} if not rest:
                before = len(faults)
                check_name(op, f"{path}.op", faults)
                named = read_named_values(arguments, f"{path}.arguments", faults, self._value)
                return Case(op, named) if len(faults) == before else None
        faults.append(expected('a Case: {"op": ..., "arguments": {...}}', path, data))
        return None

    def _value(self, data: Json, path: str, faults: list[Fault]) -> Value:
        if not isinstance(data, (dict, list)):
            return read_value(data, path, faults)
        text = json.dumps(data)
        known = self._known.get(text)
        if known is None:
            before = len(faults)
            known = read_value(data, path, faults)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            if len(faults) == before:
                self._known[text] = known
        return known


NO_COUNT: Final = "executions: no count recorded, one each"
NO_EXECUTIONS: Final = "configurations without executions"
TWICE: Final = "configurations with the same config_hash and content"
_KNOWN_KEYS: Final = frozenset(
    {"config_id", "config_hash", "arguments", "executions", "source", "machine_info", "optrove"}
)
_EXECUTION_KEYS: Final = frozenset({"source", "machine_info", "count", "model"})
_MOST: Final = 2**53


def is_master(document: Json) -> bool:
    """Tell whether a document has the form of a master file."""
    return isinstance(document, dict) and "operations" in document


def read_master(
    document: Json, file: str, *, strict: bool
) -> tuple[tuple[Imported, ...], Fidelity]:
    """Return the Runs of a master file; BadData lists every fault with its path."""
    reader = _MasterReader(document, FidelityCounter(strict=strict))
    reader.read()
    if reader.faults:
        raise bad_file(reader.faults)
    runs, cases = runs_of(reader.executions, reader.started_at)
    form = "master v1" if reader.printed else "master v2"
    return runs, reader.counter.fidelity(file, form, cases)


@dataclass(slots=True)
class _MasterReader:
    """Reads one file, and holds its executions and faults."""

    document: dict[str, Any]
    counter: FidelityCounter
    faults: list[Fault] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    started_at: str = ""
    models: tuple[str, ...] = ()
    printed: bool = False
    _arguments: ArgumentReader = field(default_factory=ArgumentReader)
    _exact: CaseReader = field(default_factory=CaseReader)
    _hashes: dict[str, tuple[str, str]] = field(default_factory=dict)
    _machines: dict[str, Machine] = field(default_factory=dict)

    def read(self) -> None:
        """Read all of the file."""
        operations = self.document["operations"]
        if not isinstance(operations, dict):
            raise BadData((expected("an object of operations", "$.operations", operations),))
        self._metadata(self.document.get("metadata", {}))
        for op, entry in operations.items():
            path = f"$.operations{key_step(op)}"
            check_name(op, path, self.faults)
            configurations = entry.get("configurations") if isinstance(entry, dict) else None
            if not isinstance(configurations, list):
                what = 'an object with a list of "configurations"'
                self.faults.append(expected(what, path, entry))
                continue
            for index, configuration in enumerate(configurations):
                self._configuration(op, configuration, f"{path}.configurations[{index}]")

    def _metadata(self, data: Json) -> None:
        if not isinstance(data, dict):
            self.faults.append(expected("an object", "$.metadata", data))
            return
        self.started_at = moment_of(data.get("last_updated"))
        models = data.get("models", [])
        if isinstance(models, list) and all(isinstance(model, str) for model in models):
            self.models = tuple(models)
        else:
            self.faults.append(expected("a list of names", "$.metadata.models", models))

    def _configuration(self, op: str, data: Json, path: str) -> None:
        place = f"{path}.arguments"
        if isinstance(data, list):
            data, place = {"arguments": data}, path
        if not isinstance(data, dict) or "arguments" not in data:
            self.faults.append(expected('a configuration with "arguments"', path, data))
            return
        if "optrove" in data:
            case: Case | None = self._exact.read(data["optrove"], f"{path}.optrove", self.faults)
            self.counter.configuration(path)
        else:
            case = self._case(op, data["arguments"], place)
        if case is None or not self._is_consistent(op, data, path):
            return
        for key in sorted(data.keys() - _KNOWN_KEYS):
            self.counter.note(f"not kept: {key} of a configuration")
        if "executions" in data:
            self._executed(case, data["executions"], path)
        else:
            self._sourced(case, data, path)

    def _case(self, op: str, data: Json, path: str) -> Case | None:
        """Return the Case of these arguments; None after noting their faults."""
        arguments, steps, repaired = self._named(data, path)
        if arguments is None:
            return None
        printed = "::" in op or isinstance(data, list)
        self.printed |= printed
        public = op.replace("::", ".")
        case, parts = self._arguments.case(public, arguments.items(), printed=printed)
        placed = [(steps.get(name, key_step(name)), notes) for name, notes in parts]
        self.counter.configuration(path, [*placed, ("", repaired)])
        return case

    def _named(
        self, data: Json, path: str
    ) -> tuple[dict[str, Json] | None, dict[str, str], PartNotes]:
        """Return the arguments by name, the steps to those in a list, and the repairs."""
        repaired = PartNotes()
        steps: dict[str, str] = {}
        before = len(self.faults)
        if isinstance(data, list):
            named = self._listed(data, path, steps, repaired)
        elif isinstance(data, dict):
            named = data
        else:
            self.faults.append(expected("an object or a list of arguments", path, data))
            return None, steps, repaired
        for name in named:
            check_name(name, path, self.faults)
        return (named if len(self.faults) == before else None), steps, repaired

    def _listed(
        self, data: list[Json], path: str, steps: dict[str, str], repaired: PartNotes
    ) -> dict[str, Json]:
        """Return the arguments of a list with one object for each."""
        named: dict[str, Json] = {}
        for index, item in enumerate(data):
            where = f"{path}[{index}]"
            if not isinstance(item, dict) or len(item) != 1:
                self.faults.append(expected('an object such as {"arg0": ...}', where, item))
                continue
            if "UnparsedElement" in item:
                item = self._parsed(item["UnparsedElement"], index, where, repaired)  # noqa: PLW2901 - the same argument, parsed
            for name, value in item.items():
                if name in named:
                    self.faults.append(Fault(where, f"a second argument {name}; keep one of them"))
                named[name] = value
                steps[name] = f"[{index}]{key_step(name)}"
        return named

    def _parsed(self, data: Json, index: int, path: str, repaired: PartNotes) -> dict[str, Json]:
        """Return the argument in an element that its writer could not parse.

        If it cannot be parsed here either, its text is the argument at its place in the list.
        """
        parsed = unparsed_element(data)
        if parsed is not None and len(parsed) == 1:
            repaired.add(UNPARSED)
            return parsed
        text = data.get("element_info") if isinstance(data, dict) else None
        if not isinstance(text, str):
            self.faults.append(expected('an UnparsedElement with "element_info"', path, data))
            return {}
        return {f"arg{index}": {"type": "UnparsedElement", "value": text}}

    def _is_consistent(self, op: str, data: dict[str, Any], path: str) -> bool:
        """Note a ``config_hash`` that two different configurations share."""
        config_hash = data.get("config_hash")
        if config_hash is None:
            return True
        if not isinstance(config_hash, str):
            self.faults.append(expected("a string", f"{path}.config_hash", config_hash))
            return False
        content = fingerprint(repr((op, data["arguments"], data.get("optrove"))))
        first, where = self._hashes.setdefault(config_hash, (content, path))
        if first != content:
            problem = f"the same config_hash as {where}, but other arguments; which one is right?"
            self.faults.append(Fault(f"{path}.config_hash", problem))
            return False
        if where != path:
            self.counter.note(TWICE)
        return True

    def _executed(self, case: Case, data: Json, path: str) -> None:
        where = f"{path}.executions"
        if not isinstance(data, list):
            self.faults.append(expected("a list", where, data))
            return
        if not data:
            self.counter.note(NO_EXECUTIONS)
            self.executions.append(Execution(case, Source(UNKNOWN, None), 0, path))
        for index, execution in enumerate(data):
            self._execution(case, execution, f"{where}[{index}]", path)

    def _execution(self, case: Case, data: Json, where: str, path: str) -> None:
        if not isinstance(data, dict):
            self.faults.append(expected("an object", where, data))
            return
        for key in sorted(data.keys() - _EXECUTION_KEYS):
            self.counter.note(f"not kept: {key} of an execution")
        name, model = data.get("source"), data.get("model")
        for key, text in (("source", name), ("model", model)):
            if not isinstance(text, str) and not (key == "model" and text is None):
                self.faults.append(expected("a string", f"{where}.{key}", text))
                return
            check_name(text or "", f"{where}.{key}", self.faults)
        machine = self._machine(data.get("machine_info"), f"{where}.machine_info")
        count = data.get("count")
        if count is None:
            self.counter.note(NO_COUNT)
            count = 1
        if type(count) is not int or not 0 <= count < _MOST:
            self.faults.append(expected("a number from 0 on", f"{where}.count", count))
            return
        source = Source(str(name), model if "model" in data else model_of(str(name)), machine)
        self.executions.append(Execution(case, source, count, path))

    def _machine(self, data: Json, path: str) -> Machine:
        """Return a machine; a file repeats the same few thousands of times."""
        key = repr(data)
        if key not in self._machines:
            self._machines[key] = read_machine(data, path, self.faults, self.counter)
        return self._machines[key]

    def _sourced(self, case: Case, data: dict[str, Any], path: str) -> None:
        """Note the executions of a configuration that has sources and machines, but no counts."""
        self.counter.note(NO_COUNT)
        source = data.get("source")
        names = source if isinstance(source, list) else [] if source is None else [source]
        infos = data.get("machine_info")
        listed = infos if isinstance(infos, list) else [infos]
        machines = [self._machine(item, f"{path}.machine_info") for item in listed] or [Machine()]
        if not all(isinstance(name, str) for name in names):
            self.faults.append(expected("a string or a list of them", f"{path}.source", source))
            return
        if len(names) > 1 and len(machines) > 1:
            self.counter.note(
                "machine_info: several sources and machines, not assigned to each other"
            )
            machines = [Machine()]
        for machine in machines:
            sources = [Source(name, model_of(name), machine) for name in names]
            for each in sources or [self._unnamed(machine)]:
                check_name(each.name, f"{path}.source", self.faults)
                self.executions.append(Execution(case, each, 1, path))

    def _unnamed(self, machine: Machine) -> Source:
        """Return the source of a configuration without one: the models that the file names."""
        name = ", ".join(self.models) or UNKNOWN
        only = self.models[0] if len(self.models) == 1 else None
        return Source(name, model_of(name) or only, machine)
