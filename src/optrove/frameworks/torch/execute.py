"""Execute any recorded case of torch: functions, methods, ATen operations.

A case runs on its recorded device or on that of a TorchTarget, as it is or compiled, and its
numbers are compared with the same operation in float64 on the CPU (``reference.py``).

``optrove.frameworks.op_names`` decides what a name reaches: functions that ``__torch_function__``
can override, and operations of the dispatcher.
"""

from __future__ import annotations

import inspect
import io
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, NotReplayable
from optrove.frameworks.chain import Chain
from optrove.frameworks.executor import Compared, Executed, Raised, Stage, refuse_inert
from optrove.frameworks.input_values import TorchInputs
from optrove.frameworks.kept_tensors import KeptValues
from optrove.frameworks.op_names import OPERATIONS, TORCH_METHODS, torch_operation
from optrove.frameworks.probe_protocol import API, ATEN, LEVELS, SingleCallRecorder, muted
from optrove.frameworks.torch.domains import domain_of
from optrove.frameworks.torch.probe import Signatures, TorchProbe
from optrove.frameworks.torch.reference import (
    DATA_DEPENDENT,
    INDEXING,
    NOT_RANDOM_IF,
    NOT_UNIQUE,
    RANGE_DEPENDENT,
    UNINITIALIZED,
    Noise,
    ReferenceComparison,
    ReferenceProcess,
    References,
    last_name,
    tensors_in,
)
from optrove.model.case import Case, renamed, rewrite
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
from optrove.serializer.build import build
from optrove.serializer.describe import Describer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

    from optrove.frameworks.executor import OnStage
    from optrove.model.records import DeviceParameters, Job
    from optrove.model.values import Value
    from optrove.serializer.tables import Tables

READS_GRAD_MODE: Final = frozenset({"mkldnn_rnn_layer"})
"""Operations below autograd that return one more tensor if gradients are enabled."""

