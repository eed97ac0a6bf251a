"""Model configurations as JSON files: read, show, compare and check them.

    {"format": "optrove-config", "version": 1, "config": ...}
    {"format": "optrove-config", "version": 1, "configs": {"prefill": ..., "decode": ...}}

The plain JSON of ``to_jsonable(config)`` is read as well; one whose only keys are prefill and
decode is taken as that pair.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadConfig, BadData, BadTarget, Fault, NotComparable
from optrove.frameworks.installed import loaded_tables
from optrove.runconfig.checking import (
    Checker,
    Signatures,
    dynamic_faults,
    gathered_faults,
)
from optrove.runconfig.create import weight_problems
from optrove.runconfig.jsonable import inert_from, live_from
from optrove.runconfig.ops import compact, table_with
from optrove.runconfig.ranges import ends, expand
from optrove.runconfig.weights import SavedWeight, file_problem, load_weight_config, write_whole
from optrove.serializer.describe import describe
from optrove.serializer.text import read
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from optrove.frameworks.ttnn.execute.invoking import OpParameters
    from optrove.model.values import Value
    from optrove.serializer.text import Json


FORMAT: Final = "optrove-config"
VERSION: Final = 1
MODES: Final = frozenset({"prefill", "decode"})


def save_config(config: Any, file: Path | str) -> None:
    """Write a model configuration, whole or not at all; OSError if it cannot be written.

    BadConfig names the parts that depend on the run, such as functions and tensors.
    """
    _save({"config": _data(config)}, Path(file))


def save_configs(configs: Mapping[str, Any], file: Path | str) -> None:
    """Write the model configurations of several modes, such as prefill and decode, likewise."""
    _save({"configs": {name: _data(each, name) for name, each in configs.items()}}, Path(file))


def load_config(file: Path | str, mesh_device: Any = None, *, types: Iterable[type] = ()) -> Any:
    """Return the model configuration of a file, with live objects of the installed ttnn.

    ``types`` are your own dataclasses. For a file with several modes, return a dictionary by mode.
    BadData names every fault; BadTarget if the file cannot be read.
    """
    found = _read(Path(file))
    own = table_with(types)
    live = {name: live_from(each, mesh_device, own) for name, each in found.items()}
    return live.get("", live)


def read_inert(file: Path) -> dict[str, Any]:
    """Return the configurations of a file by mode, a single one as ``""``; imports nothing.

    Objects of ttnn stay Structs and Symbols in it. BadData names every fault.
    """
    found = _read(file)
    try:
        return {mode: inert_from(each, table_with()) for mode, each in found.items()}
    except BadData as error:
        raise BadData(
            tuple(Fault(f"{file.name}: {fault.path}", fault.problem) for fault in error.faults)
        ) from error


def _data(config: Any, path: str = "") -> Json:
    faults = gathered_faults(dynamic_faults(config, path))
    if faults:
        raise BadConfig(tuple(faults))
    return encode(compact(describe(config, loaded_tables())))


def _save(content: dict[str, Json], file: Path) -> None:
    data = {"format": FORMAT, "version": VERSION, **content}
    write_whole(file, (json.dumps(data, indent=1) + "\n").encode())


def _read(file: Path) -> dict[str, Json]:
    try:
        data = read(file.read_bytes())
    except OSError as error:
        raise BadTarget(f"{file} cannot be read: {error}") from error
    except BadData as error:
        raise BadTarget(str(error.within(str(file)))) from error
    if type(data) is not dict:
        raise BadTarget(f"{file} holds no configuration: expected a JSON object")
    if data.get("format") != FORMAT:
        return data if data and data.keys() <= MODES else {"": data}
    if data.get("version") != VERSION:
        raise BadTarget(
            f"{file} has version {data.get('version')!r}, this optrove reads {VERSION}; "
            f"read it with the optrove that wrote it"
        )
    if type(data.get("configs")) is dict:
        configs: dict[str, Json] = data["configs"]
        return configs
    if "config" not in data:
        raise BadTarget(f'{file} has neither "config" nor "configs"; was it cut off?')
    return {"": data["config"]}


@dataclass(frozen=True, slots=True)
class Inspected:
    """The configuration of one mode in a file: recorded values by their paths."""

    file: Path
    mode: str
    entries: dict[str, Value]

    @property
    def name(self) -> str:
        """The file and the mode, for messages."""
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
    """Return the faults of the configurations of a file; BadData if it cannot be read.

    Without ``parameters`` arguments are not compared with signatures; without ``weights``, the
    folder of the weight files, weights are not checked.
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
        problem_of_file = seen[entry.path]
        problems = [] if problem_of_file is None else [problem_of_file]
        problems += weight_problems(entry.facts, expected, entry.mesh_shape)
        faults += [Fault(path, problem) for problem in problems]
    return faults


@dataclass(frozen=True, slots=True)
class Checked:
    """The faults of one file; ``signatures`` is True if ttnn was there to compare with."""

    file: Path
    faults: tuple[Fault, ...]
    signatures: bool


def check_files(files: Sequence[Path], weights: Path | None) -> list[Checked]:
    """Check files of configurations; BadData or BadTarget for one that cannot be read."""
    from optrove.frameworks.ttnn.execute.invoking import installed_parameters

    parameters = installed_parameters()
    return [
        Checked(file, tuple(config_faults(file, parameters, weights)), parameters is not None)
        for file in files
    ]


def compared(
    files: Sequence[Path], layers: tuple[str, str] | None, paths: tuple[str, str] | None
) -> list[tuple[Inspected, Inspected]]:
    """Return the pairs to compare: two files, the two modes of one, or two parts of each.

    NotComparable if there are not two of them.
    """
    found = [inspected for file in files for inspected in inspect(file)]
    if paths is not None:
        return [(_part(each, paths[0]), _part(each, paths[1])) for each in found]
    if layers is not None:
        return [
            (_part(each, place + layers[0]), _part(each, place + layers[1]))
            for each in found
            for place in [_layers(each, layers)]
        ]
    if len(files) == 1:
        return [_two(found, f"{files[0]} holds one configuration")]
    modes = {each.mode for each in found}
    return [_two([each for each in found if each.mode == mode], mode) for mode in sorted(modes)]


def _two(found: list[Inspected], subject: str) -> tuple[Inspected, Inspected]:
    if len(found) != 2:  # noqa: PLR2004 - a comparison is of two
        raise NotComparable(
            f"{subject or 'found'}: {len(found)} to compare; give two files, one with prefill and "
            f"decode, or --layers A B or --paths A B for two parts of one"
        )
    return found[0], found[1]


def _part(inspected: Inspected, path: str) -> Inspected:
    prefix = f"{path}."
    entries = {
        "." if place == path else place.removeprefix(prefix): value
        for place, value in inspected.entries.items()
        if place == path or place.startswith(prefix)
    }
    if not entries:
        raise NotComparable(
            f"{inspected.name} has nothing at {path!r}; see its paths with "
            f"optrove config show {inspected.file}"
        )
    return replace(inspected, mode=f"{inspected.mode} {path}".strip(), entries=entries)


def _layers(inspected: Inspected, layers: tuple[str, str]) -> str:
    """Return the path before the numbers of layers, which are the outermost numbers."""
    for path in inspected.entries:
        steps = path.split(".")
        for place, step in enumerate(steps):
            if step.isdecimal():
                return "".join(f"{each}." for each in steps[:place])
    raise NotComparable(
        f"{inspected.name} has no numbered layers such as {layers[0]} and {layers[1]}; "
        f"name the parts with --paths A B"
    )
