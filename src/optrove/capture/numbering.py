"""Give values, cases, outputs, sites, scopes and errors their numbers, and write each once.

A number is written to the journal before it is handed out, so that whatever refers to it can be
understood. What is remembered here is bounded: a value that was forgotten is written again under
a new number, and readers see from its content that it is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from optrove.backends.describe import NUMBERED
from optrove.codec.records import record_to_builtins
from optrove.codec.text import Json, write
from optrove.codec.wire import encode
from optrove.model.values import Opaque, TensorSpec, TtnnPlacement, Value
from optrove.model.walk import walk

if TYPE_CHECKING:
    from optrove.backends.describe import Describer
    from optrove.capture.journal import Journal
    from optrove.model.case import NamedValues
    from optrove.model.records import DeviceParameters, Phase

K = TypeVar("K", bound=Hashable)

MAX_REMEMBERED: Final = 8192
MAX_CONFIGS: Final = 262_144
MAX_OPAQUE: Final = 100
"""How many cases are kept of an op that is called with things that nothing is known about."""

MAX_ERRORS: Final = 64
MAX_ERROR: Final = 20_000
"""How many characters of an exception's text are kept."""


Recall: TypeAlias = Callable[[Any], "tuple[TensorSpec, Hashable, Hashable, Any] | None"]
"""Given a live tensor: its spec alone, what tells it and its buffer from others, its device."""


