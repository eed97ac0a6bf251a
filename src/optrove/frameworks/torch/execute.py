"""Execute any recorded case of torch on the host: functions, methods, ATen operations.

Names come from recordings, so nothing can be reached by them but what torch lists as its own
operations: what can be overridden by ``__torch_function__``, and what the dispatcher runs.
"""

from __future__ import annotations

import inspect
import time
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, NotReplayable
from optrove.frameworks.executor import Executed, Raised, Stage, refuse_inert
from optrove.frameworks.probe_protocol import SingleCallRecorder, muted
from optrove.frameworks.seeded_tensors import TorchInputs
from optrove.frameworks.torch.probe import GETTERS, Signatures, TorchProbe, is_operation
from optrove.model.values import List, TensorSpec
from optrove.serializer.build import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from optrove.frameworks.executor import Asked, Telling
    from optrove.model.case import Case
    from optrove.model.records import DeviceParameters
    from optrove.serializer.tables import Tables

FILES: Final = frozenset({"from_file", "load", "save"})
"""Operations that read or write files, which a replay must not touch."""

UNLISTED: Final = frozenset({"torch.autograd.backward", "torch.autograd.grad"})
"""Functions that can be overridden, which torch forgets in its list of those."""

OPERATIONS: Final = "torch.ops."
METHODS: Final = "torch.Tensor."


class TorchExecutor:
    """Executes cases on the torch that is loaded in this process."""

    def __init__(self, torch: ModuleType, tables: Callable[[], Tables]) -> None:
        self._torch: Any = torch
        self._tables = tables
        self._witness = SingleCallRecorder(tables)
        self._probe = TorchProbe(torch, self._witness)
        self._examples = self._torch.overrides.get_testing_overrides()
        self._signatures = Signatures(torch)

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:  # noqa: ARG002 - the signature of an Executor
        """Open nothing: torch needs no device."""
        return ()

    def peak_l1(self, asked: Asked) -> int:
        """Refuse: a host has no L1 of its own to measure."""
        raise NotReplayable(f"{asked.case.op} runs on this host, which has no L1")

    def close(self) -> None:
        """Close nothing."""

    def execute(self, asked: Asked, tell: Telling) -> Executed:
        """Rebuild a case and call it; NotReplayable when it cannot be rebuilt."""
        case = asked.case
        function = self._find(case.op)
        tell(Stage.MAKING)
        arguments, keywords = self._spread(case.op, function, self._rebuild(case, asked.seed))
        tell(Stage.CALLING)
        self._witness.expect(case.op)
        raised: Raised | None = None
        started = time.perf_counter_ns()
        with self._probe:
            try:
                function(*arguments, **keywords)
            except Exception as error:  # noqa: BLE001 - the operation's own answer, whatever it is; judged by the caller
                raised = Raised(type(error).__name__, str(error))
        duration = time.perf_counter_ns() - started
        seen = self._witness.take()
        if seen is None:
            return Executed(raised=raised, duration_ns=duration)
        named = tuple((f"arg{place}", name) for place, name in enumerate(seen.order))
        return Executed(seen.case, named, seen.outputs, raised, duration_ns=duration)

    def _rebuild(self, case: Case, seed: int) -> dict[str, Any]:
        given = dict(case.arguments)
        names = list(given)
        refuse_inert(given, self._tables())
        with muted():
            inputs = TorchInputs(self._torch, given, seed)

            def tensor(spec: TensorSpec, path: str) -> Any:
                return inputs.make(spec, names[int(path[2:].partition("]")[0])])

            try:
                live = build(List(tuple(given.values())), self._tables(), tensor=tensor)
            except BadData as error:
                raise NotReplayable(f"in the arguments {', '.join(names)}: {error}") from error
        return dict(zip(names, live, strict=True))

    def _spread(
        self, op: str, function: Any, live: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as they are passed.

        By place where torch's signature then gives them the same names again: some functions
        take nothing by name, and a loose size is no list of sizes.
        """
        places = sorted((n for n in live if n[:3] == "arg" and n[3:].isdigit()), key=_number)
        method = op.startswith(METHODS)
        first = ["self"] if method and "self" in live else []
        if places or op.startswith(OPERATIONS):
            return self._by_place(live, [*first, *places])
        bind = self._signatures.of_function(op, function, method=method)
        for row in self._rows(function, method=method):
            count = next((i for i, name in enumerate(row) if name not in live), len(row))
            if count < len(first):
                continue
            arguments, keywords = self._by_place(live, list(row[:count]))
            bound = bind(tuple(arguments), keywords)
            if bound.keys() == live.keys() and all(bound[n] is live[n] for n in live):
                return arguments, keywords
        return self._by_place(live, first)

    def _by_place(
        self, live: dict[str, Any], places: list[str]
    ) -> tuple[list[Any], dict[str, Any]]:
        others = {name: each for name, each in live.items() if name not in places}
        return [live[name] for name in places], others

    def _rows(self, function: Any, *, method: bool) -> Iterator[tuple[str, ...]]:
        """Yield the parameters that can be passed by place, as far as torch tells them."""
        name = getattr(function, "__name__", "")
        packet = None if name.startswith("__") else getattr(self._torch.ops.aten, name, None)
        for overload in () if packet is None else packet.overloads():
            schema = getattr(packet, overload)._schema.arguments  # noqa: SLF001 - torch's public operations have no other way to tell
            names = [each.name for each in schema if not each.kwarg_only]
            yield tuple("input" if name == "self" and not method else name for name in names)
        example = self._examples.get(function)
        if example is not None:
            names = list(inspect.signature(example).parameters)
            yield ("self", *names[1:]) if method else tuple(names)

    def _find(self, op: str) -> Any:
        """Return what is called ``op``; NotReplayable if that is no operation of torch."""
        if FILES & set(op.split(".")):
            raise NotReplayable(f"{op} reads or writes a file, which a replay does not touch")
        last = op.rpartition(".")[2]
        live = self._walk(op)
        if op.startswith(OPERATIONS) and isinstance(live, self._torch._ops.OpOverload):  # noqa: SLF001 - this class has no public name
            return live
        if op.startswith(METHODS) and last in GETTERS:
            return attrgetter(last)
        listed = _is_in(live, self._examples) or op in UNLISTED
        if not (listed or self._is_builtin(op, last)) or not is_operation(last):
            raise NotReplayable(f"the installed torch has no operation called {op}")
        return live

    def _is_builtin(self, op: str, last: str) -> bool:
        """Tell whether a name is that of a function of ATen; those that create tensors only are."""
        builtins = self._torch._C._VariableFunctions  # noqa: SLF001 - the class that holds them all
        return op == f"torch.{last}" and last in dir(builtins)

    def _walk(self, op: str) -> Any:
        first, *parts = op.split(".")
        live: Any = self._torch if first == "torch" else None
        for part in parts:
            foreign = isinstance(live, ModuleType) and not live.__name__.startswith("torch")
            if live is None or foreign:
                return None
            live = getattr(live, part, None)
        return live


def _is_in(live: Any, known: Mapping[Any, Any]) -> bool:
    try:
        return live in known
    except TypeError:  # it has no hash, so it is none of them
        return False


def _number(name: str) -> int:
    return int(name[3:])
