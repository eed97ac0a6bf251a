"""Execute any recorded case of torch: functions, methods, ATen operations.

A case runs on its recorded device or on that of a TorchTarget, as it is or compiled, with random
inputs and with edge inputs (``edges.py``). Its numbers are compared with the same operation in
float64 on the CPU (``reference.py``), where no imported kernel can reach (``court.py``).

``optrove.frameworks.op_names`` decides what a name reaches: functions that ``__torch_function__``
can override, and operations of the dispatcher.
"""

from __future__ import annotations

import ctypes
import inspect
import re
import time
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import combinations, takewhile
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, NotReplayable
from optrove.frameworks.chain import Chain
from optrove.frameworks.executor import Compared, Executed, Raised, Stage, refuse_inert
from optrove.frameworks.input_values import TorchInputs
from optrove.frameworks.kept_tensors import KeptValues
from optrove.frameworks.op_names import OPERATIONS, TORCH_METHODS, torch_operation
from optrove.frameworks.probe_protocol import API, ATEN, LEVELS, SingleCallRecorder, muted
from optrove.frameworks.torch.court import Answer, Court, RemoteCourt, Shape
from optrove.frameworks.torch.domains import DIVISIONS, domain_of, repeats_indices
from optrove.frameworks.torch.edges import MOST, Edge, EdgeKind, alike, edged, edges_for, spaced
from optrove.frameworks.torch.probe import OWN_SPACES, Signatures, TorchProbe
from optrove.frameworks.torch.reference import (
    DATA_DEPENDENT,
    INDEXING,
    NOT_RANDOM_IF,
    UNINITIALIZED,
    last_name,
    tensors_in,
)
from optrove.model.case import Case, renamed, rewrite
from optrove.model.records import LOST, Inputs
from optrove.model.torch_target import TorchTarget
from optrove.model.values import (
    Bool,
    Float,
    Int,
    List,
    NestedPlacement,
    Null,
    TensorSpec,
    TorchPlacement,
    walk,
)
from optrove.portable.judging import disturb, finest_of, longest_sum
from optrove.serializer.build import build
from optrove.serializer.describe import Describer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

    from optrove.frameworks.executor import OnStage
    from optrove.frameworks.input_values import Alter
    from optrove.frameworks.torch.court import Judging
    from optrove.frameworks.torch.reference import Noise
    from optrove.model.records import DeviceParameters, Job
    from optrove.model.values import Value
    from optrove.serializer.tables import Tables

READS_GRAD_MODE: Final = frozenset({"mkldnn_rnn_layer"})
"""Operations below autograd that return one more tensor if gradients are enabled."""

_NO_EDGES: Final = frozenset(
    {
        "cholesky", "ctc", "det", "eig", "eigh", "geqrf", "inverse", "linalg", "logdet", "lstsq",
        "lu", "multinomial", "orgqr", "ormqr", "polynomial", "qr", "slogdet", "solve", "svd",
    }
)  # fmt: skip
"""Words in names of operations on matrices that have to be regular, on probabilities, or of a
degree that may take hours."""

_OF_VALUES: Final = re.compile(
    r"IndexError|out of (bounds|range)|ZeroDivision|\bstd >= 0|segment_length >= 0|must be between"
    r"|Expected all rows|has to be 0"
)
"""Errors about the numbers in tensors; random ones may be no index."""

_REFUSED: Final = (
    f"{LOST}has no values of the inputs, and torch's own kernel refuses those made from the seed "
    "in the same way"
)

_TIMED_SECONDS: Final = 0.05

ATEN_OPERATIONS: Final = "torch.ops.aten."


