"""The list of weight files in their folder: ``weight_config.json``, with paths relative to it.

{"format": "optrove-weights", "version": 1, "ttnn": ..., "source": ...,
 "weights": [{"key": ["w1", "input_tensor_b"], "path": ..., "shape": [...], ...}, ...]}
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from optrove.codec.decode import decode_partly
from optrove.codec.text import read, write
from optrove.codec.wire import encode
from optrove.errors import BadData, UnusableWeights
from optrove.model.values import Struct
from optrove.runconfig.ranges import children, is_inner
from optrove.runconfig.weights import SavedWeight, WeightFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from optrove.codec.text import Json

NAME: Final = "weight_config.json"
FORMAT: Final = "optrove-weights"
VERSION: Final = 1

_TEXTS: Final = ("path", "dtype", "layout", "sha256", "source", "recipe")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class WeightList:
    """The weights of a folder, by key; ``source`` is what the model calls its checkpoint."""

    weights: Mapping[tuple[str, ...], SavedWeight]
    ttnn: str
    source: str | None


def load_weight_config(folder: Path | str, *, source: str | None = None) -> dict[str, Any]:
    """Return the weight configuration of a folder that ``save_weights`` has written.

    UnusableWeights where there is none, where it is another program's, or where it was made from
    another ``source`` than the given one.
    """
    found = read_list(Path(folder))
    if found is None:
        raise UnusableWeights(
            f"there is no {NAME} in {folder}: its weights were never written, or not to the end; "
            f"run convert_weights"
        )
    if source is not None and source != found.source:
        raise UnusableWeights(
            f"the weights in {folder} were made from {found.source!r}, asked for are those of "
            f"{source!r}; run convert_weights again"
        )
    tree: dict[str, Any] = {}
    for key, weight in found.weights.items():
        place = tree
        for part in key[:-1]:
            place = place.setdefault(part, {})
        place[key[-1]] = weight
    return tree


def read_list(folder: Path) -> WeightList | None:
    """Return the list in a folder, None where there is none; UnusableWeights if it is no list."""
    file = folder / NAME
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableWeights(f"{file} cannot be read: {error}") from error
    try:
        data = read(text)
        return _list(data, folder)
    except (BadData, ValueError, KeyError, TypeError) as error:
        raise UnusableWeights(
            f"{file} is no list of weights that this optrove has written ({error}); choose "
            f"another folder, or delete the file and run convert_weights again"
        ) from error


def write_list(found: WeightList, folder: Path) -> None:
    """Write a list into its folder, whole or not at all; OSError if that cannot be."""
    root = folder.absolute()
    data = {
        "format": FORMAT,
        "version": VERSION,
        "ttnn": found.ttnn,
        "source": found.source,
        "weights": [
            {"key": list(key), **_data(weight, root)} for key, weight in found.weights.items()
        ],
    }
    write_whole(folder / NAME, (write(data) + "\n").encode())


def write_whole(file: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees a part of it; OSError if that cannot be."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def keyed(tree: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the ends of nested dictionaries with the keys that lead to them."""
    if not is_inner(tree):
        yield key, tree
        return
    for name, child in children(tree):
        yield from keyed(child, (*key, str(name)))


def _data(weight: SavedWeight, root: Path) -> dict[str, Json]:
    facts = weight.facts
    return {
        "path": Path(weight.path).absolute().relative_to(root).as_posix(),
        "shape": list(facts.shape),
        "dtype": facts.dtype,
        "layout": facts.layout,
        "memory": None if facts.memory is None else encode(facts.memory),
        "spread": [list(pair) for pair in facts.spread],
        "mesh_shape": list(weight.mesh_shape),
        "size": weight.size,
        "sha256": weight.sha256,
        "source": weight.source,
        "recipe": weight.recipe,
    }


def _list(data: Json, folder: Path) -> WeightList:
    if type(data) is not dict or data.get("format") != FORMAT:
        raise ValueError(f'it does not say "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise ValueError(f"its version is {data.get('version')!r}, this optrove reads {VERSION}")
    source = data["source"]
    if source is not None and type(source) is not str:
        raise TypeError("its source is no text")
    weights = {_key(entry): _weight(entry, folder) for entry in data["weights"]}
    return WeightList(weights, str(data["ttnn"]), source)


def _key(entry: Json) -> tuple[str, ...]:
    key = entry["key"]
    if not key or type(key) is not list or not all(type(part) is str for part in key):
        raise TypeError("a key is no list of names")
    return tuple(key)


def _weight(entry: Json, folder: Path) -> SavedWeight:
    if not all(type(entry[name]) is str for name in _TEXTS):
        raise TypeError("a part that has to be text is none")
    relative = PurePosixPath(entry["path"])
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise ValueError(f"the path {entry['path']!r} leads out of the folder")
    if not _DIGEST.fullmatch(entry["sha256"]):
        raise ValueError("a checksum is none")
    facts = WeightFacts(
        _numbers(entry["shape"]),
        entry["dtype"],
        entry["layout"],
        _memory(entry["memory"]),
        tuple((count, dim) for count, dim in map(_numbers, entry["spread"])),
    )
    (size,) = _numbers([entry["size"]])
    return SavedWeight(
        path=str(folder / relative),
        facts=facts,
        mesh_shape=_numbers(entry["mesh_shape"]),
        size=size,
        sha256=entry["sha256"],
        source=entry["source"],
        recipe=entry["recipe"],
    )


def _numbers(data: Json) -> tuple[int, ...]:
    if type(data) is not list or not all(type(number) is int and number >= 0 for number in data):
        raise TypeError("a list of whole numbers is none")
    return tuple(data)


def _memory(data: Json) -> Struct | None:
    if data is None:
        return None
    value, faults = decode_partly(data)
    if faults or not isinstance(value, Struct):
        raise ValueError("a memory configuration is none")
    return value
