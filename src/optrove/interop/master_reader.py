"""Read tt-metal's master files of both generations.

    {"operations": {NAME: {"configurations": [...]}}, "metadata": {...}}

Version 2, as Python's tracer writes it. A key ``optrove``, which only our own export writes, holds
the exact Case where the arguments alone do not give it back, and is preferred:

    {"config_id": 1, "config_hash": ..., "arguments": {name: value},
     "executions": [{"source": ..., "machine_info": {...}, "count": 10}]}

Version 1, as the C++ graph trace gave it: first a list of arguments alone, later with their source
and machines. It has no counts, so that each configuration counts once per source; a list without a
source comes from the models that the metadata names:

    [{"arg0": value}, {"arg1": value}, {"UnparsedElement": {"element_info": text}}]
    {"arguments": [...], "source": ..., "machine_info": [{...}]}

The file is read as a whole or not at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import Fault
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
from optrove.interop.understanding import Reading, Understanding, bad, bad_data, expected
from optrove.model.case import Case
from optrove.model.trove import Machine
from optrove.model.values import key_step
from optrove.serializer.hashes import fingerprint
from optrove.serializer.text import check_name
from optrove.serializer.wire import read_value

if TYPE_CHECKING:
    from optrove.model.trove import Fidelity, Imported
    from optrove.model.values import Value
    from optrove.serializer.text import Json


_MOST_KNOWN: Final = 8192


class CaseReader:
    """Reads the Cases of one file."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Value] = {}

    def read(self, data: Json, path: str, faults: list[Fault]) -> Case | None:
        """Return the Case that ``data`` spells; None after noting its faults."""
        match data:
            case {"op": str(op), "arguments": dict(arguments), **rest} if not rest:
                before = len(faults)
                check_name(op, f"{path}.op", faults)
                named = []
                for name, item in arguments.items():
                    where = f"{path}.arguments{key_step(name)}"
                    check_name(name, where, faults)
                    named.append((name, self._value(item, where, faults)))
                return Case(op, tuple(named)) if len(faults) == before else None
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


NO_COUNT: Final = "executions: no count told, one each"
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
    """Return the Runs that a master file tells of; BadData names every fault with its path."""
    reader = _MasterReader(document, Understanding(strict=strict))
    reader.read()
    if reader.faults:
        raise bad_data(reader.faults)
    runs, cases = runs_of(reader.executions, reader.started_at)
    form = "master v1" if reader.printed else "master v2"
    return runs, reader.understanding.fidelity(file, form, cases)


