"""Look at model configurations without a device: their entries, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optrove.backends.describe import describe
from optrove.backends.frameworks import loaded_tables
from optrove.errors import BadConfig, Fault
from optrove.runconfig.checking import Checker, Signatures
from optrove.runconfig.expecting import weight_problems
from optrove.runconfig.files import read_inert
from optrove.runconfig.gathering import gathered_faults
from optrove.runconfig.known import compact
from optrove.runconfig.ranges import ends, expand
from optrove.runconfig.weight_lists import load_weight_config
from optrove.runconfig.weights import SavedWeight, file_problem

if TYPE_CHECKING:
    from optrove.backends.ttnn.op_parameters import OpParameters
    from optrove.model.values import Value


@dataclass(frozen=True, slots=True)
class Inspected:
    """The configuration of one mode in a file, as recorded values by their paths."""

    file: Path
    mode: str
    entries: dict[str, Value]

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.file} {self.mode}".strip()


def inspect(file: Path) -> list[Inspected]:
    """Return the configurations of a file, expanded; BadConfig if their ranges are wrong."""
    found = []
    for mode, config in read_inert(file).items():
        expanded = expand(config)
        if expanded.faults:
            raise BadConfig(tuple(gathered_faults(expanded.faults)))
        found.append(Inspected(file, mode, dict(_described(expanded.tree))))
    return found


def config_faults(
    file: Path, parameters: OpParameters | None, weights: Path | None = None
) -> list[Fault]:
    """Return all that is wrong with the configurations of a file; BadData if it cannot be read.

    Without ``parameters`` arguments are not held against signatures; without ``weights``, the
    folder of the files, nothing is said about weights.
    """
    given = {} if weights is None else load_weight_config(weights)
    listed = expand(given)
    faults = list(listed.faults)
    for mode, config in read_inert(file).items():
        expanded = expand(config, mode)
        faults += expanded.faults
        if not faults:
            checker = Checker(None, Signatures(parameters), needs_weights=weights is not None)
            checker.check(expanded.tree, listed.tree or None, mode)
            faults += checker.faults
            faults += _weight_faults(checker)
    return gathered_faults(faults)


def _described(tree: Any) -> list[tuple[str, Value]]:
    tables = loaded_tables()
    # Layers of one range share their entries, each of which is described once.
    known: dict[int, Value] = {}
    found = []
    for path, entry in ends(tree):
        if id(entry) not in known:
            known[id(entry)] = compact(describe(entry, tables))
        found.append((path, known[id(entry)]))
    return found


def _weight_faults(checker: Checker) -> list[Fault]:
    problem = "a weight is given for it, but the model configuration has no such entry"
    faults = [Fault(path, problem) for path in checker.unused]
    seen: dict[str, str | None] = {}
    for path, (entry, expected) in checker.asked.items():
        if not isinstance(entry, SavedWeight):
            continue
        if entry.path not in seen:
            seen[entry.path] = file_problem(entry, Path(entry.path), verify=True)
        told = seen[entry.path]
        problems = [] if told is None else [told]
        problems += weight_problems(entry.facts, expected, entry.mesh_shape)
        faults += [Fault(path, problem) for problem in problems]
    return faults
