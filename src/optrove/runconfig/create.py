"""Run configurations: the base class of modules, and the join of configurations and weights."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadConfig, Fault
from optrove.frameworks.installed import loaded_tables
from optrove.frameworks.ttnn.weights import SUFFIX
from optrove.model.values import Symbol
from optrove.runconfig.checking import Checker, gathered_faults, loaded_signatures, shape_text
from optrove.runconfig.opconfig import MeshDeviceStub, OpConfig, bound, mesh_shape_of
from optrove.runconfig.ranges import children, expand, is_inner, step
from optrove.runconfig.weights import SavedWeight, WeightCache, file_problem, spread
from optrove.serializer.describe import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.runconfig.opconfig import FromWeight
    from optrove.runconfig.ranges import Tree
    from optrove.runconfig.weights import LoadedWeight, WeightFacts


def saved_problems(
    saved: SavedWeight | None, file: Path, mesh_shape: tuple[int, ...] | None, *, verify: bool
) -> list[str]:
    """Return the problems of a file before it is loaded; ``saved`` is its entry in the list."""
    if saved is None:
        return [] if file.exists() else [f"there is no file {file}; run convert_weights"]
    problem = file_problem(saved, file, verify=verify)
    if problem is not None:
        return [problem]
    if mesh_shape is not None and saved.mesh_shape != mesh_shape:
        made, found = shape_text(saved.mesh_shape), shape_text(mesh_shape)
        text = f"{file} was written for a {made} mesh, this one is {found}"
        return [f"{text}; run convert_weights with this one"]
    return []


def weight_problems(
    facts: WeightFacts, expected: FromWeight | None, mesh_shape: tuple[int, ...]
) -> list[str]:
    """Return the differences between a weight and the model configuration's FromWeight."""
    if expected is None:
        return []
    pairs = [
        ("shape", expected.shape and shape_text(tuple(expected.shape)), shape_text(facts.shape)),
        ("dtype", _dtype(expected.dtype), facts.dtype),
        ("layout", _symbol(expected.layout), facts.layout),
    ]
    problems = [
        f"its {name} is {found}, not {wanted} as expected; convert it again, or expect {found}"
        for name, wanted, found in pairs
        if wanted is not None and wanted != found
    ]
    memory = expected.memory_config
    if memory is not None and describe(memory, loaded_tables()) != facts.memory:
        problems.append("its memory configuration is not the expected one")
    if expected.sharding is not None:
        wanted = spread(expected.sharding.dims, mesh_shape, len(facts.shape))
        if wanted != facts.spread:
            problems.append(f"it is {_split(facts.spread)}, but expected {_split(wanted)}")
    return problems


def _split(found: tuple[tuple[int, int], ...]) -> str:
    parts = [f"dimension {dim} in {count} parts" for count, dim in found]
    return f"split: {' and '.join(parts)}" if parts else "a copy on every chip"


def _symbol(live: object) -> str | None:
    value = describe(live, loaded_tables())
    return value.name if isinstance(value, Symbol) else None


def _dtype(live: object) -> str | None:
    name = _symbol(live)
    return None if name is None else f"ttnn.{name.lower()}"


MAX_FAULTS: Final = 200
"""How many faults are listed, after equal ones of several layers were joined."""


class Module(ABC):
    """One part of a model, in three stages; each of them can run alone.

    ``convert_weights`` writes the weights as ttnn files. ``prefill_model_config`` and
    ``decode_model_config`` return how each op is called. ``create_run_config`` joins the two, and
    ``forward`` unpacks the result: ``ttnn.linear(x, **cfg["w1"])``.
    """

    @staticmethod
    @abstractmethod
    def convert_weights(
        hf_config: Any, state_dict: Any, output_path: Path, mesh_device: Any
    ) -> Any:
        """Write the weights below ``output_path``; return their files by op and argument."""

    @staticmethod
    @abstractmethod
    def prefill_model_config(hf_config: Any, mesh_device: Any) -> Any:
        """Return the op configurations of prefill; everything in them can be written as JSON."""

    @staticmethod
    @abstractmethod
    def decode_model_config(hf_config: Any, mesh_device: Any) -> Any:
        """Return the op configurations of decode, in the same structure."""

    @abstractmethod
    def __init__(self, hf_config: Any, mesh_device: Any) -> None:
        """Prepare the parts that depend on the run: dynamic configurations, caches."""

    @abstractmethod
    def forward(self, x: Any, cfg: Any, mesh_device: Any) -> Any:
        """Execute the module with a run configuration."""