@dataclass(slots=True)
class _MasterReader:
    """What was found in a file so far."""

    document: dict[str, Any]
    understanding: Understanding
    faults: list[Fault] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    started_at: str = ""
    models: tuple[str, ...] = ()
    printed: bool = False
    _arguments: ArgumentReader = field(default_factory=ArgumentReader)
    _exact: CaseReader = field(default_factory=CaseReader)
    _hashes: dict[str, str] = field(default_factory=dict)
    _machines: dict[str, Machine] = field(default_factory=dict)

    def read(self) -> None:
        """Read all of the file."""
        operations = self.document["operations"]
        if not isinstance(operations, dict):
            raise bad("$.operations", expected("an object of operations", "", operations).problem)
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
            self.understanding.configuration(path, [])
        else:
            case = self._case(op, data["arguments"], place)
        if case is None or not self._is_consistent(op, data, path):
            return
        for key in sorted(data.keys() - _KNOWN_KEYS):
            self.understanding.note(f"not kept: {key} of a configuration")
        if "executions" in data:
            self._executed(case, data["executions"], path)
        else:
            self._sourced(case, data, path)

    def _case(self, op: str, data: Json, path: str) -> Case | None:
        """Return the Case of these arguments; None after noting what is wrong with them."""
        arguments, steps, repaired = self._named(data, path)
        if arguments is None:
            return None
        printed = "::" in op or isinstance(data, list)
        self.printed |= printed
        public = op.replace("::", ".")
        case, parts = self._arguments.case(public, arguments.items(), printed=printed)
        placed = [(steps.get(name, key_step(name)), reading) for name, reading in parts]
        self.understanding.configuration(path, [*placed, ("", repaired)])
        return case

    def _named(
        self, data: Json, path: str
    ) -> tuple[dict[str, Json] | None, dict[str, str], Reading]:
        """Return the arguments by name, the steps to those in a list, and what was repaired."""
        repaired = Reading()
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
        self, data: list[Json], path: str, steps: dict[str, str], repaired: Reading
    ) -> dict[str, Json]:
        """Return the arguments of a list with one object for each."""
        named: dict[str, Json] = {}
        for index, item in enumerate(data):
            where = f"{path}[{index}]"
            if not isinstance(item, dict) or len(item) != 1:
                self.faults.append(expected('an object such as {"arg0": ...}', where, item))
                continue
            told = item
            if "UnparsedElement" in item:
                told = self._parsed(item["UnparsedElement"], index, where, repaired)
            for name, value in told.items():
                if name in named:
                    self.faults.append(Fault(where, f"a second argument {name}; keep one of them"))
                named[name] = value
                steps[name] = f"[{index}]{key_step(name)}"
        return named

    def _parsed(self, data: Json, index: int, path: str, repaired: Reading) -> dict[str, Json]:
        """Return what an element says that its writer could not parse.

        If it cannot be parsed here either, it is the argument of its place in the list, as text.
        """
        parsed = unparsed_element(data)
        if parsed is not None and len(parsed) == 1:
            repaired.notes.append(UNPARSED)
            return parsed
        text = data.get("element_info") if isinstance(data, dict) else None
        if not isinstance(text, str):
            self.faults.append(expected('an UnparsedElement with "element_info"', path, data))
            return {}
        return {f"arg{index}": {"type": "UnparsedElement", "value": text}}

    def _is_consistent(self, op: str, data: dict[str, Any], path: str) -> bool:
        """Note a ``config_hash`` that two configurations share which are not the same."""
        told = data.get("config_hash")
        if told is None:
            return True
        if not isinstance(told, str):
            self.faults.append(expected("a string", f"{path}.config_hash", told))
            return False
        content = _fingerprint(op, data)
        known = self._hashes.setdefault(told, f"{content} {path}")
        first, _, where = known.partition(" ")
        if first != content:
            problem = f"the same config_hash as {where}, but other arguments; which one is right?"
            self.faults.append(Fault(f"{path}.config_hash", problem))
            return False
        if where != path:
            self.understanding.note(TWICE)
        return True

    def _executed(self, case: Case, data: Json, path: str) -> None:
        where = f"{path}.executions"
        if not isinstance(data, list):
            self.faults.append(expected("a list", where, data))
            return
        if not data:
            self.understanding.note(NO_EXECUTIONS)
            self.executions.append(Execution(case, Source(UNKNOWN, None), 0, path))
        for index, execution in enumerate(data):
            self._execution(case, execution, f"{where}[{index}]", path)

    def _execution(self, case: Case, data: Json, where: str, path: str) -> None:
        if not isinstance(data, dict):
            self.faults.append(expected("an object", where, data))
            return
        for key in sorted(data.keys() - _EXECUTION_KEYS):
            self.understanding.note(f"not kept: {key} of an execution")
        name, model = data.get("source"), data.get("model")
        for key, text in (("source", name), ("model", model)):
            if not isinstance(text, str) and not (key == "model" and text is None):
                self.faults.append(expected("a string", f"{where}.{key}", text))
                return
            check_name(text or "", f"{where}.{key}", self.faults)
        machine = self._machine(data.get("machine_info"), f"{where}.machine_info")
        count = data.get("count")
        if count is None:
            self.understanding.note(NO_COUNT)
            count = 1
        if type(count) is not int or not 0 <= count < _MOST:
            self.faults.append(expected("a number from 0 on", f"{where}.count", count))
            return
        source = Source(str(name), model if "model" in data else model_of(str(name)), machine)
        self.executions.append(Execution(case, source, count, path))

    def _machine(self, data: Json, path: str) -> Machine:
        """Return a machine; a file names the same few thousands of times."""
        key = repr(data)
        if key not in self._machines:
            self._machines[key] = read_machine(data, path, self.faults, self.understanding)
        return self._machines[key]

    def _sourced(self, case: Case, data: dict[str, Any], path: str) -> None:
        """Note the executions of a configuration that has sources and machines, but no counts."""
        self.understanding.note(NO_COUNT)
        told = data.get("source")
        names = told if isinstance(told, list) else [] if told is None else [told]
        infos = data.get("machine_info")
        listed = infos if isinstance(infos, list) else [infos]
        machines = [self._machine(item, f"{path}.machine_info") for item in listed] or [Machine()]
        if not all(isinstance(name, str) for name in names):
            self.faults.append(expected("a string or a list of them", f"{path}.source", told))
            return
        if len(names) > 1 and len(machines) > 1:
            self.understanding.note("machine_info: several sources and machines, not told which")
            machines = [Machine()]
        for machine in machines:
            sources = [Source(name, model_of(name), machine) for name in names]
            for source in sources or [self._unnamed(machine)]:
                check_name(source.name, f"{path}.source", self.faults)
                self.executions.append(Execution(case, source, 1, path))

    def _unnamed(self, machine: Machine) -> Source:
        """Return the source of what has none: the models of the file, if it names any."""
        name = ", ".join(self.models) or UNKNOWN
        only = self.models[0] if len(self.models) == 1 else None
        return Source(name, model_of(name) or only, machine)


def _fingerprint(op: str, data: dict[str, Any]) -> str:
    return fingerprint(repr((op, data["arguments"], data.get("optrove"))))
