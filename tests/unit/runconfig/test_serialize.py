"""The public serializer where ttnn and torch are not installed."""

import dataclasses
import gc
import json
import os
import subprocess
import sys
import types
import weakref
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock

import pytest

from optrove.errors import BadData
from optrove.frameworks import installed as frameworks
from optrove.model.values import DeviceRef, List, Null, Struct, Symbol, TensorSpec, TorchPlacement
from optrove.runconfig import jsonable
from optrove.runconfig.jsonable import frameworks_in, from_jsonable, to_jsonable

MEMORY = {
    "$struct": "ttnn.MemoryConfig",
    "fields": {"buffer_type": {"$symbol": "ttnn.BufferType", "name": "DRAM"}},
}


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(jsonable, "is_importable", lambda framework: False)


@pytest.mark.usefixtures("nothing_installed")
def test_configurations_stay_structs_and_encode_to_the_same_json():
    data = {"a": [MEMORY, {"$symbol": "torch.dtype", "name": "float32"}], "b": MEMORY}
    live = from_jsonable(json.loads(json.dumps(data)))
    assert isinstance(live["b"], Struct)
    assert live["a"][1] == Symbol("torch.dtype", "float32")
    assert to_jsonable(live) == data


@pytest.mark.usefixtures("nothing_installed")
def test_placeholders_come_back_as_they_are():
    tensor = TensorSpec((1,), "torch.int8", TorchPlacement((1,), "strided", "cpu", False))
    device = DeviceRef("ttnn.MeshDevice", (1, 2))
    assert from_jsonable(to_jsonable([tensor, device])) == [tensor, device]
    assert from_jsonable(to_jsonable([device]), mesh_device="mine") == ["mine"]


@pytest.mark.usefixtures("nothing_installed")
def test_an_unknown_object_is_found_even_within_an_inert_struct():
    hidden = {"$struct": "ttnn.Config", "fields": {"x": {"$opaque": "m.Type", "token": "1"}}}
    with pytest.raises(BadData) as caught:
        from_jsonable([hidden])
    assert caught.value.faults[0].path == "$[0].fields.x"


def test_only_the_frameworks_that_the_data_names_are_wanted():
    assert frameworks_in(Null()) == []
    assert frameworks_in(List((Struct("ttnn.Shape", ()), Symbol("torch.dtype", "x")))) == [
        "torch",
        "ttnn",
    ]
    assert frameworks_in(List((Struct("ttnn", ()), Symbol("ttnnx.y", "x")))) == []


def bare():
    return types.ModuleType("torch")


def half_imported():
    module = types.ModuleType("torch")
    module.__spec__ = ModuleSpec("torch", None, origin="torch/__init__.py")
    module.__spec__._initializing = True
    return module


def unlike():
    module = types.ModuleType("torch")
    module.__spec__ = ModuleSpec("torch", None, origin="torch/__init__.py")
    return module


@pytest.fixture
def no_table_of_torch():
    frameworks.joined_tables.cache_clear()
    frameworks._framework_table.cache_clear()
    yield
    frameworks.joined_tables.cache_clear()
    frameworks._framework_table.cache_clear()


@pytest.mark.usefixtures("no_table_of_torch")
@pytest.mark.parametrize("stand_in", [lambda: None, bare, MagicMock, half_imported, unlike, object])
def test_what_stands_in_the_place_of_a_framework_does_not_stop_describing(stand_in, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", stand_in())
    assert to_jsonable([1, {"a": (2,)}]) == [1, {"a": {"$tuple": [2]}}]


@pytest.mark.usefixtures("no_table_of_torch")
@pytest.mark.parametrize("stand_in", [lambda: None, bare, MagicMock, object])
def test_what_stands_in_the_place_of_a_framework_is_no_framework(stand_in, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", stand_in())
    data = {"$symbol": "torch.dtype", "name": "float32"}
    assert from_jsonable(data) == Symbol("torch.dtype", "float32")


@pytest.mark.usefixtures("no_table_of_torch")
def test_a_framework_that_is_installed_but_broken_is_a_fault(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", unlike())
    with pytest.raises(BadData, match="torch is installed but cannot be used: AttributeError"):
        from_jsonable([{"$symbol": "torch.dtype", "name": "float32"}])
    assert from_jsonable([1]) == [1]


def test_building_keeps_no_class_alive():
    kind = dataclasses.make_dataclass("Config", ["size"])
    data = {"$struct": f"python.dataclass:{kind.__module__}:Config", "fields": {"size": 1}}
    assert from_jsonable(data, types=[kind]) == kind(1)
    death = weakref.ref(kind)
    del kind
    gc.collect()
    assert death() is None


def test_the_given_device_takes_the_place_of_the_recorded_one():
    device = object()
    data = {"$device": "python.Fake", "mesh_shape": [1], "identity": 0}
    assert from_jsonable(data, device) is device
    assert from_jsonable(data, mesh_device=device) is device


def test_the_text_does_not_depend_on_the_hash_seed():
    script = (
        "import json, optrove; print(json.dumps(optrove.to_jsonable(dict(d=1, a=2, c={3, 1}))))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert texts == {'{"a": 2, "c": {"$set": [1, 3]}, "d": 1}\n'}