class TorchExecutor:
    """Executes cases on the torch that is loaded in this process."""

    def __init__(
        self,
        torch: ModuleType,
        tables: Callable[[], Tables],
        target: TorchTarget = TorchTarget(),  # noqa: B008 - immutable
    ) -> None:
        """Execute on a target, whose modules are imported; NotReplayable if that is impossible."""
        self.torch: Any = torch
        self._tables = tables
        self.target = target
        self._witness = SingleCallRecorder(tables)
        self._probes = {level: TorchProbe(torch, self._witness, level=level) for level in LEVELS}
        self._examples = self.torch.overrides.get_testing_overrides()
        self._signatures = Signatures(torch)
        self._local = Court(torch, lambda job: TorchCall(self, job))
        self._court: Judging = self._local
        self._chain = Chain()
        self._prepare()

    def _prepare(self) -> None:
        devices = {self.target.device, *(new for _, new in self.target.mapped)} - {None}
        trying = ""
        if self.target.imports:
            self._court = RemoteCourt(self.torch, self._local)
        try:
            for trying in self.target.imports:
                import_module(trying)
            for trying in sorted(map(str, devices)):
                self.torch.empty(0, device=trying)
        except Exception as error:
            what = f"--import {trying}" if trying in self.target.imports else f"device {trying}"
            raise NotReplayable(f"{what}: {type(error).__name__}: {error}") from error

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:  # noqa: ARG002 - the signature of an Executor
        """Open nothing: torch needs no device."""
        return ()

    def reset(self) -> None:
        """Do nothing: cases leave nothing behind."""

    def peak_l1(self, job: Job) -> int:
        """Refuse: a host has no L1."""
        raise NotReplayable(f"{job.case.op} runs on this host, which has no L1")

    def close(self) -> None:
        """End the process that judges, if there is one."""
        self._court.close()

    def execute(self, job: Job, on_stage: OnStage) -> Executed:
        """Rebuild a case and call it; NotReplayable if it cannot be rebuilt."""
        outputs = job.outputs and tuple(map(self.target.placed_value, job.outputs))
        placed = replace(job, case=self.target.placed(job.case), outputs=outputs)
        call = TorchCall(self, placed, *self._carried(job))
        if call.depends_on_data and call.is_on_meta:
            raise NotReplayable("its outputs depend on numbers, and meta tensors have none")
        on_stage(Stage.MAKING)
        court = self._court_of(call)
        live = call.arguments(None, None if call.is_carried else court.inputs(call.job, None))
        on_stage(Stage.CALLING)
        executed, result, draws = self._called(call, live)
        if job.flow is not None:
            self._chain.end(job.flow, call.made, tensors_in(self.torch, [result]))
        if executed.raised is not None and not call.is_carried:
            ours = court is self._local and not _OF_VALUES.search(str(executed.raised))
            refused = not ours and court.error(call.job, None) == executed.raised.type
            return replace(executed, excuse=_REFUSED if refused else None)
        if executed.raised is not None or executed.replayed is None:
            return executed
        run: Callable[[dict[str, Any]], Any] = call.run
        if self.target.compiler is not None:
            run = call.compiled()
            live = call.arguments(None, None if call.is_carried else court.inputs(call.job, None))
            try:
                result = run(live)
            except Exception as error:  # noqa: BLE001 - as in _called
                return replace(executed, raised=Raised(type(error).__name__, str(error)))
            described = describe_outputs(self._tables(), live, result)
            executed = replace(executed, outputs=described)
        on_stage(Stage.READING)
        return self._judged(executed, call, (result, live), run, random=draws)

    def _judged(
        self,
        executed: Executed,
        call: TorchCall,
        returned: tuple[Any, dict[str, Any]],
        run: Callable[[dict[str, Any]], Any],
        *,
        random: bool,
    ) -> Executed:
        """Return what was executed with all that is to be said of it; ``run`` calls it again."""
        court, compiled = self._court_of(call), self.target.compiler is not None
        lacking = call.why_incomparable(random=random)
        answer = call.answer(*returned, compiled=compiled)
        if lacking is None and not answer.tensors:
            lacking = "it returns no numbers and changes no argument"
        if lacking is not None:
            count = len(answer.tensors) or 1
            compared = tuple(Compared(number, lacking=lacking) for number in range(count))
            return replace(executed, compared=compared)
        faults = self._changes(court, call, None)
        if call.job.inputs is not Inputs.EDGES:
            executed = replace(executed, compared=court.verdict(call.job, None, answer))
        failed = any(each.judged and each.judged.faults for each in executed.compared)
        if call.job.inputs is not Inputs.RANDOM and not failed:
            edges = call.edges(compiled=compiled)
            found = (self._edge_faults(court, call, edge, run) for edge in edges)
            faults += tuple(fault for each in found for fault in each)
        return replace(executed, faults=faults)

    def _court_of(self, call: TorchCall) -> Judging:
        """Return who judges a call: this process where only an imported module knows the op."""
        return self._court if call.is_known_without_imports else self._local

    def _called(self, call: TorchCall, live: dict[str, Any]) -> tuple[Executed, Any, bool]:
        """Call once, traced; return what was seen, the result, and whether it drew numbers."""
        op = call.job.case.op
        self._witness.expect(op)
        result: Any = None
        raised = None
        before = self.torch.get_rng_state()
        with self._probes[ATEN if op.startswith(OPERATIONS) else API]:
            started = time.perf_counter_ns()
            try:
                result = call.run(live)
            except Exception as error:  # noqa: BLE001 - the operation may raise anything; the caller judges it
                raised = Raised(type(error).__name__, str(error))
            duration = time.perf_counter_ns() - started
        draws = bytes_of(before) != bytes_of(self.torch.get_rng_state())
        seen = self._witness.take()
        if seen is None:
            return Executed(raised=raised, duration_ns=duration), result, draws
        executed = Executed(
            seen.case,
            tuple((f"arg{place}", name) for place, name in enumerate(seen.order)),
            seen.outputs,
            raised,
            duration_ns=duration,
            job=call.job,
            data_dependent=call.depends_on_data,
        )
        return executed, result, draws

    def _changes(self, court: Judging, call: TorchCall, edge: Edge | None) -> tuple[str, ...]:
        """Return which arguments a call has changed, though torch's own kernel does not."""
        changed = call.changed_otherwise()
        usual = court.changes(call.job, edge) if changed else ()
        return tuple(
            f"it changed its argument {name}, which torch's own kernel does not"
            for name in changed
            if name not in usual
        )

    def _edge_faults(
        self, court: Judging, call: TorchCall, edge: Edge, run: Callable[[dict[str, Any]], Any]
    ) -> Iterator[str]:
        """Yield what a call does wrong with edge inputs; nothing if torch's own kernel raises."""
        fails = court.error(call.job, edge)
        if fails is not None:
            return
        call = TorchCall(self, call.job)
        live = call.arguments(edge, court.inputs(call.job, edge))
        begin = edge.kind.words
        try:
            with muted(), poisoned(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = run(live)
        except Exception as error:  # noqa: BLE001 - as in _called
            words = str(error).strip().partition("\n")[0]
            yield f"{begin}it raises {type(error).__name__}: {words}; torch's own kernel does not"
            return
        yield from (begin + fault for fault in self._changes(court, call, edge))
        answer = call.answer(result, live, compiled=True)
        for compared in court.verdict(call.job, edge, answer):
            if compared.judged is not None:
                yield from (
                    f"{begin}output {compared.output}: {fault}" for fault in compared.judged.faults
                )

    def _carried(self, job: Job) -> tuple[dict[int, Any], dict[int, Any]]:
        """Return the tensors that a step of a sequence gets, and owners of memory for others."""
        if job.flow is None:
            return {}, {}
        self._chain.begin(job.flow)
        wanted = {
            spec.identity: spec.placement.requires_grad
            for spec in job.case.tensors()
            if isinstance(spec.placement, TorchPlacement)
        }
        known = self._chain.known(job.flow)
        with muted():
            for identity, live in known.items():
                # Below autograd, results need no gradient; the program gave them one.
                grad = wanted.get(identity, False)
                if live.requires_grad is not grad and not live.is_inference():
                    known[identity] = live.detach().requires_grad_(grad)
        return known, self._chain.owners(job.flow)

    def warm(self, job: Job) -> Mapping[str, float]:
        """Return the time of a warm call, its floating-point operations and its bytes.

        The operation itself is timed, without tracing: by torch's own timer, which warms up,
        repeats, and waits for other devices.
        """
        from torch.utils.benchmark import Timer
        from torch.utils.flop_counter import FlopCounterMode

        placed = replace(job, case=self.target.placed(job.case))
        call = TorchCall(self, placed)
        live = call.arguments(None, None)
        run = call.run if self.target.compiler is None else call.compiled()
        try:
            with FlopCounterMode(display=False) as counter:
                result = call.run(live)
            run(live)
            found = Timer("run(live)", globals={"run": run, "live": live}).blocked_autorange(
                min_run_time=_TIMED_SECONDS
            )
        except Exception as error:
            raise NotReplayable(f"{type(error).__name__}: {error}") from error
        every = {id(each): each for each in tensors_in(self.torch, [*live.values(), result])}
        moved = sum(each.numel() * each.element_size() for each in every.values())
        return {"e2e_ns": found.median * 1e9, "flops": counter.get_total_flops(), "bytes": moved}

    def rebuild(
        self,
        job: Job,
        case: Case,
        dtypes: Mapping[Any, Any],
        known: Mapping[int, Any] | None = None,
        owners: Mapping[int, Any] | None = None,
        alter: Alter | None = None,
    ) -> tuple[dict[str, Any], dict[int, Any]]:
        """Return the arguments of a case by name, and all tensors by identity.

        ``dtypes`` take the place of recorded ones. Values are those of the Job's capsule, or made
        from its seed; ``known``, ``owners`` and ``alter`` are those of TorchInputs.
        """
        given = dict(case.arguments)
        names = list(given)
        refuse_inert(given, self._tables())
        with muted():
            domain = domain_of(case.op, given)
            kept = KeptValues(job.capsules)
            inputs = TorchInputs(
                self.torch,
                given,
                job.seed,
                domain=domain,
                dtypes=dtypes,
                kept=kept,
                known=known,
                owners=owners,
                alter=alter,
            )

            def tensor(spec: TensorSpec, path: str) -> Any:
                place, _, inner = path[2:].partition("]")
                return inputs.make(spec, names[int(place)], inner)

            try:
                live = build(List(tuple(given.values())), self._tables(), tensor=tensor)
            except BadData as error:
                raise NotReplayable(f"in the arguments {', '.join(names)}: {error}") from error
        found = dict(zip(names, live, strict=True))
        if last_name(case.op) == "_coalesce":  # torch calls it for tensors that need it only
            found["self"]._coalesced_(False)  # noqa: FBT003 - the only form
        if dtypes:
            found = {
                name: dtypes.get(each, each) if isinstance(each, self.torch.dtype) else each
                for name, each in found.items()
            }
        return found, inputs.made

    def spread(
        self, op: str, function: Any, live: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments.

        An argument is passed by place if torch's signature then gives it the same name again: some
        functions take nothing by name, and separate sizes are not a list of sizes.
        """
        places = sorted((n for n in live if n[:3] == "arg" and n[3:].isdigit()), key=_number)
        method = op.startswith(TORCH_METHODS)
        first = ["self"] if method and "self" in live else []
        if op.startswith(OPERATIONS):
            # By place as far as possible: torch.compile cannot pass a keyword such as ``from``.
            schema = function._schema.arguments  # noqa: SLF001 - torch has no public way to ask
            leading = takewhile(lambda each: each.name in live and not each.kwarg_only, schema)
            return self._by_place(live, places or [each.name for each in leading])
        if places:
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
        """Yield the parameters that can be passed by place, as far as torch lists them."""
        name = getattr(function, "__name__", "")
        packet = None if name.startswith("__") else getattr(self.torch.ops.aten, name, None)
        for overload in () if packet is None else packet.overloads():
            schema = getattr(packet, overload)._schema.arguments  # noqa: SLF001 - torch has no public access to schemas
            names = [each.name for each in schema if not each.kwarg_only]
            yield tuple("input" if name == "self" and not method else name for name in names)
        example = self._examples.get(function)
        if example is not None:
            names = list(inspect.signature(example).parameters)
            yield ("self", *names[1:]) if method else tuple(names)

    def find(self, op: str) -> Any:
        """Return the operation ``op``; NotReplayable if torch has no such operation."""
        return torch_operation(self.torch, self._examples, op)


def is_composite(op: str) -> bool:
    """Return whether torch composes an operation of others, which only inference mode records.

    False where torch is not installed, or lacks the operation.
    """
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return False
    _, _, space, name, overload = op.split(".") if op.count(".") == 4 else ("",) * 5  # noqa: PLR2004 - torch.ops.SPACE.NAME.OVERLOAD
    if not space or not hasattr(getattr(torch.ops, space), name):
        return False
    full = f"{space}::{name}" + ("" if overload == "default" else f".{overload}")
    found: bool = torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd")  # noqa: SLF001 - has no public name
    return found


def _number(name: str) -> int:
    return int(name[3:])


class TorchCall:
    """One call of a case: its function, and how it has to be made."""

    def __init__(
        self,
        executor: TorchExecutor,
        job: Job,
        known: Mapping[int, Any] | None = None,
        owners: Mapping[int, Any] | None = None,
    ) -> None:
        """Call the case of a Job; ``known`` and ``owners`` are those of TorchInputs."""
        self._known = dict(known or {})
        self._owners = dict(owners or {})
        self._before: list[tuple[str, Any, bytes]] = []
        self.copies: dict[int, Any] = {}
        self.made: dict[int, Any] = {}
        self._executor = executor
        self._torch = executor.torch
        self._function = executor.find(job.case.op)
        self._is_operation = isinstance(self._function, self._torch._ops.OpOverload)  # noqa: SLF001 - this class has no public name
        if self._is_operation:
            job = replace(job, case=self._named(job.case))
        self.job = job
        devices = {
            part.placement.device.partition(":")[0]
            for _, value in (*job.case.arguments, *_numbered(job.outputs))
            for _, part in walk(value)
            if isinstance(part, TensorSpec) and isinstance(part.placement, TorchPlacement)
        }
        self.is_on_meta = "meta" in devices
        self.is_on_cpu = devices <= {"cpu"}

    def _named(self, case: Case) -> Case:
        """Return a case whose positional arguments have the names of the schema."""
        schema = self._function._schema.arguments  # noqa: SLF001 - torch has no public way to ask
        names = {f"arg{place}": each.name for place, each in enumerate(schema)}
        given = {name for name, _ in case.arguments}
        return renamed(case, names) if given & names.keys() else case

    @property
    def depends_on_data(self) -> bool:
        """Whether the outputs depend on the values of the inputs, not on their specs alone."""
        tags = self._torch.Tag
        dependent = {tags.data_dependent_output, tags.dynamic_output_shape}
        reads = any(isinstance(each, (Bool, Int, Float)) for each in self.job.outputs or ())
        if reads or self._has_sparse():
            return True
        if last_name(self.job.case.op) in INDEXING and not self._has_mask():
            return False
        tagged = self._is_operation and bool(dependent & set(self._function.tags))
        return tagged or last_name(self.job.case.op) in DATA_DEPENDENT

    def _has_mask(self) -> bool:
        """Return whether a tensor selects elements, instead of naming their places."""
        return any(spec.dtype in ("torch.bool", "torch.uint8") for spec in self._specs())

    def _has_sparse(self) -> bool:
        """Return whether a tensor is sparse; how many elements it stores is not recorded."""
        placements = (spec.placement for spec in self._specs())
        return any(
            isinstance(p, TorchPlacement) and p.layout.startswith("sparse") for p in placements
        )

    def _has_nested(self) -> bool:
        return any(isinstance(spec.placement, NestedPlacement) for spec in self._specs())

    def _specs(self) -> Iterator[TensorSpec]:
        for _, value in self.job.case.arguments:
            for _, part in walk(value):
                if isinstance(part, TensorSpec):
                    yield part

    def why_incomparable(self, *, random: bool) -> str | None:
        """Return why the numbers of the call cannot be compared; None if they can."""
        if random or self._is_random():
            return "its results are random"
        if last_name(self.job.case.op) in UNINITIALIZED:
            return "its results are not initialized"
        if self.is_on_meta:
            return "tensors on the meta device have no numbers"
        storages = [
            spec.storage for spec in {each.identity: each for each in self._specs()}.values()
        ]
        if self.is_carried and len({*storages}) != len(storages):
            return "its tensors share memory, which their copies for a comparison do not"
        return None

    def _is_random(self) -> bool:
        """Return whether the operation draws random numbers with these arguments."""
        if not self._is_operation:
            return False
        if self._torch.Tag.nondeterministic_seeded not in self._function.tags:
            return False
        given = self._scalars()
        return not any(name in given and given[name] == off for name, off in NOT_RANDOM_IF.items())

    def _scalars(self) -> dict[str, Any]:
        """Return the numbers and truth values among the arguments, with the schema's defaults."""
        if not self._is_operation:
            return {}
        schema = self._function._schema.arguments  # noqa: SLF001 - torch has no public way to ask
        given = {argument.name: argument.default_value for argument in schema}
        return given | {
            name: value.value
            for name, value in self.job.case.arguments
            if isinstance(value, (Bool, Int, Float))
        }

    @property
    def is_carried(self) -> bool:
        """Whether it gets tensors of earlier steps."""
        return bool(self._known or self._owners)

    @property
    def is_known_without_imports(self) -> bool:
        """Whether the operation is one of torch itself."""
        op = self.job.case.op
        return not op.startswith(OPERATIONS) or op.split(".")[2] in OWN_SPACES

    def arguments(
        self, edge: Edge | None, inputs: Mapping[int, Any] | None = None
    ) -> dict[str, Any]:
        """Return new arguments: of ``inputs``, of earlier steps, or made from the seed."""
        live = self._rebuilt(self.job.case, {}, edge, inputs or self._known)
        if self.is_carried:
            # For the reference, before the call writes to them.
            with muted(), self._torch.no_grad():
                self.copies = {
                    each: tensor.detach().clone()
                    for each, tensor in self.made.items()
                    if isinstance(tensor, self._torch.Tensor)
                }
        written = list(tensors_in(self._torch, self._changed(live)))
        memory = {each.untyped_storage().data_ptr() for each in written if self._is_plain(each)}
        self._before = [
            (name, each, bytes_of(each))
            for name, value in live.items()
            for each in tensors_in(self._torch, value)
            if self._is_operation and self._is_plain(each)
            if each.untyped_storage().data_ptr() not in memory
        ]
        return live

    def _rebuilt(
        self, case: Case, dtypes: Mapping[Any, Any], edge: Edge | None, known: Mapping[int, Any]
    ) -> dict[str, Any]:
        """Return arguments; known tensors are as the edge wants them already."""
        alter = None if edge is None else self._alter(edge)
        live, self.made = self._executor.rebuild(
            self.job, case, dtypes, known, self._owners, alter=alter
        )
        if edge is not None and edge.kind is EdgeKind.STRIDED and not known:
            spread = {id(each): spaced(each) for each in self.made.values() if self._is_plain(each)}
            live = {name: replaced(value, spread) for name, value in live.items()}
            self.made = {key: spread.get(id(each), each) for key, each in self.made.items()}
        if edge is not None and edge.kind is EdgeKind.ALIASED:
            one, other = next(self._pairs())
            live[other] = live[one]
        return live

    def _alter(self, edge: Edge) -> Alter:
        pointwise = self.is_pointwise
        ignored = self._scalars().get("ignore_index")

        def alter(row: Any, generator: Any) -> Any:
            if edge.kind is EdgeKind.ALIKE:
                return alike(self._torch, row)
            whole = not row.dtype.is_floating_point
            usual = row.dtype in (self._torch.bool,) or row.dtype.is_complex
            if isinstance(ignored, int) and whole and not usual:
                return row.index_fill(0, self._torch.arange(0, len(row), 3), ignored)
            if usual or (whole and not pointwise):
                return row
            return edged(self._torch, row, edge, generator)

        return alter

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the names of arguments that may be one tensor."""
        written = self._written()
        tensors = [(n, v) for n, v in self.job.case.arguments if isinstance(v, TensorSpec)]
        for (one, spec), (other, second) in combinations(tensors, 2):
            alike = (spec.shape, spec.dtype) == (second.shape, second.dtype)
            if alike and spec.placement == second.placement and other not in written:
                yield one, other

    @property
    def is_pointwise(self) -> bool:
        """Return whether each element follows from those at its place; torch does not tag all."""
        if not self._is_operation:
            return False
        tagged = self._torch.Tag.pointwise in self._function.tags
        return tagged or last_name(self.job.case.op) in DIVISIONS

    def edges(self, *, compiled: bool) -> list[Edge]:
        """Return the edges with which the call is made again."""
        specs = [s for s in self._specs() if isinstance(s.placement, TorchPlacement)]
        if not self._takes_edges(specs):
            return []
        floats = [prod(s.shape) for s in specs if "float" in s.dtype and 0 not in s.shape]
        pointwise = self.is_pointwise
        lengths = floats or [prod(s.shape) for s in specs if pointwise and 0 not in s.shape]
        arguments = dict(self.job.case.arguments)
        found = edges_for(
            lengths,
            numbers=bool(lengths),
            special=bool(floats),
            pairs=any(self._pairs()),
            alike=any(spec.dtype == "torch.bool" for spec in specs)
            or repeats_indices(self.job.case.op, arguments),
        )
        kinds = (EdgeKind.FINITE, EdgeKind.SPECIAL) if compiled else tuple(EdgeKind)
        return [edge for edge in found if edge.kind in kinds]

    def _takes_edges(self, specs: list[TensorSpec]) -> bool:
        """Return whether any numbers and any layout are inputs of the operation."""
        job = self.job
        aten = self._is_operation and job.case.op.startswith(ATEN_OPERATIONS)
        if not aten or _NO_EDGES & {*last_name(job.case.op).split("_")}:
            return False
        if self.is_on_meta or self.is_carried or job.flow is not None or job.capsules:
            return False
        dense = all(
            type(spec.placement) is TorchPlacement and spec.placement.layout == "strided"
            for spec in specs
        )
        return bool(specs) and dense and sum(prod(spec.shape) for spec in specs) <= MOST

    def _is_plain(self, tensor: Any) -> bool:
        plain = isinstance(tensor, self._torch.Tensor) and not tensor.is_nested
        return plain and tensor.layout is self._torch.strided and tensor.device.type == "cpu"

    def changed_otherwise(self) -> tuple[str, ...]:
        """Return the names of arguments that have changed, though the schema does not say so."""
        changed = [name for name, tensor, before in self._before if bytes_of(tensor) != before]
        return tuple(dict.fromkeys(changed))

    def answer(self, result: Any, live: dict[str, Any], *, compiled: bool) -> Answer:
        """Return what the call has returned; how it lies in memory counts for eager calls only."""
        tensors = tuple(self.results(result, live))
        shapes = None
        if self._is_operation and not compiled and self.is_on_cpu and not self.is_carried:
            shapes = self._shapes(tensors)
        return Answer(tensors, shapes, tuple(self.copies.items()))

    def _shapes(self, tensors: Iterable[Any]) -> tuple[Shape, ...] | None:
        memory = {
            each.untyped_storage().data_ptr(): place
            for place, each in enumerate(self.made.values())
            if self._is_plain(each) and each.untyped_storage().nbytes()
        }
        tensors = list(tensors)
        if not all(map(self._is_plain, tensors)):
            return None
        return tuple(
            Shape(each.stride(), memory.get(each.untyped_storage().data_ptr())) for each in tensors
        )

    def reference_shapes(self, edge: Edge | None) -> tuple[Shape, ...] | None:
        """Return how the results of torch's own kernel lie in memory."""
        live = self._rebuilt(self.job.case, {}, edge, {})
        return self._shapes(self.results(self.run(live), live))

    def finest(self) -> Any:
        """Return the floating-point dtype with the most digits among inputs and outputs."""
        torch = self._torch
        names = {s.dtype for _, v in _numbered(self.job.outputs) for s in _tensor_specs(v)}
        names |= {spec.dtype for spec in self._specs()}
        dtypes = [getattr(torch, name.removeprefix("torch."), None) for name in names]
        return finest_of(dtype for dtype in dtypes if isinstance(dtype, torch.dtype))

    def terms(self) -> int:
        """Return how many numbers the sums of the operation have at most."""
        if self.is_pointwise:
            return 1
        outputs = [s for _, v in _numbered(self.job.outputs) for s in _tensor_specs(v)]
        return longest_sum((spec.shape for spec in self._specs()), (s.shape for s in outputs))

    def names_equal(self, indices: Any, expected: list[Any] | str, edge: Edge | None) -> bool:
        """Return whether indices along a dimension name elements that equal the expected ones."""
        live = self._rebuilt(TorchTarget(device="cpu").placed(self.job.case), {}, edge, self.copies)
        source, dim = live.get("self"), live.get("dim", -1)
        if live.get("stable") or isinstance(expected, str) or not isinstance(dim, int):
            return False
        wanted = expected[1]
        if source is None or not source.dim() or indices.shape != wanted.shape:
            return False
        if indices.dim() < source.dim():  # the dimension was dropped
            indices, wanted = indices.unsqueeze(dim), wanted.unsqueeze(dim)
        if bool(((indices < 0) | (indices >= source.shape[dim])).any()):
            return False
        placed = indices.sort(dim).values
        distinct = (
            placed.narrow(dim, 1, placed.shape[dim] - 1)
            != placed.narrow(dim, 0, placed.shape[dim] - 1)
        ).all()
        named, right = source.gather(dim, indices), source.gather(dim, wanted)
        alike = (named == right) | (named.isnan() & right.isnan())
        return bool(alike.all()) and bool(distinct)

    def run(self, live: dict[str, Any]) -> Any:
        """Call the operation in the context that it was recorded in."""
        arguments, keywords = self._executor.spread(self.job.case.op, self._function, live)
        with self._context():
            return self._function(*arguments, **keywords)

    def compiled(self) -> Callable[[dict[str, Any]], Any]:
        """Return ``run``, compiled."""
        torch, op, function = self._torch, self.job.case.op, self._function
        torch._dynamo.reset()  # noqa: SLF001 - cases must not share what was compiled for others
        call = torch.compile(
            lambda arguments, keywords: function(*arguments, **keywords),
            backend=self._executor.target.compiler,
            dynamic=False,
        )

        def run(live: dict[str, Any]) -> Any:
            arguments, keywords = self._executor.spread(op, function, live)
            with self._context():
                return call(arguments, keywords)

        return run

    def results(self, result: Any, live: dict[str, Any]) -> Iterator[Any]:
        """Yield the tensors of a result or its number, and the arguments that it has changed."""
        if isinstance(result, (int, float, complex)):
            dtype = self._torch.float64 if isinstance(result, float) else None
            yield self._torch.tensor(result, dtype=dtype, device="cpu")
        seen: set[int] = set()
        for tensor in tensors_in(self._torch, [result, *self._changed(live)]):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor

    def reference(
        self, dtypes: Mapping[Any, Any], noise: Noise | None, edge: Edge | None
    ) -> list[Any]:
        """Return the tensors of ``results`` of the same call on the CPU, with other dtypes.

        The inputs differ from those of the call by the ``noise``.
        """
        case = TorchTarget(device="cpu").placed(self.job.case)
        case = Case(case.op, tuple((name, rewrite(each, _plain)) for name, each in case.arguments))
        known = {
            each: live.cpu().to(dtypes.get(live.dtype, live.dtype), copy=True)
            for each, live in self.copies.items()
        }
        live = self._rebuilt(case, dtypes, edge, known)
        if noise is not None:
            disturb(self.made.values(), noise.dtype, noise.seed)
        result = self.run(live)
        return [each.detach().resolve_conj().resolve_neg() for each in self.results(result, live)]

    def _written(self) -> set[str]:
        if not self._is_operation:
            return set()
        schema = self._function._schema.arguments  # noqa: SLF001 - torch has no public way to ask
        return {each.name for each in schema if each.alias_info and each.alias_info.is_write}

    def _changed(self, live: dict[str, Any]) -> list[Any]:
        return [live[name] for name in live if name in self._written()]

    @contextmanager
    def _context(self) -> Iterator[None]:
        """Enter the modes that the call was made in, as far as the recording implies them."""
        torch = self._torch
        with ExitStack() as stack:
            if self._is_operation:
                # Operations of the dispatcher run below autograd; it shows composite ones in
                # inference mode, and of nested tensors in any mode.
                composite = self._is_composite() and not self._has_nested()
                composite = composite or any(each.is_inference() for each in self._known.values())
                if not self._needs_gradients():
                    stack.enter_context(torch.inference_mode() if composite else torch.no_grad())
            dtype = self._default_dtype()
            if dtype is not None:
                stack.callback(torch.set_default_dtype, torch.get_default_dtype())
                torch.set_default_dtype(dtype)
            yield

    def _needs_gradients(self) -> bool:
        """Return whether the recorded results show that gradients were enabled."""
        recorded = [part for each in self.job.outputs or () for _, part in walk(each)]
        missing = any(isinstance(part, Null) for part in recorded)
        return last_name(self.job.case.op) in READS_GRAD_MODE and not missing

    def _is_composite(self) -> bool:
        name = self._function.name()
        has_kernel: Callable[[str, str], bool] = (
            self._torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001 - has no public name
        )
        return has_kernel(name, "CompositeImplicitAutograd")

    def _default_dtype(self) -> Any:
        """Return the default dtype if the recorded result shows that it was another one."""
        arguments = dict(self.job.case.arguments)
        tensors = any(
            isinstance(part, TensorSpec) for _, each in arguments.items() for _, part in walk(each)
        )
        first = next(iter(self.job.outputs or ()), None)
        if tensors or "dtype" in arguments or not isinstance(first, TensorSpec):
            return None
        dtype = getattr(self._torch, first.dtype.removeprefix("torch."), None)
        default = self._torch.get_default_dtype()
        others = (self._torch.float64, self._torch.float16, self._torch.bfloat16)
        return dtype if dtype is not default and dtype in others else None


def _tensor_specs(value: Value) -> Iterator[TensorSpec]:
    return (part for _, part in walk(value) if isinstance(part, TensorSpec))


def replaced(live: Any, tensors: Mapping[int, Any]) -> Any:
    """Return arguments with other tensors in the place of those with these ids."""
    if isinstance(live, (list, tuple)):
        return type(live)([replaced(each, tensors) for each in live])
    return tensors.get(id(live), live)


def bytes_of(tensor: Any) -> bytes:
    """Return the memory of a dense tensor, read without an operation of torch."""
    storage = tensor.untyped_storage()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


_M_PERTURB: Final = -6
_POISON: Final = 0x80
"""glibc fills new memory with its complement: a huge number, or NaN, in any dtype."""


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill memory that is allocated inside the block, so that what is never written is seen."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is None:  # only glibc can
        yield
        return
    adjust(_M_PERTURB, _POISON)
    try:
        yield
    finally:
        adjust(_M_PERTURB, 0)


def _numbered(outputs: tuple[Value, ...] | None) -> list[tuple[str, Value]]:
    return [("", value) for value in outputs or ()]


def _plain(value: Value) -> Value:
    """Return a value whose tensors need no gradient."""
    match value:
        case TensorSpec(placement=TorchPlacement() as placement):
            return replace(value, placement=replace(placement, requires_grad=False))
    return value


def describe_outputs(tables: Tables, live: Mapping[str, Any], result: Any) -> tuple[Value, ...]:
    """Return the description of a result, after that of the arguments."""
    with muted():
        session = Describer(tables)
        for name in sorted(live):
            session.describe(live[name])
        return () if result is None else (session.describe(result),)