class _Entry(dict[str, Any]):
    """A plain dictionary of arguments; holds its weights, so that the cache keeps them."""

    __slots__ = ("held",)

    held: tuple[LoadedWeight, ...]


def create_run_config(
    model_config: Tree,
    weight_config: Tree,
    mesh_device: Any,
    *,
    weights_root: Path | str | None = None,
    cache: WeightCache | None = None,
    verify: bool = True,
) -> Any:
    """Return a model configuration with its ranges expanded and its weights loaded.

    Each op configuration in it is a separate instance. Numbers are keys: ``cfg["layers"][3]``.
    Relative paths start at ``weights_root``, or in the working directory. Files are read whole to
    compare their checksums, unless ``verify`` is off. Run configurations that share a ``cache``
    load each weight once. BadConfig lists every fault with its path.
    """
    joining = _Joining(mesh_device, weights_root, cache, verify=verify)
    return joining.create({"": model_config}, weight_config)[""]


def create_run_configs(
    model_configs: Mapping[str, Tree],
    weight_config: Tree,
    mesh_device: Any,
    *,
    weights_root: Path | str | None = None,
    cache: WeightCache | None = None,
    verify: bool = True,
) -> dict[str, Any]:
    """Return the run configuration of each mode, prefill and decode; weights are loaded once.

    A weight counts as used if at least one mode uses it.
    """
    joining = _Joining(mesh_device, weights_root, cache, verify=verify)
    return joining.create(dict(model_configs), weight_config)


