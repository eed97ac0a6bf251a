from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest

from optrove.pytest_plugin.items import facts, mode, module_name, plain


class Attention:
    pass


class Mode(Enum):
    PREFILL = 1


def item(nodeid="tests/test_mlp.py::test_one", params=None, **funcargs):
    callspec = SimpleNamespace(params=params or {})
    return SimpleNamespace(nodeid=nodeid, callspec=callspec, funcargs=funcargs)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (item(), "mlp"),
        (item("test_a.b.py"), "a.b"),
        (item("dir/mlp_test.py::TestX::test_y[z::w]"), "mlp_test"),
        (item(params={"MLPClass": Attention}), "Attention"),
        (item(module_class=Attention), "Attention"),
        (item(params={"OtherClass": "a text"}, classroom=Attention), "mlp"),
    ],
)
def test_the_module_is_a_class_that_is_given_or_the_file(given, name):
    assert module_name(given) == name


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (item(params={"mode": "decode"}), "decode"),
        (item(params={"mode": 1}, mode=Mode.PREFILL), "PREFILL"),
        (item("test_a.py::test_b[batch_32-decode]"), "decode"),
        (item("test_prefill.py::test_b[decode_1]"), "decode"),
        (item("test_prefill.py::test_b[x]"), "prefill"),
        (item("test_a.py::test_Prefill_x"), "prefill"),
        (item("test_a.py::test_prefill_and_decode"), ""),
        (item("test_a.py::test_decoder[predecode]"), ""),
        (item(), ""),
    ],
)
def test_the_mode_is_given_or_a_word_of_the_id(given, found):
    assert mode(given) == found


def test_an_item_without_parameters_and_fixtures_has_facts():
    found = facts(SimpleNamespace(nodeid="notes.txt::line 4"), pytest.fail)
    assert found.pop("module") == "notes"
    assert set(found.values()) == {""}


def test_the_short_configuration_counts_too():
    config = SimpleNamespace(max_seq_len=128, max_position_embeddings=4096)
    assert facts(item(hf_config_short=config), pytest.fail)["hf_max_seq_len"] == "128"


def test_a_single_device_is_a_mesh():
    device = SimpleNamespace(shape=(1, 1), get_num_devices=lambda: 1)
    found = facts(item(device=device), pytest.fail)
    assert (found["mesh_shape"], found["mesh_num_devices"]) == ("1x1", "1")


class Unprintable:
    def __str__(self):
        raise RuntimeError("not now")


def test_what_cannot_be_shown_is_a_fault_and_an_empty_column():
    faults = []
    assert facts(item(seq_len=Unprintable()), faults.append)["seq_len"] == ""
    assert [str(fault) for fault in faults] == ["not now"]


def test_values_are_shown_without_addresses_and_without_numbers_of_tensors():
    assert plain([1, None, 2.5, "a", {"k": (True, Mode.PREFILL, Attention)}]) == [
        1, None, 2.5, "a", {"k": [True, "PREFILL", "Attention"]},
    ]  # fmt: skip
    assert plain(object()) == "<object object>"
    assert plain(np.zeros((2, 3))) == "ndarray(shape=[2, 3], dtype=float64)"


def test_a_value_that_holds_itself_is_shown():
    endless = []
    endless.append(endless)
    assert "[...]" in str(plain(endless))