_TIMED_SECONDS: Final = 0.05


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
        self._comparison = ReferenceComparison(torch)
        self.references: ReferenceProcess | None = None
        self._chain = Chain()
        self._prepare()

    def _prepare(self) -> None:
        devices = {self.target.device, *(new for _, new in self.target.mapped)} - {None}
        trying = ""
        if self.target.imports:
            self.references = ReferenceProcess(self.torch, self._reference)
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
        """End the process that computes references, if there is one."""
        if self.references is not None:
            self.references.close()

    def _reference(
        self, job: Job, copies: bytes, dtypes: Mapping[Any, Any], noise: Noise | None
    ) -> list[Any]:
        """Return the reference results of a Job, in the process that computes references.

        ``copies`` are the saved tensors that it gets from earlier steps, by identity.
        """
        with muted(), self.torch.no_grad():
            call = _Call(self, job)
            call.copies = self.torch.load(io.BytesIO(copies), weights_only=True)
            return call.reference(dtypes, noise)

    def execute(self, job: Job, on_stage: OnStage) -> Executed:
        """Rebuild a case and call it; NotReplayable if it cannot be rebuilt."""
        outputs = job.outputs and tuple(map(self.target.placed_value, job.outputs))
        placed = replace(job, case=self.target.placed(job.case), outputs=outputs)
        call = _Call(self, placed, *self._carried(job))
        placed = call.job
        dependent = call.depends_on_data
        if dependent and call.is_on_meta:
            raise NotReplayable("its outputs depend on numbers, and meta tensors have none")
        on_stage(Stage.MAKING)
        live = call.arguments()
        on_stage(Stage.CALLING)
        self._witness.expect(job.case.op)
        result: Any = None
        raised = None
        before = self.torch.get_rng_state()
        with self._probes[ATEN if job.case.op.startswith(OPERATIONS) else API]:
            started = time.perf_counter_ns()
            try:
                result = call.run(live)
            except Exception as error:  # noqa: BLE001 - the operation may raise anything; the caller judges it
                raised = Raised(type(error).__name__, str(error))
            duration = time.perf_counter_ns() - started
        seen = self._witness.take()
        if job.flow is not None:
            self._chain.end(job.flow, call.made, tensors_in(self.torch, [result]))
        draws = not self.torch.equal(before, self.torch.get_rng_state())
        if seen is None:
            return Executed(raised=raised, duration_ns=duration)
        executed = Executed(
            seen.case,
            tuple((f"arg{place}", name) for place, name in enumerate(seen.order)),
            seen.outputs,
            raised,
            duration_ns=duration,
            job=placed,
            data_dependent=dependent,
        )
        if raised is not None:
            return executed
        if self.target.compiler is not None:
            live = call.arguments()
            try:
                result = call.compiled()(live)
            except Exception as error:  # noqa: BLE001 - as above
                return replace(executed, raised=Raised(type(error).__name__, str(error)))
            described = describe_outputs(self._tables(), live, result)
            executed = replace(executed, outputs=described)
        on_stage(Stage.READING)
        actual = [*call.results(result, live)]
        compared = self._compared(call, actual, random=draws)
        return replace(executed, compared=compared)

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

    def _compared(self, call: _Call, actual: list[Any], *, random: bool) -> tuple[Compared, ...]:
        lacking = call.why_incomparable(random=random)
        if not actual:
            lacking = "it returns no numbers and changes no argument"
        if lacking is not None:
            return tuple(Compared(number, lacking=lacking) for number in range(len(actual) or 1))
        with muted(), self.torch.no_grad():
            independent = self.target.compiler is not None or not call.is_on_cpu
            references = References(
                self.torch,
                call.reference,
                independent=independent,
                range_dependent=last_name(call.job.case.op) in RANGE_DEPENDENT,
            )
            compared = self._comparison.compare(actual, references)
        vectors = NOT_UNIQUE.get(last_name(call.job.case.op), ())
        lacking = "its vectors are unique up to a factor only"
        return tuple(
            Compared(number, lacking=lacking) if number in vectors else each
            for number, each in enumerate(compared)
        )

    def warm(self, job: Job) -> Mapping[str, float]:
        """Return the time of a warm call, its floating-point operations and its bytes.

        The operation itself is timed, without tracing: by torch's own timer, which warms up,
        repeats, and waits for other devices.
        """
        from torch.utils.benchmark import Timer
        from torch.utils.flop_counter import FlopCounterMode

        placed = replace(job, case=self.target.placed(job.case))
        call = _Call(self, placed)
        live = call.arguments()
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
    ) -> tuple[dict[str, Any], dict[int, Any]]:
        """Return the arguments of a case by name, and all tensors by identity.

        ``dtypes`` take the place of recorded ones. Values are those of the Job's capsule, or made
        from its seed; ``known`` and ``owners`` are those of TorchInputs.
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


class _Call:
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
        self.copies: dict[int, Any] = {}
        self.made: dict[int, Any] = {}
        self._executor = executor
        self._torch = executor.torch
        self._function = executor.find(job.case.op)
        self._is_operation = isinstance(self._function, self._torch._ops.OpOverload)  # noqa: SLF001 - this class has no public name
        if self._is_operation:
            job = replace(job, case=self._named(job.case))
        self.job = self._job = job
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
        reads = any(isinstance(each, (Bool, Int, Float)) for each in self._job.outputs or ())
        if reads or self._has_sparse():
            return True
        if last_name(self._job.case.op) in INDEXING and not self._has_mask():
            return False
        tagged = self._is_operation and bool(dependent & set(self._function.tags))
        return tagged or last_name(self._job.case.op) in DATA_DEPENDENT

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
        for _, value in self._job.case.arguments:
            for _, part in walk(value):
                if isinstance(part, TensorSpec):
                    yield part

    def why_incomparable(self, *, random: bool) -> str | None:
        """Return why the numbers of the call cannot be compared; None if they can."""
        if random or self._is_random():
            return "its results are random"
        if last_name(self._job.case.op) in UNINITIALIZED:
            return "its results are not initialized"
        if self.is_on_meta:
            return "tensors on the meta device have no numbers"
        storages = [
            spec.storage for spec in {each.identity: each for each in self._specs()}.values()
        ]
        if (self._known or self._owners) and len({*storages}) != len(storages):
            return "its tensors share memory, which their copies for a comparison do not"
        return None

    def _is_random(self) -> bool:
        """Return whether the operation draws random numbers with these arguments."""
        if not self._is_operation:
            return False
        if self._torch.Tag.nondeterministic_seeded not in self._function.tags:
            return False
        schema = self._function._schema.arguments  # noqa: SLF001 - torch has no public way to ask
        given = {each.name: each.default_value for each in schema}
        given |= {
            name: value.value
            for name, value in self._job.case.arguments
            if isinstance(value, (Bool, Int, Float))
        }
        return not any(name in given and given[name] == off for name, off in NOT_RANDOM_IF.items())

    def arguments(self) -> dict[str, Any]:
        """Return new arguments, with the numbers of the Job's seed, or of earlier steps."""
        live, self.made = self._executor.rebuild(
            self._job, self._job.case, {}, self._known, self._owners
        )
        if self._known or self._owners:
            # For the reference, before the call writes to them.
            with muted(), self._torch.no_grad():
                self.copies = {
                    each: tensor.detach().clone()
                    for each, tensor in self.made.items()
                    if isinstance(tensor, self._torch.Tensor)
                }
        return live

    def run(self, live: dict[str, Any]) -> Any:
        """Call the operation in the context that it was recorded in."""
        arguments, keywords = self._executor.spread(self._job.case.op, self._function, live)
        with self._context():
            return self._function(*arguments, **keywords)

    def compiled(self) -> Callable[[dict[str, Any]], Any]:
        """Return ``run``, compiled."""
        torch, op, function = self._torch, self._job.case.op, self._function
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

    def reference(self, dtypes: Mapping[Any, Any], noise: Noise | None) -> list[Any]:
        """Return the tensors of ``results`` of the same call on the CPU, with other dtypes.

        The inputs differ from those of the call by the ``noise``.
        """
        if self._executor.references is not None:
            copies = io.BytesIO()
            self._torch.save({each: live.cpu() for each, live in self.copies.items()}, copies)
            with suppress(ReferenceError):  # it does not know operations of imported modules
                return self._executor.references.results(
                    self._job, copies.getvalue(), dtypes, noise
                )
        case = TorchTarget(device="cpu").placed(self._job.case)
        case = Case(case.op, tuple((name, rewrite(each, _plain)) for name, each in case.arguments))
        known = {
            each: live.cpu().to(dtypes.get(live.dtype, live.dtype), copy=True)
            for each, live in self.copies.items()
        }
        live, made = self._executor.rebuild(self._job, case, dtypes, known)
        if noise is not None:
            self._disturb(made.values(), noise)
        result = self.run(live)
        return [each.detach().resolve_conj().resolve_neg() for each in self.results(result, live)]

    def _disturb(self, tensors: Iterable[Any], noise: Noise) -> None:
        """Change each number of tensors by about a part of itself."""
        torch, seen = self._torch, set()
        generator = torch.Generator().manual_seed(noise.seed)
        for each in tensors:
            exact = not isinstance(each, torch.Tensor) or each.layout is not torch.strided
            if exact or not (each.is_floating_point() or each.is_complex()):
                continue
            storage = each.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                row = torch.empty(0, dtype=each.dtype).set_(storage)
                row.mul_(1 + noise.size * torch.empty_like(row).normal_(generator=generator))

    def _changed(self, live: dict[str, Any]) -> list[Any]:
        if not self._is_operation:
            return []
        schema = self._function._schema.arguments  # noqa: SLF001 - torch has no public way to ask
        written = [each.name for each in schema if each.alias_info and each.alias_info.is_write]
        return [live[name] for name in written if name in live]

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
        recorded = [part for each in self._job.outputs or () for _, part in walk(each)]
        missing = any(isinstance(part, Null) for part in recorded)
        return last_name(self._job.case.op) in READS_GRAD_MODE and not missing

    def _is_composite(self) -> bool:
        name = self._function.name()
        has_kernel: Callable[[str, str], bool] = (
            self._torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001 - has no public name
        )
        return has_kernel(name, "CompositeImplicitAutograd")

    def _default_dtype(self) -> Any:
        """Return the default dtype if the recorded result shows that it was another one."""
        arguments = dict(self._job.case.arguments)
        tensors = any(
            isinstance(part, TensorSpec) for _, each in arguments.items() for _, part in walk(each)
        )
        first = next(iter(self._job.outputs or ()), None)
        if tensors or "dtype" in arguments or not isinstance(first, TensorSpec):
            return None
        dtype = getattr(self._torch, first.dtype.removeprefix("torch."), None)
        default = self._torch.get_default_dtype()
        others = (self._torch.float64, self._torch.float16, self._torch.bfloat16)
        return dtype if dtype is not default and dtype in others else None


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
