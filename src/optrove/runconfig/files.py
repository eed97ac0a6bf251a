"""Model configurations as JSON files: one, or one for each mode.

    {"format": "optrove-config", "version": 1, "config": ...}
    {"format": "optrove-config", "version": 1, "configs": {"prefill": ..., "decode": ...}}

The plain JSON of ``to_jsonable(config)`` is read as well; one whose only keys are prefill and
decode is taken as that pair.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.describe import describe
from optrove.backends.frameworks import loaded_tables
from optrove.backends.jsonable import inert_from, live_from
from optrove.codec.text import read
from optrove.codec.wire import encode
from optrove.errors import BadConfig, BadData, BadTarget, Fault
from optrove.runconfig.checking import dynamic_faults
from optrove.runconfig.gathering import gathered_faults
from optrove.runconfig.known import compact, complete, table_with
from optrove.runconfig.weight_lists import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optrove.codec.text import Json

FORMAT: Final = "optrove-config"
VERSION: Final = 1
MODES: Final = frozenset({"prefill", "decode"})


def save_config(config: Any, file: Path | str) -> None:
    """Write a model configuration, whole or not at all; OSError if that cannot be.

    BadConfig names what cannot be written, since it depends on the run: functions, tensors, ...
    """
    _save({"config": _data(config)}, Path(file))


def save_configs(configs: Mapping[str, Any], file: Path | str) -> None:
    """Write the model configurations of several modes, such as prefill and decode, likewise."""
    _save({"configs": {name: _data(each, name) for name, each in configs.items()}}, Path(file))


def load_config(file: Path | str, mesh_device: Any = None, *, types: Iterable[type] = ()) -> Any:
    """Return the model configuration of a file, with live objects of the installed ttnn.

    ``types`` are your own dataclasses. Of a file with several modes, a dictionary of them.
    BadData names every fault; BadTarget if the file cannot be read.
    """
    found, _ = _read(Path(file))
    own = table_with(types)
    live = {
        name: live_from(each, mesh_device, own=own, complete=complete)
        for name, each in found.items()
    }
    return live.get("", live)


def read_inert(file: Path) -> dict[str, Any]:
    """Return the configurations of a file by mode, a single one as ``""``; imports nothing.

    Objects of ttnn stay Structs and Symbols in it. BadData names every fault.
    """
    found, name = _read(file)
    try:
        return {mode: inert_from(each, table_with(), complete) for mode, each in found.items()}
    except BadData as error:
        raise BadData(
            tuple(Fault(f"{name}: {fault.path}", fault.problem) for fault in error.faults)
        ) from error


def _data(config: Any, path: str = "") -> Json:
    faults = gathered_faults(dynamic_faults(config, path))
    if faults:
        raise BadConfig(tuple(faults))
    return encode(compact(describe(config, loaded_tables())))


def _save(content: dict[str, Json], file: Path) -> None:
    import json

    data = {"format": FORMAT, "version": VERSION, **content}
    write_whole(file, (json.dumps(data, indent=1) + "\n").encode())


def _read(file: Path) -> tuple[dict[str, Json], str]:
    try:
        data = read(file.read_bytes())
    except OSError as error:
        raise BadTarget(f"{file} cannot be read: {error}") from error
    except BadData as error:
        raise BadTarget(f"{file} is no JSON: {error}") from error
    if type(data) is not dict:
        raise BadTarget(f"{file} holds no configuration: expected an object of JSON")
    if data.get("format") != FORMAT:
        return (data if data and data.keys() <= MODES else {"": data}), file.name
    if data.get("version") != VERSION:
        raise BadTarget(
            f"{file} has version {data.get('version')!r}, this optrove reads {VERSION}; "
            f"read it with the optrove that wrote it"
        )
    if type(data.get("configs")) is dict:
        return data["configs"], file.name
    if "config" not in data:
        raise BadTarget(f'{file} has neither "config" nor "configs"; was it cut off?')
    return {"": data["config"]}, file.name