def _nothing(_: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Scope:
    """What calls belong to: the test and its phase, the module, the mode, the opened device."""

    test_id: str | None = None
    phase: Phase | None = None
    module: str | None = None
    mode: str | None = None
    device: DeviceParameters | None = None


@dataclass(frozen=True, slots=True)
class NumberedCase:
    """A case's number and arguments, and the types of what nothing is known about.

    The number is zero when too many cases of the op hold such things already.
    """

    number: int
    arguments: NamedValues
    opaque: tuple[str, ...]


class Numbering:
    """The numbers of one journal; may be used by many threads."""

    def __init__(self, journal: Journal) -> None:
        self.recall: Recall = _nothing
        self._begin(journal)

    def _begin(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = RLock()
        self._recalled: dict[int, tuple[int, TensorSpec]] = {}
        self._next: dict[str, int] = {}
        self._values: dict[Value, int] = {}
        self._cases: dict[str, int] = {}
        self._outputs: dict[str, int] = {}
        self._scopes: dict[Scope, int] = {}
        self._sites: dict[tuple[str, int], int] = {}
        self._reasons: dict[tuple[str, str], int] = {}
        self._errors: dict[str, int] = {}
        self._configs: dict[tuple[str, tuple[str, ...]], int] = {}
        self._opaque: Counter[str] = Counter()

    def case(
        self, op: str, arguments: Mapping[str, Any], session: Describer, *, keep: bool = False
    ) -> NumberedCase:
        """Return the number of a case; the arguments are described in the order of their names.

        In that order, because numbers of tensors are given on the way: however a call was
        spelled, they come out the same. With ``keep`` the description is returned as well.
        """
        opaque: list[str] = []
        described: NamedValues = ()
        if keep:
            named = [(name, session.describe(arguments[name])) for name in sorted(arguments)]
            references = {name: self._reference(value, opaque) for name, value in named}
            described = tuple(named)
        else:
            references = {
                name: self._live(arguments[name], session, opaque) for name in sorted(arguments)
            }
        if opaque:
            self._opaque[op] += 1
            if self._opaque[op] > MAX_OPAQUE:
                return NumberedCase(0, described, tuple(opaque))
        data = {"arguments": references, **({"opaque": opaque} if opaque else {}), "op": op}
        return NumberedCase(self._once("case", self._cases, data), described, tuple(opaque))

    def outputs(self, results: Iterable[Any], session: Describer) -> int:
        """Return the number of what a call returned, described after its arguments."""
        references = [self._live(each, session, []) for each in results]
        return self._once("outputs", self._outputs, {"are": references})

    def scope(self, scope: Scope) -> int:
        """Return the number of a scope."""
        return self._written("scope", self._scopes, scope, lambda: _scope_data(scope))

    def site(self, file: str, line: int) -> int:
        """Return the number of a line of code."""
        data = {"file": file, "line": line}
        return self._written("site", self._sites, (file, line), lambda: data)

    def reason(self, why: str, text: str) -> int:
        """Return the number of why calls are recorded without a case."""
        data = {"why": why, "text": text}
        return self._written("reason", self._reasons, (why, text), lambda: data)

    def error(self, text: str) -> int:
        """Write an exception's text and return its number."""
        short = text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} ..."
        if len(self._errors) >= MAX_ERRORS:
            self._errors.clear()
        return self._written("error", self._errors, short, lambda: {"text": short})

    def config(self, path: str, ops: tuple[str, ...]) -> int:
        """Return the number of an entry of a run configuration."""
        key = (path, ops)
        number = self._configs.get(key)
        if number is not None:
            return number
        with self._lock:
            number = self._next.get("config", 0) + 1
            self._journal.write({"config": number, "path": path, "ops": list(ops)})
            self._next["config"] = number
            # Not as little as of other things: a mixture of experts has tens of thousands.
            if len(self._configs) >= MAX_CONFIGS:
                self._configs.clear()
            self._configs[key] = number
            return number

    def continue_in(self, journal: Journal) -> None:
        """Begin anew in another journal; the lock may be one that a fork left locked."""
        self._begin(journal)

    def _live(self, live: Any, session: Describer, opaque: list[str]) -> Json:
        """Return the reference to an object; a tensor that is known need not be described."""
        recalled = self.recall(live)
        if recalled is None:
            return self._reference(session.describe(live), opaque)
        spec, tensor, storage, device = recalled
        known = self._recalled.get(id(spec))
        if known is None:
            if len(self._recalled) >= MAX_REMEMBERED:
                self._recalled.clear()
            # With the object, so that its id stays its own.
            known = self._recalled[id(spec)] = (self._value(spec), spec)
        return {
            "t": known[0],
            "i": session.tensor_number(live, tensor),
            "s": session.storage_number(live, storage),
            "d": None if device is None else session.device_number(device),
        }

    def _reference(self, value: Value, opaque: list[str]) -> Json:
        if isinstance(value, TensorSpec):
            return self._tensor(value)
        numbered = [part for _, part in walk(value) if isinstance(part, NUMBERED)]
        if not numbered:
            return self._value(value)
        opaque += [part.type for part in numbered if isinstance(part, Opaque)]
        return {"is": encode(value)}

    def _tensor(self, spec: TensorSpec) -> Json:
        placement = spec.placement
        device = None
        if isinstance(placement, TtnnPlacement) and placement.device is not None:
            device = placement.device
            placement = replace(placement, device=0)
        alone = replace(spec, identity=0, storage=0, placement=placement)
        return {"t": self._value(alone), "i": spec.identity, "s": spec.storage, "d": device}

    def _value(self, value: Value) -> int:
        return self._written("value", self._values, value, lambda: {"is": encode(value)})

    def _once(self, kind: str, known: dict[str, int], data: dict[str, Json]) -> int:
        """Return the number of a line that is known by its own text."""
        text = write(data)
        number = known.get(text)
        if number is not None:
            return number
        with self._lock:
            number = known.get(text)
            if number is None:
                number = self._next.get(kind, 0) + 1
                self._journal.write_text(f'{{"{kind}":{number},{text[1:]}')
                self._next[kind] = number
                if len(known) >= MAX_REMEMBERED:
                    known.clear()
                known[text] = number
            return number

    def _written(
        self, kind: str, known: dict[K, int], key: K, data: Callable[[], dict[str, Json]]
    ) -> int:
        number = known.get(key)
        if number is not None:
            return number
        with self._lock:
            number = known.get(key)
            if number is None:
                number = self._next.get(kind, 0) + 1
                self._journal.write({kind: number, **data()})
                self._next[kind] = number
                if len(known) >= MAX_REMEMBERED:
                    known.clear()
                known[key] = number
            return number


def _scope_data(scope: Scope) -> dict[str, Json]:
    told: dict[str, Json] = {
        "test_id": scope.test_id,
        "phase": scope.phase and scope.phase.value,
        "module": scope.module,
        "mode": scope.mode,
        "device": scope.device and device_data(scope.device),
    }
    return {name: value for name, value in told.items() if value is not None}


def device_data(device: DeviceParameters) -> Json:
    """Return device parameters as JSON, without those that are None."""
    return record_to_builtins(device)  # type: ignore[arg-type]  # cattrs takes any dataclass of the model
