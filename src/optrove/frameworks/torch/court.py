"""Judge what a call of torch has returned, where no kernel under test can reach.

A ``Court`` makes the inputs of calls, computes their references and compares. Modules of
``--import`` may replace any kernel, also those that compare; so if there are such modules, the
court is a copy of the process that was forked before their import (``RemoteCourt``). Tensors go
there and back as bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, Final, Protocol

from optrove import metrics
from optrove.frameworks.executor import Compared, Judged
from optrove.frameworks.probe_protocol import muted
from optrove.frameworks.torch.raw_tensors import packed, unpacked
from optrove.frameworks.torch.reference import (
    NOT_UNIQUE,
    RANGE_DEPENDENT,
    TIES,
    References,
    last_name,
)
from optrove.portable.judging import SHARE, float_faults, misfits, paired, share_of, shown_misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection

    from optrove.frameworks.torch.edges import Edge
    from optrove.frameworks.torch.execute import TorchCall
    from optrove.model.records import Job

PCC: Final = 0.99
"""The least PCC that is shown of numbers that pass; below it they are rounding noise."""

_QUANTIZED: Final = 1e-4
"""How far off the numbers of quantized tensors may be, relative to each and to all of them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a result lies in memory: its strides, and the number of the input whose memory it has."""

    strides: tuple[int, ...]
    shares: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call has returned: its tensors, and how they lie in memory, None if that is free.

    ``carried`` are the tensors that it got from earlier steps of a sequence, as they were before.
    """

    tensors: tuple[Any, ...]
    shapes: tuple[Shape, ...] | None = None
    carried: tuple[tuple[int, Any], ...] = ()


class Judging(Protocol):
    """Makes inputs and judges answers."""

    def inputs(self, job: Job, edge: Edge | None) -> dict[int, Any]:
        """Return the tensors of a call by identity."""

    def verdict(self, job: Job, edge: Edge | None, answer: Answer) -> tuple[Compared, ...]:
        """Return each tensor of an answer with what is to be said of it."""

    def error(self, job: Job, edge: Edge | None) -> str | None:
        """Return the type of the error that torch's own kernel raises on these inputs."""

    def changes(self, job: Job, edge: Edge | None) -> tuple[str, ...]:
        """Return the arguments that torch's own kernel changes, though its schema does not say."""

    def close(self) -> None:
        """Release what the court holds."""


class Court:
    """Judges in this process."""

    def __init__(self, torch: Any, new_call: Callable[[Job], TorchCall]) -> None:
        self._torch = torch
        self._new_call = new_call

    def inputs(self, job: Job, edge: Edge | None) -> dict[int, Any]:
        """Return the tensors of a call by identity, made from its seed."""
        with muted():
            call = self._new_call(job)
            call.arguments(edge)
            return call.made

    def verdict(self, job: Job, edge: Edge | None, answer: Answer) -> tuple[Compared, ...]:
        """Return each tensor of an answer with what is to be said of it."""
        with muted(), self._torch.no_grad():
            call = self._new_call(job)
            call.copies = dict(answer.carried)
            references = References(
                self._torch,
                lambda dtypes, noise: call.reference(dtypes, noise, edge),
                finest=call.finest(),
                terms=call.terms(),
                range_dependent=last_name(job.case.op) in RANGE_DEPENDENT,
            )
            judge = _Judge(self._torch, call, references, edge)
            shapes = judge.shapes() if answer.shapes is not None else None
            return tuple(
                judge.compared(number, tensor, answer.shapes, shapes)
                for number, tensor in enumerate(answer.tensors)
            )

    def error(self, job: Job, edge: Edge | None) -> str | None:
        """Return the type of the error that torch's own kernel raises; None if it returns."""
        with muted(), self._torch.no_grad():
            try:
                self._new_call(job).reference({}, None, edge)
            except Exception as error:  # noqa: BLE001 - the operation may raise anything
                return type(error).__name__
            return None

    def changes(self, job: Job, edge: Edge | None) -> tuple[str, ...]:
        """Return the arguments that torch's own kernel changes, though its schema does not say."""
        with muted(), self._torch.no_grad():
            call = self._new_call(job)
            call.run(call.arguments(edge))
            return call.changed_otherwise()

    def close(self) -> None:
        """Release nothing: the court is this process."""


