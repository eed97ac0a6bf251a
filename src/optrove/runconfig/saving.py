"""Write weights as files of ttnn, in a folder that can be moved, and only those that changed."""

from __future__ import annotations

import logging
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.content import content_digest, is_array
from optrove.backends.describe import describe
from optrove.backends.frameworks import loaded_tables
from optrove.backends.ttnn.weight_tensors import SUFFIX, WeightTensors
from optrove.codec.canonical import canonical_bytes
from optrove.errors import BadConfig, Fault, UnusableWeights
from optrove.model.values import DeviceRef
from optrove.runconfig.sharding import part_shape
from optrove.runconfig.weight_lists import WeightList, keyed, read_list, write_list
from optrove.runconfig.weights import SavedWeight, Weight, file_digest, file_problem, tensor_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.backends.ttnn.weight_tensors import Packing

_LOG: Final = logging.getLogger(__name__)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_LEAST_KEYS: Final = 2


def save_weights(
    weights: Mapping[str, Any],
    output_path: Path | str,
    mesh_device: Any,
    *,
    source: str | None = None,
) -> dict[str, Any]:
    """Write weights below ``output_path``; return the weight configuration, of the same structure.

    ``weights`` has a Weight for each argument: ``{"w1": {"input_tensor_b": Weight(...)}}`` becomes
    the file ``w1.input_tensor_b.tensorbin``. Keys before the last two are folders. What is there
    already and was made from the same numbers in the same way is kept. ``source`` names the
    checkpoint, for ``load_weight_config`` to compare.

    BadConfig names every weight that cannot be written so; UnusableWeights if the disk refuses.
    """
    folder = Path(output_path)
    tensors = WeightTensors()
    writer = _Writer(folder, mesh_device, tensors)
    wanted = dict(keyed(dict(weights)))
    writer.refuse_bad(wanted)
    before = read_list(folder)
    if before is not None and before.ttnn == tensors.version:
        writer.known = before.weights
    try:
        saved = {key: writer.save(key, weight) for key, weight in wanted.items()}
        write_list(WeightList(saved, tensors.version, source), folder)
    except OSError as error:
        raise UnusableWeights(
            f"weights cannot be written to {folder}: {error}; make room or choose another folder"
        ) from error
    _LOG.info("%s: %d weights, %d of them written", folder, len(saved), writer.written)
    return {name: _nested(child, saved, (name,)) for name, child in weights.items()}


def _nested(tree: Any, saved: Mapping[tuple[str, ...], Any], key: tuple[str, ...]) -> Any:
    if key in saved:
        return saved[key]
    return {name: _nested(child, saved, (*key, str(name))) for name, child in tree.items()}


class _Writer:
    """Writes the weights of one folder; ``known`` are those that the folder holds already."""

    def __init__(self, folder: Path, mesh_device: Any, tensors: WeightTensors) -> None:
        self.known: Mapping[tuple[str, ...], SavedWeight] = {}
        self.written = 0
        self._folder = folder
        self._mesh = mesh_device
        self._tensors = tensors
        self._mesh_shape = _open_mesh_shape(mesh_device)

    def refuse_bad(self, wanted: Mapping[tuple[str, ...], Any]) -> None:
        """Raise BadConfig if something cannot be a weight, before anything is written."""
        faults = [
            Fault(".".join(key) or "the weights", problem)
            for key, weight in wanted.items()
            for problem in [self._problem(key, weight)]
            if problem
        ]
        if faults:
            raise BadConfig(tuple(faults))

    def _problem(self, key: tuple[str, ...], weight: Any) -> str | None:
        if not isinstance(weight, Weight):
            return f"expected a Weight, found {type(weight).__name__}"
        if len(key) < _LEAST_KEYS:
            return 'a weight needs the keys of its op and argument: {"w1": {"input_tensor_b": ...}}'
        if not all(_NAME.fullmatch(part) for part in key):
            return "a key cannot be part of a file name: use letters, digits, _ . and -"
        if not is_array(weight.tensor):
            return f"expected an array of torch or numpy, found {type(weight.tensor).__name__}"
        part = part_shape(tuple(weight.tensor.shape), weight.sharding.dims, self._mesh_shape)
        return part if isinstance(part, str) else None

    def save(self, key: tuple[str, ...], weight: Weight) -> SavedWeight:
        """Return the file of a weight, written now or before."""
        packing = self._tensors.packing(
            weight.dtype, weight.layout, weight.memory_config, weight.sharding.dims
        )
        source = content_digest(weight.tensor)
        recipe = _recipe(source, packing, self._mesh_shape)
        known = self.known.get(key)
        if (
            known is not None
            and known.recipe == recipe
            and file_problem(known, Path(known.path), verify=False) is None
        ):
            return known
        folder = self._folder.joinpath(*key[:-2])
        file = folder / f"{'.'.join(key[-2:])}{SUFFIX}"
        folder.mkdir(parents=True, exist_ok=True)
        tensor = self._tensors.pack(weight.tensor, packing, self._mesh)
        facts = tensor_facts(tensor)
        size, digest = self._write(tensor, file)
        self.written += 1
        return SavedWeight(str(file), facts, self._mesh_shape, size, digest, source, recipe)

    def _write(self, tensor: Any, file: Path) -> tuple[int, str]:
        """Write a file under another name first, so that nobody ever sees a part of it."""
        draft = file.with_name(f".{os.getpid()}.{file.name}")
        try:
            self._tensors.dump(tensor, draft)
            with draft.open("rb") as stream:
                os.fsync(stream.fileno())
                size = os.fstat(stream.fileno()).st_size
            digest = file_digest(draft)
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
        return size, digest


def _open_mesh_shape(mesh_device: Any) -> tuple[int, ...]:
    device = describe(mesh_device, loaded_tables())
    if not isinstance(device, DeviceRef):
        raise UnusableWeights(
            f"weights are spread over an open mesh device, given is {type(mesh_device).__name__}; "
            f"open one, a mock board will do: with optrove.mock_board('galaxy'): ..."
        )
    return device.mesh_shape


def _recipe(source: str, packing: Packing, mesh_shape: tuple[int, ...]) -> str:
    asked = (packing.dtype, packing.layout, packing.memory_config, packing.dims, mesh_shape)
    told = sha256(source.encode())
    told.update(canonical_bytes(describe(asked, loaded_tables())))
    return told.hexdigest()
