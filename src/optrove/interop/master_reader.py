"""Read tt-metal's master files of both generations.

    {"operations": {NAME: {"configurations": [...]}}, "metadata": {...}}

Version 2 is written by Python's tracer. The key ``optrove``, which only our own export writes,
holds the exact Case where the arguments alone do not give it back, and is preferred:

    {"config_id": 1, "config_hash": ..., "arguments": {name: value},
     "executions": [{"source": ..., "machine_info": {...}, "count": 10, "trace_uid": ...}]}

A configuration is kept as it is written, without its executions, so that an export writes it again.
Every other key of an execution is its provenance: executions of one source and machine with
different provenance, such as the ``trace_uid`` of two traces, belong to different Runs. Two
configurations with one ``config_hash`` are two: tt-metal's hash is that of normalized arguments.

Version 1 comes from the C++ graph trace: first a list of arguments alone, later with their source
and machines. It has no counts, so each configuration counts once per source; the source of a list
without one is the models that the metadata names:

    [{"arg0": value}, {"arg1": value}, {"UnparsedElement": {"element_info": text}}]
    {"arguments": [...], "source": ..., "machine_info": [{...}]}

A faulty configuration is refused and named; it costs the file only if all others are refused too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault
from optrove.interop.fidelity import (
    FidelityCounter,
    PartNotes,
    Unreadable,
    expected,
    unreadable_parts,
)
from optrove.interop.machines import (
    NOBODY,
    UNKNOWN,
    Source,
    SourceExecution,
    is_count,
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
    from collections.abc import Iterable, Iterator

    from optrove.interop.machines import Content
    from optrove.model.values import Value
    from optrove.serializer.text import Json


_MAX_CACHED: Final = 8192


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
            if len(self._known) >= _MAX_CACHED:
                self._known.clear()
            if len(faults) == before:
                self._known[text] = known
        return known


NO_COUNT: Final = "executions: no count recorded, one each"
NO_EXECUTIONS: Final = "configurations without executions"
MERGED: Final = "operations that the file has twice: all of their configurations are read"
TWICE: Final = "configurations with the same config_hash and content"
SAME_HASH: Final = "configurations with the config_hash of another one and other arguments: kept"
_EXECUTED: Final = frozenset(
    {"executions", "contexts", "source", "machine_info", "execution_count", "optrove"}
)
_EXECUTION_KEYS: Final = frozenset({"source", "machine_info", "count", "model"})


def is_master(document: Json) -> bool:
    """Return whether a document has the form of a master file."""
    return isinstance(document, dict) and "operations" in document


def read_master(document: Json, file: str, *, strict: bool, whole: bool = True) -> Content:
    """Return the Runs of a master file; BadData lists every fault if nothing of it can be read.

    A document that is not ``whole`` has parts that are Unreadable.
    """
    reader = _MasterReader(document, FidelityCounter(strict=strict), whole)
    reader.read()
    reader.counter.check()
    runs, cases = runs_of(reader.executions, reader.started_at, reader.git_sha)
    form = "master v1" if reader.printed else "master v2"
    return runs, reader.counter.fidelity(file, form, cases)


@dataclass(slots=True)
class _MasterReader:
    """Reads one file, and holds its executions; ``faults`` are those of one configuration."""

    document: dict[str, Any]
    counter: FidelityCounter
    whole: bool
    faults: list[Fault] = field(default_factory=list)
    executions: list[SourceExecution] = field(default_factory=list)
    started_at: str = ""
    git_sha: str | None = None
    models: tuple[str, ...] = ()
    printed: bool = False
    _trace_uid: str | None = None
    _arguments: ArgumentReader = field(default_factory=ArgumentReader)
    _exact: CaseReader = field(default_factory=CaseReader)
    _hashes: dict[str, tuple[str, str]] = field(default_factory=dict)
    _machines: dict[str, Machine] = field(default_factory=dict)

    def read(self) -> None:
        """Read all of the file."""
        self._metadata(self.document.get("metadata"))
        for op, entry in self._operations(self.document["operations"]):
            path = f"$.operations{key_step(op)}"
            configurations = entry.get("configurations") if isinstance(entry, dict) else None
            if not isinstance(configurations, list):
                what = 'an object with a list of "configurations"'
                self.counter.refuse([expected(what, path, entry)])
                continue
            for index, configuration in enumerate(configurations):
                self._take(op, configuration, f"{path}.configurations[{index}]")

    def _operations(self, data: Json) -> Iterable[tuple[str, Json]]:
        """Return the entries of all operations; one that is there twice has two."""
        if isinstance(data, Unreadable) and data.entries:
            self.counter.note(MERGED)
            return data.entries
        if not isinstance(data, dict):
            raise BadData((expected("an object of operations", "$.operations", data),))
        return data.items()

    def _metadata(self, data: Json) -> None:
        facts = data if isinstance(data, dict) else {}
        if data is not None and not isinstance(data, dict):
            self.counter.note("not kept: metadata of unknown form")
        self.started_at = moment_of(facts.get("traced_at") or facts.get("last_updated"))
        sha, trace_uid = facts.get("tt_metal_sha"), facts.get("trace_uid")
        self.git_sha = sha if isinstance(sha, str) and sha.isprintable() else None
        self._trace_uid = trace_uid if isinstance(trace_uid, str) else None
        models = facts.get("models")
        self.models = tuple(
            model for model in (models if isinstance(models, list) else []) if _is_name(model)
        )

    def _take(self, op: str, data: Json, path: str) -> None:
        """Read one configuration; one with faults is refused as a whole."""
        self.faults = [] if self.whole else list(unreadable_parts(data, path))
        check_name(op, path, self.faults)
        counted: list[tuple[str, PartNotes]] = []
        executions = [] if self.faults else self._configuration(op, data, path, counted)
        if self.faults:
            self.counter.refuse(self.faults)
            return
        place = path if isinstance(data, list) else f"{path}.arguments"
        self.counter.configuration(place, counted)
        self.executions += executions

    def _configuration(
        self, op: str, data: Json, path: str, counted: list[tuple[str, PartNotes]]
    ) -> list[SourceExecution]:
        place = f"{path}.arguments"
        if isinstance(data, list):
            data, place = {"arguments": data}, path
        if not isinstance(data, dict) or "arguments" not in data:
            self.faults.append(expected('a configuration with "arguments"', path, data))
            return []
        if "optrove" in data:
            case: Case | None = self._exact.read(data["optrove"], f"{path}.optrove", self.faults)
        else:
            case = self._case(op, data["arguments"], place, counted)
        if case is None or self.faults:
            return []
        self._note_hash(op, data, path)
        named = isinstance(data["arguments"], dict) and "::" not in op
        kept = {key: item for key, item in data.items() if key not in _EXECUTED}
        configuration = json.dumps(kept) if named else None
        return [
            SourceExecution(case, source, count, path, configuration)
            for source, count in self._sources(data, path)
        ]

    def _case(
        self, op: str, data: Json, path: str, counted: list[tuple[str, PartNotes]]
    ) -> Case | None:
        """Return the Case of these arguments; None after noting their faults."""
        arguments, steps, repaired = self._named(data, path)
        if arguments is None:
            return None
        printed = "::" in op or isinstance(data, list)
        self.printed |= printed
        public = op.replace("::", ".")
        try:
            case, parts = self._arguments.case(public, arguments.items(), printed=printed)
        except (ValueError, RecursionError) as error:
            self.faults.append(Fault(path, f"not readable: {error}"))
            return None
        counted += [(steps.get(name, key_step(name)), notes) for name, notes in parts]
        counted.append(("", repaired))
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

    def _note_hash(self, op: str, data: dict[str, Any], path: str) -> None:
        """Note a ``config_hash`` that an earlier configuration has."""
        config_hash = data.get("config_hash")
        if not isinstance(config_hash, str):
            return
        content = fingerprint(repr((op, data["arguments"], data.get("optrove"))))
        first, where = self._hashes.setdefault(config_hash, (content, path))
        if where != path:
            self.counter.note(TWICE if first == content else SAME_HASH)

    def _sources(self, data: dict[str, Any], path: str) -> list[tuple[Source, int]]:
        """Return the sources that executed a configuration, and how often each did."""
        listed = data.get("executions", data.get("contexts"))
        if listed is None:
            return list(self._sourced(data, path))
        if not isinstance(listed, list):
            self.faults.append(expected("a list", f"{path}.executions", listed))
            return []
        if not listed:
            self.counter.note(NO_EXECUTIONS)
            return [(NOBODY, 0)]
        return [
            each
            for index, item in enumerate(listed)
            for each in self._execution(item, f"{path}.executions[{index}]")
        ]

    def _execution(self, data: Json, where: str) -> list[tuple[Source, int]]:
        """Return the sources of an execution, each with the count; older files list several."""
        if not isinstance(data, dict):
            self.faults.append(expected("an object", where, data))
            return []
        count = data.get("count")
        if count is None:
            self.counter.note(NO_COUNT)
            count = 1
        if not is_count(count):
            self.faults.append(expected("a non-negative integer", f"{where}.count", count))
            return []
        machine = self._machine(data.get("machine_info"))
        sources = self._execution_sources(data, machine, where)
        rest = {key: item for key, item in data.items() if key not in _EXECUTION_KEYS}
        if data.get("source", "") is None:
            rest["source"] = None  # so that an export writes it again
        if self._trace_uid is not None:
            rest.setdefault("trace_uid", self._trace_uid)
        provenance = sorted((key, json.dumps(item, sort_keys=True)) for key, item in rest.items())
        return [(replace(each, provenance=tuple(provenance)), count) for each in sources]

    def _execution_sources(
        self, data: dict[str, Any], machine: Machine, where: str
    ) -> list[Source]:
        names, model = self._source_names(data, where), data.get("model")
        if not (model is None or _is_name(model)):
            self.faults.append(expected("a name", f"{where}.model", model))
        return [
            Source(name, model if "model" in data else model_of(name), machine) for name in names
        ] or [self._unnamed(machine)]

    def _source_names(self, data: dict[str, Any], path: str) -> list[str]:
        """Return the sources that an object names; empty after noting a fault."""
        source = data.get("source")
        names = source if isinstance(source, list) else [] if source is None else [source]
        if all(map(_is_name, names)):
            return names
        self.faults.append(expected("a name or a list of them", f"{path}.source", source))
        return []

    def _machine(self, data: Json) -> Machine:
        """Return a machine; a file repeats the same few thousands of times."""
        key = repr(data)
        if key not in self._machines:
            self._machines[key] = read_machine(data, self.counter)
        return self._machines[key]

    def _sourced(self, data: dict[str, Any], path: str) -> Iterator[tuple[Source, int]]:
        """Yield the sources of a configuration that has sources and machines, but no counts."""
        count = data.get("execution_count")
        if not is_count(count):
            self.counter.note(NO_COUNT)
            count = 1
        names = self._source_names(data, path)
        infos = data.get("machine_info")
        listed = infos if isinstance(infos, list) else [infos]
        machines = [self._machine(item) for item in listed] or [Machine()]
        if len(names) > 1 and len(machines) > 1:
            self.counter.note(
                "machine_info: several sources and machines, not assigned to each other"
            )
            machines = [Machine()]
        for machine in machines:
            sources = [Source(name, model_of(name), machine) for name in names]
            for each in sources or [self._unnamed(machine)]:
                yield each, count

    def _unnamed(self, machine: Machine) -> Source:
        """Return the source of a configuration without one: the models that the file names."""
        name = ", ".join(self.models) or UNKNOWN
        only = self.models[0] if len(self.models) == 1 else None
        return Source(name, model_of(name) or only, machine)


def _is_name(data: Json) -> bool:
    """Return whether ``data`` is text that a trove can store as a name."""
    faults: list[Fault] = []
    if isinstance(data, str):
        check_name(data, "$", faults)
    return isinstance(data, str) and not faults