class _Judge:
    """Judges the tensors of one answer."""

    def __init__(
        self, torch: Any, call: TorchCall, references: References, edge: Edge | None
    ) -> None:
        self._torch = torch
        self._call = call
        self._references = references
        self._edge = edge

    def shapes(self) -> tuple[Shape, ...] | None:
        """Return how the results of torch's own kernel lie in memory; None if it raises."""
        try:
            return self._call.reference_shapes(self._edge)
        except Exception:  # noqa: BLE001 - as in Court.error; then there is nothing to compare with
            return None

    def compared(
        self,
        number: int,
        tensor: Any,
        found: tuple[Shape, ...] | None,
        expected: tuple[Shape, ...] | None,
    ) -> Compared:
        """Return what is to be said of one tensor."""
        if number in NOT_UNIQUE.get(last_name(self._call.job.case.op), ()):
            return Compared(number, lacking="its vectors are unique up to a factor only")
        compared = self._numbers(number, tensor)
        if found and expected and len(found) == len(expected) and compared.judged is not None:
            faults = (*_misplaced(found[number], expected[number], tensor), *compared.judged.faults)
            return replace(compared, judged=replace(compared.judged, faults=faults))
        return compared

    def _numbers(self, number: int, tensor: Any) -> Compared:
        if tensor.device.type == "meta":
            return Compared(number, lacking="tensors on the meta device have no numbers")
        expected = _of(self._references.wide(), number)
        if isinstance(expected, str):
            return Compared(number, lacking=f"there is no reference on the CPU: {expected}")
        actual, expected = self._plain(tensor), self._plain(expected)
        if expected.shape != actual.shape:
            # It depends on the dtype, as that of ``view(dtype)`` does, or on values.
            expected = _of(self._references.same(), number)
            expected = expected if isinstance(expected, str) else self._plain(expected)
        if isinstance(expected, str) or expected.shape != actual.shape:
            if self._edge is None or isinstance(expected, str):
                return Compared(number, lacking="the reference has another shape")
            fault = f"its shape is {tuple(actual.shape)}, expected {tuple(expected.shape)}"
            return Compared(number, judged=Judged(faults=(fault,)))
        if tensor.is_quantized:
            bound = _coarse(expected)
            wrong = misfits(actual, expected, bound)
            faults = (shown_misfit(actual, expected, bound, wrong),) if wrong.any() else ()
            return self._measured(number, actual, expected, Judged(faults=faults))
        if actual.dtype.is_floating_point or actual.dtype.is_complex:
            return self._measured(number, actual, expected, self._floats(number, actual, expected))
        return self._measured(number, actual, expected, self._exact(number, actual, expected))

    def _plain(self, tensor: Any) -> Any:
        """Return the numbers of a tensor as a dense one on the CPU."""
        live = tensor.detach()
        if live.is_nested:
            parts = [self._plain(each).flatten() for each in live.unbind()]
            return self._torch.cat(parts) if parts else self._torch.empty(0)
        if live.is_quantized:
            live = live.dequantize()
        if live.layout is not self._torch.strided:
            live = live.to_dense()
        return live.cpu().resolve_conj().resolve_neg()

    def _floats(self, number: int, actual: Any, expected: Any) -> Judged:
        results = _Results(self._references, number, expected, self._plain)
        at_edge = self._edge is not None and self._call.is_pointwise
        faults, is_wider = float_faults(actual, expected, results, is_steady=at_edge)
        return Judged(faults=faults, notes=(_NOT_EXACT,) if is_wider else ())

    def _exact(self, number: int, actual: Any, expected: Any) -> Judged:
        torch = self._torch
        wide = expected.to(actual.dtype)
        same = _of(self._references.same(), number)
        same = wide if isinstance(same, str) else self._plain(same)
        alike = torch.equal(wide, actual) or torch.equal(same, actual)
        if alike or self._is_another_tie(number, actual):
            return Judged()
        right = wide if same.shape != actual.shape else same
        wrong = right != actual
        place = tuple(int(n) for n in wrong.nonzero()[0])
        one, other = actual[place].item(), right[place].item()
        count = f"{int(wrong.sum()):,} of {wrong.numel():,} elements wrong"
        return Judged(faults=(f"element {place} is {one}, expected {other}; {count}",))

    def _is_another_tie(self, number: int, actual: Any) -> bool:
        """Return whether indices name other elements, but equal ones, where any may be named."""
        if number != 1 or last_name(self._call.job.case.op) not in TIES:
            return False
        return self._call.names_equal(actual, self._references.same(), self._edge)

    def _measured(self, number: int, actual: Any, expected: Any, judged: Judged) -> Compared:
        """Return what was found, with metrics; no PCC that contradicts it."""
        if expected.dtype.is_complex and not actual.dtype.is_complex:
            expected = expected.real
        rounded = expected.to(actual.dtype)
        if rounded.is_floating_point() or rounded.is_complex():
            # A number beyond the range of the dtype is infinite there, and no fault.
            within = rounded.isfinite()
            expected = self._torch.where(within, expected, rounded.to(expected.dtype))
        values: tuple[tuple[str, float], ...] = (
            ("pcc", metrics.pcc(expected, actual)),
            ("max_abs_error", metrics.max_abs_error(expected, actual)),
            ("ulp", metrics.ulp(rounded, actual)),
        )
        if not judged.faults and not values[0][1] >= PCC:
            values = values[1:]
            judged = replace(judged, notes=(*judged.notes, _NO_PCC))
        return Compared(number, judged=replace(judged, measured=values))


