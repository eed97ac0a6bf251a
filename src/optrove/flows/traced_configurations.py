"""Find the traced configurations of an op: in a trove, or in a master file of either generation."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optrove.backends.build import build
from optrove.backends.frameworks import attempt, is_importable, joined_tables
from optrove.codec.described import case_of
from optrove.errors import (
    BadTarget,
    FrameworkMissing,
    NotATrove,
    NotFound,
    NoTrove,
    UnusableTrove,
)
from optrove.flows.naming import near
from optrove.flows.query import Asked, select
from optrove.flows.stores import located, reading
from optrove.model.opnames import meant_ops
from optrove.model.values import Symbol
from optrove.plan.traced import Distinct, distinct
from optrove.run.module_loading import executing
from optrove.settings import read_settings
from optrove.store.place import is_sqlite_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.case import Case
    from optrove.model.values import Value
    from optrove.plan.traced import Traced, TracedTensor

log = logging.getLogger(__name__)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FRAMEWORK = "ttnn."


def configurations_of(source: str | Path | None, op: str, arity: int | None = None) -> Distinct:
    """Return the distinct configurations of an op, and log how many were traced.

    The source is a trove or a file; without one TTNN_MASTER_JSON_PATH says it, or it is the usual
    trove. None are found of an op that was never traced, which is logged as a warning.
    """
    given = str(source) if source is not None else read_settings().master
    try:
        name, cases = _cases_in(given, op)
    except (NoTrove, NotATrove, UnusableTrove, BadTarget) as error:
        if not executing.get():
            raise
        # Names say all of a configuration: whoever executes them needs no trove.
        log.warning("%s: %s", op, error)
        name, cases = op, []
    found = distinct(name, cases, arity)
    if found.traced:
        level = logging.INFO if found.kept and not found.other_arity else logging.WARNING
        log.log(level, "%s", found)
    return found


def _cases_in(source: str | None, op: str) -> tuple[str, list[Case]]:
    path = None if source is None or "://" in source else Path(source).expanduser()
    if path is not None and path.exists() and not is_sqlite_file(path):
        return _cases_in_file(path, op)
    return _cases_in_trove(source, op)


def _cases_in_file(path: Path, op: str) -> tuple[str, list[Case]]:
    # Reading files is the business of modules that a trove does without.
    from optrove.interop.detect import read_file

    imported, _ = read_file(path)
    counts: dict[Case, int] = {}
    for each in (case for one in imported for case in one.cases):
        counts[each.case] = counts.get(each.case, 0) + each.count
    meant = _meant(op, {case.op for case in counts}, str(path))
    if meant is None:
        return op, []
    found = [case for case in counts if case.op == meant]
    return meant, sorted(found, key=lambda case: -counts[case])


def _cases_in_trove(store: str | None, op: str) -> tuple[str, list[Case]]:
    with reading(store) as reader:
        meant = _meant(op, reader.op_names(), str(located(store)))
        if meant is None:
            return op, []
        asked = Asked(name=meant)
        try:
            (answer,) = select(reader, asked)
        except NotFound:  # it is only ever called by other ops
            (answer,) = select(reader, replace(asked, nested=True))
        return meant, [case_of(row.content) for row in reader.cases(answer.query)]


def _meant(op: str, known: Iterable[str], where: str) -> str | None:
    """Return the op of ttnn that a name means; None, after a warning, if it means none."""
    ours = sorted(name for name in known if name.startswith(FRAMEWORK))
    found = meant_ops(op, ours)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(found[:5])
        raise NotFound(f"{op!r} means {len(found)} ops of {where}: {listed}; give one in full")
    nearest = near(op, ours)
    about = f"; the nearest: {nearest}" if nearest else ""
    log.warning("no configurations of %r were traced in %s%s", op, where, about)
    return None


def live(value: Value) -> Any:
    """Return the live object of ttnn that a value describes; FrameworkMissing without ttnn."""
    table = attempt("ttnn") if is_importable("ttnn") else ModuleNotFoundError("not installed")
    if isinstance(table, Exception):
        raise FrameworkMissing(
            f"traced configurations are objects of ttnn, which cannot be imported: {table}; "
            f"install optrove[ttnn] with Python 3.10 or 3.12"
        )
    return build(value, joined_tables(("ttnn",)))


def live_tensor(tensor: TracedTensor) -> tuple[list[int], Any, Any, Any]:
    """Return shape, dtype, layout and memory configuration of an input, as objects of ttnn."""
    memory = None if tensor.memory is None else live(tensor.memory)
    return list(tensor.shape), _dtype(tensor), _layout(tensor), memory


def _dtype(tensor: TracedTensor) -> Any:
    return live(Symbol("ttnn.DataType", tensor.dtype.rpartition(".")[2].upper()))


def _layout(tensor: TracedTensor) -> Any:
    return live(Symbol("ttnn.Layout", tensor.layout))


def shapes(traced: Traced) -> list[int] | dict[str, list[int]]:
    """Return the one shape of all inputs; where they differ, those of the first two by name."""
    told = [list(tensor.shape) for tensor in traced.tensors]
    if all(shape == told[0] for shape in told):
        return told[0]
    if len(told) == len(("self", "other")):
        return {"self": told[0], "other": told[1]}
    return {f"input_{letter}": shape for letter, shape in zip(LETTERS, told, strict=False)}


def every_value(found: Distinct) -> dict[str, list[Any]]:
    """Return the different values of each parameter, for every combination of them."""
    kept = found.kept
    columns: dict[str, list[Any]] = {"input_shape": _different(map(shapes, kept))}
    inputs = list(zip(*(traced.tensors for traced in kept), strict=True))
    for aspect, make in (("dtype", _dtype), ("layout", _layout), ("memory_config", _memory)):
        for letter, tensors in zip(LETTERS, inputs, strict=False):
            columns[f"input_{letter}_{aspect}"] = [make(one) for one in _by(aspect, tensors)]
    if found.arity == 1:
        outputs = _different(traced.output for traced in kept)
        columns["output_memory_config"] = [
            None if output is None else live(output) for output in outputs
        ]
    return columns


def _memory(tensor: TracedTensor) -> Any:
    return None if tensor.memory is None else live(tensor.memory)


def _by(aspect: str, tensors: Iterable[TracedTensor]) -> list[TracedTensor]:
    """Return tensors that differ in one aspect, the first of each."""
    name = aspect.removesuffix("_config")
    found: dict[Any, TracedTensor] = {}
    for tensor in tensors:
        found.setdefault(getattr(tensor, name), tensor)
    return list(found.values())


def _different(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
