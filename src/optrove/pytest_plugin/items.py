"""Read from a pytest item what it tests: its module, mode, sizes, mesh and parameters."""

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
_LONGEST = 500
_DEEPEST = 4


def module_name(item: pytest.Item) -> str:
    """Return the name of what is tested: a class among the parameters and fixtures of the test.

    That is one whose parameter is called ``module_class`` or ends in ``Class``; where there is
    none, it is the name of the test's file without ``test_``.
    """
    for name, value in given(item).items():
        if isinstance(value, type) and (name == "module_class" or name.endswith("Class")):
            return value.__name__
    return module_of_file(item.nodeid)


def module_of_file(node_id: str) -> str:
    """Return the name of the file of a node id, without directories, ``test_`` and suffix."""
    file = re.split(r"[/\\]", node_id.split("::")[0])[-1]
    return file.rpartition(".")[0].removeprefix("test_") or file


def mode(item: pytest.Item) -> str:
    """Return the test's ``mode`` parameter or fixture, or prefill or decode if its id says so."""
    value = given(item).get("mode")
    return mode_of_id(item.nodeid) if value is None else text(value)


def mode_of_id(node_id: str) -> str:
    """Return prefill or decode if the id of a test says so, else nothing.

    The parameters in the id come first, then the name of the test, then its file; one that says
    both says nothing.
    """
    path, _, rest = node_id.partition("::")
    name, _, parameters = rest.partition("[")
    for part in (parameters, name, path):
        words = set(_MODE.findall(part.lower()))
        if len(words) == 1:
            return str(words.pop())
    return ""


def given(item: pytest.Item) -> dict[str, Any]:
    """Return the parameters and fixtures of a test; of both kinds under one name, the fixture."""
    return {**parameters(item), **_fixtures(item)}


def parameters(item: pytest.Item) -> dict[str, Any]:
    """Return the parameters that the test was collected with."""
    return dict(getattr(getattr(item, "callspec", None), "params", {}))


def facts(item: pytest.Item, on_fault: Callable[[Exception], object]) -> dict[str, str]:
    """Return the columns that tell what a test was run with; those that nothing tells are empty.

    Call it while fixtures live: a mesh that has been closed answers no questions. A fixture that
    fails to answer is a fault and an empty column.
    """
    values = given(item)
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
    """Return the module and the mode of a test, None where nothing tells; never raises."""
    module = _answer(lambda: module_name(item), on_fault)
    return module or None, _answer(lambda: mode(item), on_fault) or None


def text(value: Any) -> str:
    """Return a value as a column shows it."""
    if value is None:
        return ""
    shown = plain(value)
    return shown if isinstance(shown, str) else str(shown)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value in the form that JSON has for it; classes and enums by name.

    Tensors are told by shape and dtype: to print one may read it from a device.
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
    # Addresses would make equal parameters differ from run to run.
    return _ADDRESS.sub("", str(value))[:_LONGEST]


def _fixtures(item: pytest.Item) -> dict[str, Any]:
    return dict(getattr(item, "funcargs", None) or {})


def _answer(read: Callable[[], str], on_fault: Callable[[Exception], object]) -> str:
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - what a user's fixture raises must not fail the test; it is handed on
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
        # A parameter that no fixture has turned into a device yet is the shape itself.
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