class _Results:
    """What the operation returns in other ways, as plain tensors of the shape of ``expected``."""

    def __init__(
        self, references: References, number: int, expected: Any, plain: Callable[[Any], Any]
    ) -> None:
        self._references, self._number, self._plain = references, number, plain
        self._shape = expected.shape
        self.share = share_of(references.terms, references.finest) if references.finest else SHARE

    def moves(self) -> Iterator[Any]:
        """Yield exact results for inputs that are nudged."""
        return self._moves(wide=True)

    def own_moves(self) -> Iterator[Any]:
        """Yield results of torch's own kernel for inputs that are nudged."""
        return self._moves(wide=False)

    def own(self) -> Any:
        """Return the result of torch's own kernel; None if it has none."""
        own = _of(self._references.same(), self._number)
        return None if isinstance(own, str) else self._plain(own)

    def _moves(self, *, wide: bool) -> Iterator[Any]:
        moves = map(self._plain, self._references.moves(self._number, wide=wide))
        return (moved for moved in moves if moved.shape == self._shape)


_NOT_EXACT: Final = (
    "torch's own kernel on the CPU differs from the reference by more than rounding explains, so "
    "the bound is wider"
)
_NO_PCC: Final = "no PCC: each number is right within rounding, and they differ by that alone"


def _coarse(expected: Any) -> Any:
    """Return how far the numbers of a quantized tensor may be off."""
    wide = paired(expected).double()
    finite = wide[wide.isfinite()]
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return _QUANTIZED * (wide.abs().nan_to_num() + size)


