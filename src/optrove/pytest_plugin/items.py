"""The facts about a pytest item: its module, mode, sizes, mesh and parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_MODE = re.compile(r"(?<![a-z])(prefill|decode)(?![a-z])")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MAX_CHARS = 500
_DEEPEST = 4


def module_name(item: pytest.Item) -> str:
    """Return the name of the tested class, from the parameters and fixtures of the test.

    It is a class whose parameter is named ``module_class`` or ends in ``Class``; without one, the
    name is that of the test's file without ``test_``.
    """
    for name, value in parameters_and_fixtures(item).items():
        if isinstance(value, type) and (name == "module_class" or name.endswith("Class")):
            return value.__name__
    return module_of_file(item.nodeid)


def module_of_file(node_id: str) -> str:
    """Return the name of the file of a node id, without directories, ``test_`` and suffix."""
    file = re.split(r"[/\\]", node_id.split("::")[0])[-1]
    return file.rpartition(".")[0].removeprefix("test_") or file


def mode(item: pytest.Item) -> str:
    """Return the ``mode`` parameter or fixture of a test, else prefill or decode from its id."""
    value = parameters_and_fixtures(item).get("mode")
    return mode_of_id(item.nodeid) if value is None else text(value)


def mode_of_id(node_id: str) -> str:
    """Return prefill or decode if the id of a test has that word, else "".

    The parameters in the id count first, then the name of the test, then its file; a part with
    both words does not count.
    """
    path, _, rest = node_id.partition("::")
    name, _, parameters = rest.partition("[")
    for part in (parameters, name, path):
        words = set(_MODE.findall(part.lower()))
        if len(words) == 1:
            return str(words.pop())
    return ""


def parameters_and_fixtures(item: pytest.Item) -> dict[str, Any]:
    """Return the parameters and fixtures of a test; a fixture replaces a parameter of its name."""
    return {**parameters(item), **(getattr(item, "funcargs", None) or {})}


def parameters(item: pytest.Item) -> dict[str, Any]:
    """Return the parameters that the test was collected with."""
    return dict(getattr(getattr(item, "callspec", None), "params", {}))


def facts(item: pytest.Item, on_fault: Callable[[Exception], object]) -> dict[str, str]:
    """Return the columns for the module, sizes and mesh of a test; unknown ones are empty.

    Call it while fixtures are alive: a closed mesh cannot be read. A fixture that raises is a fault
    and an empty column.
    """
    values = parameters_and_fixtures(item)
    columns: dict[str, Callable[[], str]] = {
        "module": lambda: module_name(item),
        "mode": lambda: mode(item),
        "seq_len": lambda: text(values.get("seq_len")),
        "batch_size": lambda: text(values.get("batch_size")),
        "weights_type": lambda: text(values.get("weights_type")),
        "module_path": lambda: text(values.get("module_path")),
        "hf_max_seq_len": lambda: _longest_sequence(values),
        "mesh_shape": lambda: _mesh_shape(values),
        "mesh_num_devices": lambda: _mesh_devices(values),
    }
    return {name: _answer(read, on_fault) for name, read in columns.items()}


def subject(
    item: pytest.Item, on_fault: Callable[[Exception], object]
) -> tuple[str | None, str | None]:
    """Return the module and the mode of a test, None if unknown; never raises."""
    module = _answer(lambda: module_name(item), on_fault)
    return module or None, _answer(lambda: mode(item), on_fault) or None


def text(value: Any) -> str:
    """Return a value as a column shows it."""
    if value is None:
        return ""
    shown = plain(value)
    return shown if isinstance(shown, str) else str(shown)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON; classes and enums by name.

    Of tensors, only shape and dtype are shown: printing one may read it from a device.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping) and depth < _DEEPEST:
        return {str(key): plain(part, depth + 1) for key, part in value.items()}
    if isinstance(value, list | tuple) and depth < _DEEPEST:
        return [plain(part, depth + 1) for part in value]
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__}(shape={list(value.shape)}, dtype={value.dtype})"
    # With addresses, equal parameters would differ from run to run.
    return _ADDRESS.sub("", str(value))[:_MAX_CHARS]


def _answer(read: Callable[[], str], on_fault: Callable[[Exception], object]) -> str:
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - an error of a user's fixture must not fail the test; it is reported
        on_fault(error)
        return ""


def _longest_sequence(values: Mapping[str, Any]) -> str:
    for fixture in ("hf_config", "hf_config_short"):
        for name in ("max_seq_len", "max_position_embeddings"):
            found = getattr(values.get(fixture), name, None)
            if found is not None:
                return text(found)
    return ""


def _mesh_shape(values: Mapping[str, Any]) -> str:
    for name in ("mesh_device", "device"):
        value = values.get(name)
        # Before a fixture turns it into a device, the parameter is the shape.
        shape = value if isinstance(value, tuple) else getattr(value, "shape", None)
        if shape is not None:
            return "x".join(str(int(size)) for size in shape)
    return ""


def _mesh_devices(values: Mapping[str, Any]) -> str:
    for name in ("mesh_device", "device"):
        count = getattr(values.get(name), "get_num_devices", None)
        if count is not None:
            return str(int(count()))
    return ""