class _Joining:
    def __init__(
        self,
        mesh_device: Any,
        weights_root: Path | str | None,
        cache: WeightCache | None,
        *,
        verify: bool,
    ) -> None:
        self._mesh = mesh_device
        self._mesh_shape = mesh_shape_of(mesh_device)
        self._root = Path() if weights_root is None else Path(weights_root)
        self._cache = WeightCache() if cache is None else cache
        self._verify = verify
        self._loads = True
        self._faults: list[Fault] = []
        self._seen: dict[tuple[str, int], tuple[LoadedWeight | None, list[str]]] = {}
        self._loaded: dict[str, LoadedWeight] = {}
        self._added: dict[str, list[Any]] = {}
        self._changed: dict[str, list[str]] = {}

    def create(self, models: dict[str, Tree], weight_config: Tree) -> dict[str, Any]:
        weights = expand(weight_config or {})
        expanded = {name: expand(model, name) for name, model in models.items()}
        for each in (weights, *expanded.values()):
            self._faults += each.faults
        if not all(each.is_whole for each in (weights, *expanded.values())):
            self._raise_faults()
        asked = self._check({name: each.tree for name, each in expanded.items()}, weights.tree)
        # After a fault, files are checked but not loaded.
        self._loads = not self._faults
        for path, (entry, expected) in asked.items():
            self._load(path, entry, expected)
        self._raise_faults()
        return {name: self._built(each.tree, name, name) for name, each in expanded.items()}

    def _check(self, models: dict[str, Tree], weights: Tree) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        unused: list[dict[str, Any]] = []
        signatures = loaded_signatures()
        for name, model in models.items():
            checker = Checker(self._mesh_shape, signatures)
            checker.check(model, weights or None, name)
            self._faults += checker.faults
            asked |= checker.asked
            self._added |= checker.added
            self._changed |= checker.changed
            unused.append(checker.unused)
        modes = tuple(models)
        # Paths begin with the mode; without it, those of two modes can be compared.
        bare = [
            {path.removeprefix(f"{name}."): path for path in found}
            for name, found in zip(modes, unused, strict=True)
        ]
        for path, shown in bare[0].items() if bare else ():
            if all(path in others for others in bare):
                self._fault(
                    shown if len(modes) == 1 else path,
                    "a weight is given for it, but the model configuration has no such entry",
                )
        return asked

    def _load(self, path: str, entry: Any, expected: Any) -> None:
        """Load the weight of an argument; each file is checked once."""
        if not isinstance(entry, (str, os.PathLike)):
            self._fault(path, f"expected the path of a file, found {type(entry).__name__}")
            return
        key = (os.fspath(entry), id(expected))
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._look(entry, expected)
        loaded, problems = found
        if loaded is not None:
            self._loaded[path] = loaded
        for problem in problems:
            self._fault(path, problem)

    def _look(self, entry: Any, expected: Any) -> tuple[LoadedWeight | None, list[str]]:
        saved = entry if isinstance(entry, SavedWeight) else None
        file = self._file(entry)
        problems = saved_problems(saved, file, self._mesh_shape, verify=self._verify)
        if problems:
            return None, problems
        if not self._loads:
            facts = None if saved is None else saved.facts
            return None, [] if facts is None else self._against(facts, expected)
        try:
            loaded = self._cache.load(file, self._mesh)
        except (OSError, RuntimeError, TypeError) as error:
            first = str(error).strip().partition("\nbacktrace:")[0].replace("\ninfo:\n", " ")
            return None, [f"ttnn cannot load {file} onto this mesh: {first}"]
        if saved is not None and loaded.facts != saved.facts:
            return loaded, [f"{file} is not the file that was written; run convert_weights again"]
        return loaded, self._against(loaded.facts, expected)

    def _against(self, facts: WeightFacts, expected: FromWeight | None) -> list[str]:
        return weight_problems(facts, expected, self._mesh_shape or ())

    def _file(self, entry: Any) -> Path:
        file = self._root.joinpath(os.fspath(entry))
        if file.name.endswith(SUFFIX) or file.exists():
            return file
        # The model may leave out the suffix, on which ttnn insists.
        with_suffix = file.with_name(f"{file.name}{SUFFIX}")
        return with_suffix if with_suffix.exists() else file

    def _built(self, tree: Tree, path: str, mode: str) -> Any:
        if isinstance(tree, OpConfig):
            return self._built_op(tree, path, mode)
        if isinstance(tree, MeshDeviceStub):
            return self._mesh
        if not is_inner(tree):
            loaded = self._loaded.get(path)
            return tree if loaded is None else loaded.tensor
        built = {key: self._built(child, step(path, key), mode) for key, child in children(tree)}
        return list(built.values()) if isinstance(tree, list) else self._built_dict(built, path)

    def _built_dict(self, built: dict[Any, Any], path: str) -> dict[Any, Any]:
        """Return a dictionary of arguments with its weights; any other unchanged."""
        names = [name for name in built if step(path, name) in self._loaded]
        names += self._added.get(path, [])
        if not names:
            return built
        loaded = {name: self._loaded[step(path, name)] for name in names}
        entry = _Entry(built | {name: each.tensor for name, each in loaded.items()})
        entry.held = tuple(loaded.values())
        return entry

    def _built_op(self, config: OpConfig, path: str, mode: str) -> OpConfig:
        changes: dict[str, Any] = {}
        held = []
        for name in self._changed.get(path, ()):
            loaded = self._loaded.get(step(path, name))
            if loaded is None:
                changes[name] = self._mesh
            else:
                changes[name] = loaded.tensor
                held.append(loaded)
        return bound(config, path[len(mode) :].removeprefix("."), changes, tuple(held))

    def _fault(self, path: str, problem: str) -> None:
        self._faults.append(Fault(path, problem))

    def _raise_faults(self) -> None:
        faults = gathered_faults(self._faults)
        if len(faults) > MAX_FAULTS:
            more = Fault("...", f"{len(faults) - MAX_FAULTS} more faults, not listed")
            faults = [*faults[:MAX_FAULTS], more]
        if faults:
            raise BadConfig(tuple(faults))