def _misplaced(found: Shape, expected: Shape, tensor: Any) -> Iterator[str]:
    """Yield how a result lies otherwise in memory than that of torch's own kernel."""
    sizes = tuple(tensor.shape)
    kept = [n for n, size in enumerate(sizes) if size > 1]
    differing = any(found.strides[n] != expected.strides[n] for n in kept) and 0 not in sizes
    if differing:
        yield f"its strides are {found.strides}; torch's own kernel gives {expected.strides}"
    if found.shares != expected.shares and 0 not in sizes:
        words = {True: "has memory of its own", False: "shares the memory of an input"}
        one, other = words[found.shares is None], words[expected.shares is None]
        yield f"it {one}; the result of torch's own kernel {other}" + (
            "" if one != other else ", of another one"
        )


def _of(results: list[Any] | str, number: int) -> Any:
    if isinstance(results, str):
        return results
    return results[number] if number < len(results) else "it has fewer results"


class RemoteCourt:
    """A court in a copy of this process that was made before the imports."""

    def __init__(self, torch: Any, court: Court) -> None:
        self._torch = torch
        ours, theirs = Pipe()
        self._process = os.fork()
        if self._process == 0:
            ours.close()
            try:
                _serve(torch, theirs, court)
            finally:
                os._exit(0)
        theirs.close()
        self._connection = ours

    def inputs(self, job: Job, edge: Edge | None) -> dict[int, Any]:
        """Return the tensors of a call by identity, made there."""
        identities, places, raw = self._ask("inputs", job, edge)
        tensors = unpacked(self._torch, raw)
        return {each: tensors[place] for each, place in zip(identities, places, strict=True)}

    def verdict(self, job: Job, edge: Edge | None, answer: Answer) -> tuple[Compared, ...]:
        """Return what the court says of an answer."""
        raw = packed(self._torch, [*answer.tensors, *(live for _, live in answer.carried)])
        identities = [identity for identity, _ in answer.carried]
        found: tuple[Compared, ...] = self._ask(
            "verdict", job, edge, raw, len(answer.tensors), answer.shapes, identities
        )
        return found

    def error(self, job: Job, edge: Edge | None) -> str | None:
        """Return the type of the error that the kernel of torch raises there."""
        found: str | None = self._ask("error", job, edge)
        return found

    def changes(self, job: Job, edge: Edge | None) -> tuple[str, ...]:
        """Return the arguments that the kernel of torch changes there."""
        found: tuple[str, ...] = self._ask("changes", job, edge)
        return found

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        os.waitpid(self._process, 0)

    def _ask(self, *question: Any) -> Any:
        self._connection.send(question)
        fault, answer = self._connection.recv()
        if fault is not None:
            raise ReferenceError(fault)
        return answer


def _serve(torch: Any, connection: Connection, court: Court) -> None:
    answers: dict[str, Callable[..., Any]] = {
        "inputs": lambda *given: _raw_inputs(torch, court.inputs(*given)),
        "verdict": lambda *given: court.verdict(*_raw_answer(torch, *given)),
        "error": court.error,
        "changes": court.changes,
    }
    while True:
        try:
            kind, *given = connection.recv()
        except EOFError:
            return
        try:
            connection.send((None, answers[kind](*given)))
        except Exception as error:  # noqa: BLE001 - the text goes to the other process
            connection.send((f"{type(error).__name__}: {error}", None))


def _raw_inputs(torch: Any, made: Mapping[int, Any]) -> Any:
    """Return identities, the place of the tensor of each, and the tensors; one may have several."""
    distinct = list({id(live): live for live in made.values()}.values())
    places = {id(live): place for place, live in enumerate(distinct)}
    return list(made), [places[id(live)] for live in made.values()], packed(torch, distinct)


def _raw_answer(  # noqa: PLR0913, PLR0917 - the parts of a message
    torch: Any, job: Job, edge: Edge | None, raw: Any, count: int, shapes: Any, identities: Any
) -> tuple[Job, Edge | None, Answer]:
    tensors = unpacked(torch, raw)
    carried = tuple(zip(identities, tensors[count:], strict=True))
    return job, edge, Answer(tuple(tensors[:count]), shapes, carried)
